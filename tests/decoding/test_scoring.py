"""Scores against the whole forward pass, token by token."""

import math
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.decoding import tiny
from tests.decoding.test_generate import Beginless
from tests.decoding.tiny_decoder import CONFIG, MODEL, TOKENIZER, log_probs, parameters
from transformer.config import DataConfig
from transformer.data.tokenizer import SentencePiece
from transformer.decoding.scoring import Score, Scorer, common_length
from transformer.errors import UserError

PAIRS = [("abc", "de"), ("g", "fedcba"), ("abacadae" * 3, "c"), ("cab", ""), ("", "bad"),
         ("ba", "dcab" * 6)]  # fmt: skip
TEXT = "abcdefgfedcba" * 9 + "gag"


def scorer(**settings) -> Scorer:
    return Scorer(MODEL, parameters(), TOKENIZER, **settings)


def token_log_probs(context: list[int], continuation: list[int]) -> list[float]:
    return [
        float(log_probs([*context, *continuation[:i]])[token])
        for i, token in enumerate(continuation)
    ]


def assert_scores(found: list[Score], pairs, begin=()):
    for score, (context, continuation) in zip(found, pairs, strict=True):
        before = [*(begin or [2] * (not context)), *TOKENIZER.encode_target(context)]
        expected = token_log_probs(before, TOKENIZER.encode_target(continuation))
        np.testing.assert_allclose(score.log_probs, expected, rtol=1e-4, atol=1e-4)


def test_log_likelihoods_are_those_of_the_forward_pass():
    found = scorer().score(PAIRS)
    assert_scores(found, PAIRS)
    assert [len(score.log_probs) for score in found] == [2, 6, 1, 0, 3, 24]
    assert_scores(scorer(begin=True).score(PAIRS), PAIRS, begin=[2])


def test_a_score_does_not_depend_on_the_batch():
    together = scorer(batch_size=64).score(PAIRS)
    for pair, score in zip(PAIRS, together, strict=True):
        (alone,) = scorer(batch_size=1).score([pair])
        np.testing.assert_allclose(alone.log_probs, score.log_probs, rtol=1e-4, atol=1e-4)


def test_sums_and_means_of_a_score():
    score = Score([-1.0, -2.5], bytes=5)
    assert (score.total, score.per_token, score.per_byte) == (-3.5, -1.75, -0.7)
    assert Score([], 0).per_byte == Score([], 0).per_token == 0


def test_a_prefix_is_read_once_for_many_continuations():
    one = scorer()
    ids = [TOKENIZER.encode_target(text) for text in ("abcd", "e", "gfe", "c")]
    known = one.prefill([ids[0]])
    whole = one.score_ids([([*ids[0], *ids[1]], ids[2]), ([*ids[0], *ids[3]], ids[1])])
    for _ in range(2):
        found = one.score_ids([(ids[1], ids[2]), (ids[3], ids[1])], known)
        for row, expected in zip(found, whole, strict=True):
            np.testing.assert_allclose(row, expected, rtol=1e-4, atol=1e-4)


def test_a_continuation_has_the_tokens_that_are_not_the_contexts():
    """Of a text that is encoded as a whole: a space and a word are often one token."""
    lines = ["the cat sat on the mat", "a cat sat on a mat"] * 20
    tokenizer = SentencePiece.train(lines, DataConfig(vocab_size=290, normalization="identity"))
    model_like = Scorer(MODEL.clone(config=_with_vocabulary(290)), parameters(), tokenizer)
    for text in lines[:2]:
        for cut in range(1, len(text)):
            context, continuation = model_like.split(text[:cut], text[cut:])
            # Where a token reaches over the border and leaves nothing of the context, the begin
            # token stands for it.
            begin = [2] if context == [2] else []
            assert [*context, *continuation] == [*begin, *tokenizer.encode_target(text)]
            assert cut <= 3 or not begin
            assert tokenizer.decode_target(context) in text[:cut]
    context, continuation = model_like.split("the cat ", "sat")
    assert tokenizer.decode_target(context) == "the cat"


def _with_vocabulary(size):
    return type(CONFIG)(**{**vars(CONFIG), "vocab_size": size})


