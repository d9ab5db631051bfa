"""Every file that a loader reads, as sources.toml lists them."""

import tomllib
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True, kw_only=True)
class Source:
    """One file. Files of the same dataset and part are alternatives, in order of preference.

    rows, columns: as parsed, the target among the columns; None where the publisher lets the user choose.
    sha256, bytes: None for a file that each user makes; then the checksum is recorded instead of compared.
    url: None where the file cannot be downloaded without an account, or is not published in this form.
    optional: the data set can be loaded without this part.
    """

    dataset: str
    part: str
    file: str
    format: str
    rows: int
    columns: int | None = None
    sha256: str | None = None
    bytes: int | None = None
    licence: str
    page: str
    url: str | None = None
    optional: bool = False


_LISTED = tomllib.loads(Path(__file__).with_name("sources.toml").read_text(encoding="utf-8"))
SOURCES = tuple(Source(**keys) for keys in _LISTED["source"])


def sources(dataset: str | None = None) -> tuple[Source, ...]:
    """The files of one data set, or of all; a data set that is made or comes with a library has none."""
    return tuple(source for source in SOURCES if dataset in (None, source.dataset))


def parts(dataset: str) -> dict[str, tuple[Source, ...]]:
    """part: its alternatives"""
    found: dict[str, tuple[Source, ...]] = {}
    for source in sources(dataset):
        found[source.part] = (*found.get(source.part, ()), source)
    return found
