"""T5's span corruption: counts, masks, and the exact way back."""

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data.extended_tokenizer import with_sentinels
from transformer.data.span_corruption import (
    SpanBatches,
    corrupt,
    corrupted_lengths,
    merge,
    noise_counts,
    noise_mask,
    raw_length,
)
from transformer.data.store import DocumentStore, open_or_build_documents
from transformer.data.tokenizer import EOS, train_tokenizer
from transformer.errors import UserError

SENTINELS = np.arange(999, 899, -1)
END = 1


def test_the_example_of_the_docstring():
    tokens = np.array([11, 12, 13, 14, 15, 16, 17])
    mask = np.array([0, 0, 1, 1, 0, 0, 1], bool)
    source, target = corrupt(tokens, mask, SENTINELS, END)
    assert source.tolist() == [11, 12, 999, 15, 16, 998, END]
    assert target.tolist() == [999, 13, 14, 998, 17, END]
    assert source.dtype == target.dtype == np.int32


def test_a_mask_may_begin_with_noise():
    tokens, mask = np.array([11, 12, 13]), np.array([1, 0, 0], bool)
    source, target = corrupt(tokens, mask, SENTINELS, END)
    assert source.tolist() == [999, 12, 13, END]
    assert target.tolist() == [999, 11, END]
    assert merge(source, target, SENTINELS, END).tolist() == [11, 12, 13]


@pytest.mark.parametrize(("density", "mean_span"), [(0.15, 3.0), (0.5, 1.0), (0.15, 8.0)])
def test_merging_is_the_exact_inverse_for_any_seed_and_length(density, mean_span):
    for seed in range(1, 160):
        tokens = np.random.default_rng(seed).integers(2, 890, seed)
        mask = noise_mask(len(tokens), density, mean_span, np.random.PCG64(seed))
        source, target = corrupt(tokens, mask, SENTINELS, END)
        assert (len(source), len(target)) == corrupted_lengths(len(tokens), density, mean_span)
        assert merge(source, target, SENTINELS, END).tolist() == tokens.tolist()


def test_the_published_lengths():
    """T5's segments of 512 come from 568 tokens and have targets of 114."""
    assert raw_length(512, 0.15, 3.0) == 568
    assert corrupted_lengths(568, 0.15, 3.0) == (512, 114)
    assert noise_counts(568, 0.15, 3.0) == (85, 28)


@pytest.mark.parametrize(("density", "mean_span"), [(0.15, 3.0), (0.15, 1.0), (0.5, 1.0), (0.9, 3)])
def test_no_longer_text_fits_the_source(density, mean_span):
    for limit in range(3, 90):
        longest = raw_length(limit, density, mean_span)
        assert corrupted_lengths(longest, density, mean_span)[0] <= limit
        for longer in range(longest + 1, 2 * longest + 9):
            assert corrupted_lengths(longer, density, mean_span)[0] > limit


@pytest.mark.parametrize("length", [1, 2, 3, 7])
def test_short_texts_do_not_degenerate(length):
    for seed in range(9):
        mask = noise_mask(length, 0.15, 3.0, np.random.PCG64(seed))
        assert mask.sum() == (1 if length > 1 else 0)
        assert not mask[0]


def test_masks_have_the_density_and_mean_span_and_cover_every_place():
    masks = np.array([noise_mask(200, 0.15, 3.0, np.random.PCG64(seed)) for seed in range(400)])
    starts = masks[:, 1:] & ~masks[:, :-1]
    assert (masks.sum(1) == 30).all() and (starts.sum(1) == 10).all()
    assert len(np.unique(masks, axis=0)) == 400
    share = masks[:, 20:-20].mean(0)
    assert share.min() > 0.08 and share.max() < 0.25


def test_all_masks_are_equally_likely():
    """Of 8 tokens, 3 noise in 2 spans: 2 partitions of the noise and 4 of the rest."""
    masks = [tuple(noise_mask(8, 0.375, 1.5, np.random.PCG64(seed))) for seed in range(4000)]
    _, counts = np.unique(masks, axis=0, return_counts=True)
    assert len(counts) == 8
    assert counts.min() > 420 and counts.max() < 580  # 500 expected, standard deviation 21


