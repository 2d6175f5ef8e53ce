"""Control flow in programs: staged, read back from text and JSON, differentiated in every way, compiled."""

from __future__ import annotations

import numpy as np
import pytest

import pullback as pb
from pullback import errors
from pullback.arrays.trees import flatten
from pullback.transforms.stage import stage

RNG = np.random.default_rng(5)
W, XS = RNG.normal(size=(3, 3)) / 2, RNG.normal(size=(5, 3))


def recurrent(w, xs):
    last, ys = pb.scan(lambda c, x: (pb.tanh(w @ c + x), pb.sum(c * x)), np.zeros(3), xs)
    return pb.sum(last * last) + pb.sum(ys * ys)


def backwards(w, xs):
    return pb.sum(pb.scan(lambda c, x: (pb.sin(c * x), c[0] * x), w[0], xs, reverse=True)[1] ** 2)


def nested(w, xs):
    def outer(c, x):
        inner = pb.fori_loop(0, 3, lambda i, y: pb.tanh(w @ y) + i * x, c)
        return inner, pb.max(inner)

    return pb.sum(pb.scan(outer, xs[0], xs)[1])


def root(a):
    return pb.while_loop(lambda x: abs(x * x - a) > 1e-12 * a, lambda x: (x + a / x) / 2, a)


def counted(x):
    def body(c):
        return c[0] * x + c[1], c[1] + 1

    return pb.while_loop(lambda c: c[1] < 6, body, (1.0, 0))[0]


def power(x):
    return pb.fori_loop(0, 5, lambda i, y: y * x + i, 1.0)


def bounds(x):
    return pb.fori_loop(pb.astype(x, int), pb.astype(x * 3, int), lambda i, y: y * x / 4 + i, 1.0)


def choice(x):
    return pb.cond(x > 0, pb.sqrt, lambda x: -x * 3, x)


def closing(x):
    return pb.cond(x > 0, lambda: pb.sqrt(x) * 2, lambda: pb.square(x))


def switched(x):
    return pb.switch(pb.clip(pb.astype(abs(x), int) - 2, 0, 2), [pb.sin, pb.square, pb.exp], x)


def pair(x):
    a, b = pb.cond(x > 0, lambda x: (x * x, {"k": x}), lambda x: (-x, {"k": 2.0}), x)
    return a * b["k"]


def array_loop(v):
    return pb.sum(pb.while_loop(lambda x: pb.max(abs(x * x - v)) > 1e-10, lambda x: (x + v / x) / 2, v))


def entries(v):
    return pb.sum(pb.fori_loop(0, 3, lambda i, x: pb.set_at(x, i, x[i - 1] * x[i]), v) ** 2)


SCALARS = [root, counted, power, bounds, choice, closing, switched, pair]
CASES = [
    *((f, (np.array(x),)) for f in SCALARS for x in (4.2, -3.3) if f not in (root, bounds) or x > 0),
    *((f, (W, XS)) for f in (recurrent, backwards, nested)),
    (array_loop, (np.array([2.0, 5.0, 7.0]),)), (entries, (np.array([2.0, 0.5, 0.7]),)),
]  # fmt: skip
IDS = [f"{f.__name__}-{i}" for i, (f, _) in enumerate(CASES)]


def value(f):
    return f


def gradient(f):
    return pb.grad(f)


def push(f):
    return lambda *args: pb.jvp(f, args, [np.cos(a) for a in args])


def second(f):
    return lambda *args: pb.jvp(pb.grad(f), args, [np.cos(a) for a in args])[1]


def twice_back(f):
    return pb.grad(lambda x, *rest: pb.sum(pb.grad(f)(x, *rest) ** 2))


def in_a_batch(f):
    return lambda x, *rest: pb.vmap(lambda x: f(x, *rest))(pb.stack([x, x * 1.25, x * 0.75]))


def gradient_in_a_batch(f):
    return lambda x, *rest: pb.vmap(lambda x: pb.grad(f)(x, *rest))(pb.stack([x, x * 1.25]))


ROLES = [value, gradient, push, second, twice_back, in_a_batch, gradient_in_a_batch]


def agree(found, wanted):
    for a, b in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
        np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-9, atol=1e-11)


