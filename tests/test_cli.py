"""The program as its users meet it: `main([...])` on real files, and what it says of mistakes."""

import dataclasses
import io
import json
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from flax.traverse_util import flatten_dict

from tests.helpers import png_rows
from tests.test_config import setting_docs
from transformer.cli import COMMANDS, main
from transformer.commands import base
from transformer.config import Config
from transformer.training.checkpoint import load_for_inference

ROOT = Path(__file__).parent.parent
QUICKSTART = str(ROOT / "configs" / "quickstart.py")


@pytest.fixture
def run(capsys, monkeypatch):
    """Runs one command; returns (exit code, stdout, stderr)."""

    def run_command(*arguments: object, stdin: bytes = b"") -> tuple[int, str, str]:
        monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
        capsys.readouterr()
        code = main([str(argument) for argument in arguments])
        return (code, *capsys.readouterr())

    return run_command


def assert_refused(result: tuple[int, str, str], message: str) -> None:
    """Exit code 2 and one line on stderr that says `message`."""
    code, out, err = result
    assert (code, out) == (2, "")
    assert re.fullmatch(r"error: [^\n]+\n", err), err
    assert message in err


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trian"], "unknown command 'trian'; did you mean train?"),
        (["xyz"], "unknown command 'xyz': expected train, evaluate, translate"),
        (["train", "--workdir", "w"], "transformer train: --config expected"),
        (["train"], "--config and --workdir expected"),
        (["translate"], "transformer translate: --checkpoint expected"),
        (["attention-map", "--checkpoint", "w"], "--source expected"),
        (["plot-loss"], "--workdir expected"),
        (["plot-loss", "--workdir", "nowhere"], "no such directory nowhere"),
        (["plot-loss", "--workdir", "."], "no metrics to draw"),
        (["translate", "--checkpoint", "nowhere"], "nowhere: no such directory"),
        (["evaluate", "--checkpoint", "."], "no checkpoint in it; expected the --workdir of a"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_in_usage_are_one_line_and_exit_code_2(
    run, tmp_path, monkeypatch, arguments, message
):
    monkeypatch.chdir(tmp_path)
    assert_refused(run(*arguments), message)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ["--optimizer.learing-rate", "1"],
            "unknown setting --optimizer.learing-rate; did you mean --optimizer.learning-rate?",
        ),
        (
            ["--model.num_layer=2"],
            "unknown setting --model.num_layer; did you mean --model.num-layers?",
        ),
        (["--zzz", "1"], "unknown setting --zzz; see transformer train --help"),
        (["stray"], "unknown setting stray"),
        (["--train.steps", "many"], "--train.steps: invalid literal for int()"),
        (["--train.steps", "1.5"], "--train.steps: "),
        (["--train.steps"], "Missing value for argument '--train.steps'"),
        (["--model.norm-placement", "middle"], "Expected one of ('post', 'pre')"),
        (["--model.num-heads", "3"], "model.num_heads = 3: expected a divisor of model.model_dim"),
        (
            ["--data.dataset", "cmudcit"],
            "data.dataset = 'cmudcit': expected auto, cmudict, files or tfds:",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_a_wrong_setting_is_one_line_and_exit_code_2(run, tmp_path, arguments, message):
    """An unknown setting was ignored, and the run trained with the default for a week."""
    result = run("train", "--config", QUICKSTART, "--workdir", tmp_path / "w", *arguments)
    assert_refused(result, message)
    assert not (tmp_path / "w").exists()


def test_a_missing_config_or_data_file_suggests_the_nearest(run, tmp_path):
    result = run("train", "--config", ROOT / "configs/quikstart.py", "--workdir", tmp_path)
    assert_refused(result, "quikstart.py: no such file; did you mean")
    (tmp_path / "train.tsv").write_text("a\tb\n", encoding="utf-8")
    result = run(
        "train", "--config", QUICKSTART, "--workdir", tmp_path / "w", "--data.dataset", "files",
        "--data.train", tmp_path / "trian.tsv",
    )  # fmt: skip
    code, _, err = result
    assert code == 2 and err.count("\n") == 1
    assert "trian.tsv: no such file; did you mean" in err and "train.tsv?" in err


# Help


def test_without_a_command_the_commands_are_listed(run):
    code, out, _ = run("--help")
    assert code == 0
    for name in COMMANDS:
        assert re.search(rf"^  {name} +[A-Z].*\.$", out, re.MULTILINE)
    assert run() == (2, out, "")


def help_text(capsys, command: str) -> str:
    with pytest.raises(SystemExit) as caught:
        main([command, "--help"])
    assert caught.value.code == 0
    out, err = capsys.readouterr()
    assert err == ""
    return " ".join(out.replace("│", " ").split())


def test_help_lists_every_setting_with_type_default_and_meaning(capsys):
    text = help_text(capsys, "train")
    types = {"int": "INT", "float": "FLOAT", "str": "STR"}
    for (section, name), meaning in setting_docs().items():
        default = getattr(getattr(Config(), section), name)
        field = {f.name: f for f in dataclasses.fields(getattr(Config(), section))}[name]
        option = f"--{section}.{name}".replace("_", "-")
        kind = str(getattr(field.type, "__name__", field.type))
        if kind == "bool":
            head = f"{option}, --{section}.no-{name}".replace("_", "-")
        elif kind in types:
            head = f"{option} {types[kind]}"
        elif "None" in kind:
            head = option + " {None}|" + types[kind.split(" ")[0]]
        elif "tuple" in kind:
            head = f"{option} [STR [STR ...]]"
        else:
            head = option + " {"
            assert "Literal" in kind or "Literal" in repr(field.type)
        shown = " ".join(default) if isinstance(default, tuple) else default
        if default == "\n":
            shown = "' '"  # quoted, and blanks are one in `help_text`
        assert head in text, head
        assert f"{meaning} (default: {shown})" in text, option


@pytest.mark.parametrize("command", sorted(set(COMMANDS) - {"train"}))
def test_help_of_other_commands_needs_no_checkpoint(capsys, command):
    text = help_text(capsys, command)
    for field in dataclasses.fields(COMMANDS[command]):
        if field.name not in ("data", "decode", "command"):  # sections, and what has no name
            assert "--" + field.name.rstrip("_").replace("_", "-") in text


# A whole run on two small parallel files

LEXICON = dict(
    zip(["ein", "zwei", "rot", "blau", "Haus", "Hund", "läuft", "schläft"],
        ["one", "two", "red", "blue", "house", "dog", "runs", "sleeps"], strict=True)
)  # fmt: skip


def test_mistakes_are_one_line_where_boxes_cannot_be_drawn(monkeypatch, capsys):
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(io.BytesIO(), "latin-1"))
    config = str(ROOT / "configs/quickstart.py")
    assert main(["train", "--config", config, "--workdir", "w", "--decode.beam-size", "0"]) == 2
    assert capsys.readouterr().err == "error: decode.beam_size = 0: expected at least 1\n"


