"""Results that were wrong without a word, each named after what broke: values, copies, views, keys, devices, errors."""

import copy
import inspect
import math
import pickle
import sys
import types

import numpy as np
import pytest

import pullback as pb
from pullback import errors

INTEGERS = ["int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64"]
FOLDS = {"sum": {}, "prod": {}, "cumulative_sum": {"axis": 1}, "cumulative_prod": {"axis": 1}}


def leaf(data):
    return pb.tensor(data, requires_grad=True)


@pytest.mark.parametrize("fold", FOLDS)
@pytest.mark.parametrize("dtype", [*INTEGERS, "bool", "float32", "complex64"])
@pytest.mark.filterwarnings("ignore")
def test_dtype_of_integer_folds_was_ignored(fold, dtype):
    for source in (*INTEGERS, "bool", "float64"):
        x = np.array([[3, 100, 7], [120, 0, 2]]).astype(source)
        wanted = getattr(np, fold)(x, dtype=dtype, **FOLDS[fold])
        for module, value in ((pb, x), (pb, pb.tensor(x)), (np, pb.tensor(x))):
            found = getattr(module, fold)(value, dtype=dtype, **FOLDS[fold])
            assert found.dtype == wanted.dtype
            assert np.array_equal(np.asarray(found), wanted)


@pytest.mark.parametrize("dtype", [*INTEGERS, "bool", "float32"])
def test_vecdot_of_small_integers_was_wide(dtype):
    x = np.array([3, 100, 7]).astype(dtype)
    for function in (np.vecdot, np.linalg.vecdot, pb.vecdot, pb.linalg.vecdot):
        found = function(pb.tensor(x), pb.tensor(x))
        assert found.dtype == np.vecdot(x, x).dtype
        assert np.array_equal(np.asarray(found), np.vecdot(x, x))


@pytest.mark.parametrize("name", ["pinv", "svd", "matrix_rank"])
def test_hermitian_took_the_symmetric_part(name):
    a = np.array([[4.0, 2.0], [5.0, 3.0]]) if name != "matrix_rank" else np.array([[1.0, 7.0], [1.0, 1.0]])

    def numbers(found):
        return np.asarray(found[1] if name == "svd" else found)

    wanted = numbers(getattr(np.linalg, name)(a, hermitian=True))
    for module in (np.linalg, pb.linalg):
        assert np.allclose(numbers(getattr(module, name)(pb.tensor(a), hermitian=True)), wanted)


def test_gradient_of_pinv_by_its_lower_triangle():
    a = np.array([[4.0, 2.0], [5.0, 3.0]])
    assert pb.gradcheck(lambda x: pb.linalg.pinv(x, hermitian=True), a)
    assert pb.grad(lambda x: pb.sum(pb.linalg.pinv(x, hermitian=True)))(a)[0, 1] == 0


KEYED = {
    "normal": lambda key: pb.random.normal(key, (3,)),
    "normal by scale": lambda key: pb.random.normal(0.0, key),
    "normal by size": lambda key: pb.random.normal(0.0, 1.0, key),
    "uniform": lambda key: pb.random.uniform(key, (3,)),
    "exponential": lambda key: pb.random.exponential(key),
    "gamma": lambda key: pb.random.gamma(key, 2.0),
    "bernoulli": lambda key: pb.random.bernoulli(key, (3,)),
    "integers": lambda key: pb.random.integers(key, (3,)),
    "categorical": lambda key: pb.random.categorical(key, np.ones(3)),
    "choice": lambda key: pb.random.choice(key, 3),
    "permutation": lambda key: pb.random.permutation(key),
    "bits": lambda key: pb.random.bits(key),
    "gumbel_softmax": lambda key: pb.random.gumbel_softmax(key, np.ones(3)),
    "dropout": lambda key: pb.nn.dropout(np.ones(3), key),
}


@pytest.mark.parametrize("name", KEYED)
@pytest.mark.parametrize("kind", [np.asarray, pb.tensor])
def test_key_in_the_place_of_a_parameter(name, kind):
    with pytest.raises(errors.PullbackError):
        KEYED[name](kind(pb.random.key(0)))


