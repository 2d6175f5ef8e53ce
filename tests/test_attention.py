"""Attention against its formula in plain NumPy, in bands and whole, in every mode; and places in a sequence."""

import math
import tracemalloc

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, DtypeError, ShapeError
from pullback.nn.attention import dot_product

attention = pb.nn.scaled_dot_product_attention
RNG = np.random.default_rng(0)


def plain(q, k, v, mask=None, is_causal=False, scale=None):
    """Row by row, as the formula says it."""
    lead = np.broadcast_shapes(q.shape[:-2], k.shape[:-2], v.shape[:-2])
    q, k, v = (np.broadcast_to(x, (*lead, *x.shape[-2:])) for x in (q, k, v))
    T, S = q.shape[-2], k.shape[-2]
    allowed, added = np.ones((*lead, T, S), bool), np.zeros((*lead, T, S))
    if mask is not None:
        allowed, added = (allowed & mask, added) if mask.dtype == bool else (allowed, added + mask)
    out = np.zeros((*lead, T, v.shape[-1]))
    for at in np.ndindex(*lead, T):
        seen = [j for j in range(S) if allowed[at][j] and (j <= at[-1] or not is_causal) and added[at][j] > -np.inf]
        if seen:
            scores = k[at[:-1]][seen] @ q[at] * (q.shape[-1] ** -0.5 if scale is None else scale) + added[at][seen]
            share = np.exp(scores - scores.max())
            out[at] = share @ v[at[:-1]][seen] / share.sum()
    return out


def inputs(*lead, T=5, S=5, d=4, e=3, dtype=float):
    return tuple(RNG.normal(size=(*lead, n, w)).astype(dtype) for n, w in ((T, d), (S, d), (S, e)))


BOOL = RNG.random((5, 5)) < 0.6
BOOL[2] = False
BIAS = RNG.normal(size=(2, 5, 5))
LOWEST = np.where(BOOL, 0.5, -np.inf)
CASES = {
    "plain": ((), {}),
    "causal": ((2,), {"is_causal": True}),
    "mask": ((2,), {"mask": BOOL}),
    "mask and causal": ((), {"mask": BOOL, "is_causal": True}),
    "a mask of keys": ((), {"mask": np.array([True, False, True, True, False])}),
    "a mask of queries": ((), {"mask": np.array([True, False, True, True, False])[:, None]}),
    "bias": ((3, 2), {"mask": BIAS}),
    "bias of minus infinity": ((), {"mask": LOWEST}),
    "bias of keys": ((2,), {"mask": BIAS[:, :1], "is_causal": True}),
    "bias of queries": ((2,), {"mask": BIAS[..., :1]}),
    "one bias": ((2,), {"mask": np.array(0.5)}),
    "scale": ((), {"scale": 0.3}),
}


@pytest.mark.parametrize("block", [None, 1, 2, 5, 100])
@pytest.mark.parametrize("case", CASES)
def test_values(case, block):
    lead, options = CASES[case]
    q, k, v = inputs(*lead)
    assert np.allclose(attention(q, k, v, **options, block_size=block), plain(q, k, v, **options), atol=1e-14)


@pytest.mark.parametrize("block", [None, 2])
def test_lengths_that_differ(block):
    for T, S in ((2, 5), (5, 2), (1, 4), (4, 1), (3, 7)):
        q, k, v = inputs(2, T=T, S=S)
        for causal in (False, True):
            found = attention(q, k, v, is_causal=causal, block_size=block)
            assert np.allclose(found, plain(q, k, v, is_causal=causal), atol=1e-14)


