"""Pictures show what they are given."""

import numpy as np
import pytest

from tests.helpers import png_rows
from transformer.analysis.plots import plot_attention, plot_loss
from transformer.errors import UserError


def metrics(split, losses):
    return [{"step": 10 * i, "split": split, "loss": loss} for i, loss in enumerate(losses, 1)]


def test_the_loss_curve_follows_the_losses(tmp_path):
    falling, rising = tmp_path / "falling.png", tmp_path / "rising.png"
    validation = metrics("validation", [5, 3.5])
    plot_loss(metrics("train", [6, 4, 3]) + validation, falling)
    plot_loss(metrics("train", [3, 4, 6]) + validation, rising)
    assert png_rows(falling).shape == png_rows(rising).shape
    assert (png_rows(falling) != png_rows(rising)).any()
    plot_loss(metrics("train", [6, 4, 3]), tmp_path / "no validation.png")


def test_a_run_without_metrics_is_an_error(tmp_path):
    with pytest.raises(UserError, match="no metrics to draw"):
        plot_loss([], tmp_path / "loss.png")


def test_an_attention_map_has_a_square_a_head_and_grows_with_the_text(tmp_path):
    def draw(heads, rows, columns):
        path = tmp_path / f"{heads}.{rows}.{columns}.png"
        weights = np.random.default_rng(0).dirichlet(np.ones(columns), (heads, rows))
        plot_attention(weights, ["R"] * rows, ["C"] * columns, path, "title")
        return png_rows(path)

    small, wide, more = draw(1, 5, 7), draw(1, 5, 23), draw(3, 5, 7)
    assert wide.shape[1] > small.shape[1]
    assert more.shape[1] == 2 * small.shape[1]  # the mean, and the heads
    assert len(np.unique(small)) > 30
