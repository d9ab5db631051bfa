"""The saddle methods as plain NumPy loops over reference.Reference, from their equations. Imports nothing of bisaddle.

Each takes (p, x, y, sizes, count), sizes a dict of numbers or functions of k, and returns (xs, ys), one row a step.
`wrong` breaks one line, to prove that a test would notice.
"""

import itertools

import numpy as np

from tests.reference import Reference, lmo_l1, lmo_simplex, project_box, project_l1, project_simplex


def _at(sizes, k):
    return {name: size(k) if callable(size) else size for name, size in sizes.items()}


def gda(p, x, y, sizes, count, wrong=""):
    rows, y0 = [], y
    for k in range(count):
        s = _at(sizes, k)
        new_x = p.project_x(x - s["tau"] * p.f_x(x, None, y))
        at = new_x if wrong == "f_y at the new x" else x
        y = p.project_y(y + s["sigma"] * (p.f_y(at, None, y) - s.get("mu", 0) * (y - y0)))
        x = new_x
        rows.append((x, y))
    return _columns(rows)


def alternating_gda(p, x, y, sizes, count, wrong=""):
    rows, y0 = [], y
    for k in range(count):
        s = _at(sizes, k)
        old_x = x
        x = p.project_x(x - s["tau"] * p.f_x(x, None, y))
        at = old_x if wrong == "f_y at the old x" else x
        y = p.project_y(y + s["sigma"] * (p.f_y(at, None, y) - s.get("mu", 0) * (y - y0)))
        rows.append((x, y))
    return _columns(rows)


def agp(p, x, y, sizes, count, wrong=""):
    rows, y0 = [], y
    for k in range(count):
        s = _at(sizes, k)
        old_x = x
        x = p.project_x(x - s["tau"] * p.f_x(x, None, y) - s["tau"] * s.get("b", 0) * x)
        at = old_x if wrong == "f_y at the old x" else x
        centre = y0 if wrong == "mu towards y0" else 0
        y = p.project_y(y + s["sigma"] * p.f_y(at, None, y) - s["sigma"] * s["mu"] * (y - centre))
        rows.append((x, y))
    return _columns(rows)


def smoothed_gda(p, x, y, sizes, count, wrong=""):
    rows, z = [], x
    for k in range(count):
        s = _at(sizes, k)
        old_x = x
        x = p.project_x(x - s["tau"] * (p.f_x(x, None, y) + s["p"] * (x - z)))
        y = p.project_y(y + s["sigma"] * p.f_y(old_x if wrong == "f_y at the old x" else x, None, y))
        z = z + s["beta"] * ((old_x if wrong == "z follows the old x" else x) - z)
        rows.append((x, y))
    return _columns(rows)


def extragradient(p, x, y, sizes, count, wrong=""):
    rows = []
    for k in range(count):
        s = _at(sizes, k)
        u = p.project_x(x - s["tau"] * p.f_x(x, None, y))
        v = p.project_y(y + s["sigma"] * p.f_y(u if wrong == "v after u" else x, None, y))
        if wrong == "from the trial point":
            x, y = p.project_x(u - s["tau"] * p.f_x(u, None, v)), p.project_y(v + s["sigma"] * p.f_y(u, None, v))
        else:
            x, y = p.project_x(x - s["tau"] * p.f_x(u, None, v)), p.project_y(y + s["sigma"] * p.f_y(u, None, v))
        rows.append((x, y))
    return _columns(rows)


def optimistic_gda(p, x, y, sizes, count, wrong=""):
    rows, last, before = [], None, None
    for k in range(count):
        s = _at(sizes, k)
        gx, gy = p.f_x(x, None, y), p.f_y(x, None, y)
        if last is None:
            last, before = (gx, gy), s
        if wrong == "the new step for the change":
            before = s
        x = p.project_x(x - s["tau"] * gx - before["tau"] * (gx - last[0]))
        y = p.project_y(y + s["sigma"] * gy + before["sigma"] * (gy - last[1]))
        last, before = (gx, gy), s
        rows.append((x, y))
    return _columns(rows)


