"""`flex_attention` against its formula in plain NumPy, in every mode, with and without a block mask."""

import functools
import tracemalloc

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, ArgumentTypeError, ConversionError, DtypeError, ShapeError
from pullback.nn.attention import dot_product

B, H, T, S = 2, 4, 10, 12
RNG = np.random.default_rng(0)
Q, K, V = (RNG.normal(size=(B, h, n, w)) for h, n, w in ((H, T, 3), (2, S, 3), (2, S, 5)))
SLOPE, TABLE = RNG.normal(size=H), RNG.normal(size=T + S)
ROWS, COLUMNS = np.arange(T)[:, None], np.arange(S)
ALLOWED = (ROWS >= COLUMNS) & (ROWS - COLUMNS < 4) & (ROWS != 3)


def window(b, h, q, k):
    return (q >= k) & (q - k < 4) & (q != 3)  # query 3 has no key


BLOCKS = pb.nn.create_block_mask(window, None, None, T, S, 3)
WAYS = {
    "mask": {"mask_mod": window},
    "bands": {"mask_mod": window, "block_size": 4},
    "single rows": {"mask_mod": window, "block_size": 1},
    "blocks": {"block_mask": BLOCKS},
}


def plain(q, k, v, slope, table, allowed=ALLOWED):
    k, v = (np.repeat(x, 2, axis=1) for x in (k, v))
    scores = np.einsum("bhtd,bhsd->bhts", q, k) / np.sqrt(q.shape[-1])
    scores = scores + slope[:, None, None] * (ROWS - COLUMNS) + table[ROWS - COLUMNS + S] * scores
    shares = np.where(allowed, np.exp(scores), 0.0)
    total = shares.sum(axis=-1, keepdims=True)
    return shares / np.where(total == 0, 1, total) @ v


def ours(q, k, v, slope, table, **options):
    def change(score, b, h, i, j):
        return score + pb.take(slope, h) * (i - j) + pb.take(table, i - j + S) * score

    return pb.nn.flex_attention(q, k, v, change, **options)


def complex_step(f, args, moved):
    """The derivative of f along `moved`, without differences."""
    return f(*(x + 1e-30j * m for x, m in zip(args, moved, strict=True))).imag / 1e-30


ARGS = (Q, K, V, SLOPE, TABLE)
MOVED = tuple(RNG.normal(size=x.shape) for x in ARGS)
ALL = tuple(range(5))
BAR = RNG.normal(size=(B, H, T, 5))


@pytest.fixture(params=WAYS)
def way(request, monkeypatch):
    if request.param == "blocks":  # as long rows are
        monkeypatch.setattr(dot_product, "_MAX_SCORES", 1)
    return WAYS[request.param]


def test_values_and_first_derivatives(way):
    f = lambda *xs: ours(*xs, **way)  # noqa: E731
    wanted, slope = plain(*ARGS), complex_step(plain, ARGS, MOVED)
    assert np.allclose(f(*ARGS), wanted, atol=1e-14)
    assert np.allclose(pb.jit(f)(*ARGS), wanted, atol=1e-14)
    assert np.allclose(pb.jvp(f, ARGS, MOVED)[1], slope, atol=1e-13)
    loss = lambda *xs: pb.sum(f(*xs) * BAR)  # noqa: E731
    for take in (pb.grad(loss, argnums=ALL), pb.jit(pb.grad(loss, argnums=ALL))):
        found = take(*ARGS)
        assert np.isclose(sum(np.sum(g * m) for g, m in zip(found, MOVED, strict=True)), np.sum(slope * BAR))
    tensors = [pb.tensor(x, requires_grad=True) for x in ARGS]
    loss(*tensors).backward()
    assert all(np.allclose(x.grad, g) for x, g in zip(tensors, found, strict=True))


def test_second_derivatives(way):
    loss = lambda *xs: pb.sum(ours(*xs, **way) * BAR)  # noqa: E731
    gradient = pb.grad(loss, argnums=ALL)
    dot = lambda xs, ys: sum(pb.sum(x * y) for x, y in zip(xs, ys, strict=True))  # noqa: E731
    along = pb.grad(lambda *xs: dot(gradient(*xs), MOVED), argnums=ALL)
    step = 1e-3
    curved = [np.sum(BAR * complex_step(plain, [x + s * m for x, m in zip(ARGS, MOVED, strict=True)], MOVED))
              for s in (-step, step, -2 * step, 2 * step)]  # fmt: skip
    wanted = (8 * (curved[1] - curved[0]) - (curved[3] - curved[2])) / (12 * step)
    for take in (along, pb.jit(along), lambda *xs: pb.jvp(gradient, xs, MOVED)[1]):
        assert np.isclose(sum(np.sum(g * m) for g, m in zip(take(*ARGS), MOVED, strict=True)), wanted, rtol=1e-7)


