"""Python's `if` on traced values inside of `jit`: followed both ways as plain Python would, or refused by a rewrite."""

import inspect
import re
from collections import deque

import numpy as np
import pytest

import pullback as pb
from pullback.errors import ArgumentError, ConversionError, DtypeError, GraphError, PullbackError, ShapeError

RNG = np.random.default_rng(7)
POINTS = [(RNG.normal(size=3), 4 * RNG.normal(size=3)) for _ in range(12)]


def close(a, b):
    np.testing.assert_allclose(np.asarray(a), np.asarray(b), rtol=1e-11, atol=1e-13)


def nested(x, w):
    """Branches inside of branches, one with a return of its own; four paths."""
    y = pb.sin(x) * w
    if y.sum() > 0:
        z = y**2
        if z[0] > z[1]:
            z = z * 3
        elif w.mean() > 1:
            return (x * w).sum()
    else:
        z = pb.exp(y)
    return (z * x).sum()


def nested_in_numpy(x, w):
    y = np.sin(x) * w
    if y.sum() > 0:
        z = y**2
        if z[0] > z[1]:
            z = z * 3
        elif w.mean() > 1:
            return (x * w).sum()
    else:
        z = np.exp(y)
    return (z * x).sum()


def complex_step(f, x, w):
    """The gradient in x without any of the package, by the path that the real parts take."""
    found = []
    for i in range(len(x)):
        moved = x.astype(complex)
        moved[i] += 1e-30j
        y = np.sin(x) * w
        z, zc = (y**2, (np.sin(moved) * w) ** 2) if y.sum() > 0 else (None, np.exp(np.sin(moved) * w))
        if z is not None and z[0] > z[1]:
            zc = zc * 3
        elif z is not None and w.mean() > 1:
            found.append((moved * w).sum().imag * 1e30)
            continue
        found.append((zc * moved).sum().imag * 1e30)
    return np.array(found)


def test_every_path_is_taken_by_some_point():
    assert len({(np.sum(np.sin(x) * w) > 0, (np.sin(x[0]) * w[0]) ** 2 > (np.sin(x[1]) * w[1]) ** 2, w.mean() > 1)
                for x, w in POINTS}) >= 5  # fmt: skip


def test_values_and_derivatives_are_those_of_the_path_taken():
    f = pb.jit(nested)
    of_grad, of_hessian = pb.jit(pb.grad(nested)), pb.jit(pb.hessian(nested))
    for x, w in POINTS:
        close(f(x, w), nested_in_numpy(x, w))
        wanted = complex_step(nested, x, w)
        for gradient in (of_grad, pb.grad(f), pb.jit(pb.grad(f))):
            close(gradient(x, w), wanted)
        a = pb.tensor(x, requires_grad=True)
        f(a, w).backward()
        close(a.grad.numpy(), wanted)
        close(pb.jvp(f, (x, w), (w, 0 * w))[1], wanted @ w)
        close(of_hessian(x, w), pb.hessian(nested)(x, w))
        close(pb.hessian(f)(x, w), pb.hessian(nested)(x, w))


def test_each_element_of_a_batch_takes_its_own_path():
    xs, ws = (np.stack(rows) for rows in zip(*POINTS, strict=True))
    f = pb.jit(nested)
    close(pb.vmap(f)(xs, ws), [nested_in_numpy(x, w) for x, w in POINTS])
    close(pb.vmap(pb.grad(f))(xs, ws), [complex_step(nested, x, w) for x, w in POINTS])


def test_a_branch_that_is_not_taken_leaves_no_nan():
    f = pb.jit(lambda x: pb.log(x) if x > 0 else x * 0.5)
    close(f(-1.0), -0.5)
    close(pb.grad(f)(-1.0), 0.5)
    close(pb.grad(f)(2.0), 0.5)