SMALL = [
    "--model.num-layers", "1", "--model.model-dim", "16", "--model.ff-dim", "24",
    "--model.num-heads", "2", "--model.dropout", "0",
    "--data.vocab-size", "300", "--data.batch-tokens", "512", "--data.num-buckets", "1",
    "--optimizer.schedule", "constant", "--optimizer.learning-rate", "0.02",
    "--optimizer.warmup-steps", "0",
    "--train.steps", "60", "--train.eval-every", "30", "--train.log-every", "10",
    "--train.eval-examples", "5", "--decode.beam-size", "2", "--decode.extra-length", "3",
]  # fmt: skip


def write_parallel(folder: Path, name: str, pairs: int, seed: int) -> list[str]:
    """Word-by-word translations in two files; returns their paths."""
    rng = random.Random(seed)
    lines = [rng.choices(list(LEXICON), k=rng.randint(1, 4)) for _ in range(pairs)]
    paths = [folder / f"{name}.de", folder / f"{name}.en"]
    paths[0].write_text("".join(" ".join(words) + "\n" for words in lines), encoding="utf-8")
    paths[1].write_text(
        "".join(" ".join(LEXICON[w] for w in words) + "\n" for words in lines), encoding="utf-8"
    )
    return [str(path) for path in paths]


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A run's directory, trained by `train` on files with the settings of a shipped config."""
    folder = tmp_path_factory.mktemp("cli")
    workdir = folder / "run"
    arguments = ["--config", str(ROOT / "configs/multi30k_tiny.py"), "--workdir", str(workdir)]
    arguments += ["--data.data-dir", str(folder / "cache")]
    for seed, (split, pairs) in enumerate((("train", 48), ("validation", 7), ("test", 11))):
        arguments += [f"--data.{split}", *write_parallel(folder, split, pairs, seed)]
    assert main(["train", *arguments, *SMALL]) == 0
    return workdir


