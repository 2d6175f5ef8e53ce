"""What each transform takes, what it hands back, what it refuses, and that it leaves nothing behind."""

import collections
import concurrent.futures
import contextvars
import functools
import threading

import numpy as np
import pytest

import pullback as pb
from pullback import errors
from pullback.arrays.scope import current_scope
from pullback.settings import modes
from pullback.tape.sweep import Sweep

XS = np.array([1.0, 2.0, 3.0])
Pair = collections.namedtuple("Pair", "a b")


def number(x):
    return float(x.detach() if isinstance(x, pb.Tensor) else x)


def same(found, wanted, rtol=1e-13):
    np.testing.assert_allclose(np.asarray(found), wanted, rtol=rtol, atol=1e-15)


def cubes(x):
    return pb.sum(x**3)


# Which argument.


def weighted(x, y, z):
    return pb.sum(x * y * y * z)


@pytest.mark.parametrize(
    ("argnums", "wanted"),
    [
        (0, 18.0),
        (1, 24.0),
        (-1, 18.0),
        (-3, 18.0),
        ((0,), (18.0,)),
        ((2, 0), (18.0, 18.0)),
        ([1, -1], (24.0, 18.0)),
        ((), ()),
    ],
)
def test_argnums(argnums, wanted):
    found = pb.grad(weighted, argnums)(2.0, 3.0, 2.0)
    assert isinstance(found, tuple) == isinstance(wanted, tuple)
    same(found, wanted)
    value, found = pb.value_and_grad(weighted, argnums)(2.0, 3.0, 2.0)
    assert value == 36.0
    same(found, wanted)


@pytest.mark.parametrize("argnums", [3, -4, (0, 5), (0, 0), (0, -3), True, 0.0, "0", None, (1, None)])
def test_argnums_that_name_no_argument_or_one_twice(argnums):
    for transform in (pb.grad, pb.value_and_grad):
        with pytest.raises(errors.ArgumentError, match="argnums"):
            transform(weighted, argnums)(2.0, 3.0, 2.0)


@pytest.mark.parametrize("argnums", [(0, 1), ()])
def test_elementwise_grad_wants_one_argument(argnums):
    with pytest.raises(errors.ArgumentError, match="argnums"):
        pb.elementwise_grad(weighted, argnums)(2.0, 3.0, 2.0)


def test_arguments_to_differentiate_are_passed_by_position():
    with pytest.raises(errors.ArgumentError, match="by position"):
        pb.grad(lambda x: x * x)(x=2.0)


def test_keyword_arguments_pass_through():
    def f(x, *, power, scale=1.0):
        return scale * x**power

    assert pb.grad(f)(2.0, power=3) == 12.0
    assert pb.grad(f)(2.0, power=3, scale=2.0) == 24.0
    value, found = pb.value_and_grad(f)(2.0, power=2)
    assert (value, found) == (4.0, 4.0)
    assert pb.elementwise_grad(f)(2.0, power=2) == 4.0


def test_arguments_that_are_not_differentiated_may_be_anything():
    found = pb.grad(lambda x, name, k, flags: x**k if name == "cube" and flags["on"] else x)(2.0, "cube", 3, {"on": 1})
    assert found == 12.0


def test_the_wrapper_keeps_the_name_and_takes_any_callable():
    def energy(x):
        """Of a spring."""
        return x * x

    class Model:
        weight = 3.0

        def __call__(self, x):
            return self.weight * x * x

        def loss(self, x):
            return self(x)

    for transform in (pb.grad, pb.value_and_grad, pb.vmap, pb.elementwise_grad):
        assert transform(energy).__name__ == "energy"
        assert transform(energy).__doc__ == "Of a spring."
    assert pb.grad(Model())(2.0) == 12.0
    assert pb.grad(Model().loss)(2.0) == 12.0
    assert pb.grad(functools.partial(weighted, y=3.0, z=2.0))(2.0) == 18.0
    assert pb.grad(np.sin)(0.0) == 1.0


# What is returned beside the value.


def test_aux_is_handed_out_as_it_is():
    note = object()
    found, aux = pb.grad(lambda x: (x * x, {"twice": 2 * x, "note": note, "n": 3, "none": None}), has_aux=True)(3.0)
    assert found == 6.0
    assert isinstance(aux["twice"], np.ndarray)
    assert aux["twice"] == 6.0
    assert aux["note"] is note
    assert aux["n"] == 3
    assert aux["none"] is None
    (value, aux), found = pb.value_and_grad(lambda x: (x * x, x), has_aux=True)(3.0)
    assert (value, aux, found) == (9.0, 3.0, 6.0)
    value, pull, aux = pb.vjp(lambda x: (x * x, x + 1.0), 3.0, has_aux=True)
    assert (value, aux, pull(1.0)[0]) == (9.0, 4.0, 6.0)
    value, tangent, aux = pb.jvp(lambda x: (x * x, x + 1.0), (3.0,), (1.0,), has_aux=True)
    assert (value, tangent, aux) == (9.0, 6.0, 4.0)


@pytest.mark.parametrize("result", [3.0, (1.0, 2.0, 3.0), [1.0, 2.0], None])
def test_aux_wants_a_pair(result):
    with pytest.raises(errors.ArgumentError, match="aux"):
        pb.grad(lambda x: result, has_aux=True)(1.0)
    with pytest.raises(errors.ArgumentError, match="aux"):
        pb.jvp(lambda x: result, (1.0,), (1.0,), has_aux=True)
    with pytest.raises(errors.ArgumentError, match="aux"):
        pb.vjp(lambda x: result, 1.0, has_aux=True)


def aux_of(transform):
    """A function of w through what a transform returned beside the value: x^2 w at x = 2."""

    def inner(w):
        def f(x):
            shared = x * x
            return shared, shared * w

        if transform == "grad":
            return pb.grad(f, has_aux=True)(2.0)[1]
        if transform == "value_and_grad":
            return pb.value_and_grad(f, has_aux=True)(2.0)[0][1]
        if transform == "vjp":
            return pb.vjp(f, 2.0, has_aux=True)[2]
        return pb.jvp(f, (2.0,), (1.0,), has_aux=True)[2]

    return inner


@pytest.mark.parametrize("inner", ["grad", "value_and_grad", "vjp", "jvp"])
def test_aux_carries_the_derivatives_of_outer_transforms(inner):
    f = aux_of(inner)
    assert number(pb.grad(f)(3.0)) == 4.0
    assert number(pb.jvp(f, (3.0,), (1.0,))[1]) == 4.0
    same(pb.vmap(pb.grad(f))(XS), [4.0, 4.0, 4.0])


@pytest.mark.parametrize("inner", ["grad", "value_and_grad", "vjp", "jvp"])
def test_aux_carries_the_derivatives_of_a_tape(inner):
    w = pb.tensor(3.0, requires_grad=True)
    aux_of(inner)(w).backward()
    assert w.grad.item() == 4.0


# What goes in: trees, numbers, dtypes.


@pytest.mark.parametrize(
    "tree",
    [
        {"a": 2.0, "b": 3.0},
        collections.OrderedDict([("b", 3.0), ("a", 2.0)]),
        collections.defaultdict(float, {"a": 2.0, "b": 3.0}),
        Pair(2.0, 3.0),
        (2.0, 3.0),
        [2.0, 3.0],
        collections.deque([2.0, 3.0]),
        {"a": {"x": [2.0]}, "b": (3.0, None, {})},
    ],
    ids=lambda tree: type(tree).__name__,
)
def test_trees_come_back_as_they_are(tree):
    def leaf(t):
        while not hasattr(t, "shape"):
            t = next(iter(t.values())) if isinstance(t, dict) else t[0]
        return t

    def f(t):
        a, b = (t["a"], t["b"]) if isinstance(t, dict) else t
        return leaf(a) ** 2 * leaf(b)

    arrays = pb.grad(f)(tree)
    assert type(arrays) is type(tree)
    a, b = (arrays["a"], arrays["b"]) if isinstance(arrays, dict) else arrays
    assert (leaf(a), leaf(b)) == (12.0, 4.0)
    if isinstance(tree, dict):
        assert list(arrays) == list(tree)
    (pulled,) = pb.vjp(f, tree)[1](1.0)
    assert pulled == arrays
    assert pb.jvp(f, (tree,), (tree,))[1] == 2 * 12 + 3 * 4
    assert pb.linearize(f, tree)[1](tree) == 2 * 12 + 3 * 4
    assert type(pb.hvp(f, (tree,), (tree,))) is type(tree)


