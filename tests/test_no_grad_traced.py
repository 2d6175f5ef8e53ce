"""What `no_grad` hides from the tape stays hidden in a program that is traced first and differentiated later."""

import numpy as np
import pytest

import pullback as pb

X = np.array([0.6, 1.1, 1.7])
V = np.array([0.3, -0.2, 0.7])
ROWS = np.stack([X, X * 0.5])


def scaled(x):
    with pb.no_grad():
        a = pb.sin(x) * x
    return pb.sum(a * x * x)


@pb.no_grad()
def all_inside(x):
    return pb.sum(x * x)


def recorded_again(x):
    with pb.no_grad():
        a = x * 2
        with pb.enable_grad():
            b = x * a
    return pb.sum(b * x)


def by_statement(x):
    pb.set_grad_enabled(False)
    a = x * 2
    pb.set_grad_enabled(True)
    return pb.sum(a * x)


def inference(x):
    with pb.inference_mode():
        a = x * 2
    return pb.sum(pb.sin(a) + x * x)


def nothing_to_do(x):
    with pb.no_grad():
        a, b, c = pb.reshape(x, (3,)), x.copy(), x.T
    return pb.sum(a * b * c * x)


def in_place(x):
    y = x * 1.0
    with pb.no_grad():
        y *= 2
    return pb.sum(y * x)


def several_results(x):
    with pb.no_grad():
        a, b = pb.linalg.eigh(pb.outer(x, x) + pb.diag(x))
    return pb.sum(a * x) + pb.sum(b @ b.T * x)


def _step(c, x):
    with pb.no_grad():
        a = pb.sin(c)
    return c * a + x


def scanned(x):
    return pb.sum(pb.scan(lambda c, _: (_step(c, x), None), x, None, length=3)[0])


def counted(x):
    return pb.sum(pb.fori_loop(0, 3, lambda i, c: _step(c, x), x))


def repeated(x):
    return pb.sum(pb.while_loop(lambda c: c[0] < 3, lambda c: (c[0] + 1, _step(c[1], x)), (0, x))[1])


def branched(x):
    return pb.sum(pb.cond(pb.sum(x) > 0, lambda y: _step(y, x), lambda y: y * 2, x))


def loop_inside(x):
    with pb.no_grad():
        a = pb.scan(lambda c, _: (pb.sin(c) * x, None), x, None, length=3)[0]
    return pb.sum(a * x)


def solved(x):
    def step(z):
        with pb.no_grad():
            a = pb.tanh(x)
        return 0.3 * z * a + x

    return pb.sum(pb.fixed_point(step, x) * x)


def solved_inside(x):
    with pb.no_grad():
        a = pb.fixed_point(lambda z: 0.3 * z * pb.tanh(x) + x, x)
    return pb.sum(a * x)


def checkpointed(x):
    return pb.sum(pb.checkpoint(lambda y: _step(y, x))(x))


def gradient_inside(x):
    with pb.no_grad():
        value, a = pb.value_and_grad(lambda y: pb.sum(y**3 * x))(x)
    return pb.sum(a * x) + value * pb.sum(x)


def pulled_inside(x):
    with pb.no_grad():
        value, pull = pb.vjp(lambda y: y**3 + x, x)
        (a,) = pull(x)
    return pb.sum(a * x) + pb.sum(value * x)


def pulled_back_inside(x):
    value, pull = pb.vjp(lambda y: y**3 * x, x)
    with pb.no_grad():
        (a,) = pull(x)
    return pb.sum(a * x) + pb.sum(value * x)


def pushed_inside(x):
    with pb.no_grad():
        value, a = pb.jvp(lambda y: y**3 * x, (x,), (x,))
    return pb.sum(a * x) + pb.sum(value * x)


def linearized_inside(x):
    with pb.no_grad():
        value, push = pb.linearize(lambda y: y**3 * x, x)
        a = push(x)
    return pb.sum(a * x) + pb.sum(value * x)


def batched_inside(x):
    with pb.no_grad():
        a = pb.vmap(lambda y: y**3 * x)(x)
    return pb.sum(a @ x)


def compiled_inside(x):
    with pb.no_grad():
        a = pb.jit(lambda y: y**3 * x)(x)
    return pb.sum(a * x)


PROGRAMS = [
    scaled, all_inside, recorded_again, by_statement, inference, nothing_to_do, in_place, several_results, scanned,
    counted, repeated, branched, loop_inside, solved, solved_inside, checkpointed, gradient_inside, pulled_inside,
    pulled_back_inside, pushed_inside, linearized_inside, batched_inside, compiled_inside,
]  # fmt: skip
ROADS = {"jit": pb.jit, "staged": lambda f: lambda x: pb.stage(f)(X).run(x)}
DERIVATIVES = {
    "first": lambda f: pb.grad(f)(X),
    "second": lambda f: pb.grad(lambda y: pb.sum(pb.grad(f)(y) * V))(X),
    "forward": lambda f: pb.jvp(f, (X,), (V,))[1],
    "forward over reverse": lambda f: pb.jvp(pb.grad(f), (X,), (V,))[1],
    "reverse over forward": lambda f: pb.grad(lambda y: pb.jvp(f, (y,), (V,))[1])(X),
    "batched": lambda f: pb.vmap(pb.grad(f))(ROWS),
}


