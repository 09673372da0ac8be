"""Vectors of texts: beside sums written out here, and on the command line."""

import dataclasses
import functools
import io
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from tests.interop.test_folder import write_folder
from transformer.cli import main
from transformer.config import ModelConfig
from transformer.data.pretrained_tokenizer import PretrainedTokenizer, find_special
from transformer.data.symbols import Symbols
from transformer.data.wordpiece import wordpiece_json
from transformer.decoding.embeddings import Embedder
from transformer.errors import UserError
from transformer.interop.transfer import import_model
from transformer.models.build import build_model
from transformer.models.encoder import Encoder

pytest.importorskip("tokenizers")

WORDS = "abcdefghijklmnopqrstuvw"
TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *WORDS, "yy"]
CONFIG = ModelConfig(
    "encoder",
    num_layers=3,
    model_dim=12,
    ff_dim=17,
    num_heads=3,
    vocab_size=31,
    head="none",
    positions="learned",
    max_positions=19,
    segment_types=2,
    embedding_norm=True,
    embedding_scaling="none",
)
TEXTS = ["a b c", "d", "e f g h i j k", "", "l m n o p q r", "a b c", "d"]


@pytest.fixture(scope="module")
def tokenizer():
    ids = {token: i for i, token in enumerate(TOKENS)}
    return PretrainedTokenizer(
        wordpiece_json(TOKENS, {}), find_special({}, {}, ids.get, len(TOKENS))
    )


@pytest.fixture(scope="module")
def model() -> Encoder:
    model = build_model(CONFIG)
    assert isinstance(model, Encoder)
    return model


@pytest.fixture(scope="module")
def params(model):
    return jax.jit(model.init)(jax.random.key(7), jnp.ones((1, 2), int))["params"]


@pytest.fixture(scope="module")
def hidden(model, params, tokenizer):
    """Of each text alone, without any padding: ``[T, D]`` of layers 1, 2 and 3."""

    @functools.cache
    def of(text, layers):
        config = dataclasses.replace(CONFIG, num_layers=layers)
        ids = [2, *tokenizer.encode_source(text), 3]
        layer = {f"layer_{i}": params["encoder"][f"layer_{i}"] for i in range(layers)}
        body = {"params": {**params, "encoder": layer}}
        return np.asarray(jax.jit(build_model(config).apply)(body, jnp.array([ids])))[0]

    return of


def test_each_text_alone_has_the_same_vector(model, params, tokenizer, hidden):
    """Whatever stands beside it in a batch, and in the order of the texts."""
    expected = np.stack([hidden(t, 3).mean(axis=0) if t else np.zeros(12) for t in TEXTS])
    for batch_tokens in (1, 24):
        embedder = Embedder(model, params, tokenizer, normalize=False, batch_tokens=batch_tokens)
        found = embedder(TEXTS)
        assert found.dtype == np.float32 and embedder.dim == 12
        np.testing.assert_allclose(found, expected, atol=2e-6)
        assert (embedder.blank, embedder.cut) == (1, 0)
    np.testing.assert_array_equal(found[0], found[5])
    found = Embedder(model, params, tokenizer)(TEXTS)
    lengths = np.linalg.norm(found, axis=1)
    np.testing.assert_allclose(np.delete(lengths, 3), 1, atol=1e-6)
    assert lengths[3] == 0
    assert Embedder(model, params, tokenizer)([]).shape == (0, 12)


@pytest.mark.parametrize(
    ("pool", "expected"),
    [
        ("cls", lambda vectors: vectors[0]),
        ("max", lambda vectors: vectors.max(axis=0)),
    ],
)
def test_other_ways_to_one_vector(pool, expected, model, params, tokenizer, hidden):
    found = Embedder(model, params, tokenizer, pool=pool, normalize=False)(TEXTS[:3])
    for vector, text in zip(found, TEXTS, strict=False):
        np.testing.assert_allclose(vector, expected(hidden(text, 3)), atol=2e-6)


