"""The line that says how far a run is: on a terminal, of a pseudo-terminal here, and nowhere else."""

import io
import os
import re
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

pytest.importorskip("rich")

from rich.console import Console

from bisaddle.cli import screen
from bisaddle.run import progress
from bisaddle.run.progress import DELAY, PERIOD, Progress, text_bar

SPINNER = "⠋⠙⠹⠸⠼⠴⠦⠧⠇⠏"


@pytest.fixture
def terminal(monkeypatch):
    """A function that makes stderr a terminal of 80 columns, and gives one that reads what was written there."""
    pty = pytest.importorskip("pty")
    master, slave = pty.openpty()
    os.set_blocking(master, False)
    monkeypatch.setenv("TERM", "xterm-256color")
    monkeypatch.setenv("COLUMNS", "80")
    for name in ("NO_COLOR", "FORCE_COLOR", "TTY_COMPATIBLE", "TTY_INTERACTIVE"):
        monkeypatch.delenv(name, raising=False)

    def written():
        stderr.flush()
        pieces = []
        while True:
            try:
                pieces.append(os.read(master, 65536))
            except BlockingIOError:
                return b"".join(pieces).decode()

    def begin():  # not before the test has begun: pytest sets stderr then
        monkeypatch.setattr(sys, "stderr", stderr)
        return written

    with open(slave, "w", encoding="utf-8") as stderr:
        yield begin
    os.close(master)


def plain(text):
    """Without colours and without what moves the cursor."""
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", text)


def drawn(line, width=80, encoding="utf-8", colours="256"):
    """The line as a terminal of this width shows it."""
    file = io.TextIOWrapper(io.BytesIO(), encoding=encoding)
    Console(file=file, width=width, force_terminal=True, color_system=colours, legacy_windows=False).print(line)
    file.flush()
    return plain(file.buffer.getvalue().decode()).removesuffix("\n")


def threads():
    return [thread for thread in threading.enumerate() if thread.name == "bisaddle-progress"]


def test_words_and_a_clock_while_it_compiles_then_the_bar_with_steps_and_gap(terminal):
    written = terminal()
    with Progress(None, "Adaptive", 10000) as bar:
        bar.compiling("f and its gradients")
        time.sleep(DELAY + 1.0)  # as XLA does, this lets other threads run
        bar.compiling(None)
        first = plain(written())
        bar.show(1200, 1.5e-4)
        time.sleep(3 * PERIOD)
        second = plain(written())
        bar.compiling("the Newton steps")
        time.sleep(3 * PERIOD)
        third = plain(written())
    assert re.search(f"[{SPINNER}] Adaptive  compiling f and its gradients  0:00:01", first)
    assert len(set(re.findall(f"[{SPINNER}]", first))) >= 3 and "gap" not in first
    assert re.search(f"[{SPINNER}] Adaptive  ━+[╸╺]━+   1200/10000  0:00:0.  gap 1.50e-04", second)
    assert re.search(r"Adaptive  ━+[╸╺]━+   1200/10000  0:00:0.  compiling the Newton steps", third)
    assert written().endswith("\x1b[2K")  # the line is erased
    assert threads() == []


def test_a_short_run_shows_nothing_and_does_not_wait(terminal, monkeypatch):
    written = terminal()
    monkeypatch.setattr(progress, "DELAY", 60.0)
    begin = time.perf_counter()
    with Progress(None, "Adaptive", 10) as bar:
        bar.show(5, 0.1)
    assert written() == "" and time.perf_counter() - begin < 30 and threads() == []


def test_what_is_printed_meanwhile_goes_above_the_line_or_into_its_file(terminal, monkeypatch):
    written = terminal()
    with Progress(None, "Adaptive", 10):
        time.sleep(DELAY + 3 * PERIOD)
        print("said", file=sys.stderr)
        time.sleep(2 * PERIOD)
    assert re.search("\x1b\\[2K.*said *\r?\n", written())
    monkeypatch.setattr(sys, "stdout", io.StringIO())
    with Progress(None, "Adaptive", 10):
        time.sleep(DELAY + 3 * PERIOD)
        print("a number")
    assert sys.stdout.getvalue() == "a number\n" and "a number" not in written()


def test_an_error_ends_the_line(terminal):
    written = terminal()
    with pytest.raises(KeyboardInterrupt), Progress(None, "Adaptive", 10):
        time.sleep(DELAY + 2 * PERIOD)
        raise KeyboardInterrupt
    assert threads() == [] and "Adaptive" in written() and type(sys.stderr).__name__ == "TextIOWrapper"


