"""``transformer probe``."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from rich.console import Console
from rich.progress import Progress

from transformer.analysis.probe import fit_probe
from transformer.commands.base import OnCheckpoint, require_folder, trained_config
from transformer.config import DataConfig
from transformer.data.labelled import Labelled, class_names, label_numbers, read_labelled
from transformer.decoding.embeddings import Embedder, Pool
from transformer.errors import UserError
from transformer.training.classification import describe_classes
from transformer.training.metrics import class_scores

# Placeholder, as in the configurations: a DataConfig without files would be none.
_DATA = DataConfig(objective="classification", train=("train.tsv",))


@dataclass(frozen=True)
class ProbeTexts(OnCheckpoint):
    """Classify texts by a logistic regression on an encoder's vectors, which stay as they are.

    Learns from data.train; scores on data.test, or where there is none on data.validation.
    """

    pool: Pool = "mean"
    """How the vectors of a text's tokens become one: mean, cls (the first), max."""
    layers: tuple[int, ...] = (-1,)
    """Layers whose vectors are put one behind the other: -1 the last, 0 the embeddings."""
    predictions: Path | None = None
    """Write the predicted labels there, one a line, in the order of the split."""
    data: DataConfig = field(default_factory=lambda: _DATA)

    @classmethod
    def defaults(cls, checkpoint: str | None = None, step: str = "best") -> "ProbeTexts":
        trained = trained_config(checkpoint, step).data
        return cls(data=trained if trained.objective == "classification" else _DATA)

    def run(self) -> int:
        console = Console()
        if self.data.objective != "classification":
            raise UserError(f"data.objective = {self.data.objective!r}: expected 'classification'")
        if self.predictions is not None:
            require_folder("--predictions", self.predictions)
        model, params, tokenizer, _ = self.load_encoder()
        train = read_labelled(self.data, "train", console.print)
        held_out = read_labelled(self.data, "test", console.print)
        held_out = held_out or read_labelled(self.data, "validation", console.print)
        if train is None or held_out is None:
            raise UserError(
                f"{self.data.origin}: expected a training split, and data.validation or data.test"
            )
        names = class_names(self.data.labels, train)
        labels, right = (label_numbers(part, names) for part in (train, held_out))
        if not held_out.labelled and self.predictions is None:
            raise UserError("there are no labels to score by: expected --predictions FILE")
        embedder = Embedder(
            model,
            params,
            tokenizer,
            pool=self.pool,
            layers=self.layers,
            normalize=False,
            max_length=self.data.max_length,
        )
        features, others = (self._vectors(embedder, part, console) for part in (train, held_out))
        probe = fit_probe(features, labels, others)
        lines = [
            f"logistic regression on {embedder.dim} features, C = {probe.strength:g}: accuracy "
            f"{probe.validated:.2%} in cross-validation"
        ]
        if self.predictions is not None:
            text = "".join(names[i] + "\n" for i in probe.predictions)
            self.predictions.write_text(text, encoding="utf-8")
        if held_out.labelled:
            scores = class_scores(probe.predictions, right, len(names))
            lines += describe_classes(scores, len(held_out))
        for line in lines:
            console.print(line, highlight=False, markup=False, soft_wrap=True)
        return 0

    def _vectors(self, embedder: Embedder, part: Labelled, console: Console) -> np.ndarray:
        pairs = list(zip(part.texts, part.seconds, strict=True))
        with Progress(console=console, disable=not console.is_terminal, transient=True) as bar:
            task = bar.add_task("reading", total=len(part))
            return embedder(
                pairs if part.paired else part.texts,
                lambda done, total: bar.update(task, completed=done, total=total),
            )
