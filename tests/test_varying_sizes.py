"""Sizes that vary: one machine code for all of them, and the same bits as code for each."""

import itertools
import logging
import os
import subprocess
import sys

import numpy as np
import pytest
from machines import IN_BLOCKS, cpu_with
from marked import everything_varies

import pullback as pb
from pullback.arrays.trees import flatten
from pullback.compile import siblings
from pullback.compile.cpu.program.operands import read_numbers_from_table
from pullback.compile.cpu.runtime import link
from pullback.compile.jit import Jitted
from pullback.compile.varying import Operand, Varying, placeholder
from pullback.errors import IndexingError

pytest.importorskip("llvmlite")

#: Around the lanes of vectors of 4, 8 and 16 elements, primes, and some that have a larger unrolled part.
SIZES = (2, 3, 7, 8, 17, 33, 64, 130)


@pytest.fixture(autouse=True)
def _nothing_known(monkeypatch):
    """Each test starts with no sizes known and no code on disk; LLVM optimizes nothing, which changes no bits."""
    monkeypatch.setattr(link, "EFFORT", ((), 0))
    monkeypatch.setenv("PULLBACK_CACHE_DIR", "off")
    monkeypatch.setattr(siblings.SIZES, "known", {})
    monkeypatch.setattr(link, "_SHARED", {})


@pytest.fixture
def compiled(monkeypatch):
    """The texts of programs that LLVM compiled."""
    texts = []

    def compile_object(text, *effort):
        if "@run0" in text:  # neither the entry nor the pool
            texts.append(text)
        return whole(text, *effort)

    whole = link.compile_object
    monkeypatch.setattr(link, "compile_object", compile_object)
    return texts


def bits(x):
    return [np.asarray(leaf).tobytes() for leaf in flatten(x)[0]]


def in_code_of_its_own(f, *args, **options):
    """The result of code that is compiled for these sizes alone."""
    known, siblings.SIZES.known = siblings.SIZES.known, {}
    try:
        return Jitted(f, **options)(*args)
    finally:
        siblings.SIZES.known = known


def network(widths, dtype):
    rng = np.random.default_rng(0)
    parameters = [rng.normal(size=s).astype(dtype) for a, b in itertools.pairwise(widths) for s in ((a, b), (b,))]

    def loss(p, x, y):
        for w, b in zip(p[:-2:2], p[1:-2:2], strict=True):
            x = pb.tanh(x @ w + b)
        return pb.mean((x @ p[-2] + p[-1] - y) ** 2)

    def step(p, x, y):
        value, grads = pb.value_and_grad(loss)(p, x, y)
        return value, [a - 0.1 * g for a, g in zip(p, grads, strict=True)]

    return step, lambda n: (
        parameters, rng.normal(size=(n, widths[0])).astype(dtype), rng.normal(size=(n, widths[-1])).astype(dtype)
    )  # fmt: skip


def rows(*sizes, dtype="d"):
    """Arguments whose first axis varies."""
    rng = np.random.default_rng(1)
    return lambda n: tuple(rng.normal(size=(n, *s)).astype(dtype) for s in sizes)


def labelled(n):
    rng = np.random.default_rng(n)
    return rng.normal(size=(n, 6)).astype("f"), rng.integers(0, 6, n)


def convolved(x, w):
    return pb.grad(lambda w: pb.sum(pb.tanh(pb.conv2d(x, w, padding=1)) ** 2))(w)


def scanned(x, w):
    def last(w):
        carry, sums = pb.scan(lambda c, row: (pb.tanh(c @ w + row), pb.sum(c)), pb.zeros(3), x)
        return pb.sum(carry) + pb.sum(sums)

    return pb.grad(last)(w)


FIXED = np.random.default_rng(2).normal(size=(3, 3))

