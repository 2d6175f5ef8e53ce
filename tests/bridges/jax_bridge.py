"""The bridge to JAX, run in a process of its own by tests/test_bridges.py: its threads and settings stay there."""

import pickle

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, DtypeError, PullbackError

wrap, as_op = pb.interop.jax.wrap, pb.interop.jax.as_op


@pytest.fixture(scope="module")
def jax():
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax


def ours(w, x):
    return pb.sum(pb.tanh(x @ w["a"]) ** 3, axis=1), pb.argmax(x)


@pytest.fixture(scope="module")
def data(jax):
    rng = np.random.default_rng(0)
    return jax.numpy.asarray(rng.normal(size=(3, 2))), jax.numpy.asarray(rng.normal(size=(5, 3)))


def transforms(jax, a, x):
    both = jax.numpy.stack([a, 2 * a])

    def total(f):
        return lambda a, x: f(a, x).sum()

    return {
        "value": lambda f: f(a, x),
        "grad": lambda f: jax.grad(total(f), (0, 1))(a, x),
        "jit of grad": lambda f: jax.jit(jax.grad(total(f), (0, 1)))(a, x),
        "grad of grad": lambda f: jax.grad(lambda a: (jax.grad(total(f))(a, x) ** 2).sum())(a),
        "third": lambda f: jax.jacrev(jax.grad(lambda a: (jax.grad(total(f))(a, x) ** 2).sum()))(a),
        "vmap": lambda f: jax.vmap(f, (None, 0))(a, x[:, None]),
        "vmap of vmap": lambda f: jax.vmap(jax.vmap(lambda a, x: f(a, x[None]), (0, None)), (None, 0))(both, x),
        "vmap the other way": lambda f: jax.vmap(jax.vmap(lambda a, x: f(a, x[None]), (None, 0)), (0, None))(both, x),
        "one element": lambda f: jax.vmap(f)(a[None], x[None]),
        "jit of vmap of grad": lambda f: jax.jit(jax.vmap(jax.grad(total(f)), (None, 0)))(a, x[:, None]),
        "scan": lambda f: jax.lax.scan(lambda c, x: (c + f(a, x[None]).sum(), c), 0.0, x),
    }


@pytest.mark.parametrize("name", transforms(np_like := type("", (), {"numpy": np}), np.ones(1), 1))
def test_wrapped_functions_under_transforms_of_theirs(jax, data, name):
    f, transform = wrap(ours), transforms(jax, *data)[name]
    found = transform(lambda a, x: f({"a": a}, x)[0])
    wanted = transform(lambda a, x: (jax.numpy.tanh(x @ a) ** 3).sum(1))
    for p, q in zip(jax.tree.leaves(found), jax.tree.leaves(wanted), strict=True):
        assert p.dtype == q.dtype
        assert np.allclose(p, q, rtol=1e-9, atol=1e-12)


def test_integers_trees_and_settings(jax):
    def f(tree, k, *, mode):
        return {"y": tree[0] * 3 + tree[1]["b"][k], "n": k + len(mode)}

    g = wrap(f)
    out = g([2.0, {"b": np.arange(3.0)}], jax.numpy.asarray(1), mode="sum")
    assert (float(out["y"]), int(out["n"])) == (7.0, 4)
    tree = [jax.numpy.asarray(2.0), {"b": jax.numpy.arange(3.0)}]
    bars = jax.grad(lambda t: g(t, jax.numpy.asarray(1), mode="sum")["y"])(tree)
    assert (float(bars[0]), bars[1]["b"].tolist()) == (3.0, [0.0, 1.0, 0.0])


def test_what_a_function_reads_may_change(jax):
    factors, x = np.ones(3), jax.numpy.ones(3)
    g = jax.jit(jax.grad(lambda x: jax.grad(wrap(lambda x: pb.sum(x * x * factors)))(x).sum()))
    assert g(x).tolist() == [2, 2, 2]
    factors[:] = 10
    assert g(x).tolist() == [20, 20, 20]


def test_long_arrays_and_dtypes(jax):
    x = jax.numpy.ones(300_000, "float32")
    g = jax.jit(jax.grad(wrap(lambda x: pb.sum(pb.sin(x)))))(x)
    assert g.dtype == np.float32
    assert np.allclose(g, np.cos(1.0), rtol=1e-6)
    for name in ("float16", "bfloat16", "int8", "uint32", "bool"):
        x = jax.numpy.asarray([0, 1, 1]).astype(name)
        same, wide = wrap(lambda x: (x, pb.astype(x, "float32")))(x)
        assert (same.dtype, wide.dtype) == (x.dtype, np.float32)
        assert np.array_equal(same, x)
        assert np.array_equal(as_op(lambda x: x.astype("float32"))(np.asarray(x)), [0.0, 1.0, 1.0])