def test_layers_stand_one_behind_the_other(model, params, tokenizer, hidden):
    embedder = Embedder(model, params, tokenizer, layers=(-2, 1, 3), normalize=False)
    (found,) = embedder(["a b c"])
    expected = [hidden("a b c", layers).mean(axis=0) for layers in (2, 1, 3)]
    np.testing.assert_allclose(found, np.concatenate(expected), atol=2e-6)
    assert embedder.dim == 36
    first = Embedder(model, params, tokenizer, layers=(0,), normalize=False)
    also = Embedder(model, params, tokenizer, layers=(-4,), normalize=False)
    (a,), (b,) = first.tokens(["a b"]), also.tokens(["a b"])
    np.testing.assert_array_equal(a, b)
    table = params["embedding"]["embedding"][jnp.array([2, 5, 6, 3])]
    summed = table + params["embedding"]["positions"][:4] + params["embedding"]["segments"][0]
    centred = summed - summed.mean(axis=1, keepdims=True)
    np.testing.assert_allclose(a, centred / centred.std(axis=1, keepdims=True), atol=2e-3)


def test_the_last_of_normed_layers_is_what_the_network_returns(tokenizer):
    config = dataclasses.replace(CONFIG, num_layers=1, norm_placement="pre")
    model = build_model(config)
    params = jax.jit(model.init)(jax.random.key(3), jnp.ones((1, 2), int))["params"]
    params["encoder"]["final_norm"]["scale"] = 2.0 + params["encoder"]["final_norm"]["scale"]
    (found,) = Embedder(model, params, tokenizer, normalize=False).tokens(["d"])  # type: ignore[arg-type]
    expected = model.apply({"params": params}, jnp.array([[2, 8, 3]]))
    np.testing.assert_allclose(found, np.asarray(expected)[0], atol=2e-6)


def test_every_token_can_be_kept(model, params, tokenizer, hidden):
    found = Embedder(model, params, tokenizer, normalize=False).tokens(TEXTS)
    assert [len(vectors) for vectors in found] == [5, 3, 9, 0, 9, 5, 3]
    np.testing.assert_allclose(found[2], hidden(TEXTS[2], 3), atol=2e-6)


def test_texts_are_divided_as_in_training(model, params):
    """Where the two sides of pairs differ, a text is what is learnt, a target."""
    words = Symbols([*"abcd ", "ab", "cd"], "characters", "words")
    embedder = Embedder(model, params, words)
    assert [len(vectors) for vectors in embedder.tokens(["ab cd", "cd"])] == [4, 3]


def test_pairs_are_read_together(model, params, tokenizer):
    """[CLS] a b [SEP] c [SEP], the second of another type."""
    found = Embedder(model, params, tokenizer, normalize=False)([("a b", "c"), "a"])
    ids, types = jnp.array([[2, 5, 6, 3, 7, 3]]), jnp.array([[0, 0, 0, 0, 1, 1]])
    hidden = jax.jit(model.apply)({"params": params}, ids, token_types=types)
    np.testing.assert_allclose(found[0], np.asarray(hidden)[0].mean(axis=0), atol=2e-6)


def test_long_texts_are_cut_and_counted(model, params, tokenizer):
    embedder = Embedder(model, params, tokenizer, max_length=5)
    found = embedder(["a b c d", "a b c", "a b c z z z"])
    assert embedder.cut == 2
    np.testing.assert_allclose(found[0], found[1], atol=1e-6)
    np.testing.assert_allclose(found[2], found[1], atol=1e-6)
    whole = Embedder(model, params, tokenizer)
    whole([" ".join(WORDS)])
    assert whole.cut == 1, "the model has 19 positions"


def test_progress_is_told(model, params, tokenizer):
    told = []
    embedder = Embedder(model, params, tokenizer, batch_tokens=16)
    embedder(TEXTS, lambda done, total: told.append((done, total)))
    assert told[-1] == (7, 7) and told == sorted(told) and len(told) > 2


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"pool": "sum"}, "pool = 'sum': expected mean or cls or max"),
        ({"layers": (4,)}, r"layers = \(4,\): expected numbers from -4 to 3"),
        ({"layers": ()}, "expected at least one"),
        ({"max_length": 20}, "max_length = 20: expected at least 3, at most 19"),
        ({"max_length": 2}, "max_length = 2: expected at least 3"),
        ({"batch_tokens": 0}, "batch_tokens = 0: expected at least 1"),
    ],
)
def test_what_does_not_fit_is_one_line(settings, message, model, params, tokenizer):
    with pytest.raises(UserError, match=message):
        Embedder(model, params, tokenizer, **settings)


