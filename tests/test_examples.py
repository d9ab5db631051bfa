"""Every script under examples/ and the README's example run as they stand."""

import os
import re
import runpy
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]


@pytest.mark.slow  # the README's example is much the same
@pytest.mark.parametrize("path", sorted((ROOT / "examples").glob("*.py")), ids=lambda path: path.stem)
def test_the_example_runs(path, capsys):
    runpy.run_path(str(path), run_name="__main__")
    assert capsys.readouterr().out


def test_the_readme_example_runs_and_certifies(tmp_path):
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(), re.S)
    assert block is not None
    script = tmp_path / "readme.py"
    script.write_text(block.group(1))
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, script], capture_output=True, text=True, timeout=300, env=environment)
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("CERTIFIED")


def test_importing_the_package_changes_no_global_setting():
    code = "import jax; before = jax.config.jax_enable_x64; import bisaddle; assert jax.config.jax_enable_x64 == before"
    environment = {name: value for name, value in os.environ.items() if name != "JAX_ENABLE_X64"}
    subprocess.run([sys.executable, "-c", code], check=True, env={**environment, "PYTHONPATH": str(ROOT)}, timeout=120)
