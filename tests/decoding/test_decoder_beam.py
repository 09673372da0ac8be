"""Beam search after a prompt, against brute force by the whole forward pass."""

import numpy as np
import pytest

from tests.decoding.test_generate import Beginless
from tests.decoding.tiny_decoder import END, MODEL, TOKENIZER, log_probs, parameters
from transformer.config import GenerateConfig
from transformer.data.symbols import Symbols
from transformer.decoding.generate import Generator
from transformer.errors import UserError

PROMPTS = ["abc", "g", "fedcbagfedcbagfedcb"]


def best_outputs(prompt, end, words, limit, alpha):
    """All outputs that end, or are cut after `limit` tokens, best first."""
    live, found = [([], 0.0)], []
    for length in range(limit):
        grown = []
        for ids, total in live:
            following = log_probs([*prompt, *ids])
            if end >= 0:
                found.append((ids, total + following[end], length))
            grown += [([*ids, word], total + following[word]) for word in words]
        live = grown
    found += [(ids, total, limit) for ids, total in live]
    scored = [(ids, total / ((6 + length) / 6) ** alpha) for ids, total, length in found]
    return sorted(scored, key=lambda output: -output[1])


def search(tokenizer, prompts, prefix=None, **settings):
    config = GenerateConfig(**settings)
    return Generator(MODEL, parameters(), tokenizer, config).generate(prompts, prefix)


@pytest.mark.parametrize(("tokenizer", "end"), [
    (TOKENIZER, END), (Beginless(list("abcdefg"), "characters", "characters"), -1)
])  # fmt: skip
def test_a_full_beam_finds_the_best_of_all_outputs(tokenizer, end):
    """Nothing is cut off by a beam of 7 ** 2. An output at the limit is cut, not made to end."""
    found = search(
        tokenizer, PROMPTS, max_new_tokens=3, beam_size=49, samples=9, length_penalty=0.8
    )
    for prompt, outputs in zip(PROMPTS, found, strict=True):
        ids = TOKENIZER.encode_target(prompt)
        expected = best_outputs(ids, end, range(4, 11), 3, 0.8)[:9]
        assert [output.ids for output in outputs] == [ids for ids, _ in expected]
        np.testing.assert_allclose(
            [output.score or 0 for output in outputs], [score for _, score in expected], rtol=1e-4
        )
        assert {output.finish for output in outputs} <= {"length", "end"}
        assert all(o.text == TOKENIZER.decode_target(o.ids) for o in outputs)


def test_several_ends_are_as_probable_as_their_sum():
    class Chat(Symbols):
        special = TOKENIZER.special._replace(also_ends=(5, 6))

    tokenizer = Chat(list("abcdefg"), "characters", "characters")
    ids = TOKENIZER.encode_target("abc")
    settings = {"max_new_tokens": 2, "beam_size": 25, "samples": 20, "length_penalty": 0.0}
    found = search(tokenizer, ["abc"], **settings)[0]
    first = np.exp(log_probs(ids))
    ended = next(output for output in found if not output.ids)
    assert np.exp(ended.score or 0) == pytest.approx(first[[END, 5, 6]].sum(), rel=1e-4)
    assert not any({5, 6} & set(output.ids) for output in found)


def test_a_beam_does_not_depend_on_the_batch_or_on_what_was_read_before():
    settings = {"max_new_tokens": 11, "beam_size": 3, "samples": 2}
    together = search(TOKENIZER, PROMPTS, **settings, batch_size=64)
    assert len({outputs[0].text for outputs in together}) > 1
    for prompt, outputs in zip(PROMPTS, together, strict=True):
        (alone,) = search(TOKENIZER, [prompt], **settings, batch_size=1)
        assert [o.ids for o in alone] == [o.ids for o in outputs]
        for one, other in zip(alone, outputs, strict=True):
            assert one.score == pytest.approx(other.score, rel=1e-4)
    known = Generator(MODEL, parameters(), TOKENIZER, GenerateConfig()).prefill("ab")
    (continued,) = search(TOKENIZER, ["c"], known, **settings)
    assert [o.ids for o in continued] == [o.ids for o in together[0]]
    with pytest.raises(UserError, match=r"^prompt 1 is empty: expected text, a beam goes on from"):
        search(TOKENIZER, [""], known, **settings)
    # A stop string cuts an output as it cuts a sample.
    (cut,) = search(TOKENIZER, PROMPTS[1:2], **settings, stop=(together[1][0].text[2:4],))
    text = together[1][0].text
    assert (cut[0].text, cut[0].finish) == (text[: text.index(text[2:4])], "stop")
