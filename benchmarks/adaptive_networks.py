"""Networks in x: hidden layers are shared, linear heads of tasks or classes the lower level, y the worst of them.

    sinusoid        16 sines by two tanh layers of 20, ridge heads, worst task; a box of +-5 over all layers
    digits          digits by one tanh layer of 32, ridge heads of the ten classes, worst class; the same box
    digits softmax  the same by a softplus layer of 16 and multinomial logistic heads; an l2 ball over the tree
    deep            a regression by three softplus layers, the last one in x too, worst of six groups; an l2 ball
    patches         digits by 8 filters of 3 x 3 and means of their maps, then a layer of 16, both nearly relu; a box

How far a step goes was chosen on training seeds of the first two (deep ones were looked at); patches came last.
Functions are written for NumPy and JAX alike: a dense check takes complex steps through the same formulas.
"""

from collections.abc import Callable
from functools import cache, partial
from typing import Any, NamedTuple

import equinox as eqx
import jax
import jax.numpy as jnp
import numpy as np
from adaptive_dense import Dense, onto_l2, onto_simplex

import bisaddle as bs

BOX = 5.0  # limit of every weight
TASKS, ROWS = 16, 10  # of sinusoids; rows to fit the heads, and as many to judge them
SCORE = 5.0  # what ridge heads give to the right class, and 0 to the others
NOISE = 1e-12  # rounding in f and g; from outside, layers that bend a lot look like more
BALL = 2.0  # radius of the l2 balls relative to |x0|


# --- what all of them share -------------------------------------------------------------------------------------------


def _tanh(v, m):
    return m.tanh(v)


def _softplus(v, m):
    return m.log(1 + m.exp(v))


def _nearly_relu(v, m):
    return _softplus(4 * v, m) / 4


def _features(x, inputs, bend, m):
    """The last hidden layer, and a 1 for the bias of the heads."""
    for W, b in x:
        inputs = bend(inputs @ W + b, m)
        if inputs.ndim == 3 and bend is _nearly_relu:  # maps of 6 x 6 patches: means of 2 x 2 of them
            parts = inputs.reshape(len(inputs), 3, 2, 3, 2, -1)
            inputs = m.mean(parts, axis=(2, 4)).reshape(len(inputs), -1)
    return m.concatenate([inputs, m.ones((*inputs.shape[:-1], 1))], axis=-1)


def _log_sum_exp(scores, m):
    top = m.max(scores.real, axis=-1, keepdims=True)
    return (m.log(m.sum(m.exp(scores - top), axis=-1, keepdims=True)) + top)[..., 0]


def layers(rng: np.random.Generator, *widths: int) -> list[tuple[np.ndarray, np.ndarray]]:
    """Weights of variance 1 / (entries of the layer before), biases 0."""
    pairs = zip(widths[:-1], widths[1:], strict=True)
    return [(rng.normal(size=(a, b)) / np.sqrt(a), np.zeros(b)) for a, b in pairs]


class Network(NamedTuple):
    """losses(x, theta, data, m): of every task; lower(x, theta, data, m), None where there is none.

    heads(x, data): theta* in closed form, if it has one; ridge: mu_g of the lower level.
    """

    losses: Callable
    lower: Callable | None
    heads: Callable | None = None
    ridge: float | None = None


# --- ridge heads ------------------------------------------------------------------------------------------------------

RIDGE, SINE_RIDGE = 1e-2, 1e-1


def _sine_losses(x, theta, d, m):
    phi = _features(x, d["valid"], _tanh, m)
    return 0.5 * m.mean((m.einsum("tnh,th->tn", phi, theta) - d["valid_targets"]) ** 2, axis=1)


def _sine_lower(x, theta, d, m):
    phi = _features(x, d["train"], _tanh, m)
    away = m.einsum("tnh,th->tn", phi, theta) - d["targets"]
    return 0.5 * m.sum(m.mean(away**2, axis=1)) + 0.5 * SINE_RIDGE * m.sum(theta**2)


def _sine_heads(x, d):
    phi = _features(x, d["train"], _tanh, jnp)
    H = jnp.einsum("tnh,tnk->thk", phi, phi) / ROWS + SINE_RIDGE * jnp.eye(phi.shape[-1])
    return jnp.linalg.solve(H, jnp.einsum("tnh,tn->th", phi, d["targets"])[..., None] / ROWS)[..., 0]


