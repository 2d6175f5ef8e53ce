"""What type checkers say about typed programs: one run of mypy (and of pyright where it is installed) over all.

In `tests/typed` a comment after `reveal_type(x)` is the type of x, also when the program runs, and one after a mistake
is mypy's code for it.
"""

import builtins
import importlib.util
import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import typing
from pathlib import Path

import pytest

import pullback as pb

ROOT = Path(__file__).parent.parent
TYPED = ROOT / "tests" / "typed"
PROGRAMS = sorted(path for path in TYPED.glob("*.py") if path.name not in ("conftest.py", "mistakes.py"))
PARTS = ("", "nn", "optim", "linalg", "fft", "special", "random")
#: The result is a number or a container that depends on an argument, what users' functions return, or CuPy's.
UNTYPED = {
    "pb.apply_along_axis", "pb.register_numpy", "pb.result_type",
    "x.alias", "x.cupy", "x.dtype", "x.interpret", "x.item", "x.tolist", "x.value",
}  # fmt: skip
#: What is in these layers mostly is so.
UNTYPED_MODULES = ("implicit", "transforms", "checkpoint", "saving", "graph", "tools", "arrays", "optim")

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(importlib.util.find_spec("mypy") is None, reason="mypy is not installed"),
]


def simplify(text):
    """A type without modules, and arrays without shapes and dtypes."""
    text = re.sub(r"\b(?:\w+\.)+(?=\w)", "", text).replace("?", "")
    return re.sub(r"ndarray\[tuple\[[^\[\]]*\], dtype\[(?:[^\[\]]|\[[^\[\]]*\])*\]\]", "ndarray", text)


def listing():
    """A program that asks for the type of each public name, and reads each attribute of a tensor."""
    lines = ["from typing import reveal_type", "import pullback as pb", "x = pb.tensor(1.0)"]
    for part in PARTS:
        space = getattr(pb, part) if part else pb
        where = f"pb.{part}" if part else "pb"
        lines += [
            f"reveal_type({where}.{name})" for name in space.__all__ if not isinstance(getattr(space, name), type)
        ]
    lines += [f"reveal_type(x.{name})" for name in dir(pb.tensor(1.0)) if not name.startswith("_")]
    return "\n".join(lines)


@pytest.fixture(scope="module")
def listed(tmp_path_factory):
    path = tmp_path_factory.mktemp("listing") / "listing.py"
    path.write_text(listing())
    return path


@pytest.fixture(scope="module")
def found(listed):
    """What mypy says: for each file and line, (severity, message)."""
    command = [sys.executable, "-m", "mypy", "--no-error-summary", "--hide-error-context", "--no-pretty"]
    source = os.pathsep.join(filter(None, [str(Path(pb.__file__).parent.parent), os.environ.get("MYPYPATH")]))
    run = subprocess.run(
        [*command, str(listed), *map(str, [*PROGRAMS, TYPED / "mistakes.py"])],
        cwd=ROOT,
        env={**os.environ, "MYPYPATH": os.path.relpath(source, ROOT)},
        capture_output=True,
        text=True,
        check=False,
    )
    said = {}
    for line in run.stdout.splitlines():
        place = re.match(r"(.+?\.py):(\d+): (error|note): (.*)", line)
        if place:
            said.setdefault((Path(place[1]).name, int(place[2])), []).append((place[3], place[4]))
    assert said, run.stdout + run.stderr
    return said


def comments(path):
    """The line numbers that have a comment on what mypy says."""
    lines = path.read_text().splitlines()
    pairs = ((number, line.partition("  # ")) for number, line in enumerate(lines, 1))
    return {number: parts[2].partition("  # ")[0] for number, parts in pairs if parts[2]}


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_have_the_types_that_they_state(path, found):
    stated = comments(path)
    revealed = {}
    for (name, number), said in found.items():
        if name == path.name:
            assert all(kind == "note" for kind, _ in said), (number, said)
            revealed[number] = simplify(re.search(r'Revealed type is "(.*)"', said[0][1])[1])
    assert revealed == stated


@pytest.mark.parametrize("path", PROGRAMS, ids=lambda path: path.stem)
def test_programs_run_and_have_these_types_then(path, monkeypatch):
    seen = {}

    def note_type(x):
        seen.setdefault(sys._getframe(1).f_lineno, set()).add(type(x).__name__)
        return x

    monkeypatch.setattr(typing, "reveal_type", note_type)
    monkeypatch.setattr(builtins, "reveal_type", note_type, raising=False)
    runpy.run_path(str(path))
    for number, stated in comments(path).items():
        kinds = {re.match(r"\w+", kind)[0] for kind in re.split(r" \| (?![^\[]*\])", stated)}
        if not kinds & {"def", "Any", "None"}:
            assert seen[number] <= kinds, number


def test_mistakes_are_found(found):
    path = TYPED / "mistakes.py"
    codes = {
        number: {re.search(r"\[([\w-]+)\]$", text)[1] for kind, text in said if kind == "error"}
        for (name, number), said in found.items()
        if name == path.name
    }
    assert {number: {code} for number, code in comments(path).items()} == codes


def home_of(expression):
    """The module that a public thing is defined in."""
    found = pb
    for name in expression.split(".")[1:]:
        found = getattr(found, name)
    return getattr(found, "__module__", None) or ""


def test_every_public_name_and_tensor_attribute_has_a_type(listed, found):
    untyped = []
    for number, line in enumerate(listed.read_text().splitlines(), 1):
        if not line.startswith("reveal_type"):
            continue
        kind, text = found[listed.name, number][0]
        expression = line[len("reveal_type(") : -1]
        home = "" if expression.startswith("x.") else home_of(expression)
        excused = expression in UNTYPED or any(f".{part}" in home for part in UNTYPED_MODULES)
        is_any = re.fullmatch(r'Revealed type is "(Any|def .* -> Any)"', text)
        if kind == "error" or (is_any and not excused):
            untyped.append((expression, text))
    assert not untyped, "\n".join(map(str, untyped))


@pytest.mark.skipif(shutil.which("pyright") is None, reason="pyright is not installed")
def test_pyright_finds_the_mistakes_and_no_others():
    mistakes = TYPED / "mistakes.py"
    command = ["pyright", "--outputjson", "--pythonpath", sys.executable, *map(str, [*PROGRAMS, mistakes])]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    errors = [said for said in json.loads(run.stdout)["generalDiagnostics"] if said["severity"] == "error"]
    places = {(Path(said["file"]).name, said["range"]["start"]["line"] + 1): said["message"] for said in errors}
    assert set(places) == {(mistakes.name, number) for number in comments(mistakes)}, places