def test_more_spans_than_sentinels_is_an_error():
    tokens, mask = np.arange(10, 16), np.array([0, 1, 0, 1, 0, 1], bool)
    with pytest.raises(ValueError, match="3 spans: expected at most 2"):
        corrupt(tokens, mask, SENTINELS[:2], END)


def test_a_target_that_lacks_a_sentinel_names_it():
    source = np.array([11, 999, 12, 998, END])
    with pytest.raises(UserError, match=r"sentinel 1 \(id 998\): found none in the target"):
        merge(source, np.array([999, 5, END]), SENTINELS, END)


def test_a_models_output_may_fill_spans_with_nothing_and_go_on_after_the_end():
    source = np.array([11, 999, 12, 998, END])
    target = np.array([999, 998, 7, 8, END, 5, 5])
    assert merge(source, target, SENTINELS, END).tolist() == [11, 12, 7, 8]


TEXTS = ["abcdefg" * 3, "h", "ijklmn" * 11, "gfedcba" * 5]


@pytest.fixture
def tokenizer():
    config = DataConfig(target_symbols="characters")
    return with_sentinels(train_tokenizer(config, [], TEXTS))[0]


@pytest.fixture
def store(tokenizer, tmp_path) -> DocumentStore:
    return open_or_build_documents(tmp_path, "key", TEXTS, tokenizer)


def batches_of(store, tokenizer, length=35, batch_tokens=70, **values) -> SpanBatches:
    return SpanBatches(store, tokenizer, length, 0.15, 3.0, batch_tokens, **values)


def merged_texts(batches: SpanBatches, tokenizer, epoch: int) -> dict[int, str]:
    """The text of each piece, put together again from its row."""
    _, sentinels = with_sentinels(tokenizer)
    pieces = {}
    for step in range(epoch * batches.steps_per_epoch, (epoch + 1) * batches.steps_per_epoch):
        batch = batches.batch(step)
        for row, i in enumerate(batch["ids"].tolist()):
            source, target = batch["source"][row], batch["targets"][row]
            count = int(batch["weights"][row].sum())
            if i < 0:
                assert not count and not source.any() and not target.any()
                continue
            assert i not in pieces
            assert target[count - 1] == EOS and not target[count:].any()
            shifted = [tokenizer.special.begin, *target[: count - 1]]
            assert batch["inputs"][row][:count].tolist() == shifted
            pieces[i] = tokenizer.decode_target(merge(source, target, sentinels, EOS).tolist())
            assert pieces[i] == batches.example(i)
    return pieces


def test_rows_merge_to_the_whole_text_each_epoch(store, tokenizer):
    """Without the marks between documents, which would end a source too early."""
    batches = batches_of(store, tokenizer, seed=3, group=2)
    for epoch in (0, 1):
        pieces = merged_texts(batches, tokenizer, epoch)
        assert "".join(pieces[i] for i in sorted(pieces)) == "".join(TEXTS)
    assert batches.batch(0)["source"].shape[1] == 35
    assert batches.summary.startswith("123 tokens in rows of 38, ")


def test_noise_follows_from_seed_epoch_and_piece(store, tokenizer):
    def sources(first_epoch: int, **values) -> dict[int, list[int]]:
        batches = batches_of(store, tokenizer, **values)
        first = first_epoch * batches.steps_per_epoch
        parts = [batches.batch(first + step) for step in range(batches.steps_per_epoch)]
        rows = [pair for b in parts for pair in zip(b["ids"].tolist(), b["source"], strict=True)]
        return {i: row.tolist() for i, row in rows if i >= 0}

    base = sources(0, seed=3)
    assert sources(0, seed=3, batch_tokens=34) == base
    assert sources(0, seed=4) != base and sources(1, seed=3) != base
    held_out = sources(0, seed=3, shuffle=False)
    assert sources(1, seed=3, shuffle=False) == held_out


def test_too_long_a_row_for_the_sentinels(store, tokenizer):
    with pytest.raises(UserError, match=r"data.block_length = 2000: 111 spans a row; .* 100"):
        batches_of(store, tokenizer, length=2000)


def test_a_tokenizer_without_end(store, tokenizer):
    tokenizer.special = tokenizer.special._replace(end=-1)
    with pytest.raises(UserError, match="no end symbol"):
        batches_of(store, tokenizer)
