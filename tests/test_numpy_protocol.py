"""NumPy's own functions on our values: values as NumPy's, derivatives to second order, honest refusals."""

import inspect
import re

import numpy as np
import pytest
from numpy_calls import ARRAYS, BUILT_ELSEWHERE, PLAIN, SMOOTH, calls, run

import pullback as pb
from pullback import errors
from pullback.ops.protocol import table

STEP = 1e-6


def resolved(expression):
    """Whether the package has what a call needs."""
    try:
        kind = next(kind for kind, text in calls(BUILT_ELSEWHERE) if text == expression)
        run(expression, pb.tensor(ARRAYS[kind]))
    except errors.UnsupportedFunction:
        return False
    return True


THERE = [case for case in calls(BUILT_ELSEWHERE) if resolved(case[1])]
DIFFERENTIATED = calls(SMOOTH) + [case for case in THERE if "matrix_rank" not in case[1]]


def bare(x):
    return x.detach().numpy() if isinstance(x, pb.Tensor) else np.asarray(x)


@pytest.mark.parametrize(("kind", "expression"), calls(SMOOTH) + calls(PLAIN) + THERE)
@pytest.mark.parametrize("tracked", [False, True])
def test_value_shape_and_dtype_are_numpys(kind, expression, tracked):
    wanted = run(expression, ARRAYS[kind].copy())
    found = run(expression, pb.tensor(ARRAYS[kind], requires_grad=tracked))
    if isinstance(wanted, (bool, str, tuple, int, type, np.dtype)):
        assert found == wanted
        assert type(found) is type(wanted)
        return
    np.testing.assert_allclose(bare(found), wanted, rtol=1e-12, atol=1e-13)
    assert (bare(found).shape, bare(found).dtype) == (np.shape(wanted), np.asarray(wanted).dtype)


@pytest.mark.parametrize(("kind", "expression"), calls(SMOOTH) + THERE)
def test_float32_stays_float32_as_with_numpy(kind, expression):
    x = ARRAYS[kind].astype(np.float32)
    wanted = np.asarray(run(expression, x.copy()))
    leaf = pb.tensor(x, requires_grad=True)
    found = run(expression, leaf)
    if "bincount" not in expression:  # NumPy adds its weights up in double precision always
        assert np.asarray(bare(found)).dtype == wanted.dtype
    if isinstance(found, pb.Tensor) and found.requires_grad:
        (gradient,) = pb.gradients(pb.sum(pb.real(found)), [leaf], allow_unused=True)
        assert (gradient.dtype, gradient.shape) == (leaf.dtype, leaf.shape)


def scalar_of(expression, weights):
    """One number of a call, in which every element counts."""

    def f(x):
        out = run(expression, x)
        return np.sum(out * weights)

    return f


@pytest.mark.parametrize(("kind", "expression"), DIFFERENTIATED)
def test_derivatives_agree_with_differences_of_numpys_values(kind, expression):
    x = ARRAYS[kind]
    rng = np.random.default_rng(5)
    direction = np.asarray(np.where(np.isnan(x), 0.0, rng.normal(size=x.shape)))
    shape = np.shape(run(expression, x.copy()))
    f = scalar_of(expression, np.asarray(rng.normal(size=shape)))
    slope = (f(x + STEP * direction) - f(x - STEP * direction)) / (2 * STEP)
    gradient = pb.grad(f)(x)
    assert gradient.shape == x.shape
    np.testing.assert_allclose(np.sum(gradient * direction), slope, rtol=2e-6, atol=2e-6)
    _, tangent = pb.jvp(f, (x,), (direction,))
    np.testing.assert_allclose(tangent, np.sum(gradient * direction), rtol=1e-9, atol=1e-11)
    bend = (pb.grad(f)(x + STEP * direction) - pb.grad(f)(x - STEP * direction)) / (2 * STEP)
    _, second = pb.jvp(pb.grad(f), (x,), (direction,))
    np.testing.assert_allclose(second, bend, rtol=1e-5, atol=1e-5)
    back = pb.grad(lambda t: pb.sum(pb.grad(f)(t) * direction))(x)
    np.testing.assert_allclose(back, second, rtol=1e-8, atol=1e-9)


def test_every_function_of_the_table_is_called():
    text = SMOOTH + PLAIN + BUILT_ELSEWHERE
    apart = {"copyto", "put", "place", "putmask", "put_along_axis", "fill_diagonal"}
    missing = [name for name in table.known_names() if name not in apart and not re.search(rf"np\.{name}\(", text)]
    assert missing == []


def numpy_function(name):
    found = np
    for part in name.split("."):
        found = getattr(found, part)
    return found


