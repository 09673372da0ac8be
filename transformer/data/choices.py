"""Prompts with several endings of which one is right, as in SWAG (Zellers et al. 2018).

Each ending is read with its prompt as a row of its own, ``[CLS] prompt [SEP] ending [SEP]``, and
has one logit; the softmax is over the endings of a prompt (Devlin et al. 2019, section 4.4).
"""

import hashlib
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import ALL, Batch, Rows
from transformer.data.classification import InputMaker
from transformer.data.composing import Composer, layout_of
from transformer.data.plan import BatchPlan, PlannedBatches
from transformer.data.sources import Log, SplitName, data_directory
from transformer.data.splits import read_splits
from transformer.data.store import TokenStore, fingerprint, open_or_build
from transformer.data.tables import Columns, Row, read_rows
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

UNKNOWN = -1
"""The label of an example that has none."""


@dataclass(frozen=True)
class Choices:
    """Row i of every field belongs to the same example.

    Attributes:
        prompts: what the endings go on from.
        endings: of each prompt; all have as many.
        labels: the number of the right ending; `UNKNOWN` in a set without labels.
    """

    prompts: list[str] = field(default_factory=list)
    endings: list[tuple[str, ...]] = field(default_factory=list)
    labels: list[int] = field(default_factory=list)

    def __len__(self) -> int:
        return len(self.prompts)

    def part(self, rows: slice) -> "Choices":
        """Some of the examples."""
        return Choices(self.prompts[rows], self.endings[rows], self.labels[rows])


def read_choices(
    config: DataConfig, splits: Collection[SplitName], log: Log = print
) -> dict[SplitName, Choices]:
    """The examples of the splits that were asked for and exist, in order.

    Where there is no validation split the last rows of the training split are held out, as many
    as ``data.validation_fraction`` says. All splits but train may lack the labels.

    Raises:
        UserError: a file is missing or not of its form; a row lacks a column, a text or a label,
            or its label is no ending's number (names file and line).
    """
    found = read_splits(
        splits,
        partial(_read, config, log=log),
        partial(_divide, fraction=config.validation_fraction),
    )
    for name, part in found.items():
        known = "" if UNKNOWN not in part.labels else " without labels"
        log(f"{name}: {len(part):,} examples of {len(part.endings[0])} choices{known}")
    return found


def _divide(whole: Choices, fraction: float) -> tuple[Choices, Choices | None]:
    """All but the last `fraction` of the rows, and those."""
    if fraction == 0:
        return whole, None
    border = len(whole) - round(len(whole) * fraction)
    if not 0 < border < len(whole):
        raise UserError(
            f"data.validation_fraction = {fraction}: leaves no row for "
            f"{'validation' if border else 'training'}, of {len(whole)}"
        )
    return whole.part(slice(border)), whole.part(slice(border, None))


def _read(config: DataConfig, split: SplitName, log: Log) -> Choices | None:
    paths: tuple[str, ...] = getattr(config, split)
    if not paths:
        return None
    optional = () if split == "train" else ("label",)
    columns = Columns.parse(numbered(config.columns), config.header, optional)
    found, blank = Choices(), 0
    for path in paths:
        for row in read_rows(path, columns, f"data.{split}"):
            if row.cells is None:
                blank += 1
            else:
                _add(found, row)
    if not len(found):
        raise UserError(f"data.{split}: no examples in {', '.join(paths)}")
    unknown = found.labels.count(UNKNOWN)
    if 0 < unknown < len(found):
        raise UserError(f"data.{split}: some of {', '.join(paths)} have labels, others have none")
    if blank:
        log(f"{split}: {blank} blank lines left out")
    return found


def numbered(columns: Sequence[str]) -> list[str]:
    """``data.columns`` with the columns of the choices told apart: choice1, choice2, ..."""
    found, count = [], 0
    for column in columns:
        role, equals, name = column.partition("=")
        if role == "choice":
            count += 1
            role = f"choice{count}"
        found.append(f"{role}{equals}{name}")
    return found


def _add(found: Choices, row: Row) -> None:
    cells = row.cells or {}
    names = [name for name in cells if name.startswith("choice")]
    names.sort(key=lambda name: int(name.removeprefix("choice")))
    for name in ("text", *names):
        if not cells[name]:
            raise UserError(f"{row.place}: nothing in column {name}; expected a text")
    label, count = cells.get("label"), len(names)
    if label is not None and label not in map(str, range(count)):
        raise UserError(
            f"{row.place}: label {label!r}: expected the number of the right choice, 0 to "
            f"{count - 1}"
        )
    begin = cells.get("text2", "")
    found.prompts.append(cells["text"])
    found.endings.append(tuple(f"{begin} {cells[name]}".strip() for name in names))
    found.labels.append(UNKNOWN if label is None else int(label))


