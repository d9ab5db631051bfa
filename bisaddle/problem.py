"""Problem, Point, Constants, Derivatives: the mathematics, stated once."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from inspect import signature

import equinox as eqx
import jax
import numpy as np
from jaxtyping import PyTree

from bisaddle.sets.base import ConvexSet, Leaf, as_callable, as_leaf, number, traced
from bisaddle.sets.prox import Penalty
from bisaddle.showing import Shown, card, described as described, shown


def _as_arrays(tree: PyTree) -> PyTree:
    """Numbers and NumPy arrays become JAX arrays; anything else stays for the checks to name."""

    def convert(leaf):
        if not isinstance(leaf, np.ndarray | np.generic | float | int) or isinstance(leaf, np.ma.MaskedArray):
            return leaf
        try:
            return jax.device_put(np.asarray(leaf))  # not jnp.asarray, which compiles a program for every shape
        except (TypeError, OverflowError):  # text, dates, objects; whole numbers beyond 64 bits
            return leaf

    return jax.tree.map(convert, tree)


class Point(Shown):
    """(x, theta, y), each a pytree of arrays. theta is None if there is no lower level, y if there is no max player."""

    x: PyTree = eqx.field(converter=_as_arrays)
    theta: PyTree = eqx.field(converter=_as_arrays, default=None)
    y: PyTree = eqx.field(converter=_as_arrays, default=None)

    def _repr_html_(self) -> str:
        return card("Point", [(name, shown(value)) for name, value in self.shown_fields().items()])


def _pairs(given) -> tuple[tuple[str, str], ...]:
    try:
        return tuple((str(name), str(origin)) for name, origin in given)
    except (TypeError, ValueError) as error:
        raise ValueError(
            f'Constants: origin takes pairs (name of a constant, "exact" | "given" | "estimated"), given {given!r}'
        ) from error


def _constant(value) -> Leaf | None:
    return None if value is None else as_leaf(value, "Constants: a constant")


class Constants(Shown):
    """Constants of the paper's assumptions; None where unknown.

        mu_g I <= g_theta_theta <= L_g I,             |g_theta_x| <= C_thetax
        |d(g_theta_x)| <= L_g_thetax (|dx| + |dtheta|),     |d(g_theta_theta)| <= L_g_thetatheta (|dx| + |dtheta|)
        |d(f_x)|     <= L_xx |dx| + L_xtheta |dtheta| + L_xy |dy|              and f_theta, f_y likewise
        mu_y I <= -f_yy,       |f_theta(x, theta*(x), y)| <= C_theta
        D_X, D_Y               diameters of X and Y

    over x in X, y in Y, and every theta that the run meets. Upper bounds may be too large, never too small; mu_g and
    mu_y may be too small, never too large. origin: pairs (name, "exact" | "given" | "estimated"); constants it does not
    name were given. mu_y = 0: concave, but not strongly; None counts as 0 in bounds.
    """

    mu_g: Leaf | None = eqx.field(converter=_constant, default=None)
    L_g: Leaf | None = eqx.field(converter=_constant, default=None)
    L_yy: Leaf | None = eqx.field(converter=_constant, default=None)
    mu_y: Leaf | None = eqx.field(converter=_constant, default=None)
    L_xx: Leaf | None = eqx.field(converter=_constant, default=None)
    L_xtheta: Leaf | None = eqx.field(converter=_constant, default=None)
    L_xy: Leaf | None = eqx.field(converter=_constant, default=None)
    L_thetax: Leaf | None = eqx.field(converter=_constant, default=None)
    L_thetatheta: Leaf | None = eqx.field(converter=_constant, default=None)
    L_thetay: Leaf | None = eqx.field(converter=_constant, default=None)
    L_yx: Leaf | None = eqx.field(converter=_constant, default=None)
    L_ytheta: Leaf | None = eqx.field(converter=_constant, default=None)
    C_thetax: Leaf | None = eqx.field(converter=_constant, default=None)
    L_g_thetax: Leaf | None = eqx.field(converter=_constant, default=None)
    L_g_thetatheta: Leaf | None = eqx.field(converter=_constant, default=None)
    C_theta: Leaf | None = eqx.field(converter=_constant, default=None)
    D_X: Leaf | None = eqx.field(converter=_constant, default=None)
    D_Y: Leaf | None = eqx.field(converter=_constant, default=None)
    origin: tuple[tuple[str, str], ...] = eqx.field(static=True, converter=_pairs, default=())

    def __check_init__(self):
        for name, value in self.items():
            if value is None or traced(value):
                continue
            positive = name in ("mu_g", "L_g")
            if value.shape != () or not np.isfinite(value) or value < 0 or (positive and value == 0):
                floor = "> 0" if positive else ">= 0"
                raise ValueError(f"Constants: {name} must be a finite number {floor}, given {value}")
        for low, high in (("mu_g", "L_g"), ("mu_y", "L_yy")):
            least, most = getattr(self, low), getattr(self, high)
            if least is not None and most is not None and not traced(least) and not traced(most) and least > most:
                raise ValueError(f"Constants: {low} <= {high} is needed, given {low} = {least} and {high} = {most}")
        for name, origin in self.origin:
            if name not in dict(self.items()) or origin not in ("exact", "given", "estimated"):
                raise ValueError(
                    'Constants: origin takes pairs (name of a constant, "exact" | "given" | "estimated"), '
                    f"given ({name!r}, {origin!r})"
                )

    def items(self) -> list[tuple[str, Leaf | None]]:
        """(name, value) of every constant, in the order of the fields."""
        return [(name, value) for name, value in vars(self).items() if name != "origin"]

    def origin_of(self, name: str) -> str | None:
        """Whether a constant is "exact", "given" or "estimated"; None if it is unknown."""
        return None if getattr(self, name) is None else dict(self.origin).get(name, "given")


class Derivatives(Shown):
    """Derivatives written by hand; those left None come from automatic differentiation.

        f_x, f_theta, f_y   (x, theta, y, data) -> the gradient of the upper function in that variable
        g_theta             (x, theta, data)    -> the gradient of the lower function in theta
        g_theta_theta       (x, theta, w, data) -> Hessian times w, in the shape of theta
        g_theta_x           (x, theta, w, data) -> gradient in x of <g_theta(x, theta), w>, in the shape of x

    bs.check_derivatives compares them with finite differences.
    """

    f_x: Callable | None = eqx.field(converter=as_callable, default=None)
    f_theta: Callable | None = eqx.field(converter=as_callable, default=None)
    f_y: Callable | None = eqx.field(converter=as_callable, default=None)
    g_theta: Callable | None = eqx.field(converter=as_callable, default=None)
    g_theta_theta: Callable | None = eqx.field(converter=as_callable, default=None)
    g_theta_x: Callable | None = eqx.field(converter=as_callable, default=None)

    def __check_init__(self):
        for name, function in vars(self).items():
            if function is not None and not callable(function):
                raise ValueError(f"Derivatives: {name} must be a function, given {type(function).__name__}")


@cache
def _unknown() -> Constants:
    return Constants()


@cache
def _automatic() -> Derivatives:
    return Derivatives()


# what upper and lower may be given, in this order
ARGUMENTS = {"upper": ("x", "theta", "y", "data"), "lower": ("x", "theta", "data")}


class Picked(Shown):
    """A function of only some of (x, theta, y, data), made one of all of them; takes: their places."""

    function: Callable
    takes: tuple[int, ...] = eqx.field(static=True)

    def __call__(self, *arguments):
        return self.function(*(arguments[i] for i in self.takes))

    def __repr__(self) -> str:
        return shown(self.function)


def _picked(name: str, function: Callable, present: tuple[str, ...]) -> Callable:
    """upper or lower as a function of all its arguments, whichever of them it is written for.

    By name, if it names them as they are named here; else by their number, which must be that of all arguments or of
    those that the problem has (`present`). Whatever takes any number of them gets all.
    """
    every = ARGUMENTS[name]
    try:
        parameters = [p for p in signature(function).parameters.values() if p.default is p.empty]
    except (TypeError, ValueError):  # a callable that does not say what it takes
        return function
    if any(p.kind in (p.VAR_POSITIONAL, p.VAR_KEYWORD, p.KEYWORD_ONLY) for p in parameters):
        return function
    names, count = tuple(p.name for p in parameters), len(parameters)
    if count == len(every):
        return function
    if names == tuple(a for a in every if a in names):
        takes = names
    elif count == len(present) and all(a == b or a not in every for a, b in zip(names, present, strict=True)):
        takes = present  # under names of its own; one of ours in another place would be a mistake
    else:
        raise ValueError(
            f"Problem: {name} takes {', '.join(every)}, or those of them that it needs, by these names and in this "
            f"order; given a function of ({', '.join(names)})"
        )
    if name == "lower" and "theta" not in takes:
        raise ValueError(
            f"Problem: lower is minimised over theta, given a function of ({', '.join(names)}); use g(x, theta), or "
            "lower=None for a problem without a lower level"
        )
    return Picked(function, tuple(every.index(a) for a in takes))


def _set_instead(given) -> str:
    """What to use for something that is no set."""
    if isinstance(given, dict | list | tuple):
        return "; use bs.sets.Product({...}) with a set for every part"
    return ""


@jax.tree_util.register_dataclass
@dataclass(frozen=True)
class Functions:
    """The functions of a problem and their data, without its sets: what a program of derivatives is compiled for."""

    upper: Callable
    lower: Callable | None
    data: PyTree
    derivatives: Derivatives


class Problem(Shown):
    """min_{x in X} max_{y in Y} f(x, theta*(x), y),   theta*(x) = argmin_theta g(x, theta)

    upper        f(x, theta, y, data) -> scalar, concave in y
    lower        g(x, theta, data) -> scalar, strongly convex in theta; None: a plain saddle problem
                 Both may leave out what they have no use for: f(x, y), f(x, theta, y), g(x, theta)
    x_set        the set X; it matches the pytree of x (sets.Product for several blocks)
    y_set        the set Y, likewise; or a penalty h such as sets.Entropy, for min_x max_y f - h; None: a plain bilevel
                 problem
    data         a pytree of arrays, traced (arrays captured in a closure make compilation slow)
    constants    Constants, if known
    derivatives  Derivatives, if written by hand
    noise        a bound on the rounding in f, in its gradients, in g_theta and in products with second derivatives of g
                 as your functions compute them, if known; certificates estimate it otherwise
    """

    upper: Callable = eqx.field(converter=as_callable)
    lower: Callable | None = eqx.field(converter=as_callable, default=None)
    x_set: ConvexSet = eqx.field(default=None)
    y_set: ConvexSet | None = None
    data: PyTree = None
    constants: Constants = eqx.field(converter=lambda c: _unknown() if c is None else c, default=None)
    derivatives: Derivatives = eqx.field(converter=lambda d: _automatic() if d is None else d, default=None)
    noise: Leaf | None = eqx.field(
        converter=lambda n: None if n is None else number(n, "Problem noise", ">= 0"), default=None
    )

    def __post_init__(self):
        has = {"x": True, "theta": self.lower is not None, "y": self.y_set is not None, "data": self.data is not None}
        for name, every in ARGUMENTS.items():
            function = getattr(self, name)
            if callable(function):
                setattr(self, name, _picked(name, as_callable(function), tuple(a for a in every if has[a])))

    def __check_init__(self):
        if not callable(self.upper):
            raise ValueError(
                f"Problem: upper must be a function f(x, theta, y, data), given {type(self.upper).__name__}"
            )
        if self.lower is not None and not callable(self.lower):
            use = "use None for a saddle problem without a lower level"
            if isinstance(self.lower, ConvexSet):
                use = "name the sets: Problem(f, x_set=..., y_set=...)"
            given = described(self.lower)
            raise ValueError(f"Problem: lower must be a function g(x, theta, data), given {given}; {use}")
        if self.x_set is None:
            raise ValueError(
                "Problem: x_set is missing; give the set of x, such as x_set=bs.sets.Box(-1.0, 1.0), or a large "
                "bs.sets.L2Ball(1e3) where x has no bounds"
            )
        if not isinstance(self.x_set, ConvexSet):
            given, use = described(self.x_set), _set_instead(self.x_set)
            raise ValueError(f"Problem: x_set must be a set of bisaddle.sets, given {given}{use}")
        if isinstance(self.x_set, Penalty):
            raise ValueError(
                f"Problem: x_set must be a set, given the penalty {type(self.x_set).__name__}, which is for y_set; "
                "add the penalty of x to upper"
            )
        if self.y_set is not None and not isinstance(self.y_set, ConvexSet):
            raise ValueError(
                f"Problem: y_set must be a set of bisaddle.sets, given {described(self.y_set)}"
                f"{_set_instead(self.y_set)}; leave it out for a bilevel problem without a max player"
            )
        for name, kind in (("constants", Constants), ("derivatives", Derivatives)):
            if not isinstance(getattr(self, name), kind):
                given = described(getattr(self, name))
                raise ValueError(f"Problem: {name} must be a bisaddle.{kind.__name__}, given {given}")

    def _repr_html_(self) -> str:
        kind = "bilevel " * (self.lower is not None) + "saddle " * (self.y_set is not None) + "problem"
        over = "min over x in X" + ", max over y in Y" * (self.y_set is not None)
        rows = [(name, shown(value)) for name, value in self.shown_fields().items()]
        return card(f"{kind.capitalize()}: {over}", rows)
