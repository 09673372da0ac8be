"""Labelled texts: from files and TFDS sets to classes and numbers."""

import numpy as np
import pytest
import tensorflow_datasets as tfds

from transformer.data.labelled import (
    Labelled,
    class_names,
    is_paired,
    label_numbers,
    label_values,
    read_labelled,
)
from transformer.data.sources import SplitName
from transformer.errors import UserError


def quiet(_: str) -> None: ...


@pytest.fixture
def config(settings):
    def make(*paths: str, **values):
        values = {"objective": "classification", "train": paths, "test": paths, **values}
        return settings(**values)

    return make


def read(config, split: SplitName = "train", log=quiet) -> Labelled:
    found = read_labelled(config, split, log)
    assert found is not None
    return found


def test_cola_has_no_header_and_columns_that_are_not_read(write, config):
    path = write("cola.tsv", "gj04\t1\t\tIt fits.\ngj04\t0\t*\tIt fit.  \n")
    found = read(config(path, columns=("-", "label", "-", "text")))
    assert found.texts == ["It fits.", "It fit."] and found.labels == ["1", "0"]
    assert not found.paired and found.seconds == ["", ""]


def test_pairs_and_several_files(write, config):
    paths = [write(n, f"i\ta\tb\tl\n0\tone {n}\ttwo\tyes\n") for n in ("x.tsv", "y.tsv")]
    made = config(*paths, columns=("-", "text", "text2", "label"), header=True)
    found = read(made)
    assert found.paired and is_paired(made) and found.texts == ["one x.tsv", "one y.tsv"]
    assert found.seconds == ["two", "two"]
    assert found.places == [f"{path}:2" for path in paths]


def test_blank_texts_are_left_out_of_training_and_counted(write, config):
    path = write("a.tsv", "good\t1\n \t0\n\nbad\t0\n")
    lines = []
    found = read(config(path), log=lines.append)
    assert found.texts == ["good", "bad"] and found.labels == ["1", "0"]
    assert lines == [
        "train: 1 blank lines left out",
        "train: 2 examples (1 with a blank text left out)",
    ]


def test_of_held_out_rows_none_is_left_out(write, config):
    """Predictions would not line up with the rows of the file."""
    path = write("a.tsv", "good\t1\n \t0\nbad\t0\n")
    assert read(config(path), "test").texts == ["good", "", "bad"]


def test_without_labels_every_line_is_an_example(write, config):
    path = write("a.tsv", "id\tsentence\n3\tgood\n\n5\tbad\n")
    lines = []
    made = config(path, columns=("text=sentence", "label=gold"))
    found = read(made, "test", lines.append)
    assert found.texts == ["good", "", "bad"] and not found.labelled
    assert lines == ["test: 3 examples without labels"]
    with pytest.raises(UserError, match=r"a.tsv:1: no column 'gold' in the header"):
        read(made)
    with pytest.raises(UserError, match=r"data.columns = .'-', 'text'.: expected one with the la"):
        read(config(path, columns=("-", "text")))


def test_files_with_and_without_labels_do_not_mix(write, config):
    paths = [write("a.tsv", "s\tl\na\t1\n"), write("b.tsv", "s\nb\n")]
    with pytest.raises(UserError, match=r"data.test: some of .* have labels, others have none"):
        read(config(*paths, columns=("text=s", "label=l")), "test")


def test_a_row_without_a_label_is_named(write, config):
    path = write("a.tsv", "sentence\tlabel\nfine\t1\na\t \n")
    with pytest.raises(UserError, match=r"a.tsv:3: no label"):
        read(config(path, header=True))


def test_a_file_without_examples(write, config):
    path = write("a.tsv", "sentence\tlabel\n")
    with pytest.raises(UserError, match=r"data.train: no examples in .*a.tsv"):
        read(config(path, header=True))


def test_a_split_that_is_not_given_is_none(write, config):
    assert read_labelled(config(write("a.tsv", "a\t1\n")), "validation", quiet) is None


def labelled(*labels: str) -> Labelled:
    count = len(labels)
    places = [f"f.tsv:{i + 1}" for i in range(count)]
    return Labelled(["t"] * count, [""] * count, list(labels), places)


def test_classes_are_the_training_labels_sorted_or_those_given():
    assert class_names((), labelled("b", "a", "b")) == ("a", "b")
    assert class_names(("b", "a"), labelled("b", "a", "b")) == ("b", "a")
    assert label_numbers(labelled("b", "a", "b"), ("b", "a")).tolist() == [0, 1, 0]
    assert label_numbers(Labelled(["t", "t"]), ("b", "a")).tolist() == [-1, -1]


def test_a_class_without_examples_is_an_error():
    with pytest.raises(UserError, match=r"'c' has no example in the training split; .*found a, b"):
        class_names(("a", "b", "c"), labelled("a", "b"))
    with pytest.raises(UserError, match=r"labels = .*: expected the classes, as there is no train"):
        class_names((), None)
    with pytest.raises(UserError, match="found only a; expected two or more"):
        class_names((), labelled("a", "a"))


