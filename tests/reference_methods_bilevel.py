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
    """MORBiT; without a max player TTSA. Iterates x, theta, y, v.

    p: a Reference, or a function of k that gives the samples of g_theta, of f, of the cross term, and of the Hessian
    for each product of the series.
    """
    history = []
    for k in range(count):
        s = at(steps, k)
        g, f, g_cross, *hessians = each(p, 2 + terms)(k)
        old_x, old_theta = x, theta
        theta = theta - s["alpha"] * g.g_theta(x, theta)
        there = old_theta if wrong == "x from the old theta" else theta
        r = f.f_theta(x, there, y)
        v = sampled_neumann(hessians, x, there, r, L_g) if callable(p) else neumann(g.g_tt(x, there), r, L_g, terms)
        x = f.project_x(x - s["tau"] * (f.f_x(x, there, y) - g_cross.g_tx(x, there).T @ v))
        if wrong == "theta at the new x":
            theta = old_theta - s["alpha"] * g.g_theta(x, old_theta)
        if f.f_y is not None:
            at_x = x if wrong == "y at the new x" else old_x
            at_theta = old_theta if wrong == "y from the old theta" else theta
            y = f.project_y(y + s["sigma"] * f.f_y(at_x, at_theta, y))
        history.append((x, theta, y, v))
    return stacked(history)


def hypergradient(p, x, theta, y, v):
    """f_x - Cross' v"""
    return p.f_x(x, theta, y) - p.g_tx(x, theta).T @ v


def soba(p, x, theta, steps, count, one_after_the_other=False):
    """SOBA in the signs of the paper, v -> -Hess^-1 f_theta; the iterates are returned with w = -v.

    p: a Reference, or a function of k that gives the samples of g and of f.
    one_after_the_other: theta first, then v at the new theta, then x at the new theta and v. That is FSLA with eta = 1.
    """
    v, history = 0 * theta, []
    for k in range(count):
        s = at(steps, k)
        g, f = each(p, 2)(k)
        new_theta = theta - s["alpha"] * g.g_theta(x, theta)
        there = new_theta if one_after_the_other else theta
        new_v = v - s["eta"] * (g.g_tt(x, there) @ v + f.f_theta(x, there, None))
        then = new_v if one_after_the_other else v
        x = f.project_x(x - s["tau"] * (g.g_tx(x, there).T @ then + f.f_x(x, there, None)))
        theta, v = new_theta, new_v
        history.append((x, theta, None, -v))
    return stacked(history)


def each(p, n):
    """What is sampled at step k: p(k) where p is a function, else p itself n times."""
    return p if callable(p) else lambda k: n * (p,)


def fsla(p, x, theta, steps, count, momentum):
    """p: a Reference, or a function of k that gives the samples of g_theta, of the Hessian, of the cross term, of f."""
    v, old_x, d, history = 0 * theta, x, None, []
    for k in range(count):
        s = at(steps, k)
        g, g_hessian, g_cross, f = each(p, 4)(k)
        G_old = f.f_x(old_x, theta, None) - g_cross.g_tx(old_x, theta).T @ v
        theta = theta - s["alpha"] * g.g_theta(x, theta)
        v = v - s["eta"] * (g_hessian.g_tt(x, theta) @ v - f.f_theta(x, theta, None))
        G = f.f_x(x, theta, None) - g_cross.g_tx(x, theta).T @ v
        d = G if k == 0 else G + (1 - momentum) * (d - G_old)
        old_x, x = x, f.project_x(x - s["tau"] * d)
        history.append((x, theta, None, v))
    return stacked(history)


def sampled_neumann(samples, x, theta, r, L_g):
    """The series with a sample of the Hessian for each of its products, N - 1 of them."""
    v, total = r, r
    for g in samples:
        v = v - g.g_tt(x, theta) @ v / L_g
        total = total + v
    return total / L_g


def sustain(p, x, theta, steps, count, L_g, terms, momentum, lmo=False):
    """SUSTAIN; with lmo SBFW, whose theta has no momentum.

    p: as for morbit.
    """
    h_g = h_f = None
    old, history = None, []

    def both(samples, x, theta):
        g, f, g_cross, *hessians = samples
        v = sampled_neumann(hessians, x, theta, f.f_theta(x, theta, None), L_g)
        return g.g_theta(x, theta), f.f_x(x, theta, None) - g_cross.g_tx(x, theta).T @ v, v

    for k in range(count):
        s = at(steps, k)
        samples = each(p, 2 + terms)(k)
        g, G, v = both(samples, x, theta)
        if k == 0:
            h_g, h_f = g, G
        else:
            g_old, G_old, _ = both(samples, *old)
            h_g, h_f = g + (1 - momentum) * (h_g - g_old), G + (1 - momentum) * (h_f - G_old)
        old = x, theta
        theta = theta - s["alpha"] * (g if lmo else h_g)
        p0 = samples[0]
        x = (1 - s["gamma"]) * x + s["gamma"] * p0.lmo_x(h_f) if lmo else p0.project_x(x - s["tau"] * h_f)
        history.append((x, theta, None, v))
    return stacked(history)