def test_training_leaves_metrics_and_checkpoints_and_learns(trained):
    lines = (trained / "metrics.jsonl").read_text("utf-8").splitlines()
    metrics = [json.loads(line) for line in lines]
    train = {m["step"]: m["loss"] for m in metrics if m["split"] == "train"}
    assert list(train) == [10, 20, 30, 40, 50, 60]
    assert train[60] < 0.7 * train[10]
    assert [m["step"] for m in metrics if m["split"] == "validation"] == [30, 60]
    assert {p.name for p in (trained / "checkpoints").iterdir()} == {"0", "30", "60"}
    assert list((trained / "tensorboard").glob("events.out.tfevents*"))


def test_a_finished_training_says_so(run, trained):
    arguments = [*SMALL, "--data.data-dir", trained.parent / "cache"]
    for split in ("train", "validation", "test"):
        files = [trained.parent / f"{split}.{side}" for side in ("de", "en")]
        arguments += [f"--data.{split}", *files]
    config = ROOT / "configs/multi30k_tiny.py"
    code, out, _ = run("train", "--config", config, "--workdir", trained, *arguments)
    assert code == 0
    assert "already complete at step 60" in out


def test_evaluate_prints_scores_and_writes_aligned_predictions(run, trained, tmp_path):
    predictions = tmp_path / "predictions.txt"
    code, out, err = run(
        "evaluate", "--checkpoint", trained, "--predictions", predictions, "--table", 3
    )
    assert (code, err) == (0, "")
    assert re.search(r"^BLEU \d+\.\d+ .*\|tok:13a\|", out, re.MULTILINE)
    assert re.search(r"^chrF \d+\.\d+ ", out, re.MULTILINE)
    assert out.count("✗") + out.count("✓") == 3
    source = (trained.parent / "test.de").read_bytes()
    _, translated, _ = run("translate", "--checkpoint", trained, stdin=source)
    assert predictions.read_text("utf-8") == translated
    assert translated.count("\n") == 11 and len(set(translated.split("\n"))) > 3


def test_evaluate_a_part(run, trained):
    code, out, _ = run(
        "evaluate", "--checkpoint", trained, "--split", "validation", "--examples", 2,
        "--decode.beam-size", 1, "--step", "last", "--table", 9,
    )  # fmt: skip
    assert code == 0
    assert out.count("✗") + out.count("✓") == 2


def test_translate_gives_a_line_for_every_line(run, trained):
    """Blank lines crashed the program, or vanished and shifted all that followed."""
    lines = ["ein Hund", "", "rot 🙂 blau", "   ", "\t", "zwei\u2028Hund", "Haus " * 500, "Hund"]
    code, out, err = run("translate", "--checkpoint", trained, stdin="\n".join(lines).encode())
    assert (code, err) == (0, "")
    translated = out.split("\n")
    assert translated.pop() == ""
    assert len(translated) == len(lines)
    for line, translation in zip(lines, translated, strict=True):
        assert bool(translation.strip()) <= bool(line.strip())
    assert translated[0].strip() and translated[7].strip()
    # The same with CRLF, and one line alone is what it is among others.
    crlf = run("translate", "--checkpoint", trained, stdin="\r\n".join(lines).encode())
    assert crlf == (0, out, "")
    alone = run("translate", "--checkpoint", trained, stdin=b"Hund\n")
    assert alone == (0, translated[7] + "\n", "")
    assert run("translate", "--checkpoint", trained, stdin=b"") == (0, "", "")


