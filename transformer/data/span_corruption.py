"""T5's training objective: to fill in what was cut out (Raffel et al. 2020, section 3.1.4).

Spans of the text are replaced by sentinels, different ones, and the target is what they
stand for. With the spans ``c d`` and ``g`` of ``a b c d e f g``::

    source   a b <extra_id_0> e f <extra_id_1> </s>
    target   <extra_id_0> c d <extra_id_1> g </s>

The target ends as in the authors' program: with the end symbol alone, where the paper's
figure 2 shows one sentinel more.
"""

from typing import NamedTuple

import numpy as np

from transformer.errors import UserError


class Counts(NamedTuple):
    """How much of some tokens is noise: what is cut out of them."""

    noise: int
    spans: int


def noise_counts(length: int, density: float, mean_span: float) -> Counts:
    """The numbers of noise tokens and of their spans, which do not depend on chance.

    ``noise = round(density length)``, ``spans = round(noise / mean_span)``, each at least 1, and
    no more spans than there are tokens between them. Of a single token nothing is cut.
    """
    if length < 2:
        return Counts(0, 0)
    noise = min(max(round(length * density), 1), length - 1)
    return Counts(noise, min(max(round(noise / mean_span), 1), noise, length - noise))


def corrupted_lengths(length: int, density: float, mean_span: float) -> tuple[int, int]:
    """The lengths of source and target that `length` tokens become, end symbols included.

    >>> corrupted_lengths(568, density=0.15, mean_span=3)
    (512, 114)
    """
    noise, spans = noise_counts(length, density, mean_span)
    return length - noise + spans + 1, noise + spans + 1


def raw_length(source_length: int, density: float, mean_span: float) -> int:
    """The most tokens whose corrupted source has at most `source_length`, which is 3 or more.

    >>> raw_length(512, density=0.15, mean_span=3)
    568
    """
    length = 1
    # The source grows with the text, but for steps back of one token where a span is added.
    for longer in range(2, int(2 * source_length / (1 - density)) + 2):
        if corrupted_lengths(longer, density, mean_span)[0] <= source_length:
            length = longer
    return length


def noise_mask(
    length: int, density: float, mean_span: float, bits: np.random.BitGenerator
) -> np.ndarray:
    """Which tokens are cut out: bool ``[length]``.

    Kept and noise spans alternate, beginning with a kept one. Of the masks with the counts of
    `noise_counts` all are equally likely.
    """
    noise, spans = noise_counts(length, density, mean_span)
    if not spans:
        return np.zeros(length, bool)
    parts = _partition(length - noise, spans, bits), _partition(noise, spans, bits)
    lengths = np.stack(parts, axis=1).ravel()
    return np.repeat(np.arange(2 * spans) % 2 == 1, lengths)


def _partition(total: int, parts: int, bits: np.random.BitGenerator) -> np.ndarray:
    """`total` as the sum of `parts` numbers above 0, all such lists equally likely."""
    # Raw output, because its stream is the same in every NumPy version.
    order = np.argsort(bits.random_raw(total - 1), kind="stable")
    cuts = np.sort(order[: parts - 1]) + 1
    return np.diff(np.concatenate([[0], cuts, [total]]))


def corrupt(
    tokens: np.ndarray, mask: np.ndarray, sentinels: np.ndarray, end: int
) -> tuple[np.ndarray, np.ndarray]:
    """Source and target, int32, each ending with `end`; `merge` is the inverse.

    Args:
        tokens: int ``[length]``.
        mask: bool ``[length]``, True where a token is cut out.
        sentinels: the ids that stand for the spans, in the order of their use; as many as
            there are spans, or more.
        end: the end symbol.
    """
    starts = mask & ~np.concatenate([[False], mask[:-1]])
    count = int(starts.sum())
    if count > len(sentinels):
        raise ValueError(f"{count} spans: expected at most {len(sentinels)}, one a sentinel")
    marked = tokens.copy()
    marked[starts] = sentinels[:count]
    source = marked[~mask | starts]
    target = np.insert(tokens[mask], np.flatnonzero(starts[mask]), sentinels[:count])
    return np.append(source, end).astype(np.int32), np.append(target, end).astype(np.int32)


def merge(source: np.ndarray, target: np.ndarray, sentinels: np.ndarray, end: int) -> np.ndarray:
    """The text of a source with the spans of a target, or of a model's output, filled in.

    Args:
        source: int, as `corrupt` returned it; what follows its first `end` is not looked at.
        target: likewise.
        sentinels: as given to `corrupt`.
        end: as given to `corrupt`.

    Raises:
        UserError: a sentinel of the source is not in the target; says which.
    """
    spans = dict(_pieces(target, sentinels, end))
    parts = []
    for sentinel, kept in _pieces(source, sentinels, end):
        if sentinel is not None:
            if sentinel not in spans:
                number = np.flatnonzero(sentinels == sentinel)[0]
                raise UserError(f"sentinel {number} (id {sentinel}): found none in the target")
            parts.append(spans[sentinel])
        parts.append(kept)
    return np.concatenate(parts)


def _pieces(
    tokens: np.ndarray, sentinels: np.ndarray, end: int
) -> list[tuple[int | None, np.ndarray]]:
    """What is before the first sentinel (as of None), and each sentinel with what follows it."""
    tokens = tokens[: np.append(np.flatnonzero(tokens == end), len(tokens))[0]]
    first, *others = np.split(tokens, np.flatnonzero(np.isin(tokens, sentinels)))
    return [(None, first), *((int(part[0]), part[1:]) for part in others)]
