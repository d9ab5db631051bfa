"""Runs as bisaddle.experiments gives them, made up: a few seconds of numbers for the tests of the report."""

import numpy as np

LABELS = {
    "opf": "OPF",
    "fp": "FP",
    "fp_apart": "FP, gamma and mu apart",
    "morbit": "MORBiT, N = 10",
    "morbit_60": "MORBiT, N = 60",
}
PRODUCTS = {"opf": 2, "fp": 2, "fp_apart": 2, "morbit": 12, "morbit_60": 62}
DATASETS = {"synthetic": "synthetic, Gaussian, noise 0.1", "mtl": "MTL: five sets", "nlsy79": "NLSY79, public version"}


def _config(figure, method, seed):
    divergence = 0.0 if figure == "fig1" else 0.1
    return {
        "radius": 5.0,
        "ridge": 0.1,
        "divergence": divergence,
        "lam": [0.0, 1.0],
        "start": "x = 0, lambda = 0.5, theta = w = 0, y = 1/T",
        "data": {"split": "even", "standardize": ["features", "targets"], "seed": seed, "files": {}},
        "class": "FullyProjected",
        "step_sizes": {"gamma": 0.01, "mu": 0.02, "sigma": 50.0},
        "nu_grid": [0.01, 0.1, 1.0],
        "tuning": "least mean log10 gap",
        "gap": {"sigma": 1.0, "tau": 1.0, "definition": "2.1 (LMO)"},
        "every": 10,
        "constants": {"mu_g": 0.1, "L_g": 2.0, "L_yy": 5 * divergence},
        "products_per_step": float(PRODUCTS[method]),
        "quick": False,
        "precision": "float64",
        "versions": {"bisaddle": "0.1.0", "jax": "0.10.2"},
    }


def made_run(experiment, dataset, method, nu, seed=0, tuned=True, figure="fig1", steps=1000, floor=1e-3, rate=0.6):
    """One run; the curve is a power of k down to a floor, a little rough."""
    rng = np.random.default_rng([seed, len(dataset), len(method)])
    k = np.arange(0, steps + 1, 10 if tuned else 100)
    gap = (floor + 3.0 * (1.0 + k) ** -rate) * np.exp(0.1 * rng.normal(size=k.size))
    y_gap = 0.3 * gap
    corner = np.zeros(k.size, bool)
    if method == "morbit_60":
        corner[-5:] = True
        gap[-5:] = y_gap[-5:] = 0.0
    columns = {
        "k": k,
        "seconds": 1e-5 * PRODUCTS[method] * k,
        "hvps": PRODUCTS[method] * k,
        "x_gap": gap - y_gap,
        "y_gap": y_gap,
        "gap": gap,
        "x_gap_projection": 0.5 * (gap - y_gap),
        "gap_projection": 0.5 * (gap + y_gap),
        "gap_paper": 0.7 * gap,
        "worst_value": 0.2 + 0.1 * gap,
        "corner": corner,
    }
    final = {
        "k": int(k[-1]),
        "gap": float(gap[-1]),
        "worst_value": float(columns["worst_value"][-1]),
        "corner": bool(corner[-1]),
        "corner_sentence": "eta = e_2 and lambda_2 = 1: stationary whatever x is." if corner[-1] else "",
        "lam": rng.uniform(size=5).tolist(),
        "y": [0.2] * 5,
        "best_gap": float(gap.min()),
        "mean_log10_gap": float(np.mean(np.log10(np.maximum(gap, 1e-16)))),
        "status": "MAX_STEPS",
        "alone": None,
    }
    certificate = {
        "gap": float(gap[-1]),
        "x_gap": float(gap[-1] - y_gap[-1]),
        "y_gap": float(y_gap[-1]),
        "error_bound": 1e-12,
        "worst_value": final["worst_value"],
        "measure": "lmo",
        "error_is_bound": True,
    }
    return {
        "experiment": experiment,
        "dataset": dataset,
        "dataset_label": DATASETS[dataset],
        "method": method,
        "label": LABELS[method],
        "figure": figure,
        "nu": nu,
        "seed": seed,
        "steps": steps,
        "tuned": tuned,
        "config": _config(figure, method, seed),
        "curve": {name: column.tolist() for name, column in columns.items()},
        "final": final,
        "certificate": certificate if tuned else None,
    }


def made_runs(datasets=tuple(DATASETS), seeds=(0, 1), methods=tuple(LABELS), grid=(0.01, 0.1, 1.0)):
    """Both figures: every method with its chosen nu, and a grid of nu for the first seed."""
    runs = []
    for figure, experiment in (("fig1", "exp1"), ("fig2", "exp2")):
        for i, dataset in enumerate(datasets):
            for j, method in enumerate(methods if figure == "fig1" else methods[:2]):
                shape = {"figure": figure, "floor": 10.0 ** -(2 + j + 0.3 * i), "rate": 0.4 + 0.2 * j}
                for seed in seeds:
                    runs.append(made_run(f"{experiment}_{dataset}", dataset, method, 0.1, seed, True, **shape))
                others = [nu for nu in grid if nu != 0.1]
                runs += [
                    made_run(
                        f"{experiment}_{dataset}", dataset, method, nu, seeds[0], False, **(shape | {"rate": 0.2 * nu})
                    )
                    for nu in others
                ]
    return runs


def made_sensitivity(datasets=tuple(DATASETS)):
    """Two caps, two radii, three ridges; the claimed order only under the cap."""
    found = []
    for dataset in datasets:
        for cap in (0.5, None):
            for radius in (1.0, 5.0):
                for ridge in (0.01, 0.1, 1.0):
                    order = ["opf", "fp", "morbit"] if cap and ridge < 1 else ["morbit", "opf", "fp"]
                    gaps = {method: 10.0 ** (place - 4) * ridge for place, method in enumerate(order)}
                    entry = {"experiment": "exp1", "dataset": dataset, "setting": {"radius": radius, "ridge": ridge}}
                    entry |= {
                        "cap": cap,
                        "order": order,
                        "order_final": order[::-1],
                        "gaps": gaps,
                        "corners": ["morbit"],
                    }
                    found.append(entry)
    return found
