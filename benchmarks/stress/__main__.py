"""Every section, or those named: its counts, and exit code 1 if anything failed.

python -m benchmarks.stress [--share 0.1] [SECTION ...]
"""

import argparse
import faulthandler
import importlib
import importlib.util
import sys
import time
import traceback

import jax

# section: (module with main(count) -> number of failures, count); a module that is not there is left out
SECTIONS = {
    "problems": ("benchmarks.stress.problems", 1000),
    "attacks": ("benchmarks.stress.attacks", 200),
    "surroundings": ("benchmarks.stress.surroundings", 10_000_000),
    "kills": ("tests.stress_kills", 100),
    "files": ("tests.stress_files", 1000),
    "disks": ("tests.stress_disks", 1),
    "API calls": ("tests.hostile_api", 300),
    "commands": ("tests.hostile_cli", 200),
}
# seconds that a section may take before its stack is printed and the process ends
LONGEST = 1200


def run_section(name: str, share: float) -> int:
    module, count = SECTIONS[name]
    if importlib.util.find_spec(module) is None:
        print(f"{name}: left out, there is no {module}", flush=True)
        return 0
    count = max(1, int(count * share))
    print(f"{name}, {count}:", flush=True)
    began = time.perf_counter()
    faulthandler.dump_traceback_later(LONGEST, exit=True, file=sys.__stderr__)
    try:
        failures = int(importlib.import_module(module).main(count) or 0)
    except Exception:
        traceback.print_exc()
        failures = 1
    finally:
        faulthandler.cancel_dump_traceback_later()
    print(f"{name}: {failures} failures in {time.perf_counter() - began:.0f} s", flush=True)
    return failures


def main() -> int:
    jax.config.update("jax_enable_x64", True)
    parser = argparse.ArgumentParser(prog="python -m benchmarks.stress", description=__doc__)
    parser.add_argument(
        "sections", nargs="*", metavar="SECTION", help=f"of {', '.join(SECTIONS)}; all if none is given"
    )
    parser.add_argument("--share", type=float, default=1.0, help="of each count, such as 0.1 for a tenth")
    given = parser.parse_args()
    for name in given.sections:
        if name not in SECTIONS:
            parser.error(f"there is no section {name!r}; there are {', '.join(SECTIONS)}")
    failures = {name: run_section(name, given.share) for name in given.sections or SECTIONS}
    print("failures: " + ", ".join(f"{name} {count}" for name, count in failures.items()))
    return 1 if any(failures.values()) else 0


if __name__ == "__main__":
    sys.exit(main())
