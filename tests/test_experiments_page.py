"""REPRODUCTION.md: its sentences follow the numbers."""

import copy

import pytest

from bisaddle.experiments import ExperimentError, reproduction, save, save_sensitivity

STEPS = 100


def made(experiment, dataset, method, level, seed=0, *, corner=False, products=2, worst=0.5, parted=None, **step_sizes):
    """A run whose gap is 10^level from the first record on."""
    k = list(range(0, STEPS + 1, 10))
    gap = [1.0] + [10.0**level] * (len(k) - 1)
    curve = {"k": k, "seconds": k, "hvps": [products * i for i in k], "gap": gap, "x_gap": gap, "y_gap": gap}
    config = {
        "radius": 5.0,
        "ridge": 0.1,
        "start": "x = 0",
        "precision": "float64",
        "tuning": "the rule",
        "quick": False,
    }
    config |= {"gap": {"sigma": 1.0}, "versions": {"bisaddle": "1"}, "data": {"standardize": ["features"]}}
    config |= {
        "products_per_step": products,
        "constants": {"L_yy": 0.5},
        "step_sizes": {"gamma": 0.1, "mu": 1.0, **step_sizes},
    }
    return {
        "experiment": f"{experiment}_{dataset}",
        "dataset": dataset,
        "dataset_label": f"{dataset}, made up",
        "method": method,
        "label": method.upper(),
        "figure": "fig1",
        "nu": 1.0,
        "seed": seed,
        "steps": STEPS,
        "tuned": True,
        "partial": False,
        "config": config,
        "curve": {**curve, "worst_value": [worst] * len(k), "corner": [corner] * len(k)},
        "final": {
            "k": STEPS,
            "gap": gap[-1],
            "best_gap": gap[-1],
            "mean_log10_gap": float(level),
            "worst_value": worst,
            "corner": corner,
            "status": "COMPLETED",
            "alone": {"gap": gap[-1], "parted": parted},
        },
    }


def entry(order, cap, ridge=0.1):
    nus = {"opf": 0.1, "fp": 0.1, "morbit": 100.0 if cap is None else 0.4}
    gaps = {name: 10.0 ** (i - 3) for i, name in enumerate(order)}
    orders = {"order": list(order), "order_final": list(order), "order_hvps": list(order)}
    return {
        "experiment": "exp1_mtl",
        "dataset": "mtl",
        "setting": {"ridge": ridge},
        "cap": cap,
        "gaps": gaps,
        "nus": nus,
    } | orders


def claimed():
    return [
        made("exp1", "mtl", "opf", -4),
        made("exp1", "mtl", "fp", -3),
        made("exp1", "mtl", "morbit", -2, products=11),
    ]


def test_the_claims_hold_where_the_numbers_say_so():
    page = reproduction.text(claimed(), [])
    assert "| OPF and FP converge faster than MORBiT | 1 | holds | holds | not run | not run |" in page
    assert "Of the 3 claims of section 6 that were run, 3 hold everywhere at our default settings." in page
    assert "MORBiT (N = 10) is the slowest on the one data set" in page and "were not varied" in page
    assert "mean log10 gap OPF -4.00, FP -3.00, MORBiT -2.00" in page
    assert "mtl, made up" in page and "No tuned run of Experiment 1 ends at one" in page


def test_the_claims_fail_where_the_numbers_say_so():
    runs = claimed()
    runs[2]["final"]["mean_log10_gap"] = -9.0
    page = reproduction.text(runs, [])
    assert "| OPF and FP converge faster than MORBiT | 1 | fails |" in page
    assert "| OPF converges fastest of all | 1 | fails |" in page
    more = claimed() + [{**run, "dataset": "nlsy79", "experiment": "exp1_nlsy79"} for run in copy.deepcopy(runs)]
    assert "| both: the order OPF, FP, MORBiT | 1 | holds on 1 of 2 |" in reproduction.text(more, [])


def test_settings_are_counted_and_the_cap_is_explained():
    paper, other = ("opf", "fp", "morbit"), ("morbit", "fp", "opf")
    entries = [entry(paper, 0.5), entry(other, None), entry(paper, 0.5, 1.0), entry(paper, None, 1.0)]
    page = reproduction.text(claimed(), entries)
    assert "| both: the order OPF, FP, MORBiT | 1 | holds | holds | 2 of 2 | 1 of 2 |" in page
    assert "the cap is below the best nu of OPF in 0, FP in 0, MORBiT in 2 of 2 settings. It holds MORBiT back" in page
    assert "| MTL | ridge | 0.1 | 1 of 1 | 0 of 1 |" in page and "| MTL | ridge | 1.0 | 1 of 1 | 1 of 1 |" in page


