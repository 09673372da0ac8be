"""Logistic regression on features: what can be told from them, and what cannot."""

import numpy as np
import pytest

from transformer.analysis.probe import INVERSE_STRENGTHS, fit_probe
from transformer.errors import UserError


def drawn(seed: int, count: int):
    """Classes by the sign of one feature of eleven, of very different scales."""
    features = np.random.default_rng(seed).standard_normal((count, 11)) * np.geomspace(
        1e-3, 1e3, 11
    )
    return features, (features[:, 4] > 0).astype(np.int32)


def test_what_the_features_tell_is_found():
    (features, labels), (others, right) = drawn(1, 211), drawn(2, 97)
    probe = fit_probe(features, labels, others)
    assert (probe.predictions == right).mean() > 0.9 and probe.validated > 0.9
    assert probe.strength in INVERSE_STRENGTHS


def test_nothing_is_found_in_noise_and_it_is_the_same_each_time():
    features, _ = drawn(1, 211)
    labels = np.random.default_rng(3).integers(0, 2, 211)
    one, two = (fit_probe(features, labels, features[:7]) for _ in range(2))
    assert one.validated < 0.62 and one.validated == two.validated
    assert one.predictions.tolist() == two.predictions.tolist()


def test_three_classes_with_few_examples():
    features = np.repeat(np.eye(3), 3, axis=0) + np.arange(9)[:, None] * 1e-3
    probe = fit_probe(features, np.repeat([0, 1, 2], 3), np.eye(3))
    assert probe.predictions.tolist() == [0, 1, 2]
    with pytest.raises(UserError, match="a class with one example"):
        fit_probe(features, np.array([0] * 8 + [1]), features)