def test_calls_without_a_bridge_say_which(jax):
    for transform in (jax.grad, jax.jit, jax.vmap):
        with pytest.raises(pb.errors.ConversionError, match=r"pb.interop.jax.wrap\(f\)"):
            transform(lambda x: pb.sum(pb.sin(x)))(jax.numpy.ones(3))


def test_errors_at_the_border(jax):
    with pytest.raises(TypeError, match="forward-mode"):
        jax.jvp(wrap(pb.sin), (1.0,), (1.0,))
    with pytest.raises(DtypeError, match="complex"):
        wrap(pb.abs)(jax.numpy.ones(2, "complex64"))
    with pytest.raises(PullbackError):
        wrap(lambda x: x if float(x) > 0 else -x)(1.0)
    with pytest.raises(DtypeError, match="key_data"):
        wrap(lambda k: k)(jax.random.key(0))
    with pytest.raises(ArgumentError, match="no argument is an array of JAX"):
        wrap(pb.sin)("text")
    with pytest.raises(ArgumentError, match="results are trees of arrays"):
        as_op(lambda x: "text", jit=False)(np.ones(2))
    with jax.enable_x64(False):
        with pytest.raises(DtypeError, match="64 bits"):
            as_op(jax.numpy.sin)(np.ones(2))
        assert as_op(jax.numpy.sin)(np.ones(2, np.float32)).dtype == np.float32
        assert as_op(lambda x, s: x * s)(np.ones(2, np.float32), 2.0).dtype == np.float32
        assert wrap(lambda x: pb.astype(x, "float64"))(jax.numpy.ones(2)).dtype == np.float32


def compositions():
    return {
        "value": lambda f: f,
        "grad": pb.grad,
        "grad of grad": lambda f: pb.grad(lambda x: pb.sum(pb.grad(f)(x) ** 2)),
        "hessian": pb.hessian,
        "jvp": lambda f: lambda x: pb.jvp(f, (x,), (x,))[1],
        "grad of jvp": lambda f: pb.grad(lambda x: pb.jvp(f, (x,), (x,))[1]),
        "jit of hessian": lambda f: pb.jit(pb.hessian(f)),
        "vmap of grad": lambda f: lambda x: pb.vmap(pb.grad(f))(np.stack([x, 2 * x])),
        "checkpoint": lambda f: pb.grad(pb.checkpoint(f)),
    }


@pytest.mark.parametrize(("name", "jit"), [*((name, True) for name in compositions()), ("vmap of grad", False)])
def test_ops_of_theirs_under_every_transform(jax, name, jit):
    op = as_op(lambda x: {"y": jax.numpy.sin(x) ** 2 * x, "k": jax.numpy.argmax(x)}, jit=jit)
    transform, x = compositions()[name], np.linspace(0.1, 1, 4)
    found = transform(lambda x: pb.sum(op(x)["y"] ** 2))(x)
    assert np.allclose(found, transform(lambda x: pb.sum((pb.sin(x) ** 2 * x) ** 2))(x), rtol=1e-10)


@pytest.mark.parametrize("name", ["value", "grad", "grad of grad", "vmap of grad"])
def test_there_and_back(jax, name):
    def plain(x):
        return pb.sum(pb.sin(x) ** 2 * x)

    transform, x = compositions()[name], np.linspace(0.1, 1, 4)
    assert np.allclose(transform(as_op(wrap(plain)))(x), transform(plain)(x), rtol=1e-10)


def test_results_share_memory_and_are_read_only(jax):
    found = as_op(jax.numpy.sin)(np.ones(100))
    assert not found.flags.writeable
    t = pb.tensor(np.ones(3), requires_grad=True)
    pb.sum(as_op(jax.numpy.exp)(t) ** 2).backward()
    assert np.allclose(t.grad.numpy(), 2 * np.exp(2))


@pytest.mark.parametrize("jit", [True, False])
def test_ops_of_theirs_on_the_other_byte_order(jax, jit):
    x = np.array([0.5, 2.0], np.float32)
    assert np.allclose(as_op(jax.numpy.sin, jit=jit)(x.astype(">f4")), np.sin(x))


def squares(x):
    return x * x


def test_both_ways_are_pickled_as_the_call_that_made_them(jax):
    x = np.array([0.5, 2.0])
    for f in pickle.loads(pickle.dumps([wrap(squares), as_op(squares)])):
        assert np.allclose(f(x), x**2)
