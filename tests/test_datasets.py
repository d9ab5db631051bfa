"""Data sets as tasks: split, standardisation, recipes and bad input; real files where BISADDLE_DATA has them."""

import csv
import json
import os
import sys

import numpy as np
import pytest

import bisaddle as bs
from bisaddle.datasets import ContentError, DataError, MissingFileError, TaskError, TruncatedFileError, nlsy79, record
from bisaddle.datasets.record import Group

real = pytest.mark.skipif(
    "BISADDLE_DATA" not in os.environ, reason="needs the files: set BISADDLE_DATA to their folder"
)


@pytest.fixture
def alone(monkeypatch, tmp_path):
    """no folder but tmp_path, no cache, no download"""
    monkeypatch.delenv("BISADDLE_DATA", raising=False)
    monkeypatch.setattr("bisaddle.datasets.files.cache", lambda: None)
    return tmp_path


def _plain(A, b, seed, parts):
    """The default configuration, as its text has it: perm, array_split, three quarters train, pooled moments."""
    perms = np.array_split(np.random.default_rng(seed).permutation(len(b)), parts)
    cuts = [(perm[: int(0.75 * len(perm))], perm[int(0.75 * len(perm)) :]) for perm in perms]
    rows = np.concatenate([train for train, _ in cuts])
    mean, deviation = A[rows].mean(0), A[rows].std(0)
    scaled = np.zeros_like(A)
    for j in range(A.shape[1]):
        if deviation[j] > 0:
            scaled[:, j] = (A[:, j] - mean[j]) / deviation[j]
    target = (b - b[rows].mean()) / b[rows].std()
    return [(scaled[train], target[train], scaled[valid], target[valid]) for train, valid in cuts]


def _assert_same(found, expected):
    assert len(found) == len(expected)
    for task, other in zip(found, expected, strict=True):
        for array, wanted in zip(task, other, strict=True):
            assert array.dtype == np.float64 and array.shape == wanted.shape
            np.testing.assert_allclose(array, wanted, rtol=1e-12, atol=1e-13)


def _build(groups, **options):
    chosen = {"split": "even", "tasks": None, "train": 0.75, "standardize": ("features", "targets"), "seed": 0}
    names = [f"x{j}" for j in range(groups[0].features.shape[1])]
    return record.build("some", "some rows", groups, names, record.Choices(**{**chosen, **options}), config={})


def _groups(*sizes, width=3):
    rng = np.random.default_rng(5)
    return [Group(f"g{i}", rng.normal(2, 3, (n, width)), rng.normal(7, 2, n)) for i, n in enumerate(sizes)]


@pytest.mark.parametrize("seed", [0, 3])
def test_the_even_split_is_the_default_configuration(seed):
    groups = _groups(40, 63)
    groups[0].features[:, 1] = groups[1].features[:, 1] = 0.1  # a constant whose computed deviation is not exactly 0
    A, b = np.concatenate([g.features for g in groups]), np.concatenate([g.targets for g in groups])
    made = _build(groups, seed=seed, tasks=4)
    expected = _plain(np.where(A == 0.1, 0.0, A), b, seed, 4)
    _assert_same(made.tasks, expected)
    assert all(np.all(task[i][:, 1] == 0) for task in made.tasks for i in (0, 2))
    assert made.task_names == ("part 1", "part 2", "part 3", "part 4")


def test_the_natural_split_shuffles_each_group_by_itself():
    groups = _groups(40, 63)
    made = _build(groups, split="natural", standardize=(), seed=2)
    assert made.task_names == ("g0", "g1")
    for task, group in zip(made.tasks, groups, strict=True):
        perm = np.random.default_rng(2).permutation(len(group.targets))
        cut = int(0.75 * len(perm))
        assert np.array_equal(np.concatenate([task[0], task[2]]), group.features[perm])
        assert np.array_equal(task[1], group.targets[perm[:cut]]) and len(task[3]) == len(perm) - cut


@pytest.mark.parametrize("chosen", [(), ("features",), ("targets",), ("targets", "features")])
def test_only_what_is_asked_for_is_standardised_by_pooled_training_rows(chosen):
    made = _build(_groups(80, 40), split="natural", standardize=chosen)
    A, b = (np.concatenate([task[i] for task in made.tasks]) for i in (0, 1))
    for name, pooled in (("features", A), ("targets", b)):
        standard = np.allclose(pooled.mean(0), 0, atol=1e-12) and np.allclose(pooled.std(0), 1)
        assert standard == (name in chosen)
    assert made.config["standardize"] == list(chosen)
    assert ("target_deviation" in made.config) == ("targets" in chosen)


