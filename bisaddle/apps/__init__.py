"""Applications: data -> (problem, start)."""

from typing import TYPE_CHECKING

from bisaddle.lazy import lazy

if TYPE_CHECKING:
    from bisaddle.apps import (
        adversarial as adversarial,
        auc as auc,
        fairness as fairness,
        grams as grams,
        hyperparameter as hyperparameter,
        meta as meta,
        multitask as multitask,
        pooling as pooling,
    )

__getattr__, __dir__ = lazy(
    __name__, {}, ("adversarial", "auc", "fairness", "grams", "hyperparameter", "meta", "multitask", "pooling")
)