@pytest.mark.filterwarnings("ignore:invalid value")  # a batch computes both ways and picks one
@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("f", "args"), CASES, ids=IDS)
def test_staged_control_flow_is_that_of_python(f, args, role):
    graph = stage(role(f))(*args)
    batches = role in (in_a_batch, gradient_in_a_batch)  # of a branch: there the elements go both ways
    assert batches or any(e.op.name in ("iterate", "repeat", "branch") for e in graph.equations)
    wanted = role(f)(*args)
    agree(graph.verify().run(*args), wanted)
    again = pb.Program.parse(graph.text())
    assert again.text() == graph.text() == pb.Program.from_json(graph.to_json()).text()
    agree(again.run(*args), wanted)


@pytest.mark.parametrize("role", ROLES)
@pytest.mark.parametrize(("f", "args"), CASES, ids=IDS)
def test_compiled_control_flow_is_native_and_agrees(f, args, role):
    compiled = pb.jit(role(f))
    agree(compiled(*args), role(f)(*args))
    agree(compiled(*(a * 1.1 for a in args)), role(f)(*(a * 1.1 for a in args)))
    assert "by NumPy" not in compiled.lower(*args).explain()


def test_a_compiled_loop_inside_of_transforms():
    compiled = pb.jit(recurrent)
    for role in ROLES:
        agree(role(compiled)(W, XS), role(recurrent)(W, XS))
    w = pb.tensor(W, requires_grad=True)
    compiled(w, XS).backward()
    agree(w.grad.numpy(), pb.grad(recurrent)(W, XS))


def test_a_branch_that_is_not_taken_gives_no_nan():
    slope = pb.jit(pb.grad(closing))
    assert slope(np.array(-2.0)) == -4.0
    f = lambda x: pb.cond(x > 0, lambda: pb.log(x), lambda: 0.0)  # noqa: E731
    assert pb.jit(pb.grad(f))(np.array(-1.0)) == 0.0
    assert pb.jit(pb.grad(f))(np.array(2.0)) == 0.5


def test_float32_stays_float32():
    w, xs = W.astype(np.float32), XS.astype(np.float32)
    g = pb.jit(pb.grad(lambda w: pb.sum(pb.scan(lambda c, x: (pb.tanh(w @ c + x), c), xs[0], xs)[1])))
    assert g(w).dtype == np.float32
    out = pb.jit(lambda x: pb.while_loop(lambda c: c < 9, lambda c: c * 2, x))(np.float32(1))
    assert out.dtype == np.float32
    assert out == 16


