"""Learning answers to prompts, and T5's objective: whole runs, at a tiny size."""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import jax
import numpy as np
import pytest

from tests.helpers import normal, train_quietly
from transformer.cli import main
from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig, load
from transformer.data.pipeline import PairSplit, prepare
from transformer.data.tokenizer import EOS, Tokenizer
from transformer.models.decoder import Decoder
from transformer.training.answers import AnswerEvaluator
from transformer.training.checkpoint import load_for_inference

MODEL = ModelConfig(
    "decoder",
    num_layers=1,
    model_dim=14,
    ff_dim=19,
    num_heads=7,
    positions="rotary",
    norm_placement="pre",
    dropout=0.0,
)
WORDS = ["cat", "dog", "ant", "eel", "hen", "cow"]


@pytest.fixture(scope="module")
def trained(tmp_path_factory) -> tuple[Path, str, dict[str, float]]:
    """Echoing the first letter, for longer and shorter prompts; one validation pair too long."""
    directory = tmp_path_factory.mktemp("data")
    lines = [f"{word}{'!' * (i % 3)}\t{word[0]}\n" for i, word in enumerate(WORDS * 3)]
    (directory / "train.tsv").write_text("".join(lines))
    (directory / "validation.tsv").write_text("".join(lines[:5]) + "cat!!!!!!!!!!!!\tc\n")
    config = Config(
        model=MODEL,
        data=DataConfig(
            objective="answers",
            train=(str(directory / "train.tsv"),),
            validation=(str(directory / "validation.tsv"),),
            data_dir=str(directory),
            target_symbols="characters",
            separator=">",
            max_length=11,
            batch_tokens=64,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.02, warmup_steps=0),
        train=TrainConfig(
            steps=60, eval_every=60, save_every=60, log_every=30, label_smoothing=0.0
        ),
    )
    result, output = train_quietly(config, directory / "run")
    assert result.validation is not None
    return directory / "run", output, result.validation


def test_answers_are_learnt_and_what_is_too_long_is_counted(trained):
    _, output, validation = trained
    assert "1 of 6 validation prompts with answers longer than 11 tokens left out" in output
    assert "18 prompts with answers in " in output
    assert validation["exact_match"] == 1.0
    assert validation["nll"] < 0.2


def greedy(forward: Callable, tokenizer: Tokenizer, prompt: str) -> str:
    """One token after the other, each from a whole forward pass."""
    ids = [tokenizer.special.begin, *tokenizer.encode_target(prompt)]
    start = len(ids)
    while len(ids) < 12 and (len(ids) == start or ids[-1] != EOS):
        padded = np.array([ids + [0] * (12 - len(ids))])
        logits = np.array(forward(padded)[0, len(ids) - 1])
        logits[list(tokenizer.special.never)] = -np.inf
        ids.append(int(logits.argmax()))
    return tokenizer.decode_target(ids[start:]) if ids[-1] == EOS else "…"


def test_exact_match_is_that_of_greedy_outputs(trained):
    """It is found without generating, and must agree with what a spoilt model generates."""
    loaded = load_for_inference(trained[0])
    tokenizer, config = Tokenizer.from_json(loaded.tokenizer), loaded.config
    split = prepare(config.data, tokenizer, ("train",), lambda _: None).train
    assert isinstance(split, PairSplit)
    model: Any = Decoder(config.model)
    params = jax.tree.map(lambda x: x + 0.15 * normal(x.size, *x.shape), loaded.params)
    forward = jax.jit(partial(model.apply, {"params": params}))
    found = AnswerEvaluator(config, model, tokenizer, split)(params)
    prompts = dict(zip(split.sources, split.references, strict=True))
    outputs = {prompt: greedy(forward, tokenizer, prompt) for prompt in prompts}
    right = [outputs[prompt] in prompts[prompt] for prompt in split.sources]
    assert 0 < sum(right) < len(right)
    assert found["exact_match"] == pytest.approx(sum(right) / len(right))


def test_evaluate_prints_the_scores(trained, capsys):
    assert main(["evaluate", "--checkpoint", str(trained[0])]) == 0
    out = capsys.readouterr().out
    assert "exact match 100.00% of 5 greedy answers" in out and "perplexity 1." in out


def test_t5_is_trained_on_span_corruption(tmp_path, capsys):
    """As configs/t5_small.py says, but tiny."""
    path = Path(__file__).parent.parent.parent / "configs" / "t5_small.py"
    config = load(path)
    assert config.data.origin == "python_docs"
    (tmp_path / "a.txt").write_text("the quick brown fox jumps over the lazy dog " * 60)
    small = {
        "num_layers": 1,
        "model_dim": 14,
        "ff_dim": 19,
        "num_heads": 7,
        "attention_dropout": 0.0,
    }
    data = replace(
        config.data,
        data_dir=str(tmp_path),
        train=(str(tmp_path / "a.txt"),),
        tokenizer="symbols",
        target_symbols="characters",
        block_length=35,
        batch_tokens=280,
        validation_fraction=0.0,
    )
    config = replace(
        config,
        model=replace(config.model, **small),
        data=data,
        optimizer=replace(config.optimizer, warmup_steps=10, learning_rate=0.01),
        train=replace(config.train, steps=30, accumulate=1, log_every=15, eval_every=30),
    )
    result, output = train_quietly(config, tmp_path / "run")
    assert "tokens in rows of 38" in output
    losses = [line["loss"] for line in result.history if line["split"] == "train"]
    assert losses[-1] < losses[0] - 0.3
    loaded = load_for_inference(tmp_path / "run")
    tokenizer = Tokenizer.from_json(loaded.tokenizer)
    assert tokenizer.pieces([tokenizer.vocab_size - 1]) == ["<extra_id_0>"]
    assert loaded.config.model.vocab_size == tokenizer.vocab_size
    arguments = ["--checkpoint", str(tmp_path / "run"), "--split", "train"]
    assert main(["evaluate", *arguments]) == 0
    out = capsys.readouterr().out
    # Of 2,640 characters 69 rows of 38 have targets of 6 + 2 + 1, the last one of 18 3 + 1 + 1.
    assert "(626 tokens of targets)" in out and "bits" not in out
