"""The target seam: a target that no part of the compiler knows runs the same programs, and layers above name none."""

import ast
import dataclasses
from pathlib import Path

import numpy as np
import pytest
from composed_modes import find_fault
from composed_programs import drawn
from random_programs import updated
from stub_target import STUB
from test_random_graphs import tried

import pullback as pb
from pullback.compile import pipeline, targets
from pullback.compile.loop_ir import Blocks, Host, Kernel, Loop, Product
from pullback.errors import ArgumentError, IndexingError, MemoryBudgetError, MiscompiledError

X = np.random.default_rng(0).normal(size=(4, 3))


@pytest.fixture
def stub(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: STUB)


def close(found, wanted):
    np.testing.assert_allclose(found, wanted, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("seed", range(24))
def test_random_programs_on_the_stub(stub, seed):
    assert tried(seed) == []


@pytest.mark.parametrize("mode", ["value", "donated", "jit_grad", "scanned", "jit_scanned_grad", "branched"])
def test_composed_programs_on_the_stub(stub, mode):
    assert [fault for seed in range(8) if (fault := find_fault(drawn(seed, 3, 8), mode)) is not None] == []


def test_updates_of_donated_arguments_on_the_stub(stub):
    for seed in range(8):
        f = updated(seed)
        args = [np.random.default_rng([seed, i]).normal(size=(4, 4)) for i in range(4)]
        for mine, wanted in zip(pb.jit(f, donate_argnums=(0, 1, 2))(*(a.copy() for a in args)), f(*args), strict=True):
            close(mine, wanted)


def steps_of(f, *args):
    return pb.jit(f).lower(*args).code.compilation.planned.steps


def test_every_kind_of_step_runs_on_the_stub(stub):
    """Convolutions in blocks, loops, branches, gathers and scatters, products, and ops that it has no word for."""
    images, weight = X.reshape(1, 1, 4, 3).repeat(2, 0), np.ones((2, 1, 2, 2))
    cases = [
        (Blocks, lambda x, w: pb.nn.conv2d(x, w, padding=1), (images, weight)),
        (Kernel, lambda x: pb.nn.max_pool2d(x, 2), (images,)),
        (Loop, lambda x: pb.while_loop(lambda c: pb.sum(c) < 100, lambda c: c * 1.5 + 1, x), (X,)),
        (Loop, lambda x: pb.fori_loop(0, 5, lambda i, c: pb.sin(c) + i, x), (X,)),
        (Loop, lambda x: pb.cond(pb.sum(x) > 0, pb.sin, pb.cos, x), (X,)),
        (Kernel, lambda x: pb.grad(lambda x: pb.sum(x[np.array([0, 2, 0])] ** 2))(x), (X,)),
        (Product, lambda x: x @ x.T, (X,)),
        (Host, pb.erf, (X,)),
        (Host, lambda x: pb.sin(x.astype("int8").astype("float64")), (X,)),
        (Host, lambda x: pb.fori_loop(0, 3, lambda i, c: pb.erf(c) + 1, pb.erf(x)), (X,)),
    ]
    for kind, f, args in cases:
        assert any(isinstance(s, kind) for s in steps_of(f, *args)), kind
        close(pb.jit(f)(*args), f(*args))
    with pytest.raises(IndexingError):
        pb.jit(lambda x, i: x[i])(X, np.array([9]))


def test_the_stub_decides_by_its_own_numbers(stub):
    """Chains are not split, kernels are cut into its blocks, values start where it wants them."""
    f = lambda x: pb.tanh(pb.tanh(pb.tanh(x)) + 1)  # noqa: E731
    (kernel,) = steps_of(f, X)
    assert kernel.division.blocks == STUB.limits.max_blocks
    found = pb.jit(lambda x: (x @ x.T) @ (x @ x.T)).lower(X).code.compilation
    assert {b.offset % 256 for s in found.planned.steps for b in s.writes() if b.kind == "arena"} == {0}
    assert "for i1 in range(low, high):" in pb.jit(f).lower(X).llvm


def test_what_explain_says_of_the_stub(stub):
    entry = pb.jit(lambda x: pb.sum(pb.sin(x))).lower(X)
    assert entry.explain().splitlines()[-1] == "compiled for stub: " + ", ".join(s.__name__ for s in pipeline.STEPS)
    with pytest.raises(ArgumentError, match="stub shows no assembly"):
        _ = entry.assembly


def test_the_judge_judges_the_stub(stub, monkeypatch):
    f = lambda x: pb.sum(pb.sin(x) * pb.cos(x), axis=0) - x[0]  # noqa: E731
    close(pb.jit(f, check=True)(X), f(X))
    wrong = STUB.render

    def planted(steps, fast):
        code = wrong(steps, fast)
        return type(code)(code.text.replace(".cos(", ".sin("), code.names)

    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: dataclasses.replace(STUB, render=planted))
    with pytest.raises(MiscompiledError, match=r"wrong first in step 0 \(kernel over 4x3: cos, sin"):
        pb.jit(f, check=True)(X)


def test_budgets_are_kept_on_the_stub(stub):
    def loss(x):
        y = x
        for _ in range(8):
            y = pb.sin(pb.sin(y) * x)
        return pb.sum(y)

    x = np.random.default_rng(0).normal(size=300)
    memory = pb.jit(pb.grad(loss)).lower(x).memory()
    limit = memory.peak - memory.arena // 4
    tight = pb.jit(pb.grad(loss), memory_budget=limit)
    assert tight.lower(x).memory().peak <= limit
    close(tight(x), pb.grad(loss)(x))
    with pytest.raises(MemoryBudgetError):
        pb.jit(pb.grad(loss), memory_budget=memory.inputs)(x)


def test_a_device_without_a_target_falls_back_to_numpy(monkeypatch):
    monkeypatch.delitem(targets.TARGETS, "cpu")
    f = pb.jit(lambda x: pb.sin(x) * 2)
    close(f(X), np.sin(X) * 2)
    assert f.last.code.compilation is None
    with pytest.raises(ArgumentError, match="no native code to show"):
        f.last.explain()


#: What knows a machine: the packages of targets, and the one table of them.
MACHINES = ("cpu", "targets")


#: What compiles on its own account: functions, fused functions, single ops.
_ASKING = (("specialization.py",), ("native_form.py",), ("half_ops.py",))


def test_only_the_table_of_targets_names_a_machine():
    root = Path(pipeline.__file__).parent
    for path in sorted(root.rglob("*.py")):
        inside = path.relative_to(root).parts
        if inside[0].removesuffix(".py") in (*MACHINES, "threads"):
            continue
        imported = [n for n in ast.walk(ast.parse(path.read_text())) if isinstance(n, ast.ImportFrom)]
        named = {part for n in imported for part in (n.module or "").split(".")}
        assert "cpu" not in named, path
        assert "targets" not in named or inside in _ASKING, path
