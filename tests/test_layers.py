"""The flow line, kept true: what each module may import, and that README and CONTRIBUTING state the same line."""

import ast
import importlib
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1] / "bisaddle"
LINE = "sets -> problem -> oracle -> schedules, theory, methods -> certificate -> run -> report"

# layer: the layers it may import, itself always; "methods.base" allows that one module of a layer.
# A layer is a module or a subpackage directly under bisaddle/.
ALLOWED = {
    "lazy": set(),
    "spelling": set(),
    "devices": set(),
    "trees": {"devices"},
    "programs": {"devices"},
    "showing": set(),
    # rows in chunks: arrays only, no problem
    "streams": {"lazy", "devices", "trees", "programs"},
    "sets": {"showing", "trees", "programs"},
    "problem": {"showing", "trees", "sets"},
    "oracle": {"devices", "trees", "programs", "streams", "sets", "problem"},
    "schedules": {"showing", "trees", "sets", "problem"},
    "theory": {"trees", "programs", "sets", "problem", "oracle", "schedules"},
    "methods": {"showing", "lazy", "devices", "trees", "sets", "problem", "oracle", "schedules", "theory"},
    # a certificate never trusts the method that it judges
    "certificate": {"showing", "trees", "sets", "problem", "programs", "oracle"},
    # nor does an audit trust the certificate: it shares the problem, its sets and the switch of the BLAS
    "auditing": {"programs", "sets", "problem"},
    "apps": {"lazy", "devices", "trees", "sets", "problem", "streams"},
    # rows for apps, never a problem: "apps.multitask" generates the synthetic ones
    "datasets": {"apps", "spelling"},
    # what is made of finished runs: words, figures, a page; from columns and records, so that a Result can plot itself
    "report": {"trees"},
}
ALLOWED["run"] = set(ALLOWED) - {"apps", "datasets"} | {"parallel.keeping"}
ALLOWED["parallel"] = {"devices", "trees", "programs", "problem", "oracle"}
# applied people's door: problems of apps, solved by a run
ALLOWED["estimators"] = {"trees", "sets", "problem", "oracle", "certificate", "apps", "run"}
ALLOWED["experiments"] = set(ALLOWED)
ALLOWED["cli"] = set(ALLOWED)
ALLOWED["__main__"] = {"cli"}

# what a module may import when it is loaded; extras are imported inside the function that needs them
CORE = {"jax", "jaxtyping", "equinox", "numpy", "scipy", "threadpoolctl"}
# the command line and the estimators are nothing without their extras, and say so where they start
EXTRAS = {"cli": {"click"}, "estimators": {"sklearn"}}
# modules that may only be imported inside functions, since they import back or need an extra
LAZY = {("run", "report"), ("run", "parallel")}


def _modules():
    for path in sorted(ROOT.rglob("*.py")):
        parts = path.relative_to(ROOT).with_suffix("").parts
        yield ".".join(part for part in parts if part != "__init__"), path


MODULES = dict(_modules())


def _imports(name, path):
    """(dotted name below bisaddle or of a library, whether inside a function) for every import of a module"""
    package = ["bisaddle", *name.split(".")] if path.name == "__init__.py" else ["bisaddle", *name.split(".")[:-1]]
    package = [part for part in package if part]
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    functions = [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]
    lazy = {id(inner) for function in functions for inner in ast.walk(function)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            source = ".".join([*base, *([node.module] if node.module else [])])
            # `from bisaddle import trees` imports the module; `from bisaddle.trees import dot` a name of it
            found = [f"{source}.{a.name}" if _is_module(f"{source}.{a.name}") else source for a in node.names]
        else:
            continue
        for target in found:
            yield target, id(node) in lazy


def _is_module(dotted):
    return dotted.removeprefix("bisaddle.") in MODULES if dotted.startswith("bisaddle.") else False


def _layer(name):
    return name.split(".")[0]


def _within(target, allowed):
    return any(target == name or target.startswith(f"{name}.") for name in allowed)


def test_the_table_names_every_layer_of_the_package():
    layers = {_layer(name) for name in MODULES if name}
    unknown = sorted(layers - set(ALLOWED))
    assert not unknown, f"add {unknown} to ALLOWED in tests/test_layers.py, with the layers that they may import"


@pytest.mark.parametrize("name", [name for name in MODULES if name])
def test_a_module_imports_only_layers_before_it(name):
    layer = _layer(name)
    allowed = ALLOWED.get(layer, set()) | {layer}
    for target, lazy in _imports(name, MODULES[name]):
        if target.split(".")[0] != "bisaddle":
            continue
        assert target != "bisaddle", f"{name} imports the top of the package; import the module that defines the name"
        inner = target.removeprefix("bisaddle.")
        assert _within(inner, allowed), f"{name} imports {inner}, but {layer} may import only {sorted(allowed)}"
        assert lazy or (layer, _layer(inner)) not in LAZY, f"{name} must import {inner} inside a function"


@pytest.mark.parametrize("name", MODULES)
def test_loading_a_module_needs_only_the_core_dependencies(name):
    for target, lazy in _imports(name, MODULES[name]):
        library = target.split(".")[0]
        if library == "bisaddle" or library in sys.stdlib_module_names or lazy:
            continue
        assert library in CORE | EXTRAS.get(_layer(name), set()), (
            f"{name or '__init__'} imports {library} when loaded; import it where it is used"
        )


def _functions(path):
    tree = ast.parse(path.read_text(encoding="utf-8"), str(path))
    return [node for node in ast.walk(tree) if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)]