def test_a_dataset_cannot_be_changed():
    made = _build(_groups(20, 20))
    with pytest.raises(ValueError, match="read-only"):
        made.tasks[0][0][0, 0] = 1.0
    with pytest.raises(AttributeError):
        made.name = "other"
    made.config["seed"] = 99
    assert made.config["seed"] == 0


@pytest.mark.parametrize("name, options", [("synthetic", {"n": 60, "d": 4, "tasks": 3}), ("diabetes", {"tasks": 3})])
def test_a_dataset_goes_straight_into_the_application(name, options):
    made = bs.datasets.load(name, **options)
    problem, start = bs.apps.multitask.regression(made.tasks)
    assert start.theta.shape == (3, len(made.features))
    assert np.isfinite(problem.upper(start.x, start.theta, start.y, problem.data))
    config = json.loads(json.dumps(made.config))
    assert config["split"] in made.summary() and made.label in made.summary() and made.label in repr(made)
    assert config["train_rows"] == [len(task[0]) for task in made.tasks]
    assert config["rows"] == sum(config["train_rows"]) + sum(config["valid_rows"])


def test_synthetic_has_the_rows_of_the_application_and_its_options():
    made = bs.datasets.load("synthetic", n=90, d=4, tasks=3, noise=0.2, seed=4, standardize=())
    plain = bs.apps.multitask.synthetic(90, 4, 3, 0.2, 4)
    for task, other in zip(made.tasks, plain, strict=True):
        rows = [np.column_stack([np.r_[A, V], np.r_[b, c]]) for A, b, V, c in (task, other)]
        assert np.array_equal(*(table[np.argsort(table[:, 0])] for table in rows))
    assert made.config | {"n": 90, "d": 4, "noise": 0.2, "seed": 4, "split": "natural"} == made.config
    mixed = bs.datasets.load("synthetic", n=90, d=4, tasks=3, split="even")
    assert mixed.task_names[0] == "part 1" and len(mixed.tasks) == 3


def test_the_default_synthetic_set_has_the_papers_size():
    made = bs.datasets.load("synthetic")
    assert [task[0].shape for task in made.tasks] == [(750, 100)] * 5
    assert made.config["noise"] == 0.1


def test_diabetes_is_split_evenly_or_by_sex():
    from sklearn.datasets import load_diabetes

    A, b = load_diabetes(return_X_y=True, scaled=False)
    _assert_same(bs.datasets.load("diabetes", seed=1).tasks, _plain(A, b, 1, 5))
    natural = bs.datasets.load("diabetes", split="natural")
    assert [sum(pair) for pair in zip(*(natural.config[k] for k in ("train_rows", "valid_rows")), strict=True)] == [
        235,
        207,
    ]


def test_diabetes_without_scikit_learn_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "sklearn", None)
    with pytest.raises(bs.datasets.MissingLibraryError, match=r"bisaddle\[sklearn\]"):
        bs.datasets.load("diabetes")


BAD_OPTIONS = [
    ("nothing", {}, "no data set is called 'nothing'; there are synthetic, mtl"),
    ("mtl", {"noise": 1.0}, "mtl has no option noise; it has split"),
    ("mtl", {"split": "odd"}, "split must be"),
    ("mtl", {"tasks": 1}, "tasks must be an integer >= 2"),
    ("diabetes", {"train": 1.0}, "train must lie between"),
    ("diabetes", {"seed": -1}, "seed must be"),
    ("diabetes", {"standardize": ("rows",)}, "standardize must be"),
    ("diabetes", {"standardize": "features"}, "standardize must be"),
    ("diabetes", {"split": "natural", "tasks": 3}, "has 2 tasks"),
    ("synthetic", {"n": 11, "tasks": 2}, "multiple of tasks"),
    ("synthetic", {"d": 0}, "d must be"),
    ("synthetic", {"noise": -1.0}, "noise must be"),
    ("nlsy79", {"version": "old"}, "version must be"),
    ("nlsy79", {"reading": "C"}, "reading must be"),
]


@pytest.mark.parametrize("name, options, message", BAD_OPTIONS)
def test_a_wrong_option_is_refused_before_any_file(alone, name, options, message):
    with pytest.raises(ValueError, match=message):
        bs.datasets.load(name, **options)


def test_a_task_that_is_too_small_is_named():
    with pytest.raises(TaskError, match=r"task g1: 1 rows found; at least 2 are needed"):
        _build(_groups(20, 1), split="natural")
    with pytest.raises(TaskError, match="at least 10 are needed"):
        _build(_groups(20, 9), split="natural", train=0.1)


# the raw extract of NLSY79, made up


