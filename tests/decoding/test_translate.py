"""From lines to lines with a small encoder-decoder of random weights."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.decoding.tiny import CONFIG, LINES, MODEL, SEARCH, TOKENIZER, parameters
from transformer.data.symbols import Symbols
from transformer.data.tokenizer import BOS, EOS, PAD, UNK
from transformer.decoding import continuous
from transformer.decoding.translate import Hypothesis, Translator
from transformer.errors import UserError
from transformer.models.seq2seq import Seq2Seq


def ids_and_scores(hypotheses):
    return [h.ids for h in hypotheses], np.array([h.score for h in hypotheses])


def test_hypotheses_carry_the_models_own_score_in_falling_order():
    """Scores equal those of the whole forward without a cache; text and ids agree."""
    found = Translator(MODEL, parameters(), TOKENIZER, SEARCH).translate(LINES, n_best=3)
    pairs, scores = [], []
    for line, hypotheses in zip(LINES, found, strict=True):
        if not line:
            continue
        assert len({tuple(h.ids) for h in hypotheses}) == 3
        assert sorted(hypotheses, key=lambda h: -h.score) == hypotheses
        source = [*TOKENIZER.encode_source(line), EOS]
        for h in hypotheses:
            assert not {PAD, UNK, BOS, EOS} & set(h.ids) and max(h.ids, default=0) < 11
            assert len(h.ids) < len(source) + SEARCH.extra_length
            assert h.text == TOKENIZER.decode_target(h.ids)
            pairs.append((source, h.ids))
            scores.append(h.score)
    sources = jnp.array([[*source, *[PAD] * (23 - len(source))] for source, _ in pairs])
    targets = jnp.array([[*ids, EOS, *[PAD] * (28 - len(ids))] for _, ids in pairs])
    inputs = jnp.pad(targets, ((0, 0), (1, 0)), constant_values=BOS)[:, :-1]
    logits = jax.jit(MODEL.apply)({"params": parameters()}, sources, inputs)[..., :11]
    log_probs = jnp.take_along_axis(jax.nn.log_softmax(logits), targets[..., None], axis=2)[..., 0]
    lengths = (targets != PAD).sum(axis=1)
    total = jnp.where(targets != PAD, log_probs, 0.0).sum(axis=1)
    np.testing.assert_allclose(
        scores, total / ((5 + lengths) / 6) ** SEARCH.length_penalty, rtol=1e-4
    )


@pytest.mark.parametrize("early_stopping", [False, True])
def test_a_line_is_translated_alike_in_any_company(early_stopping, monkeypatch):
    """Outputs have depended on the batch size and on padding. Batches of 1 and of 4 take rows
    in turn, move sentences that need more places to a later batch, and pad more."""
    config = dataclasses.replace(SEARCH, early_stopping=early_stopping)
    together = Translator(MODEL, parameters(), TOKENIZER, config).translate(LINES, n_best=2)
    for batch_size, narrowest in ((1, 16), (4, 8)) if early_stopping else ((4, 4),):
        monkeypatch.setattr(continuous, "_NARROWEST", narrowest)
        smaller = dataclasses.replace(config, batch_size=batch_size)
        found = Translator(MODEL, parameters(), TOKENIZER, smaller).translate(LINES, n_best=2)
        for expected, hypotheses in zip(together, found, strict=True):
            (ids, scores), (more_ids, more_scores) = map(ids_and_scores, (expected, hypotheses))
            assert ids == more_ids
            np.testing.assert_allclose(scores, more_scores, rtol=1e-4)


def test_as_many_lines_come_back_and_blank_ones_are_blank():
    """Empty lines have crashed translators, and disappeared."""
    translator = Translator(
        MODEL, parameters(), TOKENIZER, dataclasses.replace(SEARCH, batch_size=3)
    )
    lines = ["abc\r\n", "", "  \t", "\r\n", "\N{GRINNING FACE}a", "\u2028", "abc"]
    found = translator.translate(lines)
    assert len(found) == len(lines)
    assert [len(hypotheses) for hypotheses in found] == [1] * len(lines)
    blank = [Hypothesis("", [], 0.0)]
    assert [i for i, hypotheses in enumerate(found) if hypotheses == blank] == [1, 2, 3, 5]
    assert found[0] == found[-1]
    assert translator.translate([]) == []
    assert translator.translate([" "]) == [blank]


def test_a_long_line_comes_back_with_the_others():
    search = dataclasses.replace(SEARCH, beam_size=1, batch_size=2)
    translator = Translator(MODEL, parameters(), TOKENIZER, search)
    lines = ["abc", "deadbeef" * 50, "bag"]
    found = translator.translate(lines)
    assert [len(hypotheses) for hypotheses in found] == [1, 1, 1]
    assert ids_and_scores(found[0])[0] == ids_and_scores(translator.translate(["abc"])[0])[0]


def test_an_output_is_one_line():
    """A model that had learned a line's end wrote two lines for one, and all later ones shifted."""
    tokenizer = Symbols(list("\n\rcdefg"), "characters", "characters")
    found = Translator(MODEL, parameters(), tokenizer, SEARCH).translate(["cde", "fgcd"], n_best=3)
    hypotheses = [h for line in found for h in line]
    assert any({4, 5} & set(h.ids) for h in hypotheses)
    assert not any("\n" in h.text or "\r" in h.text for h in hypotheses)


def test_a_line_beyond_the_limit_is_cut_and_named():
    """A line of 10,000 characters took minutes and said nothing about it."""
    search = dataclasses.replace(SEARCH, max_source_length=6)
    translator = Translator(MODEL, parameters(), TOKENIZER, search)
    cut: list[tuple[int, int]] = []
    found = translator.translate(
        ["abc", "", "deadbeef", "deadb"], on_cut=lambda i, n: cut.append((i, n))
    )
    assert cut == [(2, 9)]
    assert ids_and_scores(found[2]) == ids_and_scores(found[3])


def test_progress_reaches_the_number_of_lines():
    seen: list[tuple[int, int]] = []
    translator = Translator(
        MODEL, parameters(), TOKENIZER, dataclasses.replace(SEARCH, batch_size=2)
    )
    translator.translate(LINES, progress=lambda done, total: seen.append((done, total)))
    assert seen[-1] == (9, 9)
    assert seen == sorted(seen)


def test_wrong_requests_are_the_users_errors():
    translator = Translator(MODEL, parameters(), TOKENIZER, SEARCH)
    for n_best in (0, 4):
        with pytest.raises(UserError, match=f"n_best = {n_best}.*beam_size = 3"):
            translator.translate(LINES, n_best=n_best)
    small = Seq2Seq(dataclasses.replace(CONFIG, vocab_size=7))
    with pytest.raises(UserError, match=r"vocab_size = 7.*11"):
        Translator(small, parameters(), TOKENIZER, SEARCH)


def test_parameters_that_are_not_numbers_are_named():
    broken = jax.tree.map(lambda x: x * jnp.nan, parameters())
    with pytest.raises(UserError, match=r"line 2.*NaN"):
        Translator(MODEL, broken, TOKENIZER, SEARCH).translate(["", "abc"])