@pytest.mark.parametrize(
    ("f", "reference"),
    [
        (lambda a, b: max(a, b), max),
        (lambda a, b: min(a, b, 1.0), lambda a, b: min(a, b, 1.0)),
        (lambda a, b: a * b if a > 0 and b > 0 else a - b, lambda a, b: a * b if a > 0 and b > 0 else a - b),
        (lambda a, b: a if not (a > 0 or b > 0) else 2 * b, lambda a, b: a if not (a > 0 or b > 0) else 2 * b),
        (lambda a, b: sorted([a, b, 0.5])[1], lambda a, b: sorted([a, b, 0.5])[1]),
        (lambda a, b: a if b else b, lambda a, b: a if b else b),
        (lambda a, b: 1.0 if a > b else a, lambda a, b: 1.0 if a > b else a),
        (lambda a, b: a.reshape(1, 1) + b if (a > b).reshape(1, 1) else a.reshape(1, 1),
         lambda a, b: np.array([[a + b]]) if a > b else np.array([[a]])),
    ],
)  # fmt: skip
def test_whatever_asks_for_the_truth_of_a_value_is_a_branch(f, reference):
    compiled = pb.jit(f)
    for a, b in [(1.0, 2.0), (2.0, 1.0), (-1.0, 3.0), (-2.0, -3.0), (1.5, 1.5), (1.0, 0.0)]:
        close(compiled(pb.asarray(a), pb.asarray(b)), reference(a, b))


def test_a_question_that_is_asked_again_has_the_same_outcome():
    """The planner of a Hessian runs f more than once, on values that are computed anew each time."""

    def twice(x):
        y = x * 2 if pb.sum(x) > 0 else x * 3
        return pb.sum(y**3) + (1.0 if pb.sum(x) > 0 else 2.0)

    program = pb.stage(twice)(np.zeros(3))
    assert program.text().count(" = branch(") == 1
    for x in (np.array([1.0, 2, 3]), np.array([-1.0, -2, -3])):
        close(pb.jit(pb.hessian(twice))(x), np.diag(6 * x * (8 if x.sum() > 0 else 27)))