def test_corners_and_rounding_are_named():
    runs = claimed()
    runs[2] = made("exp1", "mtl", "morbit", -16, corner=True, worst=0.7, parted=30)
    page = reproduction.text(runs, [])
    assert "at a degenerate corner: MORBiT (1 of 1 seeds)" in page
    # a corner decides the claim; with that data set aside there is none to judge it by
    assert "| OPF and FP converge faster than MORBiT | 1 | fails | not run |" in page and "e-16 (corner) |" in page
    assert "worst task 0.7000, worse than the best of the methods that end at none (0.5000)" in page
    assert "The gaps of 2 of 3 pairs agree" in page and "MORBIT: 1 of 1 seeds, from step 30 on" in page


def test_the_series_and_the_step_sizes_are_compared():
    runs = claimed()
    runs += [
        made("exp1", "mtl", key, level, products=n) for key, level, n in (("morbit_1", -1, 2), ("morbit_60", -5, 61))
    ]
    runs += [
        made("exp1", "mtl", "morbit_exact", -5, products=15),
        made("exp1", "mtl", "fp_apart", -6, gamma=1.0, mu=1e-4),
    ]
    page = reproduction.text(runs, [])
    assert (
        "-1.00, -2.00, -5.00, -5.00; without any bias it is lower by 3.0 orders of magnitude than with 10 terms" in page
    )
    assert "takes 2 to 61 products" in page and "a step of OPF or FP 2." in page
    assert (
        "With gamma = 1 and mu = 0.0001, chosen apart, FP is lower by 3.0 orders of magnitude than with one nu" in page
    )


def test_experiment_2_and_the_printed_sigma():
    runs = [made("exp2", "mtl", key, level) for key, level in (("opf", -3), ("fp", -2), ("opf_printed", -1))]
    runs.append(made("exp2", "mtl", "fp_printed", -2, mu=0.1))
    page = reproduction.text(runs, [])
    assert "(the gap falls tenfold) | 2 | holds |" in page
    assert "OPF has the better best gap in 1 of 1 runs" in page
    assert "OPF: chosen mu 1.0e+00 against L_yy = beta T = 0.5; the mean log10 gap is higher by 2.0" in page
    assert "meets that in 1 of 2 cases, and is slower in 1 of 2" in page


def test_the_page_is_written_from_the_files_alone(tmp_path):
    save(claimed(), tmp_path)
    first = reproduction.write(tmp_path, tmp_path / "docs" / "REPRODUCTION.md").read_text()
    assert first == reproduction.text(claimed(), []) and "not run" in first
    save_sensitivity([entry(("opf", "fp", "morbit"), None)], tmp_path)
    assert "1 of 1" in reproduction.write(tmp_path, tmp_path / "REPRODUCTION.md").read_text()
    with pytest.raises(ExperimentError, match="cannot be read"):
        reproduction.write(tmp_path / "docs", tmp_path / "nothing.md")


def test_cut_runs_are_left_out_and_quick_ones_marked():
    runs = claimed()
    runs[0]["partial"], runs[1]["config"]["quick"] = True, True
    page = reproduction.text(runs, [])
    assert "interrupted" in page and "provisional" in page and "| OPF converges fastest of all | 1 | not run |" in page
    assert "There are no runs." in reproduction.text([], [])


def test_adaptive_is_counted_in_the_sentence_and_named_beyond_the_paper():
    ours = made("exp1", "mtl", "adaptive", -7)
    ours["final"] |= {"status": "CERTIFIED", "k": 40}
    ours["config"]["tol"] = 1e-6
    failed = made("exp2", "mtl", "adaptive", -2)
    page = reproduction.text([*claimed(), ours, failed], [])
    assert "Adaptive, with nothing tuned, is certified to a gap of 1e-06 after at most 40 steps in 1 of 2 runs." in page
    assert "* Experiment 1, MTL: Adaptive, 1 CERTIFIED; gap 1.0e-07 after 40 steps" in page
    assert "* Experiment 2, MTL: Adaptive, 1 COMPLETED" in page
    ours["final"]["corner"] = True
    assert "in 1 of 2 runs, 1 of them at a degenerate corner." in reproduction.text([*claimed(), ours, failed], [])
