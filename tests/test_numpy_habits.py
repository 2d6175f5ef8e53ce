"""Arrays that a function makes with NumPy and fills: right in every transform, gone afterwards, and never silent."""

import copy
import math
import operator
import pickle
import re
import subprocess
import sys

import numpy as np
import numpy_habits
import pytest
import scipy.fft
from numpy_habits import BRANCHING, HABITS, WEIGHTS, filled

import pullback as pb
from pullback import errors

X = np.array([0.7, 1.3, 0.9])


def differences(f, x):
    """Central differences of fourth order of a function of bare arrays."""
    steps = np.eye(x.size) * 1e-3
    return np.array([(8 * (f(x + e) - f(x - e)) - (f(x + 2 * e) - f(x - 2 * e))) / 12e-3 for e in steps], float)


TRANSFORMS = {
    "grad": lambda f: pb.grad(f)(X),
    "jvp": lambda f: np.array([pb.jvp(f, (X,), (e,))[1] for e in np.eye(3)]),
    "vjp": lambda f: pb.vjp(f, X)[1](1.0)[0],
    "vmap": lambda f: pb.vmap(pb.grad(f))(np.stack([X + 0.1, X]))[1],
    "jit": lambda f: pb.jit(pb.grad(f))(X),
    "grad of jit": lambda f: pb.grad(pb.jit(f))(X),
    "linearize": lambda f: np.array([pb.linearize(f, X)[1](e) for e in np.eye(3)]),
    "checkpoint": lambda f: pb.grad(pb.checkpoint(f))(X),
    "jet": lambda f: np.array([pb.jet(f, (X,), ([e],))[1][0] for e in np.eye(3)]),
    "stage": lambda f: pb.grad(lambda x: pb.stage(f)(X).run(x))(X),
    "jacfwd": lambda f: pb.jacfwd(f)(X),
}


#: Those that come to the same as another one, for the long runs.
SELDOM = ("vjp", "grad of jit", "linearize", "stage", "jacfwd")


@pytest.mark.parametrize(
    "transform", [pytest.param(t, marks=[pytest.mark.sweep] if t in SELDOM else []) for t in TRANSFORMS]
)
@pytest.mark.parametrize("name", HABITS)
def test_numpy_code_is_differentiated_as_it_stands(name, transform):
    if (name in BRANCHING and transform in ("vmap", "jacfwd", "stage")) or (
        transform == "stage" and name == "constants_stay_arrays"
    ):
        pytest.skip("Python's if on values")
    f = HABITS[name]
    np.testing.assert_allclose(TRANSFORMS[transform](f), differences(f, X), rtol=1e-7, atol=1e-9)


@pytest.mark.parametrize("name", sorted(HABITS.keys() - {"of_a_python_ufunc"}))
def test_second_derivatives(name):
    f = HABITS[name]
    want = np.array([(pb.grad(f)(X + e) - pb.grad(f)(X - e)) / 2e-5 for e in np.eye(3) * 1e-5])
    np.testing.assert_allclose(pb.hessian(f)(X), want, rtol=1e-5, atol=1e-6)
    forward_over_reverse = np.array([pb.jvp(pb.grad(f), (X,), (e,))[1] for e in np.eye(3)])
    np.testing.assert_allclose(forward_over_reverse, pb.hessian(f)(X), rtol=1e-10, atol=1e-12)


def test_values_are_those_of_numpy():
    for f in HABITS.values():
        np.testing.assert_allclose(pb.value_and_grad(f)(X)[0], f(X), rtol=1e-14)


def test_a_float32_buffer_keeps_its_dtype():
    f = numpy_habits.of_small_numbers
    found = pb.grad(f)(X.astype(np.float32))
    assert found.dtype == np.float32
    np.testing.assert_allclose(found, 2 * X, rtol=1e-6)


def test_results_and_aux_are_plain_arrays():
    def f(x):
        constant, y = np.zeros(2), np.zeros(2)
        y[0] = x
        return y, {"constant": constant, "y": y, "list": [constant]}

    value, pull, aux = pb.vjp(f, 2.0, has_aux=True)
    assert pull(np.ones(2))[0] == 1.0
    for array in (value, aux["constant"], aux["y"], aux["list"][0]):
        assert type(array) is np.ndarray
    np.testing.assert_array_equal(aux["y"], [2.0, 0.0])
    assert type(pb.jit(lambda x: np.zeros(2))(1.0)) is np.ndarray
    assert type(pb.vmap(lambda x: np.zeros(2))(np.ones(3))) is np.ndarray