def test_long_causal_attention_goes_in_bands(monkeypatch):
    q, k, v, bar = (np.random.default_rng(i).normal(size=(2, n, 3)) for i, n in enumerate((11, 9, 9, 11)))
    monkeypatch.setattr(dot_product, "_MIN_BANDED_LENGTH", 11)
    f = lambda q, k, v: attention(q, k, v, is_causal=True)  # noqa: E731
    assert np.allclose(f(q, k, v), plain(q, k, v, is_causal=True), atol=1e-14)
    in_blocks = lambda q, k, v: attention(q, k, v, is_causal=True, block_size=2)  # noqa: E731
    for found, wanted in zip(pb.vjp(f, q, k, v)[1](bar), pb.vjp(in_blocks, q, k, v)[1](bar), strict=True):
        assert np.allclose(found, wanted, atol=1e-14)
    # of four bands, each product meets the keys up to the band's last query: 3, 6, 9 of them, and 9 of 9
    sizes = [e.results[0].spec.shape[-1] for e in pb.stage(f)(q, k, v).equations if e.op.name == "matmul"]
    assert sizes[::2] == [3, 6, 9, 9]


@pytest.mark.parametrize("block", [None, 2])
def test_axes_that_broadcast(block):
    q, _, _ = inputs(2, 3)
    _, k, _ = inputs(3)
    _, _, v = inputs(2, 1)
    assert np.allclose(attention(q, k, v, block_size=block), plain(q, k, v))
    whole = pb.grad(lambda *xs: pb.sum(attention(*xs) ** 2), argnums=(0, 1, 2))(q, k, v)
    banded = pb.grad(lambda *xs: pb.sum(attention(*xs, block_size=2) ** 2), argnums=(0, 1, 2))(q, k, v)
    for a, b, x in zip(whole, banded, (q, k, v), strict=True):
        assert a.shape == b.shape == x.shape
        assert np.allclose(a, b, atol=1e-13)


@pytest.mark.parametrize("T", [0, 3])
def test_no_keys_and_no_queries(T):
    q, k, v = inputs(2, T=T, S=0)
    for block in (None, 2):
        assert np.array_equal(attention(q, k, v, block_size=block), np.zeros((2, T, 3)))
    q, k, v = inputs(2, T=0, S=4)
    assert attention(q, k, v, block_size=2).shape == (2, 0, 3)


@pytest.mark.parametrize("case", CASES)
def test_first_and_second_derivatives_of_bands(case):
    lead, options = CASES[case]
    q, k, v = inputs(*lead[-1:])
    options = dict(options)
    given = [q, k, v]
    bias = options.get("mask")
    if bias is not None and bias.dtype != bool and np.isfinite(bias).all():
        given.append(options.pop("mask"))
    c = RNG.normal(size=(*lead[-1:], 5, 3))

    def loss(block):
        def f(q, k, v, *mask):
            out = attention(q, k, v, *mask, **options, block_size=block)
            return pb.sum(c * out + 0.3 * out * out)

        return f

    numbers = tuple(range(len(given)))
    whole, banded = (pb.grad(loss(block), argnums=numbers)(*given) for block in (None, 2))
    for a, b in zip(whole, banded, strict=True):
        assert np.isfinite(a).all()
        assert np.allclose(a, b, atol=1e-12)
    along = tuple(RNG.normal(size=x.shape) for x in given)
    first, second = (pb.jvp(loss(block), tuple(given), along) for block in (None, 2))
    assert np.allclose(first, second, atol=1e-12)
    assert np.allclose(second[1], sum((g * t).sum() for g, t in zip(banded, along, strict=True)))

    def dotted(block):
        grads = pb.grad(loss(block), argnums=numbers)
        return lambda *xs: sum(pb.sum(g * t) for g, t in zip(grads(*xs), along, strict=True))

    expected = pb.jvp(pb.grad(loss(None), argnums=numbers), tuple(given), along)[1]
    for block in (None, 2):
        forward = pb.jvp(pb.grad(loss(block), argnums=numbers), tuple(given), along)[1]
        reverse = pb.grad(dotted(block), argnums=numbers)(*given)
        for x, y, z in zip(forward, reverse, expected, strict=True):
            assert np.allclose(x, y, atol=1e-10)
            assert np.allclose(x, z, atol=1e-10)


def test_differences_and_third_order():
    q, k, v = inputs(T=4, S=4, d=2, e=2)
    f = lambda q, k, v: attention(q, k, v, is_causal=True, block_size=3)  # noqa: E731
    assert pb.gradcheck(f, q, k, v)
    assert pb.gradgradcheck(f, q, k, v)
    along = RNG.normal(size=q.shape)
    third = lambda n: pb.jvp(  # noqa: E731
        pb.grad(lambda x: pb.jvp(lambda y: pb.sum(attention(y, k, v, block_size=n) ** 2), (x,), (along,))[1]),
        (q,),
        (along,),
    )[1]
    assert np.allclose(third(None), third(3), atol=1e-9)


