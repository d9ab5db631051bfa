"""What mkdocs does not do by itself: formulas as MathML, root files as pages, a nav of the pages that are there.

Nothing here or in the built site asks another machine for anything; the last hook checks that.
"""

import html
import re
from pathlib import Path
from typing import Any

from latex2mathml.converter import convert
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).parents[1]
DOCS = ROOT / "docs"
# root files that are pages of the site too
ROOT_PAGES = {"CONTRIBUTING.md": "contributing.md", "CHANGELOG.md": "changelog.md"}
# pages of the nav that may not be written yet
OPTIONAL = {"estimators.md", "usefulness.md"}

FORMULA = re.compile(r'<(span|div) class="arithmatex">\\[(\[](.*?)\\[)\]]</\1>', re.DOTALL)
# what Markdown leaves as it is: fenced, indented, in backticks, formulas
CODE = re.compile(r"(^```.*?^```$|^ {4}.*?$|`[^`\n]*`|\$\$?[^$]*\$\$?)", re.MULTILINE | re.DOTALL)
STAR = re.compile(r"\b(?:theta|y)(?=\*(?:[^*\w]|_mu|$))")
ANGLE = re.compile(r"<(?=[A-Za-z][^<>\n=]*,[^<>\n=]*>)")
# tags that load what they name; a plain link does not
LOADED = re.compile(r"<(?:script|img|iframe|source|video|audio|link)\b[^>]*?\b(?:src|href)=[\"']?(?:https?:)?//", re.I)


def on_config(config: Any) -> Any:
    """The nav without pages that are not written yet, and with those that it does not name."""
    config.nav = [entry for entry in map(_present, config.nav) if entry is not None]
    more = sorted(set(_written()) - set(_named(config.nav)))
    if more:
        config.nav.append({"More": more})
    return config


def on_files(files: Any, config: Any) -> Any:
    for name, page in ROOT_PAGES.items():
        files.append(File.generated(config, page, content=from_root((ROOT / name).read_text(encoding="utf-8"))))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """What a block printed gets a look of its own; theta*(x) begins no emphasis in a sentence, and <d, u> no tag."""
    parts = CODE.split(markdown.replace("<!-- output -->\n```text", "```{ .text .printed }"))
    return "".join(part if i % 2 else ANGLE.sub("&lt;", STAR.sub(r"\g<0>\\", part)) for i, part in enumerate(parts))


def on_page_content(content: str, **_: Any) -> str:
    return FORMULA.sub(lambda found: mathml(found[2], found[1] == "div"), content)


def on_post_build(config: Any) -> None:
    for page in sorted(Path(config.site_dir).rglob("*.html")):
        if found := LOADED.search(page.read_text(encoding="utf-8")):
            raise PluginError(f"{page.name} would load from another machine: {found[0]}")


def mathml(formula: str, block: bool) -> str:
    """A formula in LaTeX, as the browser draws it by itself."""
    formula = html.unescape(formula).strip()
    if block:  # what stands below min and argmin in a displayed formula, the converter puts beside them
        formula = re.sub(r"\\(min|max|sup)_", r"\\\1\\limits_", formula)
        formula = re.sub(
            r"\\operatorname\*\{(\w+)\}_(\{[^{}]*\}|\\?\w+)", r"\\underset{\2}{\\operatorname{\1}}", formula
        )
    drawn = convert(formula, display="block" if block else "inline")
    return drawn.replace("&#x0002A;", "&#x02217;")  # the asterisk that is not raised already


def from_root(text: str) -> str:
    """A file of the root folder as a page: links into docs/ stay, those to other files become their names."""
    text = re.sub(r"\]\((?:docs/)([\w./-]+\.(?:md|svg|bib))((?:#[\w-]+)?)\)", r"](\1\2)", text)
    for name, page in ROOT_PAGES.items():
        text = text.replace(f"]({name})", f"]({page})")
    return re.sub(r"\[([^\]]+)\]\((?:LICENSE|CITATION\.cff|README\.md)\)", r"\1", text)


def _written() -> list[str]:
    return [path.relative_to(DOCS).as_posix() for path in DOCS.rglob("*.md")]


def _named(nav: list) -> list[str]:
    named = []
    for entry in nav:
        value = next(iter(entry.values())) if isinstance(entry, dict) else entry
        named += _named(value) if isinstance(value, list) else [value]
    return named


def _present(entry: Any) -> Any:
    """An entry of the nav with what is there of it, or None."""
    if isinstance(entry, str):
        return entry if _is_there(entry) else None
    title, value = next(iter(entry.items()))
    if isinstance(value, str) and value.endswith("/*"):
        value = sorted(page for page in _written() if page.startswith(value[:-1]))
        value.sort(key=lambda page: not page.endswith("/index.md"))
        return {title: value} if value else None
    if isinstance(value, str):
        return entry if _is_there(value) else None
    value = [kept for kept in map(_present, value) if kept is not None]
    return {title: value} if value else None


def _is_there(page: str) -> bool:
    """Optional pages may be missing; any other that is, mkdocs complains of."""
    return page not in OPTIONAL or (DOCS / page).exists()