@pytest.mark.parametrize("empty", [{}, (), [], None, {"a": None, "b": ()}])
def test_empty_trees(empty):
    assert pb.grad(lambda t: 1.0)(empty) == empty
    assert pb.vjp(lambda t: 1.0, empty)[1](np.ones(())) == (empty,)
    assert pb.jvp(lambda t: 1.0, (empty,), (empty,)) == (1.0, 0.0)
    found = pb.vmap(lambda t, x: (t, x))(empty, XS)
    assert found[0] == empty


def test_results_are_trees_too():
    def f(x):
        return {"sum": pb.sum(x), "both": (x, None, Pair(x * x, 1.0))}

    value, pull = pb.vjp(f, XS)
    assert value["both"][1] is None
    assert isinstance(value["both"][2], Pair)
    bars = {"sum": 2.0, "both": (np.ones(3), None, Pair(XS, 5.0))}
    same(pull(bars)[0], 3.0 + 2 * XS * XS)
    _, tangent = pb.jvp(f, (XS,), (np.ones(3),))
    assert tangent["sum"] == 3.0
    assert tangent["both"][2].b == 0.0
    same(tangent["both"][2].a, 2 * XS)
    pushed = pb.linearize(f, XS)[1](np.ones(3))
    same(pushed["both"][2].a, 2 * XS)
    found = pb.vmap(lambda x: {"a": x, "b": (2.0 * x, None)})(XS)
    same(found["b"][0], 2 * XS)


def test_a_cotangent_or_tangent_of_another_structure_is_refused():
    _, pull = pb.vjp(lambda x: {"a": x}, XS)
    for bar in (XS, {"b": XS}, {"a": (XS,)}, [XS]):
        with pytest.raises(errors.ArgumentError, match="differ"):
            pull(bar)
    with pytest.raises(errors.ArgumentError, match="differ"):
        pb.jvp(lambda t: t["a"], ({"a": XS},), ({"b": XS},))
    _, push = pb.linearize(lambda t: t["a"], {"a": XS})
    with pytest.raises(errors.ArgumentError, match="differ"):
        push(XS)


def test_a_cotangent_or_tangent_of_another_shape_or_kind_is_refused():
    _, pull = pb.vjp(lambda x: x * x, XS)
    with pytest.raises(errors.ShapeError):
        pull(np.ones(2))
    with pytest.raises(errors.DtypeError):
        pull(np.ones(3, complex))
    with pytest.raises(errors.ShapeError, match=r"\(2,\).*\(3,\)"):
        pb.jvp(lambda x: x, (XS,), (np.ones(2),))
    with pytest.raises(errors.DtypeError):
        pb.jvp(lambda x: x, (XS,), (np.ones(3, complex),))
    with pytest.raises(errors.ShapeError):
        pb.linearize(lambda x: x, XS)[1](np.ones(()))
    for primals, tangents in [((XS,), ()), ((XS,), (XS, XS)), (XS, XS), ((XS,), XS)]:
        for transform in (pb.jvp, pb.hvp):
            with pytest.raises(errors.ArgumentError):
                transform(cubes, primals, tangents)


class Line:
    def __init__(self, slope, height):
        self.slope, self.height = slope, height


pb.register_tree(Line, lambda line: ((line.slope, line.height), "rest"), lambda rest, both: Line(*both))


def test_a_registered_class_is_a_tree_everywhere():
    def f(line):
        return line.slope**2 * line.height

    line = Line(2.0, 3.0)
    found = pb.grad(f)(line)
    assert (found.slope, found.height) == (12.0, 4.0)
    assert pb.jvp(f, (line,), (Line(1.0, 0.0),))[1] == 12.0
    assert pb.hvp(f, (line,), (Line(1.0, 0.0),)).slope == 6.0
    batch = Line(XS, 3.0)
    found = pb.vmap(pb.grad(f), (Line(0, None),), Line(0, 0))(batch)
    same(found.slope, 6 * XS)
    with pytest.raises(errors.ArgumentError):
        pb.vmap(f, (0, 0))(batch)


@pytest.mark.parametrize(
    ("x", "dtype"),
    [
        (2.0, np.float64),
        (np.float64(2.0), np.float64),
        (np.float32(2.0), np.float32),
        (np.float16(2.0), np.float16),
        (np.array(2.0), np.float64),
        (np.array([2.0], np.float32), np.float32),
        (np.array([[2.0]], np.float16), np.float16),
        (np.longdouble(2.0), np.longdouble),
        (np.zeros((0, 3), np.float32), np.float32),
    ],
)
def test_the_gradient_has_the_shape_and_dtype_of_its_argument(x, dtype):
    for found in (pb.grad(cubes)(x), pb.vjp(cubes, x)[1](np.ones((), dtype))[0], pb.elementwise_grad(pb.square)(x)):
        assert isinstance(found, np.ndarray)
        assert (found.shape, found.dtype) == (np.shape(x), dtype)
    value, tangent = pb.jvp(lambda x: x * x, (x,), (x,))
    assert (tangent.shape, tangent.dtype, value.dtype) == (np.shape(x), dtype, dtype)
    assert pb.linearize(lambda x: x * x, x)[1](x).dtype == dtype


@pytest.mark.parametrize("x", [1, True, np.int32(2), np.arange(3), np.ones(2, bool), "text", {"a": (1.0, 2)}])
def test_what_cannot_be_differentiated_is_refused_and_named(x):
    for call in (
        lambda: pb.grad(lambda x: 1.0)(x),
        lambda: pb.vjp(lambda x: 1.0, x),
        lambda: pb.linearize(lambda x: 1.0, x),
        lambda: pb.jvp(lambda x: 1.0, (x,), (x,)),
        lambda: pb.linear_transpose(lambda x: x, x),
    ):
        with pytest.raises(errors.DtypeError, match=r"only floating-point and complex|arrays of numbers"):
            call()


def test_the_refusal_says_where_in_the_tree():
    with pytest.raises(errors.DtypeError, match=r"\['layers'\]\[1\] is int64\[3\]"):
        pb.grad(lambda p: 1.0)({"layers": [XS, np.arange(3)]})


def test_integers_are_fine_where_nothing_moves():
    found = pb.grad(lambda x, i: pb.sum(x[i]))(XS, np.array([0, 0, 2]))
    same(found, [2.0, 0.0, 1.0])
    _, tangent = pb.jvp(lambda x, i: x[i], (XS, np.array([0, 0, 2])), (XS, None))
    same(tangent, [1.0, 1.0, 3.0])
    assert pb.jvp(lambda x, n: x * n, (2.0, 3), (1, None)) == (6.0, 3.0)


def test_hvp_leaves_out_what_does_not_move():
    found = pb.hvp(lambda x, n: pb.sum(x**3) * n, (XS, 2), (np.ones(3), None))
    same(found[0], 12 * XS)


def test_complex_gradients_point_in_the_direction_of_steepest_ascent():
    z = np.array([1.0 + 2.0j, -0.5 + 0.1j])
    same(pb.grad(lambda z: pb.sum(pb.real(z * pb.conj(z))))(z), 2 * z)
    same(pb.grad(lambda z: pb.sum(pb.real(z * z)))(z), 2 * np.conj(z))
    same(pb.grad(lambda z: pb.sum(pb.imag(z)))(z), [1j, 1j])
    step = pb.grad(lambda z: pb.sum(pb.abs(z) ** 2))(z)
    assert np.sum(np.abs(z + 1e-3 * step) ** 2) > np.sum(np.abs(z) ** 2)
    _, tangent = pb.jvp(lambda z: z * z, (z,), (1j * np.ones(2),))
    same(tangent, 2j * z)
    same(pb.grad(lambda x: pb.real((x + 2j) ** 2))(3.0), 6.0)


def test_a_complex_result_has_no_gradient():
    with pytest.raises(errors.DtypeError, match="complex128"):
        pb.grad(lambda z: z * z)(1.0 + 2.0j)


