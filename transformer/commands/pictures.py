"""``transformer attention-map`` and ``transformer plot-loss``."""

from dataclasses import dataclass
from pathlib import Path
from typing import ClassVar

import tyro

from transformer.analysis import attention_maps, plots
from transformer.commands.base import Command, OnCheckpoint, require_folder
from transformer.decoding.translate import Translator
from transformer.errors import UserError
from transformer.training.logging import read_metrics


@dataclass(frozen=True)
class AttentionMap(OnCheckpoint):
    """Draw where the decoder looks in one source while it writes each target symbol."""

    source: str = tyro.MISSING
    """The text to translate."""
    target: str | None = None
    """Its translation; None: the model's own."""
    layer: int = -1
    """Decoder layer, from 0; -1 is the last."""
    output: Path = Path("attention.png")
    """The PNG file to write."""

    required: ClassVar = ("checkpoint", "source")
    located_by: ClassVar = ()

    def run(self) -> int:
        require_folder("--output", self.output)
        model, params, tokenizer, config = self.load()
        layers = model.config.num_layers
        if not -layers <= self.layer < layers:
            raise UserError(f"--layer {self.layer}: expected 0 to {layers - 1}, or -1")
        target = self.target
        if target is None:
            translator = Translator(model, params, tokenizer, config.decode)
            target = translator.translate([self.source])[0][0].text
        pair = attention_maps.label_pair(tokenizer, self.source, target)
        weights = attention_maps.cross_attention(model, params, pair["source"], pair["inputs"])
        title = f"cross-attention, layer {self.layer % layers}: {self.source} → {target}"
        plots.plot_attention(weights[self.layer], pair["rows"], pair["columns"], self.output, title)
        print(f"attention map: {self.output}")
        return 0


@dataclass(frozen=True)
class PlotLoss(Command):
    """Draw the loss of a training run."""

    workdir: str = tyro.MISSING
    """The --workdir of the run."""
    output: Path | None = None
    """The PNG file to write; None: loss.png in the workdir."""

    required: ClassVar = ("workdir",)

    def run(self) -> int:
        output = self.output or Path(self.workdir) / "loss.png"
        require_folder("--workdir" if self.output is None else "--output", output)
        plots.plot_loss(read_metrics(self.workdir), output)
        print(f"loss curve: {output}")
        return 0