def test_key_error_says_what_to_write():
    with pytest.raises(errors.ArgumentTypeError, match=r"pb\.random\.normal\(\.\.\., key=key\)"):
        pb.random.normal(pb.random.key(0), (3,))
    with pytest.raises(errors.ShapeError, match=r"pb\.random\.key"):
        pb.random.normal(size=3, key=0)


DISCRETE = {
    "bernoulli": lambda p: pb.random.bernoulli(p, 3, key=pb.random.key(0)),
    "poisson": lambda p: pb.random.poisson(p, 3, key=pb.random.key(0)),
    "binomial": lambda p: pb.random.binomial(4, p, 3, key=pb.random.key(0)),
    "categorical": lambda p: pb.random.categorical(p * np.ones(3), key=pb.random.key(0)),
    "choice": lambda p: pb.random.choice(3, 2, p=p * np.ones(3), key=pb.random.key(0)),
}


@pytest.mark.parametrize("name", DISCRETE)
def test_discrete_draw_had_derivative_zero(name):
    def mean(p):
        return pb.mean(1.0 * DISCRETE[name](p)) + p

    for way in (
        lambda: pb.grad(mean)(0.3),
        lambda: pb.jvp(mean, (0.3,), (1.0,)),
        lambda: pb.vmap(pb.grad(mean))(np.full(2, 0.3)),
        lambda: pb.jit(pb.grad(mean))(0.3),
    ):
        with pytest.raises(errors.GraphError, match="discrete"):
            way()
    assert pb.grad(lambda p: pb.mean(1.0 * DISCRETE[name](pb.stop_gradient(p))) + p)(0.3) == 1.0


def test_gradcheck_of_a_tuple_checked_another_function():
    @pb.custom_op
    def wrong(x):
        return np.asarray(x) ** 2

    wrong.def_vjp(lambda bar, x: 3.0 * x * bar)
    x = np.array([1.0, 2.0])
    assert not pb.gradcheck(wrong, x)
    for given in ((x,), [x], (1.0, 2.0), {"x": x}, [leaf(x)]):
        for check in (pb.gradcheck, pb.gradgradcheck):
            with pytest.raises(errors.ArgumentTypeError, match="one after the other"):
                check(wrong, given)
    assert pb.gradcheck(pb.sin, [1.0, 2.0])


@pytest.mark.parametrize(
    "tolerance", [{"eps": math.nan}, {"eps": 0.0}, {"eps": "1"}, {"rtol": -1.0}, {"atol": math.inf}]
)
def test_gradcheck_tolerance_that_is_none(tolerance):
    with pytest.raises(errors.ArgumentError):
        pb.gradcheck(pb.sin, np.ones(2), **tolerance)


OF_FUNCTIONS = [
    "grad", "value_and_grad", "elementwise_grad", "vmap", "jit", "jacobian", "jacfwd", "jacrev", "hessian", "laplacian",
    "divergence", "straight_through", "custom_op", "stage", "sparse_jacobian", "sparse_hessian", "jacobian_diagonal",
    "hessian_diagonal", "checkpoint",
]  # fmt: skip


@pytest.mark.parametrize("name", OF_FUNCTIONS)
@pytest.mark.parametrize("given", [3.0, "f", np.ones(2), (pb.sin,), leaf([1.0])], ids=lambda x: type(x).__name__)
def test_transform_of_no_function_returned_a_function(name, given):
    with pytest.raises(errors.ArgumentError, match=f"{name}: wants a function"):
        getattr(pb, name)(given)


def test_transforms_that_run_at_once_want_functions_too():
    x = np.ones(2)
    for call in (
        lambda f: pb.vjp(f, x), lambda f: pb.jvp(f, (x,), (x,)), lambda f: pb.linearize(f, x),
        lambda f: pb.linear_transpose(f, x), lambda f: pb.hvp(f, (x,), (x,)), lambda f: pb.jet(f, (x,), ((x,),)),
        lambda f: pb.gradcheck(f, x), lambda f: pb.gradgradcheck(f, x), lambda f: pb.sparsity(f, x),
        lambda f: pb.map(f, x), lambda f: pb.scan(f, 0.0, x),
    ):  # fmt: skip
        with pytest.raises(errors.ArgumentTypeError, match="wants a function"):
            call(3.0)