@dataclass(frozen=True)
class ChoiceSplit:
    """Prompts with their endings and the tokens of both.

    Attributes:
        examples: as read.
        labels: int32 ``[N]``, the right endings' numbers.
        choices: how many endings each has.
        store: the tokens of the prompt (source) and the ending (target) of row ``i * choices +
            c``: ending c of example i.
        fingerprint: a hash of all this, of the tokenizer and the length limit.
    """

    examples: Choices
    labels: np.ndarray
    choices: int
    store: TokenStore
    fingerprint: str

    def __len__(self) -> int:
        return len(self.examples)

    @property
    def tokens(self) -> tuple[np.ndarray, ...]:
        """Every token of the split, in some arrays."""
        return self.store.source_tokens, self.store.target_tokens

    @property
    def names(self) -> tuple[str, ...]:
        """Of the choices, as they are labelled: their numbers."""
        return tuple(map(str, range(self.choices)))

    @property
    def labelled(self) -> bool:
        """Whether it is known which endings are right."""
        return bool((self.labels != UNKNOWN).all())


def tokenise_choices(
    examples: Choices, config: DataConfig, tokenizer: Tokenizer, what: str, log: Log = print
) -> ChoiceSplit:
    """The tokens of prompts and endings, made once and kept in the data directory.

    Args:
        examples: from `read_choices`.
        config: the length limit, and where tokens are kept.
        tokenizer: one with begin and end.
        what: the split, for messages.
        log: is told how many rows are cut.

    Raises:
        UserError: the tokenizer lacks begin or end.
    """
    layout, choices = layout_of(tokenizer), len(examples.endings[0])
    prompts = [prompt for prompt in examples.prompts for _ in range(choices)]
    endings = [ending for row in examples.endings for ending in row]
    key = fingerprint(prompts, endings, tokenizer, None, together=True)
    directory = data_directory(config) / "tokens"
    store = open_or_build(directory, key, prompts, endings, tokenizer, None, together=True)
    # A store's sequences carry an end symbol, which is not used here.
    lengths = store.source_lengths - 1, store.target_lengths - 1
    cut = int(Composer(layout, True, config.max_length).cuts(*lengths).sum())
    if cut:
        limit = f"data.max_length = {config.max_length}"
        log(f"{what}: {cut} of {len(prompts)} prompts with an ending cut to {limit} tokens")
    labels = np.array(examples.labels, np.int32)
    digest = hashlib.sha256(f"{key} {config.max_length} {choices}".encode())
    digest.update(labels.tobytes())
    return ChoiceSplit(examples, labels, choices, store, digest.hexdigest())


class ChoiceBatches(PlannedBatches):
    """Batches of prompts with their endings, bucketed by length (see `Batches`).

    Args:
        split: the examples.
        tokenizer: what their tokens were made with.
        max_length: most tokens of a row.
        batch_tokens: padded tokens of a batch, of all endings together.
        plan_settings: of `BatchPlan`, besides these and the lengths.
    """

    def __init__(
        self,
        split: ChoiceSplit,
        tokenizer: Tokenizer,
        max_length: int,
        *,
        batch_tokens: int,
        **plan_settings,
    ) -> None:
        self._split = split
        self._inputs = InputMaker(tokenizer, True, max_length)
        ends = split.store.source_lengths - 1, split.store.target_lengths - 1
        rows = self._inputs.composer.total(*ends).reshape(-1, split.choices)
        lengths = rows.max(axis=1)
        self._share = float(rows.sum() / (lengths.sum() * split.choices))
        tokens = max(batch_tokens // split.choices, 1)
        self._plan = BatchPlan(lengths, lengths, batch_tokens=tokens, **plan_settings)

    @property
    def summary(self) -> str:
        counts = Counter(self._split.labels.tolist())
        shares = ", ".join(f"{counts[i]:,}" for i in range(self._split.choices))
        return (
            f"{len(self._split):,} examples of {self._split.choices} choices (right: {shares}) in "
            f"{self.steps_per_epoch:,} steps an epoch, {self._share * self._plan.efficiency:.0%} "
            "of their tokens not padding"
        )

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The examples of a step; an empty row has the label -1."""
        ids, (_, length, _) = self._plan.indices(step, rows)
        store, choices = self._split.store, self._split.choices
        numbers = (ids[ids >= 0][:, None] * choices + np.arange(choices)).ravel().tolist()
        texts = [(store.source(i)[:-1], store.target(i)[:-1]) for i in numbers]
        arrays = self._inputs(texts, len(ids) * choices, length)
        return {
            **{name: array.reshape(len(ids), choices, -1) for name, array in arrays.items()},
            "labels": np.where(ids >= 0, self._split.labels[ids], UNKNOWN).astype(np.int32),
            "ids": ids.astype(np.int32),
        }

    def example(self, number: int) -> str:
        return self._split.examples.prompts[number]
