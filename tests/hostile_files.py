"""Files that are wrong in one place: what stands there, by field, and what the message must name."""

import copy
import hashlib
from pathlib import Path
from typing import Any

MODEL = """
import sys
import jax.numpy as jnp
import bisaddle as bs

def plain():
    ball = bs.sets.L2Ball(1.0)
    def upper(x, theta, y, data):
        return jnp.sum(x * y) - jnp.sum(y**2)
    return bs.Problem(upper, None, ball, ball), bs.Point(x=jnp.ones(2) / 2, y=jnp.ones(2) / 2)

def leaves():
    sys.exit(0)

def leaves_when_called():
    problem, start = plain()
    return bs.Problem(lambda x, theta, y, data: sys.exit(0), None, problem.x_set, problem.y_set), start

def deep():
    return deep()

def raises():
    raise KeyError("the user's own key")

def no_pair():
    return plain()[0]
"""
TABLE = "region,price,rooms\n" + "".join(f"{'ab'[i % 2]},{i},{i * i}\n" for i in range(12))
COLUMNS = ("--task-column", "region", "--target", "price")
HUGE = int("9" * 400)


def nested(depth: int) -> Any:
    found: Any = 1
    for _ in range(depth):
        found = [found]
    return found


def result_file(folder: Path) -> dict[str, Any]:
    """A result of `solve --out` for the model above, as it is written."""
    array = {"dtype": "float64", "shape": [2], "values": [0.5, 0.5]}
    numbers = dict.fromkeys(
        ("gap", "x_gap", "y_gap", "error_bound", "value", "worst_value", "lower_error", "violation"), 0.1
    )
    return {
        "format": "bisaddle result 1",
        "problem": {
            "kind": "function",
            "function": "plain",
            "seed": None,
            "folder": str(folder),
            "file": str(folder / "model.py"),
            "sha256": hashlib.sha256(MODEL.encode()).hexdigest(),
        },
        "settings": {"tol": 1e-4, "max_steps": 10, "method": "GDA"},
        "status": "CERTIFIED",
        "point": {"x": array, "theta": None, "y": dict(array)},
        "certificate": numbers | {"measure": "projection", "error_is_bound": True, "sigma": 1.0, "tau": 1.0},
    }


def changed(document: Any, path: str, value: Any = ...) -> Any:
    """The document with another value at a path such as point.x.dtype; without a value, with nothing there."""
    document = copy.deepcopy(document)
    *places, last = path.split(".")
    inner = document
    for place in places:
        inner = inner[place]
    if value is ...:
        del inner[last]
    else:
        inner[last] = value
    return document


# values that no field of these kinds may have
NO_TEXT = (3, None, [], {}, True, ["a"], {"a": 1})
NO_NUMBER = ("1", [1.0], {}, True, [], "nan")
NO_WHOLE = ("1", 1.5, [1], {}, True, HUGE)
NO_TABLE = (3, "a", [], [1, 2], True)
NO_LIST = (3, "a", {}, True, None)
NO_FLAG = ("true", 1, None, [])

