"""The bridge to PyTorch, run in a process of its own by tests/test_bridges.py: its threads and warnings stay there."""

import copy
import pickle
import weakref

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, ConversionError, DtypeError, IndexingError, PullbackError
from pullback.interop.array_function import Recording

pytestmark = pytest.mark.filterwarnings("ignore:.*torch.jit.script.*:DeprecationWarning")
wrap, as_op = pb.interop.torch.wrap, pb.interop.torch.as_op


@pytest.fixture(scope="module")
def torch():
    import torch

    torch.manual_seed(0)
    torch.set_num_threads(2)
    return torch


def ours(w, x):
    return pb.sum(pb.tanh(x @ w["a"]) ** 3, axis=1)


@pytest.fixture
def data(torch):
    a, x = torch.randn(3, 2, dtype=torch.float64), torch.randn(5, 3, dtype=torch.float64)
    return a.requires_grad_(), x.requires_grad_()


def their_twin(torch):
    return lambda a, x: (torch.tanh(x @ a) ** 3).sum(1)


@pytest.mark.parametrize("jit", [True, False])
def test_wrapped_functions_in_autograd(torch, data, jit):
    f, g = wrap(ours, jit=jit), their_twin(torch)
    a, x = data
    y = f({"a": a}, x)
    assert type(y) is torch.Tensor
    assert torch.allclose(y, g(a, x))
    for found, wanted in zip(
        torch.autograd.grad(y.sum(), [a, x]), torch.autograd.grad(g(a, x).sum(), [a, x]), strict=True
    ):
        assert torch.allclose(found, wanted)
    one = f({"a": a.detach()}, x)  # a subset requires gradients
    assert torch.autograd.grad(one.sum(), [x], allow_unused=True)[0] is not None
    assert not f({"a": a.detach()}, x.detach()).requires_grad
    with torch.no_grad():
        assert not f({"a": a}, x).requires_grad


def test_double_backward_to_any_order(torch, data):
    f = wrap(ours)
    a, x = data
    assert torch.autograd.gradcheck(lambda a, x: f({"a": a}, x), (a, x), check_forward_ad=True)
    assert torch.autograd.gradgradcheck(lambda a, x: f({"a": a}, x), (a, x))
    z = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    y = wrap(pb.sin)(z)
    for k in range(1, 5):
        (y,) = torch.autograd.grad(y, z, create_graph=True)
        assert abs(y.item() - np.sin(0.7 + k * np.pi / 2)) < 1e-12


def test_modes_of_ours_around_do_not_reach_in(torch):
    f, x = wrap(lambda x: pb.sum(x * x)), torch.ones(3, requires_grad=True)
    for mode in (pb.no_grad, pb.inference_mode):
        with mode():
            (g,) = torch.autograd.grad(f(x), x)
            assert g.tolist() == [2, 2, 2]

    def inside(y):
        (g,) = torch.autograd.grad(f(x), x)
        return y * float(g[0])

    for transform in (pb.grad, pb.jit, pb.vmap):
        assert float(np.ravel(transform(inside)(np.ones(() if transform is not pb.vmap else 1)))[0]) == 2


def test_checkpoints_of_theirs_and_results_changed_in_place(torch):
    from torch.utils.checkpoint import checkpoint

    f, x = wrap(lambda x: pb.sum(pb.exp(x) * x)), torch.ones(3, requires_grad=True)
    checkpoint(lambda x: f(x * 2), x, use_reentrant=False).backward()
    assert torch.allclose(x.grad, torch.full((3,), float(2 * np.exp(2) * 3)))
    y = wrap(pb.exp)(x)
    with pytest.raises(RuntimeError, match="modified by an inplace"):
        y.mul_(2).sum().backward()


def test_what_a_call_kept_goes_when_the_backward_pass_has_run(torch, monkeypatch):
    kept, first = [], Recording.__init__

    def watch(self, *args):
        first(self, *args)
        kept.append(weakref.ref(self))

    monkeypatch.setattr(Recording, "__init__", watch)
    f, x = wrap(lambda x: pb.sum(pb.exp(x) * x)), torch.ones(3, requires_grad=True)
    y = f(x)
    y.backward(retain_graph=True)
    assert kept[-1]() is not None
    y.backward()
    assert kept[-1]() is None, "the loss is still there, what was saved for it is not"
    with torch.autograd.graph.save_on_cpu():  # saved tensors come back as other ones
        y = f(x)
    (g,) = torch.autograd.grad(y, x)
    assert torch.allclose(g, torch.full((3,), float(2 * np.exp(1))))


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # which their compiler hides
def test_a_compiler_of_theirs_leaves_it_alone(torch):
    f = wrap(lambda x: pb.sum(pb.sin(x)))
    g = torch.compile(lambda x: 2 * f(x * x), backend="eager")
    for size in (2, 3):
        x = torch.full((size,), 0.5, requires_grad=True)
        g(x).backward()
        assert torch.allclose(x.grad, 4 * x * torch.cos(x * x))


