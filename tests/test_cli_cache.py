"""The cache of compiled programs on disk: where it is, who turns it off, and that nothing in it can stop a command."""

import json
import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

pytest.importorskip("click")

from bisaddle.cli import cache
from bisaddle.cli.app import app
from tests.cli_helpers import bisaddle

ROOT = Path(__file__).parents[1]
MIN_SECONDS = "JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS"


@pytest.fixture
def fresh(monkeypatch, tmp_path):
    """The environment of a process that has not loaded JAX, as a dictionary, with the user's cache in tmp_path."""
    chosen = (cache.VARIABLE, cache.JAX_VARIABLE, MIN_SECONDS)
    environment = {name: value for name, value in os.environ.items() if name not in chosen}
    environment |= {"XDG_CACHE_HOME": str(tmp_path / "xdg"), "HOME": str(tmp_path / "home")}
    monkeypatch.setattr(os, "environ", environment)
    monkeypatch.delitem(sys.modules, "jax")
    monkeypatch.setattr(sys, "platform", "linux")
    with warnings.catch_warnings():
        yield environment


def test_programs_are_kept_in_the_users_cache_unless_somebody_says_otherwise(fresh, tmp_path):
    cache.use()
    folder = Path(fresh[cache.JAX_VARIABLE])
    assert folder.is_dir() and folder.parent == tmp_path / "xdg" / "bisaddle" and folder.name.startswith("jax-")
    assert fresh[MIN_SECONDS] == "0"


@pytest.mark.parametrize("word", ["0", "off", "", "OFF", "false", " no "])
def test_the_variable_turns_it_off(fresh, tmp_path, word):
    fresh[cache.VARIABLE] = word
    cache.use()
    assert cache.JAX_VARIABLE not in fresh and MIN_SECONDS not in fresh and not (tmp_path / "xdg").exists()
    assert cache.words() == "none"


