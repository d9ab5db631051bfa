"""Applications: data -> (problem, start)."""

from bisaddle.apps import hyperparameter as hyperparameter, multitask as multitask, pooling as pooling
