"""The tasks of GLUE (Wang et al. 2019) in the form their files are published in, and in TFDS."""

from typing import NamedTuple

from transformer.config.data import Objective
from transformer.data.sources import read_lines
from transformer.data.tables import Columns
from transformer.errors import UserError, did_you_mean


class Task(NamedTuple):
    """Where a task's texts and labels are.

    Attributes:
        texts: the names of the one or two columns of text in the files' headers.
        label: the name of the column of the right answers.
        tfds: the names of the texts in TFDS, where the answer is always ``label``.
        unnamed: what the columns of a file without a header hold.
        broken: whether some published rows lack columns: they are left out, and counted.
        objective: what is learnt: numbers are not classes.
    """

    texts: tuple[str, ...]
    label: str
    tfds: tuple[str, ...]
    unnamed: tuple[str, ...] = ()
    broken: bool = False
    objective: Objective = "classification"


_SENTENCE = ("sentence",)
_SENTENCES = ("sentence1", "sentence2")
TASKS = {
    "cola": Task(_SENTENCE, "label", _SENTENCE, unnamed=("-", "label", "-", "text")),
    "sst2": Task(_SENTENCE, "label", _SENTENCE),
    "mrpc": Task(("#1 String", "#2 String"), "Quality", _SENTENCES),
    "qqp": Task(("question1", "question2"), "is_duplicate", ("question1", "question2"), (), True),
    "stsb": Task(_SENTENCES, "score", _SENTENCES, objective="regression"),
    "mnli": Task(_SENTENCES, "gold_label", ("premise", "hypothesis")),
    "qnli": Task(("question", "sentence"), "label", ("question", "sentence")),
    "rte": Task(_SENTENCES, "label", _SENTENCES),
    "wnli": Task(_SENTENCES, "label", _SENTENCES),
}
"""By the names that TFDS gives them."""


def task_of(origin: str) -> Task | None:
    """The task that ``data.dataset`` names, as ``glue:TASK`` or ``tfds:glue/TASK``, if it does.

    Raises:
        UserError: there is no such task.
    """
    for prefix in ("glue:", "tfds:glue/"):
        name = origin.removeprefix(prefix)
        if name == origin:
            continue
        if prefix != "glue:":
            name = name.split(":")[0].split("_")[0]  # mnli_matched, and a version
            return TASKS.get(name)
        if name not in TASKS:
            hint = did_you_mean(name, TASKS) or f": expected one of {', '.join(TASKS)}"
            raise UserError(f"data.dataset = {origin!r}: no such task{hint}")
        return TASKS[name]
    return None


def glue_columns(task: Task, path: str, setting: str, optional: tuple[str, ...] = ()) -> Columns:
    """The columns of one of a task's files, by its header if it has one.

    Args:
        task: the task.
        path: of the file.
        setting: that names it, for messages.
        optional: roles that the file may lack.
    """
    if task.unnamed:
        lines = read_lines(path, setting)
        first = lines[0].split("\t") if lines else []
        if task.texts[0] not in first:
            return Columns(task.unnamed)
    roles = ("text", "text2")[: len(task.texts)]
    return Columns((*roles, "label"), (*task.texts, task.label), True, optional, task.broken)
