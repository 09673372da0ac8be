"""Settings: what is refused and how, what survives JSON, and that the program reads each one."""

import ast
import dataclasses
import functools
import json
import re
from itertools import pairwise
from pathlib import Path

import pytest

import transformer
from transformer import config as configuration
from transformer.config import (
    Config,
    DataConfig,
    DecodeConfig,
    GenerateConfig,
    HostsConfig,
    MeshConfig,
    ModelConfig,
    OptimizerConfig,
    SamplingConfig,
    TrainConfig,
)
from transformer.errors import UserError

PACKAGE = Path(transformer.__file__).parent
CONFIGS = PACKAGE.parent / "configs"
SECTIONS = {f.name: type(getattr(Config(), f.name)) for f in dataclasses.fields(Config)}
SETTINGS = [
    (section, f.name) for section, kind in SECTIONS.items() for f in dataclasses.fields(kind)
]


def setting_docs() -> dict[tuple[str, str], str]:
    """The text below each setting in config/*.py, by (section, name)."""
    classes = {
        node.name: node
        for path in (PACKAGE / "config").glob("*.py")
        for node in ast.parse(path.read_text("utf-8")).body
        if isinstance(node, ast.ClassDef)
    }
    docs = {}
    for section, kind in SECTIONS.items():
        body = classes[kind.__name__].body
        for field, text in pairwise(body):
            if isinstance(field, ast.AnnAssign) and isinstance(text, ast.Expr):
                assert isinstance(field.target, ast.Name) and isinstance(text.value, ast.Constant)
                docs[section, field.target.id] = " ".join(str(text.value.value).split())
    return docs