@pytest.mark.parametrize("block", [None, 2])
def test_batches_and_programs(block):
    q, k, v = inputs(3, 2)
    f = lambda q, k, v: attention(q, k, v, is_causal=True, block_size=block)  # noqa: E731
    loop = np.stack([f(q[:, i], k[:, i], v[:, 0]) for i in range(2)])
    assert np.allclose(pb.vmap(f, in_axes=(1, 1, None))(q, k, v[:, 0]), loop)
    grads = lambda q, k, v: pb.grad(lambda *xs: pb.sum(f(*xs) ** 2), argnums=(0, 1, 2))(q, k, v)  # noqa: E731
    for a, b in zip(pb.jit(grads)(q, k, v), grads(q, k, v), strict=True):
        assert np.allclose(a, b, atol=1e-12)
    for a, b in zip(
        pb.vmap(grads)(q, k, v), zip(*(grads(*x) for x in zip(q, k, v, strict=True)), strict=True), strict=True
    ):
        assert np.allclose(a, np.stack(b), atol=1e-12)
    assert np.allclose(pb.jit(f)(q, k, v), f(q, k, v))
    hessian = pb.jit(pb.hessian(lambda q: pb.sum(f(q, k[0, 0], v[0, 0]) ** 2)))
    assert np.allclose(
        hessian(q[0, 0]), pb.hessian(lambda q: pb.sum(attention(q, k[0, 0], v[0, 0], is_causal=True) ** 2))(q[0, 0])
    )


def test_on_the_tape():
    arrays = inputs(2)
    grads = []
    for block in (None, 2):
        leaves = [pb.tensor(x, requires_grad=True) for x in arrays]
        pb.sum(attention(*leaves, block_size=block) ** 2).backward()
        grads.append([x.grad.numpy() for x in leaves])
    for a, b in zip(*grads, strict=True):
        assert np.allclose(a, b)


@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize("dtype", ["float16", "bfloat16", "float32"])
def test_narrow_dtypes_stay(dtype, block):
    dtype = pb.bfloat16 if dtype == "bfloat16" else dtype
    q, k, v = inputs(2, dtype=np.float32)
    narrow = [x.astype(dtype) for x in (q, k, v)]
    out = attention(*narrow, block_size=block, is_causal=True)
    assert out.dtype == dtype
    assert np.allclose(out.astype(float), plain(*(x.astype(float) for x in narrow), is_causal=True), atol=0.05)
    grads = pb.grad(lambda *xs: pb.sum(attention(*xs, block_size=block)), argnums=(0, 1, 2))(*narrow)
    assert [g.dtype for g in grads] == [x.dtype for x in narrow]


@pytest.mark.parametrize("block", [None, 2])
def test_heads_in_groups(block):
    q, _, _ = inputs(2, 6)
    _, k, v = inputs(2, 3)
    every = [np.repeat(x, 2, axis=1) for x in (k, v)]
    bias = RNG.normal(size=(6, 5, 5))
    for options in ({}, {"mask": BOOL}, {"mask": bias}, {"mask": bias[None, :1]}, {"is_causal": True}):
        assert np.allclose(attention(q, k, v, **options, block_size=block), plain(q, *every, **options))
    _, one_k, one_v = inputs(2, 1)
    assert np.allclose(attention(q, one_k, one_v, block_size=block), plain(q, one_k, one_v))
    g = pb.grad(lambda k: pb.sum(attention(q, k, v, block_size=block) ** 2))(k)
    wide = pb.grad(lambda k: pb.sum(attention(q, k, every[1]) ** 2))(every[0])
    assert np.allclose(g, wide.reshape(2, 3, 2, 5, 4).sum(2))