def test_vmap_is_a_loop(way):
    f = lambda q, slope: ours(q, K, V, slope, TABLE, **way)  # noqa: E731
    many = np.stack([Q, 2 * Q, -Q]), np.stack([SLOPE, -SLOPE, 0 * SLOPE])
    assert np.allclose(pb.vmap(f)(*many), np.stack([f(*one) for one in zip(*many, strict=True)]), atol=1e-14)
    slopes = pb.vmap(pb.grad(lambda q, slope: pb.sum(f(q, slope) * BAR), argnums=1))(*many)
    singles = [pb.grad(lambda q, slope: pb.sum(f(q, slope) * BAR), argnums=1)(*one) for one in zip(*many, strict=True)]
    assert np.allclose(slopes, np.stack(singles), atol=1e-12)


def test_what_the_functions_are_given():
    seen = []

    def change(score, b, h, i, j):
        seen.append([pb.spec_of(x).shape for x in (score, b, h, i, j)])
        return pb.where(j == i, 0.0, pb.where((b == 1) & (h == 0), score, -np.inf))

    q, k = RNG.normal(size=(2, 2, 2, 3, 4))
    v = np.broadcast_to(np.eye(3), (2, 2, 3, 3))
    out = pb.nn.flex_attention(q, k, v, change)
    assert seen == [[()] * 5]
    scores = np.where(np.eye(3), 0.0, q[1, 0] @ k[1, 0].T / 2)
    wanted = np.broadcast_to(np.eye(3), (2, 2, 3, 3)).copy()
    wanted[1, 0] = np.exp(scores) / np.exp(scores).sum(axis=-1, keepdims=True)
    assert np.allclose(out, wanted)


@pytest.mark.parametrize("mask_shape", [(None, None), (2, 4)])
def test_a_mask_by_batch_and_head(mask_shape):
    lengths = pb.tensor([3, 11])
    mask = lambda b, h, i, j: (j < pb.take(lengths, b)) | ((h == 1) & (i == j))  # noqa: E731
    blocks = pb.nn.create_block_mask(mask, 2, 4, T, S, 4)
    allowed = (np.array([3, 11])[:, None, None, None] > COLUMNS) | (
        np.eye(T, S, dtype=bool) & (np.arange(4) == 1)[:, None, None]
    )
    assert blocks.visited.all(axis=0).tolist() == [True, True, True]
    assert np.allclose(ours(*ARGS, block_mask=blocks), plain(*ARGS, allowed=allowed), atol=1e-14)
    assert np.allclose(ours(*ARGS, mask_mod=mask), plain(*ARGS, allowed=allowed), atol=1e-14)