#: By what they are: a function, its arguments for a size, and how often 100 sizes may be compiled.
PROGRAMS = {
    "network": (*network((16, 64, 4), "f"), 5),
    "deep network": (*network((8, 32, 32, 1), "d"), 6),
    "cross-entropy": (pb.grad(lambda x, y: pb.nn.cross_entropy(x, y)), labelled, 4),
    "chain": (lambda x: pb.tanh(x) * pb.sin(x) + 1, rows((), dtype="f"), 3),
    "layer norm": (pb.grad(lambda x: pb.sum(pb.nn.layer_norm(x) ** 3)), rows((12,)), 3),
    "sum": (lambda x: pb.sum(pb.exp(x)), rows(()), 3),
    "mean": (pb.grad(lambda x: pb.mean(x**2) + pb.max(x)), rows((3,), dtype="f"), 3),
    "product": (lambda x: pb.prod(x * x, axis=0), rows((3,)), 3),
    "turned": (lambda x: pb.tanh(pb.transpose(x)), rows((5,), dtype="f"), 3),
    "gram": (lambda x: x @ pb.transpose(x), rows((20,), dtype="f"), 5),
    "attention": (lambda x: pb.nn.softmax(x @ pb.transpose(x)) @ x, rows((20,)), 5),
    "depth": (lambda x, y: pb.transpose(x) @ y, rows((24,), (17,)), 4),
    "dot": (lambda x, y: x @ y, rows((), ()), 4),
    "columns": (lambda x: FIXED @ pb.transpose(x), rows((3,)), 4),
    # of many rows, those that are picked are computed alone: a second form of the program
    "gather": (lambda x: pb.sum(pb.sin(x)[np.array([0, -1, 0])] ** 2), rows((5,)), 5),
    "scatter": (pb.grad(lambda x: pb.sum(x[np.array([0, -1, 0])] ** 3)), rows((5,)), 3),
    "joined": (lambda x: pb.concatenate([x, 2 * x, x[1:]]), rows((3,)), 4),
    "each row": (lambda x: pb.vmap(lambda a: pb.sum(pb.tanh(FIXED @ a @ FIXED)))(x), rows((3, 3)), 4),
    "scan": (lambda x: scanned(x, FIXED), rows((3,)), 4),
    "in a loop": (lambda x: pb.scan(lambda c, k: (pb.sin(c) + k, pb.sum(c, -1)), x, np.ones(4)), rows((3,)), 8),
    "running sum": (lambda x: pb.cumsum(x, axis=0), rows((3,)), 4),
    "factors": (lambda x: pb.linalg.cholesky(x @ pb.swapaxes(x, -1, -2) + 3 * np.eye(3)), rows((3, 3)), 8),
}  # fmt: skip


@pytest.mark.parametrize("name", PROGRAMS)
def test_the_bits_of_code_for_each_size(name, compiled, monkeypatch):
    f, arguments, most = PROGRAMS[name]
    if name in ("sum", "layer norm", "attention"):
        monkeypatch.setattr(link, "EFFORT", (link.PASSES, 3))
    shared = pb.jit(f)
    calls = {n: arguments(n) for n in (1, *SIZES)}
    found = {n: bits(shared(*args)) for n, args in calls.items()}
    assert len(compiled) <= most
    for n, args in calls.items():
        assert found[n] == bits(in_code_of_its_own(f, *args)), n


@pytest.mark.parametrize("name", ["network", "chain", "layer norm"])
def test_a_hundred_sizes_are_compiled_a_few_times(name, compiled):
    f, arguments, most = PROGRAMS[name]
    shared = pb.jit(f)
    for n in range(1, 101):
        args = arguments(n)
        found = shared(*args)
        if n % 9 == 1:
            with pb.native(False):
                wanted = f(*args)
            for x, y in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
                np.testing.assert_allclose(x, y, rtol=2e-4, atol=1e-5)
    assert len(compiled) <= most


@pytest.mark.parametrize("name", ["network", "sum", "attention"])
def test_the_order_of_sizes_does_not_matter(name, compiled):
    f, arguments, _ = PROGRAMS[name]
    calls = {n: arguments(n) for n in (17, 3, 64, 8)}
    upwards, downwards = pb.jit(f), pb.jit(f)
    first = {n: bits(upwards(*calls[n])) for n in sorted(calls)}
    texts = len(compiled)
    siblings.SIZES.known.clear()
    assert first == {n: bits(downwards(*calls[n])) for n in sorted(calls, reverse=True)}
    assert len(compiled) <= texts + 3  # what was compiled for all sizes is known


def test_a_size_that_equals_another(compiled):
    f = lambda x, w: pb.grad(lambda w: pb.sum(pb.tanh(x @ w) @ pb.transpose(w)))(w)  # noqa: E731
    w = np.random.default_rng(0).normal(size=(6, 6))
    shared = pb.jit(f)
    for n in (4, 6, 5, 7, 6):
        x = np.random.default_rng(n).normal(size=(n, 6))
        assert bits(shared(x, w)) == bits(in_code_of_its_own(f, x, w))
    assert len(compiled) <= 8


