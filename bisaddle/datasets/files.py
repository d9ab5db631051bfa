"""From a Source to its bytes: the user's folder, BISADDLE_DATA, the cache, a download; checked before use."""

import hashlib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bisaddle.datasets.catalogue import Source
from bisaddle.datasets.errors import (
    ChecksumError,
    DownloadError,
    MissingFileError,
    MissingLibraryError,
    TruncatedFileError,
)

VARIABLE = "BISADDLE_DATA"
TIMEOUT = 30  # seconds without an answer before a download is given up


@dataclass(frozen=True)
class File:
    """The bytes of one source, as found at path."""

    source: Source
    path: Path
    content: bytes
    sha256: str


def cache() -> Path | None:
    """Where downloads are kept; None without pooch, which alone fills it."""
    try:
        import pooch
    except ImportError:
        return None
    return Path(pooch.os_cache("bisaddle"))


def folders(directory: str | os.PathLike | None = None) -> tuple[Path, ...]:
    """The folders searched, in order; one that the user named must exist."""
    named = {"the data folder": directory, VARIABLE: os.environ.get(VARIABLE) or None}
    found = []
    for what, folder in named.items():
        if folder is None:
            continue
        path = Path(folder).expanduser()
        if not path.is_dir():
            raise MissingFileError(f"{what} is given as {path}, which is not a folder; give an existing one, or none")
        found.append(path)
    kept = cache()
    return tuple(found) if kept is None else (*found, kept)


def find(alternatives: tuple[Source, ...], directory: str | os.PathLike | None = None) -> tuple[Source, Path] | None:
    """The first of the alternatives in the first folder that has one, not yet checked."""
    for folder in folders(directory):
        for source in alternatives:
            if (folder / source.file).exists():
                return source, folder / source.file
    return None


def read(source: Source, path: Path) -> File:
    """The file's bytes, refused when they are not the ones known by that name."""
    try:
        content = path.read_bytes()
    except OSError as error:
        raise MissingFileError(f"{path} cannot be read ({error.strerror or error}); a file is needed") from error
    found = hashlib.sha256(content).hexdigest()
    if source.sha256 is None or found == source.sha256:
        return File(source, path, content, found)
    if source.bytes is not None and len(content) < source.bytes:
        raise TruncatedFileError(
            f"{path} is truncated: {len(content)} bytes found, {source.bytes} needed; {_remedy(source)}"
        )
    raise ChecksumError(
        f"{path} is not the file known as {source.file}: sha256 {found} found ({len(content)} bytes), "
        f"{source.sha256} needed ({source.bytes} bytes); {_remedy(source)}"
    )


def obtain(alternatives: tuple[Source, ...], directory: str | os.PathLike | None = None, download: bool = True) -> File:
    """The first file found, checked; downloaded into the cache when there is none. A bad file is never passed over."""
    place = find(alternatives, directory)
    if place is not None:
        return read(*place)
    source = next((source for source in alternatives if source.url), None)
    if source is None or not download:
        raise MissingFileError(_missing(alternatives, directory))
    return _download(source, _missing(alternatives, directory))


def renew(alternatives: tuple[Source, ...], directory: str | os.PathLike | None = None) -> File:
    """Like obtain, but a bad file in the cache is downloaded again."""
    try:
        return obtain(alternatives, directory)
    except (ChecksumError, TruncatedFileError) as error:
        place = find(alternatives, directory)
        if place is None or place[1].parent != cache() or not place[0].url:
            raise
        return _download(place[0], str(error))


def _download(source: Source, why: str) -> File:
    try:
        import pooch
    except ImportError as error:
        raise MissingLibraryError(f"{why}\nTo download it, pooch is needed; install bisaddle[data]") from error
    kept = cache()
    assert kept is not None and source.url is not None and source.sha256 is not None
    downloader: Any = pooch.HTTPDownloader(timeout=TIMEOUT)
    try:
        path = pooch.retrieve(source.url, f"sha256:{source.sha256}", source.file, kept, downloader=downloader)
    except ValueError as error:  # pooch's word for a wrong hash; it has removed the download
        raise ChecksumError(
            f"{source.file} as downloaded from {source.url} is not the file of that name, and was not kept: {error}"
        ) from error
    except OSError as error:  # those of requests are among them
        raise DownloadError(f"{source.file} could not be downloaded from {source.url}: {error}\n{why}") from error
    return read(source, Path(path))


def _remedy(source: Source) -> str:
    if source.url is None:
        return f"see {source.page}"
    return f"remove it, so that it is downloaded again, or take it from {source.page}"


def _missing(alternatives: tuple[Source, ...], directory: str | os.PathLike | None) -> str:
    names = " or ".join(source.file for source in alternatives)
    looked = ", ".join(str(folder) for folder in folders(directory)) or "no folder"
    pages = " or ".join(dict.fromkeys(source.page for source in alternatives))
    return (
        f"{names} is missing: looked in {looked}; needed is the file from {pages}, "
        f"in a folder named by directory= or {VARIABLE}"
    )
