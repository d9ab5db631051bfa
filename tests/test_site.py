"""The documentation site. Skipped without the docs extra, which `make docs` installs; it builds strictly itself."""

import subprocess
import sys
import time

import pytest

from tests import browser
from tests.test_docs import ROOT, maker

pytest.importorskip("mkdocs")
pytest.importorskip("latex2mathml")


@pytest.fixture(scope="module")
def hooks():
    return maker("site_hooks")


def test_a_formula_becomes_mathml_with_its_limits_below(hooks):
    inline = r'<span class="arithmatex">\(\theta^*(x) &lt; 1\)</span>'
    drawn = hooks.on_page_content(inline + r'<div class="arithmatex">\[\min_{x \in X} f\]</div>')
    assert drawn.count("<math") == 2 and "arithmatex" not in drawn and "<munder><mo>min</mo>" in drawn


def test_the_star_of_theta_is_no_emphasis(hooks):
    text = "f(x, theta*(x), y) and `theta*` and *word* and $\\theta^*$; y*_mu(x), theta\\*\n\n    theta*(x)\n"
    shown = text.replace("f(x, theta*", "f(x, theta\\*").replace("y*_mu", "y\\*_mu")
    assert hooks.on_page_markdown(text) == shown


def test_an_inner_product_is_no_tag(hooks):
    text = '<v - p, z> and `<d, u>` and <details markdown="1">'
    assert hooks.on_page_markdown(text) == text.replace("<v", "&lt;v")


def test_links_of_root_files_lead_to_pages(hooks):
    text = "[a](docs/cli.md#x) [b](CONTRIBUTING.md) [c](LICENSE) [d](docs/references.bib)"
    assert hooks.from_root(text) == "[a](cli.md#x) [b](contributing.md) c [d](references.bib)"


def test_pages_that_are_not_written_are_left_out_and_others_are_added(hooks, monkeypatch):
    monkeypatch.setattr(hooks, "_written", lambda: ["index.md", "apps/b.md", "apps/index.md", "new.md"])
    monkeypatch.setattr(hooks, "OPTIONAL", {"missing.md"})

    class Config:
        nav = [{"Start": "index.md"}, {"Guide": [{"Later": "missing.md"}]}, {"Applications": "apps/*"}]

    nav = hooks.on_config(Config()).nav
    assert nav == [{"Start": "index.md"}, {"Applications": ["apps/index.md", "apps/b.md"]}, {"More": ["new.md"]}]


def test_a_docstring_in_house_form_keeps_its_columns_and_shows_its_stars():
    pytest.importorskip("griffe")
    markdown = maker("site_docstrings").markdown
    text = "theta*(x) and <d, u>.\n\nupper     f(x)\nx_set     a set\n\nNeeds: an LMO.\nPromises: nothing."
    assert markdown(text) == (
        "theta\\*(x) and &lt;d, u&gt;.\n\n```text\nupper     f(x)\nx_set     a set\n```\n\n"
        "* **Needs**: an LMO.\n* **Promises**: nothing."
    )


def test_a_page_that_loads_from_another_machine_is_refused(hooks, tmp_path):
    from mkdocs.exceptions import PluginError

    class Config:
        site_dir = tmp_path

    (tmp_path / "page.html").write_text('<a href="https://example.org">a link</a><img src="here.svg">')
    hooks.on_post_build(Config())
    (tmp_path / "page.html").write_text('<script defer src="https://example.org/x.js"></script>')
    with pytest.raises(PluginError, match="another machine"):
        hooks.on_post_build(Config())


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The site, built strictly; a warning would be an error."""
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(folder)]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, env={"NO_MKDOCS_2_WARNING": "1", "PATH": ""}
    )
    assert done.returncode == 0 and not done.stderr.strip(), done.stderr
    return folder


@pytest.mark.slow
def test_the_site_builds_without_a_warning(site):
    assert (site / "index.html").exists() and (site / "search" / "search_index.js").exists()


@pytest.mark.slow
@pytest.mark.skipif(browser.chromium() is None, reason="no Chromium")
def test_the_site_fits_a_phone_and_searches_without_a_server(site, tmp_path):
    with browser.Browser(tmp_path) as page:
        for path in sorted(site.rglob("*.html")):
            if path.name != "404.html":  # whose addresses are those of a server
                page.open(path, width=390, mobile=True)
                assert page.evaluate("document.documentElement.scrollWidth") <= 390, path
        page.open(site / "index.html", "?q=simplex")
        found = "document.querySelector('.md-search-result__meta').textContent"
        limit = time.monotonic() + 30
        while "matching" not in page.evaluate(found) and time.monotonic() < limit:
            time.sleep(0.2)
        assert "matching documents" in page.evaluate(found)
        asked = "performance.getEntriesByType('resource').map(e => e.name).filter(n => !n.startsWith('file:')).join()"
        assert page.evaluate(asked) == "" and page.errors == []
