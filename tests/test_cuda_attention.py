"""Attention whose scores stay on the chip: the GPU's code on the emulator, and its ops, against plain formulas."""

import re

import fake_cuda_driver
import numpy as np
import pytest
from cuda_emulator import EMULATED, aligned_copy, has_compiler, run_actions

import pullback as pb
from pullback.compile import targets
from pullback.compile.cuda.launch_plan import Launch
from pullback.compile.cuda.preamble import PREAMBLE
from pullback.compile.cuda.products import attention
from pullback.compile.cuda.products.instructions import tiles_text
from pullback.compile.loop_ir import Buffer, Host, Routine, contiguous_layout
from pullback.nn.attention import on_chip
from pullback.nn.attention.on_chip import attend_on_chip

needs_compiler = pytest.mark.skipif(not has_compiler(), reason="the emulator needs g++")
#: Batch, queries, keys, width, causal.
CASES = [((2,), 70, 70, 32, True), ((1,), 66, 66, 64, True), ((1,), 40, 100, 32, False), ((), 150, 33, 32, True)]


def make(rng, batch, queries, keys, width):
    shapes = [(*batch, n, width) for n in (queries, keys, keys, queries)]
    return [rng.standard_normal(s).astype("f4") for s in shapes]


def formula(q, k, scale, is_causal):
    """The weights."""
    s = q @ np.swapaxes(k, -1, -2) * scale
    if is_causal:
        s = np.where(np.arange(k.shape[-2]) > np.arange(q.shape[-2])[:, None], -np.inf, s)
    p = np.exp(s - s.max(axis=-1, keepdims=True))
    return p / p.sum(axis=-1, keepdims=True)


def gradients(q, k, v, bar, scale, is_causal):
    q, k, v, bar = (np.asarray(x, "f8") for x in (q, k, v, bar))
    p = formula(q, k, scale, is_causal)
    p_bar = bar @ np.swapaxes(v, -1, -2)
    s_bar = p * (p_bar - (p * p_bar).sum(axis=-1, keepdims=True)) * scale
    return [p @ v, s_bar @ k, np.swapaxes(s_bar, -1, -2) @ q, np.swapaxes(p, -1, -2) @ bar]


def off(found, wanted):
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in zip(found, wanted, strict=True))


def both_ways(q, k, v, bar, scale, is_causal):
    out, pull = pb.vjp(lambda *xs: attend_on_chip(*xs, scale, is_causal), q, k, v)
    return out, *pull(bar)


@needs_compiler
@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_code_for_a_gpu_is_right_both_ways(monkeypatch, case):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)
    monkeypatch.setattr(attention, "MULTIPROCESSORS", 3)  # some cases have as many blocks, or twice as many
    *sizes, is_causal = case
    arrays = make(np.random.default_rng(0), *sizes)
    compiled = pb.jit(lambda *xs: both_ways(*xs, 0.2, is_causal))
    found = compiled(*arrays)
    assert off(found, gradients(*arrays, 0.2, is_causal)) < 2e-6
    text = compiled.last.code.text
    assert all(f"{name}_<A>" in text for name in ("attend", "attend_back_queries", "attend_back_keys"))
    assert text.count("attend_<A>(groups") == 1, "the backward pass uses what the forward pass has computed"


@needs_compiler
def test_tf32_has_fewer_digits(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)
    arrays = make(np.random.default_rng(5), (1,), 66, 66, 32)
    layouts = [contiguous_layout(Buffer("input", x.size, x.dtype), x.shape) for x in arrays[:3]]
    outs = [contiguous_layout(Buffer("output", n, arrays[0].dtype), (n,)) for n in (arrays[0].size, 66)]
    routine = Routine("attend", {"scale": 0.2, "is_causal": True}, 1.0)
    step = Host("attend", lambda *xs: xs, tuple(layouts), tuple(outs), True, routine)
    (x,) = attention.render_attention(step, 1)
    memory = {layout.buffer: aligned_copy(a.reshape(-1)) for layout, a in zip(layouts, arrays, strict=False)}
    memory |= {out.buffer: aligned_copy(np.full(out.size, np.nan, "f4")) for out in outs}
    text = PREAMBLE + tiles_text() + x.text.replace("NAME", "kernel0")
    run_actions(text, [Launch("kernel0", x.buffers, (0,) * len(x.buffers), x.grid, x.block)], memory)
    found = memory[outs[0].buffer].reshape(arrays[0].shape)
    assert 1e-5 < off([found], gradients(*arrays, 0.2, True)[:1]) < 2e-3


