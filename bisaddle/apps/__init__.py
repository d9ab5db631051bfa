"""Applications: data -> (problem, start)."""

from bisaddle.apps import (
    fairness as fairness,
    hyperparameter as hyperparameter,
    multitask as multitask,
    pooling as pooling,
)
