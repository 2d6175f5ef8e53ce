"""autograd's example scripts, unmodified: their first gradients under autograd beside those under pullback."""

import os
import pickle
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np

from .fetching import fetched

VERSION, COUNT, PATIENCE = "1.9.1", 4, 300
#: Right to this, of those that can be: a script whose gradients feed an optimizer spreads the last digits.
TOLERANCE, WANTED = 1e-10, 26
#: Modules of the folder that the scripts share.
SHARED = {"__init__", "data", "data_mnist"}
#: What those that no mapping of names can run use of autograd's.
REASONS = {
    "dot_graph": "a node class of its own for autograd's tracer",
    "fixed_points": "autograd's fixed_point, a primitive of a tuple; the shim's are of arrays",
    "print_trace": "a node class of its own for autograd's tracer",
    "rkhs": "a box and a vector space of its own",
}
HERE = Path(__file__).resolve().parent.parent


def run(place: Path) -> bool:
    """A line for each script; one that needs more of autograd than names with the same meaning is run by the shim."""
    source = fetched("autograd", VERSION, place)
    scripts = [path for path in (source / "examples").rglob("*.py") if path.stem not in SHARED]
    counts: Counter[str] = Counter()
    print(f"autograd {VERSION}: {len(scripts)} examples, {COUNT} gradients of each")
    for script in sorted(scripts, key=lambda path: path.stem):
        verdict, why = _judged(source, script, place)
        counts[verdict] += 1
        print(f"  {script.stem:32} {verdict:18} {why}", flush=True)
    print(", ".join(f"{count} {verdict}" for verdict, count in counts.most_common()))
    return counts["wrong"] == 0 and counts["right"] + counts["right by the shim"] >= WANTED


def _judged(source: Path, script: Path, place: Path) -> tuple[str, str]:
    how, why, wanted = _run("autograd", source, script, place)
    if how == "failed":
        return "unusable", f"under autograd itself: {why}"
    how, why, found = _run("pullback", source, script, place)
    verdict, missing = "right", ""
    if how == "failed":
        verdict, missing = "right by the shim", f" ({why})"
        how, why, found = _run("shim", source, script, place)
    if how == "failed" and script.stem in REASONS:
        return "uses internals", REASONS[script.stem]
    if how != "ended":
        return how, why
    error = _error(found, wanted)
    return verdict if error < TOLERANCE else "wrong", f"{len(found)} compared, {error:.1e} apart{missing}"


def _run(names: str, source: Path, script: Path, place: Path) -> tuple[str, str, list[list[np.ndarray]]]:
    """How the script ended, why, and its gradients, from a process of its own."""
    package = {"autograd": source, "pullback": HERE, "shim": HERE / "autograd_shim"}[names]
    report = place / "report.pickle"
    report.unlink(missing_ok=True)
    command = [sys.executable, "-m", "suites.example_script", names, str(source), str(script), str(COUNT), str(report)]
    environment = os.environ | {"PYTHONPATH": os.pathsep.join(map(str, (package, HERE, HERE.parent.parent / "src")))}
    try:
        ended = subprocess.run(command, env=environment, capture_output=True, timeout=PATIENCE, check=False)
    except subprocess.TimeoutExpired:
        return "failed", f"no end after {PATIENCE} s", []
    if not report.exists():
        return "failed", f"ended with {ended.returncode}: {ended.stderr.decode()[-200:]}", []
    answer: tuple[str, str, list[list[np.ndarray]]] = pickle.loads(report.read_bytes())
    return answer


def _error(found: list[list[np.ndarray]], wanted: list[list[np.ndarray]]) -> float:
    """The largest over the arrays, relative to the array's largest number, or to a 10,000th of the whole gradient's:
    the bias before a batch is normalized has no gradient but rounding. Infinite where there is none or another form.
    """
    if [[x.shape for x in one] for one in found] != [[x.shape for x in one] for one in wanted] or not wanted:
        return np.inf
    errors = []
    for ours, theirs in zip(found, wanted, strict=True):
        sizes = [float(np.max(np.abs(x), initial=0)) for x in theirs]
        for x, y, size in zip(ours, theirs, sizes, strict=True):
            apart = float(np.max(np.abs(x - y), initial=0))
            errors.append(apart / max(size, 1e-4 * max(sizes), 1e-300))
    return float(np.max(errors))