def test_a_pragma_is_no_branch():
    # NVRTC takes it for the statement of the branch, where g++ passes over it
    assert not re.search(r"\bif [^;{]*\)\s*\n\s*#pragma", tiles_text())


@needs_compiler
def test_infinities_and_large_numbers_are_as_in_float32(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)
    q, k, v, _ = make(np.random.default_rng(4), (1,), 40, 40, 32)
    v[0, 7, 3], v[0, 9, 4], v[0, 20, 5], v[0, 30, 6] = np.inf, -3.4e38, np.nan, 3.4028e38
    found = pb.jit(lambda *xs: attend_on_chip(*xs, 0.2, True))(q, k, v)
    # a query meets no keys after its own
    rows = [formula(q[:, : i + 1], k[:, : i + 1], 0.2, False)[:, -1:] @ v[:, : i + 1].astype("f8") for i in range(40)]
    wanted = np.concatenate(rows, axis=1)
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)


@needs_compiler
def test_attention_in_a_loop_is_launched_there(monkeypatch):
    monkeypatch.setitem(targets.TARGETS, "cpu", lambda program: EMULATED)
    q, k, v, _ = make(np.random.default_rng(3), (3, 1), 40, 40, 32)

    def run(q, k, v):
        return pb.scan(lambda c, kv: (c + attend_on_chip(c, *kv, 0.2, True), pb.sum(c)), q[0], (k, v))[0]

    compiled = pb.jit(run)
    found, wanted = compiled(q, k, v), q[0].astype("f8")
    for i in range(3):
        wanted = wanted + gradients(wanted, k[i], v[i], wanted, 0.2, True)[0]
    assert off([found], [wanted]) < 2e-6
    assert "attend_<A>" in compiled.last.code.text


def test_both_ops_differentiate_and_batch_at_any_order():
    rng = np.random.default_rng(1)
    q, k, v, bar = (x.astype("f8") for x in make(rng, (2,), 5, 5, 5))
    plain = lambda *xs: pb.nn.scaled_dot_product_attention(*xs, is_causal=True, scale=0.3)  # noqa: E731
    as_op = lambda *xs: attend_on_chip(*xs, 0.3, True)  # noqa: E731
    # queries, keys and width have one size, so that axes that are mixed up show in numbers alone
    moves = [rng.standard_normal(x.shape) for x in (q, k, v)]

    def derivatives(f):
        inner = lambda *xs: pb.sum(f(*xs) * bar)  # noqa: E731
        first = pb.grad(inner, argnums=(0, 1, 2))
        norm = lambda *xs: sum(pb.sum(pb.sin(g) * m) for g, m in zip(first(*xs), moves, strict=True))  # noqa: E731
        yield f(q, k, v)
        yield from first(q, k, v)
        yield pb.jvp(f, (q, k, v), tuple(moves))[1]
        yield from pb.grad(norm, argnums=(0, 1, 2))(q, k, v)
        yield from pb.jvp(first, (q, k, v), tuple(moves))[1]
        yield from pb.vmap(first, in_axes=(0, None, 1))(q, k[0], np.moveaxis(v, 0, 1))
        t = [pb.tensor(x, requires_grad=True) for x in (q, k, v)]
        pb.checkpoint(inner)(*t).backward()
        yield from (x.grad.numpy() for x in t)

    for a, b in zip(derivatives(as_op), derivatives(plain), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-11)


@needs_compiler
def test_arrays_of_a_gpu_take_it_by_themselves(monkeypatch):
    monkeypatch.setattr(on_chip, "_MIN_LENGTH", 32)
    arrays = make(np.random.default_rng(2), (1, 2), 40, 40, 32)
    wanted = gradients(*arrays, 1 / np.sqrt(32), True)

    def both(q, k, v, bar):
        out, pull = pb.vjp(lambda *xs: pb.nn.scaled_dot_product_attention(*xs, is_causal=True), q, k, v)
        return out, *pull(bar)

    with fake_cuda_driver.installed() as (cupy, _):
        given = [cupy.asarray(x) for x in arrays]
        compiled = pb.jit(both)
        for _ in range(3):
            found = compiled(*given)
        assert off([x.get() for x in found], wanted) < 2e-6
        assert "attend_back_keys_<A>" in compiled.last.code.text
        q, k, v = (pb.tensor(x, requires_grad=True) for x in given[:3])
        out = pb.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
        out.backward(given[3])
        assert off([x.detach().numpy() for x in (out, q.grad, k.grad, v.grad)], wanted) < 2e-6
