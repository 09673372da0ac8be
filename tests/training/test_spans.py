"""Answers in texts: from a file in SQuAD's format to predictions, at a tiny size."""

import io
import json
import sys
from dataclasses import replace
from pathlib import Path

import jax
import numpy as np
import pytest

from tests.helpers import train_quietly
from transformer.cli import main
from transformer.config import Config, DataConfig, ModelConfig, OptimizerConfig, TrainConfig
from transformer.data.batches import prefetch
from transformer.data.classification import InputMaker
from transformer.data.objectives import held_out_batches
from transformer.data.pipeline import prepare
from transformer.data.tokenizer import Tokenizer
from transformer.data.windows import SpanSplit, window_batch
from transformer.models.build import build_model
from transformer.models.encoder import Encoder
from transformer.training.checkpoint import load_for_inference
from transformer.training.loop import TrainResult
from transformer.training.losses import loss_sums
from transformer.training.spans import QuestionAnswerer, SpanEvaluator, find

pytest.importorskip("tokenizers")

MODEL = ModelConfig(
    "encoder",
    num_layers=1,
    model_dim=14,
    ff_dim=19,
    num_heads=7,
    positions="learned",
    max_positions=13,
    segment_types=2,
    embedding_norm=True,
    dropout=0.0,
)
COLOURS = ["red", "blue", "Vert"]
WORDS = ["it", "was", "a", "day", "and", "then", "we", "left"]
VOCABULARY = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "which", "?", "vert", *COLOURS, *WORDS]


def squad(seed: int, contexts: int, unanswerable: int) -> dict:
    """What colour a text names; some name none."""
    generator = np.random.default_rng(seed)
    paragraphs = []
    for number in range(contexts):
        words = [str(word) for word in generator.choice(WORDS, size=5 + number % 11)]
        answers, more = [], {}
        if number >= unanswerable:
            at = int(generator.integers(len(words)))
            words[at] = COLOURS[number % 3]
            start = len(" ".join(words[:at])) + (at > 0)
            answers = [{"text": words[at], "answer_start": start}]
        if unanswerable:
            more = {"is_impossible": not answers}
        question = {"id": f"{seed}-{number}", "question": "Which?", "answers": answers, **more}
        paragraphs.append({"context": " ".join(words), "qas": [question]})
    return {"version": "v2.0", "data": [{"paragraphs": paragraphs}]}


@pytest.fixture(scope="module")
def config(tmp_path_factory) -> Config:
    directory = tmp_path_factory.mktemp("data")
    (directory / "vocab.txt").write_text("".join(f"{token}\n" for token in VOCABULARY))
    for name, values in (("train", squad(1, 60, 20)), ("validation", squad(2, 23, 6))):
        (directory / f"{name}.json").write_text(json.dumps(values))
    return Config(
        model=MODEL,
        data=DataConfig(
            objective="spans",
            train=(str(directory / "train.json"),),
            validation=(str(directory / "validation.json"),),
            data_dir=str(directory),
            tokenizer="file",
            tokenizer_file=str(directory / "vocab.txt"),
            max_length=13,
            stride=4,
            question_length=3,
            batch_tokens=999,
            num_buckets=1,
        ),
        optimizer=OptimizerConfig(schedule="constant", learning_rate=0.02, warmup_steps=0),
        train=TrainConfig(
            steps=60, eval_every=30, save_every=30, log_every=10, label_smoothing=0.0
        ),
    )


@pytest.fixture(scope="module")
def trained(config, tmp_path_factory) -> tuple[Path, TrainResult, str]:
    workdir = tmp_path_factory.mktemp("trained")
    return (workdir, *train_quietly(config, workdir))


@pytest.fixture(scope="module")
def loaded(trained, config):
    """The network, its parameters, its tokenizer and the validation split."""
    found = load_for_inference(trained[0])
    tokenizer = Tokenizer.from_json(found.tokenizer)
    split = prepare(config.data, tokenizer, ("validation",), lambda _: None).validation
    model = build_model(found.config.model)
    assert isinstance(model, Encoder) and isinstance(split, SpanSplit)
    return model, found.params, tokenizer, split


