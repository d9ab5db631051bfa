"""Tries a wheel in an environment of its own, with the core dependencies only: python tests/try_wheel.py dist

Run by `make dist`. README's example must be certified there, and what needs an extra must name it.
`python tests/try_wheel.py --here` tries what is installed beside this Python, whatever that is.
"""

import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
# what a user may call without extras, and what the message has to say
LACKING = {
    "cli": ("from bisaddle.cli import main; main(['--version'])", "bisaddle[cli]"),
    "progress": ("bs.solve(problem, start, progress=True)", None),
    "plot": ("result.plot()", "bisaddle[plot]"),
    "figures": ("bs.report.figures([], '.')", "bisaddle[plot]"),
    "estimators": ("bs.estimators.WorstGroupRegressor()", "bisaddle[sklearn]"),
    "diabetes": ("bs.datasets.load('diabetes')", "bisaddle[sklearn]"),
    "downloads": ("bs.datasets.fetch('mtl')", "bisaddle[data]"),
    "pandas": ("result.trace.to_pandas()", "needs pandas"),
}
EXTRAS = {"cli": "click", "plot": "matplotlib", "sklearn": "sklearn", "data": "pooch"}


def example() -> str:
    """README's first block of Python."""
    found = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.S)
    assert found is not None
    return found.group(1)


def ran(python: str, code: str, folder: str) -> subprocess.CompletedProcess:
    """The code in a new process, in a folder that has nothing to import."""
    environment = {key: value for key, value in os.environ.items() if key not in ("PYTHONPATH", "BISADDLE_DATA")}
    call = [python, "-c", code]
    return subprocess.run(call, capture_output=True, text=True, cwd=folder, env=environment, timeout=600)


def attempts() -> str:
    """A program that solves README's example, then tries what needs an extra and prints the end of every message."""
    lines = [example(), "import importlib.metadata as metadata", "print('VERSION', metadata.version('bisaddle'))"]
    lines.append(
        "assert bs.__version__ == metadata.version('bisaddle') and 'site-packages' in bs.__file__, bs.__file__"
    )
    lines.append("import contextlib, io")
    for name, (code, _) in LACKING.items():
        lines += ["said = io.StringIO()", "try:", "    with contextlib.redirect_stderr(said):", f"        {code}"]
        lines += ["except (Exception, SystemExit) as error:", "    said.write(f'{type(error).__name__}: {error}')"]
        lines.append(f"print('TRIED {name}:', ' '.join(said.getvalue().split()))")
    return "\n".join(lines)


def judge(done: subprocess.CompletedProcess, bare: bool) -> None:
    """Print what was seen; an AssertionError where it is not what it has to be."""
    print(done.stdout, end="")
    assert done.returncode == 0, done.stderr
    assert "CERTIFIED" in done.stdout, "README's example is not certified"
    for name, (_, wanted) in LACKING.items():
        said = next(line for line in done.stdout.splitlines() if line.startswith(f"TRIED {name}:"))
        assert not (bare and wanted) or wanted in said, f"{said!r} does not say {wanted!r}"


def main(where: str) -> None:
    with tempfile.TemporaryDirectory() as folder:
        if where == "--here":
            bare = not any(ran(sys.executable, f"import {name}", folder).returncode == 0 for name in EXTRAS.values())
            judge(ran(sys.executable, attempts(), folder), bare)
            return
        wheel = max(Path(where).glob("*.whl"), key=os.path.getmtime)
        python = str(Path(folder) / "venv" / ("Scripts" if os.name == "nt" else "bin") / "python")
        subprocess.run([sys.executable, "-m", "venv", str(Path(folder) / "venv")], check=True)
        install = [python, "-m", "pip", "install", "-qq", "--disable-pip-version-check"]
        subprocess.run([*install, "-c", str(ROOT / "constraints.txt"), str(wheel)], check=True)
        judge(ran(python, attempts(), folder), bare=True)


if __name__ == "__main__":
    main(sys.argv[1])
