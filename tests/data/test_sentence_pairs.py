"""Rows of pairs and of single texts: pinned by hand, and against brute force."""

import dataclasses

import numpy as np
import pytest

from transformer.config import DataConfig
from transformer.data.extended_tokenizer import with_mask
from transformer.data.masking import Masker
from transformer.data.objectives import held_out_batches, training_batches
from transformer.data.sentence_pairs import IS_NEXT, IS_RANDOM, MaskedBatches
from transformer.data.sentences import SentenceSplit
from transformer.data.symbols import Symbols
from transformer.errors import UserError

# A token is a hundred times its document plus the number of its sentence.
NAMES = [f"w{i}" for i in range(1, 2000)]
TOKENIZER = with_mask(Symbols(NAMES, "words", "words"))
PAD, _, CLS, SEP = range(4)
CONFIG = DataConfig(
    objective="masked_language_model", block_length=23, batch_tokens=5 * 23, num_buckets=2
)


def make_split(lengths: list[list[int]]) -> SentenceSplit:
    """Documents of sentences of these lengths."""
    words, sentences, documents = [], [0], [0]
    for number, document in enumerate(lengths, start=1):
        for place, length in enumerate(document):
            words += [100 * number + place] * length
            sentences.append(len(words))
        documents.append(len(sentences) - 1)
    return SentenceSplit(np.array(words, np.int32), np.array(sentences), np.array(documents), "")


SPLIT = make_split([[4, 7, 3, 9, 2, 5, 6], [11, 3, 5], [6, 4, 8, 2, 2, 2, 2, 9], [3, 3]])


def restored(batch: dict[str, np.ndarray]) -> np.ndarray:
    """The inputs before tokens were hidden."""
    tokens = batch["inputs"].copy()
    for row, (places, targets, weights) in enumerate(
        zip(batch["places"], batch["targets"], batch["weights"], strict=True)
    ):
        tokens[row, places[weights > 0]] = targets[weights > 0]
    return tokens


def texts(row: np.ndarray, types: np.ndarray) -> tuple[list[int], list[int]]:
    """The two texts of a row, whose layout is checked."""
    length = int((row != PAD).sum())
    tokens: list[int] = row[:length].tolist()
    middle = tokens.index(SEP)
    first, second = tokens[1:middle], tokens[middle + 1 : -1]
    assert tokens == [CLS, *first, SEP, *second, SEP]
    ones = [0] * (len(first) + 2) + [1] * (len(second) + 1)
    assert types[:length].tolist() == ones and not types[length:].any()
    return first, second


def batches(config=CONFIG, split=SPLIT, seed=1, group=1) -> MaskedBatches:
    found = training_batches(split, config, TOKENIZER, seed, group)
    assert isinstance(found, MaskedBatches)
    return found


