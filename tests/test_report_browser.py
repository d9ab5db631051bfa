"""The page in headless Chromium: no console error, the switches work, the numbers are those of the runs."""

import math
import statistics

import pytest

from bisaddle import report
from bisaddle.report.records import runs_of
from bisaddle.report.verdict import verdict_of

from .browser import Browser, chromium
from .report_runs import made_runs, made_sensitivity

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs chromium, which Debian has as a package")

RUNS = made_runs()
SENSITIVITY = made_sensitivity()


@pytest.fixture(scope="module")
def browser(tmp_path_factory):
    with Browser(tmp_path_factory.mktemp("profile")) as browser:
        yield browser


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    return report.html(RUNS, tmp_path_factory.mktemp("page") / "report.html", sensitivity=SENSITIVITY)


@pytest.fixture(autouse=True)
def no_console_error(browser):
    browser.errors.clear()
    yield
    assert browser.errors == []


def value_in(run, path):
    for key in path.split("."):
        run = run[key]
    return run[-1] if isinstance(run, list) else run


def numbers(browser):
    return browser.evaluate(
        "[...document.querySelectorAll('#final [data-value]')].map((cell) => [cell.dataset.run.split(' ').map(Number),"
        " cell.dataset.key, JSON.parse(cell.dataset.value), cell.textContent, cell.classList.contains('best')])"
    )


def paths(browser):
    return browser.evaluate("[...document.querySelectorAll('#panels .series')].map((path) => path.getAttribute('d'))")


def press(browser, key, choice):
    browser.evaluate(f"""document.querySelector('[data-set="{key}"][data-choice="{choice}"]').click()""")


def choose(browser, select, value):
    found = f"const select = document.querySelector('{select}')"
    browser.evaluate(f"(() => {{ {found}; select.value = '{value}'; select.dispatchEvent(new Event('change')); }})()")


def test_the_numbers_on_the_page_are_those_of_the_runs(browser, page):
    for group in ("fig1", "fig2"):
        for seed in ("0", "1", "all", "median"):
            browser.open(page, f"#group={group}&seed={seed}")
            shown = numbers(browser)
            wanted = [
                i
                for i, run in enumerate(RUNS)
                if run["tuned"] and run["figure"] == group and seed in ("all", "median", str(run["seed"]))
            ]
            assert {number for row, *_ in shown for number in row} == set(wanted)
            for row, path, value, text, best in shown:
                assert len(row) == (2 if seed == "median" else 1)
                runs = [RUNS[number] for number in row]
                exact = statistics.median(value_in(run, path) for run in runs)
                assert value == pytest.approx(exact, rel=1e-15)
                assert math.isclose(float(text.split(" ")[0]), exact, rel_tol=5e-3, abs_tol=1e-300)
                corner = any(run["final"]["corner"] for run in runs)
                assert not (best and corner)
                assert ("(corner" in text) == (corner and path in ("final.gap", "final.best_gap"))
                if seed == "0" and corner and path == "final.gap":
                    assert text == "0 (corner)"
            assert len(shown) == (9 if seed == "all" else 8) * len(wanted) / (2 if seed == "median" else 1)


def test_the_least_of_a_data_set_is_bold_among_the_runs_that_end_at_no_corner(browser, page):
    browser.open(page, "#seed=0")
    bold = [(row[0], path) for row, path, *_, best in numbers(browser) if best]
    for dataset in ("synthetic", "mtl", "nlsy79"):
        runs = [
            (i, run)
            for i, run in enumerate(RUNS)
            if run["tuned"] and run["figure"] == "fig1" and run["dataset"] == dataset and run["seed"] == 0
        ]
        free = [(i, run) for i, run in runs if not run["final"]["corner"]]
        assert len(free) == len(runs) - 1
        for path in ("final.gap", "final.best_gap", "final.mean_log10_gap", "final.worst_value"):
            least = min(free, key=lambda pair: value_in(pair[1], path))[0]
            assert [i for i, key in bold if key == path and RUNS[i]["dataset"] == dataset] == [least]


