"""One look and one set of names for figures, pages and sentences: of methods, data sets, titles."""

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import NamedTuple

from bisaddle.report.records import Run

# the methods that section 6 compares, in the order that it claims, and words for keys in a sentence
PAPER = ("opf", "fp", "morbit")
WORDS = {"opf": "OPF", "fp": "FP", "morbit": "MORBiT", "exp1": "Experiment 1", "exp2": "Experiment 2"}
WORDS |= {"nlsy79": "NLSY79", "mtl": "MTL"}


class Look(NamedTuple):
    """How a method is drawn, everywhere: any one of colour, dash and marker tells it from those it is drawn with.

    dash: lengths of strokes and spaces. marker: circle, square, triangle, diamond, down, plus, cross or star, filled or
    not. shown: at first.
    """

    colour: str
    dash: str = ""
    marker: str = "circle"
    filled: bool = True
    shown: bool = True


# the palette of Okabe and Ito, without its yellow, which is not seen on white; black is drawn in the colour of the text
BLACK, ORANGE, SKY, GREEN = "#000000", "#E69F00", "#56B4E9", "#009E73"
BLUE, VERMILLION, PURPLE = "#0072B2", "#D55E00", "#CC79A7"
METHODS = {
    "adaptive": Look(BLACK, marker="star"),
    "opf": Look(BLUE, "9 3", "circle"),
    "fp": Look(VERMILLION, "6 2 1.5 2", "square"),
    "morbit": Look(GREEN, "3 2", "triangle"),
    "fp_apart": Look(PURPLE, "1.5 1.5", "diamond"),
    "morbit_1": Look(SKY, "3 2 1 2", "down", shown=False),
    "morbit_60": Look(ORANGE, "12 2 3 2", "plus", shown=False),
    "morbit_exact": Look(SKY, "1 3", "cross", shown=False),
    "opf_printed": Look(SKY, "9 6", "circle", filled=False),
    "fp_printed": Look(ORANGE, "2 4", "square", filled=False),
}
# the same methods by the names of the library, as benchmarks call them
LIBRARY = {"Adaptive": "adaptive", "OneSidedProjectionFree": "opf", "FullyProjected": "fp", "MORBiT": "morbit"}
LIBRARY |= {"FullyProjected, gamma 1, mu 1e-4": "fp_apart", "MORBiT, N = 10": "morbit", "MORBiT, N = 60": "morbit_60"}
LIBRARY |= {"MORBiT, exact": "morbit_exact"}
# for methods of one's own: every colour with three dashes and markers
_COLOURS = (BLUE, VERMILLION, GREEN, PURPLE, SKY, ORANGE)
_DASHES = ("5 3", "2 2", "8 2 2 2", "4 4", "6 3 2 3", "1 2")
_MARKERS = ("diamond", "triangle", "down", "star", "square", "circle")
SPARE = tuple(
    Look(_COLOURS[i], _DASHES[(i + turn) % 6], _MARKERS[(i + 2 * turn) % 6], filled=False)
    for turn in range(3)
    for i in range(6)
)
FIGURES = {
    "fig1": "Figure 1: Experiment 1, linear in the weights",
    "fig2": "Figure 2: Experiment 2, divergence penalty",
}
# experiments beyond the two figures
OTHERS = {"frozen": "Frozen lambda: Experiment 1 with lambda = 1/2"}
DATASETS = ("synthetic", "mtl", "nlsy79", "diabetes")


def styles(methods: Iterable[str]) -> dict[str, Look]:
    """In the order of the legend, methods without a colour of their own last."""
    found = set(methods)
    others = sorted(found - set(METHODS))
    known = {key: look for key, look in METHODS.items() if key in found}
    return known | {key: SPARE[i % len(SPARE)] for i, key in enumerate(others)}


def looks_of(names: Sequence[str]) -> dict[str, Look]:
    """Methods by the names of the library, in the order given; no two alike up to 18 that are not the paper's."""
    made = {name: METHODS[LIBRARY[name]] for name in names if name in LIBRARY}
    spare = list(SPARE) * (1 + len(names) // len(SPARE))
    for name in names:
        if name not in made:  # a colour that is little used so far
            used = Counter(look.colour for look in made.values())
            made[name] = min(spare, key=lambda look: used[look.colour])
            spare.remove(made[name])
    return {name: made[name] for name in names}


def in_order(datasets: Iterable[str]) -> list[str]:
    """Data sets in the order of the paper's panels, others after them."""
    found = set(datasets)
    return [name for name in DATASETS if name in found] + sorted(found - set(DATASETS))


def group_of(run: Run) -> str:
    """What a run is drawn with: its figure, or its experiment where it belongs to none of the paper's two."""
    return run.figure if run.figure in FIGURES else run.experiment


def groups_of(runs: Sequence[Run]) -> list[str]:
    """The paper's figures first, then the experiments in the order of the runs."""
    found = dict.fromkeys(group_of(run) for run in runs)
    return [key for key in FIGURES if key in found] + [key for key in found if key not in FIGURES]


def called(key: str) -> str:
    """A method, data set or experiment in a sentence."""
    return WORDS.get(key, key)


def title_of(group: str) -> str:
    return (FIGURES | OTHERS).get(group, group.replace("_", " "))
