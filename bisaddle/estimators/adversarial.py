"""Logistic regression for rows that an attacker has moved, by at most a radius."""

from typing import Any

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array
from sklearn.base import BaseEstimator
from sklearn.utils.validation import check_is_fitted

from bisaddle.apps.folds import Chunk, Rows, row_scores, width
from bisaddle.apps.hyperparameter import FAINT, posed
from bisaddle.estimators import common
from bisaddle.estimators.padding import wide_enough

NORMS = ("l2", "linf")
# |v| is replaced by sqrt(|v|^2 + ROUND^2) - ROUND, which is smooth, and less by at most this much of a margin
ROUND = 0.03


class AttackedRows(Rows):
    """Rows whose loss is that after the attack which is worst for each of them, in closed form.

        binary:     log(1 + exp(-m + A(theta))),                                  m the margin of the row
        softmax:    log sum_c exp(z_c - z_label + A(theta_c - theta_label)),      z the scores of the row

    A(v): how far an attack can move a score with coefficients v: |reach v|_2, or |reach v|_1 for "linf"; reach is the
    radius, in units of each standardised column. For two classes this is the largest loss; for more it bounds it, since
    every class is attacked for on its own.
    """

    reach: Any
    norm: str = eqx.field(static=True)

    def row_losses(self, coef: Array, part: Chunk) -> Array:
        theta, scores = coef[:, 0], row_scores(coef, part)
        if theta.shape[-1] == 1:
            return jax.nn.softplus(self.moved(theta) - (2 * part.labels - 1) * scores[..., 0])
        apart = self.moved(theta[:, :, :, None] - theta[:, :, None, :])  # (blocks, classes, classes)
        hot = jax.nn.one_hot(part.labels, theta.shape[-1], dtype=theta.dtype)
        own = jnp.sum(hot * scores, axis=-1, keepdims=True)
        return jax.nn.logsumexp(scores - own + jnp.einsum("nc,kcb->knb", hot, apart), axis=-1)

    def moved(self, v: Array) -> Array:
        """A of the columns, along axis 1."""
        reach = self.reach.reshape(-1, *([1] * (v.ndim - 2)))
        if self.norm == "l2":
            return jnp.sqrt(jnp.sum(jnp.square(reach * v), axis=1) + ROUND**2) - ROUND
        return jnp.sum(jnp.sqrt(jnp.square(reach * v) + ROUND**2) - ROUND, axis=1)


class AdversarialClassifier(common.ByScores, BaseEstimator):
    """Logistic regression trained on the worst attack on every row, with the penalty that suits attacked rows left out.

        min_penalty  mean over left-out rows of  max_{|delta| <= radius} loss(row + delta; theta_k(penalty))
        theta_k    = argmin mean over the other rows of  max_{|delta| <= radius} loss(row + delta; theta)
                              + (penalty/2) |theta|^2,                     then a refit on all rows

    The inner maxima of a linear model have a closed form (of three classes or more, an upper bound). radius=0 is
    logistic regression with a cross-validated penalty.

    radius: how far an attacker moves a row, in the units of the features as given. norm: "l2" measures the length of
    the move, "linf" its largest entry. folds, random_state: how rows are dealt into folds for the penalty.
    tol, max_steps: the gap to certify, and after how many steps to stop without.

    coef_, intercept_ (one row for two classes, and one each for more), classes_; loss_ (cross-validated log loss under
    attack); penalty_ (on standardised features); gap_, status_, n_steps_ (of the certificate and the run).
    """

    def __init__(self, radius=0.1, *, norm="l2", folds=3, tol=1e-4, max_steps=10_000, random_state=0):
        self.radius = radius
        self.norm = norm
        self.folds = folds
        self.tol = tol
        self.max_steps = max_steps
        self.random_state = random_state

    def fit(self, X, y):
        radius = _checked_radius(self.radius)
        if self.norm not in NORMS:
            raise ValueError(f"norm must be one of {', '.join(NORMS)}, given {self.norm!r}")
        common.checked_choices(self.folds, self.tol, self.max_steps)
        X, y = common.rows_to_fit(self, X, y)
        self.classes_, labels = common.classes_of(y)
        _, alone = common.codes_of(None, len(X), "groups", self.folds)
        data, columns, shift, scale = common.labelled_rows(X, labels, alone, self.folds, self.random_state)
        kind, d = np.ones((width(data), 1)), X.shape[1] + 1
        reach = wide_enough(np.concatenate([[0.0], radius / scale]), {0: len(kind)})
        kind[0], fixed = 0, np.where(np.arange(len(kind)) == 0, FAINT, 0.0)  # the intercept
        attacked = AttackedRows(**vars(data), reach=reach, norm=self.norm)
        with common.in_float64():
            problem, start = posed(attacked, kind, fixed, columns, against="mean", reweight=False)
            result = common.solved(problem, start, self.tol, self.max_steps)
            theta, _ = common.refined(problem, result.point)
        common.warn_if_uncertified(result, self.tol, type(self).__name__)
        self.coef_, self.intercept_ = common.raw_coefficients(theta[-1, :d].T, shift, scale)
        self.penalty_, self.loss_ = float(np.exp(result.x["penalty"][0])), float(result.certificate.worst_value)
        self.gap_, self.status_, self.n_steps_ = float(result.gap), result.status.name, result.steps
        return self

    def decision_function(self, X):
        check_is_fitted(self)
        return common.decisions(common.features(self, X), self.coef_, self.intercept_)

    def attack(self, X, y, radius=None):
        """The rows after the attack that is worst for this model and these labels; radius: None is that of fit."""
        check_is_fitted(self)
        X = common.features(self, X)
        radius = _checked_radius(self.radius if radius is None else radius)
        return X + radius * self._towards(X, y, radius)[0]

    def attacked_score(self, X, y, radius=None):
        """The accuracy when every row is attacked, exact for any number of classes; radius: None is that of fit."""
        check_is_fitted(self)
        X = common.features(self, X)
        radius = _checked_radius(self.radius if radius is None else radius)
        return float(np.mean(self._towards(X, y, radius)[1] < 0))

    def _towards(self, X: np.ndarray, y: Any, radius: float) -> tuple[np.ndarray, np.ndarray]:
        """(the unit move that helps another class most, by how much that class is then ahead of the label)"""
        coef, intercept = self.coef_, self.intercept_
        if len(coef) == 1:
            coef, intercept = np.concatenate([0 * coef, coef]), np.concatenate([0 * intercept, intercept])
        y = common.outcomes(y, len(X))
        known = np.isin(y, self.classes_)
        if not known.all():
            raise ValueError(f"y must have classes seen in fit, given {np.unique(y[~known])[:5]}")
        labels = np.searchsorted(self.classes_, y)
        scores = X @ coef.T + intercept
        apart = coef[None] - coef[:, None]  # [label, other]
        order = 2 if self.norm == "l2" else 1
        ahead = (
            scores - scores[np.arange(len(X)), labels][:, None] + radius * np.linalg.norm(apart, order, axis=2)[labels]
        )
        ahead[np.arange(len(X)), labels] = -np.inf
        other = ahead.argmax(axis=1)
        direction = apart[labels, other]
        if self.norm == "l2":
            length = np.linalg.norm(direction, axis=1, keepdims=True)
            return direction / np.where(length > 0, length, 1), ahead.max(axis=1)
        return np.sign(direction), ahead.max(axis=1)


def _checked_radius(radius: Any) -> float:
    if not common.is_number(radius) or not (np.isfinite(radius) and radius >= 0):
        raise ValueError(f"radius must be a finite number >= 0, given {radius!r}")
    return float(radius)