# What comes out: constants, inputs, nothing at all.


def test_functions_that_do_not_depend_on_their_argument():
    assert pb.grad(lambda x: 3.0)(2.0) == 0.0
    same(pb.grad(lambda x, y: pb.sum(y))(XS, XS), np.zeros(3))
    same(pb.grad(lambda x: pb.sum(np.ones(2)))(XS), np.zeros(3))
    same(pb.grad(lambda x: pb.sum(pb.stop_gradient(x) ** 2))(XS), np.zeros(3))
    assert pb.jvp(lambda x: 3.0, (2.0,), (1.0,)) == (3.0, 0.0)
    _value, pull = pb.vjp(lambda x: np.float32(3.0), XS)
    same(pull(np.float32(1.0))[0], np.zeros(3))
    _, push = pb.linearize(lambda x: (3.0, x), XS)
    assert push(XS)[0] == 0.0
    assert pb.hvp(lambda x: 2.0 * x, (3.0,), (1.0,)) == 0.0
    same(pb.vmap(lambda x: 3.0)(XS), [3.0, 3.0, 3.0])


def test_functions_that_return_their_argument():
    value, pull = pb.vjp(lambda x: x, XS)
    same(value, XS)
    same(pull(2 * XS)[0], 2 * XS)
    same(pb.vjp(lambda x: (x, x), XS)[1]((XS, XS))[0], 2 * XS)
    assert pb.grad(lambda x: x)(5.0) == 1.0
    value, tangent = pb.jvp(lambda x: x, (XS,), (2 * XS,))
    same(tangent, 2 * XS)
    same(pb.linearize(lambda x: x, XS)[1](2 * XS), 2 * XS)
    same(pb.vmap(lambda x: x)(XS), XS)


@pytest.mark.parametrize("result", [True, 3, "text", 1j])
def test_a_gradient_is_of_a_real_number(result):
    with pytest.raises(errors.DtypeError, match=r"grad: the function returned|arrays of numbers"):
        pb.grad(lambda x: result)(1.0)


@pytest.mark.parametrize("result", [None, (1.0, 2.0), [1.0], {"a": 1.0}, np.ones(2), np.zeros(0)])
def test_a_gradient_is_of_one_number(result):
    with pytest.raises(errors.ArgumentError, match="wanted a scalar"):
        pb.grad(lambda x: result)(1.0)


def test_one_element_counts_as_a_number():
    same(pb.grad(lambda x: x * x)(np.array([3.0])), [6.0])
    same(pb.grad(lambda x: pb.reshape(x * x, (1, 1)))(3.0), 6.0)


def test_the_same_array_passed_twice():
    found = pb.grad(lambda x, y: pb.sum(x * y * y), (0, 1))(XS, XS)
    same(found[0], XS * XS)
    same(found[1], 2 * XS * XS)
    _, pull = pb.vjp(lambda x, y: pb.sum(x - y), XS, XS)
    same(pull(1.0), [np.ones(3), -np.ones(3)])
    w = pb.tensor(2.0, requires_grad=True)
    first, second = pb.grad(lambda x, y: x * y * y, (0, 1))(w, w)
    assert (first.item(), second.item()) == (4.0, 8.0)
    (first + second).backward()
    assert w.grad.item() == 12.0  # y^2 + 2 x y with x = y = w is 3 w^2


def test_arrays_in_arrays_out_and_tensors_in_tensors_out():
    plain, untracked = XS, pb.tensor(XS)
    for x, kind in ((plain, np.ndarray), (untracked, pb.Tensor)):
        value, found = pb.value_and_grad(cubes)(x)
        (pulled,) = pb.vjp(cubes, x)[1](1.0)
        pushed = pb.jvp(cubes, (x,), (x,))
        linear = pb.linearize(cubes, x)
        batched = pb.vmap(lambda x: x * x)(x)
        curved = pb.hvp(cubes, (x,), (x,))
        for out in (value, found, pulled, *pushed, linear[0], linear[1](x), batched, curved):
            assert isinstance(out, kind)
            assert not getattr(out, "requires_grad", False)
    mixed = pb.grad(lambda x, y: pb.sum(x * y), (0, 1))(untracked, plain)
    assert isinstance(mixed[0], pb.Tensor)
    assert isinstance(mixed[1], np.ndarray)


@pytest.mark.parametrize("f", [lambda x: x, lambda x: 2.0 * x, lambda x: pb.ones(3)])
def test_the_tangent_of_a_tensor_is_a_tensor(f):
    value, tangent = pb.jvp(f, (pb.tensor(XS),), (np.ones(3),))
    assert isinstance(value, pb.Tensor)
    assert isinstance(tangent, pb.Tensor)


def test_tracked_in_tracked_out():
    def f(x):
        return x**4

    w = pb.tensor(2.0, requires_grad=True)
    for out, wanted in (
        (pb.grad(f)(w), 48.0),
        (pb.value_and_grad(f)(w)[0], 32.0),
        (pb.vjp(f, w)[0], 32.0),
        (pb.vjp(f, w)[1](1.0)[0], 48.0),
        (pb.jvp(f, (w,), (1.0,))[0], 32.0),
        (pb.jvp(f, (w,), (1.0,))[1], 48.0),
        (pb.linearize(f, w)[0], 32.0),
        (pb.linearize(f, w)[1](1.0), 48.0),
        (pb.hvp(f, (w,), (1.0,)), 48.0),
        (pb.elementwise_grad(f)(w), 48.0),
        (pb.sum(pb.vmap(lambda x: f(x) * w)(XS)), 98.0),
        (pb.vmap(f, None, axis_size=1)(w)[0], 32.0),
    ):
        assert isinstance(out, pb.Tensor)
        assert out.requires_grad
        w.grad = None
        out.backward()
        assert w.grad.item() == pytest.approx(wanted)


@pytest.mark.parametrize("mode", ["grad", "jvp", "vjp", "linearize"])
def test_cotangents_and_tangents_that_are_tracked(mode):
    v = pb.tensor(5.0, requires_grad=True)
    if mode == "vjp":
        (out,) = pb.vjp(lambda x: x**3, 2.0)[1](v)
    elif mode == "jvp":
        out = pb.jvp(lambda x: x**3, (2.0,), (v,))[1]
    elif mode == "linearize":
        out = pb.linearize(lambda x: x**3, 2.0)[1](v)
    else:
        out = pb.ggnvp(lambda x: x**3, lambda y: y * y / 2, (2.0,), (v,)) / 12.0
    out.backward()
    assert v.grad.item() == 12.0


# Whose memory it is: what a caller writes later changes no derivative, and what we hand out is his own.


@pytest.mark.parametrize("transform", ["vjp", "linearize"])
def test_writing_to_the_argument_afterwards(transform):
    x = XS.copy()
    _, back = getattr(pb, transform)(lambda x: x * x, x)
    x[:] = 100.0
    found = back(np.ones(3))
    same(found[0] if transform == "vjp" else found, 2 * XS)


@pytest.mark.parametrize("transform", ["vjp", "linearize"])
def test_writing_to_a_captured_array_afterwards(transform):
    c = XS.copy()
    _, back = getattr(pb, transform)(lambda x: x * c, np.ones(3))
    c[:] = 100.0
    found = back(np.ones(3))
    same(found[0] if transform == "vjp" else found, XS)


@pytest.mark.parametrize("transform", ["vjp", "linearize"])
@pytest.mark.parametrize("f", [pb.exp, lambda x: (x, x * x)])
def test_writing_to_the_value_afterwards(transform, f):
    x = XS.copy()
    value, back = getattr(pb, transform)(f, x)
    start = pb.vjp(f, XS)[0] if transform == "vjp" else np.ones(3)
    once = np.array(back(start)[-1])
    for part in value if isinstance(value, tuple) else (value,):
        try:
            part[:] = 0.0
        except ValueError:  # handing out what cannot be written to is as good
            return
    same(back(start)[-1], once)