@pytest.mark.parametrize(
    "name", ["grad", "value_and_grad", "elementwise_grad", "jacobian", "jacfwd", "jacrev", "hessian"]
)
@pytest.mark.parametrize("given", [np.ones(3), 1.0, "w", None, leaf([1.0]), (0, 1.5)], ids=lambda x: type(x).__name__)
def test_arguments_in_the_place_of_argnums(name, given):
    with pytest.raises(errors.ArgumentTypeError, match=rf"pb\.{name}\(f\)\(x\)"):
        getattr(pb, name)(pb.sum, given)


READS = {
    "item": lambda x: x.item(),
    "tolist": lambda x: x.tolist(),
    "float": float,
    "int": int,
    "complex": lambda x: complex(x).real,
    "numpy": lambda x: x.numpy(),
    "asarray": np.asarray,
    "float64": np.float64,
    "sine": math.sin,
}
TRANSFORMS = {
    "grad": lambda f: pb.grad(f)(2.0),
    "vjp": lambda f: pb.vjp(f, 2.0)[1](1.0),
    "jvp": lambda f: pb.jvp(f, (2.0,), (1.0,)),
    "vmap": lambda f: pb.vmap(f)(np.array([2.0])),
    "jit": lambda f: pb.jit(f)(2.0),
    "hessian": lambda f: pb.hessian(f)(2.0),
    "linearize": lambda f: pb.linearize(f, 2.0),
    "jet": lambda f: pb.jet(f, (2.0,), ((1.0,),)),
}


@pytest.mark.parametrize("read", READS)
@pytest.mark.parametrize("transform", TRANSFORMS)
@pytest.mark.parametrize("of", ["variable", "result"])
def test_number_read_off_inside_a_transform_lost_the_derivative(read, transform, of):
    with pytest.raises(errors.ConversionError):
        TRANSFORMS[transform](lambda x: x * READS[read](x if of == "variable" else pb.exp(x)))


def test_number_read_off_a_tape_outside_is_fine():
    x = leaf(np.array([1.0, 2.0]))
    loss = pb.sum(x * x)
    assert loss.item() == 5.0
    assert (x * 2).tolist() == [2.0, 4.0]
    scale = (x * 2).sum()
    pb.grad(lambda y: y * scale.item())(1.0)  # what is read off does not depend on y
    assert [p.tolist() for p in pb.grad(lambda y: pb.sum(y * y) * y.detach().sum().item())(np.ones(2))] == [4.0, 4.0]


@pytest.mark.parametrize("transform", ["grad", "jvp", "vjp"])
def test_formatting_is_for_people(transform):
    shown = []

    def f(x):
        shown.append(f"{x:.3f}")
        shown.append(f"{x}")
        return x * x

    TRANSFORMS[transform](f)
    assert shown[0] == "2.000"
    assert f"{leaf(2.0) * 2:.1f}" == "4.0"


@pytest.mark.parametrize("duplicate", [copy.deepcopy, copy.copy])
@pytest.mark.parametrize("of", ["variable", "result", "list"])
def test_copy_dropped_the_derivative(duplicate, of):
    def f(x):
        twin = duplicate(x if of == "variable" else pb.exp(x) if of == "result" else [x])
        twin = twin[0] if of == "list" else twin
        return pb.sum(pb.sin(twin) * x)

    def plain(x):
        return pb.sum(pb.sin(pb.exp(x) if of == "result" else x) * x)

    x = np.array([0.3, 0.7])
    assert np.allclose(pb.grad(f)(x), pb.grad(plain)(x))
    assert np.allclose(pb.jvp(f, (x,), (x,))[1], pb.jvp(plain, (x,), (x,))[1])
    assert np.allclose(pb.hessian(f)(x), pb.hessian(plain)(x))
    assert np.allclose(pb.vmap(f)(x), pb.vmap(plain)(x))
    assert np.allclose(pb.jit(f)(x), plain(x))
    w = leaf(x)
    f(w * 1.0).backward()
    assert np.allclose(w.grad.numpy(), pb.grad(plain)(x))


