"""Contexts cut into overlapping windows, each read together with its question.

A window is ``[CLS] question [SEP] part of the context [SEP]`` (Devlin et al. 2019, section 4.2). A
context that does not fit has several, whose first tokens are `stride` apart, as in the published
program: an answer near the edge of one window stands further inside another.
"""

import hashlib
import unicodedata
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from transformer.config import DataConfig
from transformer.data.batches import ALL, Batch, Rows
from transformer.data.classification import InputMaker
from transformer.data.composing import layout_of
from transformer.data.plan import BatchPlan, PlannedBatches
from transformer.data.questions import Question, Questions
from transformer.data.sources import Log
from transformer.data.store import fingerprint
from transformer.data.tokenizer import Tokenizer
from transformer.errors import UserError

# Texts tokenised at once.
_CHUNK = 10_000
# Of [CLS] where the answer would be: this window has none.
_NO_ANSWER = 0


class Tokens(NamedTuple):
    """A text's ids and where they stand in it.

    Attributes:
        ids: int32 ``[T]``.
        offsets: int32 ``[T, 2]``, of each its first character, and the last + 1.
    """

    ids: np.ndarray
    offsets: np.ndarray


class Windows(NamedTuple):
    """Windows of a set, those of a question one after the other; each field is int32 ``[W]``.

    Attributes:
        question: the number of its question.
        first: the context's token that it begins with.
        length: how many of the context's tokens it has.
        shift: the place of a token in the row less its place in the context.
        low: its first token, of the context's, that stands further from an edge here than in any
            other window (of those with equal distances the first; longer windows go before).
        high: one past the last such token.
        starts: where in the row its answer begins; 0, the place of [CLS]: it has none.
        ends: where the answer's last token is.
    """

    question: np.ndarray
    first: np.ndarray
    length: np.ndarray
    shift: np.ndarray
    low: np.ndarray
    high: np.ndarray
    starts: np.ndarray
    ends: np.ndarray


@dataclass(frozen=True)
class SpanSplit:
    """Questions with the windows of their contexts.

    Attributes:
        questions: and their contexts, as read.
        asked: the ids of each question, as far as they are read.
        contexts: the tokens of each context.
        windows: what a row shows.
        cut: how many questions are longer than they are read.
        fingerprint: a hash of the texts, the answers, the tokenizer and the windows' sizes.
    """

    questions: Questions
    asked: list[np.ndarray]
    contexts: list[Tokens]
    windows: Windows
    cut: int
    fingerprint: str

    def __len__(self) -> int:
        return len(self.questions)

    @property
    def tokens(self) -> tuple[np.ndarray, ...]:
        """Every token of the split, in some arrays."""
        return np.concatenate(self.asked), np.concatenate([t.ids for t in self.contexts])

    @property
    def labelled(self) -> bool:
        """Whether there are answers; one without any is taken for a set that does not tell."""
        return self.questions.unanswerable < len(self)

    def text(self, question: int, first: int, last: int) -> str:
        """What stands in a question's context from token `first` to `last`, as it is there."""
        number = self.questions.questions[question].context
        offsets = self.contexts[number].offsets
        start, end = self.start(question, first), offsets[last, 1]
        return self.questions.contexts[number][start:end].rstrip()

    def start(self, question: int, first: int) -> int:
        """The character of a question's context at which `text` from token `first` on begins.

        (The tokens of some tokenizers begin with the space before a word.)
        """
        number = self.questions.questions[question].context
        at, end = self.contexts[number].offsets[first].tolist()
        token = self.questions.contexts[number][at:end]
        return at + len(token) - len(token.lstrip())


def locate(texts: Sequence[str], tokenizer: Tokenizer) -> list[Tokens]:
    """The tokens of some texts and where they stand.

    Combining marks that the tokenizer leaves out, such as accents, count to the character
    before them.

    Raises:
        UserError: the tokenizer does not say where its tokens are.
    """
    found = []
    for start in range(0, len(texts), _CHUNK):
        chunk = texts[start : start + _CHUNK]
        for text, (ids, offsets) in zip(chunk, tokenizer.encode_with_offsets(chunk), strict=True):
            places = np.array(offsets, np.int32).reshape(-1, 2)
            if not text.isascii():
                _take_marks(text, places)
            found.append(Tokens(np.array(ids, np.int32), places))
    return found


def _take_marks(text: str, offsets: np.ndarray) -> None:
    """Moves the end of each token behind combining marks that belong to no token."""
    following = np.append(offsets[1:, 0], len(text))
    for i in np.flatnonzero(offsets[:, 1] < following):
        end = offsets[i, 1]
        while end < following[i] and unicodedata.combining(text[end]):
            end += 1
        offsets[i, 1] = end