def test_a_constant_result_has_gradient_zero():
    def f(x):
        y = np.zeros(3)
        y[1] = 5.0
        return np.sum(y)

    assert pb.grad(f)(2.0) == 0.0


ESCAPES = {
    "math": lambda y: __import__("math").sqrt(y[0]),
    "float": lambda y: float(y[0]) * 2.0,
    "item": lambda y: y[0].item(),
    "a list of floats": lambda y: next(float(t) for t in y),
    "a bare array from outside": lambda y: np.copyto(WEIGHTS, y),
    "asarray of a library": lambda y: np.linalg._linalg.asarray(y).sum() * 1.0,
    "a view as bytes": lambda y: np.asarray(y.view(np.float64)).sum(),
    "buffer protocol": lambda y: memoryview(y)[0] * 2.0,
    "nditer": lambda y: sum(float(t) for t in np.nditer(y)),
    "ndenumerate": lambda y: sum(t * 1.0 for _, t in np.ndenumerate(y)),
    "json": lambda y: float(__import__("json").dumps(list(y))),
    "tolist": lambda y: y.tolist()[0],
    "pickle": lambda y: pickle.loads(pickle.dumps(y)).sum(),
    "int dtype": lambda y: np.zeros(3, int).__setitem__(0, y[0]),
    "shape set": lambda y: setattr(y, "shape", (3, 1)),
    "tobytes": lambda y: np.frombuffer(y.tobytes()).sum(),
    "scipy": lambda y: scipy.fft.fft(y).real.sum(),
    "random": lambda y: np.random.default_rng(0).normal(y).sum(),
    "arange": lambda y: np.arange(y[0]).sum(),
    "a sized view": lambda y: y.view(np.int64).sum(),
}


@pytest.mark.parametrize("name", ESCAPES)
@pytest.mark.parametrize("transform", ["grad", "jvp", "jit"])
def test_what_would_lose_the_derivative_raises(name, transform):
    """Also code that goes past the methods of an array that holds derivatives never sees numbers in its memory."""

    def f(x):
        y = np.zeros(3)
        y[:] = x
        return ESCAPES[name](y)

    run = {"grad": lambda: pb.grad(f)(X), "jvp": lambda: pb.jvp(f, (X,), (X,)), "jit": lambda: pb.jit(f)(X)}[transform]
    with pytest.raises((errors.PullbackError, TypeError, ValueError, AttributeError, NotImplementedError)):
        run()
    np.testing.assert_array_equal(WEIGHTS, [1.0, -2.0, 0.5])


def test_a_bare_view_that_a_library_took_before_is_not_a_number_afterwards():
    def f(x):
        y = np.zeros(3)
        taken = np.linalg._linalg.asarray(y).view(np.ndarray)
        y[:] = x
        return np.sum(y) + taken[0]

    assert np.isnan(pb.value_and_grad(f)(X)[0])


def test_a_bound_that_carries_a_derivative_is_refused_by_name():
    with pytest.raises(errors.UnsupportedFunction, match=r"np\.arange.*\n.*np\.linspace"):
        pb.grad(lambda x: np.sum(np.arange(x, 3.0)))(1.0)
    assert pb.grad(lambda x: np.sum(np.linspace(x, 3.0, 5)))(1.0) == 2.5


def test_a_view_of_another_dtype_refuses_derivatives():
    def f(x):
        z = np.zeros(2, complex)
        real = z.view(float)
        real[0] = x
        return np.sum(z.real)

    with pytest.raises((errors.GraphError, errors.ConversionError)):
        pb.grad(f)(1.0)


def put(array, index, value):
    array[index] = value
    return array


def after(change, array):
    change(array)
    return array


