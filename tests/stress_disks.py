"""Disks that are full and folders that are closed, for real: no result is lost, and no half a file is left.

python -m tests.stress_disks
"""

import json
import os
import resource
import subprocess
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path

ROOT = Path(__file__).parents[1]
# smaller than any checkpoint and any result
FEW_BYTES = 2000


def _solve(path, **options):
    import bisaddle as bs
    from tests.test_solve import quadratic

    return bs.solve(*quadratic(), tol=1e-5, checkpoint=path, checkpoint_every=0, **options)


def _lost(folder: Path, words: str, release: Callable[[], object] = lambda: None) -> str:
    """What went wrong with a run whose checkpoints cannot be written to the folder; "held" if nothing did.

    release: called before the result is saved elsewhere.
    """
    import bisaddle as bs

    with warnings.catch_warnings(record=True) as said:
        warnings.simplefilter("always")
        result = _solve(folder / "run.ckpt")
    if result.status is not bs.Status.CERTIFIED:
        return f"the run ended {result.status}"
    if not any(words in str(warning.message) for warning in said):
        return f"nothing was said of it: {[str(warning.message) for warning in said]}"
    try:
        result.save(folder / "result")
        return "the result was saved where nothing can be"
    except OSError as error:
        if words not in str(error):
            return f"no reason: {error}"
    left = [name for name in os.listdir(folder) if name not in ("run.ckpt", "filler")]
    sizes = [(folder / name).stat().st_size for name in os.listdir(folder) if name == "run.ckpt"]
    if left or any(sizes):  # an empty file is the claim of a run on its place
        return f"left behind: {left} {sizes}"
    release()
    result.save(folder.parent / "elsewhere")
    return "held" if bs.load_result(folder.parent / "elsewhere").steps == result.steps else "another result"


def file_limit(folder: Path) -> str:
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    (folder / "inner").mkdir()
    resource.setrlimit(resource.RLIMIT_FSIZE, (FEW_BYTES, before[1]))
    release = lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    try:
        return _lost(folder / "inner", "File too large", release)
    finally:
        release()


def full_disk(folder: Path) -> str:
    """A small file system in memory, filled to the last byte; mounting it is for root, and not everywhere."""
    place = folder / "disk"
    place.mkdir()
    mount = subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", place], capture_output=True)
    if mount.returncode:
        return "not possible here: no file system may be mounted"
    try:
        with open(place / "filler", "wb", buffering=0) as file:
            try:
                while file.write(bytes(4096)):
                    pass
            except OSError:
                pass
        return _lost(place, "No space left on device")
    finally:
        subprocess.run(["umount", place], check=True)


def closed_folder(folder: Path) -> str:
    """A folder that may be read only; root, whom nothing is refused, is someone else meanwhile."""
    place = folder / "closed"
    place.mkdir()
    place.chmod(0o555)
    is_root = os.geteuid() == 0
    if is_root:
        os.seteuid(65534)
    try:
        _solve(place / "run.ckpt", callback=lambda record: sys.exit("there was work"))
        return "it was written"
    except PermissionError as error:
        named = "run.ckpt cannot be written (Permission denied)" in str(error)
        return "held" if named and not os.listdir(place) else f"{error}"
    finally:
        if is_root:
            os.seteuid(0)


def device(folder: Path) -> str:
    (folder / "link").symlink_to("/dev/full")
    try:
        _solve(folder / "link", callback=lambda record: sys.exit("there was work"))
        return "it was written"
    except OSError as error:
        return "held" if "device" in str(error) else f"{error}"


CASES: dict[str, Callable[[Path], str]] = {
    "a limit on the size of files": file_limit,
    "a full disk": full_disk,
    "a closed folder": closed_folder,
    "a device as a file": device,
}


def tried() -> dict[str, str]:
    """What became of each case, all of them in a process of its own, since limits are those of a process."""
    done = subprocess.run(
        [sys.executable, "-m", "tests.stress_disks", "child"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        env={**os.environ, "BISADDLE_COMPILE_CACHE": "off"},
        timeout=300,
    )
    if done.returncode:
        return {"all of them": done.stderr[-2000:]}
    return json.loads(done.stdout.splitlines()[-1])


def main(_count: int = 1) -> int:
    """What became of each, printed; the number of those in which something was lost."""
    found = tried()
    for name, outcome in found.items():
        print(f"  {name:30} {outcome}")
    return sum(outcome != "held" and not outcome.startswith("not possible") for outcome in found.values())


def _child() -> None:
    import jax

    jax.config.update("jax_enable_x64", True)
    found = {}
    with tempfile.TemporaryDirectory() as made:
        os.chmod(made, 0o755)  # for the closed folder in it
        _solve(Path(made) / "first.ckpt")  # all that is loaded when first used
        for i, (name, case) in enumerate(CASES.items()):
            folder = Path(made) / str(i)
            folder.mkdir()
            found[name] = case(folder)
    print(json.dumps(found))


if __name__ == "__main__":
    sys.exit(_child() if sys.argv[1:] == ["child"] else main())