def test_two_sizes_vary_together_and_apart():
    f = lambda x, y: pb.sum(pb.tanh(x @ y), axis=0)  # noqa: E731
    shared, rng = pb.jit(f), np.random.default_rng(0)
    for n, m in ((4, 9), (5, 9), (5, 20), (4, 20), (30, 30), (9, 4)):
        x, y = rng.normal(size=(n, m)), rng.normal(size=(m, 3))
        assert bits(shared(x, y)) == bits(in_code_of_its_own(f, x, y))


@pytest.mark.parametrize("name", ["chain", "sum", "mean", "gram"])
def test_empty_arrays(name):
    f, arguments, _ = PROGRAMS[name]
    if name == "mean":
        f = pb.grad(lambda x: pb.sum(x**2))
    shared = pb.jit(f)
    for n in (5, 0, 6, 0, 1):
        args = arguments(n)
        np.testing.assert_allclose(shared(*args), f(*args), rtol=1e-5)


def test_donated_arguments():
    f = lambda p, x: (p - 0.1 * pb.sum(x, axis=0), pb.tanh(x))  # noqa: E731
    shared, rng = pb.jit(f, donate_argnums=(0, 1)), np.random.default_rng(0)
    for n in (4, 7, 9, 40, 7):
        p, x = rng.normal(size=3), rng.normal(size=(n, 3))
        wanted = bits(in_code_of_its_own(f, p, x))
        given = p.copy(), x.copy()
        found = shared(*given)
        assert bits(found) == wanted
        assert found[0] is given[0]
        assert found[1] is given[1]


def test_captured_arrays_are_read_at_each_call():
    weights = pb.tensor(np.arange(3.0))
    shared = pb.jit(lambda x: x @ weights)
    for n in (2, 4, 5, 9):
        x = np.ones((n, 3))
        np.testing.assert_array_equal(shared(x), np.full(n, weights.numpy().sum()))
        weights[...] = weights.numpy() + 1


def test_derivatives_of_a_compiled_function(compiled):
    shared = pb.jit(lambda x: pb.sum(pb.sin(x) ** 3))
    for n in (4, 6, 7, 12, 13):
        x = np.random.default_rng(n).normal(size=n)
        leaf = pb.tensor(x, requires_grad=True)
        shared(leaf).backward()
        np.testing.assert_allclose(leaf.grad.numpy(), 3 * np.sin(x) ** 2 * np.cos(x), rtol=1e-12)
        np.testing.assert_allclose(pb.grad(shared)(x), 3 * np.sin(x) ** 2 * np.cos(x), rtol=1e-12)
    assert len(compiled) <= 6  # forwards and backwards: the first size, and one for all others


def test_memory_is_said_in_numbers():
    shared = pb.jit(lambda x: pb.nn.softmax(pb.exp(x), axis=0))
    found = [shared.lower(np.ones((n, 3))).memory() for n in (50, 60, 70)]
    assert all(type(m.arena) is int and "?" not in str(m) for m in found)


def test_an_index_is_checked_against_the_size_of_its_call():
    shared = pb.jit(lambda x, i: pb.take(x, i, axis=0) * 2)
    for n in (4, 6, 5):
        x = np.arange(n * 2.0).reshape(n, 2)
        np.testing.assert_array_equal(shared(x, np.array([n - 1, -n])), x[[n - 1, -n]] * 2)
        for bad in (n, -n - 1):
            with pytest.raises(IndexingError):
                shared(x, np.array([0, bad]))


def test_the_reference_judges_code_for_sizes_that_vary():
    shared = pb.jit(PROGRAMS["mean"][0], check=True)
    for n in (3, 4, 9):
        shared(*PROGRAMS["mean"][1](n))
    assert next(reversed(shared.entries.values()))[0].code.compilation.planned.varies


@pytest.mark.parametrize("name", ["network", "sum", "layer norm", "mean", "attention"])
def test_blocks(name, monkeypatch):
    """Kernels in blocks, whose number varies too."""
    cpu_with(monkeypatch, **IN_BLOCKS)
    f, arguments, _ = PROGRAMS[name]
    shared = pb.jit(f)
    for n in (40, 7, 300, 130):
        args = arguments(n)
        assert bits(shared(*args)) == bits(in_code_of_its_own(f, *args)), n