def saba(lower, upper, order, x, theta, steps):
    """SABA: lower and upper are the References of the blocks, order the pairs (i, j) drawn. Signs as in soba."""
    v, history = 0 * theta, []
    of_g = lambda p: (p.g_theta(x, theta), p.g_tt(x, theta) @ v, p.g_tx(x, theta).T @ v)
    of_f = lambda p: (p.f_theta(x, theta, None), p.f_x(x, theta, None))
    g_memory, f_memory = [of_g(p) for p in lower], [of_f(p) for p in upper]
    for k, (i, j) in enumerate(order):
        s = at(steps, k)
        g_new, f_new = of_g(lower[i]), of_f(upper[j])
        g_mean = [np.mean(column, axis=0) for column in zip(*g_memory, strict=True)]
        f_mean = [np.mean(column, axis=0) for column in zip(*f_memory, strict=True)]
        D_theta, D_H, D_cross = (new - m + mean for new, m, mean in zip(g_new, g_memory[i], g_mean, strict=True))
        D_f_theta, D_f_x = (new - m + mean for new, m, mean in zip(f_new, f_memory[j], f_mean, strict=True))
        g_memory[i], f_memory[j] = g_new, f_new
        theta = theta - s["alpha"] * D_theta
        v = v - s["eta"] * (D_H + D_f_theta)
        x = lower[0].project_x(x - s["tau"] * (D_cross + D_f_x))
        history.append((x, theta, None, -v))
    return stacked(history)


def ibcg(p, x, theta, steps, count):
    w, history = theta, []
    for k in range(count):
        s = at(steps, k)
        w = w - s["eta"] * (p.g_tt(x, theta) @ w - p.f_theta(x, theta, None))
        F = hypergradient(p, x, theta, None, w)
        x = (1 - s["gamma"]) * x + s["gamma"] * p.lmo_x(F)
        theta = theta - s["alpha"] * p.g_theta(x, theta)
        history.append((x, theta, None, w))
    return stacked(history)


def penalty(p, x, theta, y, steps, count, c, g_x, inner_steps=1):
    """F2SA (y is None) and its form with a max player; g_x(p, x, theta) is the gradient of g in x.

    p: a Reference, or a function of k that gives the samples of f, of g_x at q and at z, and then those of g_theta at
    z, of g_theta at q and of f_theta for each inner step.
    """
    z, q, history = theta, theta, []
    for k in range(count):
        s = at(steps, k)
        f, g_q, g_z, *inner = each(p, 3 + 3 * inner_steps)(k)
        for i in range(inner_steps):
            of_z, of_q, of_f = inner[3 * i : 3 * i + 3]
            z = z - s["alpha"] * of_z.g_theta(x, z)
            q = q - s["eta"] * (of_f.f_theta(x, q, y) + c * of_q.g_theta(x, q))
        Gx = f.f_x(x, q, y) + c * (g_x(g_q, x, q) - g_x(g_z, x, z))
        if y is not None:
            new_y = f.project_y(y + s["sigma"] * f.f_y(x, q, y))
        x = f.project_x(x - s["tau"] * Gx)
        y = None if y is None else new_y
        history.append((x, z, y))
    return stacked(history)


def inner_loops(p, x, theta, y, steps, count, inner, solve, ascent=0):
    """BA, BSA, AID, AmIGO, DoubleLoop: inner(k, x, theta) -> theta, solve(x, theta, r, w) -> w, `ascent` steps of y."""
    w, history = 0 * theta, []
    for k in range(count):
        s = at(steps, k)
        theta = inner(k, x, theta)
        for _ in range(ascent):
            y = p.project_y(y + s["sigma"] * p.f_y(x, theta, y))
        w = solve(x, theta, p.f_theta(x, theta, y), w)
        x = p.project_x(x - s["tau"] * hypergradient(p, x, theta, y, w))
        history.append((x, theta, y, w))
    return stacked(history)


def gradient_steps(p, alpha, times):
    """inner of inner_loops: times(k) gradient steps."""

    def inner(k, x, theta):
        for _ in range(times(k)):
            theta = theta - alpha * p.g_theta(x, theta)
        return theta

    return inner