def make_windows(
    questions: Questions, config: DataConfig, tokenizer: Tokenizer, what: str, log: Log = print
) -> SpanSplit:
    """Tokenises questions and contexts and cuts these into windows.

    Args:
        questions: from `read_questions`.
        config: the sizes of windows.
        tokenizer: one that has a begin, an end and offsets.
        what: the split, for messages.
        log: is told how many windows there are, how many questions are cut and how many answers
            no window has.

    Raises:
        UserError: the tokenizer lacks something; a context, or an answer, has no token.
    """
    layout = layout_of(tokenizer)
    before = len(layout.begin) + len(layout.between)
    texts = [question.text for question in questions.questions]
    whole = [tokens.ids for tokens in locate(texts, tokenizer)]
    asked = [ids[: config.question_length] for ids in whole]
    contexts = locate(questions.contexts, tokenizer)
    rows: list[tuple[int, ...]] = []
    outside = 0
    for number, question in enumerate(questions.questions):
        answer = _answer_tokens(question, contexts[question.context])
        shift = before + len(asked[number])
        room = config.max_length - shift - len(layout.end)
        count = len(contexts[question.context].ids)
        own = window_rows(count, room, config.stride)
        inside = False
        for first, length, low, high in own:
            span = (_NO_ANSWER, _NO_ANSWER)
            if answer is not None and first <= answer[0] and answer[1] < first + length:
                span, inside = (answer[0] - first + shift, answer[1] - first + shift), True
            rows.append((number, first, length, shift - first, low, high, *span))
        outside += answer is not None and not inside
    windows = Windows(*np.array(rows, np.int32).T)
    cut = sum(len(a) < len(b) for a, b in zip(asked, whole, strict=True))
    notes = [f"{what}: {len(rows):,} windows of at most {config.max_length} tokens"]
    if cut:
        limit = f"data.question_length = {config.question_length}"
        notes.append(f"{cut:,} questions cut to {limit} tokens")
    if outside:
        notes.append(f"{outside:,} answers longer than a window, taken for none")
    log("; ".join(notes))
    key = fingerprint(texts, questions.contexts, tokenizer, config.max_length)
    digest = hashlib.sha256(key.encode())
    for field in windows:
        digest.update(np.ascontiguousarray(field).tobytes())
    return SpanSplit(questions, asked, contexts, windows, cut, digest.hexdigest())


def _answer_tokens(question: Question, context: Tokens) -> tuple[int, int] | None:
    """The first and last token of a question's first answer; None if it has none."""
    if not len(context.ids):
        raise UserError(f"{question.place}: the context has no token")
    if not question.answers:
        return None
    text, start = question.answers[0]
    touched = np.flatnonzero(
        (context.offsets[:, 1] > start) & (context.offsets[:, 0] < start + len(text))
    )
    if not len(touched):
        raise UserError(f"{question.place}: the answer {text!r} at character {start} has no token")
    return int(touched[0]), int(touched[-1])


def window_rows(tokens: int, room: int, stride: int) -> list[tuple[int, int, int, int]]:
    """The windows of a context: for each ``first, length, low, high`` (see `Windows`).

    Args:
        tokens: the context's length, at least 1.
        room: most of its tokens that a window holds, at least 1.
        stride: how far apart the windows' first tokens are; at most `room` is taken, so that no
            token is skipped.
    """
    firsts = np.arange(0, max(tokens - room, 0) + min(stride, room), min(stride, room))
    lengths = np.minimum(room, tokens - firsts)
    place = np.arange(tokens)
    left, right = place - firsts[:, None], (firsts + lengths - 1)[:, None] - place
    # The published program's measure, by which the published figures are made.
    context = np.minimum(left, right) + 0.01 * lengths[:, None]
    best = np.where((left >= 0) & (right >= 0), context, -1).argmax(axis=0)
    # The windows that are best for one token after the other come in order.
    numbers = np.arange(len(firsts))
    low, high = (np.searchsorted(best, numbers, side) for side in ("left", "right"))
    return list(zip(*(a.tolist() for a in (firsts, lengths, low, high)), strict=True))


def row_lengths(split: SpanSplit, inputs: InputMaker) -> np.ndarray:
    """Tokens of each window with its question: int ``[W]``."""
    asked = np.array([len(ids) for ids in split.asked])
    return inputs.composer.total(asked[split.windows.question], split.windows.length)


def window_batch(split: SpanSplit, inputs: InputMaker, ids: np.ndarray, length: int) -> Batch:
    """Some windows as rows of `length`.

    Args:
        split: all windows.
        inputs: puts a row together.
        ids: int ``[R]``, the windows' numbers; -1, only at the end: an empty row.
        length: at least that of the longest row.

    Returns:
        ``inputs``, ``token_types``, ``starts``, ``ends``, ``ids`` (see `Batch`).
    """
    windows, texts = split.windows, []
    for window in ids[ids >= 0].tolist():
        number, first, count = (int(field[window]) for field in windows[:3])
        context = split.contexts[split.questions.questions[number].context]
        texts.append((split.asked[number], context.ids[first : first + count]))
    return {
        **inputs(texts, len(ids), length),
        "starts": np.where(ids >= 0, windows.starts[ids], -1).astype(np.int32),
        "ends": np.where(ids >= 0, windows.ends[ids], -1).astype(np.int32),
        "ids": ids.astype(np.int32),
    }


class WindowBatches(PlannedBatches):
    """Batches of windows, bucketed by length (see `Batches`): an example is a window.

    Args:
        split: the windows.
        tokenizer: what they were made with.
        max_length: most tokens of a row.
        plan_settings: of `BatchPlan`, besides the lengths.
    """

    def __init__(
        self, split: SpanSplit, tokenizer: Tokenizer, max_length: int, **plan_settings
    ) -> None:
        self._split, self._inputs = split, InputMaker(tokenizer, True, max_length)
        lengths = row_lengths(split, self._inputs)
        self._plan = BatchPlan(lengths, lengths, **plan_settings)

    @property
    def summary(self) -> str:
        windows = self._split.windows
        share = (windows.starts > 0).mean()
        return (
            f"{len(self._split):,} questions in {len(windows.first):,} windows ({share:.0%} with "
            f"the answer), {self.steps_per_epoch:,} steps an epoch, {self._plan.efficiency:.0%} "
            "of their tokens not padding"
        )

    def batch(self, step: int, rows: Rows = ALL) -> Batch:
        """The windows of a step; an empty row has the answer -1."""
        ids, (_, length, _) = self._plan.indices(step, rows)
        return window_batch(self._split, self._inputs, ids, length)

    def example(self, number: int) -> str:
        return self._split.questions.questions[self._split.windows.question[number]].text