def test_without_a_terminal_there_is_a_line_only_when_asked_for(capsys):
    for wanted in (None, False):
        with Progress(wanted, "Adaptive", 50) as bar:
            assert threads() == []
            bar.compiling("f")
            bar.show(50, 1e-3)
        assert capsys.readouterr().err == ""
    with Progress(True, "Adaptive", 50) as bar:
        bar.compiling("f")
        bar.compiling(None)
        bar.show(20, 1e-3)
        bar.show(50, 1e-5)
    assert capsys.readouterr().err == f"Adaptive  [{'#' * 20}]  50/50  0:00:00  gap 1.00e-05\n"


def test_without_rich_only_those_who_ask_for_it_are_told(terminal, monkeypatch):
    written = terminal()
    monkeypatch.setitem(sys.modules, "rich", None)
    with Progress(None, "Adaptive", 50) as bar:
        bar.show(1, 0.1)
        assert threads() == []
    assert written() == ""
    with pytest.raises(ValueError, match="needs rich; install bisaddle"):
        Progress(True, "Adaptive", 50)
    with Progress(False, "Adaptive", 50) as bar:
        bar.show(1, 0.1)


def test_a_step_costs_next_to_nothing(record):
    # in a process without the checks of types that the tests have
    code = "import timeit; from bisaddle.run.progress import Progress; bar = Progress(True, 'Adaptive', 9).__enter__()"
    code += "; print(min(timeit.repeat(lambda: bar.show(17, 0.1), number=1000, repeat=20)) / 1000)"
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=environment, timeout=60)
    record("microseconds to show a step", 1e6 * float(done.stdout))
    assert float(done.stdout) < 2e-6


@pytest.mark.parametrize("width", [12, 30, 46, 60, 80, 200])
def test_it_is_one_line_at_every_width(width):
    bar = Progress(False, "OneSidedProjectionFree", 10000)
    for what, k in ((None, None), ("f and its gradients", None), (None, 0), (None, 9999), ("the steps", 10)):
        bar.compiling(what)
        if k is not None:
            bar.show(k, 1e-3)
        shown = drawn(bar, width)
        assert "\n" not in shown and len(shown) <= width
    assert len(re.findall("[━╸╺]", drawn(bar, 200))) == progress.LONGEST


def test_a_terminal_without_unicode_gets_letters_and_strokes():
    bar = Progress(False, "GDA", 10)
    bar.show(3, float("nan"))
    assert re.match(r"[-\\|/] GDA  \[#+\.+\]   3/10  0:00:00  gap nan", drawn(bar, encoding="ascii"))


def test_without_colours_the_bar_shows_what_is_left_too():
    bar = Progress(False, "GDA", 10)
    for k, done in ((0, 0), (5, 19), (10, 38)):
        bar.show(k, 1e-3)
        shown = drawn(bar, colours=None)
        assert f"[{'#' * done}{'.' * (38 - done)}]" in shown and len(shown) <= 80
    assert text_bar(float("nan"), 6) == "[....]" and text_bar(2.0, 6) == "[####]"


def test_a_dumb_terminal_and_a_file_get_a_line_every_ten_seconds(terminal, monkeypatch, capsys):
    monkeypatch.setattr(progress, "LOG_PERIOD", 0.2)
    assert progress.LOG_PERIOD == 0.2

    def logged(line):
        with line as bar:
            bar.show(*((50, 1e-5) if isinstance(bar, Progress) else (0.5, "GDA step 5", 1e-5)))
            time.sleep(0.5)

    logged(screen.Progress("compiling"))
    lines = capsys.readouterr().err.splitlines()
    assert 1 <= len(lines) <= 3 and lines[0] == f"GDA step 5  [{'#' * 10}{'.' * 10}]   50%  0:00 left  gap 1.0e-05"
    logged(Progress(None, "Adaptive", 100))  # the library writes into no file that it was not asked to
    logged(screen.Progress("compiling", quiet=True))
    assert capsys.readouterr().err == ""
    written = terminal()
    monkeypatch.setenv("TERM", "dumb")
    logged(Progress(None, "Adaptive", 100))
    text = written()
    assert "\x1b" not in text and f"Adaptive  [{'#' * 10}{'.' * 10}]   50/100" in text and threads() == []


def test_the_commands_show_a_clock_while_they_compile_then_what_is_left(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(progress.time, "perf_counter", lambda: clock[0])
    bar = screen.Progress("compiling", quiet=True)
    clock[0] = 65.0
    assert re.fullmatch(f"[{SPINNER}] compiling  1:05", drawn(bar))
    bar.show(0.0, "GDA step 0", 0.5)
    clock[0] = 85.0
    assert re.fullmatch(f"[{SPINNER}] GDA step 0  ━+    0%  0:20  gap 5.0e-01 *", drawn(bar))
    bar.show(0.25, "GDA step 10")
    assert re.fullmatch(f"[{SPINNER}] GDA step 10  ━+[╸╺]?━+   25%  1:00 left *", drawn(bar))
    clock[0] = 95.0  # it counts on by itself
    assert "1:30 left" in drawn(bar)