@pytest.mark.parametrize(
    "run",
    [
        lambda x: pb.jvp(lambda x: x, (x,), (np.ones(3),))[0],
        lambda x: pb.jvp(lambda x: x, (np.ones(3),), (x,))[1],
        lambda x: pb.linearize(lambda x: x, np.ones(3))[1](x),
        lambda x: pb.vmap(lambda x: x)(x),
        lambda x: pb.vmap(lambda y: x, out_axes=None)(np.ones(2)),
    ],
    ids=["jvp value", "jvp tangent", "push", "vmap", "vmap of a constant"],
)
def test_results_are_memory_of_their_own(run):
    x = XS.copy()
    found = run(x)
    try:
        found[...] = 100.0
    except ValueError:
        return
    same(x, XS)


def test_results_of_reverse_mode_are_memory_of_their_own():
    x, c = XS.copy(), XS.copy()
    for found in (
        pb.vjp(lambda x: x, x)[0],
        pb.vjp(lambda x: x, x)[1](c)[0],
        pb.grad(lambda x: pb.sum(x * c))(x),
        *pb.grad(lambda x, y: pb.sum((x + y) * c), (0, 1))(x, x),
    ):
        found[...] = 100.0
        same(x, XS)
        same(c, XS)
    first, second = pb.grad(lambda x, y: pb.sum(x + y), (0, 1))(x, x)
    first[...] = 100.0
    same(second, np.ones(3))


# In-place operations on the variables of a transform.


def doubled_then_squared(x):
    x *= 2.0
    return x * x


def filled_then_squared(x):
    x[0] = 5.0 * x[1]
    return pb.sum(x * x)


@pytest.mark.parametrize(
    ("name", "run"),
    [
        ("jvp", lambda f, x: pb.jvp(f, (x,), (1.0,))[1]),
        ("linearize", lambda f, x: pb.linearize(f, x)[1](1.0)),
        ("grad", lambda f, x: pb.grad(f)(x)),
        ("vjp", lambda f, x: pb.vjp(f, x)[1](1.0)[0]),
        ("value_and_grad", lambda f, x: pb.value_and_grad(f)(x)[1]),
        ("elementwise_grad", lambda f, x: pb.elementwise_grad(f)(x)),
        ("vmap of grad", lambda f, x: pb.vmap(pb.grad(f))(np.array([x, 1.0]))[0]),
    ],
)
def test_a_function_that_changes_its_variable_in_place(name, run):
    found = run(doubled_then_squared, 3.0)
    assert isinstance(found, (np.ndarray, np.generic))
    assert found == 24.0


def test_a_function_that_assigns_to_its_variable():
    # (5 y)^2 + y^2 + z^2
    same(pb.grad(filled_then_squared)(XS), [0.0, 52 * 2.0, 6.0])


def test_a_function_that_changes_its_variable_leaves_the_caller_s_tensor_alone():
    for x in (pb.tensor(3.0), pb.tensor(3.0, requires_grad=True)):
        for call in (
            lambda x: pb.grad(doubled_then_squared)(x),
            lambda x: pb.vjp(doubled_then_squared, x),
            lambda x: pb.jvp(doubled_then_squared, (x,), (1.0,)),
        ):
            call(x)
            assert x.item() == 3.0
            assert x.is_leaf
            assert x.grad is None


def test_changing_a_variable_under_no_grad_is_a_change_of_its_value():
    def f(x):
        with pb.no_grad():
            x -= 1.0
        return x * x

    assert pb.grad(f)(3.0) == 4.0


# vmap.


@pytest.mark.parametrize("in_axis", [0, 1, 2, -1, -2, -3])
@pytest.mark.parametrize("out_axis", [0, 1, 2, -1, -2, -3])
def test_axes_of_a_batch(in_axis, out_axis):
    a = np.arange(24.0).reshape(2, 3, 4)
    wanted = np.moveaxis(np.sin(np.moveaxis(a, in_axis, 0)), 0, out_axis)
    same(pb.vmap(pb.sin, in_axis, out_axis)(a), wanted)
    same(pb.vmap(lambda x: pb.sin(x) * pb.sum(x), in_axis, out_axis)(a).shape, wanted.shape)


def test_trees_of_axes():
    a, b, c = np.arange(6.0).reshape(2, 3), np.arange(3.0), 5.0
    found = pb.vmap(
        lambda p, s: {"sum": p["a"] + p["b"], "pair": (p["a"] * s, s)},
        ({"a": 1, "b": 0}, None),
        {"sum": 1, "pair": (0, None)},
    )({"a": a, "b": b}, c)
    same(found["sum"], a + b)
    same(found["pair"][0], a.T * c)
    same(found["pair"][1], c)
    same(pb.vmap(lambda x, y: x * y, [0, None])(b, c), b * c)
    same(pb.vmap(lambda x, y: x * y, (0, None), 0)(b, b), np.outer(b, b))
    same(pb.vmap(lambda t: t[0] * t[1][0], ((0, (None,)),))((b, (c,))), b * c)


def test_batched_keywords():
    same(pb.vmap(lambda x, *, w: x * w)(XS, w=XS), XS * XS)


@pytest.mark.parametrize(
    ("axes", "match"),
    [
        ({"in_axes": 3}, "axis 3"),
        ({"in_axes": -4}, "axis -4"),
        ({"out_axes": 5}, "axis 5"),
        ({"in_axes": "a"}, "in_axes"),
        ({"in_axes": 0.5}, "in_axes"),
        ({"in_axes": (0, 0)}, "in_axes"),
        ({"in_axes": ()}, "in_axes"),
        ({"in_axes": ({"a": 0},)}, "in_axes"),
        ({"out_axes": (0,)}, "out_axes"),
        ({"out_axes": {"a": 0}}, "out_axes"),
        ({"axis_size": 5}, "argument.0. has 2, axis_size says 5"),
        ({"in_axes": None}, "axis_size"),
    ],
)
def test_axes_that_make_no_sense(axes, match):
    with pytest.raises((errors.ArgumentError, errors.ShapeError), match=match):
        pb.vmap(lambda x: x, **axes)(np.ones((2, 3, 4)))


@pytest.mark.parametrize("axes", [{"in_axes": True}, {"axis_size": 2.0}, {"in_axes": None, "axis_size": -1}])
def test_axes_and_sizes_are_integers(axes):
    with pytest.raises(errors.ArgumentError, match=r"axis_size|in_axes"):
        pb.vmap(lambda x: x, **axes)(np.ones((2, 3, 4)))


def test_sizes_that_differ_are_named():
    with pytest.raises(errors.ShapeError, match=r"argument\[0\]\['a'\] has 2, argument\[1\] has 3"):
        pb.vmap(lambda p, x: p["a"] * x)({"a": np.ones(2)}, XS)
    with pytest.raises(errors.ShapeError, match=r"argument\['w'\] has 2"):
        pb.vmap(lambda x, *, w: x * w)(XS, w=np.ones(2))
    with pytest.raises(errors.ShapeError, match=r"argument\[1\] is float64\[\].*\n.*None"):
        pb.vmap(lambda x, y: x * y)(XS, 2.0)


def test_axis_size_alone():
    same(pb.vmap(lambda x: 2.0 * x, None, axis_size=3)(2.0), [4.0, 4.0, 4.0])
    same(pb.vmap(lambda: 1.0, axis_size=2)(), [1.0, 1.0])
    assert pb.vmap(lambda x: x, None, None, axis_size=3)(2.0) == 2.0


def test_out_axes_none():
    assert pb.vmap(lambda x: 3.0, out_axes=None)(XS) == 3.0
    with pytest.raises(errors.ArgumentError, match=r"differs by element \(float64\[\], made by multiply\)"):
        pb.vmap(lambda x: x * x, out_axes=None)(XS)


@pytest.mark.parametrize(
    "f",
    [
        lambda x: pb.sum(x),
        lambda x: pb.max(x),
        lambda x: x @ x,
        lambda x: pb.concat([x, x])[np.array([5, 0])],
        pb.grad(lambda x: pb.sum(x**2)),
        lambda x: pb.jvp(pb.sin, (x,), (x,))[1],
        pb.vmap(pb.sin),
    ],
)
def test_a_batch_of_none(f):
    found = pb.vmap(f)(np.zeros((0, 3)))
    assert found.shape == (0, *np.shape(f(np.ones(3))))