def entropic(z, g):
    weights = z * np.exp(-g)
    return weights / weights.sum()


def mirror_prox(p, x, y, sizes, count, maps=None, wrong=""):
    """maps: (M_X, M_Y), functions of (z, g); projections unless given. Rows are the means of the trial points."""
    M_X, M_Y = maps or (lambda z, g: p.project_x(z - g), lambda z, g: p.project_y(z - g))
    rows, sums, total = [], 0, 0.0
    for k in range(count):
        s = _at(sizes, k)
        u, v = M_X(x, s["tau"] * p.f_x(x, None, y)), M_Y(y, -s["sigma"] * p.f_y(x, None, y))
        x, y = M_X(x, s["tau"] * p.f_x(u, None, v)), M_Y(y, -s["sigma"] * p.f_y(u, None, v))
        weight = 1.0 if wrong == "equal weights" else s["tau"]
        chosen = np.concatenate([x, y] if wrong == "mean of the iterates" else [u, v])
        sums, total = sums + weight * chosen, total + weight
        rows.append((sums[: len(x)] / total, sums[len(x) :] / total))
    return _columns(rows)


def pdhg(p, x, y, sizes, count, wrong=""):
    rows, xbar = [], x
    for k in range(count):
        s = _at(sizes, k)
        new_y = p.project_y(y + s["sigma"] * p.f_y(xbar, None, y))
        new_x = p.project_x(x - s["tau"] * p.f_x(x, None, y if wrong == "x with the old y" else new_y))
        xbar = new_x + s["momentum"] * (new_x - x)
        x, y = new_x, new_y
        rows.append((x, y))
    return _columns(rows)


def cg_rpga(p, x, y, sizes, count, wrong=""):
    rows, y0 = [], y
    for k in range(count):
        s = _at(sizes, k)
        gx, gy = p.f_x(x, None, y), p.f_y(x, None, y)
        x = x + s["gamma"] * (p.lmo_x(gx) - x)
        if wrong == "f_y at the new x":
            gy = p.f_y(x, None, y)
        y = p.project_y(y + s["sigma"] * (gy - s["mu"] * (y - y0)))
        rows.append((x, y))
    return _columns(rows)


def sp_fw(p, x, y, sizes, count, away=True, capacity=10**6, wrong=""):
    """sizes: {"C": number} for steps gap / C, or {} for 2 / (2 + m). The atoms are a list of [vertex, weight]."""
    n, z = len(x), np.concatenate([x, y])
    atoms, moves, rows = [[z, 1.0]], 0, []
    for _ in range(count):
        r = np.concatenate([p.f_x(z[:n], None, z[n:]), -p.f_y(z[:n], None, z[n:])])
        s = np.concatenate([p.lmo_x(r[:n]), p.lmo_y(r[n:])])
        worst = max(atoms, key=lambda atom: r @ atom[0])
        forward, backward = r @ (z - s), r @ (worst[0] - z)
        step_of = lambda gap, m=moves: gap / sizes["C"] if "C" in sizes else 2 / (2 + m)
        if not away or forward >= backward:
            step = min(1.0, step_of(forward))
            known = [atom for atom in atoms if np.array_equal(atom[0], s)]
            if not known and len(atoms) >= capacity:
                atoms.sort(key=lambda atom: atom[1])
                (a, a_weight), (b, b_weight) = atoms[0], atoms[1]
                both = a_weight + b_weight
                atoms = [[(a_weight * a + b_weight * b) / both, both], *atoms[2:]]
            for atom in atoms:
                atom[1] *= 1 - step
            if known:
                known[0][1] += step
            else:
                atoms.append([s, step])
            z = z + step * (s - z)
            moves += 1
        else:
            weight = worst[1]
            cap = weight / (1 - weight)
            step = min(1.0, cap, step_of(backward))
            for atom in atoms:
                atom[1] *= 1 + step
            worst[1] -= step
            dropped = step == cap
            if dropped:
                worst[1] = 0.0
            z = z + step * (z - worst[0])
            moves += 0 if dropped and wrong != "drops count" else 1
        atoms = [atom for atom in atoms if atom[1] > 0]
        rows.append((z[:n], z[n:]))
    return _columns(rows)