def test_steps_of_loops_branch_too():
    def step(c, x):
        if x > 0:
            return c + x, c * x
        return c - 2 * x, x

    def run(xs):
        total, ys = pb.scan(step, 0.5, xs)
        return total + (ys**2).sum()

    xs = RNG.normal(size=9)
    close(pb.jit(run)(xs), run(xs))
    close(pb.jit(pb.grad(run))(xs), pb.grad(run)(xs))

    def collatz(n):
        return pb.while_loop(
            lambda c: c[0] > 1, lambda c: (3 * c[0] + 1 if c[0] % 2 == 1 else c[0] // 2, c[1] + 1), (n, 0)
        )[1]

    assert [int(pb.jit(collatz)(np.int64(n))) for n in (1, 6, 7, 27)] == [0, 8, 16, 111]


def test_state_and_captures_follow_the_path():
    class Counter(pb.nn.Module):
        def __init__(self):
            self.count = pb.zeros(())
            self.scale = pb.tensor(2.0, requires_grad=True)

        def __call__(self, x):
            if x.sum() > 0:
                self.count = self.count + 1
                return x * self.scale
            return x + self.scale

    net = Counter()
    f = pb.jit(lambda x: net(x).sum())
    for k, sign in enumerate([1, -1, 1, 1]):
        net.scale.grad = None
        f(sign * np.arange(1.0, 4)).backward()
        close(net.scale.grad, 6.0 if sign > 0 else 3.0)
        close(net.count, [1, 1, 2, 3][k])


def test_draws_from_a_key_and_prints_happen_on_the_path_taken(capfd):
    def f(x, key):
        u = pb.random.uniform(key=key)
        if u > 0.5:
            pb.debug.print("large {}", u)
            return x * u
        return x + u

    compiled = pb.jit(f)
    keys = [pb.random.key(i) for i in range(6)]
    drawn = [float(pb.random.uniform(key=key)) for key in keys]
    assert {u > 0.5 for u in drawn} == {True, False}
    close([compiled(3.0, key) for key in keys], [3 * u if u > 0.5 else 3 + u for u in drawn])
    assert capfd.readouterr().out.count("large") == sum(u > 0.5 for u in drawn)


def test_checkpoints_and_other_dtypes_go_along():
    def body(x):
        return pb.sin(x) * 2 if pb.sum(x) > 0 else pb.cos(x)

    f = pb.jit(lambda x: pb.sum(pb.checkpoint(body)(x)))
    for sign in (1, -1):
        x = sign * np.ones(4, "float32")
        close(f(x), np.sum(2 * np.sin(x) if sign > 0 else np.cos(x)))
        assert pb.grad(f)(x).dtype == np.float32
        np.testing.assert_allclose(pb.grad(f)(x), 2 * np.cos(x) if sign > 0 else -np.sin(x), rtol=1e-6)


@pytest.mark.parametrize("sign", [1, -1])
def test_checkpoints_in_compiled_gradients_are_recomputed_along_the_same_path(sign):
    """What is computed again is another value of the program, whose branch is not another branch."""

    def body(x):
        return pb.sum(pb.sin(x) ** 3) if x[0] > 0 else pb.sum(x**4)

    def f(wrap, x):
        return wrap(lambda y: pb.exp(wrap(body)(2 * y)) if y[1] > 0 else wrap(body)(y))(x)

    x = sign * np.array([0.3, 0.2, 0.5])
    plain = lambda x: f(lambda g: g, x)  # noqa: E731
    recomputed = lambda x: f(pb.checkpoint, x)  # noqa: E731
    close(pb.jit(pb.grad(recomputed))(x), pb.grad(plain)(x))
    close(pb.jit(pb.hessian(recomputed))(x), pb.hessian(plain)(x))


def test_a_compiled_function_branches_by_element_inside_of_another_program():
    w = pb.tensor(1.5, requires_grad=True)

    def one(x):
        y = pb.zeros(3)
        if (x > 0).all():
            y[1] = pb.sum(x * w)
        else:
            y[2] = x[0] ** 2
        return pb.sum(y**2) if y[1] < 2 else y[1]

    xs = np.stack([[1.0, 2, 3], [-1.0, 2, 3], [0.1, 0.2, 0.3]])
    f = pb.jit(one)
    close(pb.jit(pb.vmap(f))(xs).detach(), [one(x).detach() for x in xs])

    def filled(x):
        y = np.zeros(3)
        y[1] = pb.sum(x)
        return y[1] ** 2 if y[1] < 2 else y[1]

    close(pb.jit(pb.vmap(pb.jit(filled)))(xs), [x.sum() ** 2 if x.sum() < 2 else x.sum() for x in xs])
    close(pb.jit(pb.vmap(pb.grad(f)))(xs).detach(), [pb.asarray(pb.grad(one)(x)).detach() for x in xs])
    pb.jit(lambda xs: pb.sum(pb.vmap(f)(xs)))(xs).backward()
    found, w.grad = w.grad, None
    sum(one(x) for x in xs).backward()
    close(found, w.grad)

    def halve(c, _):
        return pb.jit(lambda c: c / 2 if c > 1 else c * 3)(c), c

    halved = pb.jit(pb.vmap(lambda x: pb.scan(halve, x, np.arange(4))[1]))(np.array([1.0, 5]))
    close(halved, [[1, 3, 1.5, 0.75], [5, 2.5, 1.25, 0.625]])


def test_a_compiled_function_branches_where_no_program_around_it_could():
    """Statistics of gradients trace the function of one sample."""
    f = pb.jit(lambda x: pb.sum(x**3) if x[0] > 0 else pb.sum(x**2))
    p, samples = np.array([1.0, 2, 3]), np.array([[1.0, 1, 1], [-1.0, 2, 1]])
    norms = pb.curvature.per_sample_norms(lambda p, s: f(p * s))(p, samples)
    close(norms, [np.linalg.norm(pb.grad(lambda p, s=s: f(p * s))(p)) for s in samples])


def test_what_elements_ask_of_others_before_a_branch_is_asked_of_all():
    def share(x):
        total = pb.batch_sum(x, "i")
        return x / total if x > 2 else x - total

    f = pb.jit(pb.vmap(pb.jit(share), axis_name="i"))
    close(f(np.array([1.0, 3, 4])), [-7, 3 / 8, 4 / 8])


@pytest.mark.parametrize(
    "make",
    [
        lambda x: pb.zeros(()) + x[0],
        lambda x: (pb.eye(3) @ x)[1] + pb.tensor([1.0, 2])[0],
        lambda x: pb.linalg.solve(np.eye(3) * 2, x)[0],
        lambda x: x[pb.argsort(x)][:1],
        lambda x: pb.scan(lambda c, k: (c + x[k], c), 0.0, np.arange(3))[0],
        lambda x: pb.fixed_point(lambda y, x: pb.cos(y) * 0.3 + x, x * 0, x)[0],
        lambda x: pb.interp(x, np.linspace(0, 4, 5), np.linspace(0, 4, 5) ** 2)[0] - 0.5,
    ],
)  # fmt: skip
def test_what_a_function_makes_anew_each_time_it_is_traced_is_known_again(make):
    def f(x):
        y = make(x)
        return y * 2 if y > 0 else y**2

    compiled = pb.jit(f)
    for x in (np.array([0.5, 2, 3]), np.array([-1.0, -2, -3])):
        close(pb.asarray(compiled(x)).detach(), pb.asarray(f(x)).detach())


def test_captures_that_are_equal_when_they_are_traced_are_not_one():
    """Large arrays are read again at each call, so these two are equal only at first."""
    a, b = np.zeros(200_000), np.zeros(200_000)

    def f(x):
        p, q = x * a[1:].sum(), x * b[:-1].sum()
        return p + 2 * q if x > 0 else 3 * p - q

    compiled = pb.jit(f)
    close(compiled(-1.0), 0)
    a[:], b[:] = 1, 5
    close([compiled(1.0), compiled(-1.0)], [f(1.0), f(-1.0)])


def in_a_step(x, y):
    v = x.copy()
    end, ys = pb.scan(lambda c, q: (c + q, c * q + v[0]), y, x)
    if end > 0:
        v += pb.tanh(ys)
    return pb.sum(v)


def in_a_function_that_calls_itself(x, y):
    total = pb.zeros(3)

    def add(k):
        nonlocal total
        total += x * y
        if k:
            add(k - 1)

    add(3)
    return pb.sum(total * x) if y > 0 else pb.sum(total)


@pytest.mark.parametrize("f", [in_a_step, in_a_function_that_calls_itself])
def test_variables_of_a_function_s_own_are_no_state_though_something_holds_them(f):
    x, ys = np.array([0.3, 0.5, -0.2]), np.array([0.4, -0.7])
    wanted = [slope_by_differences(lambda x, y=y: float(f(pb.asarray(x), y)), x) for y in ys]
    np.testing.assert_allclose([pb.jit(pb.grad(f))(x, y) for y in ys], wanted, rtol=1e-8)
    batch = pb.vmap(pb.grad(pb.jit(f)), (None, 0))
    np.testing.assert_allclose(batch(x, ys), wanted, rtol=1e-8)
    np.testing.assert_allclose(pb.jit(batch)(x, ys), wanted, rtol=1e-8)


def test_state_that_differs_by_element_is_refused_inside_of_a_program():
    class Net(pb.nn.Module):
        def __init__(self):
            self.calls = pb.zeros(())

        def __call__(self, x):
            self.calls = self.calls + 1
            return x if x > 0 else -x

    net = Net()
    with pytest.raises(ConversionError, match="differs by element"):
        pb.jit(pb.vmap(pb.jit(lambda x: net(x))))(np.ones(3))
    close(net.calls, 0)


class Outside:
    value = 1


@pytest.mark.parametrize(
    ("f", "error", "words"),
    [
        (lambda x: x if x.sum() > 0 else (x, x), ArgumentError, "Return the same structure"),
        (lambda x: x if x.sum() > 0 else None, ArgumentError, "One that ends without `return` returns None"),
        (lambda x: x if x.sum() > 0 else x[:1], ShapeError, "must return one shape and dtype"),
        (lambda x: x if x.sum() > 0 else pb.argsort(x), DtypeError, r"Convert one of them: x.astype\('float64'\)"),
        (lambda x: [x := x + 1 for a in x for b in x if a > b][-1], ConversionError, "more than 64 paths|16 branches"),
        (lambda x: setattr(Outside, "value", 2) or x if x.sum() > 0 else x, GraphError, "sets attributes or variables"),
        (lambda x: x if x > 0 else -x, ShapeError, "truth of an array of shape"),
        (lambda x: pb.vmap(lambda a: a if a > 0 else -a)(x), ConversionError, "pb.where|pb.cond"),
    ],
)
def test_what_cannot_be_followed_is_refused(f, error, words):
    with pytest.raises(error, match=words):
        pb.jit(f)(np.arange(1.0, 6))
    assert Outside.value == 1
    close(pb.jit(lambda x: x + 1)(np.ones(2)), [2, 2])  # nothing is left behind


class Printed:
    def __init__(self, value):
        self.value = value

    def __repr__(self):
        return "printed"


@pytest.mark.parametrize("make", [lambda k: np.eye(1, 5000, k), lambda k: pb.asarray(np.eye(1, 5000, k)), Printed])
def test_what_paths_leave_behind_is_not_compared_by_how_it_is_printed(make):
    holder = Outside()
    one, other = make(2000), make(3000)
    assert repr(one) == repr(other)

    def f(x):
        holder.value = one if x > 0 else other
        return x

    with pytest.raises(GraphError, match="'value'"):
        pb.jit(f)(1.0)
    assert holder.value == 1


def test_equal_things_that_each_path_makes_anew_may_be_left_behind():
    holder = Outside()

    def f(x):
        y = x * 2 if x > 0 else x
        holder.value = {"sizes": [np.arange(3), (2, "a")], "kind": {1, 2}}
        return y

    close(pb.jit(f)(-1.0), -1)
    assert holder.value["kind"] == {1, 2}


@pytest.mark.parametrize(
    "run",
    [
        lambda x: pb.scan(lambda c, t: (flag_if(t), t), 0.0, x)[0],
        lambda x: pb.cond(x[0] > 5, lambda: flag_if(x[1]), lambda: x[0]),
        lambda x: pb.vmap(pb.jit(flag_if))(x),
        lambda x: pb.while_loop(lambda c: c < 2, lambda c: flag_if(c) + 1, x[0]),
    ],
)
def test_what_a_step_of_a_loop_sets_on_one_way_is_refused(run):
    """The step is traced both ways, and set what it sets on the way that no element takes."""
    with pytest.raises(GraphError, match=r"two ways of a Python branch on a traced value: 'Outside.flag'"):
        pb.jit(run)(np.array([-1.0, -2.0]))
    assert not hasattr(Outside, "flag")


def flag_if(t):
    if t > 0:
        Outside.flag = True
    return t


@pytest.mark.parametrize(
    ("holder", "act", "name"),
    [
        ({1, 2}, lambda s: s.add(7), "a set"),
        (deque([1, 2], maxlen=2), lambda s: s.append(7), "a deque"),
        ([1, 2], lambda s: s.pop(), "item 1 of a list"),
        ([1, 2], lambda s: s.clear(), "item 0 of a list, item 1 of a list"),
        ({"a": 1}, lambda s: s.pop("a"), "'a'"),
    ],
)
def test_containers_are_as_before_where_one_way_changes_them(holder, act, name):
    before = holder.copy()

    def f(x):
        if x > 0:
            act(holder)
        return x

    with pytest.raises(GraphError, match=f"traced value: {name}.\n"):
        pb.jit(f)(-1.0)
    assert holder == before


def test_an_item_that_only_one_way_begins_is_refused_by_its_name():
    seen = {}

    def f(x):
        if x > 0:
            seen["last"] = x * 2
        return x

    with pytest.raises(GraphError, match="'last'"):
        pb.jit(f)(1.0)
    assert seen == {}


def test_elements_of_a_new_array_are_updated_inside_of_a_compiled_gradient():
    def f(x):
        y = pb.zeros(3)
        y[1:] += x[:2]
        for i in range(3):
            if x[i] > 0:
                y[i] += x[i] ** 2
            else:
                y[i] -= x[i]
        return pb.sum(y * x)

    def by_hand(x):
        y = np.array([0, x[0], x[1]]) + np.where(x > 0, x**2, -x)
        return y @ x

    x = np.array([0.5, -2.0, 3.0])
    wanted = slope_by_differences(by_hand, x)
    np.testing.assert_allclose(pb.jit(pb.grad(f))(x), wanted, rtol=1e-8)
    np.testing.assert_allclose(pb.jit(lambda x: pb.jvp(f, (x,), (x,))[1])(x), wanted @ x, rtol=1e-8)
    close(pb.jit(pb.vmap(pb.jit(f)))(np.stack([x, -x])), [by_hand(x), by_hand(-x)])


def test_an_exception_on_one_way_is_named_with_its_branch():
    @pb.jit
    def f(x):
        if not (x > 0).all():
            raise ValueError("x must be positive")
        return pb.log(x)

    with pytest.raises(ConversionError, match=r"raises ValueError: x must be positive\n  where this is False: .*all"):
        f(np.ones(3))


@pytest.mark.parametrize("f", [lambda n: 1.0 if n in {0, 2} else 5.0, lambda n: {0: 5.0, 2: 1.0}.get(n, 7.0)])
def test_sets_and_dicts_of_numbers_do_not_look_up_what_is_no_number_yet(f):
    """They found nothing, silently, and chose the other way."""
    n, batch = np.int64(2), np.array([2, 1])
    for run in (pb.jit(f), lambda n: pb.jit(pb.grad(lambda x: f(x) * x))(n * 1.0), lambda n: pb.vmap(f)(batch)):
        with pytest.raises(ConversionError, match="Sets, dicts and caches look up by hash"):
            run(n)
    close(pb.jit(lambda n: 1.0 if any(n == v for v in (0, 2)) else 5.0)(n), f(n))
    close(pb.vmap(lambda n: pb.where(pb.isin(n, np.array([0, 2])), 1.0, 5.0))(batch), [1, 5])
    seen = pb.jit(lambda x: len({x, x}) * x)(np.ones(2))  # arrays are told apart by what they are
    close(seen, [1, 1])


def test_an_index_that_is_no_number_yet_is_refused_with_what_works():
    values = [1.0, 4.0, 9.0]
    with pytest.raises(ConversionError, match=r"write pb.take\(values, i\)"):
        pb.jit(lambda i: values[i])(1)
    with pytest.raises(ConversionError, match=r"write pb.take\(array, i\)"):
        pb.jit(lambda i: np.array(values)[i])(1)
    close(pb.jit(lambda i: pb.take(values, i))(1), 4)
    with pytest.raises(ConversionError, match=r"write x\[i\] for x\[int\(i\)\]"):
        pb.jit(lambda x: x[int(pb.argmax(x))])(np.array(values))
    close(pb.jit(lambda x: x[pb.argmax(x)])(np.array(values)), 9)


def rewritten(error):
    """The lines of the loop that an error suggests."""
    lines = str(error).split("This loop, written for tracing:\n")[1].splitlines()
    return "\n".join(line.removeprefix("    ") for line in lines)


def test_a_while_loop_is_refused_with_a_loop_that_works():
    @pb.jit
    def halve(x, n):
        while x > 1.0:
            x = x / 2.0
            n = n + 1
        return x, n

    with pytest.raises(ConversionError, match="more than 16 branches") as raised:
        halve(8.0, 0)
    scope = {"pb": pb}
    exec(f"def f(x, n):\n{re.sub('^', '    ', rewritten(raised.value), flags=re.M)}\n    return x, n", scope)
    close(pb.jit(scope["f"])(10.0, 0), (0.625, 4))


def test_a_range_of_a_traced_number_is_refused_with_a_loop_that_works():
    @pb.jit
    def power(x, n):
        y = x * 0 + 1
        for _ in range(int(n)):
            y = y * x
        return y

    with pytest.raises(ConversionError, match=r"int\(\)") as raised:
        power(2.0, 5)
    scope = {"pb": pb}
    body = f"    y = x * 0 + 1\n{re.sub('^', '    ', rewritten(raised.value), flags=re.M)}"
    exec(f"def f(x, n):\n{body}\n    return y", scope)
    close(pb.jit(scope["f"])(2.0, 5), 32.0)


def halve_by_temporary(x, n):
    while (x > 1) and (x < 100):
        half = x * 0.5
        x = half if half > 2 else half * 0.1
    return x + n


def sum_to(x, n):
    total = 0
    k = 1
    while k < n:
        total = total + x / k
        k = k + 1
    return total


def count_down(x, n):
    while n:
        x *= 1.5
        n -= 1
    return x


def fill(x, n):
    y = pb.zeros(3)
    i = 0
    while i < n:
        y[i] = x * i
        i += 1
    return y.sum()


def add_multiples(x, n):
    total = 0
    for i in range(n):
        total += x * i
    return total


def start_as_a_pair(x, n):
    total, k = 0, 0
    while x > 1:
        total, k = total + x, k + 1
        x = x / 2
    return total * k


def start_by_default(x, n, total=0):
    while x > 1:
        total += x
        x = x / 2
    return total


def use_a_name_for_something_else_before(x, n):
    half = pb.ones(3)
    x = x + half[0]
    while x > 1:
        half = x / 2
        x = half
    return x


def use_names_of_the_rewritten_loop(x, n):
    c, k = 1.0, 0
    body = pb.sqrt
    while x > c:
        x = body(x) - 0.2 * c
        k += 1
    return x + k


def hold_a_rewritten_loop(x, n):
    y = 3 * x
    while x > 1:

        def body(y):
            return y / 2

        y = pb.while_loop(lambda y, x=x: y > x, body, y)
        x = x / 2
    return x + y


def ask_what_stays_the_same(x, n):
    k = 100
    while k > x:
        k = k // 2
    return k + x


@pytest.mark.parametrize(
    "f",
    [
        halve_by_temporary, sum_to, count_down, fill, add_multiples, start_as_a_pair, start_by_default,
        use_a_name_for_something_else_before, use_names_of_the_rewritten_loop, hold_a_rewritten_loop,
        ask_what_stays_the_same,
    ],
)  # fmt: skip
def test_the_loop_that_an_error_has_runs_in_the_place_of_the_one_refused(f):
    with pytest.raises(PullbackError) as raised:
        pb.jit(f)(8.0, 3)
    texts = [str(raised.value), *getattr(raised.value, "__notes__", [])]
    text = next(text for text in texts if "This loop" in text)
    lines = inspect.getsource(f).splitlines()
    loop = next(i for i, line in enumerate(lines) if line.startswith(("    while", "    for")))
    after = next(i for i, line in enumerate(lines) if i > loop and line and not line.startswith("     "))
    scope = {"pb": pb}
    exec("\n".join([*lines[:loop], re.sub("^", "    ", rewritten(text), flags=re.M), *lines[after:]]), scope)
    close(pb.jit(scope[f.__name__])(8.0, 3), pb.asarray(f(8.0, 3)))


def remember(x, n):
    found = []
    while x > 1:
        x = x / 2
        found.append(x)
    return x


def use_afterwards(x, n):
    while x > 1:
        x = x / 2
        last = x
    return last


def use_the_number_afterwards(x, n):
    i = 0
    for i in range(n):
        x = x + i
    return x * i


def share_with_a_function(x, n):
    y = 2.0

    def part(t):
        return t / y

    while x > 1:
        x = part(x)
        y = y * 1.5
    return x


def begin_with_nothing(x, n):
    last = None
    while last is None or last - x > 0.1:
        last = x
        x = x / 2
    return x


@pytest.mark.parametrize(
    "f", [remember, use_afterwards, use_the_number_afterwards, share_with_a_function, begin_with_nothing]
)
def test_loops_that_hand_something_out_are_not_rewritten(f):
    with pytest.raises(ConversionError) as raised:
        pb.jit(f)(8.0, 3)
    assert "This loop" not in str(raised.value)


def test_loops_that_are_left_early_are_not_rewritten():
    @pb.jit
    def f(x):
        while x > 1.0:
            x = x / 2
            if x < 0:
                break
        return x

    with pytest.raises(ConversionError) as raised:
        f(8.0)
    assert "This loop" not in str(raised.value)
    assert "test_python_branches.py" in str(raised.value)


def test_a_function_that_does_something_else_each_time_is_refused():
    calls = iter(range(100))

    def f(x):
        k = next(calls) % 2
        return (x if x[k] > 0 else -x).sum()

    with pytest.raises(GraphError, match="when it is traced once more"):
        pb.stage(f)(np.ones(2))


def slope_by_differences(f, x, h=1e-5):
    found = np.zeros(x.size)
    for i in range(x.size):
        d = np.zeros(x.size)
        d[i] = h
        found[i] = (8 * (f(x + d) - f(x - d)) - (f(x + 2 * d) - f(x - 2 * d))) / (12 * h)
    return found


def by_captured_values(p):
    def body(c, x):
        if c * p[0] > 0.5:
            return c * p[0], c
        return c + p[1] * x, c

    end, ys = pb.scan(body, 0.3, np.linspace(0.0, 1.0, 6))
    return pb.sum(ys**2) + end


def in_a_slope(p):
    def slope(t, y):
        if y[0] > 0.6 - 0.1 * p[1]:
            return -p[0] * y
        return -p[1] * y

    return pb.sum(
        pb.ode.solve(slope, np.array([1.0, 0.4]), (0.0, 1.0), method=pb.ode.Bosh3(), control=pb.ode.FixedSteps(2)).y
        ** 2
    )


def in_a_fixed_point_with_an_array_to_fill(p):
    def step(u, p):
        r = np.zeros(2)
        r[0] = 0.3 * np.cos(u[1]) * p[0]
        if u[0] > 0.2:
            r[1] = 0.2 * u[0] * p[1]
        else:
            r[1] = 1.0
        return r

    return pb.sum(pb.fixed_point(step, np.zeros(2), p) ** 2)


@pytest.mark.parametrize("f", [by_captured_values, in_a_slope, in_a_fixed_point_with_an_array_to_fill])
def test_branches_inside_of_loops_and_solvers_have_their_derivatives_in_every_mode(f):
    p, direction = np.array([1.3, 0.8]), np.array([0.6, -0.7])
    slope = slope_by_differences(lambda q: float(f(q)), p)
    bend = slope_by_differences(lambda q: float(direction @ pb.grad(f)(q)), p)

    def along(q):
        return pb.sum(pb.grad(f)(q) * direction)

    np.testing.assert_allclose(pb.jit(f)(p), f(p), rtol=1e-12)
    for gradient in (pb.grad(f), pb.jit(pb.grad(f)), pb.grad(pb.checkpoint(f))):
        np.testing.assert_allclose(gradient(p), slope, rtol=1e-6, atol=1e-8)
    for program in (f, pb.jit(f)):
        t = pb.tensor(p, requires_grad=True)
        program(t).backward()
        np.testing.assert_allclose(t.grad.numpy(), slope, rtol=1e-6, atol=1e-8)
    pushed = pb.jit(lambda q: pb.jvp(f, (q,), (direction,))[1])(p)
    np.testing.assert_allclose(pushed, slope @ direction, rtol=1e-6)
    np.testing.assert_allclose(pb.jit(pb.grad(along))(p), bend, rtol=1e-5, atol=1e-7)


def test_elements_of_a_batch_go_their_own_ways_inside_of_a_solver():
    ps = np.array([[1.3, 0.8], [0.2, 2.0], [3.0, 0.1]])
    wanted = [pb.grad(in_a_slope)(p) for p in ps]
    np.testing.assert_allclose(pb.vmap(pb.grad(in_a_slope))(ps), wanted, rtol=1e-9)
    np.testing.assert_allclose(pb.jit(pb.vmap(pb.grad(in_a_slope)))(ps), wanted, rtol=1e-9)


@pytest.mark.parametrize(
    "solve",
    [
        lambda x: pb.sum(pb.fixed_point(lambda u, x: 0.5 * u + x if x[0] > 0 else 0.3 * pb.sin(u) + x, np.zeros(2), x)),
        lambda x: pb.sum(
            pb.ode.solve(lambda t, y, x: -y * x if x[0] > 0 else y, np.ones(2), (0.0, 1.0), x, method=pb.ode.Bosh3(),
                         control=pb.ode.FixedSteps(1)).y),
    ],
    ids=["fixed_point", "ode"],
)  # fmt: skip
def test_elements_part_by_a_parameter_of_a_solver_inside_of_another_program(solve):
    xs = np.array([[0.9, 0.4], [-0.5, 0.2]])
    batch = pb.jit(pb.vmap(pb.grad(pb.jit(solve))))
    np.testing.assert_allclose(batch(xs), [pb.grad(solve)(x) for x in xs], rtol=1e-9)
    with pytest.raises(ConversionError, match=r"pb\.vmap\(pb\.jit\(f\)\)"):
        pb.jit(pb.vmap(solve))(xs)


def test_a_module_that_branches_is_the_slope_of_an_equation():
    class Slope(pb.nn.Module):
        def __init__(self):
            super().__init__()
            self.inner = pb.nn.Linear(2, 2, dtype=np.float64)

        def forward(self, y):
            z = self.inner(y)
            if z.sum() > 0.3:
                z = 0.5 * z
            return pb.tanh(z)

    net = Slope()

    def loss():
        return pb.sum(
            pb.ode.solve(lambda t, y: net(y), np.array([1.0, 0.5]), (0.0, 1.0), control=pb.ode.FixedSteps(3)).y ** 2
        )

    weights, found = net.inner.weight.detach().numpy().copy(), []
    for run in (loss, pb.jit(loss)):
        net.zero_grad()
        run().backward()
        found.append(net.inner.weight.grad.numpy().copy())

    def by_hand(w):
        net.load_state_dict({**net.state_dict(), "inner.weight": w.reshape(2, 2)})
        return loss().item()

    wanted = slope_by_differences(by_hand, weights.ravel()).reshape(2, 2)
    np.testing.assert_allclose(found, [wanted, wanted], rtol=1e-6, atol=1e-9)