def test_rows_that_may_see_nothing_are_zero_and_have_no_gradient():
    q, k, v = inputs()
    for mask in (BOOL, LOWEST):
        for block in (None, 2):
            out = attention(q, k, v, mask, block_size=block)
            assert not out[2].any()
            g = pb.grad(lambda q, m=mask, b=block: pb.sum(attention(q, k, v, m, block_size=b) ** 2))(q)
            assert not g[2].any()
            assert np.isfinite(g).all()


@pytest.mark.parametrize("block", [None, 2])
def test_dropout(block):
    q, k, v = inputs(2, T=6, S=20)
    key = pb.random.key(3)
    f = lambda q, **o: attention(q, k, v, dropout=0.5, block_size=block, **o)  # noqa: E731
    assert np.array_equal(f(q, key=key), f(q, key=key))
    assert not np.array_equal(f(q, key=key), f(q, key=pb.random.key(4)))
    pb.random.seed(1)
    first = f(q)
    assert not np.array_equal(first, f(q))
    mean = np.mean([f(q, key=pb.random.key(i)) for i in range(400)], axis=0)
    assert np.abs(mean - plain(q, k, v)).max() < 0.15
    assert pb.gradcheck(lambda q: f(q, key=key), q)
    batch = np.stack([q, q + 1])
    assert np.allclose(pb.vmap(lambda q: f(q, key=key))(batch), np.stack([f(x, key=key) for x in batch]))


def peak(T, block):
    """All that is allocated at once, inside of ops and rules too."""
    leaves = [pb.tensor(x, requires_grad=True) for x in inputs(1, T=T, S=T, d=8, e=8, dtype=np.float32)]
    tracemalloc.start()
    pb.sum(attention(*leaves, is_causal=True, block_size=block)).backward()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def test_memory_grows_with_the_length_in_bands_and_with_its_square_without():
    short, long = peak(512, 32), peak(2048, 32)
    assert long < 5 * short
    peak(255, None)  # compiles
    assert peak(1020, None) > 12 * peak(255, None)  # longer ones go in bands
    with pb.native(False):  # native code holds fewer squares of the length
        assert long < peak(2048, None) / 10


def test_second_derivatives_hold_no_square_of_the_length():
    def peak_of_second(T):
        q, k, v = inputs(1, T=T, S=T, d=8, e=8, dtype=np.float32)
        slope = pb.grad(lambda q: pb.sum(attention(q, k, v, block_size=32) ** 2))
        tracemalloc.start()
        pb.grad(lambda q: pb.sum(slope(q) * k))(q)
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    peak_of_second(256)
    assert peak_of_second(1024) < 2.5 * peak_of_second(512)


def test_compiled_bands_take_memory_by_the_length():
    def work(T):
        q, k, v = inputs(1, T=T, S=T, d=8, e=8, dtype=np.float32)
        step = pb.jit(pb.grad(lambda *xs: pb.sum(attention(*xs, block_size=64)), argnums=(0, 1, 2)))
        return step.lower(q, k, v).memory()

    assert work(1024).arena < 3 * work(512).arena


def test_long_sequences_go_in_bands_by_themselves(monkeypatch):
    seen = []
    monkeypatch.setattr(
        "pullback.nn.attention.dot_product.apply", lambda op, *xs, rows, **static: seen.append(rows) or xs[0]
    )
    q = np.zeros((8, 2048, 2), np.float32)
    attention(q, q, q)
    assert seen == [128]
    attention(q[:1], q[:1], q[:1])
    assert seen == [128]