@pytest.mark.parametrize("name", table.known_names())
def test_signature_is_numpys(name):
    """Every parameter of NumPy's function is there under its name, kind and default, to be honoured or refused."""
    try:
        ours = table.function_for(numpy_function(name))
    except errors.UnsupportedFunction:
        pytest.skip("its op is built elsewhere")
    theirs = inspect.signature(numpy_function(name)).parameters
    if ours.__name__ == "call":  # forwarded: bound by NumPy's own signature
        return
    mine = inspect.signature(ours).parameters
    if any(p.kind is p.VAR_KEYWORD for p in mine.values()) and name == "array2string":
        return
    assert list(mine) == [n for n in theirs if n != "like"]
    for n, parameter in mine.items():
        assert (parameter.kind, n) == (theirs[n].kind, n)
        if theirs[n].default not in (np._NoValue, inspect.Parameter.empty) and name not in ("asarray", "asanyarray"):
            assert parameter.default == theirs[n].default, n


def test_what_is_not_resolved_is_known():
    """The table may name functions that the package does not have; none may be forgotten there."""
    unresolved = []
    for name in table.known_names():
        try:
            table.function_for(numpy_function(name))
        except errors.UnsupportedFunction:
            unresolved.append(name)
    assert all(name.startswith(("linalg.", "fft.", "i0")) for name in unresolved), unresolved


REFUSED = {
    "order": lambda x: np.copy(x, order="F"),
    "device": lambda x: np.zeros_like(x, device="gpu"),
    "reflect_type": lambda x: np.pad(x, 1, mode="reflect", reflect_type="odd"),
    "mode": lambda x: np.pad(x, 1, mode="linear_ramp"),
    "writeable": lambda x: np.lib.stride_tricks.sliding_window_view(x, 2, writeable=True),
    "weights": lambda x: np.histogram2d(x, x, weights=x),
    "order of einsum": lambda x: np.einsum("i->", x, order="F"),
    "axes": lambda x: np.matmul(x, x, axes=[(0,), (0,), ()]),
    "out": lambda x: np.cumsum(x, out=np.empty(3)),
}


@pytest.mark.parametrize("what", REFUSED)
def test_keywords_without_a_rule_are_refused_by_name(what):
    with pytest.raises(errors.UnsupportedFunction, match=what.split()[0]):
        REFUSED[what](pb.tensor([1.0, 2.0, 3.0], requires_grad=True))


def test_unknown_functions_say_how_to_register_a_rule():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    with pytest.raises(errors.UnsupportedFunction, match=r"register_numpy\(np\.sort_complex\)"):
        np.sort_complex(x)

    @pb.register_numpy(np.sort_complex)
    def ours(a):
        return a * (1 + 0j)

    try:
        assert np.sort_complex(x).requires_grad
        assert ours(x).dtype == np.complex128
    finally:
        from pullback.ops import protocol

        del protocol._functions[np.sort_complex]


def test_ufuncs_of_users_are_registered_too():
    twice = np.frompyfunc(lambda t: 2 * t, 1, 1)
    pb.register_numpy(twice)(lambda t: t * 2)
    x = pb.tensor([1.0], requires_grad=True)
    twice(x).backward()
    assert x.grad.tolist() == [2.0]
    with pytest.raises(errors.ArgumentError, match="function"):
        pb.register_numpy(3)


def in_place(change, x, *more):
    """A function that works in place, as a function of the values it reads."""
    target = pb.tensor(x) if isinstance(x, np.ndarray) else x.copy()
    change(target, *more)
    return target


IN_PLACE = {
    "copyto": lambda t, v: np.copyto(t, v),
    "copyto where": lambda t, v: np.copyto(t, v, where=np.array([True, False, True, False])),
    "put": lambda t, v: np.put(t, [0, -1], v[:2]),
    "put wrap": lambda t, v: np.put(t, [5], v[0], mode="wrap"),
    "put clip": lambda t, v: np.put(t, [9], v[0], mode="clip"),
    "place": lambda t, v: np.place(t, [True, False, True, True], v[:2]),
    "putmask": lambda t, v: np.putmask(t, np.array([True, False, False, True]), v[:2]),
    "put_along_axis": lambda t, v: np.put_along_axis(t, np.array([2, 0]), v[:2], 0),
    "put_along_axis flat": lambda t, v: np.put_along_axis(t, np.array([2, 0]), v[:2], None),
    "nan_to_num": lambda t, v: np.nan_to_num(t, copy=False),
    "at": lambda t, v: np.add.at(t, [0, 0, 2], v[:3]),
    "subtract.at": lambda t, v: np.subtract.at(t, np.array([1, 1]), v[:2]),
    "multiply.at": lambda t, v: np.multiply.at(t, [0, 0, 3], v[:3]),
    "negative.at": lambda t, v: np.negative.at(t, [0, 0, 3]),
    "out": lambda t, v: np.multiply(v, 2.0, out=t),
    "out of a sum": lambda t, v: np.cumsum(v, 0, None, t),
    "out and where": lambda t, v: np.sin(v, out=t, where=np.array([True, False, True, False])),
    "divmod": lambda t, v: np.divmod(v, 0.8, out=(None, t)),
}