def test_deepcopy_of_a_parameter_is_a_parameter_of_its_own():
    w = leaf([1.0, 2.0])
    twin = copy.deepcopy(w)
    assert twin.is_leaf
    pb.sum(twin * 2).backward()
    assert w.grad is None
    assert pickle.loads(pickle.dumps(w)).requires_grad


@pytest.mark.parametrize("transform", TRANSFORMS)
def test_pickle_dropped_the_derivative(transform):
    with pytest.raises(errors.PullbackError, match="pickle"):
        TRANSFORMS[transform](lambda x: pickle.loads(pickle.dumps(x)) * x)


def rows(y):
    for row in y:
        row -= row.mean()


def out_of_a_row(y):
    np.add(y[1], 1.0, out=y[0])


def copied_to_a_row(y):
    np.copyto(y[0], 2.0)


def scaled(y):
    r = y[0]
    r *= 2.0


def written(y):
    r = y[0]
    r[1] = 2.0


def written_deeper(y):
    r = y[0][1:]
    r += 2.0


def filled(y):
    y[0].fill_(1.0)


def flat(y):
    f = y.ravel()
    f[0] = 5.0


def turned(y):
    f = y.T
    f += 1.0


def reshaped(y):
    f = np.reshape(y, (3, 2))
    f += 1.0


def split(y):
    a, b = np.split(y, 2)
    a += b


def added_at(y):
    np.add.at(y[0], [0, 0], 1.0)


WRITES = [
    rows, out_of_a_row, copied_to_a_row, scaled, written, written_deeper, filled, flat, turned, reshaped, split,
    added_at,
]  # fmt: skip
X = np.arange(6.0).reshape(2, 3)


@pytest.mark.parametrize("write", WRITES)
@pytest.mark.parametrize("way", ["tensor", "tape", "no_grad", "grad", "jvp", "vmap", "jit"])
def test_write_to_a_view_was_lost(write, way):
    """In NumPy each of these changes y. So it does in transforms; on a tape a slice is its own value, and it raises."""

    def f(x):
        y = x * 1.0
        write(y)
        return np.sum(y * y)

    ways = {
        "tensor": lambda: f(pb.tensor(X)),
        "tape": lambda: f(leaf(X)),
        "no_grad": lambda: pb.no_grad()(f)(leaf(X)),
        "grad": lambda: pb.value_and_grad(f)(X),
        "jvp": lambda: pb.jvp(f, (X,), (X,)),
        "vmap": lambda: pb.vmap(f)(X[None]),
        "jit": lambda: pb.jit(f)(X),
    }
    if way in ("tensor", "tape", "no_grad"):
        with pytest.raises(errors.PullbackError):
            ways[way]()
        return
    if write is filled:  # arrays and values of a transform have no fill_
        return
    wanted = f(X)
    gradient = np.array([(f(X + e) - f(X - e)) / 2e-4 for e in np.eye(6).reshape(6, 2, 3) * 1e-4]).reshape(2, 3)
    found = ways[way]()
    np.testing.assert_allclose(found[0] if way in ("grad", "jvp", "vmap") else found, wanted)
    if way == "grad":
        np.testing.assert_allclose(found[1], gradient, rtol=1e-6, atol=1e-8)
    if way == "jvp":
        np.testing.assert_allclose(found[1], np.sum(gradient * X), rtol=1e-6)


def test_write_to_what_is_no_view():
    def f(x):
        y = x * 1.0
        y[0] *= 2.0
        y[:, 1] += 3.0
        r = (x * 1.0)[0]  # nothing else can see it
        r *= 2.0
        r[1] = 0.0
        a = x[0, 1]  # a number
        a += 1.0
        own = x[1].copy()
        own -= 1.0
        last = x[1]
        last = last * 2.0
        last += 1.0
        return pb.sum(y * y) + pb.sum(r) + a + pb.sum(own * last)

    assert pb.gradcheck(f, X)
    w = leaf(X)
    with pb.no_grad():
        w -= 1.0
        w[0] += 1.0
    assert w.is_leaf
    assert w.tolist() == [[0.0, 1.0, 2.0], [2.0, 3.0, 4.0]]


