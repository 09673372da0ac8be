"""Generation with a small language model, against its whole forward pass token by token."""

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.decoding import tiny
from tests.decoding.tiny_decoder import CONFIG, END, MODEL, TOKENIZER, allowed_log_probs, parameters
from transformer.config import GenerateConfig, ModelConfig
from transformer.data.symbols import Symbols
from transformer.data.tokenizer import SpecialIds
from transformer.decoding import prefix, steps
from transformer.decoding.generate import Generator, Text
from transformer.decoding.prefix import bucket
from transformer.errors import UserError
from transformer.models.cache import cache_bytes
from transformer.models.decoder import Decoder
from transformer.models.seq2seq import Seq2Seq

PROMPTS = ["abc", "g", "fedcbagfedcba", "ga", "cabbage", "dad", "abacadae" * 3]
SETTINGS = GenerateConfig(max_new_tokens=12)


def generator(**settings) -> Generator:
    return Generator(MODEL, parameters(), TOKENIZER, dataclasses.replace(SETTINGS, **settings))


@functools.cache
def texts(**settings) -> list[str]:
    """The first output of each of `PROMPTS`."""
    return [outputs[0].text for outputs in generator(**settings).generate(PROMPTS)]


def greedy(ids: list[int], count: int, context: int | None = None) -> list[int]:
    """Token by token by the whole forward pass, without a cache."""
    ids, new = list(ids), []
    while len(new) < count:
        if len(ids) > (CONFIG.max_positions or 0):
            ids = ids[-(context or 0) :]
        token = int(allowed_log_probs(ids).argmax())
        if token == END:
            break
        ids.append(token)
        new.append(token)
    return new


def test_buckets_are_few_and_never_too_small():
    sizes = [bucket(n) for n in range(3000)]
    assert all(size >= n for n, size in enumerate(sizes))
    assert all(size <= 1.5 * n for n, size in enumerate(sizes) if n > 16)
    assert sorted(set(sizes)) == [16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512, 768, 1024,
                                  1536, 2048, 3072]  # fmt: skip


# What is generated


def test_temperature_0_is_greedy_search():
    for prompt, (output,) in zip(PROMPTS, generator(temperature=0).generate(PROMPTS), strict=True):
        assert output.ids == greedy(TOKENIZER.encode_target(prompt), 12)
        assert output.text == TOKENIZER.decode_target(output.ids)
        assert output.finish == ("length" if len(output.ids) == 12 else "end")
        assert output.score is None
    assert len(set(texts(temperature=0))) > 3


def test_a_text_does_not_depend_on_what_else_is_generated():
    """Batches of other sizes, other neighbours, another width of the padding: the same text."""
    expected = texts()
    assert len(set(expected)) == len(PROMPTS)
    for size in (1, 3, 64):
        assert texts(batch_size=size) == expected
    reversed_ = generator().generate(PROMPTS[::-1])
    assert [outputs[0].text for outputs in reversed_] == expected[::-1]
    assert generator().generate([PROMPTS[3]])[0][0].text == expected[3]
    as_ids: list[Text] = [TOKENIZER.encode_target(PROMPTS[3])]
    assert generator().generate(as_ids)[0][0].text == expected[3]


def test_the_seed_decides():
    assert texts(seed=0) == texts()
    assert len(set(zip(texts(seed=0), texts(seed=1), strict=True))) > 5
    assert texts(seed=1) != texts(seed=2**32 - 1)


def test_samples_of_a_prompt_differ_and_the_first_ones_do_not_depend_on_how_many():
    five = generator(samples=5).generate(PROMPTS[:3])
    for outputs, first in zip(five, texts(), strict=False):
        assert [len(outputs), outputs[0].text] == [5, first]
        assert len({output.text for output in outputs}) > 2
    # More samples than rows in a batch, and rows of several prompts in one.
    assert generator(samples=5, batch_size=2).generate(PROMPTS[:3]) == five
    assert generator(samples=5, batch_size=11).generate(PROMPTS[:3]) == five