def test_integers_and_booleans_in_a_carry():
    def collatz(n):
        def body(c):
            n, steps, odd = c
            return pb.where(odd, 3 * n + 1, n // 2), steps + 1, pb.where(odd, 3 * n + 1, n // 2) % 2 == 1

        return pb.while_loop(lambda c: c[0] != 1, body, (n, 0, n % 2 == 1))[1]

    compiled = pb.jit(collatz)
    assert [int(compiled(np.array(n))) for n in (1, 6, 27)] == [0, 8, 111]


def test_loops_of_no_rounds():
    f = lambda x: pb.fori_loop(3, 3, lambda i, y: y * x, x)  # noqa: E731
    assert pb.jit(f)(np.array(2.0)) == 2.0
    assert pb.jit(pb.grad(f))(np.array(2.0)) == 1.0
    g = pb.jit(pb.grad(lambda x: pb.while_loop(lambda y: y < 0, lambda y: y * x, x)))
    assert g(np.array(2.0)) == 1.0
    last, ys = pb.jit(lambda xs: pb.scan(lambda c, x: (c + x, c), 0.0, xs))(np.zeros(0))
    assert (last, ys.shape) == (0.0, (0,))


def test_empty_arrays_in_a_carry():
    f = pb.jit(lambda x: pb.scan(lambda c, y: (c * y[:0], y), x[0, :0], x))
    last, ys = f(np.ones((3, 2)))
    assert last.shape == (0,)
    assert ys.tolist() == np.ones((3, 2)).tolist()


def test_carries_that_change_places():
    f = lambda a, b: pb.fori_loop(0, 5, lambda i, c: (c[1], c[0] + c[1]), (a, b))  # noqa: E731
    assert [float(x) for x in pb.jit(f)(np.array(1.0), np.array(1.0))] == [8.0, 13.0]
    unchanged = lambda a, b: pb.fori_loop(0, 5, lambda i, c: (c[0], c[0] * c[1]), (a, b))  # noqa: E731
    found = pb.jit(unchanged)(np.array(2.0), np.array(1.0))
    assert [float(x) for x in found] == [2.0, 32.0]


def test_many_rounds_of_a_while_loop_are_walked_back():
    n = 1000
    f = lambda x: pb.while_loop(lambda c: c[1] < n, lambda c: (pb.sin(c[0]) * x, c[1] + 1), (x, 0))[0]  # noqa: E731
    agree(pb.jit(pb.grad(f))(np.array(0.99)), pb.grad(f)(np.array(0.99)))


def test_a_donated_carry_is_written_in_place():
    step = pb.jit(
        lambda v: pb.fori_loop(0, 4, lambda i, x: pb.set_at(x, i, x[i] + 10.0), v), donate_argnums=0
    )  # fmt: skip
    assert step(np.arange(6.0)).tolist() == [10.0, 11.0, 12.0, 13.0, 4.0, 5.0]


def test_a_loop_over_what_the_array_library_computes():
    f = lambda a: pb.fori_loop(0, 3, lambda i, x: pb.linalg.inv(x) + a, a)  # noqa: E731
    a = np.eye(3) + 0.1j
    compiled = pb.jit(f)
    agree(compiled(a), f(a))
    assert "by NumPy" in compiled.lower(a).explain()


def test_a_body_that_wants_numbers_is_written_out():
    tables = [np.array(2.0), np.array(3.0), np.array(5.0)]
    f = lambda x: pb.fori_loop(0, 3, lambda i, y: y * tables[i], x)  # noqa: E731
    assert pb.jit(f)(np.array(1.0)) == 30.0


def test_an_index_out_of_range_raises():
    f = pb.jit(lambda i, x: pb.switch(i, [pb.sin, pb.cos], x))
    assert f(np.array(1), np.array(0.0)) == 1.0
    with pytest.raises(errors.IndexingError):
        f(np.array(2), np.array(0.0))


@pytest.mark.parametrize(
    ("f", "kind", "text"),
    [
        (lambda x: pb.while_loop(lambda y: y, lambda y: y, x), errors.DtypeError, "must be a boolean"),
        (lambda x: pb.while_loop(lambda y: pb.stack([y, y]) > 0, lambda y: y, x), errors.ShapeError, "one boolean"),
        (lambda x: pb.while_loop(lambda y: y > 0, lambda y: pb.stack([y, y]), x), errors.ShapeError, "the carry was"),
        (lambda x: pb.cond(x, pb.sin, pb.cos, x), errors.DtypeError, "must be a boolean"),
        (lambda x: pb.cond(x > 0, pb.sin, lambda x: (x, x), x), errors.ArgumentError, "false_function|true_function"),
        (lambda x: pb.cond(x > 0, pb.sin, lambda x: pb.stack([x, x]), x), errors.ShapeError, "must return one"),
        (lambda x: pb.cond(x > 0, pb.sin, lambda x: x > 0, x), errors.DtypeError, "must return one"),
        (lambda x: pb.switch(x, [pb.sin], x), errors.DtypeError, "must be an integer"),
        (lambda x: pb.fori_loop(0, x, lambda i, y: y, x), errors.DtypeError, "must be an integer"),
        (lambda x: pb.scan(lambda c, x: c, x, pb.stack([x, x])), errors.ArgumentError, "returns .carry, y."),
    ],
)
def test_mistakes_in_staged_control_flow_are_named(f, kind, text):
    with pytest.raises(kind, match=text):
        pb.jit(f)(np.array(1.0))


def test_a_program_that_does_not_fit_is_refused():
    graph = stage(root)(np.array(2.0))
    text = graph.text().replace("carries=1", "carries=2")
    with pytest.raises(errors.PullbackError):
        pb.Program.parse(text)
    with pytest.raises(errors.PullbackError, match="must be a program"):
        pb.Program.parse(graph.text().replace("body=r1", "body=3"))


@pytest.mark.parametrize("numbers", [(2.0, 0.5), (np.array(2.0), 0.5), (2.0, np.array(0.5))])
def test_python_numbers_go_back_through_a_compiled_while_loop(numbers):
    def decayed(x, a):
        return pb.while_loop(lambda c: c[0] < 3.0, lambda c: (c[0] + 1.0, c[1] * a), (0.0, x))[1]

    found = pb.jit(pb.grad(decayed, (0, 1)))(*numbers)
    np.testing.assert_allclose(found, (0.125, 1.5))
