"""TFDS sets, built and read in array_record without TensorFlow and without a network."""

import subprocess
import sys

import numpy as np
import pytest
import tensorflow_datasets as tfds

from transformer.data import dictionary
from transformer.data.sources import read
from transformer.errors import UserError


@pytest.fixture(autouse=True)
def small_dictionary(monkeypatch):
    """A few words, because TFDS writes some 15,000 a second."""
    words = {
        "train": {"one": ["W AH N", "HH W AH N"], "two": ["T UW"]},
        "validation": {"three": ["TH R IY"]},
        "test": {"either": ["IY DH ER", "AY DH ER"]},
    }
    monkeypatch.setattr(dictionary, "load", lambda: words)
    return words


class TinyTranslate(tfds.core.GeneratorBasedBuilder):
    """A translation set as TFDS has them."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.Translation(languages=("pt", "en")),
            supervised_keys=("pt", "en"),
        )

    def _split_generators(self, dl_manager):
        return {
            "train": self._generate_examples("train", 13),
            "test": self._generate_examples("test", 3),
        }

    def _generate_examples(self, split, count):
        for i in range(count):
            yield i, {"pt": f"{split} não {i}", "en": f"{split} no {i}"}


class TinyLabels(tfds.core.GeneratorBasedBuilder):
    """A set that is not of text pairs."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            features=tfds.features.FeaturesDict(
                {"text": tfds.features.Text(), "label": tfds.features.Scalar(np.int64)}
            ),
            supervised_keys=("text", "label"),
        )

    def _split_generators(self, dl_manager):
        return {"train": self._generate_examples()}

    def _generate_examples(self):
        yield 0, {"text": "a", "label": 1}


class TinyBroken(TinyTranslate):
    """A set whose preparation fails."""

    failure: Exception

    def _split_generators(self, dl_manager):
        raise self.failure


def quiet(line: str) -> None:
    del line


def test_the_dictionary_through_tfds_is_the_dictionary(settings, small_dictionary):
    config = settings(dataset="tfds:cmudict")
    for split, words in small_dictionary.items():
        pairs = read(config, split, quiet)
        assert pairs is not None
        assert dict(zip(pairs.sources, pairs.references, strict=True)) == words


def test_any_translation_set(settings):
    config = settings(dataset="tfds:tiny_translate")
    log: list[str] = []
    train = read(config, "train", log.append)
    assert train is not None
    assert log == ["train: 13 pairs"]
    pairs = set(zip(train.sources, (answers[0] for answers in train.references), strict=True))
    assert pairs == {(f"train não {i}", f"train no {i}") for i in range(13)}
    assert read(config, "validation", quiet) is None


def test_the_language_translated_from(settings):
    pairs = read(settings(dataset="tfds:tiny_translate", source_language="en"), "test", quiet)
    assert pairs is not None
    assert sorted(pairs.sources) == ["test no 0", "test no 1", "test no 2"]
    with pytest.raises(UserError, match="source_language = 'de': expected pt or en"):
        read(settings(dataset="tfds:tiny_translate", source_language="de"), "test", quiet)


def test_a_set_that_is_not_of_text_pairs(settings):
    with pytest.raises(UserError, match="not a set of text pairs"):
        read(settings(dataset="tfds:tiny_labels"), "train", quiet)


def test_an_unknown_set_suggests_the_nearest(settings):
    with pytest.raises(UserError, match=r"no such set; did you mean tfds:ted_hrlr_translate\?"):
        read(settings(dataset="tfds:ted_hrlr_translte/pt_to_en"), "train", quiet)


def test_wmt_is_found_without_tensorflow():
    """TFDS gives up its search for sets at the first that needs TensorFlow, before WMT's."""
    code = (
        "from pathlib import Path; import tensorflow_datasets as tfds\n"
        "from transformer.data import sources\n"
        "tfds.core.DatasetBuilder.download_and_prepare = lambda self: None\n"
        "builder = sources._tfds_builder('wmt14_translate/de-en', Path('none'), '')\n"
        "print(sources._tfds_keys(builder, 'en', ''))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "('en', 'de')"


@pytest.mark.parametrize(
    ("failure", "message"),
    [
        (ModuleNotFoundError("No module", name="tensorflow.io"), "needs tensorflow, which is not"),
        (ConnectionError("no\nnetwork"), "could not build it: ConnectionError: no network"),
    ],
)
def test_a_set_that_cannot_be_built_is_one_clear_line(settings, failure, message, monkeypatch):
    monkeypatch.setattr(TinyBroken, "failure", failure, raising=False)
    with pytest.raises(UserError, match=message) as caught:
        read(settings(dataset="tfds:tiny_broken"), "train", quiet)
    assert "\n" not in str(caught.value)


def test_start_up_does_not_import_tfds():
    """Importing it costs time that most runs need not spend."""
    code = (
        "import sys; import transformer.data.pipeline; "
        "sys.exit(any(m in sys.modules for m in ('tensorflow_datasets', 'grain', 'jax')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
