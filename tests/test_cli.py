"""The commands of `pullback`, run in this process: what they print and what they return."""

import io
import subprocess
import sys
import tomllib
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console

from pullback import cli, demo
from pullback.data import digits
from pullback.ops import everything


@pytest.fixture
def console():
    return Console(file=io.StringIO(), width=80)


def printed(console):
    return console.file.getvalue()


def test_doctor_names_what_it_finds(console):
    assert cli.main(["doctor"], console) == 0
    assert [part.name for part in cli.PARTS if part.name not in printed(console)] == []
    assert np.__version__ in printed(console)


def missing():
    raise ModuleNotFoundError("No module named 'elsewhere'")


def broken():
    raise RuntimeError("driver [too] old")


def test_doctor_says_how_to_get_what_is_missing_and_survives_what_is_broken(console, monkeypatch):
    parts = (cli.Part("A", missing, "nothing", extra="jit"), cli.Part("B", broken, "nothing"))
    monkeypatch.setattr(cli, "PARTS", parts)
    assert cli.main(["doctor"], console) == 0
    assert "not installed (extra jit)" in printed(console)
    assert "pip install 'pullback[NAME]'" in printed(console)
    assert "RuntimeError: driver [too] old" in printed(console)


def test_ops_lists_every_record(console):
    assert cli.main(["ops"], console) == 0
    assert set(everything()) <= {line.split()[0] for line in printed(console).splitlines() if line.split()}


def test_demo_learns_the_digits(console):
    report = demo.main(steps=150, console=console)
    assert report.accuracy >= 0.9
    assert f"{report.accuracy:.1%}" in printed(console)


def test_demo_is_the_same_each_time(console):
    first, second = (demo.main(steps=5, console=console) for _ in range(2))
    assert (first.loss, first.accuracy) == (second.loss, second.accuracy)


def test_demo_command_passes_its_settings_on(console):
    assert cli.main(["demo", "--steps", "3"], console) == 0
    assert "3 steps" in printed(console)


@pytest.mark.parametrize("words", [[], ["unknown"], ["demo", "--steps", "0"]])
def test_wrong_words_end_with_a_usage_message(words, capsys):
    with pytest.raises(SystemExit, match="2"):
        cli.main(words)
    assert "usage: pullback" in capsys.readouterr().err


def test_version_is_the_one_of_the_project(capsys):
    project = tomllib.loads((Path(__file__).parent.parent / "pyproject.toml").read_text())["project"]
    with pytest.raises(SystemExit, match="0"):
        cli.main(["--version"])
    assert capsys.readouterr().out == f"pullback {project['version']}\n"


def test_digits_are_what_they_say():
    images, labels = digits()
    assert (images.shape, images.dtype, images.min(), images.max()) == ((1797, 64), np.float32, 0, 1)
    assert (labels.shape, np.bincount(labels).min(), len(np.bincount(labels))) == ((1797,), 174, 10)


def test_the_package_imports_nothing_heavy():
    code = "import sys, pullback; print({'rich', 'cupy', 'llvmlite', 'mpi4py', 'matplotlib'} & set(sys.modules))"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "set()\n"