def test_rows_have_the_published_layout():
    """[CLS] A [SEP] B [SEP] (Devlin et al. 2019, figure 2), of the sentences of two documents if
    and only if B is random."""
    made, counts = batches(), [0, 0]
    for step in range(40 * made.steps_per_epoch):
        batch = made.batch(step)
        assert batch["inputs"].shape == batch["token_types"].shape == (5, 23)
        assert batch["places"].shape == (5, 3)  # 15 % of 20
        for row, tokens in enumerate(restored(batch)):
            if batch["ids"][row] < 0:
                continue
            first, second = texts(tokens, batch["token_types"][row])
            assert first and second and len(first) + len(second) <= 20
            documents = {token // 100 for token in first}, {token // 100 for token in second}
            assert all(len(document) == 1 for document in documents)
            random = bool(batch["follows"][row])
            assert (documents[0] != documents[1]) == random
            counts[random] += 1
            sentences = [token % 100 for token in first + second if not random or token in first]
            assert (np.diff(sentences) >= 0).all() and (np.diff(sentences) <= 1).all()
            assert not set(first) & set(second)
    assert min(counts) > 100


def test_half_of_the_texts_follow_and_negatives_are_uniform_over_the_other_documents():
    made = batches()
    drawn = np.zeros((4, 4))
    own = np.searchsorted(SPLIT.documents, made._starts, side="right") - 1
    random, draws = 0, 400
    for number in range(len(own)):
        bits = np.random.PCG64(number)
        for _ in range(draws):
            pair = made.pair(number, bits)
            random += pair.follows == IS_RANDOM
            drawn[own[number], pair.second[0] // 100 - 1] += pair.follows == IS_RANDOM
    total = draws * len(own)
    assert abs(random / total - 0.5) < 4 * 0.5 / total**0.5
    assert (np.diag(drawn) == 0).all()
    shares = drawn / drawn.sum(axis=1, keepdims=True)
    deviation = (2 / 9 / drawn.sum(axis=1, keepdims=True)) ** 0.5
    assert (np.abs(shares - 1 / 3)[~np.eye(4, dtype=bool)].reshape(4, 3) < 4 * deviation).all()


def test_random_texts_begin_at_any_sentence_and_cuts_are_anywhere():
    made = batches(split=make_split([[2, 2, 2, 2, 2], [1] * 7]))
    bits = np.random.PCG64(8)
    pairs = [made.pair(0, bits) for _ in range(3000)]
    begins = [pair.second[0] - 200 for pair in pairs if pair.follows == IS_RANDOM]
    cuts = [len(pair.first) // 2 for pair in pairs if pair.follows == IS_NEXT]
    assert np.abs(np.bincount(begins, minlength=7) / len(begins) - 1 / 7).max() < 0.04
    # The first sentences, one at least and not all.
    assert np.bincount(cuts, minlength=6)[[0, 5]].tolist() == [0, 0]
    whole = np.bincount(cuts)[1:5] / len(cuts)
    assert whole[0] > 1 / 4 and (whole[1:] > 1 / 6).all()


def test_one_pair_in_ten_is_short():
    made = batches(split=make_split([[1] * 40, [1] * 40]))
    bits = np.random.PCG64(4)
    next_ones = np.array(
        [
            len(pair.first) + len(pair.second)
            for pair in (made.pair(0, bits) for _ in range(9000))
            if pair.follows == IS_NEXT
        ]
    )
    assert next_ones.max() == 20 and next_ones.min() == 2
    # Of the short ones, of 2 to 20 tokens, one in 19 is as long as the others.
    assert abs((next_ones < 20).mean() - 0.1 * 18 / 19) < 4 * (0.09 / len(next_ones)) ** 0.5


@pytest.mark.parametrize(("first", "second"), [(30, 4), (4, 30), (13, 15), (15, 15), (16, 15)])
def test_the_longer_text_loses_tokens_at_either_end(first, second):
    made = batches()
    long, other = np.arange(first, dtype=np.int32), np.arange(100, 100 + second, dtype=np.int32)
    a, b = first, second
    while a + b > 20:  # the published program's loop
        a, b = (a - 1, b) if a > b else (a, b - 1)
    fronts = []
    for seed in range(300):
        pair = made._fitted(long, other, IS_NEXT, np.random.PCG64(seed))
        assert (len(pair.first), len(pair.second)) == (a, b)
        for text in (pair.first, pair.second):
            assert (np.diff(text) == 1).all()
        fronts.append([pair.first[0], pair.second[0] - 100])
    # A binomial number at the front, of p = 1/2.
    for lost, front in zip((first - a, second - b), np.mean(fronts, axis=0), strict=True):
        assert abs(front - lost / 2) <= 4 * (lost / 4 / 300) ** 0.5


def test_rows_of_single_texts_are_whole_sentences_of_one_document():
    """Without pairs every token is in one row an epoch (Liu et al. 2019: DOC-SENTENCES)."""
    config = dataclasses.replace(CONFIG, next_sentence=False)
    made = batches(config)
    for epoch in range(2):
        found = []
        for step in range(made.steps_per_epoch):
            batch = made.batch(epoch * made.steps_per_epoch + step)
            assert "follows" not in batch and not batch["token_types"].any()
            assert batch["inputs"].shape[1] in (21, 23) or batch["inputs"].shape[1] <= 23
            for row, tokens in enumerate(restored(batch)):
                if batch["ids"][row] >= 0:
                    length = int((tokens != PAD).sum())
                    assert tokens[0] == CLS and tokens[length - 1] == SEP
                    found += tokens[1 : length - 1].tolist()
                    assert len({token // 100 for token in tokens[1 : length - 1]}) == 1
        assert sorted(found) == sorted(SPLIT.words.tolist())


def test_long_sentences_lose_nothing():
    config = dataclasses.replace(CONFIG, next_sentence=False)
    made = batches(config, make_split([[70], [1, 50]]))
    kept = sum(
        int((batch["inputs"] != PAD).sum() - 2 * (batch["ids"] >= 0).sum())
        for batch in map(made.batch, range(made.steps_per_epoch))
    )
    assert kept == 121


def test_a_batch_is_a_function_of_seed_and_step():
    one, two, other = batches(), batches(), batches(seed=2)
    per_epoch = one.steps_per_epoch
    first = [one.batch(step) for step in range(2 * per_epoch)]
    for step in reversed(range(2 * per_epoch)):
        again = two.batch(step)
        assert all((first[step][name] == again[name]).all() for name in again)

    def by_id(steps):
        return {
            int(i): (batch["places"][row], batch["inputs"][row])
            for batch in steps
            for row, i in enumerate(batch["ids"])
            if i >= 0
        }

    epochs = by_id(first[:per_epoch]), by_id(first[per_epoch:])
    seeded = by_id(map(other.batch, range(per_epoch)))
    assert epochs[0].keys() == epochs[1].keys() == set(range(len(one._starts)))
    for another in (epochs[1], seeded):
        same = [
            all(np.array_equal(a, b) for a, b in zip(epochs[0][i], another[i], strict=True))
            for i in epochs[0]
        ]
        assert sum(same) < len(same) / 3


def test_held_out_batches_have_every_example_once_and_are_always_the_same():
    held_out = held_out_batches(SPLIT, CONFIG, TOKENIZER)
    steps = held_out.steps_per_epoch
    found = [held_out.batch(step) for step in range(2 * steps)]
    again = held_out_batches(SPLIT, CONFIG, TOKENIZER)
    for step, batch in enumerate(found):
        assert all((batch[name] == array).all() for name, array in again.batch(step).items())
    # In the same order each epoch, hidden and paired anew.
    for epoch in (found[:steps], found[steps:]):
        ids = np.concatenate([batch["ids"] for batch in epoch])
        assert ids[ids >= 0].tolist() == list(range(len(batches()._starts)))
    for name in ("places", "follows"):
        epochs = zip(found[:steps], found[steps:], strict=True)
        assert any((one[name] != two[name]).any() for one, two in epochs)


def test_weights_of_pairs_have_the_sum_of_those_of_tokens():
    """Over all micro-batches of a step; an empty row has none."""
    made = batches(group=2)
    empty = 0
    for step in range(made.steps_per_epoch):
        batch = made.batch(step)
        real = batch["ids"] >= 0
        empty += (~real).sum()
        assert batch["follow_weights"].sum() == pytest.approx(batch["weights"].sum())
        assert len(set(batch["follow_weights"][real].tolist())) == 1
        assert (batch["follow_weights"][~real] == 0).all()
        assert (batch["follows"][~real] == -1).all() and (batch["weights"][~real] == 0).all()
    assert empty


@pytest.mark.parametrize("next_sentence", [True, False])
def test_some_rows_are_those_of_the_whole_batch(next_sentence):
    made = batches(dataclasses.replace(CONFIG, next_sentence=next_sentence))
    whole, some = made.batch(0), made.batch(0, np.array([0, 2]))
    np.testing.assert_array_equal(made.ids(0), whole["ids"])
    for name, array in whole.items():
        np.testing.assert_array_equal(some[name], array[[0, 2]], name)


def test_the_summary_and_examples_are_for_people():
    made = batches()
    assert made.summary.startswith("96 tokens (unigram entropy ")
    assert f"in 20 sentences of 4 documents; {len(made._starts)} pairs in " in made.summary
    assert made.example(0) == TOKENIZER.decode_target([100] * 4 + [101] * 7 + [102] * 3 + [103] * 9)


def test_rows_need_begin_and_end():
    class Endless(Symbols):
        special = Symbols.special._replace(end=-1)

    with pytest.raises(UserError, match=r"data\.tokenizer: it has no .*end"):
        MaskedBatches(
            SPLIT,
            Endless(NAMES, "words", "words"),
            23,
            Masker(TOKENIZER, 0.15),
            True,
            1,
            batch_tokens=99,
        )
