"""Plain NumPy loops of the methods for bilevel problems, from their update equations. Imports nothing of bisaddle.

p is a reference.Reference: flat vectors, dense second derivatives. steps: numbers or functions of k. Every loop returns
arrays (count, n) of the iterates after each step.
"""

import numpy as np


def at(steps, k):
    return {name: step(k) if callable(step) else step for name, step in steps.items()}


def stacked(history):
    return tuple(None if item[0] is None else np.stack(item) for item in zip(*history, strict=True))


def neumann(H, r, L_g, terms):
    """q sum_{j < N} (I - q H)^j r, the geometric sum in the eigenbasis of H."""
    values, basis = np.linalg.eigh(H)
    factor = [sum((1 - value / L_g) ** j for j in range(terms)) / L_g for value in values]
    return basis @ (np.array(factor) * (basis.T @ r))


def terms_for(mu_g, L_g, bias=1e-4):
    """The least N with (1 - mu_g / L_g)^N <= bias."""
    N = 1
    while (1 - mu_g / L_g) ** N > bias:
        N += 1
    return N


MORBIT_WRONG = ("x from the old theta", "y from the old theta", "y at the new x", "theta at the new x")


def morbit(p, x, theta, y, steps, count, L_g, terms, wrong=""):
    """MORBiT; without a max player TTSA. Iterates x, theta, y, v."""
    history = []
    for k in range(count):
        s = at(steps, k)
        old_x, old_theta = x, theta
        theta = theta - s["alpha"] * p.g_theta(x, theta)
        there = old_theta if wrong == "x from the old theta" else theta
        v = neumann(p.g_tt(x, there), p.f_theta(x, there, y), L_g, terms)
        x = p.project_x(x - s["tau"] * (p.f_x(x, there, y) - p.g_tx(x, there).T @ v))
        if wrong == "theta at the new x":
            theta = old_theta - s["alpha"] * p.g_theta(x, old_theta)
        if p.f_y is not None:
            at_x = x if wrong == "y at the new x" else old_x
            at_theta = old_theta if wrong == "y from the old theta" else theta
            y = p.project_y(y + s["sigma"] * p.f_y(at_x, at_theta, y))
        history.append((x, theta, y, v))
    return stacked(history)
