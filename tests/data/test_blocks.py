"""Packed rows: each target once, documents apart, a pure function of tokens, seed and step."""

import numpy as np
import pytest

from transformer.data.blocks import BlockBatches
from transformer.data.byte_tokenizer import Bytes
from transformer.data.store import DocumentStore
from transformer.data.tokenizer import BOS, EOS
from transformer.errors import UserError

LENGTH = 7


def store_of(*lengths: int) -> DocumentStore:
    """Documents of so many tokens, which are all different: place p has the token 5 + p."""
    offsets = np.concatenate([[0], np.cumsum(lengths)])
    return DocumentStore(np.arange(5, 5 + offsets[-1], dtype=np.int32), offsets)


def batches_of(store: DocumentStore, rows: int = 3, **values) -> BlockBatches:
    return BlockBatches(store, Bytes(), LENGTH, rows * LENGTH + 2, **values)


def epoch_of(batches: BlockBatches, epoch: int = 0) -> list[dict[str, np.ndarray]]:
    steps = batches.steps_per_epoch
    return [batches.batch(step) for step in range(epoch * steps, (epoch + 1) * steps)]


def counted(batches: list[dict[str, np.ndarray]]) -> list[int]:
    """The targets that count, in order of size."""
    return sorted(t for b in batches for t in b["targets"][b["weights"] > 0].tolist())


def test_a_row_by_hand():
    """Documents of 3, 2 and 6 tokens; the target that begins another document does not count."""
    first, second = epoch_of(batches_of(store_of(3, 2, 6), rows=1, shuffle=False))
    assert first["inputs"].tolist() == [[5, 6, 7, 8, 9, 10, 11]]
    assert first["targets"].tolist() == [[6, 7, 8, 9, 10, 11, 12]]
    assert first["weights"].tolist() == [[1, 1, 0, 1, 0, 1, 1]]
    assert first["segments"].tolist() == [[1, 1, 1, 2, 2, 3, 3]]
    assert first["positions"].tolist() == [[0, 1, 2, 0, 1, 0, 1]]
    assert first["ids"].tolist() == [0]
    # The rest of the third document is a segment, and a context, of its own.
    assert second["inputs"].tolist() == [[12, 13, 14, 0, 0, 0, 0]]
    assert second["targets"].tolist() == [[13, 14, 15, 0, 0, 0, 0]]
    assert second["weights"].tolist() == [[1, 1, 1, 0, 0, 0, 0]]
    assert second["segments"].tolist() == [[1, 1, 1, 0, 0, 0, 0]]
    assert second["positions"].tolist() == [[0, 1, 2, 0, 0, 0, 0]]
    assert second["ids"].tolist() == [7]
    assert first["weights"].dtype == np.float32
    assert all(array.dtype == np.int32 for name, array in first.items() if name != "weights")


@pytest.mark.parametrize("shuffle", [True, False])
@pytest.mark.parametrize("group", [1, 2])
@pytest.mark.parametrize("lengths", [(101,), (13, 1, 2, 47, 5, 31), (7,) * 14, (8,), (99,), (106,)])
def test_each_target_once_an_epoch(lengths, group, shuffle):
    """A last partial batch was dropped by others, which changed their figures."""
    store = store_of(*lengths)
    batches = batches_of(store, shuffle=shuffle, group=group)
    expected = sorted(set(store.tokens.tolist()) - set(store.tokens[store.offsets[:-1]].tolist()))
    for epoch in range(5):
        made = epoch_of(batches, epoch)
        assert counted(made) == expected
        assert len({batch["inputs"].shape for batch in made}) == 1
        rows, width = made[0]["inputs"].shape
        assert width == LENGTH and rows <= 3 * group and rows % group == 0
        # No step is almost empty: its gradient would count as much as that of a full one.
        full = [int((batch["ids"] >= 0).sum()) for batch in made]
        assert not shuffle or max(full) - min(full) <= 2
        for batch in made:
            inside = batch["weights"] > 0
            assert (batch["targets"] == batch["inputs"] + 1)[inside].all()
            empty = batch["ids"] < 0
            assert not batch["inputs"][empty].any() and not batch["weights"][empty].any()
            assert (batch["inputs"][~empty, 0] == batch["ids"][~empty] + 5).all()


def test_segments_and_positions_follow_from_the_documents():
    store = store_of(13, 1, 2, 47, 5, 31)
    for batch in epoch_of(batches_of(store, seed=3), 1):
        for inputs, segments, positions in zip(
            batch["inputs"], batch["segments"], batch["positions"], strict=True
        ):
            documents = np.searchsorted(store.offsets, inputs - 5, side="right")
            real = inputs > 0
            assert (segments[~real] == 0).all() and (positions[~real] == 0).all()
            numbers = np.unique(documents[real], return_inverse=True)[1] + 1
            assert segments[real].tolist() == numbers.tolist()
            for number in set(segments[real].tolist()):
                part = positions[segments == number]
                assert part.tolist() == list(range(len(part)))


def test_one_document_needs_no_segments():
    batch = batches_of(store_of(101)).batch(0)
    assert batch.keys() == {"inputs", "targets", "weights", "ids"}
    assert batches_of(store_of(51, 50)).batch(0).keys() > batch.keys()


def test_epochs_differ_and_repeat():
    store = store_of(10_007)
    batches = batches_of(store, seed=3)
    orders = []
    for epoch in (0, 1, 2):
        ids = [number for batch in epoch_of(batches, epoch) for number in batch["ids"].tolist()]
        orders.append(ids)
        rows = np.sort([number for number in ids if number > 0])
        assert (np.diff(rows) == LENGTH).all()
    first_cuts = {min(i for i in ids if i > 0) for ids in orders}
    assert len(first_cuts) > 1 and orders[0] != sorted(orders[0])
    again = batches_of(store, seed=3)
    step = 2 * batches.steps_per_epoch + 1
    for name, array in again.batch(step).items():
        assert np.array_equal(array, batches.batch(step)[name])
    other = batches_of(store, seed=4)
    assert other.batch(0)["ids"].tolist() != batches.batch(0)["ids"].tolist()


def test_every_first_cut_occurs():
    batches = batches_of(store_of(29))
    cuts = {
        min(i for b in epoch_of(batches, epoch) for i in b["ids"].tolist() if i > 0)
        for epoch in range(100)
    }
    assert cuts == set(range(1, LENGTH + 1))


def test_held_out_rows_keep_their_order_and_one_shape():
    batches = batches_of(store_of(101), shuffle=False)
    ids = [number for batch in epoch_of(batches) for number in batch["ids"].tolist()]
    assert ids == [*range(0, 100, LENGTH)]
    assert batches.batch(3)["ids"].tolist() == batches.batch(3 + 5 * 3)["ids"].tolist()
    short = epoch_of(batches_of(store_of(4), shuffle=False))
    assert counted(short) == [6, 7, 8] and short[0]["inputs"].shape == (1, LENGTH)


def test_a_text_shorter_than_a_row_is_refused():
    batches_of(store_of(8))
    with pytest.raises(
        UserError, match=r"data\.train: 7 tokens; expected more than data\.block_length = 7"
    ):
        batches_of(store_of(7))


def test_an_example_is_its_text():
    tokens = np.array([BOS, *(4 + b for b in b"two words"), EOS], np.int32)
    batches = batches_of(DocumentStore(tokens, np.array([0, 11])))
    assert batches.example(0) == "two wo" and batches.example(8) == "ds"
    assert batches.summary == "11 tokens in 1 document, 1 steps an epoch"