#: Of an array y whose elements carry derivatives.
OPERATIONS = {
    "equal": lambda y: np.sum((y == y) * y),
    "not equal": lambda y: np.sum((y != 1.0) * y),
    "unary": lambda y: np.sum(-y + abs(y) + +y),
    "power": lambda y: np.sum(2.0**y + y**2 + y**0.5),
    "on the right": lambda y: np.sum(WEIGHTS * y - y / WEIGHTS),
    "matmul": lambda y: WEIGHTS @ y + y @ WEIGHTS,
    "divmod": lambda y: np.sum(divmod(y, 0.4)[1] + y % 0.31),
    "len": lambda y: len(y) * y[-1],
    "sum": sum,
    "iteration": lambda y: sum(a * b for a, b in zip(y, WEIGHTS, strict=True)),
    "list": lambda y: np.sum(np.array(list(y)) ** 2),
    "unpacking": lambda y: (lambda a, b, c: a * b + c)(*y),
    "fancy": lambda y: np.sum(y[[0, 2]] * y[1:]),
    "methods": lambda y: y.dot(y) + y.sum() * y.max(),
    "functions": lambda y: np.dot(y, WEIGHTS) + np.max(np.concatenate([y, y[:1]])) + np.linalg.norm(y),
    "copy": lambda y: np.sum(put(y.copy(), 0, 1.0)) + y[0],
    "deep copy": lambda y: np.sum(put(copy.deepcopy(y), 0, 1.0)) + y[0],
    "np.array copies": lambda y: np.sum(put(np.array(y), 0, 1.0)) + y[0],
    "np.asarray does not": lambda y: np.sum(put(np.asarray(y), 0, 1.0)) + y[0],
    "itself": lambda y: np.sum(put(y, slice(1, None), y[:-1]) * WEIGHTS),
    "swapped": lambda y: np.sum(put(y, [0, 1], y[[1, 0]]) * WEIGHTS),
    "in place": lambda y: np.sum(operator.imul(operator.iadd(y, y), y)),
    "sort": lambda y: np.sum(np.sort(y) * WEIGHTS),
    "where": lambda y: np.sum(np.where(y > 0.8, y, 2 * y)),
    "with a tensor": lambda y: np.sum(np.sin(y[1]) * y),
    "flip": lambda y: put(np.flip(y), 0, 2.0 * y[0])[0] + np.sum(y**2),
    "new axis": lambda y: np.sum(y[:, None] * y),
    "split": lambda y: put(np.split(y, 3)[0], 0, y[1] * y[2])[0] + np.sum(y**2),
    "nested list": lambda y: np.sum(np.array([y, y * 2])),
    "fill": lambda y: y.fill(y[0] * y[1]) or np.sum(y),
    "reshape": lambda y: put(y.reshape(3, 1), (1, 0), y[0])[1, 0] + np.sum(y**2),
    "flat": lambda y: y.flat[0] * y.flat[1:][1] + sum(t**2 for t in y.flat) + len(y.flat),
    "flat written": lambda y: np.sum(
        after(lambda a: a.flat.__setitem__(slice(1, None), y[:2]), np.ones((2, 2)))[1] ** 2
    ),
    "sorted in place": lambda y: np.sum(after(lambda a: a.sort(), y) * WEIGHTS),
    "put": lambda y: (
        np.sum(after(lambda a: a.put([0, 2], y[1:]), np.ones(3)) * WEIGHTS) + np.sum(after(lambda a: a.put(1, y[0]), y))
    ),
    "a view of a copy": lambda y: np.sum(after(lambda a: put(a[1:], 0, y[0] ** 2), y.copy()) * WEIGHTS) + y[1],
    "a view of one like it": lambda y: np.sum(after(lambda a: put(a[1:], 0, y[0] ** 2), np.zeros_like(y)) * WEIGHTS),
    "columns first": lambda y: np.dot(
        np.outer(y, y[:2] * y[0]).T.copy().flatten(),
        after(lambda a: put(a, (0, 1), y[1]), np.ones((2, 3))).flatten("F"),
    ),
    "matrix product in place": lambda y: np.sum(operator.imatmul(np.eye(3), np.outer(y, WEIGHTS)) ** 2),
    "a list written": lambda y: np.sum(put(np.ones((2, 2)), slice(None), [[y[0], 1], [y[1], y[2] ** 2]]) ** 2),
    "round": lambda y: (
        round(y[0] * y[1], 1) * y[0] + math.floor(y[1] * 3) * y[2] + math.ceil(y[0]) * y[1] + math.trunc(y[1])
    ),
    "gradient inside": lambda y: np.sum(pb.grad(lambda t: np.sum(t**3))(y)),
}
#: Those that ask for numbers.
CONCRETE = {
    "in": lambda y: (5.0 in y) + y[0],
    "max": max,
    "a mask": lambda y: y[y > 0.8].sum() * y[0],
    "boolean write": lambda y: np.sum(put(y, y > 0.8, 0.0)),
    "format": lambda y: float(len(f"{y} {y!r} {y[0]:.3f}") > 0) * y[0],
    "truth": lambda y: y[0] if y.any() and y[0] else 0.0,
}


