"""Public suites against the package: `python tests/external/run.py autograd | examples | nist | s2mpj | scipy | all`.

Each is downloaded from the package index into a temporary directory, checked by its hash, run, and told as a table.
"""

import argparse
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE), str(HERE.parent.parent / "src")]

from suites import autograd_suite, examples_suite, nist_suite, s2mpj_suite, scipy_suite  # noqa: E402

SUITES = {
    "autograd": autograd_suite.run,
    "examples": examples_suite.run,
    "nist": nist_suite.run,
    "s2mpj": s2mpj_suite.run,
    "scipy": scipy_suite.run,
}


def main() -> int:
    """Run the suites named; the exit status says whether each reached its mark."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("suite", choices=[*SUITES, "all"])
    parser.add_argument("--keep", type=Path, help="a directory to download to, and to find earlier downloads in")
    chosen = parser.parse_args()
    names = list(SUITES) if chosen.suite == "all" else [chosen.suite]
    good = True
    with tempfile.TemporaryDirectory(prefix="external-") as temporary:
        for name in names:
            place = (chosen.keep or Path(temporary)) / name
            place.mkdir(parents=True, exist_ok=True)
            good &= SUITES[name](place)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
