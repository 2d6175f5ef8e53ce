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
    "compile.lower.equations lower_write: left out: store_separately(f, e.args[0], layout)",
    "compile.schedule.split _Splitter.build_pieces: negated: p.stores",
    "compile.schedule.order order_steps: left out: after.setdefault(at, []).append(step)",
    "compile.lower.outputs _copy_kernel: left out: kernel.stores.append(Store(line, target.buffer, strides_on_domain(kernel, axes, target)))",  # noqa: E501
    "compile.schedule.rematerialize _Simulation._recompute: comparison: self.live.get(x, x) is not x",
    "compile.legality _overwriting_problems: operand dropped: as_long",
    "compile.stage.closure_walk _ClosureWalk.module_contents: left out: found.append(value)",
    "compile.stage.trace _flatten_or_wrap: comparison: tree is MISSING",
    "compile.stage.arguments _FlattenerText.add: negated: _is_leaf(x)",
    "compile.stage.locations SlotLocation.put: left out: self.slot.__delete__(self.thing)",
    "compile.cpu.kernel.render kernel_key: entry forgotten: numbers[id(s.line)]",
    "compile.cpu.kernel.index_access _wrap_index: left out: _note_out_of_range(access, builder, inside)",
    "compile.cpu.kernel.index_access load_lanes_at: negated: place.lane_stride",
    "compile.schedule.division _find_postponed_stores: operand dropped: not s.word",
    "compile.schedule.recompute_recipes _restrict_to: comparison: len(stores) == len(step.stores)",
    "compile.cpu.program.render ProgramWriter._emit_blocks: left out: self.emit_step(inner)",
    "compile.cpu.program.control_flow _emit_iterate: negated: step.reverse",
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


def test_every_explanation_is_of_a_mistake_that_can_be_planted():
    """Code that moves takes its explanations along."""
    done = run("mutants.py", "--stale")
    assert done.returncode == 0, done.stdout + done.stderr


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
