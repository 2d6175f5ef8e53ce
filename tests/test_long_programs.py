"""Programs of many ops: the work of compiling them grows as they do, and what repeats itself is made once."""

import re
from itertools import pairwise

import numpy as np
import pytest

import pullback as pb
from pullback.compile.cpu.kernel.render import find_overlapping_buffers, kernel_key, render_kernel
from pullback.compile.cpu.program.render import MAX_STEPS_PER_FUNCTION
from pullback.compile.cpu.target import cpu_limits
from pullback.compile.loop_ir import Buffer, Host, Kernel, KernelLine, Store, contiguous_layout
from pullback.compile.schedule import arena

pytest.importorskip("llvmlite")


def chain(length):
    def f(x):
        for _ in range(length):
            x = pb.sin(x) * 1.01
        return pb.sum(x)

    return f


def product(length):
    return lambda x, v: pb.hvp(chain(length), (x,), (v,))


X, V = (np.random.default_rng(i).normal(size=20) for i in range(2))


@pytest.mark.parametrize("length", [1, 6, 7, 8, 9, 150])
def test_second_derivatives_of_long_chains(length):
    entry = pb.jit(product(length)).lower(X, V)
    assert (len(entry.code.compilation.steps.steps) > MAX_STEPS_PER_FUNCTION) == (length == 150)
    np.testing.assert_allclose(pb.jit(product(length))(X, V), product(length)(X, V), rtol=1e-9, atol=1e-12)


def sizes(length):
    """Steps, kernels as text, and how often the lines of a kernel were looked through."""
    looked = []
    original = Kernel._find_live_lines
    try:
        Kernel._find_live_lines = lambda self: looked.append(self) or original(self)
        entry = pb.jit(product(length)).lower(X, V)
        steps = entry.code.compilation.steps.steps  # lowered when it is asked for
    finally:
        Kernel._find_live_lines = original
    return len(steps), len(re.findall("define internal void @kernel", entry.llvm)), len(looked)


def test_what_repeats_is_written_once_and_nothing_grows_faster_than_the_program():
    (few, kernels, looks), (many, more_kernels, more_looks) = sizes(100), sizes(300)
    assert many > 2.5 * few
    assert more_kernels < 2 * kernels
    assert more_looks < 3.5 * looks


def kernel_of(buffers, number=1.5, stride=1):
    kernel = Kernel((8,), 0)
    load = KernelLine("load", np.dtype(float), frozenset((0,)), buffer=buffers[0], strides=(stride,))
    scale = KernelLine("number", np.dtype(float), frozenset(), number=number)
    both = KernelLine("apply", np.dtype(float), frozenset((0,)), 0, (load, scale), max, np.dtype(float))
    kernel.lines += [load, both]
    kernel.stores.append(Store(both, buffers[1], (1,)))
    return kernel


def buffers(count):
    return [Buffer("arena", 8, np.dtype(float)) for _ in range(count)]


def test_kernels_of_one_form_differ_in_their_buffers_alone():
    a, b, c, d = buffers(4)
    key, own = kernel_key(kernel_of((a, b)))
    assert own == [a, b]
    assert kernel_key(kernel_of((c, d))) == (key, [c, d])
    others = [
        kernel_of((a, a)), kernel_of((a, b), stride=0), kernel_of((a, b), number=-1.5), kernel_of((a, b), number=1),
        kernel_of((a, b), number=np.float32(1.5)), kernel_of((a, b), number=1.5 + 2**-52),
    ]  # fmt: skip
    keys = [kernel_key(k)[0] for k in others]
    assert len({key, *keys}) == 1 + len(others)
    assert kernel_key(kernel_of((a, b), number=0.0))[0] != kernel_key(kernel_of((a, b), number=-0.0))[0]
    assert kernel_key(kernel_of((a, b), number=np.nan))[0] == kernel_key(kernel_of((c, d), number=np.nan))[0]


def test_a_kernel_notices_what_is_stored_since():
    a, b, c = buffers(3)
    kernel = kernel_of((a, b))
    assert [line.kind for line in kernel.live_lines()] == ["number", "load", "apply"]
    other = KernelLine("load", np.dtype(float), frozenset((0,)), buffer=c, strides=(1,))
    kernel.stores.append(Store(other, b, (1,)))
    assert [line.kind for line in kernel.live_lines()].count("load") == 2
    kernel.stores.pop()
    assert [line.kind for line in kernel.live_lines()] == ["number", "load", "apply"]


