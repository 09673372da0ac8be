"""The commands that generate and score text, as their users meet them."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax.numpy as jnp
import pytest

from tests.decoding import tiny, tiny_decoder
from tests.decoding.tiny_decoder import TOKENIZER
from tests.test_cli import assert_refused, run  # noqa: F401  (a fixture)
from transformer.config import Config, DataConfig, GenerateConfig, to_dict
from transformer.decoding.generate import Generator
from transformer.decoding.scoring import Scorer
from transformer.training.meta import Meta
from transformer.training.saving import Checkpoints
from transformer.training.state import TrainState

ROOT = Path(__file__).parent.parent


def save(folder: Path, model_config, params, tokenizer) -> Path:
    """A run's directory with one checkpoint of given parameters."""
    decoder = model_config.architecture == "decoder"
    data = DataConfig(objective="language_model" if decoder else "translation", block_length=16)
    config = Config(model=model_config, data=data)
    state = TrainState(jnp.zeros((), jnp.int32), params, ())
    meta = Meta(0, to_dict(config), tokenizer.to_json(), "")
    with Checkpoints(folder / "checkpoints", keep=1) as checkpoints:
        checkpoints.save(state, meta)
    return folder


@pytest.fixture(scope="module")
def decoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("decoder")
    return save(folder, tiny_decoder.CONFIG, tiny_decoder.parameters(), TOKENIZER)


@pytest.fixture(scope="module")
def encoder_decoder(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("seq2seq")
    return save(folder, tiny.CONFIG, tiny.parameters(), tiny.TOKENIZER)


def generated(prompts, **settings):
    config = GenerateConfig(**{"max_new_tokens": 12, **settings})
    made = Generator(tiny_decoder.MODEL, tiny_decoder.parameters(), TOKENIZER, config)
    return [[output.text for output in outputs] for outputs in made.generate(prompts)]


# generate


def test_generate_writes_what_goes_on_from_the_prompt(run, decoder):  # noqa: F811
    code, out, err = run("generate", "--checkpoint", decoder, "--prompt", "abc",
                         "--max-new-tokens", 12, "--samples", 3, "--seed", 7)  # fmt: skip
    first, second, third = generated(["abc"], samples=3, seed=7)[0]
    assert (code, out) == (0, f"{first}\n--- 2\n{second}\n--- 3\n{third}\n")
    assert re.fullmatch(
        r"cache of 4 x 32 tokens: 0\.0 MB\nfirst text after \d+\.\d\d s, all after \d+\.\d\d s\n",
        err,
    )
    again = run("generate", "--checkpoint", decoder, "--prompt", "abc",
                "--max-new-tokens", 12, "--samples", 3, "--seed", 7)  # fmt: skip
    assert again[1] == out


def test_generate_from_lines_gives_a_line_for_every_line(run, decoder):  # noqa: F811
    stdin = b"abc\r\n\ng\n"
    arguments = ["generate", "--checkpoint", decoder, "--max-new-tokens", 12]
    code, out, _ = run(*arguments, "--temperature", 0, stdin=stdin)
    texts = [outputs[0] for outputs in generated(["abc", "", "g"], temperature=0)]
    assert (code, out) == (0, "".join(text + "\n" for text in texts))
    _, out, _ = run(*arguments, "--beam-size", 2, "--samples", 2, stdin=stdin)
    beams = generated(["abc", "", "g"], beam_size=2, samples=2)
    lines = [f"{i} ||| {text}\n" for i, found in enumerate(beams, 1) for text in found]
    assert out == "".join(lines)
    assert run(*arguments, stdin=b"") == (0, "", "")


def test_what_is_generated_by_default_fits_the_positions(run, decoder):  # noqa: F811
    code, out, _ = run("generate", "--checkpoint", decoder, "--prompt", "abc")
    assert (code, out) == (0, generated(["abc"], max_new_tokens=33)[0][0] + "\n")


def test_stop_strings_and_filters_are_heard(run, decoder):  # noqa: F811
    arguments = ["generate", "--checkpoint", decoder, "--prompt", "abc", "--max-new-tokens", 12]
    whole = generated(["abc"])[0][0]
    _, out, _ = run(*arguments, "--stop", r"\n", whole[4:6])
    assert out == whole[: whole.index(whole[4:6])] + "\n"
    filters = {"top_k": 3, "top_p": 0.9, "min_p": 0.2, "temperature": 1.5, "context": 20}
    options = [part for name, v in filters.items() for part in ("--" + name.replace("_", "-"), v)]
    _, out, _ = run(*arguments, *options)
    assert out == generated(["abc"], **filters)[0][0] + "\n" != whole + "\n"


def test_an_encoder_decoder_generates_from_sources(run, encoder_decoder):  # noqa: F811
    code, out, _ = run("generate", "--checkpoint", encoder_decoder, "--temperature", 0,
                       "--max-new-tokens", 9, stdin=b"abc\ncabbage\n")  # fmt: skip
    assert code == 0 and out.count("\n") == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--top-p", "0"], "top_p = 0.0: expected above 0 and at most 1"),
        (["--top-p", "1.1"], "top_p = 1.1: expected above 0 and at most 1"),
        (["--min-p", "2"], "min_p = 2.0: expected 0 to 1"),
        (["--top-k", "0"], "top_k = 0: expected at least 1"),
        (["--temperature", "-0.1"], "temperature = -0.1: expected 0 (greedy) or above"),
        (["--beam-size", "2", "--temperature", "0.5"], "temperature = 0.5: expected 1.0 with beam"),
        (["--beam-size", "2", "--samples", "3"], "samples = 3: expected at most beam_size = 2"),
        (["--max-new-tokens", "66"], "prompt 1 has 2 tokens, and max_new_tokens = 66: expected"),
        (["--prompt", "a" * 68], "prompt 1 has 68 tokens: expected at most model.max_positions"),
        (["--context", "67"], "context = 67: expected less than model.max_positions = 67"),
        (["--prompt", "a\udcff"], "--prompt: U+DCFF at position 1 is no character; expected UTF-8"),
        (["--top-n", "3"], "unknown setting --top-n; did you mean --top-"),
        (["--checkpoint", "nowhere"], "nowhere: no such directory"),
    ],
    ids=lambda value: " ".join(value)[:30] if isinstance(value, list) else "",
)
def test_mistakes_in_generating(run, decoder, arguments, message):  # noqa: F811
    given = ["generate", "--checkpoint", decoder, "--prompt", "ab"]
    if arguments[0] == "--checkpoint":
        given = ["generate"]
    assert_refused(run(*given, *arguments), message)