def test_other_networks_and_larger_vocabularies_are_refused(model, params, tokenizer):
    decoder = build_model(ModelConfig("decoder", 1, 8, 8, 2, vocab_size=31))
    with pytest.raises(UserError, match="architecture = 'decoder': expected 'encoder'"):
        Embedder(decoder, {}, tokenizer)  # type: ignore[arg-type]
    small = Encoder(dataclasses.replace(CONFIG, vocab_size=28))
    with pytest.raises(UserError, match="the tokenizer has 29 ids: expected at most 28"):
        Embedder(small, {}, tokenizer)


# The command


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory):
    """Hugging Face's tiny BertModel with a vocabulary."""
    folder = write_folder(tmp_path_factory.mktemp("embed") / "bert", "bert")
    (folder / "vocab.txt").write_text("".join(f"{token}\n" for token in TOKENS))
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 7}')
    import_model(folder, folder.parent / "run")
    return str(folder.parent / "run")


def run(checkpoint, *options, stdin=b"", monkeypatch):
    monkeypatch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(stdin)))
    return main(["embed", "--checkpoint", checkpoint, *options])


def test_lines_in_rows_out(checkpoint, tmp_path, capsys, monkeypatch):
    text = b"a b\n\nc d e f g h\n"
    assert run(checkpoint, stdin=text, monkeypatch=monkeypatch) == 0
    out, err = capsys.readouterr()
    rows = np.array([[float(x) for x in line.split("\t")] for line in out.split("\n")[:-1]])
    assert rows.shape == (3, 15) and not rows[1].any()
    np.testing.assert_allclose(np.linalg.norm(rows[[0, 2]], axis=1), 1, atol=1e-4)
    assert "warning: 1 cut to 7 tokens" in err and "note: 1 blank" in err
    (tmp_path / "lines.txt").write_bytes(text)
    to = tmp_path / "vectors.npy"
    options = ["--data", str(tmp_path / "lines.txt"), "--to", str(to), "--max-length", "9"]
    assert run(checkpoint, *options, monkeypatch=monkeypatch) == 0
    saved = np.load(to)
    assert saved.dtype == np.float32 and "cut" not in capsys.readouterr().err
    np.testing.assert_allclose(saved[0], rows[0], atol=1e-5)


def test_features_of_each_token(checkpoint, tmp_path, monkeypatch):
    to = tmp_path / "features.npz"
    options = ["--layers", "-2", "-1", "--pool", "none", "--no-normalize", "--to", str(to)]
    assert run(checkpoint, *options, stdin=b"a b\n\nc\n", monkeypatch=monkeypatch) == 0
    with np.load(to) as saved:
        assert saved["lengths"].tolist() == [4, 0, 3] and saved["vectors"].shape == (7, 30)


def test_mistakes_are_one_line(checkpoint, tmp_path, capsys, monkeypatch):
    def complaint(*options, stdin=b""):
        assert run(checkpoint, *options, stdin=stdin, monkeypatch=monkeypatch) == 2
        error = capsys.readouterr().err
        assert error.count("\n") == 1
        return error

    assert "--pool none: expected --to FILE.npz" in complaint("--pool", "none")
    assert "expected a name in .npy" in complaint("--to", str(tmp_path / "x.txt"))
    assert "no such directory" in complaint("--to", str(tmp_path / "no" / "x.npy"))
    assert "--data no.txt: no such file" in complaint("--data", "no.txt")
    assert "<stdin>:2: 1 columns" in complaint("--pairs", stdin=b"a\tb\nc\n")
    assert "expected numbers from -2 to 1" in complaint("--layers", "5")
