"""GLUE's files in the forms they are published in."""

import pytest

from transformer.data.glue import TASKS, task_of
from transformer.data.labelled import read_labelled
from transformer.errors import UserError

# The first lines of each task's train.tsv and test.tsv, the texts and ids replaced.
PUBLISHED = {
    "cola": ("gj04\t1\t\ta \"b\n", "index\tsentence\n0\ta \"b\n"),
    "sst2": ("sentence\tlabel\na \"b \t1\n", "index\tsentence\n0\ta \"b\n"),
    "mrpc": (
        "\ufeffQuality\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n1\t2\t3\ta \"b\tc\r\n",
        "\ufeffindex\t#1 ID\t#2 ID\t#1 String\t#2 String\r\n0\t2\t3\ta \"b\tc\r\n",
    ),
    "qqp": (
        "id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate\n7\t8\t9\ta \"b\tc\t1\n7\tx\n",
        "id\tquestion1\tquestion2\n0\ta \"b\tc\n",
    ),
    "stsb": (
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\tscore\n"
        "0\tm\tf\t2012\t1\tnone\tnone\ta \"b\tc\t1\n",
        "index\tgenre\tfilename\tyear\told_index\tsource1\tsource2\tsentence1\tsentence2\n"
        "0\tm\tf\t2012\t1\tnone\tnone\ta \"b\tc\n",
    ),
    "mnli": (
        "index\tpromptID\tsentence1\tsentence2\tlabel1\tgold_label\n0\t1\ta \"b\tc\t0\t1\n",
        "index\tpromptID\tsentence1\tsentence2\n0\t1\ta \"b\tc\n",
    ),
    "qnli": (
        "index\tquestion\tsentence\tlabel\n0\ta \"b\tc\t1\n",
        "index\tquestion\tsentence\n0\ta \"b\tc\n",
    ),
    "rte": (
        "index\tsentence1\tsentence2\tlabel\n0\ta \"b\tc\t1\n",
        "index\tsentence1\tsentence2\n0\ta \"b\tc\n",
    ),
    "wnli": (
        "index\tsentence1\tsentence2\tlabel\n0\ta \"b\tc\t1\n",
        "index\tsentence1\tsentence2\n0\ta \"b\tc\n",
    ),
}  # fmt: skip


def quiet(_: str) -> None: ...


@pytest.mark.parametrize("name", TASKS)
def test_the_published_files_are_read(name, write, settings):
    train, test = (write(f"{split}.tsv", text) for split, text in enumerate(PUBLISHED[name]))
    config = settings(
        objective="regression" if name == "stsb" else "classification",
        dataset=f"glue:{name}",
        train=(train,),
        test=(test,),
    )
    second = "c" if len(TASKS[name].texts) == 2 else ""
    for split in ("train", "test"):
        found = read_labelled(config, split, quiet)  # type: ignore[arg-type]
        assert found is not None and found.texts == ['a "b'] and found.seconds == [second]
        assert found.labels == (["1"] if split == "train" else [])
        assert found.paired == bool(second)


def test_numbers_are_no_classes(write, settings):
    path = write("train.tsv", PUBLISHED["stsb"][0])
    config = settings(objective="classification", dataset="glue:stsb", train=(path,))
    with pytest.raises(UserError, match="'classification': expected 'regression', because"):
        read_labelled(config, "train", quiet)


def test_the_tasks_are_found_by_name():
    assert task_of("glue:rte") is task_of("tfds:glue/rte") is TASKS["rte"]
    assert task_of("tfds:glue/mnli_matched") is task_of("tfds:glue/mnli:2.0.0") is TASKS["mnli"]
    assert task_of("files") is task_of("tfds:imdb_reviews") is task_of("tfds:glue/ax") is None
    with pytest.raises(UserError, match=r"data.dataset = 'glue:sst': no such task; did you mean s"):
        task_of("glue:sst")