SOURCES = [path for folder in ("bisaddle", "tests", "benchmarks") for path in (ROOT.parent / folder).rglob("*.py")]


def test_files_and_functions_are_short_and_take_few_arguments():
    for path in SOURCES:
        length = len(path.read_text(encoding="utf-8").splitlines())
        assert length <= 400, f"{path} has {length} lines; the limit is 400"
        for node in _functions(path):
            length, given = (node.end_lineno or 0) - node.lineno + 1, node.args
            assert length <= 80, f"{node.name} in {path} has {length} lines; the limit is 80"
            count = len([*given.posonlyargs, *given.args, *given.kwonlyargs])
            assert count <= 15, f"{node.name} in {path} has {count} parameters; the limit is 15"


def test_a_type_check_is_left_out_seldom_and_with_a_reason():
    lines = [line for path in MODULES.values() for line in path.read_text(encoding="utf-8").splitlines()]
    ignored = [line for line in lines if "pyright: ignore" in line]
    assert len(ignored) <= 10
    assert all(re.search(r"pyright: ignore\[\w+\]", line) for line in ignored)


def test_the_table_has_no_cycle_but_the_lazy_ones():
    edges = {layer: {_layer(name) for name in names} for layer, names in ALLOWED.items()}
    for importer, imported in LAZY:
        edges[importer].discard(imported)
    placed: set[str] = set()
    while len(placed) < len(edges):
        ready = {layer for layer, names in edges.items() if layer not in placed and names <= placed}
        assert ready, f"these layers import one another: {sorted(set(edges) - placed)}"
        placed |= ready


@pytest.mark.parametrize("page", ["README.md", "CONTRIBUTING.md", "docs/architecture.md"])
def test_the_pages_state_the_line_of_the_table(page):
    assert LINE in (ROOT.parent / page).read_text(encoding="utf-8")
    order = LINE.replace(",", " ->").split(" -> ")
    for i, layer in enumerate(order[:-1]):  # report draws columns, and may be imported by a run
        assert not ALLOWED[layer] & set(order[i + 1 : -1]) - {"theory"}, layer


def test_certificates_stand_apart_from_methods_and_the_loop():
    for layer in ("certificate", *ALLOWED["certificate"]):
        assert not ALLOWED[layer] & {"methods", "schedules", "run"}


def test_a_stray_import_is_caught(tmp_path):
    module = tmp_path / "certificate.py"
    module.write_text("import bisaddle\nfrom bisaddle import methods\ndef f():\n    from .methods import base\n")
    found = list(_imports("certificate", module))
    assert found == [("bisaddle", False), ("bisaddle.methods", False), ("bisaddle.methods.base", True)]
    assert not _within("methods", ALLOWED["certificate"])


@pytest.mark.parametrize("stub", [path.relative_to(ROOT.parent) for path in sorted(ROOT.rglob("*.pyi"))], ids=str)
def test_a_package_gives_lazily_the_names_that_it_declares(stub):
    package = ".".join(stub.parent.parts)
    module = importlib.import_module(package)
    listed = ast.parse((ROOT.parent / stub).read_text(encoding="utf-8")).body
    imports = [node for node in listed if isinstance(node, ast.ImportFrom)]
    names = {alias.name: node.module for node in imports for alias in node.names if alias.asname == alias.name}
    assert set(module.__all__) == set(names) <= set(dir(module))
    for name, home in names.items():
        here = f"{package}.{name}"
        expected = importlib.import_module(here) if home == package else getattr(importlib.import_module(home), name)
        assert getattr(module, name) is expected
    with pytest.raises(AttributeError, match="no attribute 'solver'"):
        _ = module.solver


def test_help_and_completion_do_not_import_jax():
    code = "import sys, bisaddle.cli.app; assert 'jax' not in sys.modules and 'rich' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT.parent)})


def test_every_package_of_the_line_can_be_reached_and_solve_is_the_function():
    code = (
        "import bisaddle.run.solve, bisaddle.run.result, bisaddle as bs; from bisaddle import solve\n"
        "assert callable(solve) and solve is bs.solve\n"
        "assert bs.report.html and bs.experiments.run and bs.sets.Box and bs.theory and bs.apps and bs.datasets"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={**os.environ, "PYTHONPATH": str(ROOT.parent)})
