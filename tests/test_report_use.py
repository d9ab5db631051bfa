"""The page in use: keyboard, zoom, the address, sorting, files saved from it, paper, contrast, its policy."""

import base64
import csv
import io

import pytest

from .browser import chromium
from .test_report_browser import (  # the fixtures of the page
    RUNS,
    browser as browser,
    choose,
    no_console_error as no_console_error,
    page as page,
    paths,
    press,
)

pytestmark = pytest.mark.skipif(chromium() is None, reason="needs chromium, which Debian has as a package")
FIRST = "document.querySelector('#panels .chart')"
READOUT = "document.querySelector('#panels .readout')"


def key(browser, name, text=None):
    browser.call("Input.dispatchKeyEvent", {"type": "keyDown", "key": name, **({"text": text} if text else {})})
    browser.call("Input.dispatchKeyEvent", {"type": "keyUp", "key": name})


def saved(browser, act):
    """What pressing a button would save: its name and its bytes."""
    browser.evaluate("window.save = (name, blob) => { window.kept = { name, blob }; }; window.kept = null;")
    browser.evaluate(act)
    waiting = "while (!window.kept) await new Promise((done) => setTimeout(done, 20));"
    coded = "Array.from(new Uint8Array(await window.kept.blob.arrayBuffer()), (b) => String.fromCharCode(b)).join('')"
    name, content = browser.evaluate(f"(async () => {{ {waiting} return [window.kept.name, btoa({coded})]; }})()")
    return name, base64.b64decode(content)


def test_values_are_read_by_keyboard(browser, page):
    browser.open(page, "#seed=0")
    browser.evaluate(f"{FIRST}.focus()")
    run = next(run for run in RUNS if run["dataset"] == "synthetic" and run["method"] == "opf" and run["tuned"])
    for name, record in (("End", -1), ("ArrowLeft", -2), ("Home", 1), ("ArrowRight", 2)):
        key(browser, name)
        text = browser.evaluate(f"{READOUT}.innerText")
        assert f"iteration {run['curve']['k'][record]}" in text
        assert browser.evaluate("document.querySelector('#panels .aloud').textContent").startswith("iteration")
    gap = run["curve"]["gap"][2]
    assert f"OPF, nu 0.100: {gap:.3g}" in text
    key(browser, "Escape")
    assert browser.evaluate(f"{READOUT}.hidden")


def test_zoom_by_pointer_and_keyboard_is_in_the_address(browser, page):
    browser.open(page)
    whole = paths(browser)
    corners = browser.evaluate(
        f"(() => {{ const r = {FIRST}.getBoundingClientRect();"
        " return [[0.4, 0.3], [0.7, 0.6]].map(([x, y]) => [r.left + x * r.width, r.top + y * r.height]); })()"
    )
    browser.mouse("mousePressed", *corners[0], button="left", buttons=1, clickCount=1)
    browser.mouse("mouseMoved", *corners[1], button="left", buttons=1)
    browser.mouse("mouseReleased", *corners[1], button="left", clickCount=1)
    ranges = browser.evaluate("(({ X, Y }) => [X.range, Y.range])(document.querySelector('#panels .panel').chart)")
    assert "zoom=synthetic" in browser.evaluate("location.hash") and paths(browser) != whole
    fragment, near = browser.evaluate("location.hash"), paths(browser)
    browser.open(page, fragment)
    assert paths(browser) == near
    # the keyboard: in, out, all, without losing its place
    browser.evaluate(f"{FIRST}.focus()")
    key(browser, "+", "+")
    nearer = browser.evaluate("(({ X, Y }) => [X.range, Y.range])(document.querySelector('#panels .panel').chart)")
    assert nearer[0][1] / nearer[0][0] < ranges[0][1] / ranges[0][0]
    assert browser.evaluate(f"document.activeElement === {FIRST}")
    key(browser, "0", "0")
    assert paths(browser) == whole and browser.evaluate("location.hash") == ""


def test_the_address_holds_everything_shown(browser, page):
    browser.open(page)
    press(browser, "group", "fig2")
    press(browser, "x", "seconds")
    choose(browser, 'select[data-set="y"]', "y_gap")
    choose(browser, 'select[data-set="seed"]', "all")
    for name in ("logx", "logy", "best"):
        browser.evaluate(f"""document.querySelector('input[data-set="{name}"]').click()""")
    browser.evaluate("""document.querySelector('.legend [data-method="opf"]').click()""")
    browser.evaluate("""document.querySelector('[data-focus="sort final.gap"]').click()""")
    choose(browser, "#map-order", "order_final")
    browser.evaluate("document.querySelector('#panels .tools button').click()")
    browser.evaluate("document.querySelector('[data-open=configuration]').open = true")
    browser.evaluate("document.querySelector('[data-open=\"certificates mtl\"]').open = true")
    browser.evaluate("new Promise((done) => setTimeout(done, 100))")
    seen, fragment = browser.evaluate("document.querySelector('main').innerHTML"), browser.evaluate("location.hash")
    browser.open(page, fragment)
    assert browser.evaluate("document.querySelector('main').innerHTML") == seen
    browser.evaluate("location.hash = ''; new Promise((done) => setTimeout(done, 100))")
    assert len(paths(browser)) == 12 and not browser.evaluate(
        "document.querySelector('[data-open=configuration]').open"
    )


def test_focus_stays_where_it_was_when_the_page_is_drawn_again(browser, page):
    browser.open(page)
    for name in ("x hvps", "logx", "legend fp", "sort final.gap", "+ mtl", "map order", "y"):
        browser.evaluate(f"""document.querySelector('[data-focus="{name}"]').focus()""")
        browser.evaluate("(document.activeElement.click(), draw())")
        assert browser.evaluate("document.activeElement.dataset.focus") == name


