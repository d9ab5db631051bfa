"""The diabetes data that come with scikit-learn: real, and nothing to download."""

from typing import Any

import numpy as np

from bisaddle.datasets.errors import MissingLibraryError
from bisaddle.datasets.record import Choices, Dataset, Group, build


def diabetes(choices: Choices) -> Dataset:
    """Progression of diabetes after a year in 442 patients, from 10 measurements  (Efron et al. 2004).

    The natural tasks are the sexes (coded 1 and 2).
    """
    try:
        import sklearn
        from sklearn.datasets import load_diabetes
    except ImportError as error:
        raise MissingLibraryError(
            'load("diabetes") needs scikit-learn, which brings the data; install bisaddle[sklearn], '
            'or use load("synthetic"), which needs nothing'
        ) from error
    bunch: Any = load_diabetes(scaled=False)
    A, b = np.asarray(bunch["data"], dtype=np.float64), np.asarray(bunch["target"], dtype=np.float64)
    names = list(bunch["feature_names"])
    sex = A[:, names.index("sex")]
    groups = [Group(f"sex {code:g}", A[sex == code], b[sex == code]) for code in np.unique(sex)]
    if choices.split == "even":  # rows in the order of the file
        groups = [Group("all", A, b)]
    config = {"library": f"scikit-learn {sklearn.__version__}", "files": {}}
    return build("diabetes", f"diabetes of scikit-learn, {len(b)} patients", groups, names, choices, config)
