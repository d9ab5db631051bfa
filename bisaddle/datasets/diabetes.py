"""The diabetes data that come with scikit-learn: real, and nothing to download."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from bisaddle.datasets.errors import MissingLibraryError
from bisaddle.datasets.record import Dataset, Group, build, check_options


def diabetes(
    split: str = "even",
    tasks: int | None = None,
    train: float = 0.75,
    standardize: Sequence[str] = ("features", "targets"),
    seed: int = 0,
) -> Dataset:
    """Progression of diabetes after a year in 442 patients, from 10 measurements  (Efron et al. 2004).

    split: "even" shuffles all rows into equal tasks (5 if not said); "natural" has a task a sex (coded 1 and 2).
    """
    check_options(split, tasks, train, standardize, seed)
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
    if split == "even":  # rows in the order of the file
        groups = [Group("all", A, b)]
    return build(
        "diabetes",
        f"diabetes of scikit-learn, {len(b)} patients",
        groups,
        names,
        split=split,
        tasks=tasks,
        train=train,
        standardize=standardize,
        seed=seed,
        config={"library": f"scikit-learn {sklearn.__version__}", "files": {}},
    )
