"""Files of predictions: plain lines, or with a name that ends in .jsonl an object a line."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path

import numpy as np

from transformer.data.token_labels import TokenSplit
from transformer.training.token_labels import sentences


def write_classes(path: Path, outputs: np.ndarray, names: Sequence[str]) -> None:
    """A line for each example, in order.

    Plain: the label, or the number. JSON: ``{"label", "probabilities"}``, or ``{"value"}``.

    Args:
        path: of the file.
        outputs: float ``[examples, classes]``, or ``[examples, 1]`` where numbers are found.
        names: of the classes; () with numbers.
    """
    if not names:
        values = [float(f"{value:.6g}") for value in outputs[:, 0]]
        _write(path, [{"value": value} for value in values], [f"{value:g}" for value in values])
        return
    labels = [str(names[i]) for i in outputs.argmax(axis=1)]
    records = [
        {"label": label, "probabilities": dict(zip(names, _rounded(row), strict=True))}
        for label, row in zip(labels, outputs, strict=True)
    ]
    _write(path, records, labels)


def write_words(path: Path, outputs: np.ndarray, split: TokenSplit) -> None:
    """The label of each word, in order.

    Plain: the form it is read in, WORD TAB LABEL and a blank line after each sentence. JSON: a
    sentence a line, ``{"words", "labels", "probabilities"}``, the latter those of the labels.

    Args:
        path: of the file.
        outputs: float ``[words, classes]``.
        split: the sentences.
    """
    records, blocks = [], []
    probabilities = np.split(outputs.max(axis=1), split.words.starts[1:-1])
    ends = zip(split.words.starts, split.words.starts[1:], strict=False)
    words = [split.words.words[start:stop] for start, stop in ends]
    for sentence, labels, sure in zip(
        words, sentences(split, outputs.argmax(axis=1)), probabilities, strict=True
    ):
        records.append({"words": sentence, "labels": labels, "probabilities": _rounded(sure)})
        rows = zip(sentence, labels, strict=True)
        blocks.append("".join(f"{word}\t{label}\n" for word, label in rows))
    _write(path, records, blocks)


def write_by_id(path: Path, values: Mapping[str, str | float]) -> None:
    """One JSON object from ids to answers or scores, as SQuAD's evaluation reads them."""
    path.write_text(json.dumps(values, ensure_ascii=False, indent=0) + "\n", encoding="utf-8")


def _rounded(values: np.ndarray) -> list[float]:
    return [round(float(value), 6) for value in values]


def _write(path: Path, records: Sequence[object], lines: Sequence[str]) -> None:
    if path.suffix == ".jsonl":
        lines = [json.dumps(record, ensure_ascii=False) for record in records]
    path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
