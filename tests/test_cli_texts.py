"""Language models on the command line: trained, evaluated, drawn, and trained further."""

import math
import re
from pathlib import Path

import pytest

from tests.helpers import png_rows
from tests.test_cli import assert_refused, run  # noqa: F401  (a fixture)
from transformer.cli import main
from transformer.training.checkpoint import load_for_inference

CONFIGS = Path(__file__).parent.parent / "configs"
TINY = [
    "--model.num-layers", "1", "--model.model-dim", "14", "--model.ff-dim", "19",
    "--model.num-heads", "7",
]  # fmt: skip
CHAR = ["train", "--config", str(CONFIGS / "gpt_char.py")]
SHORT = ["--train.steps", "6", "--train.eval-every", "3", "--train.log-every", "2"]
TEXT = "What a day: the cat sat on the mat.\n" * 40


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> Path:
    """The small character model's recipe at a tiny size."""
    folder = tmp_path_factory.mktemp("texts")
    (folder / "input.txt").write_text(TEXT)
    data = ["--data.train", str(folder / "input.txt"), "--data.data-dir", str(folder / "cache")]
    assert main([*CHAR, *TINY, *SHORT, *data, "--workdir", str(folder / "run")]) == 0
    return folder / "run"


def test_evaluate_counts_every_token_once(run, trained):  # noqa: F811
    """144 held-out characters and the end, however they lie in batches of 12 rows of 64."""
    code, out, _ = run("evaluate", "--checkpoint", trained)
    assert code == 0
    found = re.search(
        r"nll (\S+) nats a token, perplexity (\S+) \(145 tokens, each counted once\)\n"
        r"(\S+) bits a character, (\S+) bits a byte \(144 characters\)",
        out,
    )
    assert found, out
    nll, perplexity, of_characters, of_bytes = map(float, found.groups())
    assert perplexity == pytest.approx(math.exp(nll), rel=1e-3)
    assert of_characters == of_bytes == pytest.approx(nll * 145 / 144 / math.log(2), rel=1e-3)
    few = run("evaluate", "--checkpoint", trained, "--data.batch-tokens", "64")[1]
    assert few.split("\n")[-3:] == out.split("\n")[-3:]


def test_texts_have_no_translations(run, trained):  # noqa: F811
    assert_refused(
        run("translate", "--checkpoint", trained, stdin=b"a\n"),
        "model.architecture = 'decoder'; expected 'encoder_decoder'",
    )
    code, _, err = run("evaluate", "--checkpoint", trained, "--table", "3")
    assert code == 2 and "--table 3: not with data.objective = 'language_model'" in err
    code, _, err = run("evaluate", "--checkpoint", trained, "--split", "test")
    assert code == 2 and "--split test: files has none" in err


def test_unknown_symbols_are_counted(run, trained, tmp_path):  # noqa: F811
    other = tmp_path / "other.txt"
    other.write_text("the §§ cat")
    code, out, _ = run("evaluate", "--checkpoint", trained, "--data.test", other)
    assert code == 0 and "2 of the tokens stand for symbols unknown in training" in out
    assert "(11 tokens, each counted once)" in out


def test_the_loss_is_drawn(run, trained, tmp_path):  # noqa: F811
    path = tmp_path / "loss.png"
    assert run("plot-loss", "--workdir", trained, "--output", path)[0] == 0
    assert png_rows(path).std() > 0


def test_training_goes_on_from_another_run(run, trained, tmp_path):  # noqa: F811
    """With a configuration that says nothing about the model, and an option on top of it."""
    config = tmp_path / "finetune.py"
    config.write_text(
        "from transformer.config import *\n"
        "config = Config(\n"
        "    data=DataConfig(objective='language_model', block_length=64, batch_tokens=128),\n"
        "    train=TrainConfig(init_from='runs/gpt', label_smoothing=0.0),\n"
        ")\n"
    )
    (tmp_path / "more.txt").write_text("the mat sat on a cat. " * 40)
    command = [
        "train", "--config", config, "--workdir", tmp_path / "run", "--model.dropout", "0.3",
        "--data.train", tmp_path / "more.txt", "--data.data-dir", tmp_path, *SHORT,
    ]  # fmt: skip
    assert_refused(run(*command), "runs/gpt: no such directory")
    code, out, _ = run(*command, "--train.init-from", trained)
    assert code == 0 and "starting from step" in out
    model = load_for_inference(tmp_path / "run").config.model
    assert (model.model_dim, model.dropout, model.positions) == (14, 0.3, "learned")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--data.objective", "translation"], "model.architecture = 'decoder': expected"),
        (["--data.block-length", "65"], "data.block_length = 65: expected at most model.max_pos"),
        (["--data.train", "empty.txt"], "data.train: no text in empty.txt"),
        (["--data.train", "short.txt"], "expected more than data.block_length = 64"),
        (["--data.train", "latin.txt"], "latin.txt:2: byte 0xe4 is not UTF-8"),
        (["--data.train", "inptu.txt"], "no such file; did you mean input.txt?"),
        (["--model.vocab-size", "19"], "model.vocab_size = 19: expected at least the tokenizer's"),
        (
            ["--data.tokenizer", "sentencepiece", "--data.vocab-size", "100"],
            "data.vocab_size = 100: expected at least",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_are_one_line(run, tmp_path, monkeypatch, options, message):  # noqa: F811
    monkeypatch.chdir(tmp_path)
    (tmp_path / "input.txt").write_text(TEXT)
    (tmp_path / "empty.txt").write_text("\n")
    (tmp_path / "short.txt").write_text("a few words only, and no more of them")
    (tmp_path / "latin.txt").write_bytes(b"one\nm\xe4h\n")
    data = ["--data.train", "input.txt", "--data.data-dir", "cache"]
    code, _, err = run(*CHAR, *TINY, "--workdir", "run", *data, *options)
    assert code == 2 and message in err and err.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_gpt2_small_at_a_tiny_size(run, tmp_path):  # noqa: F811
    text = tmp_path / "train.txt"
    text.write_text("".join(f"Line {i}, and “more” of it.\n" for i in range(400)))
    code, out, _ = run(
        "train", "--config", CONFIGS / "gpt2_small.py", "--workdir", tmp_path / "run", *TINY,
        "--data.train", text, "--data.data-dir", tmp_path, "--data.vocab-size", "300",
        "--data.block-length", "32", "--data.batch-tokens", "64", "--train.accumulate", "3",
        "--train.steps", "2", "--data.validation-fraction", "0.02",
    )  # fmt: skip
    assert code == 0 and "validation after step 2" in out
    assert load_for_inference(tmp_path / "run").config.model.activation == "gelu_tanh"