def test_a_tokenizer_that_does_not_match_the_embedding(run, tmp_path):  # noqa: F811
    other = type(TOKENIZER)(list("abcdefghijklmnop"), "characters", "characters")
    folder = save(tmp_path, tiny_decoder.CONFIG, tiny_decoder.parameters(), other)
    message = "model.vocab_size = 13: expected at least 20, the tokenizer's"
    assert_refused(run("generate", "--checkpoint", folder, "--prompt", "a"), message)
    assert_refused(run("score", "--checkpoint", folder, stdin=b"a\tb\n"), message)


def test_text_streams_into_a_pipe_and_an_interrupt_ends_it_quietly(decoder):
    """The first text comes long before the last, and Ctrl-C prints no traceback."""
    # What a shell starts in the background ignores the signal, and so would we.
    script = (
        "import signal, sys; from transformer.cli import main;"
        "signal.signal(signal.SIGINT, signal.default_int_handler);"
        "sys.exit(main(sys.argv[1:]))"
    )
    arguments = ["generate", "--checkpoint", str(decoder), "--prompt", "abc",
                 "--max-new-tokens", "40", "--context", "9", "--samples", "100000"]  # fmt: skip
    process = subprocess.Popen(
        [sys.executable, "-c", script, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        cwd=ROOT,
        env={**os.environ, "JAX_PLATFORMS": "cpu"},
    )
    assert process.stdout is not None and process.stderr is not None
    expected = generated(["abc"], max_new_tokens=40, context=9)[0][0][:30].encode()
    assert process.stdout.read(30) == expected
    time.sleep(0.2)
    process.send_signal(signal.SIGINT)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 130, err
    assert re.fullmatch(rb"cache of \d+ x \d+ tokens: \d+\.\d MB\n(cache[^\n]*\n)*", err), err


# score


def test_score_gives_a_line_for_every_line(run, decoder, encoder_decoder):  # noqa: F811
    pairs = [("abc", "de"), ("g", "fedcba"), ("", "ab"), ("a", "")]
    stdin = b"abc\tde\r\ng\tfedcba\n\n\tab\na\t\n"
    for folder, model, params in (
        (decoder, tiny_decoder.MODEL, tiny_decoder.parameters()),
        (encoder_decoder, tiny.MODEL, tiny.parameters()),
    ):
        found = Scorer(model, params, TOKENIZER).score(pairs)
        lines = [f"{score.total:.4f}\t{len(score.log_probs)}" for score in found]
        lines.insert(2, "")
        code, out, err = run("score", "--checkpoint", folder, stdin=stdin)
        assert (code, out, err) == (0, "".join(line + "\n" for line in lines), "")


def test_the_perplexity_of_a_file(run, decoder, tmp_path):  # noqa: F811
    path = tmp_path / "text.txt"
    path.write_text("abcdefgfedcba" * 9, encoding="utf-8")
    found = Scorer(tiny_decoder.MODEL, tiny_decoder.parameters(), TOKENIZER).perplexity(
        path.read_text(), 13, 5
    )
    code, out, err = run("score", "--checkpoint", decoder, "--text", path, "--window", 13,
                         "--stride", 5)  # fmt: skip
    assert (code, err) == (0, "")
    assert out == (
        f"perplexity {found.perplexity:.4f}: {found.loss:.4f} nats a token, "
        f"{found.bits_per_byte:.4f} bits a byte, 116 tokens\n"
    )


def test_mistakes_in_scoring(run, decoder, encoder_decoder, tmp_path):  # noqa: F811
    path = tmp_path / "text.txt"
    path.write_bytes(b"abc\xff")
    score = ["score", "--checkpoint", decoder]
    assert_refused(run(*score, stdin=b"a\tb\n\nc\n"), "<stdin>:3: 1 columns; expected two")
    long = b"a\tb\n\n" + b"a" * 68 + b"\tb\n"
    assert_refused(run(*score, stdin=long), "error: <stdin>:3 has 68 tokens to be read: expected")
    assert_refused(run(*score, "--text", path), "expected UTF-8, found byte 3")
    assert_refused(run(*score, "--text", tmp_path / "txt.txt"), "No such file or directory; did")
    path.write_bytes(b"abc")
    assert_refused(run(*score, "--text", path, "--stride", 0), "stride = 0: expected 1 to window")
    assert_refused(
        run("score", "--checkpoint", encoder_decoder, "--text", path),
        "expected a decoder, found an encoder_decoder",
    )


# prompt


def test_prompt_reports_accuracy_beside_the_baselines(run, decoder, encoder_decoder, tmp_path):  # noqa: F811
    path = tmp_path / "task.json"
    queries = [{"input": text, "answer": "ab"} for text in ("c", "d", "fg")]
    queries.append({"input": "a", "answer": "g"})
    example = {"input": "b", "answer": "g"}
    values = {"choices": ["ab", "g"], "examples": [example], "queries": queries}
    path.write_text(json.dumps(values), encoding="utf-8")
    prompt = ["prompt", "--checkpoint", decoder, "--task", path]
    code, out, err = run(*prompt, "--shots", 0, 1)
    assert (code, err) == (0, "")
    first, header, *rows = out.splitlines()
    assert first == "4 queries; the most frequent answer is right in 75.0%, a guess in 50.0%"
    assert header.split("  ")[0] == "shots"
    assert [row.split()[0] for row in rows] == ["0", "1"]
    assert all(re.fullmatch(r" +\d( +\d+\.\d%){3}", row) for row in rows)
    assert_refused(run(*prompt, "--shots", 0, 2), "shots = 2: expected 0 to 1, the task's examples")
    assert_refused(run("prompt", "--checkpoint", decoder), "--task expected")
    assert_refused(
        run("prompt", "--checkpoint", encoder_decoder, "--task", path),
        "model.architecture = 'encoder_decoder'; expected 'decoder'",
    )
    path.write_text("{}", encoding="utf-8")
    assert_refused(run(*prompt), "task.json: the task: queries is missing")
