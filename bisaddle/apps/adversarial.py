"""Classifiers that stand up to attacks on their features: the paper's second example, and the classical form."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, PyTree

from bisaddle.apps.layers import TANH_BEND
from bisaddle.apps.tasks import (
    ArrayLike,
    Weights,
    binary,
    check_rows,
    device,
    diameter,
    exactly,
    of_distributions,
    require_both_classes,
    require_size,
    require_word,
    weight_set,
)
from bisaddle.problem import Point, Problem
from bisaddle.sets import Box, ConvexSet, L2Ball, Product, Simplex
from bisaddle.trees import Number

# the largest third derivative of log(1 + exp)
BEND = 1 / (6 * 3**0.5)


class Linear(NamedTuple):
    """Rows and labels -1, 1 of a linear score <w, a> + c."""

    features: Array
    signs: Array
    scales: Array
    strength: Array
    rho: Array

    @staticmethod
    def score(x, rows):
        return rows @ x["weights"] + x["bias"]


class Network(Linear):
    """Rows and labels of a score <v, tanh(W a + u)> + c."""

    @staticmethod
    def score(x, rows):
        return jnp.tanh(rows @ x["hidden"].T + x["shifts"]) @ x["weights"] + x["bias"]


class Model(NamedTuple):
    """What the problems need to know: the set of x, its start; of one row's loss in its attack the largest slope, how
    far it curves up and how far down; the largest |score| of an unattacked row.
    """

    kind: type[Linear]
    x_sets: dict[str, ConvexSet]
    start: dict[str, np.ndarray]
    slope: float
    up: float
    down: float
    score: float


def bilevel(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    weights: Weights = ("chi2", 1.0),
    form: str = "ball",
    model: str = "linear",
    attack: str = "auto",
    strength: Number | None = None,
    scales: ArrayLike | None = None,
    radius: Number = 2.0,
    hidden: int = 8,
    lambda_max: Number | None = None,
    seed: int = 0,
) -> tuple[Problem, Point]:
    """Adversarial learning under an uncertain distribution of the rows  [AYH25, section 1; bilevel attack: ZZKHCL22].

        form "ball":        min_x max_{p in U}  sum_i p_i l(x; a_i + s theta_i, b_i)
        form "lagrangian":  min_{x, 0 <= lam <= lambda_max} max_{p in simplex}
                                sum_i p_i l(x; a_i + s theta_i, b_i) - lam (N sum_i (p_i - 1/N)^2 - rho)
        attack "loss":      theta_i = argmin  -l(x; a_i + s theta_i, b_i) + (strength/2) |theta_i|^2
        attack "linearised":  the same with -<l'(x; a_i, b_i), s theta_i> for -l, its tangent where nothing is attacked
        l(x; a, b) = log(1 + exp(-b score(x; a)))

    features (N, d), labels 0, 1 or -1, 1. weights: U, as for multitask; the Lagrangian form takes ("chi2", rho): the
    divergence's gradient must be Lipschitz up to the boundary, which that of "kl" is not. p is the max player, lam
    belongs to the min player; f is then neither linear nor strongly concave in p. lambda_max: by default a bound on the
    multiplier, which makes the two forms one problem.
    model: "linear", |weights| <= radius, or "network", one layer of `hidden` tanh units, |W|, |v| <= radius.
    attack: "auto" is "loss" for linear and "linearised" for networks. scales: s, how easily each feature is moved, 1 by
    default; 0 for a feature out of the attacker's reach. strength: the larger, the weaker the attack; "loss" needs it
    above the curvature of l in theta (radius^2 max(s)^2 / 4 for linear), which makes the lower level strongly convex;
    by default twice that, and radius / 2 if linearised.
    Start: weights 0 (a network: small random ones), no attack, p uniform.
    """
    A, signs = _checked(features, labels)
    s = _scales(scales, A)
    require_word("form", form, ("ball", "lagrangian"))
    require_word("attack", attack, ("auto", "loss", "linearised"))
    made = _model(model, A, s, radius, hidden, seed)
    attack = attack if attack != "auto" else {"linear": "loss", "network": "linearised"}[model]
    strength = _strength(strength, made, attack, (2 * made.up) if attack == "loss" else float(radius) / 2)
    N, rho = len(A), _rho(form, weights)
    X, start = dict(made.x_sets), dict(made.start)
    Y = weight_set(weights, N) if form == "ball" else Simplex()
    bend = 0.0
    if form == "lagrangian":
        # at p uniform the constraint has a slack of rho, so lam* <= (largest loss - mean loss) / rho
        most = np.logaddexp(0, made.score + made.slope**2 / strength) / rho
        limit = most if lambda_max is None else require_size("lambda_max", lambda_max)
        X["lam"], start["lam"] = Box(0.0, limit), np.array(min(1.0, limit))
        bend = 2 * N * limit
    weak, steep = (strength - made.up, strength + made.down) if attack == "loss" else (strength, strength)
    exact = {"mu_g": weak, "L_g": steep, "L_yy": bend, "mu_y": 0.0, "D_Y": diameter(Y, (N,))}
    exact |= {"D_X": diameter_of(X, start), "L_thetay": made.slope, "L_ytheta": made.slope}
    if of_distributions(Y):
        exact |= {"L_thetatheta": made.up + made.down, "C_theta": made.slope}
        exact |= _constants(made, A, float(np.max(s)), float(radius), strength, attack, form)
    constants = exactly(exact)
    data = made.kind(*map(device, (A, signs, s, strength, rho)))
    upper = _ball if form == "ball" else _lagrangian
    lower = _attack if attack == "loss" else _linearised
    problem = Problem(upper, lower, Product(X), Y, data, constants=constants)
    return problem, Point(x=start, theta=np.zeros(A.shape), y=np.full(N, 1.0 / N))


def saddle(
    features: ArrayLike,
    labels: ArrayLike,
    *,
    reach: Number = 0.5,
    model: str = "linear",
    strength: Number | None = None,
    scales: ArrayLike | None = None,
    radius: Number = 2.0,
    hidden: int = 8,
    seed: int = 0,
) -> tuple[Problem, Point]:
    """The classical form, an attack inside a ball, as a plain saddle problem.

        min_x max_{|y_i| <= reach}  (1/N) sum_i l(x; a_i + s y_i, b_i) - (strength/2) |y_i|^2

    The penalty makes f concave in the attack y, which l alone is not (for a linear score it is convex): strength is at
    least the curvature of l in y, by default that. Rows that are hard to classify are attacked with all of
    `reach`, easy ones with less  [SND18]. The attack's mean takes the place of weights: p_i times a concave function of
    y_i is not concave in both. Other arguments: as for bilevel.
    """
    A, signs = _checked(features, labels)
    s = _scales(scales, A)
    made = _model(model, A, s, radius, hidden, seed)
    strength = _strength(strength, made, "saddle", made.up)
    reach, N = require_size("reach", reach), len(A)
    exact = {"L_yy": (strength + made.down) / N, "mu_y": (strength - made.up) / N}
    exact |= {"D_X": diameter_of(made.x_sets, made.start), "D_Y": 2 * reach * N**0.5}
    most = float(np.max(s))
    bounds = _loss(_score(made, A, most * reach, most, float(radius)))
    cross = float(np.linalg.norm(bounds.xt)) / N
    exact |= {"L_xx": float(np.mean(bounds.xx)), "L_xy": cross, "L_yx": cross}
    constants = exactly(exact)
    data = made.kind(*map(device, (A, signs, s, strength, 0.0)))
    problem = Problem(_classical, None, Product(made.x_sets), L2Ball(reach, axis=-1), data, constants=constants)
    return problem, Point(x=made.start, y=np.zeros(A.shape))


def margins(
    x: PyTree,
    features: ArrayLike,
    labels: ArrayLike,
    reach: Number = 0.0,
    scales: ArrayLike | None = None,
    steps: int = 100,
) -> np.ndarray:
    """b_i times the score of every row after the worst attack s y_i, |y_i| <= reach: > 0 is classified correctly.

    Exact for a linear score, m - reach |s w|. For a network the best of `steps` steps of projected gradients, in NumPy:
    an attack that may be beaten. x: result.x of either form.
    """
    A, signs = _checked(features, labels, both=False)
    x = {name: np.asarray(value) for name, value in x.items()}
    reach, s = require_size("reach", reach, above=False), _scales(scales, A)
    if "hidden" not in x:
        return signs * (A @ x["weights"] + x["bias"]) - reach * np.linalg.norm(s * x["weights"])

    def units(attack):
        return np.tanh((A + s * attack) @ x["hidden"].T + x["shifts"])

    def at_most(attack, length):
        norms = np.linalg.norm(attack, axis=1, keepdims=True)
        return attack * np.minimum(1, length / np.maximum(norms, np.finfo(float).tiny))

    least, attack = np.full(len(A), np.inf), np.zeros_like(A)
    for _ in range(steps + 1):
        hidden = units(attack)
        least = np.minimum(least, signs * (hidden @ x["weights"] + x["bias"]))
        slopes = s * (signs[:, None] * ((1 - hidden**2) * x["weights"]) @ x["hidden"])
        length = np.linalg.norm(slopes, axis=1, keepdims=True)
        attack = at_most(attack - 4 * reach / steps * slopes / np.maximum(length, np.finfo(float).tiny), reach)
    return least


def _checked(features, labels, both: bool = True) -> tuple[np.ndarray, np.ndarray]:
    A, b = check_rows("adversarial", "features", "labels", features, labels)
    b = binary("adversarial", "labels", b)
    if both:
        require_both_classes("adversarial", "labels", b)
    return A, 2 * b - 1


def _scales(scales: ArrayLike | None, A: np.ndarray) -> np.ndarray:
    if scales is None:
        return np.ones(A.shape[1])
    s = np.asarray(scales, dtype=np.float64)
    if s.shape != A.shape[1:] or not np.all(np.isfinite(s)) or np.any(s < 0) or not np.any(s > 0):
        raise ValueError(
            f"scales must be {A.shape[1]} finite numbers >= 0, one for each feature and not all 0, given shape "
            f"{s.shape} with entries from {np.min(s, initial=np.inf):g} to {np.max(s, initial=-np.inf):g}"
        )
    return s


def _model(model: str, A: np.ndarray, s: np.ndarray, radius: Number, hidden: int, seed: int) -> Model:
    require_word("model", model, ("linear", "network"))
    R, d, longest = require_size("radius", radius), A.shape[1], float(np.max(np.linalg.norm(A, axis=1)))
    most = float(np.max(s))
    if model == "linear":
        sets: dict[str, ConvexSet] = {"weights": L2Ball(R), "bias": Box(-R, R)}
        start = {"weights": np.zeros(d), "bias": np.zeros(())}
        return Model(Linear, sets, start, most * R, most**2 * R**2 / 4, 0.0, R * longest + R)
    if not isinstance(hidden, int) or hidden < 1:
        raise ValueError(f"hidden must be a whole number >= 1, the units of the layer, given {hidden!r}")
    sets = {"hidden": L2Ball(R), "shifts": Box(-R, R), "weights": L2Ball(R), "bias": Box(-R, R)}
    rng = np.random.default_rng(seed)
    W, v = rng.normal(size=(hidden, d)), rng.normal(size=hidden)
    start = {"hidden": R / 2 * W / np.linalg.norm(W), "shifts": np.zeros(hidden), "bias": np.zeros(())}
    start["weights"] = R / 2 * v / np.linalg.norm(v)
    # the score has slope R^2 and curvature |v|_inf |tanh''| |W|^2; log(1 + exp) has slope 1 and curvature 1/4
    bent = TANH_BEND * most**2 * R**3
    return Model(Network, sets, start, most * R**2, most**2 * R**4 / 4 + bent, bent, R * hidden**0.5 + R)


def _lengths(A: np.ndarray, moved: float) -> np.ndarray:
    """How long (a_i + an attack of at most this length, 1) can be: the slope of the score of row i in w and c."""
    return np.hypot(np.linalg.norm(A, axis=1) + moved, 1)


class Derived(NamedTuple):
    """Bounds of the derivatives of one row's score or loss, in x and in the row's attack t."""

    x: np.ndarray | float
    t: np.ndarray | float
    xx: np.ndarray | float
    xt: np.ndarray | float
    tt: np.ndarray | float
    xxt: np.ndarray | float
    xtt: np.ndarray | float
    ttt: np.ndarray | float


def _score(made: Model, A: np.ndarray, moved: float, s: float, R: float) -> Derived:
    """Of every row's score, for |w| <= R, or |W|, |v| <= R; s: the largest of the scales.

    A network's is <v, h> + c,  h = tanh(z),  z = W q + u,  with dz = dW q + du along x and W s dt along t:
        m_xx = 2 dv h' dz + v h'' dz^2,     m_xt = (dv h' + v h'' dz) W s dt + v h' dW s dt,     and so on
    |h'| <= 1,  |h''| <= TANH_BEND,  its slope at most 2,  2 |dv| |d(W, u)| <= |dx|^2
    """
    U = _lengths(A, moved)
    if made.kind is Linear:
        return Derived(U, s * R, 0.0, s, 0.0, 0.0, 0.0, 0.0)
    B, steps = TANH_BEND, made.start["shifts"].size + 1  # |(h, 1)|^2 at most
    return Derived(
        x=np.sqrt(steps + R**2 * U**2),
        t=s * R**2,
        xx=U + B * R * U**2,
        xt=s * R * np.hypot(1, 1 + B * R * U),
        tt=B * s**2 * R**3,
        xxt=s * (1 + 3 * B * R * U + 2 * R**2 * U**2),
        xtt=s**2 * R**2 * np.hypot(B, 2 * B + 2 * R * U),
        ttt=2 * s**3 * R**4,
    )


def _loss(m: Derived) -> Derived:
    """Of log(1 + exp(-b m)), whose derivatives in m are at most 1, 1/4 and BEND."""
    return Derived(
        x=m.x,
        t=m.t,
        xx=m.x**2 / 4 + m.xx,
        xt=m.x * m.t / 4 + m.xt,
        tt=m.t**2 / 4 + m.tt,
        xxt=BEND * m.x**2 * m.t + (m.xx * m.t + 2 * m.xt * m.x) / 4 + m.xxt,
        xtt=BEND * m.x * m.t**2 + (m.tt * m.x + 2 * m.xt * m.t) / 4 + m.xtt,
        ttt=BEND * m.t**3 + 3 * m.tt * m.t / 4 + m.ttt,
    )


def _constants(
    made: Model, A: np.ndarray, s: float, R: float, strength: float, attack: str, form: str
) -> dict[str, float]:
    """Upper bounds by norms, for weights p of sum 1; s: the largest of the scales.

    |theta_i| <= slope / strength goes on to hold after a step of theta.
    """
    N, norm = len(A), np.linalg.norm
    l = _loss(_score(made, A, s * made.slope / strength, s, R))
    # along lam the slope of f is N |p - 1/N|^2 - rho
    across = norm(l.x) if form == "ball" else np.hypot(norm(l.x), 2 * N * (1 - 1 / N) ** 0.5)
    exact = {"L_xx": float(np.max(l.xx)), "L_xtheta": float(np.max(l.xt)), "L_thetax": float(np.max(l.xt))}
    exact |= {"L_xy": float(across), "L_yx": float(across)}
    if attack == "linearised":  # all at theta = 0, and the Hessian is constant
        l = _loss(_score(made, A, 0.0, s, R))._replace(xtt=0.0, ttt=0.0)
    exact |= {"C_thetax": float(norm(l.xt)), "L_g_thetatheta": float(max(np.max(l.xtt), np.max(l.ttt)))}
    return exact | {"L_g_thetax": max(float(norm(l.xxt)), float(np.max(l.xtt)))}


def _strength(given: Number | None, made: Model, attack: str, usual: float) -> float:
    if given is None:
        return usual
    strength = require_size("strength", given)
    short = {"loss": strength <= made.up, "saddle": strength < made.up}.get(attack, False)
    if short:
        sign, which = (">", "strongly convex") if attack == "loss" else (">=", "concave")
        raise ValueError(
            f"strength must be {sign} {made.up:g}, the largest curvature of the loss in the attack, so that the "
            f'attack is a {which} problem, given {strength:g}; use a smaller radius, or attack="linearised" of bilevel'
        )
    return strength


def _rho(form: str, weights: Weights) -> float:
    if form == "ball":
        return 0.0
    if not (isinstance(weights, tuple) and len(weights) == 2 and weights[0] == "chi2"):
        raise ValueError(
            'form="lagrangian" takes weights=("chi2", rho): of the divergences by name it alone has a Lipschitz '
            f'gradient up to the boundary of the simplex, given {weights!r}; use form="ball", which projects onto U'
        )
    return require_size("rho", weights[1])


def diameter_of(sets: dict[str, ConvexSet], start: dict[str, np.ndarray]) -> float:
    return float(np.hypot.reduce([diameter(sets[name], start[name].shape) for name in sets]))


def _losses(x, theta, data):
    return jax.nn.softplus(-data.signs * data.score(x, data.features + data.scales * theta))


def _ball(x, theta, y, data):
    return jnp.sum(y * _losses(x, theta, data))


def _lagrangian(x, theta, y, data):
    divergence = y.size * jnp.sum(jnp.square(y - 1 / y.size))
    return jnp.sum(y * _losses(x, theta, data)) - x["lam"] * (divergence - data.rho)


def _attack(x, theta, data):
    return 0.5 * data.strength * jnp.sum(jnp.square(theta)) - jnp.sum(_losses(x, theta, data))


def _linearised(x, theta, data):
    slopes = jax.grad(lambda moved: jnp.sum(_losses(x, moved, data)))(jnp.zeros_like(theta))
    return 0.5 * data.strength * jnp.sum(jnp.square(theta)) - jnp.sum(slopes * theta)


def _classical(x, theta, y, data):
    return jnp.mean(_losses(x, y, data) - 0.5 * data.strength * jnp.sum(jnp.square(y), axis=-1))
