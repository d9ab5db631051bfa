"""One look for the page and the figures: the order of the methods, their colours and dashes, titles, axes."""

from collections.abc import Iterable, Mapping
from typing import Any

# key: colour (readable on white and on black), dashes, whether it is shown at first
METHODS: dict[str, tuple[str, str, bool]] = {
    "opf": ("#2f7ed8", "", True),
    "fp": ("#e07b00", "", True),
    "morbit": ("#d6336c", "", True),
    "fp_apart": ("#1a9e6c", "", True),
    "adaptive": ("#8a8f98", "", True),
    "morbit_1": ("#d6336c", "2 3", False),
    "morbit_60": ("#9b51e0", "6 3", False),
    "morbit_exact": ("#9b51e0", "2 3", False),
    "opf_printed": ("#2f7ed8", "2 3", True),
    "fp_printed": ("#e07b00", "2 3", True),
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


def styles(methods: Iterable[str]) -> dict[str, dict[str, Any]]:
    """key: colour, dash, shown; in the order of the legend, unknown methods last."""
    found = set(methods)
    known = {key: METHODS[key] for key in METHODS if key in found}
    others = sorted(found - set(METHODS))
    known |= {key: (SPARE[i % len(SPARE)], "", True) for i, key in enumerate(others)}
    return {key: {"colour": c, "dash": dash, "shown": shown} for key, (c, dash, shown) in known.items()}


def in_order(datasets: Iterable[str]) -> list[str]:
    """Data sets in the order of the paper's panels, others after them."""
    found = set(datasets)
    return [name for name in DATASETS if name in found] + sorted(found - set(DATASETS))


def group_of(run: Mapping[str, Any]) -> str:
    """What a run is drawn with: its figure, or its experiment where it belongs to none of the paper's two."""
    if run["figure"] in FIGURES:
        return run["figure"]
    name = str(run["experiment"])
    return DRAWN_WITH.get(name, name)


def title_of(group: str) -> str:
    return (FIGURES | OTHERS).get(group, group.replace("_", " "))
