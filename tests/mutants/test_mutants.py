"""The judges are judged: mistakes planted in the compiler are caught, and so is the fault that began it all."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="mutants live in forked processes")

HERE = Path(__file__).parent
#: Mutants that each run of the tests must catch: of every part of the compiler one, quick to be seen.
CHOSEN = (
    "compile.lower write: left out: again_put(f, e.args[0], layout)",
    "compile.split _Pieces.kernels: negated: p.stores",
    "compile.order in_order: left out: after.setdefault(at, []).append(step)",
    "compile.results _copying: left out: kernel.stores.append(Store(line, target.buffer, on(kernel, axes, target)))",
    "compile.fit _Played._fill_again: comparison: self.live.get(x, x) is not x",
    "compile.legality _overwriting_problems: operand dropped: as_long",
    "compile.closures _Walk._special: left out: self._stack.append(thing())",
    "compile.trace _leaves: comparison: tree is MISSING",
    "compile.arguments taken_apart: comparison: type(x) is not plan.kind",
    "compile.places SlotPlace.put: left out: self.slot.__delete__(self.thing)",
    "compile.cpu.kernels form: entry forgotten: numbers[id(s.line)]",
    "compile.cpu.lookup _checked: left out: _note(words, inside)",
    "compile.cpu.lookup looked_up: negated: place.last",
    "compile.cpu.division _later: operand dropped: not s.word",
    "compile.recipes _only: comparison: len(stores) == len(step.stores)",
    "compile.cpu.blocks blocks_text: left out: writer.step(inner, words, inside, slots)",
    'compile.cpu.nested _iterate: left out: words.say(f"store i64 0, ptr %round{tag}")',
)


def run(script: str, *options: str) -> subprocess.CompletedProcess[str]:
    """A process of its own: what is planted here, and the settings of the judges, stay there."""
    asked = [sys.executable, str(HERE / script), *options]
    return subprocess.run(asked, env=dict(os.environ, OPENBLAS_NUM_THREADS="1"), capture_output=True, text=True)


def test_mistakes_in_the_compiler_are_caught(tmp_path):
    chosen = tmp_path / "chosen"
    chosen.write_text("\n".join(CHOSEN))
    judges = ("legality", "machinery", "native", "reference", "staleness", "calls")
    done = run("mutants.py", "--only", str(chosen), "--every", "4", "--judges", *judges)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(CHOSEN)} planted" in done.stdout
    assert not re.search("survived [1-9]|not reached [1-9]|not planted", done.stdout), done.stdout


@pytest.mark.parametrize("judge", ["legality", "reference", "generators", "pairs", "equal_widths"])
def test_a_fold_of_a_spread_fold_stored_before_it_is_known(judge):
    """The fault behind wrong gradients of networks of two equal widths, put back: each judge alone sees it."""
    done = run("fault.py", judge)
    assert done.returncode == 0, done.stderr
    assert done.stdout.strip() not in ("", "saw nothing"), done.stdout


@pytest.mark.sweep
def test_a_sample_of_all_mistakes_is_caught_or_explained():
    done = run("mutants.py", "--most", "420")
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr
