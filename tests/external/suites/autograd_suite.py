"""autograd's own tests through the shim: a table of what passed, what failed and why."""

import os
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from collections import Counter
from pathlib import Path

from .fetching import fetched, installed

VERSION, WANTED = "1.9.1", 600
HERE = Path(__file__).resolve().parent.parent
#: What some tests use beside NumPy and SciPy; without it they are skipped.
XARRAY = ["xarray", "pandas", "python-dateutil", "packaging", "six"]
#: Tests that ask for something that pullback means otherwise.
REASONS = {
    "test_rfftn_odd_not_implemented": "wants NotImplementedError; odd lengths are implemented here",
    "test_assignment_raises_error": "wants TypeError; here x[i] = v is an op, or GraphError in forward mode",
    "test_const_graph_args": "a primitive without a shape rule cannot be staged",
}


def run(place: Path) -> bool:
    """Run the tests in a process that imports the shim in autograd's place."""
    tests = fetched("autograd", VERSION, place) / "tests"
    report, settings = place / "report.xml", place / "empty.ini"
    settings.write_text("[pytest]\n")
    extra = installed(XARRAY, place)
    paths = [HERE / "autograd_shim", HERE.parent.parent / "src", *([extra] if extra else [])]
    command = [sys.executable, "-m", "pytest", "-c", str(settings), "--rootdir", str(tests), "-q", "--tb=no",
               "-p", "no:cacheprovider", f"--junitxml={report}", str(tests)]  # fmt: skip
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, paths))}
    subprocess.run(command, cwd=tests, env=environment, capture_output=True, check=False)
    return _told(report)


def _told(report: Path) -> bool:
    table: dict[str, Counter[str]] = {}
    failures = []
    for case in ElementTree.parse(report).iter("testcase"):
        name, module = case.get("name", ""), case.get("classname", "").rsplit(".", 1)[-1]
        found = {child.tag: child.get("message", "") for child in case}
        state = "failed" if found.keys() & {"failure", "error"} else "skipped" if "skipped" in found else "passed"
        table.setdefault(module, Counter())[state] += 1
        if state == "failed":
            said = (found.get("failure") or found.get("error") or "").splitlines()
            failures.append((f"{module}::{name}", REASONS.get(name, said[0] if said else "")))
    print(f"autograd {VERSION}\n{'module':24}{'passed':>8}{'failed':>8}{'skipped':>8}")
    total: Counter[str] = Counter()
    for module, counts in [*sorted(table.items()), ("all", total)]:
        print(f"{module:24}{counts['passed']:8}{counts['failed']:8}{counts['skipped']:8}")
        total += counts if module != "all" else Counter()
    for name, reason in failures:
        print(f"  {name}: {reason}")
    return total["passed"] >= WANTED
