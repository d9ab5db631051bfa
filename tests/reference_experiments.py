"""Section 6 in plain NumPy, from its equations and from the files as they lie: slow, obvious, nothing of bisaddle.

min_{|x|_1 <= radius, lam in [0,1]^T} max_{y in simplex} sum_i y_i l_i(theta_i; valid) - (beta/T) |T y - 1|^2 / 2
theta_i = argmin l_i(lam_i theta_i + (1 - lam_i) x; train) + (rho/2) |theta_i|^2,    l_i(v) = |A_i v - b_i|^2 / (2 n_i)
"""

import csv
from pathlib import Path

import numpy as np


def project_simplex(v):
    u = np.sort(v)[::-1]
    excess = (np.cumsum(u) - 1) / np.arange(1, len(v) + 1)
    return np.maximum(v - excess[np.nonzero(u > excess)[0][-1]], 0)


def project_l1(v, radius):
    if np.sum(np.abs(v)) <= radius:
        return v
    return radius * np.sign(v) * project_simplex(np.abs(v) / radius)


def lmo_l1(g, radius):
    s, j = np.zeros(len(g)), np.argmax(np.abs(g))
    s[j] = -radius if g[j] > 0 else radius
    return s


def lmo_box(g):
    return np.where(g > 0, 0.0, 1.0)


def mtl_rows(folder):
    """Five LIBSVM files stacked, 14 columns."""
    rows, targets = [], []
    for name in ("bodyfat", "housing", "mg", "mpg", "space_ga"):
        for line in (Path(folder) / f"{name}_scale").read_text().splitlines():
            first, *items = line.split()
            row = np.zeros(14)
            for item in items:
                place, value = item.split(":")
                row[int(place) - 1] = float(value)
            rows.append(row)
            targets.append(float(first))
    return np.array(rows), np.array(targets)


def nlsy_rows(folder):
    """age, seven answers and thirteen indicators of industry of the 4908 rows; income of 1990."""
    health = ["Excellent", "Very Good", "Good", "Fair", "Poor"]
    jobs = "agri mining construction manuf transp wholesale retail fin busi personal enter pro pub".split()
    rows, targets = [], []
    with (Path(folder) / "national.longitudinal.survey.csv").open(newline="") as file:
        for line in csv.DictReader(file):
            word = line["grade90"]
            number = float("".join(c for c in word.split()[0] if c.isdigit()))
            grade = number if word.endswith("GRADE") else 12 + number
            head = [float(line["age"]), 1.0 + health.index(line["genhealth"]), float(line["illegalact"])]
            head += [float(line["charged"]), grade, float(line["jobsnum90"]), float(line["afqt89"])]
            head += [1.0 if line["jobtrain90"] == "Yes" else 0.0]
            rows.append(head + [1.0 if line["typejob90"] == job else 0.0 for job in jobs])
            targets.append(float(line["income90"]))
    return np.array(rows), np.array(targets)


def tasks_of(A, b, seed):
    """The split and the standardisation of the default configuration."""
    parts = np.array_split(np.random.default_rng(seed).permutation(len(b)), 5)
    train = [part[: int(0.75 * len(part))] for part in parts]
    valid = [part[int(0.75 * len(part)) :] for part in parts]
    pooled = np.concatenate(train)

    def scaled(values):
        mean, deviation = values[pooled].mean(axis=0), values[pooled].std(axis=0)
        deviation = np.where(np.ptp(values[pooled], axis=0) > 0, deviation, np.inf)
        return (values - mean) / deviation

    A, b = scaled(A), scaled(b)
    return [(A[t], b[t], A[v], b[v]) for t, v in zip(train, valid, strict=True)]