def test_translate_with_scores_and_n_best(run, trained):
    stdin = b"ein Hund\n\nrot\n"
    _, plain, _ = run("translate", "--checkpoint", trained, stdin=stdin)
    _, scored, _ = run("translate", "--checkpoint", trained, "--scores", stdin=stdin)
    scores, texts = zip(*(line.split("\t") for line in scored.splitlines()), strict=True)
    assert list(texts) == plain.splitlines()
    assert float(scores[0]) < 0 and float(scores[1]) == 0

    _, best, _ = run("translate", "--checkpoint", trained, "--n-best", 2, stdin=stdin)
    rows = [line.split(" ||| ") for line in best.splitlines()]
    assert [row[0] for row in rows] == ["1", "1", "2", "3", "3"]
    assert [rows[i][1] for i in (0, 2, 3)] == plain.splitlines()
    assert float(rows[0][2]) == float(scores[0]) >= float(rows[1][2])
    assert rows[0][1] != rows[1][1]
    assert_refused(
        run("translate", "--checkpoint", trained, "--n-best", 3, stdin=stdin), "n_best = 3"
    )


def test_input_that_is_not_utf8_names_the_line(run, trained):
    stdin = b"ein Hund\nrot\n\xff\xfe blau\n"
    assert_refused(run("translate", "--checkpoint", trained, stdin=stdin), "<stdin>:3")


def test_blocks_of_input_number_their_lines_on(run, trained, monkeypatch):
    stdin = b"ein Hund\n\nrot\nblau\nzwei\n"
    arguments = ["translate", "--checkpoint", trained, "--n-best", 2]
    together = run(*arguments, stdin=stdin)
    monkeypatch.setattr(base, "_BLOCK", 2)
    assert run(*arguments, stdin=stdin) == together
    _, _, err = run(*arguments, stdin=stdin + b"\xff\n")
    assert "<stdin>:6" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--step", "7"], "has the steps 0, 30, 60"),
        (["--step", "bset"], "expected best, last, a step's number or average:N"),
        (["--step", "average:3"], "has 2 checkpoints"),
        (["--decode.beam-size", "0"], "decode.beam_size = 0: expected at least 1"),
        (["--scroes"], "unknown setting --scroes; did you mean --scores?"),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, list) else "",
)
def test_mistakes_in_using_a_checkpoint(run, trained, arguments, message):
    assert_refused(run("translate", "--checkpoint", trained, *arguments), message)


@pytest.mark.parametrize(
    "arguments",
    [
        ["evaluate", "--predictions", "no/where.txt"],
        ["attention-map", "--source", "ein", "--output", "no/where.png"],
    ],
    ids=lambda arguments: arguments[0],
)
def test_where_output_cannot_go_is_said_before_the_work(run, trained, arguments):
    command, *options = arguments
    assert_refused(run(command, "--checkpoint", trained, *options), "no such directory no")


def test_a_damaged_checkpoint_is_named(run, trained, tmp_path):
    folder = tmp_path / "copy"
    shutil.copytree(trained / "checkpoints" / "60", folder)
    assert run("translate", "--checkpoint", folder, stdin=b"ein\n")[0] == 0
    (folder / "state" / "_METADATA").unlink()
    assert_refused(
        run("translate", "--checkpoint", folder), f"{folder}: damaged or incomplete checkpoint ("
    )
    (folder / "meta" / "metadata").write_text("{", encoding="utf-8")
    assert_refused(
        run("evaluate", "--checkpoint", folder), f"{folder}: damaged or incomplete checkpoint ("
    )


def test_checkpoints_may_be_averaged_or_given_by_folder(run, trained):
    stdin = b"ein Hund\n"
    for where in (["--checkpoint", trained, "--step", "average:2"],
                  ["--checkpoint", trained / "checkpoints" / "30"]):  # fmt: skip
        code, out, _ = run("translate", *where, stdin=stdin)
        assert code == 0 and out.count("\n") == 1