def test_sampled_tokens_follow_the_probabilities():
    """The second token after a prompt, so that a cached step is part of it."""
    outputs = generator(samples=3000, max_new_tokens=2, batch_size=1000).generate(["ga"])[0]
    ids = TOKENIZER.encode_target("ga")
    counts = np.zeros((TOKENIZER.vocab_size,) * 2)
    for output in outputs:
        first, second = [*output.ids, END, END][:2]
        counts[first, second] += 1

    def probabilities(ids):
        exponentials = np.exp(allowed_log_probs(ids))
        return exponentials / exponentials.sum()

    first = probabilities(ids)
    np.testing.assert_allclose(counts.sum(axis=1) / 3000, first, atol=0.03)
    token = int(first[4:].argmax()) + 4
    rows = counts[token].sum()
    np.testing.assert_allclose(counts[token] / rows, probabilities([*ids, token]), atol=0.06)


def test_an_output_ends_with_the_end_symbol():
    eager = parameters()
    tables = eager["embedding"]
    eager = eager | {"embedding": tables | {"embedding": tables["embedding"].at[END].multiply(9)}}
    outputs = [
        output[0] for output in Generator(MODEL, eager, TOKENIZER, SETTINGS).generate(PROMPTS * 3)
    ]
    ended = [output for output in outputs if output.finish == "end"]
    assert len(ended) > 3
    assert all(END not in output.ids and len(output.ids) < 12 for output in ended)


def test_stop_strings_end_an_output_before_them():
    for prompt, whole in zip(PROMPTS, texts(), strict=True):
        stop = whole[3:6]
        (output,) = generator(stop=("zzz", stop)).generate([prompt])[0]
        assert (output.finish, output.text) == ("stop", whole[: whole.index(stop)])
        assert TOKENIZER.decode_target(output.ids) == output.text + stop


@pytest.mark.parametrize("patience", [0.0, 1e9])
def test_a_stream_is_what_generation_returns(patience):
    """Token by token, or in as large steps as there are."""
    settings = dataclasses.replace(SETTINGS, samples=2, max_new_tokens=33, stop=("ab", "cf"))
    stream = Generator(MODEL, parameters(), TOKENIZER, settings, patience=patience)
    found: dict[tuple[int, int], list] = {}
    for piece in stream.stream(PROMPTS[:5]):
        found.setdefault((piece.prompt, piece.sample), []).append(piece)
    expected = Generator(MODEL, parameters(), TOKENIZER, settings).generate(PROMPTS[:5])
    assert len(found) == 10
    for (prompt, sample), pieces in found.items():
        output = expected[prompt][sample]
        assert "".join(piece.text for piece in pieces) == output.text
        assert [p.finish for p in pieces] == [None] * (len(pieces) - 1) + [output.finish]
    assert max(len(piece.text) for pieces in found.values() for piece in pieces) < 4


def test_a_prefix_is_read_once_for_many_continuations(monkeypatch):
    rest = ["cab", "", "g"]
    expected = generator().generate(["fedc" + text for text in rest])
    known = generator().prefill("fedc")
    before = jax.tree.map(np.array, known.cache)
    read = []
    monkeypatch.setattr(
        "transformer.decoding.generate.read",
        lambda *args: read.append(args[2]) or prefix.read(*args),
    )
    for _ in range(2):
        assert generator().generate(rest, known) == expected
    assert read == [[TOKENIZER.encode_target(text) for text in rest]] * 2
    jax.tree.map(np.testing.assert_array_equal, before, jax.tree.map(np.array, known.cache))


def test_where_positions_run_out_the_last_tokens_are_read_anew():
    """Each row slides when it is full itself, whatever its neighbours do."""
    prompts = ["abc", "fedcbagfed" * 6, "g" * 67]
    settings = GenerateConfig(max_new_tokens=90, temperature=0, context=23)
    found = Generator(MODEL, parameters(), TOKENIZER, settings).generate(prompts)
    for prompt, (output,) in zip(prompts, found, strict=True):
        assert output.ids == greedy(TOKENIZER.encode_target(prompt), 90, context=23)
    assert {len(outputs[0].ids) for outputs in found} == {90}