def test_answers_are_learnt(trained):
    workdir, result, output = trained
    values = result.validation
    assert values is not None
    assert values["exact_match"] == values["f1"] == values["best_f1"] == 1.0
    assert values["unanswerable_f1"] == values["answerable_f1"] == 1.0
    assert "train: 60 questions (20 without an answer) on 60 contexts" in output
    assert "60 questions in " in output and "examples/s" in output
    assert load_for_inference(workdir).config.model.head == "span"


def test_the_loss_is_that_of_training_whatever_the_batch(loaded, config):
    """And so are the answers: padding has no part in them."""
    model, params, tokenizer, split = loaded
    fewer = replace(config.data, batch_tokens=40)
    found = [SpanEvaluator(model, d, tokenizer, split).find(params) for d in (config.data, fewer)]
    batches = held_out_batches(split, config.data, tokenizer)
    parts = [
        jax.jit(lambda p, b: loss_sums(model, p, b, 0.0))(params, batch)
        for _, batch in prefetch(batches, 0, batches.steps_per_epoch)
    ]
    loss = sum(float(part.loss) for part in parts) / sum(float(part.weight) for part in parts)
    for one in found:
        assert one.loss == pytest.approx(loss, abs=1e-5)
        np.testing.assert_allclose(one.null, found[0].null, atol=1e-4)
        assert one.texts(split) == found[0].texts(split)


def test_an_answer_is_the_best_of_all_windows_where_it_has_most_context(loaded):
    """By a reader whose logits are given: the sums, and what each rule excludes."""
    _, _, tokenizer, split = loaded
    question = next(
        number
        for number in range(len(split))
        if (split.windows.question == number).sum() == 2 and len(split.contexts[number].ids) > 9
    )
    first, second = np.flatnonzero(split.windows.question == question)
    windows = split.windows
    rows = window_batch(split, InputMaker(tokenizer, True, 13), np.arange(len(windows.first)), 13)
    logits = np.zeros((len(windows.first), 13, 2), np.float32)
    logits[:, 0] = 1.0
    # The first window would begin at its last token, which has more context in the second.
    last = windows.shift[first] + windows.first[first] + windows.length[first] - 1
    logits[first, last, 0] = 8
    at = windows.shift[second] + windows.high[second] - 1
    logits[second, at] = [3, 2]
    logits[second, 0] = [0.5, 0.25]
    found = find(lambda p, b: logits[b["ids"]], None, split, [rows])
    best = found.best[question]
    token = windows.high[second] - 1
    assert (found.spans.first[best], found.spans.last[best]) == (token, token)
    assert found.spans.score[best] == 5.0
    assert found.null[question] == 0.75 and found.odds[question] == 0.75 - 5


def test_resuming_goes_on(trained, config):
    longer = replace(config, train=replace(config.train, steps=61))
    result, output = train_quietly(longer, trained[0])
    assert result.step == 61 and "going on from step 60" in output


def test_evaluate_writes_files_for_the_official_evaluation(trained, capsys, tmp_path):
    answers, odds = tmp_path / "answers.json", tmp_path / "odds.json"
    arguments = ["evaluate", "--checkpoint", str(trained[0]), "--predictions", str(answers)]
    assert main([*arguments, "--null-odds", str(odds)]) == 0
    out = capsys.readouterr().out
    assert "exact match 100.00%, F1 100.00% of 23 questions\n" in out
    assert "F1 100.00% of the questions without one\n" in out and "at the best thresholds" in out
    right = [
        (question["id"], question["answers"][0]["text"] if question["answers"] else "")
        for paragraph in squad(2, 23, 6)["data"][0]["paragraphs"]
        for question in paragraph["qas"]
    ]
    assert list(json.loads(answers.read_text()).items()) == right, "as written, in the file's order"
    signs = [(name, value > 0) for name, value in json.loads(odds.read_text()).items()]
    assert signs == [(name, not text) for name, text in right]
    assert main([*arguments, "--null-threshold", "1e9"]) == 0
    assert "F1 0.00% of the questions without one" in capsys.readouterr().out
    assert all(json.loads(answers.read_text()).values())
    assert main([*arguments, "--table", "2"]) == 2
    assert "--table 2: not with data.objective = 'spans'" in capsys.readouterr().err


