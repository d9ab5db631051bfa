"""Files of the data sets: where they are looked for, what is refused, downloads from a server on this machine."""

import bz2
import gzip
import hashlib
import lzma
import os
import struct
import sys
import threading
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import numpy as np
import pytest

import bisaddle as bs
from bisaddle.datasets import (
    ChecksumError,
    ContentError,
    DownloadError,
    MissingFileError,
    TruncatedFileError,
    catalogue,
)
from bisaddle.datasets.files import read
from bisaddle.datasets.rda import data_frame
from bisaddle.datasets.read import columns, libsvm

real = pytest.mark.skipif(
    "BISADDLE_DATA" not in os.environ, reason="needs the files: set BISADDLE_DATA to their folder"
)


def _small(number, width):
    rng = np.random.default_rng(number)
    rows = rng.normal(size=(8, width + 1)).round(3)
    lines = (f"{row[0]} " + " ".join(f"{j}:{v}" for j, v in enumerate(row[1:], 1)) for row in rows)
    return "".join(line + " \n" for line in lines).encode()


@pytest.fixture
def small(monkeypatch, tmp_path):
    """The MTL files in small: {file: bytes}, known to the catalogue, in no folder yet; the cache is tmp_path/cache."""
    contents, known = {}, []
    for number, source in enumerate(catalogue.sources("mtl")):
        assert source.columns is not None
        content = contents[source.file] = _small(number, source.columns - 1)
        digest = hashlib.sha256(content).hexdigest()
        # port 9 of this machine: nobody answers
        url = f"http://127.0.0.1:9/{source.file}"
        known.append(replace(source, sha256=digest, bytes=len(content), rows=8, url=url))
    monkeypatch.setattr(catalogue, "SOURCES", tuple(known))
    monkeypatch.setattr("bisaddle.datasets.files.cache", lambda: tmp_path / "cache")
    monkeypatch.delenv("BISADDLE_DATA", raising=False)
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    return contents


def _fill(folder, contents):
    folder.mkdir(parents=True, exist_ok=True)
    for file, content in contents.items():
        (folder / file).write_bytes(content)
    return folder


