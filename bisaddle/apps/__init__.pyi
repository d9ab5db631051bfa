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