def test_what_records_operations_of_theirs_is_refused(torch):
    """It would replay the results of the recorded call."""
    from torch.fx.experimental.proxy_tensor import make_fx

    f, x = wrap(lambda x: pb.sum(pb.sin(x))), torch.ones(3)
    y = f(x.requires_grad_())
    for mode in ("real", "fake"):
        with pytest.raises(ArgumentError, match="records its own operations"):
            make_fx(lambda x: f(x * 1), tracing_mode=mode)(x.detach())
    with pytest.raises(ArgumentError, match="records its own operations"):
        torch.func.linearize(f, x.detach())
    with pytest.raises(ArgumentError, match="records its own operations"):
        make_fx(lambda bar: torch.autograd.grad(y, x, bar)[0])(torch.ones(()))
    assert torch.allclose(torch.autograd.grad(f(x), x)[0], torch.cos(x))


def test_backward_twice_and_accumulation(torch):
    f = wrap(lambda x: pb.sum(x * x))
    x = torch.ones(3, requires_grad=True)
    y = f(x)
    y.backward(retain_graph=True)
    y.backward()
    assert x.grad.tolist() == [4, 4, 4]
    with pytest.raises(RuntimeError, match="second time"):
        y.backward()


def test_transforms_of_theirs(torch, data):
    a, x = (t.detach() for t in data)
    f, g = wrap(ours), their_twin(torch)

    def both(transform):
        found, wanted = transform(lambda a, x: f({"a": a}, x)), transform(g)
        for p, q in zip(torch.utils._pytree.tree_leaves(found), torch.utils._pytree.tree_leaves(wanted), strict=True):
            assert torch.allclose(p, q, rtol=1e-8, atol=1e-12)

    F = torch.func
    both(lambda f: F.grad(lambda a: f(a, x).sum())(a))
    both(lambda f: F.hessian(lambda a: f(a, x).sum())(a))
    both(lambda f: F.jacrev(F.jacrev(lambda a: f(a, x)))(a))
    both(lambda f: F.vmap(f, (None, 0))(a, x[:, None]))
    both(lambda f: F.vmap(F.grad(lambda a, x: f(a, x[None]).sum()), (None, 0))(a, x))
    both(lambda f: F.jvp(lambda a: f(a, x), (a,), (a,)))
    both(lambda f: F.vmap(F.vmap(lambda a, x: f(a, x[None]), (0, None)), (None, 1))(torch.stack([a, 2 * a]), x.T))


def test_memory_is_shared(torch):
    seen = []

    def keep(x):
        seen.append(x.value if isinstance(x, pb.Tensor) else x)
        return pb.exp(x), x

    x = torch.ones(4, dtype=torch.float64)
    y, same = wrap(keep, jit=False)(x)
    assert seen[0].__array_interface__["data"][0] == x.data_ptr()
    assert same.data_ptr() != x.data_ptr(), "a result is never an argument under another name"
    same.add_(1)
    y.add_(1)
    assert x.tolist() == [1, 1, 1, 1]
    for f in (lambda x: (x, x), lambda x: (x[:2], x[2:])):
        for jit in (True, False):
            first, second = wrap(f, jit=jit)(x)
            first.add_(1)
            assert second.tolist() == [1] * len(second)


def test_tensors_modified_in_place_are_noticed(torch):
    f = wrap(lambda x, w: (pb.sum(pb.exp(x) * w), pb.exp(x)))
    x, w = torch.ones(3, requires_grad=True), torch.ones(3)
    y, _ = f(x, w)
    w.mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()
    y, e = f(x, w)
    e.detach().mul_(2)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.backward()


@pytest.mark.parametrize("name", ["float32", "float64", "float16", "bfloat16", "int32", "int64", "uint8", "bool"])
def test_dtypes_both_ways(torch, name):
    dtype = getattr(torch, name)
    x = torch.tensor([[0, 1, 1], [1, 0, 1]]).to(dtype)
    found = wrap(lambda x: (x, pb.astype(x, "float32") * 2, x[0, 0]))(x)
    assert [t.dtype for t in found] == [dtype, torch.float32, dtype]
    assert torch.equal(found[0], x)
    assert found[2].shape == ()
    op = as_op(lambda x: (x.clone(), x.float() * 2))
    mine = np.asarray(x.float()) if name == "bfloat16" else x.numpy()
    given = pb.astype(mine, name)
    same, double = op(given)
    assert (pb.spec_of(same).dtype.name, double.dtype) == (name, np.float32)
    assert np.array_equal(double, 2 * x.float().numpy())


