"""Pictures, as PNG files. Needs the extra `plots` (matplotlib)."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

from transformer.errors import UserError


def _figure(width: float, height: float) -> Any:
    """A matplotlib figure that needs no screen."""
    try:
        from matplotlib.figure import Figure
    except ImportError as error:
        raise UserError("matplotlib is missing: pip install matplotlib") from error
    return Figure(figsize=(width, height), layout="constrained", dpi=120)


def plot_loss(metrics: Sequence[dict[str, Any]], path: Path) -> None:
    """Training and validation loss by step.

    Args:
        metrics: from `transformer.training.logging.read_metrics`.
        path: of the PNG file.

    Raises:
        UserError: `metrics` holds no loss.
    """
    if not metrics:
        raise UserError(f"{path}: no metrics to draw; expected those of a training run")
    figure = _figure(7, 4)
    axes = figure.subplots()
    for split, style in (("train", "-"), ("validation", "o-")):
        points = [(m["step"], m["loss"]) for m in metrics if m["split"] == split]
        if points:
            axes.plot(*zip(*points, strict=True), style, label=split, markersize=4)
    unit = "example" if any("examples" in m for m in metrics) else "token"
    axes.set(xlabel="step", ylabel=f"training objective, mean per {unit}")
    axes.grid(alpha=0.3)
    axes.legend()
    figure.savefig(path)


def plot_attention(
    weights: np.ndarray, rows: Sequence[str], columns: Sequence[str], path: Path, title: str
) -> None:
    """Attention maps side by side, one a head, and their mean first.

    Args:
        weights: ``[N, T, S]``.
        rows: T labels, of the queries.
        columns: S labels, of the keys.
        path: of the PNG file.
        title: above the whole picture.
    """
    maps = [("mean", weights.mean(axis=0))]
    maps += [(f"head {n}", head) for n, head in enumerate(weights)]
    cell = 0.24
    width, height = len(columns) * cell + 0.7, len(rows) * cell + 0.8
    figure = _figure(max(2.2, width) * len(maps), max(2.2, height))
    figure.suptitle(title, parse_math=False)
    all_axes = figure.subplots(1, len(maps), squeeze=False)[0]
    for axes, (name, values) in zip(all_axes, maps, strict=True):
        axes.imshow(values, vmin=0, vmax=1, cmap="viridis", aspect="equal")
        axes.set_title(name, fontsize=9)
        # As they are: "$" in a text begins no formula.
        axes.set_xticks(range(len(columns)), columns, fontsize=7, parse_math=False)
        axes.set_yticks(range(len(rows)), rows, fontsize=7, parse_math=False)
    figure.savefig(path)
