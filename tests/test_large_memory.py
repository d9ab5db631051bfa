"""A large x or theta is held in few copies: by NumPy, by JAX's arrays and by the program that runs, all together."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest


@pytest.mark.parametrize(("what", "status"), [("theta", "CERTIFIED"), ("lower", "MAX_STEPS"), ("minimax", "MAX_STEPS")])
def test_twelve_copies_at_most_at_any_moment(what, status):
    script = Path(__file__).with_name("large_memory.py")
    # compiled as usual: the options of the tests have other work space
    environment = {name: value for name, value in os.environ.items() if name != "XLA_FLAGS"}
    done = subprocess.run([sys.executable, script, what], env=environment, capture_output=True, text=True, timeout=500)
    assert done.returncode == 0, done.stderr
    found, solve, certify = json.loads(done.stdout)
    assert found == status
    assert solve <= 12 and certify <= 12, (solve, certify)