class Regression:
    def __init__(self, tasks, radius=5.0, rho=0.1, beta=0.0):
        self.radius, self.rho, self.beta = radius, rho, beta
        self.H = np.array([A.T @ A / len(A) for A, _, _, _ in tasks])
        self.c = np.array([A.T @ b / len(A) for A, b, _, _ in tasks])
        self.M = np.array([V.T @ V / len(V) for _, _, V, _ in tasks])
        self.e = np.array([V.T @ u / len(V) for _, _, V, u in tasks])
        self.q = np.array([u @ u / len(u) for _, _, _, u in tasks])
        self.T, self.d = self.c.shape
        self.L_g = max(np.linalg.norm(H, 2) for H in self.H) + rho

    def f_theta(self, theta, y):
        return np.array([y[i] * (self.M[i] @ theta[i] - self.e[i]) for i in range(self.T)])

    def losses(self, theta):
        return np.array(
            [0.5 * theta[i] @ self.M[i] @ theta[i] - self.e[i] @ theta[i] + 0.5 * self.q[i] for i in range(self.T)]
        )

    def f_y(self, theta, y):
        return self.losses(theta) - self.beta * (self.T * y - 1)

    def g_theta(self, x, lam, theta):
        blend = [lam[i] * theta[i] + (1 - lam[i]) * x for i in range(self.T)]
        return np.array([lam[i] * (self.H[i] @ blend[i] - self.c[i]) + self.rho * theta[i] for i in range(self.T)])

    def hessian(self, lam, w):
        return np.array([lam[i] ** 2 * self.H[i] @ w[i] + self.rho * w[i] for i in range(self.T)])

    def cross(self, x, lam, theta, w):
        """d/d(x, lam) of sum_i <g_theta_i, w_i>"""
        along_x, along_lam = np.zeros(self.d), np.zeros(self.T)
        for i in range(self.T):
            Hw = self.H[i] @ w[i]
            residual = self.H[i] @ (lam[i] * theta[i] + (1 - lam[i]) * x) - self.c[i]
            along_x += lam[i] * (1 - lam[i]) * Hw
            along_lam[i] = residual @ w[i] + lam[i] * (theta[i] - x) @ Hw
        return along_x, along_lam

    def gap(self, x, lam, y):
        """Definition 2.1 with sigma = 1, by a dense solve a task."""
        theta, v = np.zeros((self.T, self.d)), np.zeros((self.T, self.d))
        for i in range(self.T):
            hessian = lam[i] ** 2 * self.H[i] + self.rho * np.eye(self.d)
            theta[i] = np.linalg.solve(hessian, lam[i] * (self.c[i] - (1 - lam[i]) * self.H[i] @ x))
            v[i] = np.linalg.solve(hessian, y[i] * (self.M[i] @ theta[i] - self.e[i]))
        along_x, along_lam = self.cross(x, lam, theta, v)
        Gx, Glam = -along_x, -along_lam
        x_gap = Gx @ (x - lmo_l1(Gx, self.radius)) + Glam @ (lam - lmo_box(Glam))
        return x_gap + np.linalg.norm(y - project_simplex(y + self.f_y(theta, y)))

    def start(self):
        zero = np.zeros((self.T, self.d))
        return np.zeros(self.d), np.full(self.T, 0.5), zero, zero.copy(), np.full(self.T, 1 / self.T)


def regularised(p, records, gamma, mu, sigma, tau=None):
    """i-BRPD: OPF without tau, FP with it; the gaps at the records."""
    x, lam, theta, w, y = p.start()
    alpha, y0, found = 2 / (p.rho + p.L_g), y.copy(), {}
    for k in range(max(records) + 1):
        if k in records:
            found[k] = p.gap(x, lam, y)
        w = w - alpha * (p.hessian(lam, w) - p.f_theta(theta, y))
        along_x, along_lam = p.cross(x, lam, theta, w)
        Gx, Glam, Gy = -along_x, -along_lam, p.f_y(theta, y)
        if tau is None:
            s, t = lmo_l1(Gx, p.radius), lmo_box(Glam)
        else:
            s, t = project_l1(x - tau * Gx, p.radius), np.clip(lam - tau * Glam, 0, 1)
        x, lam = gamma * s + (1 - gamma) * x, gamma * t + (1 - gamma) * lam
        theta = theta - alpha * p.g_theta(x, lam, theta)
        y = project_simplex(y + sigma * (Gy - mu * (y - y0)))
    return found


def opf(p, records, nu, K, printed=False):
    gamma, mu = nu * K ** (-2 / 3), nu * K ** (-1 / 3)
    return regularised(p, records, gamma, mu, 1 / mu if printed else 1 / (mu + p.beta * p.T))


def fp(p, records, nu, K, printed=False):
    gamma, mu = nu * K ** (-1 / 2), nu * K ** (-1 / 4)
    return regularised(p, records, gamma, mu, 1 / mu if printed else 1 / (mu + p.beta * p.T), 0.7)


def morbit(p, records, nu, K, neumann):
    """neumann: terms after the first."""
    x, lam, theta, _, y = p.start()
    alpha, step, q, found = K ** (-2 / 5), nu * K ** (-3 / 5), 1 / p.L_g, {}
    for k in range(max(records) + 1):
        if k in records:
            found[k] = p.gap(x, lam, y)
        theta = theta - alpha * p.g_theta(x, lam, theta)
        term = p.f_theta(theta, y)
        total = term.copy()
        for _ in range(neumann):
            term = term - q * p.hessian(lam, term)
            total = total + term
        along_x, along_lam = p.cross(x, lam, theta, q * total)
        Gy = p.f_y(theta, y)
        x, lam = project_l1(x + step * along_x, p.radius), np.clip(lam + step * along_lam, 0, 1)
        y = project_simplex(y + step * Gy)
    return found
