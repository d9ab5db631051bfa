"""One look and one set of names for figures, pages and sentences: methods, colours and dashes, data sets, titles."""

from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bisaddle.report.records import Run

# the methods that section 6 compares, in the order that it claims, and words for keys in a sentence
PAPER = ("opf", "fp", "morbit")
WORDS = {"opf": "OPF", "fp": "FP", "morbit": "MORBiT", "exp1": "Experiment 1", "exp2": "Experiment 2"}
WORDS |= {"nlsy79": "NLSY79", "mtl": "MTL"}


class Look(NamedTuple):
    """colour: readable on white and on black. dash: lengths of strokes and spaces. shown: at first."""

    colour: str
    dash: str = ""
    shown: bool = True


METHODS = {
    "opf": Look("#2f7ed8"),
    "fp": Look("#e07b00"),
    "morbit": Look("#d6336c"),
    "fp_apart": Look("#1a9e6c"),
    "adaptive": Look("#8a8f98"),
    "morbit_1": Look("#d6336c", "2 3", shown=False),
    "morbit_60": Look("#9b51e0", "6 3", shown=False),
    "morbit_exact": Look("#9b51e0", "2 3", shown=False),
    "opf_printed": Look("#2f7ed8", "2 3"),
    "fp_printed": Look("#e07b00", "2 3"),
}
SPARE = ("#0d9aa8", "#b08900", "#7a5195", "#5c6b2e")
FIGURES = {
    "fig1": "Figure 1: Experiment 1, linear in the weights",
    "fig2": "Figure 2: Experiment 2, divergence penalty",
}
# experiments beyond the two figures; Adaptive is drawn with the methods that it is compared with
OTHERS = {"frozen": "Frozen lambda: Experiment 1 with lambda = 1/2"}
DRAWN_WITH = {"adaptive_exp1": "fig1", "adaptive_exp2": "fig2"}
DATASETS = ("synthetic", "mtl", "nlsy79", "diabetes")


def styles(methods: Iterable[str]) -> dict[str, Look]:
    """In the order of the legend, methods without a colour of their own last."""
    found = set(methods)
    others = sorted(found - set(METHODS))
    known = {key: look for key, look in METHODS.items() if key in found}
    return known | {key: Look(SPARE[i % len(SPARE)]) for i, key in enumerate(others)}


def in_order(datasets: Iterable[str]) -> list[str]:
    """Data sets in the order of the paper's panels, others after them."""
    found = set(datasets)
    return [name for name in DATASETS if name in found] + sorted(found - set(DATASETS))


def group_of(run: Run) -> str:
    """What a run is drawn with: its figure, or its experiment where it belongs to none of the paper's two."""
    return run.figure if run.figure in FIGURES else DRAWN_WITH.get(run.experiment, run.experiment)


def groups_of(runs: Sequence[Run]) -> list[str]:
    """The paper's figures first, then the experiments in the order of the runs."""
    found = dict.fromkeys(group_of(run) for run in runs)
    return [key for key in FIGURES if key in found] + [key for key in found if key not in FIGURES]


def called(key: str) -> str:
    """A method, data set or experiment in a sentence."""
    return WORDS.get(key, key)


def title_of(group: str) -> str:
    return (FIGURES | OTHERS).get(group, group.replace("_", " "))
