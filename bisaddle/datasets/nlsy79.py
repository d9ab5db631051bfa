"""NLSY79: income in 1990 of people first asked in 1979, 21 columns, from the raw extract or a public version of it.

No publication of the paper's 6213 rows was found. The recipe from the raw extract of the NLS Investigator (an account
is free, the file is not redistributed) is that of jkomiyama/fairregresion (reading A) and cjshui/fair-path (reading B).
"""

import os

import numpy as np

from bisaddle.datasets.catalogue import parts
from bisaddle.datasets.errors import ContentError, MissingFileError
from bisaddle.datasets.files import File, obtain
from bisaddle.datasets.read import columns, numbers, take, words
from bisaddle.datasets.record import Choices, Dataset, Group, build

PAPER_ROWS = 6213
ANSWERS = ("genhealth", "illegalact", "charged", "grade90", "jobsnum90", "afqt89", "jobtrain90")
CODES = {
    "age": "R0000600",
    "gender": "R0214800",
    "income90": "R3279401",
    "genhealth": "H0003400",
    "illegalact": "R0304900",
    "charged": "R0307100",
    "grade90": "R3401501",
    "jobsnum90": "R3403500",
    "afqt89": "R0618300",
    "jobtrain90": "R3146100",
    "industry": "R3127300",
}
# first and last industry code of 1990, both included
INDUSTRIES = {
    "agri": (10, 39),
    "mining": (40, 59),
    "construction": (60, 69),
    "manuf": (100, 399),
    "transp": (400, 499),
    "wholesale": (500, 579),
    "retail": (580, 699),
    "fin": (700, 712),
    "busi": (721, 760),
    "personal": (761, 791),
    "enter": (800, 811),
    "pro": (812, 892),
    "pub": (900, 932),
}
HEALTH = {"Excellent": 1.0, "Very Good": 2.0, "Good": 3.0, "Fair": 4.0, "Poor": 5.0}
ORDINALS = ("1ST", "2ND", "3RD", *(f"{n}TH" for n in range(4, 13)))
GRADES = {f"{word} GRADE": float(n) for n, word in enumerate(ORDINALS, 1)}
GRADES |= {f"{word} YR COL": 12.0 + n for n, word in enumerate(ORDINALS[:7], 1)} | {"8TH YR COL OR MORE": 20.0}


def nlsy79(
    choices: Choices,
    version: str = "public",
    reading: str = "B",
    directory: str | os.PathLike | None = None,
    download: bool = True,
) -> Dataset:
    """Income of 1990 in 10000 USD from 21 columns: 7 answers, 13 indicators of industry, and one more.

    version: "public", 4908 rows of the R package fairml, a stand-in for the paper's 6213; "raw", the user's own
    extract of the NLS Investigator, saved as nlsy79_raw.csv.
    reading: "B" adds age; "A" adds a constant, which standardising turns into 0. Neither has gender.
    The natural tasks are the genders.
    """
    if version not in ("public", "raw"):
        raise ValueError(f'version must be "public" or "raw", given {version!r}')
    if reading not in ("A", "B"):
        raise ValueError(f'reading must be "A" or "B", given {reading!r}')
    try:
        file = obtain(parts("nlsy79")[version], directory, download)
    except MissingFileError as error:
        if version == "public":
            raise
        raise MissingFileError(
            f"{error}\nTo make it: log in there, choose the study NLSY79, select the variables "
            f"{', '.join(CODES.values())}, download all 12686 respondents as CSV. "
            f'load("nlsy79", version="public") needs no account'
        ) from error
    table, industry = _raw(file) if version == "raw" else _public(file)
    rows = len(industry)
    first = {"age": table["age"]} if reading == "B" else {"intercept": np.ones(rows)}
    features = {**first, **{name: table[name] for name in ANSWERS}}
    features |= {name: np.asarray(industry == i, dtype=np.float64) for i, name in enumerate(INDUSTRIES)}
    A, female = np.column_stack(list(features.values())), table["gender"] == 1
    groups = [
        Group(name, A[which], table["income90"][which]) for name, which in (("male", ~female), ("female", female))
    ]
    if choices.split == "even":  # rows in the order of the file
        groups = [Group("all", A, table["income90"])]
    what = "public 4908-row stand-in" if version == "public" else f"raw NLS Investigator extract, {rows} rows kept"
    note = "" if rows == PAPER_ROWS else f" (paper: {PAPER_ROWS} rows)"
    config = {"version": version, "reading": reading, "files": {file.source.file: file.sha256}}
    return build("nlsy79", f"NLSY79, {what}, reading {reading}{note}", groups, list(features), choices, config)


def _public(file: File) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """Columns as numbers, and the place of each row's industry in INDUSTRIES; all rows are kept."""
    name, found = str(file.path), columns(file)
    coded = {
        "genhealth": HEALTH,
        "grade90": GRADES,
        "jobtrain90": {"No": 0.0, "Yes": 1.0},
        "gender": {"Male": 0.0, "Female": 1.0},
        "typejob90": {word: float(i) for i, word in enumerate(INDUSTRIES)},
    }
    wanted = take(name, found, ["age", "income90", *ANSWERS, "gender", "typejob90"])
    table = {
        column: words(name, column, values, coded[column]) if column in coded else numbers(name, column, values)
        for column, values in wanted.items()
    }
    return table, table.pop("typejob90").astype(int)


def _raw(file: File) -> tuple[dict[str, np.ndarray], np.ndarray]:
    """The same of the extract: rows without a negative (missing) income or answer; a code of no industry gives -1."""
    name = str(file.path)
    found = take(name, columns(file), CODES.values())
    table = {column: numbers(name, code, found[code]) for column, code in CODES.items()}
    other = np.flatnonzero(~np.isin(table["gender"], (1, 2)))
    if other.size:
        value = table["gender"][other[0]]
        raise ContentError(
            f"{name}, column {CODES['gender']}, row {other[0] + 1}: {value:g} found; 1 (male) or 2 (female) is needed"
        )
    table["gender"] -= 1
    keep = np.all([table[column] >= 0 for column in ("income90", *ANSWERS)], axis=0)
    table["income90"] /= 10000
    codes = table.pop("industry")
    industry = np.full(len(codes), -1)
    for i, (low, high) in enumerate(INDUSTRIES.values()):
        industry[(low <= codes) & (codes <= high)] = i
    return {column: values[keep] for column, values in table.items()}, industry[keep]