def test_fast_math_is_compiled_for_each_size(compiled):
    shared = pb.jit(lambda x: pb.sum(x * x), fast_math=True)
    for n in (3, 4, 5):
        shared(np.ones(n))
    assert len(compiled) == 3
    assert "fast_math" in shared.lower(np.ones(6)).explain()


def test_what_was_compiled_is_said(caplog):
    f = pb.jit(lambda x: pb.sum(pb.cos(x)))
    with caplog.at_level(logging.DEBUG, "pullback"):
        for n in (4, 5, 6):
            f(np.ones((n, 2)))
    first, second, third = [r for r in caplog.records if "machine code" in r.getMessage()]
    assert first.levelno == second.levelno == logging.INFO
    assert third.levelno == logging.DEBUG
    assert "these sizes alone: the first of their kind" in first.getMessage()
    assert "float64[5, 2]" in second.getMessage()
    assert "any sizes with these steps: there was a call with (4, 2)" in second.getMessage()
    assert "machine code from another size" in third.getMessage()
    assert "code for any sizes" in f.lower(np.ones((9, 2))).explain()


def test_code_for_all_sizes_serves_another_process(tmp_path):
    text = (
        "import sys, numpy as np, pullback as pb\n"
        "from pullback.compile.cpu.runtime import link\n"
        "f = pb.jit(lambda x: pb.sum(pb.cos(x)))\n"
        "for n in map(int, sys.argv[1:]): f(np.ones(n))\n"
        "print(next(reversed(f.entries.values()))[0].code.compilation.source)\n"
    )
    environment = os.environ | {"PULLBACK_CACHE_DIR": str(tmp_path), "PYTHONPATH": os.pathsep.join(sys.path)}
    found = [
        subprocess.run(
            [sys.executable, "-c", text, *sizes], capture_output=True, text=True, env=environment, check=True
        ).stdout.strip()
        for sizes in (("4", "5"), ("17", "9"))
    ]
    assert found == ["the compiler", "the disk cache"]


@pytest.mark.parametrize("number", range(6))
def test_generated_programs_in_which_everything_varies(number, monkeypatch):
    from guarded import composed, programs
    from test_compiled import same

    everything_varies(monkeypatch.setattr)
    for make in (programs, composed):
        for what, f, args in list(make(number + 1))[-2:]:
            with np.errstate(all="ignore"):
                wanted = f(*args)
            entry = pb.jit(f).lower(*args)
            found = entry.run([np.asarray(a) for a in args])
            single = any(np.asarray(a).dtype == np.float32 for a in args)
            same(found, wanted if isinstance(wanted, (tuple, list)) else [wanted], 3e-4 if single else 1e-9)
            assert what


def test_operands_keep_what_they_are():
    n, m = Varying(12, "n"), Operand(5, "m")
    assert (n + 1, 1 + n, n - 1, 30 - n, n * 2, n // 5, n % 5, -n) == (13, 13, 11, 18, 24, 2, 2, -12)
    assert all(isinstance(x, Varying) for x in (n + 1, 1 + n, n * m, m * n, -n))
    assert type(m + 1) is Operand
    assert (n * 2).identity != (n * 3 - n).identity
    assert f"{n}" == str(n) == placeholder("12", "n", "i64")
    assert [10, 20][Operand(1, "at")] == 20


def test_only_operands_are_read_from_the_table():
    text = "\n".join([
        f"@a = constant [{Varying(3, 'n')} x i64] zeroinitializer",
        "define void @f(ptr %p) {",
        "entry:",
        f"  %x = alloca [{Varying(3, 'n')} x double]",
        f"  %y = mul nsw i64 %i0, {Varying(3, 'n')}",
        f"  %z = add <2 x i64> %v, <i64 1, i64 {Varying(3, 'n')}>",
        f"  call void @g(i64 {Varying(3, 'n')}, i64 {Varying(3, 'other')})",
        "  ret void",
        "}",
    ])  # fmt: skip
    found = read_numbers_from_table(text)
    assert found.numbers == (3, 3)
    assert found.text.count("load i64, ptr getelementptr (i64, ptr @sizes") == 2
    assert "alloca [3 x double]" in found.text
    assert "<i64 1, i64 3>" in found.text
    assert "mul nsw i64 %i0, %size0.one" in found.text