def test_nested_batches():
    a, b = np.arange(3.0), np.arange(4.0)
    same(pb.vmap(lambda x: pb.vmap(lambda y: x * y + x)(b))(a), np.outer(a, b) + a[:, None])
    same(pb.vmap(pb.vmap(lambda x, y: x - y, (None, 0)), (0, None))(a, b), a[:, None] - b)
    cube = np.arange(24.0).reshape(2, 3, 4)
    same(pb.vmap(pb.vmap(pb.vmap(lambda x: x * x, 0), 1), 1)(cube).shape, (3, 4, 2))


def test_a_branch_on_a_batched_value_says_what_and_what_else():
    def f(x):
        return x if pb.sum(x) > 0.0 else -x

    for run in (pb.vmap(f), pb.vmap(pb.elementwise_grad(f)), pb.vmap(lambda x: pb.jvp(f, (x,), (x,))[1])):
        with pytest.raises(errors.ConversionError) as caught:
            run(np.ones((2, 3)))
        for part in ("bool[]", "greater", "test_transforms.py", "pb.where", "pb.cond", "pb.while_loop"):
            assert part in str(caught.value)


def test_a_branch_on_what_all_elements_share_is_fine():
    same(pb.vmap(lambda x, s: x if s > 0 else -x, (0, None))(XS, 1.0), XS)
    same(pb.vmap(lambda x, s: x if s > 0 else -x, (0, None))(XS, pb.tensor(-1.0)), -XS)
    same(pb.vmap(lambda x: pb.sum(pb.stack([x] * len(x))), 1)(np.ones((2, 3))), [4.0, 4.0, 4.0])


@pytest.mark.parametrize(
    "ask",
    [float, int, complex, np.asarray, lambda x: x.item(), lambda x: x.numpy(), lambda x: x.tolist(), range, bool],
    ids=["float", "int", "complex", "asarray", "item", "numpy", "tolist", "range", "bool"],
)
def test_a_batched_value_has_no_number(ask):
    with pytest.raises(errors.ConversionError):
        pb.vmap(lambda x: ask(x) and x)(np.array([1, 2]))


# Linear functions and curvature.


@pytest.mark.parametrize(
    ("f", "n"),
    [
        (lambda x: 2.0 * x[1:] - x[:-1], 4),
        (lambda x: pb.cumsum(x[::-1]), 3),
        (lambda x: np.arange(6.0).reshape(2, 3) @ x, 3),
        (lambda x: pb.pad(x, [(1, 2)]) / 3.0, 3),
        (lambda x: pb.where(np.array([True, False, True]), x, -x), 3),
        (lambda x: pb.concat([x, pb.flip(x)])[np.array([0, 0, 5])], 3),
        (lambda x: pb.jvp(pb.sin, (XS,), (x,))[1], 3),
        (lambda x: pb.vmap(lambda y: y * 3.0)(x), 3),
        (lambda x: pb.mean(x) + 0.0 * pb.sum(x), 3),
        (lambda x: np.zeros(2), 3),
    ],
)
def test_transpose_of_a_linear_function(f, n):
    matrix = np.stack([np.asarray(f(row)) for row in np.eye(n)], axis=-1)
    transpose = pb.linear_transpose(f, np.zeros(n))
    rng = np.random.default_rng(0)
    bar = rng.standard_normal(matrix.shape[:-1])
    same(transpose(bar)[0], np.tensordot(bar, matrix, np.ndim(bar)), rtol=1e-12)


def test_transpose_of_several_arguments_and_specs():
    t = pb.linear_transpose(lambda p, z: {"s": p["a"] + 2.0 * z}, {"a": pb.spec_of(XS)}, np.zeros(3, np.float32))
    p, z = t({"s": XS})
    same(p["a"], XS)
    same(z, 2 * XS)
    assert z.dtype == np.float32


@pytest.mark.parametrize(
    "f",
    [
        pb.sin,
        pb.abs,
        pb.relu,
        pb.sign,
        lambda x: x * x,
        lambda x: x / (1.0 + pb.sum(x)),
        lambda x: pb.max(x),
        lambda x: pb.clip(x, -1.0, 1.0),
        lambda x: pb.where(x > 0, x, 0.5 * x),
        lambda x: pb.stop_gradient(x) * x,
        lambda x: x * x.detach(),
        lambda x: x + 1.0,
        lambda x: (x, 1.0),
        lambda x: x if pb.sum(x) > 0 else 2.0 * x,
    ],
)
def test_functions_that_are_not_linear_are_refused(f):
    with pytest.raises(errors.PullbackError, match="linear"):
        pb.linear_transpose(f, np.zeros(3))


@pytest.mark.parametrize("outer", [lambda f: pb.vmap(f)(XS), lambda f: pb.jvp(f, (2.0,), (1.0,))])
def test_affine_functions_are_refused_inside_other_transforms(outer):
    with pytest.raises(errors.ArgumentError, match="linear"):
        outer(lambda c: pb.linear_transpose(lambda x: x * c + c, 0.0)(1.0)[0])


@pytest.mark.parametrize("outer", ["vmap", "jvp", "grad"])
def test_transpose_inside_other_transforms(outer):
    def f(c):
        return pb.linear_transpose(lambda x: x * c**2, 0.0)(3.0)[0]

    if outer == "vmap":
        same(pb.vmap(f)(XS), 3 * XS**2)
    else:
        found = pb.grad(f)(2.0) if outer == "grad" else pb.jvp(f, (2.0,), (1.0,))[1]
        assert number(found) == 12.0


def quartic(x, y):
    return pb.sum(x * x * y) + pb.sum(y[0] * x**3) + pb.sum(pb.sin(y))


def test_hvp_against_the_matrix():
    x, y, v, w = (np.random.default_rng(i).standard_normal(3) for i in range(4))
    one_hot = np.array([1.0, 0.0, 0.0])
    xx = np.diag(2 * y + 6 * y[0] * x)
    xy = np.diag(2 * x) + np.outer(3 * x * x, one_hot)
    yy = np.diag(-np.sin(y))
    by_x, by_y = pb.hvp(quartic, (x, y), (v, w))
    same(by_x, xx @ v + xy @ w, rtol=1e-12)
    same(by_y, xy.T @ v + yy @ w, rtol=1e-12)
    by_x, by_y = pb.hvp(quartic, (x, y), (v, None))
    same(by_x, xx @ v, rtol=1e-12)
    same(by_y, xy.T @ v, rtol=1e-12)
    same(pb.hvp(lambda x: quartic(x, y), (x,), (v,)), xx @ v, rtol=1e-12)
    tree = pb.hvp(lambda p: quartic(p["x"], p["y"]), ({"x": x, "y": y},), ({"x": v, "y": w},))
    same(tree["y"], xy.T @ v + yy @ w, rtol=1e-12)


def test_ggnvp_against_the_matrix():
    rng = np.random.default_rng(0)
    w, v, inputs, labels = rng.standard_normal(4), rng.standard_normal(4), rng.standard_normal((5, 4)), np.eye(3)[:1]

    def model(w):
        return pb.stack([pb.tanh(inputs @ w)[0], pb.sum(w * w), pb.sin(w[0])])

    def loss(y):
        return pb.sum(pb.logsumexp(y) - labels @ y)

    slope = 1 - np.tanh(inputs @ w)[0] ** 2
    jacobian = np.stack([slope * inputs[0], 2 * w, np.cos(w[0]) * np.eye(4)[0]])
    out = np.array([np.tanh(inputs @ w)[0], w @ w, np.sin(w[0])])
    p = np.exp(out) / np.sum(np.exp(out))
    matrix = jacobian.T @ (np.diag(p) - np.outer(p, p)) @ jacobian
    same(pb.ggnvp(model, loss, (w,), (v,)), matrix @ v, rtol=1e-12)
    assert v @ pb.ggnvp(model, loss, (w,), (v,)) >= 0
    found = pb.ggnvp(lambda p: {"y": model(p["w"])}, lambda out: loss(out["y"]), ({"w": w},), ({"w": v},))
    same(found["w"], matrix @ v, rtol=1e-12)
    two = pb.ggnvp(lambda a, b: model(a + b), loss, (w, np.zeros(4)), (v, np.zeros(4)))
    same(two, [matrix @ v, matrix @ v], rtol=1e-12)


# Modes and hooks.