@pytest.mark.parametrize(
    ("transform", "name"),
    [(t, name) for t in ("grad", "jvp", "jit") for name in (OPERATIONS if t == "jit" else OPERATIONS | CONCRETE)],
)
def test_an_array_that_holds_derivatives_is_an_array(name, transform):
    def f(x):
        y = np.zeros(3)
        y[:] = x
        return (OPERATIONS | CONCRETE)[name](y)

    np.testing.assert_allclose(TRANSFORMS[transform](f), differences(f, X), rtol=1e-7, atol=1e-9)


def test_nested_transforms_share_buffers():
    def f(x):
        y = np.zeros(2)
        y[0] = x

        def inner(t):
            z = np.zeros(2)
            z[0] = t * y[0]
            z[1] = t**2
            return np.sum(z)

        y[1] = pb.grad(inner)(2.0 * x)  # x + 4 x
        return np.prod(y)

    np.testing.assert_allclose(pb.grad(f)(1.5), 2 * 5 * 1.5)
    np.testing.assert_allclose(pb.grad(pb.grad(f))(1.5), 10.0)


def test_a_buffer_of_an_outer_call_written_in_a_loop():
    def f(x):
        y = np.zeros(2)

        def step(carry, t):
            y[0] = carry
            return carry * t, carry

        return pb.scan(step, x, np.array([1.0, 2.0]))[0] + y[0]

    assert pb.grad(f)(1.5) == 3.0  # the last carry but one is x
    with pytest.raises(errors.PullbackError):
        pb.jit(f)(1.5)  # the loop is traced, and its values are gone


def test_jit_is_traced_once():
    traces = []

    def f(x):
        traces.append(1)
        y = numpy_habits.zeros(3)
        y[:] = x
        return np.sum(y**2)

    compiled = pb.jit(f)
    for _ in range(2):
        compiled(X)
        pb.grad(compiled)(X)
    assert len(traces) <= 2


def test_functions_that_create_nothing_are_run_directly(monkeypatch):
    from pullback.ops import user_calls

    weights = np.ones(3)
    gradient = pb.grad(lambda x: np.sum(weights * np.sin(x) ** 2))
    gradient(X)  # ops are learned
    monkeypatch.setattr(user_calls, "_Replacements", None)
    assert gradient(X).shape == (3,)
    with pytest.raises(TypeError):
        pb.grad(filled)(X)


MEETINGS = {
    "concatenate": lambda y: np.concatenate([np.zeros(2), y]),
    "where": lambda y: np.where(np.ones(3) > 0, y, np.ones(3)) + np.where(np.zeros(3) > 0, np.ones(3), y),
    "dot": lambda y: np.dot(np.ones(3), y),
    "outer": lambda y: np.outer(np.arange(2.0), y),
    "interp": lambda y: np.interp(0.3, np.linspace(0, 1, 3), y),
    "convolve": lambda y: np.convolve(np.ones(2), y),
    "kron": lambda y: np.kron(np.ones(2), y),
    "solve": lambda y: np.linalg.solve(2 * np.eye(3), y),
    "product in place": lambda y: operator.imul(np.ones(3), y),
}


@pytest.mark.parametrize("transform", ["grad", "jvp", "jit"])
@pytest.mark.parametrize("name", MEETINGS)
def test_functions_of_an_array_of_constants_and_then_one_of_derivatives(name, transform):
    """NumPy asks the argument on the left first, and it took the other for an array like itself."""

    def f(x):
        y = np.zeros(3)
        y[:] = x
        return np.sum(MEETINGS[name](y) ** 2)

    np.testing.assert_allclose(TRANSFORMS[transform](f), differences(f, X), rtol=1e-7, atol=1e-9)


def _slope(t, y, p):
    dy = np.zeros(3)
    dy[0], dy[1] = -p[0] * y[0], y[0] - p[1] * y[1]
    dy[2] = y[1] * p[2]
    return dy


def _filled(x):
    y = np.zeros(3)
    y[:] = x
    return y