def test_the_variable_names_another_folder(fresh, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for given, root in ((str(tmp_path / "a"), tmp_path / "a"), ("b", tmp_path / "b"), ("~/c", tmp_path / "home" / "c")):
        fresh |= {cache.VARIABLE: given, cache.JAX_VARIABLE: "/theirs"}
        cache.use()
        assert Path(fresh[cache.JAX_VARIABLE]).parent == root and cache.words().startswith(str(root))
    fresh[cache.VARIABLE] = "on"
    assert cache.place() == cache.user_cache() / Path(fresh[cache.JAX_VARIABLE]).name


def test_what_the_user_has_told_jax_stays_as_it_is(fresh, tmp_path):
    before = dict(fresh) | {cache.JAX_VARIABLE: str(tmp_path / "theirs")}
    fresh |= before
    cache.use()
    assert fresh == before and "theirs" in cache.words()
    del fresh[cache.JAX_VARIABLE]
    fresh[MIN_SECONDS] = "3"
    cache.use()
    assert fresh[MIN_SECONDS] == "3" and cache.JAX_VARIABLE in fresh


def test_a_process_that_has_loaded_jax_is_left_alone(fresh, monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", object())
    before = dict(fresh)
    cache.use()
    assert fresh == before


def test_the_flag_is_on_the_commands_that_compile_and_help_touches_nothing(fresh, tmp_path):
    having = {
        name
        for name, command in app.commands.items()
        if any("--no-compile-cache" in parameter.opts for parameter in command.params)
    }
    assert having == {"reproduce", "run", "solve", "resume", "certify"}
    assert "--no-compile-cache" in bisaddle("solve", "--help").output
    assert bisaddle("solve", "--no-compile-cache", "nothing").exit_code == 2
    assert not (tmp_path / "xdg").exists() and cache.JAX_VARIABLE not in fresh
    assert bisaddle("solve", "nothing").exit_code == 2
    assert (tmp_path / "xdg").exists() and cache.JAX_VARIABLE in fresh


@pytest.mark.parametrize("place", ["file", "read-only"])
def test_a_folder_that_cannot_be_written_to_is_not_used_and_named_once(fresh, tmp_path, capsys, place):
    (tmp_path / "file").touch()
    root = tmp_path / "file" if place == "file" else Path("/proc/bisaddle")  # root may write everywhere but there
    fresh["XDG_CACHE_HOME"] = str(root)
    cache.use()
    assert cache.JAX_VARIABLE not in fresh and capsys.readouterr().err == ""
    assert "cannot be written to" in cache.words() or place == "read-only"  # for root it looks as if it could
    fresh[cache.VARIABLE] = str(root)
    cache.use()
    assert cache.JAX_VARIABLE not in fresh
    assert capsys.readouterr().err == f"{cache.VARIABLE} names {root}, which cannot be written to: nothing is kept\n"


def test_without_a_home_nothing_is_kept(fresh, monkeypatch):
    def homeless():
        raise RuntimeError("Could not determine home directory.")

    monkeypatch.setattr(Path, "home", homeless)
    cache.use()
    assert cache.JAX_VARIABLE not in fresh


def test_the_folder_is_that_of_the_downloads(monkeypatch, tmp_path):
    pooch = pytest.importorskip("pooch")
    assert cache.user_cache() == Path(pooch.os_cache("bisaddle"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert cache.user_cache() == Path(pooch.os_cache("bisaddle"))
    monkeypatch.setattr(sys, "platform", "darwin")
    assert cache.user_cache() == Path.home() / "Library" / "Caches" / "bisaddle"
    monkeypatch.setattr(sys, "platform", "win32")
    monkeypatch.setenv("LOCALAPPDATA", str(tmp_path))
    assert cache.user_cache() == tmp_path / "bisaddle" / "bisaddle" / "Cache"


def test_machines_do_not_share_programs(monkeypatch):
    mine = cache._machine()
    assert len(mine) == 12 and cache._machine() == mine
    monkeypatch.setattr(cache.platform, "machine", lambda: "another")
    assert cache._machine() != mine


@pytest.mark.parametrize(("jaxlib", "quiet"), [("0.10.1", True), ("0.9.2.dev1", True), ("0.10.2", False), ("x", False)])
def test_a_jaxlib_that_complains_about_its_own_programs_is_silenced(fresh, monkeypatch, jaxlib, quiet):
    monkeypatch.setattr(cache, "version", lambda name: jaxlib)
    fresh.pop("TF_CPP_MIN_LOG_LEVEL", None)
    cache.use()
    assert fresh.get("TF_CPP_MIN_LOG_LEVEL") == ("3" if quiet else None)


def test_trim_keeps_the_programs_used_last_and_no_other_file_is_touched(tmp_path):
    folders = [tmp_path / "jax-a", tmp_path / "jax-b", tmp_path / "own"]
    for i, folder in enumerate(folders):
        folder.mkdir()
        for j in range(5):
            path = folder / f"jit_f-{j}-cache"
            path.write_bytes(b"x" * 100)
            os.utime(path, (1000 * j + i, 1000 * j + i))
    (folders[0] / "jit_g-cache").touch()
    (folders[0] / "notes").write_text("mine")
    left = lambda: [sum(path.name.endswith("-cache") for path in folder.iterdir()) for folder in folders]
    cache.trim(folders[0], most=1000)
    assert left() == [5, 5, 5]  # the empty one is gone
    cache.trim(folders[0], most=800)
    assert left() == [5, 5, 5]  # it has just looked
    os.utime(folders[0] / "trimmed", (0, 0))
    cache.trim(folders[0], most=800)
    assert left() == [3, 3, 5] and (folders[0] / "notes").exists()
    assert {path.name[6] for path in folders[1].iterdir()} == {"2", "3", "4"}


def test_info_says_where_programs_are_kept(monkeypatch, tmp_path):
    assert json.loads(bisaddle("info", "--json").stdout)["compile cache"] == "none"  # the tests turn it off
    monkeypatch.setenv(cache.VARIABLE, str(tmp_path))
    assert str(tmp_path) in json.loads(bisaddle("info", "--json").stdout)["compile cache"]


COMMAND = """
import os, shutil, sys
import click
from bisaddle.cli.options import compile_cache_option

@click.command()
@click.option("--broken", is_flag=True)
@compile_cache_option
def command(broken):
    assert "jax" not in sys.modules
    import jax, jax.numpy as jnp
    hits = []
    jax.monitoring.register_event_listener(lambda name, **_: hits.append(name) if name.endswith("cache_hits") else None)
    first = jax.jit(lambda x: jnp.sin(x) @ x)(jnp.arange(5.0))
    if broken:  # while it runs, a file takes the place of the folder
        shutil.rmtree(os.environ["JAX_COMPILATION_CACHE_DIR"])
        open(os.environ["JAX_COMPILATION_CACHE_DIR"], "w").close()
    print(float(first), float(jax.jit(lambda x: jnp.cos(x) @ x)(jnp.arange(5.0))), len(hits))

command()
"""


def ran(folder, *arguments):
    """(the numbers, programs found on disk) of a process of its own; nothing is said on stderr."""
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu", cache.VARIABLE: str(folder)}
    call = [sys.executable, "-c", COMMAND, *arguments]
    done = subprocess.run(call, capture_output=True, text=True, env=environment, timeout=120)
    assert done.returncode == 0 and done.stderr == "", done.stderr
    *numbers, hits = done.stdout.split()
    return numbers, int(hits)


def test_a_second_command_compiles_nothing_and_what_is_wrong_on_disk_is_compiled_again(tmp_path):
    numbers, hits = ran(tmp_path)
    programs = list(tmp_path.glob("jax-*/*-cache"))
    assert hits == 0 and len(programs) >= 2
    assert ran(tmp_path) == (numbers, len(programs))
    for path in programs:
        path.write_bytes(path.read_bytes()[:100])
    assert ran(tmp_path, "--broken") == (numbers, 0)