def test_inspect_lists_parameters_and_their_shares(run, trained):
    code, out, _ = run("inspect", "--checkpoint", trained, "--mesh.fsdp", 2, "--mesh.tensor", 2)
    assert code == 0
    header, *rows, total = out.splitlines()
    assert header.split() == ["parameter", "shape", "axes", "split", "over", "per", "device"]
    loaded = load_for_inference(trained)
    leaves: dict[str, Any] = dict(flatten_dict(loaded.params, sep="/"))
    assert {row.split()[0] for row in rows} == set(leaves)
    up = next(row for row in rows if row.startswith("decoder/layer_0/feed_forward/up/kernel"))
    rows_, columns = leaves["decoder/layer_0/feed_forward/up/kernel"].shape
    assert up.split()[1:] == [
        str(rows_), "x", str(columns), "embed,", "mlp", "fsdp,", "tensor",
        f"{rows_ * columns / 1e6:.2f}", "MB",
    ]  # fmt: skip
    assert total.startswith(f"{sum(x.size for x in leaves.values()):,} parameters; on each device")


@pytest.mark.parametrize(("arguments", "message"), [
    ([], "expected either --config or --checkpoint"),
    (["--config", "configs/quickstart.py"], "model.vocab_size = None: expected the number of ids"),
    (["--config", "configs/quickstart.py", "--model.vocab-size", "8", "--mesh.fsdp", "5"],
     "axis 'embed' of 128, in the shape (8, 128): expected a multiple of mesh.fsdp = 5"),
])  # fmt: skip
def test_what_cannot_be_inspected(run, arguments, message):
    assert_refused(run("inspect", *arguments), message)


def test_pictures_are_png_files_with_something_on_them(run, trained, tmp_path):
    attention, loss = tmp_path / "attention.png", tmp_path / "loss.png"
    code, out, _ = run(
        "attention-map", "--checkpoint", trained, "--source", "ein Hund", "--output", attention
    )
    assert code == 0 and str(attention) in out
    code, out, _ = run("plot-loss", "--workdir", trained, "--output", loss)
    assert code == 0 and str(loss) in out
    for path in (attention, loss):
        assert len(np.unique(png_rows(path))) > 30
    run("plot-loss", "--workdir", trained)
    assert (trained / "loss.png").read_bytes() == loss.read_bytes()
    other = tmp_path / "other.png"
    run(
        "attention-map", "--checkpoint", trained, "--source", "ein Hund", "--target", "two dogs",
        "--layer", 0, "--output", other,
    )  # fmt: skip
    assert other.read_bytes() != attention.read_bytes()
    assert_refused(
        run("attention-map", "--checkpoint", trained, "--source", "ein", "--layer", 5),
        "--layer 5: expected 0 to 0",
    )


def test_a_reader_that_leaves_early_gets_no_traceback(trained):
    """``transformer translate ... | head -1`` printed a BrokenPipeError."""
    script = (
        "import sys; from transformer.cli import main;"
        f"sys.exit(main(['translate', '--checkpoint', {str(trained)!r}]))"
    )
    read, write = os.pipe()
    os.close(read)
    result = subprocess.run(
        [sys.executable, "-c", script],
        input=b"ein Hund\n",
        stdout=write,
        stderr=subprocess.PIPE,
        cwd=ROOT,
    )
    os.close(write)
    assert (result.returncode, result.stderr) == (1, b"")


def test_the_quickstart_at_a_tiny_setting(run, tmp_path):
    """What `make quickstart` runs, command by command."""
    workdir = tmp_path / "run"
    code, out, err = run(
        "train", "--config", QUICKSTART, "--workdir", workdir,
        "--data.data-dir", tmp_path / "cache", "--data.num-buckets", 1,
        "--model.num-layers", 1, "--model.model-dim", 8, "--model.ff-dim", 8,
        "--model.num-heads", 2, "--train.steps", 2, "--train.eval-examples", 0,
    )  # fmt: skip
    assert (code, err) == (0, "")
    code, out, err = run(
        "evaluate", "--checkpoint", workdir, "--examples", 5, "--table", 2,
        "--decode.extra-length", 1, "--decode.beam-size", 1,
    )  # fmt: skip
    assert (code, err) == (0, "")
    assert re.search(r"phoneme error rate \d+\.\d+%, word error rate \d+\.\d+% \(5 words", out)
    picture = workdir / "attention.png"
    assert run("plot-loss", "--workdir", workdir)[0] == 0
    code, _, _ = run(
        "attention-map", "--checkpoint", workdir, "--source", "transformer",
        "--target", "T R AE N S", "--output", picture,
    )  # fmt: skip
    assert code == 0 and picture.exists() and (workdir / "loss.png").exists()