def test_one_compile_for_a_bucket_and_none_for_a_token_or_a_prompt():
    programs: list[Any] = [steps.begin, steps.advance, prefix._read]
    for program in programs:
        program.clear_cache()
    for prompts in (["abc", "ga"], ["a" * 16, "b" * 3], ["c" * 9, "d" * 13]):
        for seed, new in ((0, 5), (1, 16)):
            generator(seed=seed, max_new_tokens=new, stop=(str(seed),)).generate(prompts)
    assert [program._cache_size() for program in programs] == [1, 1, 1]
    generator(max_new_tokens=17).generate(["abc", "ga"])
    assert [program._cache_size() for program in programs] == [2, 2, 1]


def test_the_memory_of_the_cache_is_told_once_for_a_size():
    lines = []
    told = Generator(MODEL, parameters(), TOKENIZER, SETTINGS, log=lines.append)
    for _ in range(2):
        told.generate(PROMPTS[:3])
    size = cache_bytes(CONFIG, 4, 32) / 1e6
    assert lines == [f"cache of 4 x 32 tokens: {size:.1f} MB"]


# Encoder-decoders


def test_an_encoder_decoder_generates_from_sources():
    """Greedy search is the translator's beam of one; samples share an encoded source."""
    settings = GenerateConfig(max_new_tokens=9, temperature=0)
    sources = ["abc", "gfedcbaabcd", "cabbage", "e"]
    made = Generator(tiny.MODEL, tiny.parameters(), tiny.TOKENIZER, settings)
    outputs = [found[0] for found in made.generate(sources)]
    forward = jax.jit(lambda p, s, i: tiny.MODEL.apply({"params": p}, s, i))
    end, banned = tiny.TOKENIZER.special.end, list(tiny.TOKENIZER.special.never)
    for text, output in zip(sources, outputs, strict=True):
        ids = [*tiny.TOKENIZER.encode_source(text), end]
        source = np.zeros((1, 16), np.int32)
        source[0, : len(ids)] = ids
        target = [tiny.TOKENIZER.special.begin]
        while len(target) < 10:
            inputs = np.zeros((1, 16), np.int32)
            inputs[0, : len(target)] = target
            logits = np.array(forward(tiny.parameters(), source, inputs)[0, len(target) - 1, :11])
            logits[banned] = -np.inf
            target.append(int(logits.argmax()))
            if target[-1] == end:
                break
        assert output.ids == [i for i in target[1:] if i != end]
    drawing = dataclasses.replace(settings, temperature=1.0, samples=3)
    made = Generator(tiny.MODEL, tiny.parameters(), tiny.TOKENIZER, drawing)
    together = made.generate(sources)
    assert [made.generate([source])[0] for source in sources] == together
    assert len({output.text for output in together[1]}) > 1


# Mistakes


@pytest.mark.parametrize(
    ("prompt", "settings", "message"),
    [
        ([4, 5, 11], {}, "prompt 2: token id 11 at position 2: expected 0 to 10"),
        ([-1], {}, "prompt 2: token id -1 at position 0: expected 0 to 10"),
        ("a" * 68, {}, "prompt 2 has 68 tokens: expected at most model.max_positions = 67"),
        ("a" * 68, {"context": 9}, "prompt 2 has 68 tokens: expected at most"),
        (
            "a" * 57,
            {"max_new_tokens": 11},
            "prompt 2 has 57 tokens, and max_new_tokens = 11: expected together at most "
            "model.max_positions = 67",
        ),
    ],
)  # fmt: skip
def test_a_wrong_prompt_is_refused_before_anything_is_read(prompt, settings, message, monkeypatch):
    monkeypatch.setattr("transformer.decoding.generate.read", None)
    with pytest.raises(UserError, match=f"^{message}"):
        generator(**settings).generate(["a", prompt])