CALLS = {
    "ode": lambda x: np.sum(pb.ode.solve(_slope, np.ones(3), (0.0, 1.0), x, rtol=1e-10, atol=1e-12).y ** 2),
    "checkpoint": lambda x: pb.checkpoint(lambda y: np.sum(y**3))(_filled(x)),
    "nn.linear": lambda x: np.sum(pb.nn.linear(x, _filled(x)[None])),
    "nn.softmax": lambda x: np.sum(pb.nn.softmax(_filled(x)) ** 2),
    "nn.mse_loss": lambda x: pb.nn.mse_loss(np.zeros(3), _filled(x)),
    "jit of a closure": lambda x: (lambda y: pb.jit(lambda c: np.sum(c * y**2))(np.ones(3)))(_filled(x)),
}


@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap", "jit"])
@pytest.mark.parametrize("name", CALLS)
def test_arrays_that_hold_derivatives_go_into_and_come_out_of_calls(name, transform):
    np.testing.assert_allclose(TRANSFORMS[transform](CALLS[name]), differences(CALLS[name], X), rtol=1e-6, atol=1e-8)


@pytest.mark.parametrize("made", [lambda x: np.asarray(x), _filled])
def test_what_a_module_would_keep_without_the_derivative_is_refused(made):
    layer = pb.nn.Linear(3, 1, bias=False, key=pb.random.key(0))
    keeps = {
        "Parameter": lambda x: np.sum(pb.nn.Parameter(made(x)) * x),
        "load_state_dict": lambda x: layer.load_state_dict({"weight": made(x)[None]}) or np.sum(layer(x)),
        "register_buffer": lambda x: layer.register_buffer("shift", made(x)) or np.sum(layer.shift * x),
    }
    for name, f in keeps.items():
        for transform in (pb.grad, lambda f: pb.jit(pb.grad(f))):
            with pytest.raises(errors.GraphError, match=rf"^{name}.*\n.*detach"):
                transform(f)(X)


def test_an_optimizer_in_place_refuses_a_rate_that_a_gradient_asks_for():
    def stepped(rate):
        weights = pb.tensor(np.ones(2), requires_grad=True)
        weights.grad = pb.ones(2)
        pb.optim.SGD([weights], lr=np.asarray(rate)).step()
        return np.sum(weights**2)

    with pytest.raises(errors.GraphError, match="the setting lr has a derivative"):
        pb.grad(stepped)(0.1)


class Workspace:
    """Keeps arrays for the next call, as programs do that allocate once."""

    arrays = None

    def __call__(self, x):
        if self.arrays is None:
            self.arrays = np.zeros((2, 3))
            self.row = self.arrays[1]
        self.arrays[0] = x
        self.row[:] = self.arrays[0] ** 2
        return np.sum(self.row * WEIGHTS) + self.row[0] ** 2


@pytest.mark.parametrize(
    "run", [lambda f: pb.grad(f)(X), lambda f: pb.hessian(f)(X), lambda f: pb.vmap(f)(X[None]), lambda f: pb.jit(f)(X)]
)
def test_an_array_that_outlives_the_call_is_numpys_again(run):
    kept, plain = Workspace(), Workspace()
    np.testing.assert_array_equal(run(kept), run(Workspace()))
    assert kept.row.dtype == float
    value = kept(X)
    assert type(value) is np.float64
    assert value == plain(X)
    np.testing.assert_array_equal(np.asarray(kept.arrays).T, plain.arrays.T)
    np.testing.assert_allclose(pb.grad(kept)(X + 1.0), pb.grad(Workspace())(X + 1.0))


def test_numbers_of_a_call_that_is_over_are_constants():
    kept = []

    def f(x):
        if not kept:
            kept.append(np.zeros(2))
        kept[0][1] += kept[0][0] * x
        kept[0][0] = x
        return kept[0][1] * x

    assert pb.grad(f)(2.0) == 0.0
    assert pb.grad(f)(3.0) == 12.0  # of (2 x) x
    np.testing.assert_array_equal(kept[0], [3.0, 6.0])


TAKEN = {
    "fromiter": (lambda x: np.fromiter((t * t for t in x), float), "np.stack"),
    "objects": (lambda x: x.astype(object), "numbers and booleans"),
    "objects of NumPy's": (lambda x: np.astype(x, "O"), "numbers and booleans"),
    "a copy": (lambda x: np.array(x), r"x\.copy"),
    "a number": (lambda x: np.float32(x[0]), r"x\.astype\(np\.float32\)"),
    "a draw": (lambda x: np.random.default_rng(0).normal(x[0]), "mean \\+ scale"),
    "a draw of a generator": (lambda x: RNG.normal(x), "mean \\+ scale"),
    "a series": (lambda x: np.polynomial.polynomial.polyval(0.5, x), r"np\.polyval .*highest powers first"),
    "masked": (lambda x: np.ma.array(x), r"pb\.masked"),
}
RNG = np.random.default_rng(1)