def test_layouts(torch):
    f = wrap(lambda x: pb.sum(x * pb.arange(6.0).reshape(2, 3)))
    x = torch.arange(6.0, dtype=torch.float64).reshape(3, 2).T.requires_grad_()
    f(x).backward()
    assert torch.equal(x.grad, torch.arange(6.0, dtype=torch.float64).reshape(2, 3))
    base = torch.ones(4, 6, dtype=torch.float64)
    assert f(base[::2, ::2]).item() == 15
    assert f(torch.ones(1, 1, dtype=torch.float64).expand(2, 3)).item() == 15
    empty = wrap(lambda x: x * 2)(torch.empty(0, 3))
    assert empty.shape == (0, 3)
    op = as_op(lambda x: x.sum(0))
    assert np.array_equal(op(np.arange(6.0).reshape(2, 3)[::-1, ::2]), [3.0, 7.0])


def test_trees_settings_and_integers(torch):
    def f(tree, k, *, scale, mode="sum"):
        assert mode == "sum"
        return {"y": tree[0] * scale + tree[1]["b"][k], "n": k + 1}

    x, b = torch.tensor(2.0, requires_grad=True), torch.arange(3.0, requires_grad=True)
    for _ in range(2):
        out = wrap(f)([x, {"b": b}], torch.tensor(1), scale=3.0, mode="sum")
        assert (out["y"].item(), out["n"].item(), out["n"].requires_grad) == (7.0, 2, False)
    out["y"].backward()
    assert (x.grad.item(), b.grad.tolist()) == (3.0, [0, 1, 0])


def test_what_a_function_reads_may_change(torch):
    factors, norm = np.ones(3), pb.nn.BatchNorm(3)
    state = {"k": 2.0}
    f = wrap(lambda x: pb.sum(x * x * factors * state["k"]))
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)

    def derivatives():
        (g,) = torch.autograd.grad(f(x), x, create_graph=True)
        return g[0].item(), torch.autograd.grad(g.sum(), x)[0][0].item()

    assert derivatives() == (4, 4)
    factors[:] = 10
    assert derivatives() == (40, 40)
    state["k"] = 3.0
    assert derivatives() == (60, 60)
    before = np.array(norm.mean)
    wrap(lambda x: norm(x))(torch.full((4, 3), 5.0))
    assert not np.array_equal(before, np.array(norm.mean))


def test_settings_that_are_equal_and_not_the_same(torch):
    f, x = wrap(lambda x, s: pb.copysign(x, s)), torch.ones(1)
    assert [f(x, s).item() for s in (0.0, -0.0, 1, True, 1.0)] == [1, -1, 1, 1, 1]
    with pytest.raises(ArgumentError, match="hashable"):
        wrap(lambda x, s: x)(x, {1, 2})


def test_errors_at_the_border(torch):
    f = wrap(lambda x, i: x[i])
    with pytest.raises(IndexingError):
        f(torch.ones(3), torch.tensor(5))
    with pytest.raises(DtypeError, match="complex"):
        wrap(pb.sin)(torch.ones(2, dtype=torch.complex64))
    with pytest.raises(ArgumentError, match="dense"):
        wrap(pb.sin)(torch.ones(2, 2).to_sparse())
    with pytest.raises(ArgumentError, match=r"no argument is a torch\.Tensor"):
        wrap(pb.sin)(2.0)
    with pytest.raises(ArgumentError, match=r"a torch\.Tensor or a hashable setting, got ndarray"):
        wrap(pb.add)(torch.ones(2), np.ones(2))
    # shapes without numbers stay so
    assert wrap(lambda x: pb.sum(x, axis=0))(torch.ones(2, 3, device="meta")).is_meta
    with pytest.raises(ArgumentError, match="in place"):
        as_op(lambda x: x.add_(1))(np.ones(2))
    with pytest.raises(ArgumentError, match="results are trees of tensors"):
        as_op(lambda x: "text")(np.ones(2))
    for jit in (True, False):
        with pytest.raises(ArgumentError, match="a tree of arrays"):
            wrap(lambda x: (x, "text"), jit=jit)(torch.ones(2))
    with pytest.raises(ArgumentError, match="Bind settings first"):
        as_op(lambda x, mode: x)(np.ones(2), mode="nearest")
    with pytest.raises(ArgumentError, match="for modules"):
        as_op(torch.sin, functional=True)
    with pytest.raises(PullbackError):
        wrap(3)


