"""The problems of benchmarks/peers.py in NumPy: data, what a user of SciPy would write, and the judge of all answers.

    logistic   min_x f(theta*(x)), x the log-strengths of ridge penalties on groups of columns, in a box;
               g the penalised logistic loss of training rows, f the loss of validation rows
    cleaning   min_x f(theta*(x)), x the weights in [0, 1] of groups of training rows, some of them labelled wrongly;
               g the weighted cross-entropy of a 64 x 10 softmax model of digits plus a ridge, f that of clean rows
    groups     min_{|x| <= R} max_{y in simplex} sum_i y_i l_i(x), the logistic losses of groups; no lower level

Only the judge imports JAX, so that SciPy's processes do without it.
"""

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np

COLUMN_GROUPS, WIDTH = 5, 6  # of "logistic": 30 columns
LOW, HIGH = -8.0, 2.0  # log-strengths
ROW_GROUPS, IN_GROUP, CLASSES, RIDGE = 40, 15, 10, 0.001  # of "cleaning": 600 training rows
GROUPS, RADIUS = 6, 2.0  # of "groups"
STARTS = {"logistic": np.full(COLUMN_GROUPS, -3.0), "cleaning": np.full(ROW_GROUPS, 0.5)}
Data = dict[str, np.ndarray]


def labelled(rng: np.random.Generator, rows: int, truth: np.ndarray) -> np.ndarray:
    """Gaussian rows, each multiplied by its noisy label +-1."""
    A = rng.normal(size=(rows, truth.size))
    return A * np.where(A @ truth + rng.logistic(size=rows) > 0, 1.0, -1.0)[:, None]


def logistic_data() -> Data:
    rng = np.random.default_rng(0)
    truth = rng.normal(size=COLUMN_GROUPS * WIDTH) * np.repeat([0.0, 0.1, 0.3, 0.6, 1.0], WIDTH)
    return {"train": labelled(rng, 500, truth), "valid": labelled(rng, 250, truth)}


def cleaning_data() -> Data:
    from sklearn.datasets import load_digits

    rng = np.random.default_rng(1)
    digits: Any = load_digits()
    order = rng.permutation(len(digits.target))
    rows, targets = digits.data[order] / 16, digits.target[order]
    n = ROW_GROUPS * IN_GROUP
    false = rng.uniform(size=n) < np.repeat(np.linspace(0, 0.8, ROW_GROUPS), IN_GROUP)  # a rising share of each group
    given = np.where(false, rng.integers(CLASSES, size=n), targets[:n])
    coded = np.eye(CLASSES)
    valid = slice(n, n + 400)
    return {"train": rows[:n], "labels": coded[given], "valid": rows[valid], "valid_labels": coded[targets[valid]]}


def groups_data() -> Data:
    rng = np.random.default_rng(2)
    shared = rng.normal(size=15)
    return {"rows": np.stack([labelled(rng, 120, shared + rng.normal(size=15)) for _ in range(GROUPS)])}


DATA: dict[str, Callable[[], Data]] = {"logistic": logistic_data, "cleaning": cleaning_data, "groups": groups_data}


# --- by SciPy: derivatives by hand, L-BFGS-B on the exact hypergradient, SLSQP on the epigraph ------------------------