NO_HOOKS = functools.partial(pb.saved_tensors_hooks, lambda x: x, lambda x: x)


@pytest.mark.parametrize("mode", [pb.no_grad, pb.inference_mode, pb.detect_anomaly, pb.enable_grad, NO_HOOKS])
def test_transforms_differentiate_in_every_mode(mode):
    with mode():
        before = modes()
        for x in (XS, pb.tensor(XS)):
            same(pb.grad(cubes)(x), 3 * XS**2)
            same(pb.vjp(cubes, x)[1](1.0)[0], 3 * XS**2)
            same(pb.jvp(cubes, (x,), (np.ones(3),))[1], np.sum(3 * XS**2))
            same(pb.linearize(cubes, x)[1](np.ones(3)), np.sum(3 * XS**2))
            same(pb.vmap(pb.grad(lambda x: x**3))(x), 3 * XS**2)
            same(pb.hvp(cubes, (x,), (np.ones(3),)), 6 * XS)
            same(pb.vmap(pb.grad(pb.grad(lambda x: x**3)))(x), 6 * XS)
        assert modes() is before


@pytest.mark.parametrize("mode", [pb.no_grad, pb.inference_mode])
def test_nothing_is_recorded_for_the_caller_where_he_does_not_record(mode):
    w = pb.tensor(2.0, requires_grad=True)
    with mode():
        value, found = pb.value_and_grad(lambda x: x**3 * w)(w)
        outs = [value, found, *pb.jvp(lambda x: x**3 * w, (w,), (1.0,)), pb.vmap(lambda x: x * w)(XS)]
        outs += [pb.vjp(lambda x: x * w, w)[0], pb.vjp(lambda x: x * x, w)[1](1.0)[0]]
    assert not any(out.requires_grad for out in outs)
    assert (value.item(), found.item()) == (16.0, 24.0)


def test_a_function_may_switch_modes_itself():
    def f(x):
        with pb.no_grad():
            scale = x * x
        return scale * x

    assert pb.grad(f)(3.0) == 9.0
    assert pb.vmap(pb.grad(f))(XS).tolist() == [1.0, 4.0, 9.0]


def test_anomaly_is_found_inside_transforms():
    with pb.detect_anomaly():
        for run in (lambda: pb.grad(pb.sqrt)(0.0), lambda: pb.vmap(pb.grad(pb.sqrt))(np.array([0.0, 1.0]))):
            with pytest.raises(errors.AnomalyError, match="sqrt"):
                run()


def test_hooks_on_intermediates_fire_once_with_the_gradient():
    seen = []

    def f(x):
        h = x * x
        h.register_hook(seen.append)
        x.register_hook(seen.append)
        return pb.sum(h * h)

    same(pb.grad(f)(XS), 4 * XS**3)
    assert len(seen) == 2
    same(seen[0], 2 * XS * XS)
    same(seen[1], 4 * XS**3)
    seen.clear()
    pb.vjp(f, XS)[1](2.0)
    assert len(seen) == 2
    same(seen[0], 4 * XS * XS)


def test_hooks_see_the_values_of_outer_transforms():
    seen = []

    def f(x):
        h = x * x
        h.register_hook(lambda g: seen.append(g.shape))
        h.register_hook(lambda g: 10.0 * g)
        return h * h

    value, tangent = pb.jvp(pb.grad(f), (2.0,), (1.0,))
    assert (value, tangent) == (320.0, 480.0)
    same(pb.vmap(pb.grad(f))(XS), 40 * XS**3)
    assert seen == [(), ()]


def test_hooks_that_keep_values_in_another_form():
    kept = []

    def pack(x):
        kept.append(x.shape)
        return x.astype(np.float32)

    with pb.saved_tensors_hooks(pack, lambda x: x.astype(np.float64)):
        same(pb.grad(lambda x: pb.sum(pb.sin(x)))(XS), np.cos(XS), rtol=1e-6)
        same(pb.vmap(pb.grad(pb.sin))(XS), np.cos(XS), rtol=1e-6)
        same(pb.hvp(lambda x: pb.sum(pb.sin(x)), (XS,), (XS,)), -np.sin(XS) * XS, rtol=1e-6)
    assert kept[:2] == [(3,), ()]


# A tape inside of a function that is transformed.


def by_backward(x):
    leaf = pb.tensor(x, requires_grad=True)
    (leaf**3).backward()
    return leaf.grad


def by_gradients(x):
    leaf = pb.tensor(x, requires_grad=True)
    return pb.gradients(leaf**3, leaf)[0]


def by_linked_gradients(x):
    leaf = pb.tensor(x, requires_grad=True)
    return pb.gradients(leaf**3, leaf, create_graph=True)[0]


def by_a_constant_leaf(x):
    leaf = pb.tensor(1.5, requires_grad=True)
    (leaf * leaf * x**2).backward()
    return leaf.grad


def by_several_leaves(x):
    a, b = pb.tensor(x, requires_grad=True), pb.tensor(1.0, requires_grad=True)
    (a**3 * b * b).backward()
    return a.grad * 0.5 + b.grad * 0.75 / x


def by_leaf_then_write(x):
    leaf = pb.tensor(x, requires_grad=True)
    (leaf**3).backward()
    with pb.no_grad():
        leaf += leaf.grad
    return leaf.detach() - x


@pytest.mark.parametrize(
    "f", [by_backward, by_gradients, by_linked_gradients, by_a_constant_leaf, by_several_leaves, by_leaf_then_write]
)
def test_a_tape_inside_of_forward_mode_and_batches(f):
    """Each of them is 3 x^2."""
    value, tangent = pb.jvp(f, (2.0,), (1.0,))
    assert (number(value), number(tangent)) == pytest.approx((12.0, 12.0))
    same(pb.vmap(f)(XS), 3 * XS**2)
    same(pb.vmap(lambda x: pb.jvp(f, (x,), (1.0,))[1])(XS), 6 * XS)
    with pb.ForwardContext() as context:
        out = f(context.dual(2.0, 1.0))
    assert number(out.value.tangent if isinstance(out, pb.Tensor) else out.tangent) == pytest.approx(12.0)
    assert current_scope() is None


def test_training_inside_of_a_batch():
    def fitted(target):
        w = pb.tensor(0.0, requires_grad=True)
        for _ in range(60):
            w.grad = None
            ((w - target) ** 2).backward()
            with pb.no_grad():
                w -= 0.3 * w.grad
        return w.detach()

    same(pb.vmap(fitted)(XS), XS, rtol=1e-12)
    value, tangent = pb.jvp(fitted, (2.0,), (1.0,))
    assert (value, tangent) == (pytest.approx(2.0), pytest.approx(1.0))


def test_a_linked_tape_inside_of_reverse_mode():
    def f(x):
        leaf = pb.tensor(1.5, requires_grad=True)
        (leaf * leaf * x**2).backward(create_graph=True)
        return leaf.grad  # 3 x^2

    assert pb.grad(f)(2.0) == 12.0
    same(pb.vmap(pb.grad(f))(XS), 6 * XS)


def test_an_unlinked_tape_inside_of_reverse_mode_is_right_or_refused():
    try:
        found = pb.grad(by_a_constant_leaf)(2.0)
    except errors.PullbackError:
        return
    assert found == 12.0


def test_a_leaf_from_outside_under_a_transform():
    w = pb.tensor(3.0, requires_grad=True)

    def f(x):
        (w * x).backward()
        return w.grad

    for run in (lambda: pb.vmap(f)(XS), lambda: pb.jvp(f, (2.0,), (1.0,))):
        with pytest.raises(errors.GraphError, match="outside of the transform"):
            run()
    with pytest.raises(errors.PullbackError):
        pb.vmap(lambda x: pb.gradients(w * x, w)[0])(XS)
    assert w.grad is None


def test_a_backward_inside_reaches_leaves_made_inside_and_the_outer_tape_sees_through_it():
    w = pb.tensor(3.0, requires_grad=True)

    def f(x):
        leaf = pb.tensor(x, requires_grad=True)
        (leaf * leaf * w).backward()
        return leaf.grad

    found = pb.vmap(f)(XS)  # 2 x w
    assert w.grad is None
    pb.sum(found).backward()
    assert w.grad.item() == 2 * XS.sum()


