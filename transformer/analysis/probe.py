"""Logistic regression on the vectors of a frozen network: how much of a label they tell.

The published comparison with fine-tuning (Devlin et al. 2019, section 5.3, as "feature-based").
"""

from typing import NamedTuple

import numpy as np

from transformer.errors import UserError

INVERSE_STRENGTHS = (0.001, 0.01, 0.1, 1.0)
"""Of the penalty on the weights; the best one is chosen by cross-validation."""
_FOLDS = 5
_ITERATIONS = 2000


class Probe(NamedTuple):
    """What was found.

    Attributes:
        predictions: int ``[held-out examples]``, the number of each one's class.
        strength: the chosen one of `INVERSE_STRENGTHS`.
        validated: the accuracy in cross-validation with it.
    """

    predictions: np.ndarray
    strength: float
    validated: float


def fit_probe(
    features: np.ndarray, labels: np.ndarray, held_out: np.ndarray, seed: int = 0
) -> Probe:
    """Fits a logistic regression to standardised features, and predicts others' classes.

    Args:
        features: float ``[examples, dim]``.
        labels: int ``[examples]``, at least two of each class.
        held_out: float ``[held-out examples, dim]``.
        seed: of the folds of the cross-validation.

    Raises:
        UserError: a class has one example, so that it is in no two folds.
    """
    from sklearn.linear_model import LogisticRegression  # here: it takes a second to import
    from sklearn.model_selection import GridSearchCV, StratifiedKFold
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    fewest = int(np.bincount(labels)[np.unique(labels)].min())
    if fewest < 2:
        raise UserError("probe: found a class with one example; expected at least two of each")
    folds = StratifiedKFold(min(_FOLDS, fewest), shuffle=True, random_state=seed)
    regression = LogisticRegression(max_iter=_ITERATIONS)
    search = GridSearchCV(
        make_pipeline(StandardScaler(), regression),
        {"logisticregression__C": list(INVERSE_STRENGTHS)},
        cv=folds,
    ).fit(features, labels)
    return Probe(
        np.asarray(search.predict(held_out)),
        float(search.best_params_["logisticregression__C"]),
        float(search.best_score_),
    )
