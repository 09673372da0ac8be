"""The CMU Pronouncing Dictionary as a TFDS set, built and read without TensorFlow.

``data.dataset = "cmudict"`` reads the same words directly, which starts faster
(see `transformer.data.dictionary`); this builder is for pipelines that stand on
TFDS, and ``data.dataset = "tfds:cmudict"`` goes through it.
"""

from collections.abc import Iterator
from typing import Any

import tensorflow_datasets as tfds

from transformer.data import dictionary


class Cmudict(tfds.core.GeneratorBasedBuilder):
    """Spelling to phonemes; every listed pronunciation of a word is a right answer."""

    VERSION = tfds.core.Version("1.0.0")

    def _info(self) -> tfds.core.DatasetInfo:
        return tfds.core.DatasetInfo(
            builder=self,
            description="English words and their pronunciations in 39 ARPAbet phonemes.",
            homepage="http://www.speech.cs.cmu.edu/cgi-bin/cmudict",
            features=tfds.features.FeaturesDict(
                {
                    "word": tfds.features.Text(),
                    "pronunciations": tfds.features.Sequence(tfds.features.Text()),
                }
            ),
            supervised_keys=("word", "pronunciations"),
        )

    def _split_generators(self, dl_manager: tfds.download.DownloadManager) -> dict[str, Any]:
        del dl_manager  # the dictionary is installed, not downloaded
        return {name: self._generate_examples(words) for name, words in dictionary.load().items()}

    def _generate_examples(
        self, words: dict[str, list[str]]
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        for word, pronunciations in words.items():
            yield word, {"word": word, "pronunciations": pronunciations}