def _extract(path, rows=12686, **changed):
    rng = np.random.default_rng(0)
    table = {code: rng.integers(-5, 5, rows) for code in nlsy79.CODES.values()}
    for column in nlsy79.ANSWERS:  # most rows have most answers
        table[nlsy79.CODES[column]] = np.where(rng.uniform(size=rows) < 0.08, -4, rng.integers(0, 9, rows))
    table[nlsy79.CODES["age"]] = rng.integers(14, 23, rows)
    table[nlsy79.CODES["gender"]] = rng.integers(1, 3, rows)
    table[nlsy79.CODES["income90"]] = rng.choice([-5, 0, 12000, 31500], rows)
    table[nlsy79.CODES["industry"]] = rng.choice([-4, 9, 10, 39, 40, 65, 399, 400, 712, 715, 721, 932, 933, 990], rows)
    table = {code: column.astype(object) for code, column in {"R0000100": np.arange(rows), **table}.items()}
    for column, value in changed.items():
        table[nlsy79.CODES[column]][7] = value
    with open(path, "w", newline="") as file:
        writer = csv.writer(file, quoting=csv.QUOTE_NONNUMERIC)
        writer.writerow(table)
        writer.writerows(zip(*table.values(), strict=True))
    return table


@pytest.mark.parametrize("reading", ["A", "B"])
def test_the_raw_extract_follows_the_recipe_row_by_row(alone, reading):
    table = _extract(alone / "nlsy79_raw.csv")
    code, rows, incomes, genders = nlsy79.CODES, [], [], []
    for i in range(12686):
        person = {name: int(table[code[name]][i]) for name in code}
        answers = [person[name] for name in nlsy79.ANSWERS]
        if min(person["income90"], *answers) < 0:
            continue
        job = person["industry"]
        kinds = [float(low <= job <= high) for low, high in nlsy79.INDUSTRIES.values()]
        rows.append([person["age"] if reading == "B" else 1, *answers, *kinds])
        incomes.append(person["income90"] / 10000)
        genders.append(person["gender"])
    A, b = np.array(rows, dtype=float), np.array(incomes)
    made = bs.datasets.load("nlsy79", version="raw", reading=reading, directory=alone)
    _assert_same(made.tasks, _plain(A, b, 0, 5))
    assert len(made.features) == 21 and f"raw NLS Investigator extract, {len(b)} rows" in made.label
    assert f"reading {reading}" in made.label and "6213" in made.label and made.config["version"] == "raw"
    natural = bs.datasets.load("nlsy79", version="raw", split="natural", directory=alone)
    assert natural.task_names == ("male", "female")
    assert len(natural.tasks[0][0]) == int(0.75 * genders.count(1))


BAD_EXTRACTS = [
    ({"rows": 500}, TruncatedFileError, "500 rows found, 12686 needed"),
    ({"rows": 12687}, ContentError, "12687 rows; 12686 are needed"),
    ({"gender": 3}, ContentError, r"column R0214800, row 8: 3 found"),
    ({"afqt89": "many"}, ContentError, r"column R0618300, row 8: 'many' found; a finite number"),
    ({"age": float("nan")}, ContentError, r"column R0000600, row 8: 'nan' found"),
]


@pytest.mark.parametrize("change, error, message", BAD_EXTRACTS)
def test_a_bad_extract_is_refused_by_name(alone, change, error, message):
    _extract(alone / "nlsy79_raw.csv", **change)
    with pytest.raises(error, match=message) as caught:
        bs.datasets.load("nlsy79", version="raw", directory=alone)
    assert str(alone / "nlsy79_raw.csv") in str(caught.value)


def test_without_the_extract_the_message_says_how_to_make_it(alone):
    with pytest.raises(MissingFileError, match=r"nlsy79_raw.csv is missing(.|\n)*nlsinfo(.|\n)*R3279401"):
        bs.datasets.load("nlsy79", version="raw", directory=alone)


# the user's own CSV


def _write(folder, *lines):
    path = folder / "own.csv"
    path.write_text("\n".join(lines) + "\n")
    return path


ROWS = ["region,size,rooms,price", *(f"{'north' if i % 3 else 'south'},{i},{i * i % 7},{10 + i}" for i in range(12))]


def test_a_csv_has_a_task_for_each_value_of_a_column(tmp_path):
    made = bs.datasets.from_csv(_write(tmp_path, *ROWS), target="price", task_column="region", standardize=())
    assert made.task_names == ("south", "north") and made.features == ("size", "rooms")
    assert made.config["train_rows"] == [3, 6] and made.config["valid_rows"] == [1, 2]
    assert sorted(np.concatenate([made.tasks[0][1], made.tasks[0][3]])) == [10, 13, 16, 19]
    narrow = bs.datasets.from_csv(tmp_path / "own.csv", "price", "region", features=["size"])
    assert narrow.tasks[0][0].shape == (3, 1) and list(narrow.config["files"]) == ["own.csv"]