def _columns(rows):
    return np.stack([x for x, _ in rows]), np.stack([y for _, y in rows])


# -- quadratic saddles ------------------------------------------------------------------------------------------------


def lmo_hypersimplex(d, k):
    picked = np.zeros(len(d))
    picked[np.argsort(d, kind="stable")[:k]] = 1
    return picked


def project_hypersimplex(v, k):
    """Bisection on the threshold of sum clip(v - t, 0, 1) = k."""
    low, high = v.min() - 1, v.max()
    for _ in range(200):
        t = (low + high) / 2
        low, high = (t, high) if np.clip(v - t, 0, 1).sum() > k else (low, t)
    return np.clip(v - t, 0, 1)


def box_oracles(size):
    return lambda v: project_box(v, -size, size), lambda d: np.where(d > 0, -size, size) * np.ones(len(d))


ORACLES = {
    "box": box_oracles(20.0),
    "simplex": (project_simplex, lmo_simplex),
    "l1": (lambda v: project_l1(v, 1.0), lambda d: lmo_l1(d, 1.0)),
    "hypersimplex": (lambda v: project_hypersimplex(v, 2), lambda d: lmo_hypersimplex(d, 2)),
}


def quadratic(data, x_kind, y_kind):
    """f = x'Ax/2 + c'x + x'My + b'y - y'By/2"""
    A, B, M, b, c = (np.asarray(data[name]) for name in "ABMbc")
    (project_x, lmo_x), (project_y, lmo_y) = ORACLES[x_kind], ORACLES[y_kind]
    return Reference(
        f=lambda x, theta, y: x @ A @ x / 2 + c @ x + x @ M @ y + b @ y - y @ B @ y / 2,
        f_x=lambda x, theta, y: A @ x + c + M @ y,
        f_y=lambda x, theta, y: M.T @ x + b - B @ y,
        project_x=project_x,
        lmo_x=lmo_x,
        project_y=project_y,
        lmo_y=lmo_y,
    )


def quadratic_saddle(data):
    """(x, y) without constraints: one linear system."""
    A, B, M, b, c = (np.asarray(data[name]) for name in "ABMbc")
    z = np.linalg.solve(np.block([[A, M], [M.T, -B]]), -np.concatenate([c, b]))
    return z[: len(c)], z[len(c) :]


def quadratic_saddle_on_simplices(data):
    """(x, y) on unit simplices: every pair of supports, its linear system, and the one that is optimal off them too."""
    A, B, M, b, c = (np.asarray(data[name]) for name in "ABMbc")
    n, m = M.shape
    supports = lambda size: [list(s) for k in range(1, size + 1) for s in itertools.combinations(range(size), k)]
    for I, J in itertools.product(supports(n), supports(m)):
        i, j, system = len(I), len(J), np.zeros((len(I) + len(J) + 2,) * 2)
        system[:i, :i], system[:i, i : i + j], system[:i, -2] = A[np.ix_(I, I)], M[np.ix_(I, J)], 1
        system[i : i + j, :i], system[i : i + j, i : i + j] = M[np.ix_(I, J)].T, -B[np.ix_(J, J)]
        system[i : i + j, -1], system[-2, :i], system[-1, i : i + j] = 1, 1, 1
        solution = np.linalg.solve(system, np.concatenate([-c[I], -b[J], [1, 1]]))
        x, y = np.zeros(n), np.zeros(m)
        x[I], y[J], (lam, nu) = solution[:i], solution[i : i + j], solution[-2:]
        descends, ascends = A @ x + c + M @ y + lam, M.T @ x + b - B @ y + nu
        if min(x.min(), y.min(), descends.min(), -ascends.max()) >= -1e-12:
            return x, y
    raise AssertionError("no saddle found")