@pytest.fixture
def server(small, monkeypatch):
    """Serves `small`; .answers[file] replaces an answer by (status, bytes, length said), .asked counts the requests."""
    answers, asked = {}, []

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self):
            file = self.path.strip("/")
            asked.append(file)
            status, content, length = answers.get(file, (200, small[file], len(small[file])))
            self.send_response(status)
            self.send_header("Content-Length", str(length))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, format, *args):
            pass

    made = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    base = f"http://127.0.0.1:{made.server_address[1]}"
    monkeypatch.setattr(catalogue, "SOURCES", tuple(replace(s, url=f"{base}/{s.file}") for s in catalogue.SOURCES))
    thread = threading.Thread(target=made.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    made.answers, made.asked = answers, asked
    yield made
    made.shutdown()
    thread.join(5)
    made.server_close()


def test_the_catalogue_is_complete_and_consistent():
    found = bs.datasets.sources()
    assert {source.dataset for source in found} == {"mtl", "nlsy79"}
    assert len({source.file for source in found}) == len(found)
    mtl = bs.datasets.sources("mtl")
    assert sum(source.rows for source in mtl) == 5642 and max(source.columns or 0 for source in mtl) - 1 == 14
    for source in found:
        assert source.licence and source.page.startswith("https://")
        assert source.sha256 is None or len(source.sha256) == 64
        assert source.url is None or source.sha256, "a download needs a checksum"
    assert bs.datasets.sources("synthetic") == () and bs.datasets.fetch("diabetes") == ()


def test_folders_are_searched_in_order(small, tmp_path, monkeypatch):
    named, variable, cache = tmp_path / "named", tmp_path / "variable", tmp_path / "cache"
    _fill(cache, small)
    assert set(bs.datasets.where("mtl").values()) == {cache / file for file in small}
    _fill(variable, {"mg_scale": small["mg_scale"], "mpg_scale": small["mpg_scale"]})
    monkeypatch.setenv("BISADDLE_DATA", str(variable))
    _fill(named, {"mg_scale": small["mg_scale"]})
    found = bs.datasets.where("mtl", named)
    assert found["mg"] == named / "mg_scale" and found["mpg"] == variable / "mpg_scale"
    assert found["housing"] == cache / "housing_scale"
    made = bs.datasets.load("mtl", directory=named, tasks=4)
    assert made.config["files"] == {file: hashlib.sha256(content).hexdigest() for file, content in small.items()}
    assert bs.datasets.load("mtl", split="natural").task_names == ("bodyfat", "housing", "mg", "mpg", "space_ga")


def test_a_folder_that_is_not_there_is_refused(small, tmp_path, monkeypatch):
    with pytest.raises(MissingFileError, match="none, which is not a folder"):
        bs.datasets.load("mtl", directory=tmp_path / "none")
    monkeypatch.setenv("BISADDLE_DATA", str(tmp_path / "other"))
    with pytest.raises(MissingFileError, match="BISADDLE_DATA is given as .*other, which is not a folder"):
        bs.datasets.where("mtl")


def test_a_missing_file_is_named_with_the_folders_and_the_page(small, tmp_path):
    folder = _fill(tmp_path / "some", {file: small[file] for file in list(small)[1:]})
    with pytest.raises(MissingFileError) as caught:
        bs.datasets.load("mtl", directory=folder, download=False)
    for word in ("bodyfat_scale is missing", str(folder), str(tmp_path / "cache"), "csie.ntu.edu.tw", "BISADDLE_DATA"):
        assert word in str(caught.value)


def test_wrong_and_truncated_files_are_refused_even_if_a_good_one_follows(small, tmp_path):
    _fill(tmp_path / "cache", small)
    content = small["mg_scale"]
    folder = _fill(tmp_path / "some", {"mg_scale": content[:-20]})
    with pytest.raises(
        TruncatedFileError, match=f"mg_scale is truncated: {len(content) - 20} bytes.*{len(content)} need"
    ):
        bs.datasets.load("mtl", directory=folder)
    swapped = content.replace(b"1:", b"2:", 1)
    (folder / "mg_scale").write_bytes(swapped)
    needed, found = hashlib.sha256(content).hexdigest(), hashlib.sha256(swapped).hexdigest()
    with pytest.raises(ChecksumError, match=f"some/mg_scale .*{found} found.*{needed} needed"):
        bs.datasets.load("mtl", directory=folder)
    (folder / "mg_scale").unlink()
    (folder / "mg_scale").mkdir()
    with pytest.raises(MissingFileError, match="mg_scale cannot be read"):
        bs.datasets.load("mtl", directory=folder)


def test_check_reports_on_every_file_and_raises_nothing(small, tmp_path, server):
    folder = _fill(tmp_path / "some", {**small, "mg_scale": b"other"})
    (folder / "mpg_scale").unlink()
    reports = {report.source.part: report for report in bs.datasets.check("mtl", folder)}
    assert [part for part, report in reports.items() if not report.ok] == ["mg", "mpg"]
    assert "truncated" in reports["mg"].problem and reports["mpg"].path is None
    assert not server.asked, "check must not download"


def test_a_count_that_differs_from_the_catalogue_is_refused(small, tmp_path):
    folder = _fill(tmp_path / "some", small)
    source = catalogue.SOURCES[0]
    for change, error, message in (
        ({"rows": 9}, TruncatedFileError, "8 rows found, 9 needed"),
        ({"rows": 7}, ContentError, "8 rows; 7 are needed"),
        ({"columns": 4}, ContentError, "index 4 found; 1 to 3 are needed"),
    ):
        with pytest.raises(error, match=message):
            columns(read(replace(source, **change), folder / source.file))


def test_downloads_go_to_the_cache_once(small, server, tmp_path):
    made = bs.datasets.load("mtl", tasks=3)
    assert sorted(server.asked) == sorted(small) and len(made.tasks) == 3
    assert {path.name: path.read_bytes() for path in (tmp_path / "cache").iterdir()} == small
    bs.datasets.load("mtl", tasks=3)
    assert bs.datasets.fetch("mtl") == tuple(bs.datasets.where("mtl").values())
    assert len(server.asked) == len(small)


def test_a_download_with_other_bytes_is_not_kept(small, server, tmp_path):
    server.answers["mg_scale"] = (200, b"<html>moved</html>", 18)
    with pytest.raises(ChecksumError, match="mg_scale as downloaded from http://127.0.0.1.*not kept"):
        bs.datasets.fetch("mtl")
    assert {path.name for path in (tmp_path / "cache").iterdir()} == {"bodyfat_scale", "housing_scale"}


@pytest.mark.parametrize("answer", [(404, b"", 0), (200, b"1 1:2", 5000)], ids=["not found", "cut off"])
def test_a_failed_download_says_so(small, server, tmp_path, answer):
    server.answers["bodyfat_scale"] = answer
    with pytest.raises(
        DownloadError, match=r"bodyfat_scale could not be downloaded from http(.|\n)*is missing: looked in"
    ):
        bs.datasets.load("mtl")
    assert not (tmp_path / "cache" / "bodyfat_scale").exists()


def test_nobody_answers(small):
    with pytest.raises(DownloadError, match="bodyfat_scale could not be downloaded"):
        bs.datasets.load("mtl")


def test_fetch_mends_the_cache_but_not_the_users_folder(small, server, tmp_path):
    cache = _fill(tmp_path / "cache", {**small, "mg_scale": small["mg_scale"][:9]})
    with pytest.raises(TruncatedFileError, match="cache/mg_scale"):
        bs.datasets.load("mtl")
    bs.datasets.fetch("mtl")
    assert (cache / "mg_scale").read_bytes() == small["mg_scale"] and server.asked == ["mg_scale"]
    folder = _fill(tmp_path / "some", {"mg_scale": b"mine"})
    with pytest.raises(TruncatedFileError, match="some/mg_scale"):
        bs.datasets.fetch("mtl", folder)
    assert (folder / "mg_scale").read_bytes() == b"mine"


def test_without_pooch_there_is_no_cache_and_a_clear_word(monkeypatch, tmp_path):
    monkeypatch.delenv("BISADDLE_DATA", raising=False)
    monkeypatch.setitem(sys.modules, "pooch", None)
    assert bs.datasets.cache() is None and bs.datasets.folders() == () and bs.datasets.folders(tmp_path) == (tmp_path,)
    with pytest.raises(bs.datasets.MissingLibraryError, match=r"looked in no folder(.|\n)*bisaddle\[data\]"):
        bs.datasets.load("mtl")


def test_the_cache_is_the_systems():
    assert bs.datasets.cache() == Path(__import__("pooch").os_cache("bisaddle"))


@pytest.mark.parametrize(
    "text, message",
    [
        ("1 1:2\n1 2=3\n", r"some, line 2: '1 2=3' found"),
        ("1 1:2\nx 1:2\n", "line 2"),
        ("1 0:2\n", "index 0 found; 1 to 3"),
        ("1 4:2\n", "index 4 found"),
        ("1 1:nan\n", "NaN or infinity"),
        ("\n", "no rows"),
    ],
)
def test_a_bad_line_of_a_libsvm_file_is_named(text, message):
    with pytest.raises(bs.datasets.DataError, match=message):
        libsvm("some", text.encode(), 3)


def test_zeros_left_out_of_a_libsvm_file_are_zeros():
    found = libsvm("some", b"7 2:3 \n-1 1:0.5 3:1e-3 \n", 3)
    assert {name: list(column) for name, column in found.items()} == {
        "target": [7, -1],
        "1": [0, 0.5],
        "2": [3, 0],
        "3": [0, 1e-3],
    }


# R's data frames


def _ints(*values):
    return struct.pack(f">{len(values)}i", *values)


def _chars(word):
    return _ints(9, len(word)) + word.encode()


def _strings(*words):
    return _ints(16, len(words)) + b"".join(map(_chars, words))


def _pairs(**items):
    return b"".join(_ints(0x402, 1) + _chars(tag) + item for tag, item in items.items()) + _ints(254)


def _frame(*columns, names, kind="data.frame"):
    attributes = _pairs(names=_strings(*names), **{"class": _strings(kind)})
    body = _ints(0x300 | 19, len(columns)) + b"".join(columns) + attributes
    return b"RDX2\nX\n" + _ints(2, 0, 0) + _pairs(some=body)


REALS = _ints(14, 3) + struct.pack(">3d", 1.5, -2.0, 4.0)
FACTOR = _ints(0x300 | 13, 3, 2, 1, 2) + _pairs(levels=_strings("low", "high"))


@pytest.mark.parametrize("pack", [bytes, gzip.compress, bz2.compress, lzma.compress])
def test_a_data_frame_has_its_numbers_and_words(pack):
    found = data_frame("some", pack(_frame(REALS, FACTOR, _ints(13, 3, 1, 2, 3), names=["a", "b", "c"])))
    assert list(found["a"]) == [1.5, -2, 4] and found["b"] == ["high", "low", "high"] and list(found["c"]) == [1, 2, 3]


@pytest.mark.parametrize(
    "content, error, message",
    [
        (b"age,race", ContentError, "begins with b'age,rac'"),
        (_frame(REALS, names=["a"])[:-40], TruncatedFileError, "truncated"),
        (lzma.compress(_frame(REALS, names=["a"]))[:-20], TruncatedFileError, "cannot be unpacked"),
        (_frame(REALS, names=["a"], kind="other"), ContentError, "no data frame"),
        (_frame(_ints(15, 1), names=["a"]), ContentError, "kind 15"),
        (_frame(REALS, _ints(13, 1, 1), names=["a", "b"]), ContentError, "different lengths"),
        (
            _frame(_ints(0x300 | 13, 1, -(2**31)) + _pairs(levels=_strings("a")), names=["a"]),
            ContentError,
            "missing value",
        ),
    ],
)
def test_a_bad_data_frame_is_refused(content, error, message):
    with pytest.raises(error, match=message):
        data_frame("some", content)


# the real files


@real
@pytest.mark.parametrize("name", ["mtl", "nlsy79"])
def test_the_real_files_have_the_checksums_and_counts_of_the_catalogue(name):
    reports = bs.datasets.check(name)
    assert all(report.ok for report in reports), [report.problem for report in reports]
    assert {report.source.part for report in reports if report.path is None} <= {"raw"}


@real
def test_both_forms_of_the_survey_say_the_same():
    folder = Path(os.environ["BISADDLE_DATA"])
    forms = catalogue.parts("nlsy79")["public"]
    if not all((folder / source.file).exists() for source in forms):
        pytest.skip("needs the .csv and the .rda in BISADDLE_DATA")
    text, frame = (columns(read(source, folder / source.file)) for source in forms)
    assert list(text) == list(frame)
    for name, values in frame.items():
        found = np.array(text[name], dtype=float) if isinstance(values, np.ndarray) else text[name]
        assert np.array_equal(found, values), name