BAD_TABLES = [
    (ROWS, {"task_column": "county"}, ContentError, "no column county; it has region, size, rooms, price"),
    (ROWS, {"target": "cost"}, ContentError, "no column cost"),
    (ROWS, {"features": ["size", "price"]}, ValueError, "must be different columns"),
    (ROWS[:2], {}, TaskError, r"one task only \(south\)"),
    (ROWS[:3], {}, TaskError, "task south: 1 rows found"),
    ([*ROWS, "north,nan,1,2"], {}, ContentError, "column size, row 13: 'nan' found; a finite number"),
    ([*ROWS, "north,,1,2", "north,,1,2"], {}, ContentError, r"column size, row 13: '' found.*2 such rows"),
    ([*ROWS, "north,big,1,2"], {}, ContentError, "'big' found"),
    ([*ROWS, "north,1,inf,2"], {}, ContentError, "'inf' found"),
    ([*ROWS, "north,1,2"], {}, ContentError, "line 14: 3 values found; 4 are needed"),
    ([*ROWS, ",1,2,3"], {}, ContentError, "column region, row 13: nothing found"),
    (["region,region", "a,b"], {}, ContentError, "two columns of one name"),
    (["region,price", "a,1", "a,2", "b,1", "b,1"], {}, ContentError, "at least one feature"),
    (["region,price"], {}, TruncatedFileError, "1 lines found"),
]


@pytest.mark.parametrize("lines, options, error, message", BAD_TABLES)
def test_a_bad_csv_is_refused_with_its_row_and_column(tmp_path, lines, options, error, message):
    with pytest.raises(error, match=message) as caught:
        bs.datasets.from_csv(_write(tmp_path, *lines), **{"target": "price", "task_column": "region", **options})
    assert error is ValueError or isinstance(caught.value, DataError)


def test_a_csv_that_is_no_text_or_not_there(tmp_path):
    (tmp_path / "own.csv").write_bytes(b"region,price\n\xff\xfe")
    with pytest.raises(ContentError, match="not text: byte 13 found; UTF-8"):
        bs.datasets.from_csv(tmp_path / "own.csv", "price", "region")
    with pytest.raises(MissingFileError, match="No such file"):
        bs.datasets.from_csv(tmp_path / "none.csv", "price", "region")


# the real files


@real
def test_mtl_is_the_five_sets_as_scikit_learn_reads_them():
    from sklearn.datasets import load_svmlight_file

    names = ("bodyfat", "housing", "mg", "mpg", "space_ga")
    sets = [load_svmlight_file(os.path.join(os.environ["BISADDLE_DATA"], f"{n}_scale"), n_features=14) for n in names]
    A, b = np.concatenate([X.toarray() for X, _ in sets]), np.concatenate([y for _, y in sets])
    assert A.shape == (5642, 14)
    made = bs.datasets.load("mtl", seed=2)
    _assert_same(made.tasks, _plain(A, b, 2, 5))
    natural = bs.datasets.load("mtl", split="natural", standardize=())
    assert natural.task_names == names
    assert natural.config["train_rows"] == [189, 379, 1038, 294, 2330]
    assert natural.tasks[2][0][:, 6:].max() == 0


@real
def test_nlsy79_public_has_the_figures_of_its_description():
    made = bs.datasets.load("nlsy79", standardize=())
    A = np.concatenate([np.r_[task[0], task[2]] for task in made.tasks])
    b = np.concatenate([np.r_[task[1], task[3]] for task in made.tasks])
    assert A.shape == (4908, 21) and np.linalg.matrix_rank(A) == 21 and np.sum(b == 0) == 256
    X = np.column_stack([A, np.ones(len(b))])
    residual = b - X @ np.linalg.lstsq(X, b, rcond=None)[0]
    assert 1 - residual.var() / b.var() == pytest.approx(0.238, abs=5e-4)
    assert "public 4908-row stand-in" in made.label and "paper: 6213" in made.label
    other = bs.datasets.load("nlsy79", reading="A", standardize=())
    rows = np.concatenate([np.r_[task[0], task[2]] for task in other.tasks])
    assert rows.shape == (4908, 21) and np.linalg.matrix_rank(rows) == 20 and np.all(rows[:, 0] == 1)
    by_gender = bs.datasets.load("nlsy79", split="natural").config
    assert [a + b for a, b in zip(by_gender["train_rows"], by_gender["valid_rows"], strict=True)] == [2457, 2451]