def test_a_set_without_answers_has_predictions_only(trained, capsys, tmp_path):
    whole = squad(2, 5, 0)
    for paragraph in whole["data"][0]["paragraphs"]:
        paragraph["qas"][0]["answers"] = []
    path, answers = tmp_path / "test.json", tmp_path / "answers.json"
    path.write_text(json.dumps(whole))
    arguments = ["evaluate", "--checkpoint", str(trained[0]), "--data.test", str(path)]
    assert main(arguments) == 2
    assert "there are no labels to score by: expected --pred" in capsys.readouterr().err
    assert main([*arguments, "--predictions", str(answers)]) == 0
    assert "5 without answers: predictions in" in capsys.readouterr().out
    assert set(json.loads(answers.read_text()).values()) <= set(COLOURS)


def test_answers_to_free_questions(loaded, config):
    model, params, tokenizer, _ = loaded
    long = "it was then and\r\nwe left  a VERT day"
    asked = [("Which?", long), ("Which?", "red"), ("Which?", "it was a day"), ("Which?", long)]
    places = [f"<stdin>:{i}" for i in range(1, 5)]
    found = QuestionAnswerer(model, params, tokenizer, config.data, threshold=0.0)(asked, places)
    assert [(a.text, a.start) for a in found] == [("VERT", 28), ("red", 0), ("", -1), ("VERT", 28)]
    assert all(0.5 < answer.probability <= 1 for answer in found)
    every = QuestionAnswerer(model, params, tokenizer, config.data, batch_tokens=1)
    one_by_one = [every([pair], [place])[0] for pair, place in zip(asked, places, strict=True)]
    assert [a.text for a in one_by_one][:2] == ["VERT", "red"] and one_by_one[2].text != ""
    assert every([], []) == []


def answer(monkeypatch, capsys, text: str, *arguments: str) -> tuple[int, str, str]:
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(text.encode())))
    code = main(["answer", *arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_answer_writes_a_line_for_each_line(trained, monkeypatch, capsys):
    given = [
        "Which?\tit was red then",
        "",
        json.dumps({"question": "Which?", "context": "a day\tand\nthen Vert"}),
        json.dumps({"question": "Which?", "context": "it was a day"}),
        "Which?\tit was a day",
        "Which? it was\tit was red then",
    ]
    options = "--checkpoint", str(trained[0]), "--null-threshold", "0"
    code, out, err = answer(monkeypatch, capsys, "\n".join(given) + "\n", *options)
    lines = out.split("\n")
    assert code == 0 and len(lines) == 7 and lines[1] == ""
    assert err == "warning: 1 questions cut to 3 tokens\n"
    assert lines[0].startswith("red\t0.9") or lines[0].startswith("red\t1.0")
    found = json.loads(lines[2])
    assert found["answer"] == "Vert" and found["start"] == 15 and found["probability"] > 0.5
    assert json.loads(lines[3])["answer"] is None and lines[4].startswith("\t")


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("Which?", "<stdin>:2: 1 columns; expected two, question TAB context"),
        ("Which?\ta\tb", "<stdin>:2: 3 columns; expected two"),
        ("Which?\t ", "<stdin>:2: expected a question and its context, found a blank one"),
        ('{"question": "Which?"}', '<stdin>:2: expected texts "question" and "context"'),
        ("{", "<stdin>:2: no JSON: "),
    ],
)
def test_a_line_that_is_no_question_is_named(trained, monkeypatch, capsys, line, message):
    text = f"Which?\ta day\n{line}\n"
    code, _, err = answer(monkeypatch, capsys, text, "--checkpoint", str(trained[0]))
    assert code == 2 and f"error: {message}" in err
