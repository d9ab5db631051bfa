"""scikit-learn estimators: linear models whose hyper-parameters are chosen by a certified bilevel problem.

WorstGroupRegressor, WorstGroupClassifier      groups known in training only; weights go to the groups that do worst
PartialPoolingRegressor, PartialPoolingClassifier    tasks known at prediction too; each is drawn towards a shared model
AdversarialClassifier                          rows moved by an attacker, by at most a radius
"""

try:
    import sklearn as _sklearn  # noqa: F401
except ImportError as error:
    raise ImportError('bisaddle.estimators needs scikit-learn: pip install "bisaddle[sklearn]"') from error

from bisaddle.estimators.adversarial import AdversarialClassifier as AdversarialClassifier
from bisaddle.estimators.pooling import (
    PartialPoolingClassifier as PartialPoolingClassifier,
    PartialPoolingRegressor as PartialPoolingRegressor,
)
from bisaddle.estimators.worst_group import (
    WorstGroupClassifier as WorstGroupClassifier,
    WorstGroupRegressor as WorstGroupRegressor,
)