@pytest.mark.parametrize(
    ("kind", "values", "message"),
    [
        (ModelConfig, {"num_layers": 0}, "model.num_layers = 0: expected at least 1"),
        (
            ModelConfig,
            {"num_heads": 5},
            "model.num_heads = 5: expected a divisor of model.model_dim = 512",
        ),
        (
            ModelConfig,
            {"num_kv_heads": 3},
            "model.num_kv_heads = 3: expected a divisor of model.num_heads = 8",
        ),
        (
            ModelConfig,
            {"architecture": "decoder", "head": "classification", "num_classes": 1},
            "model.num_classes = 1: expected at least 2",
        ),
        (
            ModelConfig,
            {"num_classes": 2},
            "model.num_classes = 2: expected None, because model.head = 'language_model'",
        ),
        (
            DataConfig,
            {"objective": "classification"},
            "data.train = (): expected one or more TSV, CSV or JSONL files (see data.columns), "
            "because data.objective = 'classification'",
        ),
        (
            DataConfig,
            {"objective": "classification", "dataset": "cmudict", "train": ("a.tsv",)},
            "data.dataset = 'cmudict': expected auto, files, tfds:NAME or glue:TASK, because "
            "data.objective = 'classification'",
        ),
        (
            DataConfig,
            {"objective": "classification", "train": ("a.tsv",), "max_length": 4},
            "data.max_length = 4: expected at least 5",
        ),
        (
            DataConfig,
            {"columns": ("text", "text")},
            "data.columns = ('text', 'text'): expected text and label, each once, text2 for pairs, "
            "and - for others; or text=NAME text2=NAME label=NAME",
        ),
        (
            DataConfig,
            {"columns": ("text=a", "label")},
            "data.columns = ('text=a', 'label'): expected text and label, each once, text2 for "
            "pairs, and - for others; or text=NAME text2=NAME label=NAME",
        ),
        (
            DataConfig,
            {
                "objective": "classification",
                "dataset": "glue:rte",
                "train": ("a",),
                "columns": ("label", "text"),
            },
            "data.columns = ('label', 'text'): expected none and no data.header, because "
            "data.dataset = 'glue:rte' tells its own",
        ),
        (TrainConfig, {"keep_best": -1}, "train.keep_best = -1: expected 0 or more"),
        (TrainConfig, {"keep_every": 0}, "train.keep_every = 0: expected at least 1, or None"),
        (DataConfig, {"batch_size": 0}, "data.batch_size = 0: expected at least 1"),
        (
            DataConfig,
            {"objective": "regression", "dataset": "glue:stsb"},
            "data.train = (): expected one or more TSV, CSV or JSONL files (see data.columns), "
            "because data.dataset = 'glue:stsb'",
        ),
        (
            DataConfig,
            {"labels": ("a",)},
            "data.labels = ('a',): expected two or more different ones, or none",
        ),
        (
            DataConfig,
            {"noise_density": 1.0},
            "data.noise_density = 1.0: expected a fraction in (0, 1)",
        ),
        (DataConfig, {"mean_span": 0.5}, "data.mean_span = 0.5: expected at least 1"),
        (
            DataConfig,
            {"objective": "span_corruption", "block_length": 2},
            "data.block_length = 2: expected at least 3",
        ),
        (
            DataConfig,
            {"objective": "masked_language_model", "block_length": 4},
            "data.block_length = 4: expected at least 5, for a pair of texts with [CLS] and [SEP]",
        ),
        (
            DataConfig,
            {"objective": "masked_language_model", "block_length": 2, "next_sentence": False},
            "data.block_length = 2: expected at least 3, for a text with [CLS] and [SEP]",
        ),
        (
            DataConfig,
            {"tokenizer": "wordpiece", "normalization": "nfkc"},
            "data.normalization = 'nfkc': expected identity (cased) or nfkc_cf (uncased), because "
            "data.tokenizer = 'wordpiece'",
        ),
        (
            OptimizerConfig,
            {"warmup_fraction": 0.1},
            "optimizer.warmup_fraction = 0.1: expected a fraction in [0, 1], and another "
            "optimizer.schedule than 'noam'",
        ),
        (TrainConfig, {"epochs": 0.0}, "train.epochs = 0.0: expected above 0, or None"),
        (DataConfig, {"stride": 0}, "data.stride = 0: expected at least 1"),
        (DataConfig, {"question_length": 0}, "data.question_length = 0: expected at least 1"),
        (
            DataConfig,
            {"objective": "spans", "train": ("a.json",), "max_length": 68},
            "data.max_length = 68: expected at least data.question_length + 5 = 69",
        ),
        (
            DataConfig,
            {"objective": "spans"},
            "data.train = (): expected one or more JSON files in SQuAD's format, because "
            "data.objective = 'spans'",
        ),
        (
            DataConfig,
            {"objective": "multiple_choice", "train": ("a",), "columns": ("text", "label")},
            "data.columns = ('text', 'label'): expected text and label, each once, choice at "
            "least twice, text2 for what every choice begins with, and - for others; or "
            "text=NAME choice=NAME ... label=NAME",
        ),
        (
            DataConfig,
            {"objective": "multiple_choice", "dataset": "tfds:swag"},
            "data.dataset = 'tfds:swag': expected auto or files, because data.objective = "
            "'multiple_choice'",
        ),
        (MeshConfig, {"data": 0}, "mesh.data = 0: expected -1, or at least 1"),
        (MeshConfig, {"fsdp": -1}, "mesh.fsdp = -1: expected at least 1"),
        (HostsConfig, {"count": 0}, "hosts.count = 0: expected at least 1"),
        (HostsConfig, {"timeout": 0}, "hosts.timeout = 0: expected at least 1"),
        (
            HostsConfig,
            {"count": 2},
            "hosts.coordinator = None: expected HOST:PORT, because hosts.count = 2",
        ),
        (
            HostsConfig,
            {"index": 1},
            "hosts.coordinator = None: expected HOST:PORT, because hosts.index = 1",
        ),
        (
            HostsConfig,
            {"coordinator": "node1", "count": 2, "index": 0},
            "hosts.coordinator = 'node1': expected HOST:PORT, such as 10.0.0.1:8476",
        ),
        (
            HostsConfig,
            {"coordinator": "a:1", "index": 0},
            "hosts.count = None: expected how many processes there are, because "
            "hosts.coordinator is given",
        ),
        (
            HostsConfig,
            {"coordinator": "a:1", "count": 2},
            "hosts.index = None: expected the number of this process, because "
            "hosts.coordinator is given",
        ),
        (
            HostsConfig,
            {"coordinator": "a:1", "count": 2, "index": 2},
            "hosts.index = 2: expected 0 to 1, as hosts.count = 2",
        ),
        (
            Config,
            {"train": TrainConfig(best_by="score")},
            "train.best_by = 'score': expected 'loss', because data.objective = 'translation'",
        ),
        (TrainConfig, {"lm_weight": -0.5}, "train.lm_weight = -0.5: expected 0 or more"),
        (ModelConfig, {"vocab_size": 0}, "model.vocab_size = 0: expected at least 1"),
        (ModelConfig, {"dropout": 1.0}, "model.dropout = 1.0: expected a rate in [0, 1)"),
        (
            ModelConfig,
            {"norm_epsilon": 0.0},
            "model.norm_epsilon = 0.0: expected a positive number",
        ),
        (
            DataConfig,
            {"dataset": "tfds:"},
            "data.dataset = 'tfds:': expected auto, cmudict, files or tfds:NAME",
        ),
        (
            DataConfig,
            {"dataset": "files"},
            "data.train = (): expected one TSV file or two parallel files, "
            "because data.dataset = 'files'",
        ),
        (
            DataConfig,
            {"dataset": "cmudict", "train": ("a.tsv",)},
            "data.train = ('a.tsv',): expected data.dataset = 'files', found 'cmudict'",
        ),
        (
            DataConfig,
            {"dataset": "files", "train": ("a", "b", "c")},
            "data.train = ('a', 'b', 'c'): expected one TSV file or two parallel files",
        ),
        (DataConfig, {"batch_tokens": 0}, "data.batch_tokens = 0: expected at least 1"),
        (
            DataConfig,
            {"objective": "language_model", "dataset": "cmudict"},
            "data.dataset = 'cmudict': expected auto, python_docs, files or tfds:NAME, "
            "because data.objective = 'language_model'",
        ),
        (
            DataConfig,
            {"objective": "language_model", "dataset": "files"},
            "data.train = (): expected one or more text files, because data.dataset = 'files'",
        ),
        (
            DataConfig,
            {"test": ("a.tsv",)},
            "data.train = (): expected one TSV file or two parallel files, "
            "as data.validation or data.test is given",
        ),
        (
            DataConfig,
            {"objective": "language_model", "batch_tokens": 1023},
            "data.batch_tokens = 1023: expected at least data.block_length = 1024",
        ),
        (
            DataConfig,
            {"validation_fraction": 1.0},
            "data.validation_fraction = 1.0: expected a fraction in [0, 1)",
        ),
        (
            DataConfig,
            {"tokenizer": "file"},
            "data.tokenizer_file = None: expected the path of a tokenizer.json, "
            "because data.tokenizer = 'file'",
        ),
        (
            DataConfig,
            {"tokenizer_file": "tokenizer.json"},
            "data.tokenizer_file = 'tokenizer.json': expected None, "
            "because data.tokenizer = 'symbols'",
        ),
        (
            OptimizerConfig,
            {"final_factor": 1.5},
            "optimizer.final_factor = 1.5: expected a factor in [0, 1]",
        ),
        (
            OptimizerConfig,
            {"warmup_steps": 0},
            "optimizer.warmup_steps = 0: expected at least 1 with optimizer.schedule = 'noam'",
        ),
        (
            OptimizerConfig,
            {"learning_rate": 0.0},
            "optimizer.learning_rate = 0.0: expected above 0",
        ),
        (OptimizerConfig, {"beta2": 1.0}, "optimizer.beta2 = 1.0: expected a rate in [0, 1)"),
        (OptimizerConfig, {"clip_norm": 0.0}, "optimizer.clip_norm = 0.0: expected above 0"),
        (TrainConfig, {"steps": 0}, "train.steps = 0: expected at least 1"),
        (
            TrainConfig,
            {"label_smoothing": 1.0},
            "train.label_smoothing = 1.0: expected a probability in [0, 1)",
        ),
        (TrainConfig, {"seed": -1}, "train.seed = -1: expected 0 or more"),
        (DecodeConfig, {"beam_size": 0}, "decode.beam_size = 0: expected at least 1"),
        (DecodeConfig, {"extra_length": -1}, "decode.extra_length = -1: expected 0 or more"),
        (SamplingConfig, {"temperature": -1.0}, "temperature = -1.0: expected 0 (greedy) or above"),
        (SamplingConfig, {"top_k": 0}, "top_k = 0: expected at least 1, or None (all)"),
        (SamplingConfig, {"top_p": 0.0}, "top_p = 0.0: expected above 0 and at most 1"),
        (SamplingConfig, {"top_p": 1.5}, "top_p = 1.5: expected above 0 and at most 1"),
        (SamplingConfig, {"min_p": 1.1}, "min_p = 1.1: expected 0 to 1"),
        (GenerateConfig, {"max_new_tokens": 0}, "max_new_tokens = 0: expected at least 1"),
        (GenerateConfig, {"seed": 2**32}, "seed = 4294967296: expected 0 to 2**32 - 1"),
        (
            GenerateConfig,
            {"stop": ("a", "")},
            "stop = ('a', ''): expected texts that are not empty",
        ),
        (GenerateConfig, {"context": 0}, "context = 0: expected at least 1"),
        (GenerateConfig, {"length_penalty": -1}, "length_penalty = -1: expected 0 or more"),
        (
            GenerateConfig,
            {"beam_size": 3, "top_k": 5},
            "top_k = 5: expected None with beam_size > 1",
        ),
        (
            GenerateConfig,
            {"beam_size": 3, "samples": 4},
            "samples = 4: expected at most beam_size = 3",
        ),
    ],
    ids=lambda value: next(iter(value)) if isinstance(value, dict) else "",
)
def test_a_wrong_value_is_refused_by_name(kind, values, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        kind(**values)


def test_limits_are_allowed():
    OptimizerConfig(schedule="constant", warmup_steps=0)
    DecodeConfig(length_penalty=0.0, extra_length=0)
    ModelConfig(num_heads=1, num_kv_heads=1, dropout=0.0)
    TrainConfig(eval_examples=0, label_smoothing=0.0)


TEXTS = DataConfig(objective="language_model")
DECODER = ModelConfig("decoder")


@pytest.mark.parametrize(
    ("sections", "message"),
    [
        (
            {"data": TEXTS},
            "model.architecture = 'encoder_decoder': expected 'decoder', because data.objective = "
            "'language_model', or no settings of the model and train.init_from",
        ),
        (
            {"model": DECODER},
            "model.architecture = 'decoder': expected 'encoder_decoder', because data.objective = "
            "'translation', or no settings of the model and train.init_from",
        ),
        (
            {"model": ModelConfig("decoder", max_positions=1023), "data": TEXTS},
            "data.block_length = 1024: expected at most model.max_positions = 1023",
        ),
        (
            {"model": ModelConfig("decoder", max_positions=255), "data": DataConfig("answers")},
            "data.max_length = 256: expected at most model.max_positions = 255",
        ),
        (
            {"model": ModelConfig(positions="learned", max_positions=256)},
            "data.max_length = 256: expected below model.max_positions = 256",
        ),
        (
            {
                "model": ModelConfig(positions="learned", max_positions=1023),
                "data": DataConfig("span_corruption"),
            },
            "data.block_length = 1024: expected at most model.max_positions = 1023",
        ),
        (
            {"model": ModelConfig(positions="learned", max_positions=1073)},
            "decode.max_source_length = 1024: expected at most model.max_positions = 1073, with "
            "decode.extra_length = 50",
        ),
        (
            {"model": ModelConfig("decoder", head="classification"), "data": TEXTS},
            "model.head = 'classification': expected 'language_model', because data.objective = "
            "'language_model'",
        ),
        (
            {"model": ModelConfig(dropout=0.0), "data": TEXTS, "train": TrainConfig(init_from="a")},
            "model.architecture = 'encoder_decoder': expected 'decoder', because data.objective = "
            "'language_model', or no settings of the model and train.init_from",
        ),
        (
            {
                "model": ModelConfig("encoder", next_sentence=True),
                "data": DataConfig(objective="masked_language_model", next_sentence=False),
            },
            "model.next_sentence = True: expected False, because data.next_sentence = False",
        ),
        (
            {
                "model": ModelConfig("encoder", next_sentence=True),
                "data": DataConfig(objective="classification", train=("a.tsv",)),
            },
            "model.next_sentence = True: expected False, because data.objective = 'classification'",
        ),
        (
            {
                "model": ModelConfig("encoder", segment_types=1),
                "data": DataConfig(objective="masked_language_model"),
            },
            "model.segment_types = 1: expected 2, or 0 for none, because data.next_sentence = True",
        ),
    ],
    ids=[
        *("texts", "decoder", "long", "answers", "pairs", "spans", "outputs", "classes", "said"),
        *("single", "follows", "types"),
    ],
)
def test_model_and_data_must_fit(sections, message):
    with pytest.raises(UserError, match=f"^{re.escape(message)}$"):
        Config(**sections)


def test_a_model_that_is_left_out_is_not_looked_at():
    assert Config(data=TEXTS, train=TrainConfig(init_from="runs/gpt")).leaves_model
    assert not Config(model=DECODER, data=TEXTS).leaves_model


def test_where_the_data_is_from():
    assert DataConfig().origin == "cmudict" and TEXTS.origin == "python_docs"
    assert DataConfig(train=("a.tsv",)).origin == "files"
    assert DataConfig(dataset="tfds:x").origin == "tfds:x"


def test_settings_survive_json():
    config = Config(
        model=ModelConfig(num_layers=3, num_kv_heads=2, vocab_size=101, dtype="bfloat16"),
        data=DataConfig(dataset="files", train=("a.en", "a.de"), test=("b.tsv",)),
        optimizer=OptimizerConfig(schedule="cosine", clip_norm=1.5),
        train=TrainConfig(accumulate=7),
        decode=DecodeConfig(beam_size=2, early_stopping=True),
    )
    text = json.dumps(configuration.to_dict(config))
    assert configuration.from_dict(json.loads(text)) == config
    assert configuration.from_dict({}) == Config()


def test_unknown_names_in_a_dictionary_are_refused():
    """A misspelt `learing_rate` once trained happily with the default."""
    with pytest.raises(
        UserError, match=r"^optimizer\.learing_rate = 1: expected one of .*learning"
    ):
        configuration.from_dict({"optimizer": {"learing_rate": 1}})
    with pytest.raises(UserError, match=r"^section = 'optimiser': expected one of model, data"):
        configuration.from_dict({"optimiser": {}})


def test_every_setting_says_what_it_means():
    docs = setting_docs()
    assert set(docs) == set(SETTINGS)
    assert all(len(text) > 10 for text in docs.values())


# A setting is read as `SECTION.name` anywhere, or as `config.name` in the section's own package.
HOMES = {
    "model": ("modules/", "models/"),
    "data": ("data/",),
    "optimizer": ("training/optimizer.py",),
    "train": ("training/",),
    "decode": ("decoding/",),
    "mesh": ("parallel/",),
    "hosts": ("parallel/",),
}
SHORT_NAMES = {"config", "c", "settings"}
# These three are read by the name of a split.
READ_BY_SPLIT_NAME = {("data", "train"), ("data", "validation"), ("data", "test")}


@functools.cache
def reads() -> list[tuple[str, str, str]]:
    """(file, owner, name) of every ``owner.name`` outside config/."""
    found = []
    for path in PACKAGE.rglob("*.py"):
        where = path.relative_to(PACKAGE).as_posix()
        if where.startswith("config/"):
            continue
        for node in ast.walk(ast.parse(path.read_text("utf-8"))):
            if isinstance(node, ast.Attribute):
                owner = getattr(node.value, "attr", getattr(node.value, "id", ""))
                found.append((where, owner.strip("_"), node.attr))
    return found


def is_read(section: str, name: str) -> bool:
    """Whether some code outside config/ reads the setting."""
    return any(
        attribute == name
        and (owner == section or (where.startswith(HOMES[section]) and owner in SHORT_NAMES))
        for where, owner, attribute in reads()
    )


@pytest.mark.parametrize("setting", SETTINGS, ids=".".join)
def test_every_setting_is_read_somewhere(setting):
    """Configurations gather settings that nothing reads, and users tune them for days."""
    section, name = setting
    if setting == ("data", "dataset"):
        assert is_read(section, "origin")  # see test_where_the_data_is_from
    elif setting in READ_BY_SPLIT_NAME:
        assert "getattr(config, split)" in (PACKAGE / "data/sources.py").read_text("utf-8")
    elif name == "num_kv_heads":
        assert is_read(section, "kv_heads")
        assert ModelConfig(num_heads=4, num_kv_heads=2).kv_heads == 2
        assert ModelConfig(num_heads=4).kv_heads == 4
    elif name == "attention_dim":
        assert is_read(section, "head_dim")
        assert ModelConfig(model_dim=10, attention_dim=12, num_heads=3).head_dim == 4
        assert ModelConfig(model_dim=12, num_heads=3).head_dim == 4
    else:
        assert is_read(section, name)


def test_a_setting_that_nothing_reads_would_be_found():
    assert not is_read("model", "rope_theta")
    assert not is_read("decode", "ff_dim")


@pytest.mark.parametrize("path", sorted(CONFIGS.glob("*.py")), ids=lambda path: path.stem)
def test_shipped_configurations_load_and_say_how_to_run_them(path):
    assert isinstance(configuration.load(path), Config)
    assert f"--config configs/{path.name}" in path.read_text("utf-8")


def test_a_missing_configuration_suggests_the_nearest():
    with pytest.raises(UserError, match=r"quikstart\.py: no such file; did you mean .*quickstart"):
        configuration.load(CONFIGS / "quikstart.py")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("import transformr_", "ModuleNotFoundError: No module named 'transformr_'"),
        ("config = (", "SyntaxError: "),
        ("settings = 1", "expected a variable `config` of type transformer.config.Config"),
        ("config = {}", "expected a variable `config` of type transformer.config.Config"),
        (
            "from transformer.config import ModelConfig\nModelConfig(num_layers=0)",
            "model.num_layers = 0: expected at least 1",
        ),
        (
            "from transformer.config import ModelConfig\nModelConfig(layers=1)",
            "unexpected keyword argument 'layers'",
        ),
    ],
)
def test_a_broken_configuration_is_one_line(tmp_path, text, message):
    path = tmp_path / "mine.py"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(UserError, match=re.escape(message)) as caught:
        configuration.load(path)
    assert "\n" not in str(caught.value)