#: Programs whose derivatives take long to compile; the next test is enough from day to day.
LONG = (several_results, counted, repeated, solved, solved_inside)


@pytest.mark.parametrize("name", DERIVATIVES)
@pytest.mark.parametrize(
    "f",
    [pytest.param(f, marks=[pytest.mark.sweep] if f in LONG else [], id=f.__name__) for f in PROGRAMS],
)
def test_a_derivative_of_a_traced_program_is_that_of_the_function(f, name):
    derivative = DERIVATIVES[name]
    wanted = derivative(f)
    for road, through in ROADS.items() if name == "first" else [("jit", pb.jit)]:
        np.testing.assert_allclose(derivative(through(f)), wanted, rtol=1e-9, atol=1e-9, err_msg=road)


@pytest.mark.parametrize("f", PROGRAMS, ids=lambda f: f.__name__)
def test_a_compiled_gradient_has_the_derivative_of_the_gradient(f):
    def again(gradient):
        return pb.grad(lambda y: pb.sum(gradient(y) * V))(X)

    np.testing.assert_allclose(again(pb.jit(pb.grad(f))), again(pb.grad(f)), rtol=1e-9, atol=1e-9)
    np.testing.assert_allclose(pb.stage(f)(X).gradients().run(X), pb.grad(f)(X), rtol=1e-9, atol=1e-9)


def simple(x):
    with pb.no_grad():
        a = x * 2
    return pb.sum(a * x)


def test_no_grad_in_a_compiled_function_cuts_its_gradient():
    np.testing.assert_allclose(pb.grad(pb.jit(simple))(np.array([1.0, 2.0, 3.0])), [2.0, 4.0, 6.0])


def test_a_graph_read_back_records_as_little():
    graph = pb.stage(simple)(X)
    for read in (pb.Program.parse(graph.text()), pb.Program.from_json(graph.to_json())):
        np.testing.assert_allclose(pb.grad(lambda x, read=read: read.run(x))(X), 2 * X)


def test_a_program_staged_under_no_grad_has_its_gradients():
    with pb.no_grad():
        graph = pb.stage(lambda x: pb.sum(x * x))(X)
        gradients = graph.gradients()
    np.testing.assert_allclose(gradients.run(X), 2 * X)
    np.testing.assert_allclose(pb.grad(lambda x: graph.run(x))(X), 2 * X)


def test_a_function_compiled_under_no_grad_has_its_gradient_outside():
    f = pb.jit(lambda x: pb.sum(x * x))
    with pb.no_grad():
        f(X)
    np.testing.assert_allclose(pb.grad(f)(X), 2 * X)


def test_results_under_no_grad_require_no_gradient():
    x = pb.tensor(X, requires_grad=True)

    def f(x):
        with pb.no_grad():
            return pb.sum(x * x), x.reshape(3)

    assert [y.requires_grad for y in pb.jit(f)(x)] == [y.requires_grad for y in f(x)] == [False, False]


@pytest.mark.parametrize("required", ["before", "after"])
def test_a_captured_tensor_is_hidden_too(required):
    w = pb.tensor(X, requires_grad=required == "before")

    def f(x):
        with pb.no_grad():
            a = w * x
        return pb.sum(a * x * w)

    compiled = pb.jit(f)
    compiled(X)
    w.requires_grad_()
    for run in (compiled, f):
        w.grad = None
        run(V).backward()
        np.testing.assert_allclose(w.grad, X * V * V)


def test_the_transpose_of_a_linear_map_made_under_no_grad():
    with pb.no_grad():
        _, push = pb.linearize(lambda x: x**3, X)
    np.testing.assert_allclose(pb.grad(lambda v: pb.sum(push(v)))(V), 3 * X**2)


LOOPS = {
    "scan": lambda f, x: pb.scan(lambda c, _: (f(c), None), x, None, length=2)[0],
    "fori_loop": lambda f, x: pb.fori_loop(0, 2, lambda i, c: f(c), x),
    "while_loop": lambda f, x: pb.while_loop(lambda c: pb.sum(c) < 9, f, x),
    "cond": lambda f, x: pb.cond(pb.sum(x) > 0, f, lambda y: y, x),
}


@pytest.mark.parametrize("name", LOOPS)
def test_a_traced_body_under_no_grad_sees_that_nothing_records(name):
    @pb.no_grad()
    def f(x):
        return LOOPS[name](lambda c: c * (2.0 if pb.is_grad_enabled() else 3.0), x)

    np.testing.assert_allclose(pb.jit(f)(X), f(X))