def test_a_leaf_made_inside_that_lives_on_is_usable_afterwards():
    kept = []

    def f(x):
        leaf = pb.tensor(3.0, requires_grad=True)
        kept.append(leaf)
        (leaf * leaf).backward()
        return x * leaf.grad

    same(pb.vmap(f)(XS), 6 * XS)
    (leaf,) = kept
    assert leaf.grad.item() == 6.0
    (leaf**3).backward()
    assert leaf.grad.item() == 33.0


def test_a_result_that_hangs_on_a_leaf_made_inside_is_refused():
    kept = []

    def f(x):
        kept.append(pb.tensor(x, requires_grad=True))
        return kept[-1] * 2.0

    for run in (lambda: pb.vmap(f)(XS), lambda: pb.jvp(f, (2.0,), (1.0,))):
        with pytest.raises(errors.GraphError, match="made inside"):
            run()


def test_a_leaf_is_gone_with_its_function_also_after_linearize():
    def f(x):
        leaf = pb.tensor(x, requires_grad=True)
        pb.linearize(lambda y: y * leaf, leaf)
        return pb.gradients(leaf**3, leaf, create_graph=True)[0]

    same(pb.vmap(f)(XS), 3 * XS**2)


# Nothing stays behind.


def fails(*_):
    raise KeyError("inside")


@pytest.mark.parametrize(
    "run",
    [
        lambda: pb.grad(fails)(1.0),
        lambda: pb.vjp(fails, 1.0),
        lambda: pb.jvp(fails, (1.0,), (1.0,)),
        lambda: pb.vmap(fails)(XS),
        lambda: pb.linearize(fails, 1.0),
        lambda: pb.linear_transpose(fails, 1.0),
        lambda: pb.hvp(fails, (1.0,), (1.0,)),
        lambda: pb.vmap(pb.grad(fails))(XS),
        lambda: pb.jvp(lambda x: pb.vmap(fails)(XS * x), (1.0,), (1.0,)),
        lambda: pb.vjp(lambda x: x * x, 1.0)[1](fails()),
    ],
)
def test_an_exception_leaves_nothing_behind(run):
    with pb.no_grad():
        before = modes()
        with pytest.raises(KeyError):
            run()
        assert modes() is before
        assert current_scope() is None
    assert pb.grad(lambda x: x * x)(3.0) == 6.0


def test_an_exception_inside_a_context_leaves_nothing_behind():
    with pytest.raises(KeyError), pb.ForwardContext() as context:
        fails(context.dual(1.0, 1.0))
    assert current_scope() is None
    x = pb.tensor(2.0, requires_grad=True)
    (x * x).backward()
    assert x.grad.item() == 4.0


@pytest.mark.parametrize("transform", ["jvp", "vmap", "context"])
@pytest.mark.parametrize(
    "use",
    [
        lambda x: x + 1.0,
        lambda x: pb.sin(x),
        lambda x: pb.sum(x),
        lambda x: x > 0.0,
        lambda x: pb.grad(pb.sin)(x),
        lambda x: pb.jvp(pb.sin, (x,), (1.0,)),
        lambda x: pb.vmap(pb.sin, None, axis_size=2)(x),
        lambda x: pb.tensor(x) * 2.0,
    ],
)
def test_a_value_that_leaked_raises(transform, use):
    kept = []
    if transform == "jvp":
        pb.jvp(lambda x: (kept.append(x), x)[1], (2.0,), (1.0,))
    elif transform == "vmap":
        pb.vmap(lambda x: (kept.append(x), x)[1])(XS)
    else:
        with pb.ForwardContext() as context:
            kept.append(context.dual(2.0, 1.0))
    with pytest.raises(errors.LeakError, match="is over"):
        use(kept[0])


def test_a_gradient_by_an_empty_tree_inside_of_another_transform():
    def through(x):
        value, pull = pb.vjp(lambda empty: x * x, {})
        assert pull(1.0) == ({},)
        assert pb.grad(lambda empty: x)([]) == []
        return value + pb.value_and_grad(lambda empty: x)(())[0]

    assert pb.grad(through)(3.0) == pb.jit(pb.grad(through))(3.0) == pb.jvp(through, (3.0,), (1.0,))[1] == 7.0
    assert pb.vmap(through)(np.array([1.0, 2.0])).tolist() == [2.0, 6.0]
    x = pb.tensor(3.0, requires_grad=True)
    through(x).backward()
    assert x.grad == 7.0


def test_a_tensor_from_outside_that_took_in_a_value_of_a_transform():
    total = pb.tensor(1.0)

    def f(x):
        nonlocal total
        total += x
        return total * x

    value, tangent = pb.jvp(f, (2.0,), (1.0,))
    assert (number(value), number(tangent)) == (6.0, 5.0)
    with pytest.raises(errors.LeakError):
        _ = total * 2.0
    with pytest.raises(errors.ConversionError):
        total.numpy()


def test_an_array_from_outside_refuses_a_value_of_a_transform():
    outside, number = np.zeros(2), np.zeros(())

    def f(x):
        outside[0] = x
        return pb.sum(outside)

    def g(x):
        buffer = number
        buffer += x
        return buffer

    for bad in (f, g):
        for run in (
            lambda f=bad: pb.jvp(f, (2.0,), (1.0,)),
            lambda f=bad: pb.grad(f)(2.0),
            lambda f=bad: pb.vmap(f)(XS),
        ):
            with pytest.raises((errors.PullbackError, ValueError)):
                run()


def test_a_buffer_of_pullback_takes_values_of_any_transform():
    def f(x):
        buffer = pb.zeros(2)
        buffer[0] = x
        buffer[1] = x * x
        return pb.sum(buffer) * x

    assert number(pb.jvp(f, (2.0,), (1.0,))[1]) == 16.0
    assert pb.grad(f)(2.0) == 16.0
    same(pb.vmap(f)(XS), XS**2 + XS**3)


def test_generators_that_take_turns():
    def squares(x):
        with pb.ForwardContext() as context:
            x = context.dual(x, 1.0)
            yield None
            yield (x * x).tangent
            yield (x * x * x).tangent

    first, second = squares(2.0), squares(3.0)
    order = [first, second, first, second, first, second]
    found = [number(x) for x in (next(g) for g in order) if x is not None]
    assert found == [4.0, 6.0, 12.0, 27.0]
    for generator in (first, second):
        assert next(generator, "over") == "over"
    assert current_scope() is None
    x = pb.tensor(2.0, requires_grad=True)
    (x * x).backward()
    assert x.grad.item() == 4.0


def test_a_generator_given_up_half_way():
    def once():
        with pb.ForwardContext() as context:
            yield context.dual(2.0, 1.0)

    generator = once()
    dual = next(generator)
    assert pb.grad(lambda x: x * x)(3.0) == 6.0  # while it is suspended
    leaf = pb.tensor(2.0, requires_grad=True)
    generator.close()
    assert current_scope() is None
    (leaf * leaf).backward()
    assert leaf.grad.item() == 4.0
    with pytest.raises(errors.LeakError):
        _ = dual * 2.0


def test_a_generator_inside_of_a_transform():
    def steps(x):
        for _ in range(3):
            x = pb.sin(x)
            yield x

    def f(x):
        return sum(steps(x))

    _, tangent = pb.jvp(f, (0.5,), (1.0,))
    assert number(pb.grad(f)(0.5)) == pytest.approx(number(tangent), rel=1e-14)


# Threads.


def test_transforms_in_many_threads():
    def work(i):
        x = np.arange(5.0) + i

        def f(x):
            return pb.sum(pb.sin(x) * x * i)

        slope, curvature = i * (np.cos(x) * x + np.sin(x)), i * (2 * np.cos(x) - x * np.sin(x))
        for _ in range(5):
            same(pb.grad(f)(x), slope, rtol=1e-12)
            same(pb.vmap(pb.grad(lambda y: pb.sin(y) * y * i))(x), slope, rtol=1e-12)
            same(pb.jvp(f, (x,), (x,))[1], slope @ x, rtol=1e-12)
            same(pb.hvp(f, (x,), (x,)), curvature * x, rtol=1e-12)
        return True

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        assert all(pool.map(work, range(1, 9)))


