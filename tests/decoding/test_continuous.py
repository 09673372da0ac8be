import dataclasses
from typing import Any

import jax
import pytest

from tests.decoding.tiny import LINES, MODEL, SEARCH, TOKENIZER, parameters
from transformer.decoding import continuous
from transformer.decoding.translate import Translator


def test_nothing_is_compiled_for_a_particular_line():
    """New lines, lengths, numbers of lines and parameters reuse the programs of the widths."""
    config = dataclasses.replace(SEARCH, batch_size=4)
    Translator(MODEL, parameters(), TOKENIZER, config).translate(["a" * 3, "b" * 9, "c" * 12] * 3)
    advance: Any = continuous._advance
    compiled = advance._cache_size()
    newer = jax.tree.map(lambda x: 1.01 * x, parameters())
    for lines in (["abcdefg"] * 7, ["a", "bb", "ccc", "dddd"], ["g" * 14] * 11):
        Translator(MODEL, newer, TOKENIZER, config).translate(lines)
    assert advance._cache_size() <= compiled + 1


def test_several_streams_share_the_work(monkeypatch):
    """Which stream takes a line changes nothing; an error in one comes out."""
    translator = Translator(
        MODEL, parameters(), TOKENIZER, dataclasses.replace(SEARCH, batch_size=4)
    )
    alone = translator.translate(LINES)
    monkeypatch.setattr(continuous, "_ROWS_OF_A_STREAM", 2)
    monkeypatch.setattr(continuous, "_cores", lambda: 2)
    assert continuous._streams(4) == 2
    shared = translator.translate(LINES)
    assert [h[0].ids for h in shared] == [h[0].ids for h in alone]

    seen = []

    def interrupt(done, total):
        seen.append(done)
        raise KeyError("stop")

    with pytest.raises(KeyError, match="stop"):
        translator.translate(LINES * 9, progress=interrupt)
    assert len(seen) <= 2, "after an error in one stream the others stop"
    assert [h[0].ids for h in translator.translate(LINES)] == [h[0].ids for h in alone]