def _class_losses(x, theta, d, m, bend=_tanh):
    scores = _features(x, d["valid"], bend, m) @ theta.T
    losses = _log_sum_exp(scores, m) - m.sum(scores * d["valid_targets"], axis=1)
    return losses @ d["valid_targets"] / m.sum(d["valid_targets"], axis=0)


def _class_lower(x, theta, d, m, bend=_tanh):
    away = _features(x, d["train"], bend, m) @ theta.T - SCORE * d["targets"]
    return 0.5 * m.sum(m.mean(away**2, axis=0)) + 0.5 * RIDGE * m.sum(theta**2)


def _class_heads(x, d, bend=_tanh):
    phi = _features(x, d["train"], bend, jnp)
    H = phi.T @ phi / len(phi) + RIDGE * jnp.eye(phi.shape[-1])
    return jnp.linalg.solve(H, SCORE * phi.T @ d["targets"] / len(phi)).T


# --- softmax heads, and a network without a lower level ---------------------------------------------------------------


def _softmax_lower(x, theta, d, m):
    scores = _features(x, d["train"], _softplus, m) @ theta.T
    loss = m.mean(_log_sum_exp(scores, m) - m.sum(scores * d["targets"], axis=1))
    return loss + 0.5 * RIDGE * m.sum(theta**2)


def _deep_losses(x, theta, d, m):
    last = _features(x[:-1], d["train"], _softplus, m)[..., :-1]
    W, b = x[-1]
    return 0.5 * m.mean(((last @ W + b)[..., 0] - d["targets"]) ** 2, axis=1)


NETWORKS = {
    "sinusoid": Network(_sine_losses, _sine_lower, _sine_heads, SINE_RIDGE),
    "digits": Network(_class_losses, _class_lower, _class_heads, RIDGE),
    "digits softmax": Network(partial(_class_losses, bend=_softplus), _softmax_lower, None, RIDGE),
    "deep": Network(_deep_losses, None),
    "patches": Network(
        *(partial(of, bend=_nearly_relu) for of in (_class_losses, _class_lower, _class_heads)), ridge=RIDGE
    ),
}


# --- data -------------------------------------------------------------------------------------------------------------


def _sines(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], Any]:
    amplitude, phase = rng.uniform(0.1, 5.0, (TASKS, 1)), rng.uniform(0, np.pi, (TASKS, 1))
    data = {}
    for rows, targets in (("train", "targets"), ("valid", "valid_targets")):
        points = rng.uniform(-5, 5, (TASKS, ROWS))
        data |= {rows: points[..., None], targets: amplitude * np.sin(points + phase)}
    return data, layers(rng, 1, 20, 20)


@cache
def _images() -> tuple[np.ndarray, np.ndarray]:
    from sklearn.datasets import load_digits

    return load_digits(return_X_y=True)


def _digits(rng: np.random.Generator, width: int) -> tuple[dict[str, np.ndarray], Any]:
    """600 images to fit the heads, 600 to judge them."""
    images, labels = _images()
    chosen = rng.permutation(len(labels))[:1200]
    train, valid = chosen[:600], chosen[600:]
    inputs, classes = (images - images.mean()) / images.std(), np.eye(10)[labels]
    data = {"train": inputs[train], "targets": classes[train], "valid": inputs[valid], "valid_targets": classes[valid]}
    return data, layers(rng, 64, width)


def _patches(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], Any]:
    """The same images as 36 patches of 3 x 3 each."""
    data, _ = _digits(rng, 1)
    for rows in ("train", "valid"):
        images = data[rows].reshape(-1, 8, 8)
        data[rows] = np.lib.stride_tricks.sliding_window_view(images, (3, 3), axis=(1, 2)).reshape(-1, 36, 9)
    return data, layers(rng, 9, 8) + layers(rng, 72, 16)


def _groups(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], Any]:
    """Six groups of 40 rows whose targets bend in different directions."""
    rows = rng.normal(size=(6, 40, 5))
    along = rng.normal(size=(5, 2)) / np.sqrt(5) + 0.3 * rng.normal(size=(6, 5, 2))
    u = rows @ along
    data = {"train": rows, "targets": np.sin(2 * u[..., 0]) + u[..., 1] ** 2 / 2}
    return data, layers(rng, 5, 20, 20, 10, 1)


