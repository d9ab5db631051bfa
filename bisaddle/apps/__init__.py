"""Applications: data -> (problem, start)."""

from bisaddle.apps import multitask as multitask