@pytest.mark.parametrize(("window", "stride"), [(67, None), (13, 13), (13, 1), (16, 5), (200, 1)])
def test_every_token_counts_once_with_the_most_context_of_its_window(window, stride):
    if window > 67:
        with pytest.raises(UserError, match="window = 200: expected 1 to 67 tokens"):
            scorer().perplexity(TEXT, window, stride)
        return
    ids, step = TOKENIZER.encode_target(TEXT), stride or 33
    expected, counted = 0.0, []
    for i in range(1, len(ids)):
        # The window that counts token i ends with it or up to `step - 1` tokens later.
        end = window if i <= window else window + -(-(i - window) // step) * step
        start = max(0, min(end, len(ids) - 1) - window)
        expected += log_probs(ids[start:i])[ids[i]]
        counted.append(i)
    told = []
    found = scorer().perplexity(TEXT, window, stride, lambda *at: told.append(at))
    assert (found.tokens, found.bytes) == (len(ids) - 1, len(TEXT))
    assert found.log_likelihood == pytest.approx(expected, rel=1e-4)
    assert found.perplexity == pytest.approx(math.exp(-expected / len(counted)), rel=1e-3)
    assert found.bits_per_byte == pytest.approx(-expected / len(TEXT) / math.log(2), rel=1e-4)
    assert told[-1] == (len(ids) - 1, len(ids) - 1)


def test_with_begin_the_first_token_counts_too():
    found = scorer(begin=True).perplexity("abc")
    expected = sum(token_log_probs([2], TOKENIZER.encode_target("abc")))
    assert found.tokens == 3
    assert found.log_likelihood == pytest.approx(expected, rel=1e-4)


def test_ids_that_do_not_exist_have_no_probability():
    """Rows of the table beyond the tokenizer, with huge logits, take nothing from the others."""
    assert abs(np.exp(log_probs([4])).sum() - 1) < 1e-9
    total = sum(math.exp(row[0]) for row in scorer().score_ids([([4], [i]) for i in range(11)]))
    assert total == pytest.approx(1, abs=1e-4)


def test_targets_of_an_encoder_decoder_end_with_the_end_symbol():
    pairs = [("abc", "ba"), ("g", ""), ("cabbage", "egabbac")]
    found = Scorer(tiny.MODEL, tiny.parameters(), tiny.TOKENIZER).score(pairs)
    for (source, target), score in zip(pairs, found, strict=True):
        ids = [*tiny.TOKENIZER.encode_target(target), 3]
        logits: Any = tiny.MODEL.apply(
            {"params": tiny.parameters()},
            jnp.array([[*tiny.TOKENIZER.encode_source(source), 3]]),
            jnp.array([[2, *ids[:-1]]]),
        )
        expected = jax.nn.log_softmax(logits[0, :, :11])[jnp.arange(len(ids)), jnp.array(ids)]
        np.testing.assert_allclose(score.log_probs, expected, rtol=1e-3, atol=1e-4)


def test_common_length():
    assert common_length([[1, 2, 3], [1, 2, 4, 5], [1, 2]]) == 2
    assert common_length([[1, 2], [1, 2]]) == 2
    assert common_length([[1], [2]]) == 0


def test_mistakes():
    beginless = Beginless(list("abcdefg"), "characters", "characters")
    without = Scorer(MODEL, parameters(), beginless)
    with pytest.raises(UserError, match=r"^text 2 has no context: expected at least one token"):
        without.score([("a", "b"), ("", "b")])
    with pytest.raises(UserError, match=r"^begin = True: the tokenizer has no begin token"):
        Scorer(MODEL, parameters(), beginless, begin=True)
    with pytest.raises(UserError, match=r"^text 1 has 68 tokens to be read: expected at most"):
        scorer().score([("a" * 60, "b" * 9)])
    assert len(scorer().score([("a" * 60, "b" * 8)])[0].log_probs) == 8
    with pytest.raises(UserError, match=r"^text 1: token id 11 at position 1: expected 0 to 10"):
        scorer().score_ids([([4], [11])])
    with pytest.raises(UserError, match=r"^the text has 1 tokens: expected at least 2"):
        scorer().perplexity("a")
    with pytest.raises(UserError, match=r"^stride = 9: expected 1 to window = 8"):
        scorer().perplexity(TEXT, 8, 9)
    with pytest.raises(UserError, match=r"^batch_size = 0: expected at least 1"):
        scorer(batch_size=0)
    seq2seq = Scorer(tiny.MODEL, tiny.parameters(), tiny.TOKENIZER)
    with pytest.raises(UserError, match=r"expected a decoder, found an encoder_decoder"):
        seq2seq.perplexity(TEXT)
    with pytest.raises(UserError, match=r"a prefix is for language models"):
        seq2seq.prefill([[4]])
    broken = jax.tree.map(lambda x: x * jnp.nan, parameters())
    with pytest.raises(UserError, match=r"^text 1: expected probabilities of the model, found NaN"):
        Scorer(MODEL, broken, TOKENIZER).score([("a", "b")])