@pytest.mark.parametrize("name", TAKEN)
def test_on_a_tape_what_takes_numbers_says_what_to_write(name):
    call, wanted = TAKEN[name]
    with pytest.raises((errors.PullbackError, ValueError)) as caught:
        call(pb.tensor(X, requires_grad=True))
    assert re.search(wanted, f"{caught.value} {caught.value.__cause__}")


@pytest.mark.parametrize("transform", ["grad", "jvp", "jit"])
def test_a_number_of_a_comparison_is_a_branch(transform):
    def f(x):
        sign = float(x[0] >= 0.5) - int(x[1] < 0.0)
        return np.sum(x**2) * (1.0 + sign) + abs(x[2] - 2.0 * sign)

    np.testing.assert_allclose(TRANSFORMS[transform](f), differences(f, X), rtol=1e-8)
    np.testing.assert_allclose(pb.jit(f)(-X), f(-X))


def test_vectorize_takes_arguments_by_keyword():
    def f(x):
        return np.sum(np.vectorize(lambda t, c, k: c * t**k, excluded=["k"])(x, c=x[::-1], k=3) * WEIGHTS)

    np.testing.assert_allclose(pb.grad(f)(X), differences(f, X), rtol=1e-8)


def test_a_module_of_scipy_that_the_function_imports_itself_has_its_rules_at_once(tmp_path):
    lines = (
        "import numpy as np, pullback as pb",
        "def f(x):",
        "    from scipy import integrate",
        "    return integrate.simpson(x**2, dx=0.5)",
        "print(pb.grad(f)(np.ones(3)).tolist())",
    )
    program = tmp_path / "imports_inside.py"
    program.write_text("\n".join(lines))
    found = subprocess.run([sys.executable, str(program)], capture_output=True, text=True, check=False)
    assert (found.stdout, found.stderr) == (f"{[2 * w / 6 for w in (1.0, 4.0, 1.0)]}\n", "")


def test_a_helper_that_is_defined_again_may_fill_arrays():
    known = {"np": np}
    exec("def helper(x): return np.sin(x)\ndef f(x): return np.sum(helper(x) ** 2)", known)
    x = np.array([0.5, 1.0, 2.0])
    np.testing.assert_allclose(pb.grad(known["f"])(x), np.sin(2 * x))
    exec("def helper(x):\n y = np.zeros(3)\n y[0] = x[0]\n y[1:] = x[1:] ** 2\n return y", known)
    np.testing.assert_allclose(pb.grad(known["f"])(x), [2 * x[0], *(4 * x[1:] ** 3)])


def test_results_of_filled_arrays_are_what_the_arguments_are():
    def f(x):
        y = np.zeros(3)
        for i in range(3):
            y[i] = x[i] ** 2
        return y

    def loss(x):
        return np.sum((f(x) - 1) ** 2)

    x = np.array([0.5, 1.0, 2.0])
    calls = {
        "jvp": lambda x: pb.jvp(f, (x,), (x,)),
        "linearize": lambda x: pb.linearize(f, x)[0],
        "vmap": lambda x: pb.vmap(f)(pb.stack([x, x])),
        "argmin": lambda x: pb.argmin(loss, x),
        "jit": lambda x: pb.jit(f)(x),
        "hessian": lambda x: pb.hessian(loss)(x),
    }
    for name, call in calls.items():
        assert {type(leaf) for leaf in pb.tree.leaves(call(x))} == {np.ndarray}, name
        assert {type(leaf) for leaf in pb.tree.leaves(call(pb.tensor(x)))} == {pb.Tensor}, name


def test_functions_of_libraries_are_no_helpers_without_rules():
    from numpy.polynomial import chebyshev

    from pullback.ops.user_calls import _find_helpers

    known = {"np": np, "weight": chebyshev.chebweight}
    exec("def own(x): return np.sin(x)\ndef by_own(x): return own(x)\ndef by_numpy(x): return weight(x)", known)
    assert [name for _, name, _ in _find_helpers(known["by_own"], {})] == ["own"]
    assert _find_helpers(known["by_numpy"], {}) is None
