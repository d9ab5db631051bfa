"""Step sizes as they are written in a TOML file: numbers, or formulas such as "nu K^(-2/3)" spelled "nu * K^(-2/3)"."""

import ast
import math
import operator
from typing import Any

from bisaddle.experiments.errors import ExperimentError
from bisaddle.report.schema import shortened

Formula = float | int | str

# names that a formula may use beside the step sizes before it in ORDER
SYMBOLS = ("nu", "K", "T", "mu_g", "L_g", "L_yy")
ORDER = ("mu", "gamma", "tau", "alpha", "eta", "sigma")
# characters of a formula: none needs half as many, and a longer one may be too deep to parse
LONGEST = 200

_BINARY = {
    ast.Add: operator.add,
    ast.Sub: operator.sub,
    ast.Mult: operator.mul,
    ast.Div: operator.truediv,
    ast.Pow: operator.pow,
}
_UNARY = {ast.USub: operator.neg, ast.UAdd: operator.pos}


def parse(where: str, formula: Formula) -> ast.expr:
    """The tree of a formula; ExperimentError if it is more than + - * / ^, brackets, numbers and known names."""
    known, shown = (*SYMBOLS, *ORDER), shortened(formula)
    if isinstance(formula, bool) or not isinstance(formula, float | int | str):
        raise ExperimentError(f"{where} must be a number or a formula of {', '.join(known)}, given {shown}")
    if isinstance(formula, str) and len(formula) > LONGEST:
        raise ExperimentError(
            f"{where} must be a formula of at most {LONGEST} characters, given {len(formula)}: {shown}"
        )
    try:
        tree = ast.parse(str(formula).replace("^", "**"), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError) as error:
        raise ExperimentError(f'{where} must be a formula such as "nu * K^(-2/3)", given {shown}') from error
    for node in ast.walk(tree):
        if isinstance(node, ast.Name):
            if node.id not in known:
                raise ExperimentError(f"{where} may use {', '.join(known)}; {node.id!r} in {shown} is none of them")
        elif isinstance(node, ast.Constant):
            if isinstance(node.value, bool) or not isinstance(node.value, float | int):
                raise ExperimentError(f"{where} may use numbers, given {shortened(node.value)} in {shown}")
        elif not isinstance(node, (ast.BinOp, ast.UnaryOp, ast.Load, *_BINARY, *_UNARY)):
            raise ExperimentError(f"{where} may use + - * / ^ and brackets only, given {shown}")
    return tree


def uses(where: str, formula: Formula, name: str) -> bool:
    return any(isinstance(node, ast.Name) and node.id == name for node in ast.walk(parse(where, formula)))


def evaluate(where: str, formulas: dict[str, Formula], symbols: dict[str, float]) -> dict[str, float]:
    """The step sizes by name, in the order of ORDER: each may use those before it."""
    values: dict[str, float] = {}
    for name in (name for name in ORDER if name in formulas):
        place = f"{where}.{name} = {shortened(formulas[name])}"
        try:
            value = _value(parse(f"{where}.{name}", formulas[name]), {**symbols, **values})
        except KeyError as error:
            raise ExperimentError(
                f"{place} needs {error.args[0]}, which is not known there; "
                f"a step size may use those before it in {', '.join(ORDER)}"
            ) from error
        except (ArithmeticError, ValueError) as error:
            raise ExperimentError(f"{place} cannot be computed: {error}") from error
        if not isinstance(value, float | int) or not math.isfinite(value):
            raise ExperimentError(f"{place} must be a finite number, found {value}")
        values[name] = float(value)
    return values


def _value(node: ast.expr, values: dict[str, float]) -> Any:
    if isinstance(node, ast.Constant):
        number: Any = node.value  # parse lets nothing else pass
        return float(number)  # 9^9^9 as a whole number would take for ever
    if isinstance(node, ast.Name):
        return values[node.id]
    if isinstance(node, ast.UnaryOp):
        return _UNARY[type(node.op)](_value(node.operand, values))
    assert isinstance(node, ast.BinOp)
    return _BINARY[type(node.op)](_value(node.left, values), _value(node.right, values))
