"""Compiled functions on tensors as they are: one native call, one node, and everything that may come between."""

import numpy as np
import pytest
from direct_layer import B, W, X, close, gradients_by_hand, layer, leaf

import pullback as pb
from pullback.arrays.tensor import Tensor
from pullback.compile.as_op import CompiledOp
from pullback.compile.jit import Jitted
from pullback.compile.specialization import Specialization

pytest.importorskip("llvmlite")
pytestmark = pytest.mark.usefixtures("quick_code")


@pytest.fixture
def general(monkeypatch):
    """The calls that took the general path."""
    seen = []
    for owner, name in ((Jitted, "_call"), (Specialization, "run"), (CompiledOp, "apply")):
        original = getattr(owner, name)

        def noted(self, *args, original=original, name=name):
            seen.append(name)
            return original(self, *args)

        monkeypatch.setattr(owner, name, noted)
    return seen


# What a call takes


def test_arrays_and_tensors_of_one_kind_share_a_form(general):
    f = pb.jit(layer)
    want = np.tanh(X @ W + B)
    first = f(X, W, B)
    general.clear()
    assert type(first) is type(f(X, W, B)) is np.ndarray
    mixed, whole = f(X, pb.tensor(W), B), f(*map(pb.tensor, (X, W, B)))
    recorded = f(X, leaf(W), pb.tensor(B))
    for found in (mixed, whole, recorded):
        assert type(found) is Tensor
        close(found, want)
    assert (mixed.node, whole.node) == (None, None)
    assert recorded.requires_grad
    assert recorded.spec is whole.spec is pb.tensor(want).spec  # plain, so that eager ops stay on their fast path
    assert general == []


def test_shapes_dtypes_and_kinds_are_noticed():
    f = pb.jit(lambda x, y: x * y)
    f(X, X)
    for x, y in (
        (pb.tensor(X[:2]), X[:2]), (leaf(X.astype("f")), pb.tensor(X)), (pb.tensor(X), 2.0), (leaf(X), np.float64(2.0)),
        (pb.tensor(X).T, leaf(X).T), (leaf(X)[:, ::2], X[:, ::2]), (pb.tensor(3), leaf(X)),
    ):  # fmt: skip
        bare = [np.asarray(v.detach().numpy() if isinstance(v, Tensor) else v) for v in (x, y)]
        found = f(x, y)
        close(found, bare[0] * bare[1], 1e-6)
        assert found.requires_grad == any(isinstance(v, Tensor) and v.requires_grad for v in (x, y))
    with pytest.raises(pb.errors.PullbackError):
        f(pb.tensor(X), pb.tensor(X[:3]))


def test_views_are_copied_and_their_gradients_come_back(general):
    f = pb.jit(layer)
    x, w, b = leaf(X.T.copy()), leaf(W.repeat(2, axis=1)), leaf(np.ones(1))
    for _ in range(2):
        x.grad = w.grad = b.grad = None
        out = f(x.T, w[:, ::2], pb.broadcast_to(b, (3,)) * B)
        pb.sum(out).backward()  # the cotangent of a sum is a view of one number
        gx, gw, gb = gradients_by_hand(np.ones((4, 3)))
        close(x.grad, gx.T)
        close(w.grad[:, ::2], gw)
        close(b.grad, [gb @ B])
    assert general == ["_call"]


def test_trees_of_tensors(general):
    f = pb.jit(lambda p, x: {"loss": pb.sum(layer(x, p["w"], p["b"])), "sizes": (x.shape[0], None)})
    params = {"w": leaf(W), "b": leaf(B)}
    for _ in range(3):
        out = f(params, X)
        assert out["sizes"] == (4, None)
        out["loss"].backward()
    _, gw, gb = gradients_by_hand(np.ones((4, 3)))
    close(params["w"].grad, 3 * gw)
    close(params["b"].grad, 3 * gb)
    assert general == ["_call"]


def test_closures_over_parameters(general):
    w, b = leaf(W), leaf(B)
    f = pb.jit(lambda x: layer(x, w, b))
    for _ in range(3):
        w.grad = b.grad = None
        f(X).backward(np.ones((4, 3)))
        close(w.grad, gradients_by_hand(np.ones((4, 3)))[1])
        close(b.grad, gradients_by_hand(np.ones((4, 3)))[2])
    with pb.no_grad():
        w -= 1.0  # rebound: read anew at each call
    close(f(X), np.tanh(X @ (W - 1) + B))
    assert general.count("_call") == 1


def test_one_tensor_given_twice():
    f = pb.jit(lambda x, y: pb.sum(x * pb.exp(y)))
    x = leaf(X)
    for n in (1, 2):
        f(x, x).backward()
        close(x.grad, n * np.exp(X) * (1 + X))