def test_tables_are_sorted_by_a_column_within_each_data_set(browser, page):
    browser.open(page, "#seed=0")
    column = "[...document.querySelectorAll('#final tbody')].map((body) => [...body.querySelectorAll("
    column += "'[data-key=\"final.best_gap\"]')].map((cell) => JSON.parse(cell.dataset.value)))"
    first = browser.evaluate(column)
    for wanted, reverse in (("ascending", False), ("descending", True)):
        browser.evaluate("""document.querySelector('[data-focus="sort final.best_gap"]').click()""")
        assert browser.evaluate(column) == [sorted(values, reverse=reverse) for values in first]
        assert browser.evaluate(f"document.querySelectorAll('[aria-sort={wanted}]').length") == 1
    browser.evaluate("""document.querySelector('[data-focus="sort final.best_gap"]').click()""")
    assert browser.evaluate(column) == first
    assert browser.evaluate("[...document.querySelectorAll('th:not([scope])')].every((th) => th.matches('.axes'))")


def test_panels_and_tables_are_saved_as_png_and_csv(browser, page):
    browser.open(page, "#seed=0")
    name, content = saved(browser, "document.querySelector('[data-focus=\"PNG mtl\"]').click()")
    assert name == "fig1_mtl_gap_k.png" and content.startswith(b"\x89PNG") and len(content) > 10_000
    name, content = saved(browser, "document.querySelector('[data-focus=\"CSV mtl\"]').click()")
    rows = list(csv.reader(io.StringIO(content.decode())))
    assert name == "fig1_mtl_gap_k.csv" and rows[0][:3] == ["curve", "iterations", "stationarity gap"]
    run = next(r for r in RUNS if r["dataset"] == "mtl" and r["method"] == "opf" and r["tuned"])
    mine = [row for row in rows if row[0].startswith("OPF")]
    assert [mine[-1][1], float(mine[-1][2])] == ["1000", run["final"]["gap"]]
    name, content = saved(browser, "document.getElementById('final-csv').click()")
    table = list(csv.DictReader(io.StringIO(content.decode())))
    assert len(table) == 15 and float(table[0]["best gap"]) in {run["final"]["best_gap"] for run in RUNS}


def test_paper_has_every_figure_and_every_column(browser, page):
    browser.open(page)
    columns = browser.evaluate("document.querySelectorAll('#final thead th').length")
    browser.evaluate("dispatchEvent(new Event('beforeprint'))")
    assert browser.evaluate("document.querySelectorAll('#panels .chart').length") == 3
    assert browser.evaluate("document.querySelectorAll('#printed .chart').length") == 3
    assert browser.evaluate("document.querySelectorAll('#printed thead th').length") == columns
    browser.call("Emulation.setEmulatedMedia", {"media": "print"})
    browser.call("Emulation.setDeviceMetricsOverride", dict(width=718, height=1000, deviceScaleFactor=1, mobile=False))
    assert browser.evaluate("document.documentElement.scrollWidth <= innerWidth")
    wide = (
        "[...document.querySelectorAll('.final')].every((table) => table.getBoundingClientRect().right <= innerWidth)"
    )
    assert browser.evaluate(wide)
    assert browser.evaluate("getComputedStyle(document.getElementById('controls')).display") == "none"
    browser.call("Emulation.setEmulatedMedia", {"media": ""})
    browser.evaluate("dispatchEvent(new Event('afterprint'))")
    assert browser.evaluate("document.getElementById('printed').childElementCount") == 0


# the least contrast of a text with what lies behind it, and the text
CONTRAST = """(() => {
  const part = (c) => { c /= 255; return c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4; };
  const light = ([r, g, b]) => 0.2126 * part(r) + 0.7152 * part(g) + 0.0722 * part(b);
  const paint = (text) => text.match(/[\\d.]+/g).map(Number);
  const solid = (found) => found.length < 4 || found[3] === 1;
  const behind = (node) => {
    while (node && !solid(paint(getComputedStyle(node).backgroundColor))) node = node.parentElement;
    return node ? paint(getComputedStyle(node).backgroundColor) : [255, 255, 255];
  };
  let least = [99, ""];
  const walk = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walk.nextNode()) {
    const node = walk.currentNode.parentElement;
    if (!walk.currentNode.textContent.trim() || !node.checkVisibility()) continue;
    if (node.closest("script, [aria-hidden]")) continue;
    const style = getComputedStyle(node), front = paint(node.closest("svg") ? style.fill : style.color);
    const [a, b] = [light(front), light(behind(node))].sort((p, q) => q - p), ratio = (a + 0.05) / (b + 0.05);
    if (ratio < least[0]) least = [ratio, walk.currentNode.textContent];
  }
  return least;
})()"""


@pytest.mark.parametrize("dark", [False, True])
def test_every_text_is_read_against_what_lies_behind_it(browser, page, dark):
    browser.open(page, "#off=opf,morbit_60&open=configuration,settings", dark=dark)
    ratio, text = browser.evaluate(CONTRAST)
    assert ratio >= 4.5, text


def test_the_policy_holds_off_what_is_put_into_the_page(browser, page):
    browser.open(page)
    put = "const s = document.createElement('script'); s.textContent = 'window.bad = 1'; document.body.append(s);"
    assert browser.evaluate(f"(() => {{ {put} return window.bad ?? 0; }})()") == 0
    assert any("Content Security Policy" in error for error in browser.errors)
    browser.errors.clear()
