"""The largest batch that settings lead to, beside the one that such data make."""

import json

import pytest

from transformer.config import DataConfig
from transformer.data.largest import largest_batch, vocabulary
from transformer.data.objectives import training_batches
from transformer.data.pipeline import prepare
from transformer.errors import UserError

ROWS, LENGTH = 8, 24
TEXT = "ab cd efg " * 12
CONTEXTS = {
    "data": [
        {
            "title": "t",
            "paragraphs": [
                {
                    "context": TEXT,
                    "qas": [
                        {
                            "id": str(i),
                            "question": "what",
                            "answers": [{"text": "ab cd", "answer_start": 0}],
                        }
                        for i in range(16)
                    ],
                }
            ],
        }
    ]
}
CHOICES = ("text", "choice", "choice", "label")
# Objective, architecture, what each of the data's lines holds, other settings.
CASES = [
    ("translation", "encoder_decoder", f"{TEXT[:LENGTH]}\t{TEXT[:LENGTH]}", {}),
    ("language_model", "decoder", TEXT, {"documents": "line"}),
    ("span_corruption", "encoder_decoder", TEXT, {}),
    ("masked_language_model", "encoder", TEXT, {"documents": "line", "next_sentence": False}),
    ("masked_language_model", "encoder", f"{TEXT}\n{TEXT}\n", {"documents": "paragraph"}),
    ("classification", "encoder", f"{TEXT}\ta\n{TEXT}\tb", {}),
    ("classification", "decoder", f"{TEXT}\ta\n{TEXT}\tb", {}),
    ("regression", "encoder", f"{TEXT}\t0.5", {}),
    ("multiple_choice", "encoder", f"{TEXT}\t{TEXT}\t{TEXT}\t0", {"columns": CHOICES}),
    ("token_labels", "encoder", "ab X\nab Y\nab X\nab X\nab X\n", {}),
    ("answers", "decoder", f"{TEXT[:10]}\t{TEXT[:11]}", {}),
    ("spans", "encoder", json.dumps(CONTEXTS), {"question_length": 8, "tokenizer": "wordpiece"}),
]


@pytest.mark.parametrize(("objective", "architecture", "line", "values"), CASES)
@pytest.mark.parametrize("accumulate", [1, 2])
def test_it_is_the_batch_of_data_that_fill_it(
    objective, architecture, line, values, accumulate, tmp_path
):
    path = tmp_path / ("data.json" if objective == "spans" else "data.txt")
    path.write_text(line + "\n" if objective == "spans" else (line + "\n") * 32)
    length = LENGTH + (objective == "translation")
    length = {"token_labels": 12, "answers": 23}.get(objective, length)
    tokens = ROWS * length * (2 if objective == "multiple_choice" else 1)
    config = DataConfig(
        objective,
        train=(str(path),),
        vocab_size=32,
        max_length=length + {"translation": -1, "answers": 1}.get(objective, 0),
        block_length=LENGTH,
        batch_tokens=tokens,
        validation_fraction=0.0,
        data_dir=str(tmp_path / "cache"),
        **{"tokenizer": "bytes", **values},
    )
    decoder = architecture == "decoder"
    data = prepare(config, splits=("train",), log=lambda _: None, decoder=decoder)
    assert data.train is not None
    batches = training_batches(data.train, config, data.tokenizer, 0, accumulate)
    made = [batches.batch(step) for step in range(batches.steps_per_epoch)]
    largest = max(made, key=lambda batch: batch["inputs"].size)
    found = largest_batch(config, architecture, accumulate)
    del largest["ids"]
    assert {name: (array.shape, array.dtype) for name, array in found.items()} == {
        name: (array.shape, array.dtype) for name, array in largest.items()
    }
    assert vocabulary(config, architecture) == data.tokenizer.vocab_size


def test_a_vocabulary_that_only_the_data_know_is_asked_for():
    assert vocabulary(DataConfig(tokenizer="sentencepiece", vocab_size=300), "decoder") == 300
    with pytest.raises(UserError, match=r"model.vocab_size = None: .* data.tokenizer = 'symbols'"):
        vocabulary(DataConfig(tokenizer="symbols"), "decoder")


def test_of_rows_of_any_length_the_most_tokens_count():
    """4,096 tokens are 16 rows of 256, but 8 of 257."""
    batch = largest_batch(DataConfig(batch_tokens=4096, max_length=256), "encoder_decoder")
    assert batch["inputs"].shape == batch["source"].shape == (16, 256)
    batch = largest_batch(DataConfig(batch_size=5, max_length=256), "encoder_decoder")
    assert batch["inputs"].shape == (5, 257)