def test_view_of_what_is_gone_may_be_written_to_in_a_compiled_function():
    def f(x):
        r = (x * 1.0)[0]
        r *= 2.0
        return pb.sum(r)

    assert pb.jit(f)(X) == f(X) == 6.0


@pytest.mark.parametrize(
    "make", [pb.zeros, pb.ones, pb.empty, pb.eye, lambda n, device: pb.fft.fftfreq(n, device=device)]
)
def test_device_that_does_not_exist_became_the_first_one(make, monkeypatch):
    used = []

    class Device:
        def __init__(self, number):
            self.number = number

        def __enter__(self):
            used.append(self.number)

        def __exit__(self, *exception):
            pass

    fake = types.ModuleType("cupy")
    fake.ndarray = type("ndarray", (), {})
    fake.is_available = lambda: True
    runtime = types.SimpleNamespace(getDeviceCount=lambda: 2, getDevice=lambda: 0)
    fake.cuda = types.SimpleNamespace(runtime=runtime, Device=Device)
    fake.zeros, fake.ones, fake.eye, fake.asarray = np.zeros, np.ones, np.eye, np.asarray
    monkeypatch.setitem(sys.modules, "cupy", fake)
    for wrong in ("cuda:7", "cuda:2", "cuda:-1", "cuda:x", "moon", 3, ("cpu",)):
        with pytest.raises(errors.DeviceError):
            make(2, device=wrong)
    assert used == []
    make(2, device="cuda:1")  # made while that device is the current one
    assert set(used) == {1}


def test_device_without_its_library(monkeypatch):
    monkeypatch.setitem(sys.modules, "cupy", None)
    with pytest.raises(errors.DeviceError, match="CuPy"):
        pb.zeros(2, device="cuda:0")


def test_masks_with_an_axis_of_length_zero_were_refused():
    for shape, mask in (
        ((3, 2), (0, 2)),
        ((3, 2), (3, 0)),
        ((3,), (0,)),
        ((3, 2), (0,)),
        ((0, 2), (0,)),
        ((3, 2), (0, 0)),
    ):
        x = np.zeros(shape)
        assert pb.tensor(x)[np.zeros(mask, bool)].shape == x[np.zeros(mask, bool)].shape
        changed = pb.tensor(x)
        changed[np.zeros(mask, bool)] = 1.0
        assert changed.tolist() == x.tolist()
    for mask in ((0, 5), (2,), (3, 2, 0)):
        with pytest.raises(IndexError):
            pb.tensor(np.zeros((3, 2)))[np.zeros(mask, bool)]


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
@pytest.mark.parametrize("flag", [True, False, np.True_, pb.tensor(True), pb.tensor(False)], ids=str)
def test_one_truth_as_the_place_of_a_write_was_refused(shape, flag):
    x, wanted = pb.tensor(np.zeros(shape)), np.zeros(shape)
    x[flag] = 5.0
    wanted[bool(flag)] = 5.0
    assert x.tolist() == wanted.tolist()
    assert pb.add_at(np.zeros(shape), flag, 5.0).tolist() == wanted.tolist()
    value = np.ones(shape)
    found = pb.jit(lambda x, flag: pb.set_at(x, flag, 5.0))(
        value, np.asarray(flag.item() if hasattr(flag, "item") else flag)
    )
    assert np.array_equal(found, np.where(bool(flag), 5.0, value))


def test_axis_that_does_not_exist_is_an_index_error_and_a_value_error():
    for call in (lambda: pb.sum(X, axis=2), lambda: pb.expand_dims(X, -5), lambda: pb.flip(X, axis=3)):
        with pytest.raises(IndexError):
            call()
        with pytest.raises(ValueError, match="axis"):
            call()


def test_dlpack_has_the_parameters_of_the_standard():
    x = pb.tensor([1.0, 2.0])
    found = inspect.signature(x.__dlpack__).parameters
    assert list(found) == ["stream", "max_version", "dl_device", "copy"]
    assert all(p.kind is p.KEYWORD_ONLY and p.default is None for p in found.values())
    for copying in (True, False, None):
        for version in (None, (0, 0), (1, 0), (2, 0)):
            assert "dltensor" in repr(x.__dlpack__(copy=copying, max_version=version, dl_device=(1, 0)))
    assert not np.from_dlpack(x, copy=False).flags.writeable
    assert np.shares_memory(np.from_dlpack(x, copy=False), x.numpy())


