"""The best spans against a search by brute force, and by hand."""

import itertools

import numpy as np
import pytest

from transformer.decoding.spans import Spans, best_spans, null_scores, probabilities, top


def brute(starts, ends, low, high, stop, longest):
    """All spans of one row that are allowed, best first."""
    spans = [
        (float(np.float32(starts[i]) + np.float32(ends[j])), i, j)
        for i, j in itertools.product(range(low, high), range(stop))
        if i <= j < i + longest
    ]
    return sorted(spans, key=lambda span: (-span[0], span[1], span[2]))


@pytest.mark.parametrize(("longest", "count"), [(3, 4), (30, 20), (1, 2), (5, 1000)])
def test_the_best_spans_are_those_of_all_that_are_allowed(longest, count):
    rows, length = 5, 17
    generator = np.random.default_rng(3)
    starts, ends = generator.normal(size=(2, rows, length)).astype(np.float32)
    low, high = np.array([3, 3, 5, 7, 0]), np.array([17, 9, 6, 7, 17])
    stop = np.array([17, 13, 16, 12, 11])
    found = best_spans(starts, ends, low, high, stop, longest, count)
    for row in range(rows):
        mine = found.row == row
        expected = brute(starts[row], ends[row], low[row], high[row], stop[row], longest)[:count]
        spans = zip(found.score[mine], found.first[mine], found.last[mine], strict=True)
        assert [(float(s), int(i), int(j)) for s, i, j in spans] == expected
    assert (np.diff(found.row) >= 0).all()


def test_of_equal_spans_the_earlier_and_shorter_goes_first():
    flat = np.zeros((1, 4), np.float32)
    one, four = np.array([1]), np.array([4])
    found = best_spans(flat, flat, one, four, four, longest=2, count=4)
    assert list(zip(found.first, found.last, strict=True)) == [(1, 1), (1, 2), (2, 2), (2, 3)]


def test_an_end_never_comes_before_its_beginning():
    starts = np.array([[0, 0, 9, 0.0]], np.float32)
    ends = np.array([[0, 9, 0, 5.0]], np.float32)
    found = best_spans(starts, ends, np.array([0]), np.array([4]), np.array([4]), count=1)
    assert (found.first[0], found.last[0], found.score[0]) == (2, 3, 14.0)


def test_the_best_of_several_windows():
    spans = Spans(*map(np.array, ([1, 0, 1, 0], [5, 6, 7, 8], [5, 6, 7, 8], [2.0, 3.0, 2.0, 4.0])))
    best = top(spans, 1)
    assert best.row.tolist() == [0, 1] and best.first.tolist() == [8, 5]


def test_no_answer_is_the_first_place():
    starts, ends = np.array([[1.0, 7], [2, 7]]), np.array([[0.5, 7], [0.25, 7]])
    assert null_scores(starts, ends).tolist() == [1.5, 2.25]


def test_probabilities_are_the_softmax():
    found = probabilities(np.array([1000.0, 1000.0 + np.log(3)]))
    np.testing.assert_allclose(found, [0.25, 0.75], rtol=1e-6)