def test_an_unknown_label_is_named_by_file_and_line():
    with pytest.raises(UserError, match=r"f.tsv:2: label 'x': expected one of a, b"):
        label_numbers(labelled("a", "x"), ("a", "b"))


def test_labels_as_numbers():
    assert label_values(labelled("2.5", "-1")).tolist() == [2.5, -1]
    assert np.isnan(label_values(Labelled(["t"]))).all()
    for wrong in ("high", "nan", "inf"):
        with pytest.raises(UserError, match=rf"f.tsv:2: label '{wrong}': expected a number"):
            label_values(labelled("1", wrong))


class Glue(tfds.core.GeneratorBasedBuilder):
    """Sets with the features of two of GLUE's, as TFDS has them."""

    VERSION = tfds.core.Version("1.0.0")
    BUILDER_CONFIGS = [tfds.core.BuilderConfig(name=n) for n in ("cola", "mnli", "snli", "stsb")]  # noqa: RUF012

    @property
    def _kind(self) -> str:
        assert self.builder_config is not None
        return str(self.builder_config.name)

    def _info(self) -> tfds.core.DatasetInfo:
        text, name = tfds.features.Text(), self._kind
        label = tfds.features.ClassLabel(names=["unacceptable", "acceptable"])
        texts = {"sentence": text}
        if name != "cola":
            label = tfds.features.ClassLabel(names=["entailment", "neutral", "contradiction"])
            texts = {"hypothesis": text, "premise": text}
        if name == "stsb":
            label = tfds.features.Tensor(shape=(), dtype=np.float32)
            texts = {"sentence1": text, "sentence2": text}
        features = tfds.features.FeaturesDict(
            {**texts, "label": label, "idx": tfds.features.Tensor(shape=(), dtype=np.int32)}
        )
        return tfds.core.DatasetInfo(builder=self, description="GLUE.", features=features)

    def _split_generators(self, dl_manager):
        held_out = "test_matched" if self._kind == "mnli" else "test"
        return {name: self._generate_examples(name) for name in ("train", held_out)}

    def _generate_examples(self, split):
        kind = self._kind
        for i in range(3):
            labels = {"cola": [1, 0, 1], "mnli": [2, 0, 1], "snli": [2, -1, 1]}
            label = labels.get(kind, [2.5, 0.0, 5.0])[i]
            record = {"label": -1 if split != "train" else label, "idx": i}
            names = {"cola": ["sentence"], "stsb": ["sentence1", "sentence2"]}
            for name in names.get(kind, ["premise", "hypothesis"]):
                record[name] = f"{name} {i} "
            yield i, record


def test_glue_through_tfds(settings):
    made = settings(objective="classification", dataset="tfds:glue/cola")
    found = read(made)
    assert found.texts == ["sentence 0", "sentence 1", "sentence 2"] and not found.paired
    assert found.labels == ["acceptable", "unacceptable", "acceptable"]
    # Not sorted: the second class, whose F1 is told, is the acceptable one as in the files.
    assert class_names((), found) == ("unacceptable", "acceptable")
    test = read(made, "test")
    assert len(test) == 3 and not test.labelled


def test_pairs_of_tfds_keep_their_order(settings):
    """TFDS sorts the names of features: the hypothesis would come first."""
    made = settings(objective="classification", dataset="tfds:glue/mnli")
    found = read(made)
    assert found.paired and is_paired(made)
    assert (found.texts[0], found.seconds[0]) == ("premise 0", "hypothesis 0")
    assert found.labels == ["contradiction", "entailment", "neutral"]
    assert not read(made, "test").labelled  # of the split test_matched
    named = settings(
        objective="classification",
        dataset="tfds:glue/mnli",
        columns=("text=hypothesis", "text2=premise", "label=label"),
    )
    assert read(named).texts[0] == "hypothesis 0"


def test_tfds_examples_without_a_label_are_left_out_and_counted(settings):
    """Their -1 would be the last class."""
    columns = ("text=premise", "text2=hypothesis", "label=label")
    made = settings(objective="classification", dataset="tfds:glue/snli", columns=columns)
    said: list[str] = []
    found = read_labelled(made, "train", said.append)
    assert found is not None
    assert found.labels == ["contradiction", "neutral"]
    assert found.texts == ["premise 0", "premise 2"]
    assert found.seconds == ["hypothesis 0", "hypothesis 2"]
    assert said == ["train: 1 without a label left out", "train: 2 examples"]
    assert not read(made, "test").labelled  # none there has a label: predictions only


def test_numbers_of_tfds(settings):
    found = read(settings(objective="regression", dataset="tfds:glue/stsb"))
    assert label_values(found).tolist() == [2.5, 0, 5]


def test_a_feature_that_is_missing_is_named(settings):
    made = settings(
        objective="classification",
        dataset="tfds:glue/cola",
        columns=("text=sentense", "label=label"),
    )
    with pytest.raises(UserError, match=r"no feature 'sentense' for the text; .* sentence"):
        read(made)