def test_the_verdict_comes_first_with_the_table_of_claims(browser, page, tmp_path):
    browser.open(page)
    assert browser.evaluate("document.querySelector('main section').id") == "verdict"
    found = verdict_of(runs_of(RUNS), [])
    assert found is not None
    assert browser.evaluate("document.getElementById('verdict-sentence').textContent") == found.sentence
    assert browser.evaluate("document.getElementById('provisional')") is None
    claims = browser.evaluate("[...document.querySelectorAll('.verdict tbody th')].map((cell) => cell.textContent)")
    assert claims == [row[0] for row in found.rows] and len(claims) == 4
    quick = [run | {"config": run["config"] | {"quick": True}} for run in RUNS if run["seed"] == 0]
    browser.open(report.html(quick, tmp_path / "quick.html"))
    assert "Provisional: a quick run" in browser.evaluate("document.getElementById('provisional').textContent")


def test_the_best_so_far_of_every_curve_is_the_best_gap_of_the_table(browser, page):
    for seed in ("0", "median"):
        browser.open(page, f"#best=1&seed={seed}&off=")
        ends = browser.evaluate("rowsOf().map((row) => [row.runs.map((run) => run.number), seriesOf(row).y.at(-1)])")
        assert len(ends) == 15
        for row, end in ends:
            assert end == pytest.approx(statistics.median(RUNS[i]["final"]["best_gap"] for i in row), rel=1e-15)


def test_the_median_and_the_band_are_those_of_the_seeds_at_every_point(browser, page):
    browser.open(page)
    name = "rowsOf().filter((row) => row.runs[0].dataset === 'mtl' && row.runs[0].method === 'fp')"
    row = browser.evaluate(f"{name}.map((row) => ({{runs: row.runs.map((run) => run.number), ...seriesOf(row)}}))[0]")
    curves = [dict(zip(RUNS[i]["curve"]["k"], RUNS[i]["curve"]["gap"], strict=True)) for i in row["runs"]]
    assert len(curves) == 2 and len(row["x"]) > 50
    for k, low, middle, high in zip(row["x"], row["low"], row["y"], row["high"], strict=True):
        exact = [curve[k] for curve in curves]
        assert [low, middle, high] == pytest.approx([min(exact), statistics.median(exact), max(exact)], rel=1e-3)
    assert browser.evaluate("document.querySelectorAll('#panels .band').length") == 12


def test_the_switch_redraws_the_curves_against_products_and_seconds(browser, page):
    browser.open(page)
    drawn = {"k": paths(browser)}
    for axis, words in (("hvps", "products"), ("seconds", "seconds"), ("k", "iterations")):
        press(browser, "x", axis)
        drawn[axis] = paths(browser)
        assert words in browser.evaluate("document.querySelector('#panels svg').getAttribute('aria-label')")
        assert (
            browser.evaluate(f"""document.querySelector('[data-choice="{axis}"]').getAttribute('aria-pressed')""")
            == "true"
        )
        # what is as at first is not in the address
        assert (f"x={axis}" in browser.evaluate("location.hash")) == (axis != "k")
    assert len(drawn["k"]) == 12 and all(path.count("L") > 50 for path in drawn["k"])
    # on one axis for all methods, the dear method reaches further than the cheap ones
    assert drawn["k"] != drawn["hvps"]
    press(browser, "group", "fig2")
    assert len(paths(browser)) == 6


def test_log_axes_quantities_and_the_best_so_far(browser, page):
    browser.open(page)
    before = paths(browser)
    for key in ("logx", "logy", "best"):
        browser.evaluate(f"""document.querySelector('input[data-set="{key}"]').click()""")
        after = paths(browser)
        assert after != before and len(after) == len(before)
        before = after
    choose(browser, 'select[data-set="y"]', "worst_value")
    assert "worst-task" in browser.evaluate("document.getElementById('curves-note').textContent")