def test_several_tensors_of_zero_size_and_of_none():
    f = pb.jit(lambda x, y: (pb.sum(x) + pb.sum(y), x * 2.0, pb.sum(y) * 3.0))
    for a, b in ((np.ones((0, 3)), np.array(2.0)), (np.array(1.0), np.ones((2, 0)))):
        for _ in range(2):
            x, y = leaf(a), leaf(b)
            total, double, triple = f(x, y)
            assert double.shape == a.shape
            (total + triple).backward()
            close(x.grad, np.ones(a.shape))
            close(y.grad, np.full(b.shape, 4.0))


# Results


def kinds(x, w):
    h = x @ w
    return pb.exp(h), pb.argmax(h, axis=1), pb.floor(h), pb.sum(x), pb.stop_gradient(h) > 0


def test_results_of_all_kinds(general):
    f = pb.jit(kinds)
    x, w = pb.tensor(X), leaf(W)
    for _ in range(3):
        w.grad = None
        out = f(x, w)
        assert [o.requires_grad for o in out] == [True, False, False, False, False]
        for mine, theirs in zip(out, kinds(X, W), strict=True):
            close(mine, theirs)
            assert mine.dtype == theirs.dtype
        (pb.sum(out[0]) * 2.0).backward()
        close(w.grad, X.T @ (2 * np.exp(X @ W)))
    assert general == ["_call"]


def test_nothing_to_record_is_not_recorded():
    f = pb.jit(lambda x: pb.argmax(x, axis=1))
    for _ in range(2):
        assert not f(leaf(X)).requires_grad
    g = pb.jit(lambda x, n: (x * 2.0, n + 1))
    for _ in range(2):
        double, more = g(pb.tensor(X), pb.tensor(3))
        assert not double.requires_grad
        assert more.item() == 4


def test_a_result_that_is_saved_is_saved_once():
    f = pb.jit(lambda x: pb.exp(x))
    x = leaf(X)
    f(x)
    y = f(x)
    assert any(kept is y.value for kept in y.node.kept)


# Modes


def test_modes(general):
    f = pb.jit(layer)
    x, w, b = leaf(X), pb.tensor(W), B
    f(x, w, b)
    general.clear()
    with pb.no_grad():
        assert not f(x, w, b).requires_grad
        with pb.enable_grad():
            assert f(x, w, b).requires_grad
    with pb.inference_mode():
        made = f(x, w, b)
        assert made.is_inference
        assert not isinstance(f(X, W, B), Tensor)
    assert general == []
    product = pb.jit(lambda h, w: h @ w)
    assert not product(made, w.T).requires_grad
    for _ in range(2):
        with pytest.raises(pb.errors.GraphError, match="inference_mode"):
            product(made, leaf(W.T))
    with pb.inference_mode(), pb.set_grad_enabled(True):
        assert f(x, w, b).is_inference


def test_shared_memory_is_locked_while_a_graph_needs_it():
    f = pb.jit(layer)
    mine = X.copy()
    for _ in range(2):
        w = leaf(W)
        out = f(pb.asarray(mine, copy=False), w, B)
        with pytest.raises(ValueError, match="read-only"):
            mine[0] = 1.0
        out.backward(np.ones((4, 3)))
        close(w.grad, gradients_by_hand(np.ones((4, 3)))[1])
    del out
    mine[0] = 1.0


def test_bare_arrays_may_be_overwritten_after_the_call():
    f = pb.jit(layer)
    for _ in range(2):
        x, b, w = X.copy(), B.copy(), leaf(W)
        out = f(x, w, b)
        x[...], b[...] = np.nan, np.nan
        out.backward(np.ones((4, 3)))
        close(w.grad, gradients_by_hand(np.ones((4, 3)))[1])


def test_donated_tensors_are_never_overwritten():
    f = pb.jit(lambda x, y: (x + 1.0, y * 2.0), donate_argnums=0)
    x, y, bare = pb.tensor(X), pb.tensor(X), X.copy()
    for _ in range(2):
        more, double = f(x, y)
        close(x, X)
        close(more, X + 1)
        close(double, 2 * X)
        assert type(f(bare, y)[0]) is Tensor  # a tensor beside it: nothing is overwritten
        close(bare, X)
    assert f(bare, X)[0] is bare


def test_instruments_see_what_runs_and_what_is_saved():
    f = pb.jit(lambda x: pb.exp(pb.sin(x)))
    x = leaf(X)
    f(x)
    packed = []

    def pack(t):
        packed.append(t.shape)
        return t.numpy().copy()

    with pb.saved_tensors_hooks(pack, pb.tensor):
        y = pb.sum(f(x))
    assert packed
    y.backward()
    close(x.grad, np.exp(np.sin(X)) * np.cos(X))
    with pb.memory.profile() as profile:
        f(x)
    assert "jit" in str(profile)