def test_dropout_of_features_in_eval_takes_every_shape():
    for drop in (pb.nn.feature_alpha_dropout, pb.nn.feature_dropout):
        for shape in ((), (3,), (2, 3, 4)):
            assert drop(np.ones(shape), 0.5, training=False).shape == shape
        with pytest.raises(errors.ShapeError):
            drop(np.ones(3), 0.5, key=pb.random.key(0))


def test_ldexp_by_a_fraction():
    with pytest.raises(errors.DtypeError, match="exp2"):
        pb.ldexp(np.ones(2), 1.5)


def test_number_was_iterated():
    for call in (iter, list, len):
        with pytest.raises(TypeError, match="0-d") as caught:
            call(pb.tensor(1.0))
        assert isinstance(caught.value, errors.PullbackError)


def test_tracked_tensor_was_not_copied():
    x = leaf([1.0, 2.0])
    y = pb.asarray(x, copy=True)
    assert y is not x
    z = pb.asarray(x * 2, copy=True, dtype=np.float32)
    pb.sum(y * y + z).backward()
    assert x.grad.tolist() == [4.0, 6.0]


def test_forgotten_no_grad_is_named():
    w = leaf(np.ones(3))

    def steps(w):
        for _ in range(4):
            pb.sum(w * w).backward()
            w -= 0.1 * w.grad

    with pytest.raises(errors.GraphError, match="no_grad") as caught:
        steps(w)
    assert "w -= 0.1 * w.grad" in str(caught.value)


def joined(x):
    return pb.sum(np.array([x[0], x[1]]))


def on_a_diagonal(x):
    return pb.sum(np.diag([x[0], x[1]]))


def written_to_zeros(x):
    y = np.zeros(2)
    y[:] = x
    return y.sum()


def by_scipy(x):
    import scipy.linalg

    return scipy.linalg.norm(x)


def by_math(x):
    return math.exp(x[0])


def written_one_by_one(x):
    y = np.zeros(2)
    y[0] = x[0]
    y[1] = 3 * x[1]
    return y.sum()


ADVICE = {on_a_diagonal: "np.stack", by_math: "np.sin"}
#: What was refused with advice, and now follows what it fills or calls: with its gradient at (1, 2).
FOLLOWED = {joined: [1, 1], written_to_zeros: [1, 1], written_one_by_one: [1, 3], by_scipy: [5**-0.5, 2 * 5**-0.5]}


@pytest.mark.parametrize("f", ADVICE)
@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap"])
def test_conversion_error_advised_detach(f, transform):
    x = np.array([1.0, 2.0])
    ways = {
        "grad": lambda: pb.grad(f)(x),
        "jvp": lambda: pb.jvp(f, (x,), (x,)),
        "vmap": lambda: pb.vmap(f)(x[None]),
    }
    with pytest.raises(errors.ConversionError) as caught:
        ways[transform]()
    lines = str(caught.value).splitlines()
    assert ADVICE[f] in str(caught.value)
    assert not any(ADVICE[other] in line for other in ADVICE for line in lines if ADVICE[other] != ADVICE[f])


@pytest.mark.parametrize("f", FOLLOWED)
def test_what_was_refused_is_followed(f):
    x = np.array([1.0, 2.0])
    assert np.allclose(pb.grad(f)(x), FOLLOWED[f])
    assert np.allclose(pb.jvp(f, (x,), (x,))[1], np.dot(FOLLOWED[f], x))
    assert np.allclose(pb.vmap(f)(x[None]), [f(x)])


def test_astype_of_the_same_dtype_shared_memory():
    x = np.ones(3)
    y = pb.astype(x, x.dtype)
    y += 1.0
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert pb.astype(x, float, copy=False) is x
    z = pb.reshape(x, (3, 1), copy=True)
    z += 1.0
    assert x.tolist() == [1.0, 1.0, 1.0]
    assert np.shares_memory(pb.reshape(x, (3, 1), copy=False), x)
    with pytest.raises(errors.ArgumentError, match="copy"):
        pb.reshape(np.ones((2, 3)).T, (6,), copy=False)