RESULT_FIELDS = {
    "problem": NO_TABLE,
    "problem.kind": (*NO_TEXT, "other"),
    "problem.function": NO_TEXT,
    "problem.file": NO_TEXT,
    "problem.seed": ("1", 1.5, [1], {}, True),
    "settings": NO_TABLE,
    "settings.tol": (*NO_NUMBER, None, HUGE),
    "point": NO_TABLE,
    "point.x": ("a", 3, True, [], {}),
    "point.x.dtype": (*NO_TEXT, "float99", "object", "U9", "complex128", "V10000000000"),
    "point.x.shape": (*NO_LIST, [3], [2.0], [-1], [[2]], ["2"], [10**12], [2, 1]),
    "point.x.values": (
        *NO_LIST,
        [0.5],
        ["a", "b"],
        [[0.5, 0.5]],
        [[0.5], [0.1, 0.2]],
        [{}, {}],
        [True, "x"],
        [HUGE, 1],
    ),
    "point.y": ("a", 3, None, [], {}),
    "certificate": NO_TABLE,
    "certificate.gap": NO_NUMBER,
    "certificate.violation": NO_NUMBER,
    "certificate.measure": (*NO_TEXT, "other"),
    "certificate.sigma": (*NO_NUMBER, None),
    "certificate.tau": (*NO_NUMBER, None),
    "certificate.error_is_bound": NO_FLAG,
    "format": (*NO_TEXT, "bisaddle result 99"),
}
# optional in a run
RUN_FIELDS = {
    "experiment": NO_TEXT,
    "dataset": NO_TEXT,
    "dataset_label": NO_TEXT,
    "method": NO_TEXT,
    "label": NO_TEXT,
    "figure": NO_TEXT,
    "nu": NO_NUMBER,
    "seed": NO_WHOLE,
    "steps": NO_WHOLE,
    "tuned": NO_FLAG,
    "partial": NO_FLAG,
    "config": (3, "a", [], True),
    "curve": (3, "a", [], True),
    "curve.gap": (*NO_LIST, [], ["a"], [{}], [1.0]),
    "curve.k": (*NO_LIST, [], [1.5], ["a"]),
    "curve.corner": (*NO_LIST, [], [1.5], ["a"]),
    "curve.gap_paper": (3, "a", {}, True, [1.0], ["a"]),
    "final": (3, "a", [1], True),
    "final.gap": NO_NUMBER,
    "final.corner": NO_FLAG,
    "final.alone": (3, "a", [1], True, {"gap": "a", "parted": 1}),
    "final.corner_sentence": NO_TEXT,
    "certificate": (3, "a", [1], True),
    "certificate.gap": NO_NUMBER,
    "certificate.x_gap": NO_NUMBER,
    "certificate.error_bound": NO_NUMBER,
    "certificate.measure": NO_TEXT,
}
NEEDED_OF_A_RUN = ("experiment", "dataset", "method", "nu", "seed", "config", "curve", "curve.gap", "curve.k")
TRIAL_FIELDS = {
    "setting": (3, "a", [], True, None),
    "cap": NO_NUMBER,
    "order": (3, "a", {}, True, None, [1]),
    "gaps": (3, "a", [], True, None, {"opf": "a"}),
    "corners": (3, "a", {}, True, [1]),
    "experiment": NO_TEXT,
}
# what stands in the small experiment, what is written instead, what the message names
TOML_CHANGES = (
    (
        "steps = 400",
        ("steps = 1_000_000_000_000", "steps = nan", "steps = [1]", 'steps = "4"', "steps = true"),
        "steps",
    ),
    ("every = 10", ("every = 0", "every = 1.5", "every = 1979-05-27"), "every"),
    ("seeds = [0, 1]", ("seeds = {a = 1}", 'seeds = ["0"]', "seeds = []", f"seeds = [{HUGE}]"), "seeds"),
    ('title = "small"', ("title = 3", "title = []", 'title = ""'), "title"),
    ('figure = "fig1"', ('figure = ["fig1"]', "figure = {}", "figure = 1"), "figure"),
    ('name = "synthetic"', ('name = ["synthetic"]', "name = {}", "name = 3"), "dataset"),
    ("n = 300", ("n = 1_000_000_000_000", "n = -3", 'n = "many"', "n = [1]", "n = nan", "n = 300\nm = 3"), "bad"),
    ("d = 6", ("d = 0", "d = 1.5", "d = 1_000_000_000"), "d "),
    ("radius = 2.0", ("radius = inf", "radius = nan", 'radius = "2"', f"radius = {HUGE}", "radius = true"), "radius"),
    ("radius = 2.0", ("lam = [1]", 'lam = ["0", "1"]', "lam = [nan, 1]", f"lam = [0, {HUGE}]"), "lam"),
    ("radius = 2.0", ('application = ["multitask"]', "application = {}", 'application = "x"'), "application"),
    (
        "nu = [0.1, 1.0, 10.0, 1000.0]",
        ("count = 1_000_000_000_000", "count = 1.5", "low = nan", "low = 1e400", f"high = {HUGE}", f"count = {HUGE}"),
        "tuning",
    ),
    ("nu = [0.1, 1.0, 10.0, 1000.0]", ("nu = {}", "nu = [[1]]", f"nu = [{HUGE}]", "nu = [nan]"), "tuning"),
    ("stride = 2", ("stride = 0", "stride = []", "stride = true"), "stride"),
    ("ridge = [0.1, 1.0]", ("ridge = [[1]]", 'ridge = ["a"]', "ridge = [nan]"), "ridge"),
    ('key = "opf"', ("key = 1", "key = []", "key = {}"), "key"),
    (
        'method = "OneSidedProjectionFree"',
        ('method = ["OneSidedProjectionFree"]', "method = {}", "method = 3", "method = [[[]]]"),
        "method",
    ),
    ("neumann = 10", ("neumann = [10]", "neumann = {}", 'neumann = "x"', f"neumann = {HUGE}"), "neumann"),
    ("tol = 1e-5", ("tol = 0", "tol = nan", "tol = 1e400", "tol = []", 'tol = "1"'), "tol"),
    (
        'mu = "nu * K^(-1/3)"',
        (
            'mu = "9^9^9"',
            'mu = "9^9^9^9^9"',
            'mu = "2^(2^(2^(2^9)))"',
            'mu = "' + "1+" * 20_000 + '1"',
            'mu = "' + "-" * 20_000 + '1"',
            'mu = "' + "(" * 300 + "1" + ")" * 300 + '"',
            f'mu = "{"9" * 400}"',
            f'mu = "nu * {"9" * 5000}"',
            f"mu = {HUGE}",
            'mu = ""',
            'mu = "nu\\u0000"',
            'mu = "lambda: 0"',
            'mu = "1 if nu else 2"',
            'mu = "1_0j"',
            "mu = []",
            "mu = true",
            "mu = nan",
            'mu = "nu" + 1',
        ),
        "",
    ),
    (
        "steps = 400",
        ("x = " + "[" * 5000 + "]" * 5000, "x = " + "[" * 200 + "]" * 200, "x = " + "{a=" * 50 + "1" + "}" * 50),
        "",
    ),
)