def test_the_legend_switches_curves(browser, page):
    browser.open(page)
    count = len(paths(browser))
    browser.evaluate("""document.querySelector('.legend [data-method="opf"]').click()""")
    assert len(paths(browser)) == count - 3
    browser.evaluate("""document.querySelector('.legend [data-method="morbit_60"]').click()""")
    assert len(paths(browser)) == count
    # the run that ends at a degenerate corner has a ring and is named so in the table
    assert browser.evaluate("document.querySelectorAll('#panels .ring').length") == 3
    assert browser.evaluate("document.querySelectorAll('#final .corner').length") == 3


def test_pointing_at_a_panel_reads_the_values_out(browser, page):
    browser.open(page, "#seed=0")
    place = browser.evaluate(
        "(() => { const r = document.querySelector('#panels svg').getBoundingClientRect();"
        " return [r.left + 0.995 * r.width, r.top + r.height / 2]; })()"
    )
    browser.mouse("mouseMoved", *place)
    text = browser.evaluate("document.querySelector('#panels .readout').innerText")
    run = next(run for run in RUNS if run["dataset"] == "synthetic" and run["method"] == "opf" and run["tuned"])
    assert "iteration 1000" in text and f"OPF, nu 0.100: {run['final']['gap']:.3g}" in text
    browser.mouse("mouseMoved", 1, 1)
    assert browser.evaluate("document.querySelector('#panels .readout').hidden")


def test_the_maps_count_the_orders_and_the_table_has_the_gaps(browser, page):
    browser.open(page)
    text = "document.getElementById('maps').innerText"
    assert "OPF < FP < MORBiT: 12 of 36" in browser.evaluate(
        text
    ) and "the paper's order in 4 of 6" in browser.evaluate(text)
    cells = browser.evaluate("[...document.querySelectorAll('#maps .cell')].map((cell) => cell.textContent)")
    assert len(cells) == 36 and cells.count("O") == 12 and cells.count("M*") == 24
    choose(browser, "#map-order", "order_final")
    assert "OPF < FP < MORBiT: 0 of 36" in browser.evaluate(text)
    assert "map=order_final" in browser.evaluate("location.hash")
    browser.evaluate("document.querySelector('[data-open=settings]').open = true")
    browser.evaluate("new Promise((done) => setTimeout(done, 100))")
    shown = browser.evaluate(
        "[...document.querySelectorAll('#maps [data-value]')].map((c) =>"
        " [Number(c.dataset.setting), c.dataset.key, JSON.parse(c.dataset.value)])"
    )
    assert len(shown) == 108 and all(SENSITIVITY[i]["gaps"][method] == gap for i, method, gap in shown)


@pytest.mark.parametrize("dark", [False, True])
@pytest.mark.parametrize("width", [390, 1280])
def test_it_fits_a_phone_and_a_laptop_light_and_dark(browser, page, width, dark):
    browser.open(page, "", width, 844, dark, mobile=width < 500)
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    back, text = browser.evaluate(
        "['backgroundColor', 'color'].map((name) => getComputedStyle(document.body)[name].match(/\\d+/g).map(Number))"
    )
    assert (sum(back) < sum(text)) == dark and abs(sum(back) - sum(text)) > 400
    widths = browser.evaluate(
        "[...document.querySelectorAll('#panels svg')].map((s) => s.getBoundingClientRect().width)"
    )
    assert len(widths) == 3 and all(220 <= w <= width for w in widths)


def test_a_page_without_grid_and_maps_leaves_those_parts_out(browser, tmp_path):
    few = [run for run in RUNS if run["tuned"] and run["dataset"] == "mtl"]
    browser.open(report.html(few, tmp_path / "few.html"), "#group=nothing&x=nothing&seed=9")
    assert browser.evaluate("document.getElementById('scale').hidden")
    assert browser.evaluate("document.getElementById('sensitivity')") is None
    assert len(paths(browser)) == 4