def test_blocks_that_are_masked_are_not_computed():
    n = 64
    far = pb.nn.create_block_mask(lambda b, h, i, j: (i // 8 == j // 8) | (j < 8), None, None, n, n, 8)
    assert far.sparsity() == 100 * (1 - 15 / 64)
    assert np.array_equal(far.full, far.visited)
    q = RNG.normal(size=(1, 1, n, 2))
    program = pb.stage(lambda q: pb.nn.flex_attention(q, q, q, block_mask=far))(q)
    products = [e.results[0].spec.shape[-2:] for e in program.equations if e.op.name == "matmul"]
    assert products[::2] == [(8, 8), *[(8, 16)] * 7]
    assert "where" not in {e.op.name for e in program.equations if e.results[0].spec.shape[-1:] == (16,)}, "all full"


def test_blocks_join_to_bands_where_little_is_masked():
    causal = lambda b, h, i, j: i >= j  # noqa: E731
    blocks = pb.nn.create_block_mask(causal, None, None, 100, 100, 10)
    q, k, v = RNG.normal(size=(3, 1, 2, 100, 4))
    wanted = pb.nn.scaled_dot_product_attention(q, k, v, is_causal=True)
    assert np.allclose(pb.nn.flex_attention(q, k, v, block_mask=blocks), wanted, atol=1e-14)
    assert np.allclose(pb.nn.flex_attention(q, k, v, mask_mod=causal, block_size=7), wanted, atol=1e-14)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_dtypes(dtype):
    q, k, v = (x.astype(getattr(pb, dtype)) for x in (Q, K, V))
    wanted = plain(*(x.astype(np.float64) for x in (q, k, v)), SLOPE, TABLE)
    tolerance = {"float32": 1e-5, "float16": 4e-3, "bfloat16": 4e-2}[dtype]
    for f in (ours, pb.jit(lambda *xs: ours(*xs, mask_mod=window))):
        out = f(q, k, v, SLOPE, TABLE, **({"mask_mod": window} if f is ours else {}))
        assert out.dtype == q.dtype
        assert np.allclose(out.astype(np.float64), wanted, atol=tolerance)
    bars = pb.grad(lambda *xs: pb.sum(ours(*xs, mask_mod=window).astype(np.float32)), argnums=ALL)(
        q, k, v, SLOPE, TABLE
    )
    assert [b.dtype for b in bars] == [q.dtype] * 3 + [np.dtype(float)] * 2
    exact = pb.grad(lambda *xs: pb.sum(ours(*xs, mask_mod=window)), argnums=ALL)(*ARGS)
    scale = {"float32": 1e-4, "float16": 3e-2, "bfloat16": 3e-1}[dtype]
    assert all(np.allclose(b.astype(float), x, atol=scale) for b, x in zip(bars, exact, strict=True))


@pytest.mark.parametrize(("T", "S"), [(0, 3), (3, 0), (1, 1), (0, 0)])
def test_sizes_at_the_edge(T, S):
    q, k, v = (RNG.normal(size=(2, 2, n, 3)) for n in (T, S, S))
    blocks = pb.nn.create_block_mask(lambda b, h, i, j: i >= j, None, None, T, S, 2)
    out = pb.nn.flex_attention(q, k, v, lambda s, *where: s * 2, blocks)
    assert np.allclose(out, v if S == 1 else np.zeros((2, 2, T, 3)))


def test_nothing_allowed_anywhere():
    blocks = pb.nn.create_block_mask(lambda b, h, i, j: i < 0, None, None, T, S, 3)
    assert blocks.sparsity() == 100
    tensors = [pb.tensor(x, requires_grad=True) for x in ARGS]
    out = ours(*tensors, block_mask=blocks)
    pb.sum(out * BAR).backward()
    assert not np.any(out.detach().numpy())
    assert not any(np.any(x.grad) for x in tensors)


def test_memory_is_linear_in_the_length():
    tracked = functools.partial(pb.tensor, requires_grad=True)

    def peak(length, make=tracked, **options):
        q, k, v = (make(RNG.normal(size=(1, 1, length, 8))) for _ in range(3))
        slope = pb.tensor(0.1, requires_grad=True)
        tracemalloc.start()
        pb.sum(pb.nn.flex_attention(q, k, v, lambda s, b, h, i, j: s + slope * (j - i), **options)).backward()
        most = tracemalloc.get_traced_memory()[1]
        tracemalloc.stop()
        assert slope.grad is not None
        return most

    def second(length, **options):
        peak(length, **options)  # imports and compiles
        return peak(length, **options)

    for make in (tracked, np.array):
        assert second(512, block_size=32, make=make) < 2.3 * second(256, block_size=32, make=make)
    assert second(512) > 3.3 * second(256)


def test_a_compiled_function_sees_another_mask_and_another_table():
    blocks, table = BLOCKS, pb.tensor(TABLE)
    f = pb.jit(lambda q: ours(q, K, V, SLOPE, table, block_mask=blocks))
    assert np.allclose(f(Q), plain(*ARGS))
    blocks = pb.nn.create_block_mask(lambda b, h, i, j: i >= j, None, None, T, S, 4)
    table = pb.tensor(-TABLE)
    assert np.allclose(f(Q), plain(Q, K, V, SLOPE, -TABLE, allowed=ROWS >= COLUMNS))


def test_under_autocast():
    with pb.autocast(dtype=pb.bfloat16):
        out = ours(*(x.astype(np.float32) for x in (Q, K, V)), SLOPE, TABLE, mask_mod=window)
    assert out.dtype == pb.bfloat16
    assert np.allclose(out.astype(float), plain(*ARGS), atol=4e-2)


def test_mistakes():
    flex = pb.nn.flex_attention
    with pytest.raises(ShapeError, match=r"axes \(batch, heads, length, width\)"):
        flex(Q[0], K[0], V[0])
    with pytest.raises(ShapeError, match="4 heads of q cannot share 3"):
        flex(Q, K[:, [0, 0, 0]], V[:, [0, 0, 0]])
    with pytest.raises(ShapeError, match="one score to one score"):
        flex(Q, K, V, lambda s, b, h, i, j: pb.stack([s, s]))
    with pytest.raises(DtypeError, match=r"wanted floating-point scores.\n.*is mask_mod="):
        flex(Q, K, V, lambda s, b, h, i, j: i >= j)
    with pytest.raises(ArgumentTypeError, match="score_mod returned a NoneType, wanted one value"):
        flex(Q, K, V, lambda s, b, h, i, j: None)
    with pytest.raises(DtypeError, match="one boolean for each"):
        flex(Q, K, V, mask_mod=lambda b, h, i, j: i - j)
    with pytest.raises(
        ShapeError, match=r"block mask is for .* = \(1, 1, 10, 12\), the arguments have \(2, 4, 9, 12\)"
    ):
        flex(Q[:, :, :9], K, V, block_mask=BLOCKS)
    with pytest.raises(ArgumentError, match="give no other"):
        flex(Q, K, V, block_mask=BLOCKS, block_size=3)
    with pytest.raises(ArgumentError, match="what create_block_mask returns"):
        flex(Q, K, V, block_mask=ALLOWED)
    with pytest.raises(ArgumentTypeError, match="wants a function"):
        flex(Q, K, V, ALLOWED)
    with pytest.raises(ConversionError, match="not known here"):
        pb.jit(lambda n: pb.nn.create_block_mask(lambda b, h, i, j: j < n, None, None, T, S).full)(np.array(3))