def test_calls_without_a_bridge_say_which(torch):
    t, x = torch.ones(2, requires_grad=True), pb.tensor(np.ones(2), requires_grad=True)
    for call in (lambda: pb.sin(t), lambda: pb.grad(lambda v: pb.sum(v))(t), lambda: pb.nn.Linear(2, 1)(t)):
        with pytest.raises(pb.errors.ConversionError, match=r"pb.interop.torch.wrap\(f\)"):
            call()
    for call in (lambda: torch.sum(x), lambda: torch.stack([t, x]), lambda: torch.nn.Linear(2, 1)(x)):
        with pytest.raises(pb.errors.UnsupportedFunction, match=r"pb.interop.torch.as_op\(f\)"):
            call()
    assert torch.equal(torch.tensor(x.detach()), torch.ones(2, dtype=torch.float64))


def test_a_module_as_an_op(torch):
    net = torch.nn.Sequential(torch.nn.Linear(3, 4), torch.nn.Tanh(), torch.nn.Linear(4, 2)).double()
    op, x = as_op(net), np.random.default_rng(0).normal(size=(5, 3))
    (theirs,) = torch.autograd.grad((net(t := torch.from_numpy(x).requires_grad_()) ** 3).sum(), t)
    found = pb.grad(lambda x: pb.sum(op(x) ** 3))(x)
    assert np.allclose(found, theirs.numpy(), rtol=1e-12)
    full, p = as_op(net, functional=True), pb.interop.torch.parameters(net)
    gradients = pb.grad(lambda p: pb.sum(full(p, x) ** 3))(p)
    (net(torch.from_numpy(x)) ** 3).sum().backward()
    for name, q in net.named_parameters():
        assert np.allclose(gradients[name], q.grad.numpy(), rtol=1e-12)
    state = {k: v.clone() for k, v in torch.nn.BatchNorm1d(3).state_dict().items()}
    norm = torch.nn.BatchNorm1d(3).eval()
    pb.jit(lambda x: as_op(norm)(x) * 2)(x.astype(np.float32))
    assert all(torch.equal(v, state[k]) for k, v in norm.state_dict().items())


def compositions():
    return {
        "value": lambda f: f,
        "grad": pb.grad,
        "grad of grad": lambda f: pb.grad(lambda x: pb.sum(pb.grad(f)(x) ** 2)),
        "hessian": pb.hessian,
        "jvp": lambda f: lambda x: pb.jvp(f, (x,), (x,))[1],
        "jvp of grad": lambda f: lambda x: pb.jvp(pb.grad(f), (x,), (x,))[1],
        "grad of jvp": lambda f: pb.grad(lambda x: pb.jvp(f, (x,), (x,))[1]),
        "jit": pb.jit,
        "jit of hessian": lambda f: pb.jit(pb.hessian(f)),
        "vmap": lambda f: lambda x: pb.vmap(f)(np.stack([x, 2 * x])),
        "vmap of grad": lambda f: lambda x: pb.vmap(pb.grad(f))(np.stack([x, 2 * x])),
        "checkpoint": lambda f: pb.grad(pb.checkpoint(f)),
        "tape": lambda f: lambda x: tape_gradient(f, x),
    }


def tape_gradient(f, x):
    t = pb.tensor(x, requires_grad=True)
    f(t).backward()
    return t.grad.numpy()


@pytest.mark.parametrize(("name", "vectorized"), [*((n, True) for n in compositions()), ("vmap of grad", False)])
def test_ops_of_theirs_under_every_transform(torch, name, vectorized):
    op = as_op(lambda x: (torch.sin(x) ** 2 * x, x.argmax(-1)), vectorized=vectorized)
    transform, x = compositions()[name], np.linspace(0.1, 1, 4)
    found = transform(lambda x: pb.sum(op(x)[0] ** 2))(x)
    assert np.allclose(found, transform(lambda x: pb.sum((pb.sin(x) ** 2 * x) ** 2))(x), rtol=1e-10)


@pytest.mark.parametrize("name", compositions())
def test_there_and_back(torch, name):
    def plain(x):
        return pb.sum(pb.sin(x) ** 2 * x)

    transform, x = compositions()[name], np.linspace(0.1, 1, 4)
    found = transform(as_op(wrap(plain)))(x)
    assert np.allclose(found, transform(plain)(x), rtol=1e-10)