DRAWS: dict[str, Callable] = {
    "sinusoid": _sines,
    "digits": partial(_digits, width=32),
    "digits softmax": partial(_digits, width=16),
    "deep": _groups,
    "patches": _patches,
}
HEADS = {"sinusoid": (TASKS, 21), "digits": (10, 33), "digits softmax": (10, 17), "deep": None, "patches": (10, 17)}


# --- the problems -----------------------------------------------------------------------------------------------------


class Upper(eqx.Module):
    kind: str = eqx.field(static=True)

    def __call__(self, x, theta, y, data):
        return y @ NETWORKS[self.kind].losses(x, theta, data, jnp)


class Lower(eqx.Module):
    kind: str = eqx.field(static=True)

    def __call__(self, x, theta, data):
        lower = NETWORKS[self.kind].lower
        assert lower is not None
        return lower(x, theta, data, jnp)


def make(kind: str, seed: int) -> tuple[bs.Problem, bs.Point, Dense]:
    network = NETWORKS[kind]
    data, x = DRAWS[kind](np.random.default_rng(seed))
    flat = np.concatenate([leaf.ravel() for leaf in jax.tree.leaves(x)])
    boxed = kind in ("sinusoid", "digits", "patches")
    radius = BALL * float(np.linalg.norm(flat))
    x_set = bs.sets.LinfBall(BOX) if boxed else bs.sets.L2Ball(radius)
    count = 6 if HEADS[kind] is None else HEADS[kind][0]
    lower = None if network.lower is None else Lower(kind)
    traced = {name: jnp.asarray(value) for name, value in data.items()}
    problem = bs.Problem(
        Upper(kind), lower, x_set, bs.sets.Simplex(), traced, bs.Constants(mu_g=network.ridge), noise=NOISE
    )
    theta = None if HEADS[kind] is None else np.zeros(HEADS[kind])
    start = bs.Point(x=x, theta=theta, y=np.full(count, 1 / count))
    return problem, start, check(kind, data, x, radius if not boxed else None)


# --- the dense check --------------------------------------------------------------------------------------------------


def _sine_slope(x, theta, d):
    phi = _features(x, d["train"], _tanh, np)
    away = np.einsum("tnh,th->tn", phi, theta) - d["targets"]
    return np.einsum("tnh,tn->th", phi, away) / ROWS + SINE_RIDGE * theta


def _class_slope(x, theta, d, bend=_tanh):
    phi = _features(x, d["train"], bend, np)
    return (phi @ theta.T - SCORE * d["targets"]).T @ phi / len(phi) + RIDGE * theta


def _softmax_slope(x, theta, d):
    phi = _features(x, d["train"], _softplus, np)
    scores = phi @ theta.T
    shares = np.exp(scores - _log_sum_exp(scores, np)[:, None])
    return (shares - d["targets"]).T @ phi / len(phi) + RIDGE * theta


SLOPES: dict[str, Callable] = {
    "sinusoid": _sine_slope,
    "digits": _class_slope,
    "digits softmax": _softmax_slope,
    "patches": partial(_class_slope, bend=_nearly_relu),
}


def check(kind: str, data: dict[str, np.ndarray], x: Any, radius: float | None) -> Dense:
    """radius: of the ball; None: the box."""
    leaves, tree = jax.tree.flatten(x)
    ends = np.cumsum([leaf.size for leaf in leaves])[:-1]

    def layered(flat):
        parts = np.split(flat, ends)
        return jax.tree.unflatten(tree, [part.reshape(leaf.shape) for part, leaf in zip(parts, leaves, strict=True)])

    def headed(theta):
        return None if HEADS[kind] is None else theta.reshape(HEADS[kind])

    def upper(x, theta, y):
        return y @ NETWORKS[kind].losses(layered(x), headed(theta), data, np)

    def lower_gradient(x, theta):
        return SLOPES[kind](layered(x), headed(theta), data).ravel()

    project_x = (lambda v: np.clip(v, -BOX, BOX)) if radius is None else partial(onto_l2, radius=radius)
    return Dense(upper, lower_gradient if kind in SLOPES else None, project_x, onto_simplex)