@pytest.mark.parametrize("what", IN_PLACE)
def test_functions_that_write_point_the_tensor_at_the_result(what):
    change, a, b = IN_PLACE[what], np.array([1.0, 2.0, 3.0, 4.0]), np.array([0.5, 1.5, -2.5, 3.5])
    wanted = a.copy()
    change(wanted, b.copy())
    np.testing.assert_array_equal(in_place(change, a, pb.tensor(b)).numpy(), wanted)
    assert pb.gradcheck(lambda x: pb.sum(in_place(change, x, b) ** 2), a).ok
    assert pb.gradcheck(lambda x: pb.sum(in_place(change, a, x) ** 2), b).ok


def test_fill_diagonal_writes():
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    y = np.zeros_like(x * np.ones((2, 2)))
    np.fill_diagonal(y, x)
    assert y.tolist() == [[1.0, 0.0], [0.0, 2.0]]
    pb.sum(y * y).backward()
    assert x.grad.tolist() == [2.0, 4.0]


@pytest.mark.parametrize("kind", ["vmap", "stage"])
def test_numpy_functions_inside_other_transforms(kind):
    def f(x):
        return np.sum(np.where(x > 0, np.sin(x), np.gradient(x)) * np.convolve(x, [1.0, 2.0], "same"))

    x = np.random.default_rng(1).normal(size=(3, 5))
    if kind == "vmap":
        np.testing.assert_allclose(pb.vmap(pb.grad(f))(x), np.stack([pb.grad(f)(row) for row in x]), rtol=1e-12)
        g = pb.vmap(lambda a, b: np.interp(a, b, b**2))(x, np.sort(x, axis=1))
        np.testing.assert_allclose(g, np.stack([np.interp(a, np.sort(a), np.sort(a) ** 2) for a in x]), rtol=1e-12)
        return
    from pullback.transforms.stage import stage

    np.testing.assert_allclose(stage(pb.grad(f))(x[0]).run(x[0]), pb.grad(f)(x[0]), rtol=1e-13)


def test_foreign_array_types_have_their_turn():
    class Other:
        def __array_function__(self, function, types, args, kwargs):
            return "other"

    assert np.concatenate([pb.ones(2), Other()]) == "other"


@pytest.mark.parametrize(
    "call", [lambda x: np.nonzero(x), lambda x: np.unique(x), lambda x: np.repeat(x, x.astype(int))]
)
def test_results_whose_shape_depends_on_values_refuse_inside_vmap(call):
    with pytest.raises(errors.ConversionError):
        pb.vmap(call)(np.ones((2, 3)))


def test_no_function_that_numpy_dispatches_falls_back_to_a_bare_array():
    """Whatever the table does not know raises; nothing computes around it."""
    from numpy.testing.overrides import get_overridable_numpy_array_functions

    known = set(table.known_names())
    x = pb.tensor([1.0, 2.0], requires_grad=True)
    for function in get_overridable_numpy_array_functions():
        if table.name_of(function) not in known:
            with pytest.raises(errors.UnsupportedFunction):
                x.__array_function__(function, (pb.Tensor,), (x,), {})


@pytest.mark.parametrize("exponent", [2, 2.0, 0.5])
@pytest.mark.parametrize("base", [[1, 2, 3], [True, False], [1.0, 2.0, 3.0]])
def test_np_power_of_integers_by_two_point_zero_has_numpys_dtype(base, exponent):
    """It was squared in integers, so 2.0 counted as 2."""
    found, wanted = np.power(pb.tensor(base), exponent), np.power(np.array(base), exponent)
    assert found.dtype == wanted.dtype
    assert np.array_equal(found.numpy(), wanted)


@pytest.mark.skipif(not hasattr(np, "vecdot"), reason="newer than this NumPy")
def test_np_vecdot_of_a_vector_of_one_element_does_not_broadcast():
    """The summed axis was broadcast, where NumPy refuses."""
    with pytest.raises(errors.ShapeError, match="do not match"):
        np.vecdot(pb.tensor(np.ones(3)), np.ones(1))