def test_back_and_there(torch):
    op = as_op(lambda x: torch.sin(x) ** 2)
    x = torch.linspace(0, 1, 4, dtype=torch.float64, requires_grad=True)
    f = wrap(lambda x: pb.sum(op(x) * x))
    assert torch.autograd.gradcheck(f, (x,))
    assert torch.autograd.gradgradcheck(f, (x,))


def test_arrays_of_ours_are_safe_from_theirs(torch):
    kept = []

    def keep(x):
        kept.append(x * 1)
        return kept[-1]

    op, x = as_op(keep), np.ones(3)
    t = pb.tensor(x, requires_grad=True)
    y = pb.sum(op(t) ** 2)
    kept[0].mul_(5)  # a result that they still hold
    y.backward()
    assert t.grad.tolist() == [2, 2, 2]


@pytest.mark.parametrize("stream", ["ours", "NumPy's"])
def test_derivatives_that_would_draw_again_are_refused(torch, stream):
    rng = np.random.default_rng(0)
    draw = rng.random if stream == "NumPy's" else pb.random.uniform
    f = wrap(lambda x: x * draw(size=3), jit=False)
    x = torch.ones(3, dtype=torch.float64, requires_grad=True)
    y = f(x)
    assert torch.equal(torch.autograd.grad(y.sum(), x, retain_graph=True)[0], y), "what was recorded draws nothing"
    with pytest.raises(ArgumentError, match="draws random numbers"):
        torch.autograd.grad(y.sum(), x, create_graph=True)
    for transform in (torch.func.grad, lambda g: lambda x: torch.func.jvp(g, (x,), (x,))):
        with pytest.raises(ArgumentError, match="draws random numbers"):
            transform(lambda x: f(x).sum())(x.detach())


def test_derivatives_of_what_draws_are_refused(torch):
    op, x = as_op(lambda x: torch.nn.functional.dropout(x, 0.5)), np.ones(64)
    assert set(op(x)) == {0.0, 2.0}
    for f in (pb.grad, lambda f: pb.vmap(pb.grad(f)), lambda f: lambda x: pb.jvp(f, (x,), (x,))):
        with pytest.raises(ArgumentError, match="draws random numbers"):
            f(lambda x: pb.sum(op(x)))(x[None])

    def draws_elsewhere(x):  # as a thread that loads data does
        with torch.utils._python_dispatch._disable_current_modes():
            torch.rand(1)
        return x.sin()

    assert np.allclose(pb.grad(lambda x: pb.sum(as_op(draws_elsewhere)(x)))(x), np.cos(1))


def test_numbers_of_python(torch):
    op = as_op(lambda x, s: x * s)
    assert op(np.ones(2, np.float32), 2.0).dtype == np.float32
    assert pb.grad(op, argnums=1)(np.float32(3.0), 2.0) == 3


def test_threads(torch):
    import threading

    f, failed = wrap(lambda x: pb.sum(pb.sin(x) * x)), []

    def work(number):
        for _ in range(20):
            x = torch.full((200,), float(number), requires_grad=True)
            f(x).backward()
            if not torch.allclose(x.grad, torch.sin(x) + x * torch.cos(x), atol=1e-5):
                failed.append(number)

    threads = [threading.Thread(target=work, args=(i,)) for i in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert not failed


def test_ops_of_theirs_in_inference_mode_and_of_other_byte_orders(torch):
    op, x = as_op(torch.sin), np.array([0.5, 2.0])
    with torch.inference_mode():
        assert np.allclose(pb.grad(lambda x: pb.sum(op(x)))(x), np.cos(x))
    assert np.allclose(op(x.astype(">f8")), np.sin(x))


def test_ops_of_theirs_that_decide_by_numbers_are_not_traced(torch):
    for f in (lambda x: x * 2 if x.sum() > 0 else x * 3, lambda x: x[x > 0]):
        op = as_op(f)
        assert np.allclose(pb.grad(lambda x, op=op: pb.sum(op(x) ** 2))(np.ones(2)), (f(torch.ones(2)) ** 2) * 2)
        with pytest.raises(ConversionError, match="decides by numbers"):
            pb.jit(op)(np.ones(2))


def test_both_ways_are_pickled_as_the_call_that_made_them(torch):
    x = np.array([0.5, 2.0])
    found = pickle.loads(pickle.dumps([wrap(pb.sin, jit=False), as_op(torch.sin), as_op(torch.nn.Softplus(2.0))]))
    assert np.allclose(found[0](torch.from_numpy(x)).numpy(), np.sin(x))
    assert np.allclose(found[1](x), np.sin(x))
    assert np.allclose(copy.deepcopy(found[2])(x), np.log1p(np.exp(2 * x)) / 2)