def conjugate_gradient_steps(p, times):
    """solve of inner_loops: conjugate gradients in their textbook form, from the last w."""

    def solve(x, theta, rhs, w):
        H = p.g_tt(x, theta)
        r = rhs - H @ w
        direction = r
        for _ in range(times):
            if np.linalg.norm(r) <= 1e-15 * np.linalg.norm(rhs):
                break
            length = (r @ r) / (direction @ H @ direction)
            w = w + length * direction
            new = r - length * H @ direction
            direction = new + (new @ new) / (r @ r) * direction
            r = new
        return w

    return solve


def itd(p, x, theta, steps, count, inner_steps):
    """theta_N and its derivative in x by the recursion J <- J - alpha (g_tx + g_tt J), forwards."""
    history = []
    for k in range(count):
        s = at(steps, k)
        J = np.zeros((len(theta), len(x)))
        for _ in range(inner_steps):
            J = J - s["alpha"] * (p.g_tx(x, theta) + p.g_tt(x, theta) @ J)
            theta = theta - s["alpha"] * p.g_theta(x, theta)
        x = p.project_x(x - s["tau"] * (p.f_x(x, theta, None) + J.T @ p.f_theta(x, theta, None)))
        history.append((x, theta, None))
    return stacked(history)


def multi_block(p, x, theta, y, steps, count, momentum, averaging=None, radius=np.inf, first=None):
    """Hu, Zhong and Yang with all blocks: averaging given is version 1, else version 2 with |u| <= radius.

    p: a Reference, or a function of k that gives the samples of f, of the Hessian, of g_theta, of the cross term;
    `first` is then the Reference on everything.
    """
    z, u, H, history = 0 * x, 0 * theta, (p if first is None else first).g_tt(x, theta), []
    for k in range(count):
        s = at(steps, k)
        f, g_hessian, g, g_cross = each(p, 4)(k)
        f_theta = f.f_theta(x, theta, y)
        if averaging is not None:
            H = (1 - averaging) * H + averaging * g_hessian.g_tt(x, theta)
            u = np.linalg.solve(H, f_theta)
        else:
            u = u - s["eta"] * (g_hessian.g_tt(x, theta) @ u - f_theta)
            u = u * min(1.0, radius / np.linalg.norm(u))
        z = (1 - momentum) * z + momentum * (f.f_x(x, theta, y) - g_cross.g_tx(x, theta).T @ u)
        new_y = f.project_y(y + s["sigma"] * f.f_y(x, theta, y))
        new_theta = theta - s["alpha"] * g.g_theta(x, theta)
        x, theta, y = f.project_x(x - s["tau"] * z), new_theta, new_y
        history.append((x, theta, y, u))
    return stacked(history)


def sampled_inner_loops(p, x, theta, steps, count, inner_steps, linear_steps=None, L_g=None):
    """BSA (L_g given: a series) and AmIGO (linear_steps on the linear system), on samples.

    p(k) gives the samples of f, of the cross term, of g_theta for each inner step, and of the Hessian for each product.
    """
    w, history = 0 * theta, []
    for k in range(count):
        s = at(steps, k)
        f, g_cross, *rest = p(k)
        inner, hessians = rest[:inner_steps], rest[inner_steps:]
        for g in inner:
            theta = theta - s["alpha"] * g.g_theta(x, theta)
        r = f.f_theta(x, theta, None)
        if L_g is not None:
            w = sampled_neumann(hessians, x, theta, r, L_g)
        else:
            assert len(hessians) == linear_steps
            for g in hessians:
                w = w - s["eta"] * (g.g_tt(x, theta) @ w - r)
        x = f.project_x(x - s["tau"] * (f.f_x(x, theta, None) - g_cross.g_tx(x, theta).T @ w))
        history.append((x, theta, None, w))
    return stacked(history)


def sampled_regularized(p, x, theta, y, steps, count, lmo):
    """Algorithms 1 (lmo) and 2 on samples: p(k) gives those of f, of the Hessian, of the cross term, of g_theta."""
    w, y0, history = theta, y, []
    for k in range(count):
        s = at(steps, k)
        f, g_hessian, g_cross, g = p(k)
        w = w - s["eta"] * (g_hessian.g_tt(x, theta) @ w - f.f_theta(x, theta, y))
        Gx = f.f_x(x, theta, y) - g_cross.g_tx(x, theta).T @ w
        f_y = f.f_y(x, theta, y)
        target = f.lmo_x(Gx) if lmo else f.project_x(x - s["tau"] * Gx)
        x = s["gamma"] * target + (1 - s["gamma"]) * x
        theta = theta - s["alpha"] * g.g_theta(x, theta)
        y = f.project_y(y + s["sigma"] * (f_y - s["mu"] * (y - y0)))
        history.append((x, theta, y, w))
    return stacked(history)