def test_multi_head_attention():
    x, y = RNG.normal(size=(2, 5, 12)), RNG.normal(size=(2, 7, 12))
    heads = lambda a, n: a.reshape(2, -1, n, a.shape[-1] // n).swapaxes(1, 2)  # noqa: E731
    expected = plain(heads(x, 3), heads(y, 3), heads(y, 3)).swapaxes(1, 2).reshape(2, 5, 12)
    assert np.allclose(pb.nn.multi_head_attention(x, y, y, heads=3), expected)
    z = RNG.normal(size=(2, 7, 4))
    assert pb.nn.multi_head_attention(x, z, z, 3, kv_heads=1, block_size=2).shape == (2, 5, 12)
    with pytest.raises(ShapeError, match="5 heads"):
        pb.nn.multi_head_attention(x, y, y, heads=5)


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"q": np.ones(3)}, DtypeError, "q holds floats"),
        ({"q": np.ones((5, 4), int)}, DtypeError, "int64"),
        ({"k": np.ones((5, 3))}, ShapeError, "width"),
        ({"v": np.ones((4, 3))}, ShapeError, "length"),
        ({"mask": np.ones((4, 5), bool)}, ShapeError, "mask"),
        ({"mask": np.ones((5, 5), int)}, DtypeError, "booleans or floats"),
        ({"dropout": 1.0}, ArgumentError, "dropout"),
        ({"block_size": 0}, ArgumentError, "block_size"),
        ({"block_size": 1.5}, DtypeError, "block_size"),
        ({"q": np.ones((3, 5, 4)), "k": np.ones((2, 5, 4)), "v": np.ones((2, 5, 3))}, ShapeError, "heads"),
    ],
)
def test_mistakes_are_said(change, error, said):
    given = dict(zip("qkv", inputs(), strict=True)) | change
    with pytest.raises(error, match=said):
        attention(given.pop("q"), given.pop("k"), given.pop("v"), **given)


@pytest.mark.parametrize("pairing", ["halves", "interleaved"])
def test_rotary_embedding(pairing):
    x = RNG.normal(size=(2, 6, 8))
    out = pb.nn.rotary_embedding(x, pairing=pairing)
    for t in range(6):
        for i in range(4):
            a, b = (i, i + 4) if pairing == "halves" else (2 * i, 2 * i + 1)
            turned = (x[:, t, a] + 1j * x[:, t, b]) * np.exp(1j * t * 10000.0 ** (-2 * i / 8))
            assert np.allclose(out[:, t, a], turned.real)
            assert np.allclose(out[:, t, b], turned.imag)
    q, k = RNG.normal(size=(2, 1, 8))
    at = lambda x, t: pb.nn.rotary_embedding(x, np.array([t]), pairing=pairing)  # noqa: E731
    assert np.allclose(at(q, 3) @ at(k, 7).T, at(q, 10) @ at(k, 14).T)
    assert pb.gradcheck(lambda x: pb.nn.rotary_embedding(x, pairing=pairing), x)
    assert pb.nn.rotary_embedding(x.astype(np.float32), pairing=pairing).dtype == np.float32
    places = np.array([[0, 1, 2, 3, 4, 5], [5, 4, 3, 2, 1, 0]])
    assert np.allclose(pb.nn.rotary_embedding(x, places, pairing=pairing)[0], out[0])
    assert np.allclose(pb.jit(lambda x: pb.nn.rotary_embedding(x, pairing=pairing))(x), out)
    with pytest.raises(ShapeError, match="even"):
        pb.nn.rotary_embedding(np.ones((2, 3)))
    with pytest.raises(ArgumentError, match="pairing"):
        pb.nn.rotary_embedding(x, pairing="thirds")


def test_alibi():
    bias = pb.nn.alibi_bias(8, 4, 6)
    assert bias.shape == (8, 4, 6)
    assert np.allclose(-bias[:, 0, 1], [2.0**-i for i in range(1, 9)])
    assert np.allclose(bias[2], -(2.0**-3) * np.abs(np.arange(4)[:, None] - np.arange(6)))
    slopes = -pb.nn.alibi_bias(12, 2)[:, 0, 1]
    assert np.allclose(slopes, [*(2.0**-i for i in range(1, 9)), *(2.0 ** -(i / 2) for i in (1, 3, 5, 7))])
    with pytest.raises(ArgumentError):
        pb.nn.alibi_bias(0, 3)


def test_sinusoidal_positions():
    table = pb.nn.sinusoidal_positions(50, 6, dtype=np.float64)
    for t in (0, 1, 49):
        for i in range(3):
            angle = t / 10000 ** (2 * i / 6)
            assert np.allclose(table[t, 2 * i : 2 * i + 2], [math.sin(angle), math.cos(angle)])
    with pytest.raises(ArgumentError):
        pb.nn.sinusoidal_positions(3, 5)