def test_a_result_over_its_argument_is_not_said_to_lie_apart():
    a, b, c = buffers(3)
    for buffer, offset in ((a, 64), (b, 64), (c, 128)):
        buffer.offset = offset
    assert find_overlapping_buffers([a, b, c]) == {a, b}
    assert kernel_key(kernel_of((a, b)))[0] != kernel_key(kernel_of((a, c)))[0]
    texts = [render_kernel(product_of(a, x), cpu_limits(32)).text for x in (b, c)]
    assert [f"ptr noalias %b{i}" in text for text in texts for i in (0, 1)] == [
        False, False, True, True,
    ]  # fmt: skip
    b.offset, c.offset = 60, 100
    assert find_overlapping_buffers([c, a, b]) == {a, b, c}
    assert find_overlapping_buffers([c, Buffer("input", 8, np.dtype(float))]) == set()


def product_of(a, b):
    kernel = kernel_of((a, b))
    kernel.lines[1].kernel = lambda k, x, y: k.multiply(x, y)
    return kernel


def steps_of(lifetimes):
    """Steps in which the i-th buffer lives from its first to its last step."""
    made = [(Buffer("arena", n, np.dtype(np.uint8)), first, last) for n, first, last in lifetimes]
    steps = []
    for i in range(1 + max(last for _, _, last in lifetimes)):
        layouts = lambda at, i=i: tuple(contiguous_layout(b, (b.size,)) for b, *ends in made if ends[at] == i)  # noqa: E731
        steps.append(Host("step", max, layouts(1), layouts(0)))
    return steps, made


def first_fit(made):
    """The same plan in the slowest way: the lowest place that no buffer alive at the same time touches."""
    placed, total = [], 0
    for b, first, last in sorted(made, key=lambda m: (m[1], -m[0].nbytes)):
        size = -(-max(b.nbytes, 1) // 64) * 64
        alive = sorted((at, n) for at, n, begin, end in placed if end >= first and begin <= last)
        at = 0
        for start, length in alive:
            if start - at >= size:
                break
            at = max(at, start + length)
        placed.append((at, size, first, last))
        total = max(total, at + size)
    return total


@pytest.mark.parametrize("seed", range(8))
def test_buffers_that_live_together_lie_apart(seed):
    rng = np.random.default_rng(seed)
    starts = rng.integers(0, 40, 120)
    lifetimes = [(int(rng.integers(0, 1000)), int(s), int(s + rng.integers(0, 12))) for s in starts]
    steps, made = steps_of(lifetimes)
    total = arena.plan_arena(steps, 64)
    assert total == first_fit(made)
    for i, (a, first, last) in enumerate(made):
        assert 0 <= a.offset <= total - a.nbytes
        assert a.offset % 64 == 0
        for b, begin, end in made[i + 1 :]:
            together = begin <= last and first <= end and a.nbytes and b.nbytes
            assert not together or a.offset + a.nbytes <= b.offset or b.offset + b.nbytes <= a.offset


def test_a_place_that_is_taken_over_stays_taken():
    a, b, c, d = buffers(4)
    steps = [
        Host("make", max, (), (contiguous_layout(a, (8,)),)), kernel_of((a, b)), kernel_of((b, c)),
        Host("more", max, (), (contiguous_layout(d, (8,)),)),
        Host("end", max, tuple(contiguous_layout(x, (8,)) for x in (c, d)), ()),
    ]  # fmt: skip
    assert arena.plan_arena(steps, 64) == 128
    assert a.offset == b.offset == c.offset != d.offset


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("count", [1, 3, 16, 37])
def test_arguments_too_large_for_the_inlined_functions(dtype, count):
    x = np.linspace(0.1, 3, count).astype(dtype)
    x[-1] = 1e30
    tolerance = 4 * np.finfo(dtype).eps
    for name in ("sin", "cos", "tan"):
        np.testing.assert_allclose(pb.jit(getattr(pb, name))(x), getattr(np, name)(x), rtol=tolerance, atol=tolerance)
    np.testing.assert_array_equal(pb.jit(pb.fmod)(x, np.full_like(x, 0.7)), np.fmod(x, np.full_like(x, 0.7)))


def test_deep_networks_with_parameters_given_away():
    rng = np.random.default_rng(0)
    params = [rng.normal(size=(4, 4)) / 2 for _ in range(60)]

    def loss(params, x):
        for w in params:
            x = pb.tanh(x @ w)
        return pb.sum(x**2)

    def step(params, x):
        return [p - 0.1 * g for p, g in zip(params, pb.grad(loss)(params, x), strict=True)]

    x = rng.normal(size=(3, 4))
    expected = step(params, x)
    found = pb.jit(step, donate_argnums=0)([p.copy() for p in params], x)
    assert all(np.allclose(a, b, rtol=1e-10) for a, b in zip(found, expected, strict=True))
    assert all(a is not b for a, b in pairwise(found))