def test_an_empty_prompt_begins_with_the_begin_symbol():
    (output,) = generator(temperature=0).generate([""])[0]
    assert output.ids == greedy([TOKENIZER.special.begin], 12)
    begun = generator(temperature=0, begin=True).generate(["", "abc"])
    assert begun[0] == [output]
    assert begun[1][0].ids == greedy([2, *TOKENIZER.encode_target("abc")], 12)


class Beginless(Symbols):
    special = SpecialIds(0, -1, -1, never=(0, 1, 2, 3))


def test_a_tokenizer_without_begin_and_end():
    tokenizer = Beginless(list("abcdefg"), "characters", "characters")
    made = Generator(MODEL, parameters(), tokenizer, SETTINGS)
    with pytest.raises(UserError, match=r"^prompt 1 is empty: expected text"):
        made.generate([""])
    with pytest.raises(UserError, match=r"^begin = True: the tokenizer has no begin token"):
        Generator(MODEL, parameters(), tokenizer, GenerateConfig(begin=True))
    assert {len(outputs[0].ids) for outputs in made.generate(PROMPTS)} == {12}


@pytest.mark.parametrize("settings", [{"temperature": 0}, {"beam_size": 3}])
def test_a_turn_of_a_chat_ends_an_output(settings):
    """A published chat model lists several ends; with the first one alone it would talk on."""
    whole = greedy(TOKENIZER.encode_target("abc"), 12)
    turn = whole[3]

    class Chat(Symbols):
        special = TOKENIZER.special._replace(also_ends=(turn,))

    tokenizer = Chat(list("abcdefg"), "characters", "characters")
    config = dataclasses.replace(SETTINGS, **settings)
    output = Generator(MODEL, parameters(), tokenizer, config).generate(["abc"])[0][0]
    assert turn not in output.ids and output.finish == "end"
    if "temperature" in settings:
        assert output.ids == whole[: whole.index(turn)]


def test_settings_that_do_not_fit_the_model():
    large = Symbols(list("abcdefghijklmnop"), "characters", "characters")
    with pytest.raises(UserError, match="vocab_size = 13: expected at least 20, the tokenizer's"):
        Generator(MODEL, parameters(), large, SETTINGS)
    with pytest.raises(UserError, match=r"context = 67: expected less than model\.max_pos"):
        generator(context=67)
    for settings in (GenerateConfig(beam_size=2), GenerateConfig(begin=True)):
        with pytest.raises(UserError, match="this model is an encoder_decoder"):
            Generator(tiny.MODEL, tiny.parameters(), tiny.TOKENIZER, settings)
    with pytest.raises(UserError, match="a prefix is for language models"):
        Generator(tiny.MODEL, tiny.parameters(), tiny.TOKENIZER, SETTINGS).prefill("abc")
    short = Seq2Seq(dataclasses.replace(tiny.CONFIG, max_positions=11))
    with pytest.raises(UserError, match=r"^max_new_tokens = 12: expected at most max_positions"):
        Generator(short, tiny.parameters(), tiny.TOKENIZER, SETTINGS)
    longest = dataclasses.replace(SETTINGS, max_new_tokens=11)
    Generator(short, tiny.parameters(), tiny.TOKENIZER, longest).generate(["abc"])


def test_nan_is_named():
    broken = jax.tree.map(lambda x: x * jnp.nan, parameters())
    for settings in ({}, {"temperature": 0}, {"beam_size": 2}):
        made = Generator(MODEL, broken, TOKENIZER, dataclasses.replace(SETTINGS, **settings))
        with pytest.raises(UserError, match=r"^prompt 1: expected .* found NaN"):
            made.generate(["abc"])


def test_rotary_positions_have_no_limit():
    config = ModelConfig(
        "decoder", num_layers=1, model_dim=6, ff_dim=10, num_heads=1, vocab_size=13,
        positions="rotary",
    )  # fmt: skip
    model = Decoder(config)
    params = model.init(jax.random.key(0), jnp.ones((1, 2), int))["params"]
    settings = GenerateConfig(max_new_tokens=100, temperature=0)
    (output,) = Generator(model, params, TOKENIZER, settings).generate(["abc" * 20])[0]
    assert len(output.ids) == 100 or output.finish == "end"