def scipy_logistic() -> Callable[[Data], dict]:
    """The lower level by Newton's method from the last theta; its factor serves the adjoint system too."""
    from scipy.linalg import cho_factor, cho_solve
    from scipy.optimize import minimize
    from scipy.special import expit

    def answer(data: Data) -> dict:
        A, V = data["train"], data["valid"]
        theta = np.zeros(A.shape[1])

        def value(theta, strength):
            return np.mean(np.logaddexp(0, -A @ theta)) + 0.5 * np.sum(strength * theta**2)

        def newton(strength):
            nonlocal theta
            for _ in range(50):
                p = expit(-A @ theta)
                slope = -A.T @ p / len(A) + strength * theta
                factor = cho_factor((A.T * (p * (1 - p))) @ A / len(A) + np.diag(strength))
                if np.linalg.norm(slope) <= 1e-12:
                    break
                step, length, here = cho_solve(factor, slope), 1.0, value(theta, strength)
                while length > 1e-3 and value(theta - length * step, strength) > here + 1e-14:
                    length /= 2
                theta = theta - length * step
            return factor

        def hyper(x):
            strength = np.repeat(np.exp(x), WIDTH)
            factor = newton(strength)
            margins = V @ theta
            w = cho_solve(factor, -V.T @ expit(-margins) / len(V))
            return np.mean(np.logaddexp(0, -margins)), -(strength * theta * w).reshape(-1, WIDTH).sum(axis=1)

        options = {"ftol": 0.0, "gtol": 3e-7, "maxiter": 1000}
        bounds = [(LOW, HIGH)] * COLUMN_GROUPS
        found = minimize(hyper, STARTS["logistic"], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        newton(np.repeat(np.exp(found.x), WIDTH))
        return {"x": found.x, "theta": theta, "note": f"{found.nfev} hypergradients, Newton below"}

    return answer


def scipy_cleaning() -> Callable[[Data], dict]:
    """640 lower variables: L-BFGS from the last theta, then Newton steps; linear systems by conjugate gradients."""
    from scipy.optimize import minimize
    from scipy.sparse.linalg import LinearOperator, cg
    from scipy.special import logsumexp

    def loss(rows, labels, weights, theta):
        logits = rows @ theta
        each = logsumexp(logits, axis=1) - np.sum(labels * logits, axis=1)
        p = np.exp(logits - logits.max(axis=1, keepdims=True))
        p /= p.sum(axis=1, keepdims=True)
        return weights @ each, p

    def answer(data: Data) -> dict:
        R, L, V = data["train"], data["labels"], data["valid"]
        shape = (R.shape[1], CLASSES)
        theta, w = np.zeros(R.shape[1] * CLASSES), np.zeros(R.shape[1] * CLASSES)
        even = np.full(len(V), 1 / len(V))

        def lower(theta, weights):
            theta = theta.reshape(shape)
            value, p = loss(R, L, weights, theta)
            slope = R.T @ (weights[:, None] * (p - L)) + RIDGE * theta
            return value + 0.5 * RIDGE * np.sum(theta**2), slope.ravel()

        def hessian(weights):
            p = loss(R, L, weights, theta.reshape(shape))[1]

            def product(v):
                z = R @ v.reshape(shape)
                z = weights[:, None] * p * (z - np.sum(p * z, axis=1, keepdims=True))
                return (R.T @ z).ravel() + RIDGE * v

            return p, LinearOperator((theta.size, theta.size), matvec=product, dtype=float)

        def hyper(x):
            nonlocal theta, w
            weights = np.repeat(x, IN_GROUP) / len(R)
            rough = {"gtol": 1e-5, "ftol": 0.0, "maxiter": 2000}
            theta = minimize(lower, theta, args=(weights,), jac=True, method="L-BFGS-B", options=rough).x
            for _ in range(5):  # the line search is lost in rounding before the gradient is small enough
                slope = lower(theta, weights)[1]
                if np.linalg.norm(slope) <= 1e-11:
                    break
                theta = theta - cg(hessian(weights)[1], slope, rtol=1e-3, maxiter=1000)[0]
            p, matrix = hessian(weights)
            value, q = loss(V, data["valid_labels"], even, theta.reshape(shape))
            f_theta = (V.T @ (q - data["valid_labels"]) / len(V)).ravel()
            w = cg(matrix, f_theta, x0=w, rtol=1e-9, maxiter=2000)[0]
            cross = np.sum((p - L) * (R @ w.reshape(shape)), axis=1) / len(R)
            return value, -cross.reshape(-1, IN_GROUP).sum(axis=1)

        options = {"ftol": 0.0, "gtol": 2e-7, "maxiter": 1000}
        bounds = [(0.0, 1.0)] * ROW_GROUPS
        found = minimize(hyper, STARTS["cleaning"], jac=True, method="L-BFGS-B", bounds=bounds, options=options)
        hyper(found.x)
        return {"x": found.x, "theta": theta, "note": f"{found.nfev} hypergradients, L-BFGS and Newton-CG below"}

    return answer


def scipy_groups() -> Callable[[Data], dict]:
    """min t subject to l_i(x) <= t and |x|^2 <= R^2; y are the multipliers."""
    from scipy.optimize import minimize
    from scipy.special import expit

    def answer(data: Data) -> dict:
        A = data["rows"]
        T, n, d = A.shape
        last = np.append(np.zeros(d), 1.0)
        limits = {
            "type": "ineq",
            "fun": lambda z: np.append(z[d] - np.mean(np.logaddexp(0, -A @ z[:d]), axis=1), RADIUS**2 - z[:d] @ z[:d]),
            "jac": lambda z: np.vstack(
                [
                    np.column_stack([np.einsum("tnd,tn->td", A, expit(-A @ z[:d])) / n, np.ones(T)]),
                    np.append(-2 * z[:d], 0.0),
                ]
            ),
        }
        unit = np.append(np.zeros(d), 1.0)
        options = {"ftol": 1e-14, "maxiter": 500}
        found: Any = minimize(
            lambda z: (z[d], unit), last, jac=True, method="SLSQP", constraints=limits, options=options
        )
        y = np.maximum(found.multipliers[:T], 0)
        return {"x": found.x[:d], "y": y / y.sum(), "note": f"SLSQP, {found.nit} steps, y from its multipliers"}

    return answer


SCIPY = {"logistic": scipy_logistic, "cleaning": scipy_cleaning, "groups": scipy_groups}


# --- the judge --------------------------------------------------------------------------------------------------------


def softplus(z):
    return np.log1p(np.exp(z))  # complex steps pass through it; margins are far from overflow


def entropies(rows, labels, theta):
    logits = rows @ theta
    logits = logits - logits.real.max(axis=1, keepdims=True)
    return np.log(np.sum(np.exp(logits), axis=1)) - np.sum(labels * logits, axis=1)


def judge(problem: str, data: Data, answer: dict) -> tuple[float, float]:
    """The projection gap with sigma = tau = 1 at the exact theta*(x), and the value there, for the worst y.

    Dense matrices by complex steps from the functions alone: no formula of a contestant is used.
    """
    from adaptive_dense import Dense, onto_l2, onto_simplex

    x, y = np.asarray(answer["x"]), np.asarray(answer.get("y", [0.0]))  # without y, f does not depend on it
    theta = np.asarray(answer["theta"]).ravel() if "theta" in answer else None
    if problem == "groups":
        losses = lambda x: np.mean(softplus(-data["rows"] @ x), axis=1)
        dense = Dense(lambda x, theta, y: y @ losses(x), None, lambda v: onto_l2(v, RADIUS), onto_simplex)
        return dense(SimpleNamespace(x=x, theta=None, y=y)), float(losses(x).max())
    if problem == "logistic":
        A, V = data["train"], data["valid"]
        upper = lambda x, theta, y: np.mean(softplus(-V @ theta))
        slope = lambda x, theta: -A.T @ (1 / (1 + np.exp(A @ theta))) / len(A) + np.repeat(np.exp(x), WIDTH) * theta
        box = lambda v: np.clip(v, LOW, HIGH)
    else:
        R, L, V, labels = (data[name] for name in ("train", "labels", "valid", "valid_labels"))
        upper = lambda x, theta, y: np.mean(entropies(V, labels, theta.reshape(-1, CLASSES)))
        box = lambda v: np.clip(v, 0.0, 1.0)

        def slope(x, theta):
            logits = R @ theta.reshape(-1, CLASSES)
            p = np.exp(logits - logits.real.max(axis=1, keepdims=True))
            p /= p.sum(axis=1, keepdims=True)
            return (R.T @ (np.repeat(x, IN_GROUP)[:, None] * (p - L)) / len(R)).ravel() + RIDGE * theta

    dense = Dense(upper, slope, box, lambda v: v)
    theta = dense.solve_lower(x, theta)
    return dense(SimpleNamespace(x=x, theta=theta, y=y)), float(upper(x, theta, y))