def test_programs_being_traced_and_transforms_take_the_ops():
    f = pb.jit(lambda x: pb.sum(pb.sin(x)))
    x = leaf(X)
    f(x)
    close(pb.jit(lambda x: f(x) * 2.0)(X), 2 * np.sin(X).sum())
    close(pb.jvp(f, (X,), (X,))[1], np.sum(np.cos(X) * X))
    close(pb.vmap(f)(X), np.sin(X).sum(1))
    close(pb.jvp(lambda x: pb.grad(f)(x), (X,), (X,))[1], -np.sin(X) * X)
    close(pb.grad(lambda x: pb.sum(pb.vmap(f)(x) ** 2))(x), 2 * np.sin(X).sum(1, keepdims=True) * np.cos(X))


def test_a_checkpoint_around_a_compiled_function():
    f = pb.jit(lambda x: pb.exp(pb.sin(x)))
    x = leaf(X)
    f(x)
    pb.sum(pb.checkpoint(lambda x: f(f(x)))(x)).backward()
    inner = np.exp(np.sin(X))
    close(x.grad, np.exp(np.sin(inner)) * np.cos(inner) * inner * np.cos(X))


def test_both_paths_agree_to_the_last_bit():
    """A call with an instrument takes the general path, and gives the same numbers."""
    for function, args in ((layer, (X, W, B)), (lambda x: pb.softmax(x, axis=-1), (X,)), (kinds, (X, W))):
        f, found = pb.jit(function), []
        for general in (False, True):
            leaves = [leaf(a) for a in args]
            with pb.saved_tensors_hooks(lambda t: t, lambda t: t) if general else pb.enable_grad():
                outs = f(*leaves)
                outs = outs if isinstance(outs, tuple) else (outs,)
                outs[0].backward(np.cos(outs[0].detach().numpy()))
            found.append([x.detach().numpy().tobytes() for x in (*outs, *(t.grad for t in leaves))])
        assert found[0] == found[1]


# Programs that the entry does not run alone


def test_programs_in_pieces(general):
    f = pb.jit(lambda x: (pb.sum(pb.sort(pb.cos(x), axis=-1) * np.arange(5.0)), pb.argsort(x, axis=-1)))
    order = np.argsort(np.argsort(np.cos(X), axis=-1), axis=-1)
    for _ in range(3):
        x = leaf(X)
        total, at = f(x)
        total.backward()
        close(x.grad, -np.sin(X) * order)
        assert not at.requires_grad
        assert not f(pb.tensor(X))[0].requires_grad
    assert not f.last.code.is_one_piece
    assert general.count("run") == 0


def test_indices_out_of_range():
    f = pb.jit(lambda x, i: pb.sum(pb.take(x, i, axis=0)))
    good, bad = pb.tensor([0, 1]), pb.tensor([0, 9])
    for x in (X, pb.tensor(X), leaf(X)):
        f(x, good)
        with pytest.raises(pb.errors.IndexingError):
            f(x, bad)
        close(f(x, good), X[:2].sum())


def test_complex_numbers_and_half_precision():
    z = X + 1j * X[::-1]
    f = pb.jit(lambda z: z * pb.conj(z) * 2.0)
    for _ in range(2):
        x = leaf(z)
        out = f(x)
        close(out, 2 * z * z.conj())
        pb.sum(pb.real(out)).backward()
        assert x.grad.dtype == z.dtype
        want = leaf(z)
        pb.sum(pb.real(want * pb.conj(want) * 2.0)).backward()
        close(x.grad, want.grad.numpy())
    g = pb.jit(lambda x: pb.sum(x * x))
    half = leaf(X.astype("float16"))
    for _ in range(2):
        half.grad = None
        g(half).backward()
        close(half.grad, (2 * X).astype("float16"), 1e-2)


def test_many_arguments(general):
    f = pb.jit(lambda xs: sum(pb.sum(x * x) for x in xs))
    xs = [leaf(np.full(2, float(i))) for i in range(150)]
    for _ in range(2):
        f(xs).backward()
    for i, x in enumerate(xs):
        close(x.grad, np.full(2, 4.0 * i))
    assert general.count("_call") == 1


def test_state_beside_tensors():
    class Norm(pb.nn.Module):
        def __init__(self):
            self.mean = pb.tensor(np.zeros(5))
            self.scale = leaf(np.ones(5))

        def __call__(self, x):
            self.mean = 0.5 * self.mean + 0.5 * pb.stop_gradient(pb.mean(x, axis=0))
            return (x - self.mean) * self.scale

    norm = Norm()
    f = pb.jit(lambda x: pb.sum(norm(x)))
    mean = np.zeros(5)
    for _ in range(3):
        mean = 0.5 * mean + 0.5 * X.mean(0)
        norm.scale.grad = None
        f(pb.tensor(X)).backward()
        close(norm.scale.grad, (X - mean).sum(0))
        close(norm.mean, mean)


def test_changed_closures_are_noticed_on_tensors():
    scale = [2.0]
    f = pb.jit(lambda x: x * scale[0])
    x = leaf(X)
    for scale[0] in (2.0, 3.0, 2.0):
        for _ in range(2):
            close(f(x), scale[0] * X)
            close(f(x.detach()), scale[0] * X)