def test_one_pullback_and_one_linear_map_in_many_threads():
    x = np.linspace(0.0, 1.0, 100)
    _, pull = pb.vjp(lambda x: pb.sin(x) * pb.exp(x), x)
    _, push = pb.linearize(lambda x: pb.sin(x) * pb.exp(x), x)
    wanted = np.exp(x) * (np.sin(x) + np.cos(x))
    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for i, (back, along) in enumerate(pool.map(lambda i: (pull(x * i)[0], push(x * i)), range(50))):
            same(back, wanted * x * i, rtol=1e-12)
            same(along, wanted * x * i, rtol=1e-12)


@pytest.mark.parametrize("where", ["thread", "context"])
def test_a_gradient_in_another_thread_sees_the_transform_or_is_refused(where):
    found = {}

    def elsewhere(call):
        if where == "context":
            contextvars.Context().run(call)
        else:
            thread = threading.Thread(target=call)
            thread.start()
            thread.join()

    def f(d):
        def work():
            try:
                found["x"], found["d"] = pb.grad(lambda x, y: x * y, (0, 1))(2.0, d)
                found["x"] = number(found["x"].primal)
            except errors.PullbackError:
                found["x"] = 3.0

        elsewhere(work)
        return d

    pb.jvp(f, (3.0,), (1.0,))
    assert found["x"] == 3.0


# In the company of others.


def rosenbrock(x):
    return pb.sum(100.0 * (x[1:] - x[:-1] ** 2) ** 2 + (1.0 - x[:-1]) ** 2)


def test_scipy_minimises_with_our_derivatives():
    optimize = pytest.importorskip("scipy.optimize")
    start = np.zeros(4)
    found = optimize.minimize(rosenbrock, start, jac=pb.grad(rosenbrock), method="BFGS", options={"gtol": 1e-8})
    same(found.x, np.ones(4), rtol=1e-6)
    found = optimize.minimize(
        pb.value_and_grad(rosenbrock), start, jac=True, method="L-BFGS-B", options={"ftol": 1e-15}
    )
    same(found.x, np.ones(4), rtol=1e-5)
    found = optimize.minimize(
        rosenbrock,
        start,
        jac=pb.grad(rosenbrock),
        hessp=lambda x, v: pb.hvp(rosenbrock, (x,), (v,)),
        method="trust-ncg",
        options={"gtol": 1e-9},
    )
    same(found.x, np.ones(4), rtol=1e-6)


@pytest.mark.parametrize("transform", ["grad", "jvp", "vmap", "vmap of grad", "linearize", "hvp"])
def test_ten_thousand_ops(transform):
    def f(x):
        for _ in range(5000):
            x = 0.999 * x + 1e-4
        return x

    slope = 0.999**5000
    if transform == "grad":
        same(pb.grad(f)(1.0), slope, rtol=1e-9)
    elif transform == "jvp":
        same(pb.jvp(f, (1.0,), (1.0,))[1], slope, rtol=1e-9)
    elif transform == "vmap":
        same(pb.vmap(f)(XS)[1] - pb.vmap(f)(XS)[0], slope, rtol=1e-9)
    elif transform == "vmap of grad":
        same(pb.vmap(pb.grad(f))(XS), [slope] * 3, rtol=1e-9)
    elif transform == "linearize":
        same(pb.linearize(f, 1.0)[1](1.0), slope, rtol=1e-9)
    else:
        same(pb.hvp(f, (1.0,), (1.0,)), 0.0)


def unrolled(count):
    """Gradient descent in so many steps, each with a gradient of its own."""

    def end(x):
        for _ in range(count):
            x = x - 0.1 * pb.grad(lambda y: pb.sin(y) * y)(x)
        return x

    return end


def test_inner_gradients_do_not_walk_the_outer_history(monkeypatch):
    sizes = []
    prepare = Sweep._prepare

    def counted(self, seeds):
        prepare(self, seeds)
        sizes.append(len(self.order))

    monkeypatch.setattr(Sweep, "_prepare", counted)
    pb.grad(unrolled(30))(1.0)
    *inner, outer = sizes
    assert max(inner) < 10
    assert outer > 100
    same(pb.grad(unrolled(30))(1.0), pb.jvp(unrolled(30), (1.0,), (1.0,))[1])


# What others may still differentiate: also by values whose leaf is gone.


def test_a_captured_value_whose_leaf_is_gone_is_still_somebodys():
    w = pb.tensor(1.0, requires_grad=True) + 1.0
    inner = pb.grad(lambda v: (v * w) ** 2)  # 2 v w^2
    (found,) = pb.gradients((inner(1.0) + w) ** 2, w)  # 2 (2 w^2 + w) (4 w + 1)
    assert found.item() == 180.0
    h = pb.tensor(1.0, requires_grad=True) * 2
    h.retain_grad()
    (pb.grad(lambda y: y * h * h)(3.0) * h).backward()
    assert h.grad.item() == 12.0
    h = pb.tensor(2.0, requires_grad=True) * 1.5
    with pb.GradientTape() as tape:
        tape.watch(h)
        y = pb.grad(lambda a: a * h * h)(1.0) * h
    assert tape.gradient(y, h).item() == 27.0


def by_backward(x):
    t = pb.tensor(2.0, requires_grad=True)
    (t * x * x).backward()
    return t.grad


def by_gradients(x):
    t = pb.tensor(2.0, requires_grad=True)
    return pb.gradients(t * x * x, t)[0]


def by_two_backwards(x):
    t = pb.tensor(2.0, requires_grad=True)
    (t * x).backward()
    (t * x * x).backward()
    return t.grad - x


def by_a_seed(x):
    t = pb.tensor(2.0, requires_grad=True)
    (t * x).backward(x)
    return t.grad


@pytest.mark.parametrize("f", [by_backward, by_gradients, by_two_backwards, by_a_seed])
def test_a_tape_inside_of_reverse_mode_is_linked(f):
    """Each f is x^2, found by a tape of its own."""
    assert pb.grad(f)(3.0) == 6.0
    assert pb.grad(f)(pb.tensor(3.0, requires_grad=True)).item() == 6.0
    assert number(pb.jvp(f, (3.0,), (1.0,))[1]) == 6.0
    same(pb.vmap(pb.grad(f))(XS), 2 * XS)


def test_aux_is_memory_of_its_own():
    _, pull, aux = pb.vjp(lambda x: ((h := pb.exp(x)).sum(), h), np.ones(2), has_aux=True)
    aux[:] = 0.0
    same(pull(1.0)[0], np.exp(np.ones(2)))
    t = pb.tensor([1.0, 2.0])
    _, aux = pb.grad(lambda x: (x * 1.0, t), has_aux=True)(3.0)
    assert aux is t
    a = XS.copy()
    _, _, aux = pb.jvp(lambda x: (x, x), (a,), (a,), has_aux=True)
    aux[:] = 0.0
    same(a, XS)
    constant = XS.copy()
    pb.jvp(lambda x: constant, (1.0,), (1.0,))[0][:] = 0.0
    pb.jet(lambda x: x, (constant,), ([constant],))[0][:] = 0.0
    same(constant, XS)


def test_products_with_arguments_that_cannot_move():
    with pytest.raises(errors.ArgumentError, match="all tangents are None"):
        pb.hvp(lambda n: 1.0 * n, (3,), (None,))
    model = lambda w, n: w**n  # noqa: E731
    found = pb.ggnvp(model, lambda y: pb.sum(y**2), (XS, 2), (np.ones(3), None))
    same(found[0], pb.ggnvp(lambda w: w**2, lambda y: pb.sum(y**2), (XS,), (np.ones(3),)))
    assert found[1] is None


def test_numpy_integers_are_axes_and_texts_are_no_results():
    same(pb.vmap(pb.sum, np.int64(0))(np.ones((2, 3))), [3.0, 3.0])
    with pytest.raises(errors.DtypeError, match="numbers"):
        pb.vmap(lambda x: "text")(XS)


def test_no_grad_concerns_the_tape_alone():
    def f(x):
        with pb.no_grad():
            y = x * x
        return y * x

    assert pb.grad(f)(3.0) == 9.0
    assert pb.jvp(f, (3.0,), (1.0,))[1] == 27.0