@pytest.mark.parametrize(("p", "target"), [(1.0, 0.0), (0.0, 1.0)])
def test_sure_mistake_had_no_gradient(p, target):
    """As PyTorch has it: the loss is held at 100, and (p - target) / max(p (1 - p), 1e-12) is its slope."""
    loss = lambda p: pb.nn.binary_cross_entropy(p, np.array([target]))  # noqa: E731
    assert loss(np.array([p])) == 100.0
    assert pb.grad(loss)(np.array([p])).tolist() == [(p - target) * 1e12]
    assert pb.grad(loss)(np.array([target])).tolist() == [-1.0 if target else 1.0]


def test_square_root_of_a_singular_matrix_had_a_derivative():
    total = lambda a: pb.sum(pb.linalg.sqrtm(a))  # noqa: E731
    for a in (np.array([[1.0, 0.0], [0.0, 0.0]]), np.zeros((2, 2)), np.array([[1.0, -1.0], [-1.0, 1.0]])):
        for way in (lambda a: pb.grad(total)(a), lambda a: pb.jvp(total, (a,), (np.ones((2, 2)),))):
            with pytest.raises(errors.SingularError, match="sqrtm"):
                way(a)
    assert pb.linalg.sqrtm(np.diag([4.0, 0.0])).tolist() == [[2.0, 0.0], [0.0, 0.0]]
    with pytest.raises(errors.SingularError):
        pb.linalg.sqrtm(np.array([[0.0, 1.0], [0.0, 0.0]]))
    nearly = np.diag([1.0, 1e-8])
    assert np.allclose(np.diag(pb.grad(lambda a: pb.sum(pb.linalg.sqrtm(a)))(nearly)), [0.5, 5e3])
    large = pb.jvp(pb.linalg.sqrtm, (np.diag([4.0, 9.0]),), (1e20 * np.ones((2, 2)),))[1]
    assert np.allclose(large, 1e20 * np.array([[1 / 4, 1 / 5], [1 / 5, 1 / 6]]))


@pytest.mark.parametrize("name", ["i0e", "i1e", "k0e", "k1e", "i0", "j0", "erf", "gammaln", "digamma", "log_ndtr"])
def test_gradient_at_nan_was_zero(name):
    assert np.isnan(pb.grad(getattr(pb.special, name))(np.nan))


def test_gradient_of_betainc_at_nan_was_zero():
    assert np.isnan(pb.grad(lambda a: pb.special.betainc(a, 2.0, 0.5))(np.nan))
    assert np.isnan(pb.grad(lambda b: pb.special.betainc(2.0, b, 1.0))(np.nan))


ROWS, MASK = np.array([0, 2, 1, 0, 0]), np.array([True, False, True])


@pytest.mark.parametrize("transform", [lambda f: f, pb.jit], ids=["eager", "compiled"])
@pytest.mark.parametrize(
    "index",
    [
        (slice(None), ROWS, ..., ROWS),
        (None, 0, ..., ROWS, 0),
        (slice(None), MASK, ..., [0, 1]),
        (slice(1, 3), [[1], [2]], ..., None, 0),
        (None, ROWS, None, ..., None, ROWS, slice(2)),
    ],
    ids=str,
)
def test_ellipsis_that_stands_for_no_axis_did_not_separate_indices(index, transform):
    x = np.random.default_rng(0).normal(size=(5, 3, 5))

    def write(x, values):
        y = x * 1.0
        y[index] = values
        return y

    wanted = x[index]
    assert np.array_equal(np.asarray(transform(lambda x: x[index])(pb.tensor(x))), wanted)
    assert np.array_equal(pb.vmap(lambda x: x[index])(x[None]), wanted[None])
    for values in (7.0, wanted[0] - 1, wanted[None] * 2):
        assert np.array_equal(np.asarray(transform(write)(pb.tensor(x), values)), write(x, values))
    added = x.copy()
    np.add.at(added, index, wanted)
    assert np.allclose(pb.add_at(x, index, wanted), added)
    assert np.allclose(pb.grad(lambda x: pb.sum(x[index] * wanted))(x), added - x)
