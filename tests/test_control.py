"""Branches and loops: plain Python where the predicate is known, masks where it differs by element, derivatives of any
order through both.
"""

import math
import threading

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import pullback as pb
from pullback import errors
from pullback.transforms.control import batch_masks
from pullback.transforms.control.associative_scan import associative_scan
from pullback.transforms.control.branches_and_loops import cond, fori_loop, switch, while_loop
from pullback.transforms.control.scan import map as map_in_turn
from pullback.transforms.control.scan import scan
from pullback.transforms.stage import stage
from pullback.transforms.taylor.jet import jet


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


@pytest.fixture(autouse=True)
def _no_mask_stays_behind():
    yield
    assert batch_masks._current_mask.get() is None


def close(found, wanted, rtol=1e-10, atol=1e-12):
    np.testing.assert_allclose(found, wanted, rtol=rtol, atol=atol)


def push(f):
    """The derivative of a scalar function by forward mode."""
    return lambda x: pb.jvp(f, (x,), (pb.ones_like(x),))[1]


def root(a):
    """Heron's square root: how many rounds it takes depends on a."""
    start = pb.where(a > 1, a, 1.0)
    return while_loop(lambda x: pb.abs(x * x - a) > 1e-13 * a, lambda x: (x + a / x) / 2, start)


def root_derivative(a, order):
    """d^k/da^k a^(1/2)."""
    return math.prod(0.5 - k for k in range(order)) * a ** (0.5 - order)


def is_even(n):
    return (n & 1) == 0


def half(n):
    return pb.astype(n / 2, int)


def collatz(x, n):
    """A float carried through 3n + 1: shrunk or bent in each round, by the path of the integer."""

    def body(carry):
        y, m = carry
        even = is_even(m)
        return cond(even, lambda y: y * 0.5, pb.sin, y), pb.where(even, half(m), 3 * m + 1)

    return while_loop(lambda carry: carry[1] > 1, body, (x, n))[0]


def collatz_by_hand(x, n):
    """The same with Python's own `while` and `if`: plain eager code."""
    while n > 1:
        x, n = (x * 0.5, n // 2) if n % 2 == 0 else (pb.sin(x), 3 * n + 1)
    return x


# Known predicates: Python runs.


def test_cond_runs_one_branch():
    ran = []

    def branch(name, value):
        ran.append(name)
        return value

    assert cond(True, lambda x: branch("true", x), lambda x: branch("false", -x), 3.0) == 3.0
    assert cond(np.array(False), lambda x: branch("true", x), lambda x: branch("false", -x), 3.0) == -3.0
    assert cond(pb.tensor(2.0) > 1, lambda: branch("true", 1), lambda: 2) == 1
    assert ran == ["true", "false", "true"]


def test_cond_takes_and_returns_trees():
    def swap(p):
        return {"a": p["b"], "b": (p["a"], None)}

    out = cond(np.bool_(True), swap, None_branch, {"a": np.ones(2), "b": np.zeros(3)})
    assert out["a"].shape == (3,)
    assert out["b"][1] is None


def None_branch(p):
    return None


@pytest.mark.parametrize("index", [0, np.int32(1), np.array(2), pb.tensor(1)])
def test_switch_runs_the_function_at_the_index(index):
    functions = [lambda x: x, lambda x: 2 * x, lambda x: x**3]
    assert float(switch(index, functions, 3.0)) == [3.0, 6.0, 27.0][int(index)]


@pytest.mark.parametrize("steps", [0, 1, 7])
def test_loops_agree_with_python(steps):
    wanted = 1.0
    for i in range(steps):
        wanted = wanted * 1.5 + i
    assert float(fori_loop(0, steps, lambda i, x: x * 1.5 + i, 1.0)) == wanted
    found, count = while_loop(lambda c: c[1] < steps, lambda c: (c[0] * 1.5 + c[1], c[1] + 1), (1.0, 0))
    assert float(found) == wanted
    assert int(count) == steps


def test_fori_loop_bounds():
    seen = []
    fori_loop(np.int64(-2), pb.tensor(2), lambda i, c: (seen.append(i), c)[1], None)
    assert seen == [-2, -1, 0, 1]
    assert fori_loop(5, 2, lambda i, c: 1 / 0, 7) == 7


def test_what_goes_in_comes_out():
    assert type(while_loop(lambda x: x < 3, lambda x: x + 1, np.array(0.0))) is np.ndarray
    assert isinstance(while_loop(lambda x: x < 3, lambda x: x + 1, pb.tensor(0.0)), pb.Tensor)


def test_a_branch_may_rebind_its_argument_without_anybody_noticing():
    x = pb.tensor(2.0)

    def rebind(y):
        y += 1
        return y

    assert cond(True, rebind, rebind, x).item() == 3.0
    assert fori_loop(0, 2, lambda i, y: rebind(y), x).item() == 4.0
    assert x.item() == 2.0


# Derivatives through data-dependent loops.


@pytest.mark.parametrize("a", [0.3, 2.0, 50.0])
@pytest.mark.parametrize("derivative", [pb.grad, push], ids=["reverse", "forward"])
def test_three_orders_through_a_data_dependent_while(a, derivative):
    f = root
    for order in range(4):
        close(f(np.array(a)), root_derivative(a, order), rtol=1e-7)
        f = derivative(f)


@pytest.mark.parametrize("first", [pb.grad, push], ids=["reverse", "forward"])
@pytest.mark.parametrize("second", [pb.grad, push], ids=["reverse", "forward"])
@pytest.mark.parametrize("n", [1, 6, 7, 27])
def test_four_second_orders_agree_with_eager_python(first, second, n):
    x = np.array(0.7)
    close(second(first(lambda x: collatz(x, n)))(x), pb.grad(pb.grad(lambda x: collatz_by_hand(x, n)))(x))


def test_three_orders_on_the_tape():
    a = leaf(3.0)
    current = root(a)
    for order in range(3):
        close(current.item(), root_derivative(3.0, order), rtol=1e-9)
        (current,) = pb.gradients(current, a, create_graph=True)


def test_taylor_mode_through_a_while():
    value, derivatives = jet(root, (np.array(3.0),), ([1.0, None, None],))
    close([value, *derivatives], [root_derivative(3.0, k) for k in range(4)], rtol=1e-8)


def test_linearize_through_a_while():
    value, along = pb.linearize(root, np.array(3.0))
    close(value, 3.0**0.5)
    close(along(np.array(2.0)), 2 * root_derivative(3.0, 1))


def test_a_predicate_that_a_transform_wraps_is_known():
    """`where` on duals answers a dual of booleans."""

    def f(x):
        return cond(pb.where(x > 0, True, False), pb.square, pb.negative, x)

    assert float(push(f)(np.array(3.0))) == 6.0
    assert float(pb.grad(push(f))(np.array(3.0))) == 2.0
    assert float(jet(f, (np.array(3.0),), ([1.0],))[1][0]) == 6.0


def test_closures_over_tracked_tensors():
    w = leaf(1.5)
    y = while_loop(lambda x: x < 10, lambda x: cond(x > 4, lambda: x * w, lambda: x + w), pb.tensor(1.0))
    y.backward()  # 1 + w + w + w, then times w
    close(y.item(), (1 + 3 * 1.5) * 1.5**2)
    close(w.grad.item(), 3 * 1.5**2 + (1 + 3 * 1.5) * 2 * 1.5)


def test_closures_over_a_list_that_holds_itself():
    w = leaf(1.5)
    held = [w, {"again": w}]
    held.append(held)
    first = lambda x: x * held[0] * held[1]["again"]  # noqa: E731
    y = pb.jit(lambda x: cond(x > 0, first, lambda x: x, x))(np.array(2.0))
    close(y.item(), 2 * 1.5**2)
    y = pb.checkpoint_loop(lambda i, x: first(x), 2.0, 2, snapshots=1)
    y.backward()
    close(w.grad.item(), 2 * 4 * 1.5**3)


def test_closures_over_variables_of_outer_transforms():
    def f(x):
        return pb.grad(lambda y: fori_loop(0, 3, lambda i, c: c * y * x, 1.0))(2.0)  # d/dy (xy)^3 = 3 x^3 y^2

    close(f(1.5), 3 * 1.5**3 * 4)
    close(pb.grad(f)(1.5), 9 * 1.5**2 * 4)
    close(push(pb.grad(f))(np.array(1.5)), 18 * 1.5 * 4)


def test_cond_with_nan_in_the_branch_not_taken():
    f = lambda x: cond(x > 0, pb.log, lambda x: x * x, x)  # noqa: E731
    assert float(pb.grad(f)(0.0)) == 0.0
    for order in (f, pb.grad(f), pb.grad(pb.grad(f)), push(push(f)), push(pb.grad(f))):
        assert np.isfinite(pb.vmap(order)(np.array([-1.0, 0.0, 2.0]))).all()
    close(pb.vmap(pb.grad(pb.grad(f)))(np.array([-1.0, 0.0, 2.0])), [2.0, 2.0, -0.25])
    x = leaf([-1.0, 0.0, 2.0])
    pb.vmap(f)(x).sum().backward()
    close(x.grad.numpy(), [-2.0, 0.0, 0.5])


def test_a_hundred_thousand_steps_there_and_back():
    x = leaf(1.0)
    y, steps = while_loop(lambda c: c[1] < 100_000, lambda c: (c[0] * 0.5 + x, c[1] + 1), (0.0, 0))
    y.backward()
    assert int(steps) == 100_000
    close([y.item(), x.grad.item()], [2.0, 2.0])


# Predicates that differ by element: masks run.

STARTS = np.array([0.3, 1.0, 2.0, 50.0, 1e6])
NUMBERS = np.array([1, 6, 7, 27, 2])


@pytest.mark.parametrize("derivative", [lambda f: f, pb.grad, push, lambda f: pb.grad(pb.grad(f))])
def test_vmap_with_trip_counts_by_element(derivative):
    found = pb.vmap(derivative(root))(STARTS)
    close(found, [derivative(root)(a) for a in STARTS])


@pytest.mark.parametrize("first", [pb.grad, push], ids=["reverse", "forward"])
@pytest.mark.parametrize("second", [pb.grad, push, lambda f: f], ids=["reverse", "forward", "none"])
def test_vmap_with_branches_and_trip_counts_by_element(first, second):
    xs = np.linspace(0.2, 0.9, len(NUMBERS))
    found = pb.vmap(lambda x, n: second(first(lambda x: collatz(x, n)))(x))(xs, NUMBERS)
    wanted = [second(first(lambda x, n=n: collatz_by_hand(x, n)))(x) for x, n in zip(xs, NUMBERS, strict=True)]
    close(found, wanted)


def test_derivatives_of_a_vmapped_loop_from_outside():
    xs = np.linspace(0.2, 0.9, len(NUMBERS))
    total = lambda xs: pb.sum(pb.vmap(collatz)(xs, NUMBERS) ** 2)  # noqa: E731
    wanted = [pb.grad(lambda x, n=n: collatz_by_hand(x, n) ** 2)(x) for x, n in zip(xs, NUMBERS, strict=True)]
    close(pb.grad(total)(xs), wanted)
    close(pb.jvp(total, (xs,), (np.ones_like(xs),))[1], sum(wanted))
    second = [pb.grad(pb.grad(lambda x, n=n: collatz_by_hand(x, n) ** 2))(x) for x, n in zip(xs, NUMBERS, strict=True)]
    close(pb.grad(lambda xs: pb.sum(pb.grad(total)(xs)))(xs), second)
    x = leaf(xs)
    total(x).backward()
    close(x.grad.numpy(), wanted)


def test_taylor_mode_and_vmap():
    def third(a):
        return jet(root, (a,), ([1.0, None, None],))[1][2]

    close(pb.vmap(third)(np.array([0.3, 2.0, 50.0])), [root_derivative(a, 3) for a in (0.3, 2.0, 50.0)], rtol=1e-6)


def test_the_body_is_never_run_where_an_element_ended():
    """The carry an element ends with is a pole of the body; there and back, and back again, there is no NaN."""

    def f(x):  # down by one while positive: ends at 0 for whole numbers, where the body has no value
        return while_loop(lambda c: c[0] > 0, lambda c: (c[0] - 1, c[1] + pb.log(c[0]) / c[0]), (x, x * 0.0))[1]

    def by_hand(x):
        total = 0.0 * x
        while x > 0:
            total, x = total + pb.log(x) / x, x - 1
        return total

    xs = np.array([1.0, 5.0, 2.5, 3.0])
    for order in (lambda f: f, pb.grad, push, lambda f: pb.grad(pb.grad(f)), lambda f: push(pb.grad(f))):
        close(pb.vmap(order(f))(xs), [order(by_hand)(x) for x in xs])


@pytest.mark.parametrize("closure", [False, True])
def test_elements_that_never_begin_do_not_spoil_gradients(closure):
    """The body has a pole at the carry of an element that takes no round."""

    def f(x):
        def body(c):
            return c[0] + 1 / pb.sqrt(x if closure else c[2]), c[1] + 1, c[2]

        return while_loop(lambda c: c[1] < pb.where(x > 0, 3, 0), body, (x, 0, x))[0]

    xs = np.array([4.0, 0.0, -1.0])
    close(pb.vmap(f)(xs), [4 + 3 * 0.5, 0.0, -1.0])
    close(pb.vmap(pb.grad(f))(xs), [1 - 1.5 * 4**-1.5, 1.0, 1.0])
    close(pb.grad(lambda xs: pb.sum(pb.vmap(f)(xs)))(xs), [1 - 1.5 * 4**-1.5, 1.0, 1.0])
    close(pb.vmap(pb.grad(pb.grad(f)))(xs), [2.25 * 4**-2.5, 0.0, 0.0])


def test_shared_weights_of_a_vmapped_loop():
    """Elements that are done, or never began, add nothing to the gradient of what all share."""
    w = np.array([[0.25, 0.1], [0.05, 0.2]])
    xs = np.array([[4.0, 1.0], [0.01, 0.0], [30.0, 2.0]])

    def f(w, x):
        return pb.sum(while_loop(lambda x: pb.sum(x) > 1, lambda x: pb.sqrt(w @ x), x))

    def by_hand(w):
        total = 0.0
        for x in xs:
            while pb.sum(x) > 1:
                x = pb.sqrt(w @ x)
            total = total + pb.sum(x)
        return total

    batched = lambda w: pb.sum(pb.vmap(f, (None, 0))(w, xs))  # noqa: E731
    close(pb.grad(batched)(w), pb.grad(by_hand)(w))
    close(
        pb.grad(lambda w: pb.sum(pb.grad(batched)(w) ** 2))(w), pb.grad(lambda w: pb.sum(pb.grad(by_hand)(w) ** 2))(w)
    )


def test_a_contraction_with_shared_weights_does_not_meet_the_poles_where_elements_ended():
    w = np.array([[0.5, 0.2], [0.1, 0.4]])
    xs = np.array([[4.0, 6.0], [30.0, 90.0], [1.5, 1.2]])

    def f(w, x):
        return pb.sum(while_loop(lambda x: pb.min(x) > 0, lambda x: pb.einsum("ij,j->i", w, pb.log(x)), x))

    def by_hand(w):
        total = 0.0
        for x in xs:
            while pb.min(x) > 0:
                x = pb.einsum("ij,j->i", w, pb.log(x))
            total = total + pb.sum(x)
        return total

    close(pb.grad(lambda w: pb.sum(pb.vmap(f, (None, 0))(w, xs)))(w), pb.grad(by_hand)(w))


@pytest.mark.parametrize(
    "product",
    [
        lambda w, x: w @ x,
        lambda w, x: pb.einsum("ij,j->i", w, x),
    ],
    ids=["matmul", "einsum"],
)
def test_nan_of_a_branch_not_taken_beside_shared_weights(product):
    w = np.array([[0.5, 0.2], [0.1, 0.4]])
    xs = np.array([[4.0, 1.0], [-1.0, 2.0], [9.0, 1.0]])

    def f(w, x):
        return cond(x[0] > 0, lambda: pb.sum(product(w, pb.sqrt(x))), lambda: pb.sum(x))

    found = pb.grad(lambda w: pb.sum(pb.vmap(f, (None, 0))(w, xs)))(w)
    close(found, np.ones((2, 1)) * (np.sqrt(xs[0]) + np.sqrt(xs[2])))


def test_a_leaf_handed_through_stays_shared():
    """What all elements have in common is not copied for each."""
    shared = np.ones(3)
    seen = []

    def body(c):
        seen.append(type(c["w"]))
        return {"w": c["w"], "x": c["x"] - pb.sum(c["w"])}

    found = pb.vmap(lambda x: while_loop(lambda c: c["x"] > 0, body, {"w": shared, "x": x})["x"])(np.array([1.0, 7.0]))
    close(found, [-2.0, -2.0])
    assert set(seen) == {np.ndarray}


def test_a_loop_in_a_branch_not_taken_ends():
    """The loop never ends for elements that do not enter the branch."""

    def f(x):
        endless = lambda: while_loop(lambda y: y < 10, lambda y: y + x, 0.0)  # noqa: E731
        return cond(x > 0, endless, lambda: -x)

    xs = np.array([3.0, -1.0, 0.0, 5.0])
    close(pb.vmap(f)(xs), [12.0, 1.0, 0.0, 10.0])
    close(pb.vmap(pb.grad(f))(xs), [4.0, -1.0, -1.0, 2.0])


def test_a_loop_in_a_round_that_an_element_does_not_take_ends():
    def f(x, rounds):
        def body(c):
            k, total = c
            step = pb.where(k < rounds, x, 0.0)  # zero, so endless, for elements that are done
            return k + 1, total + while_loop(lambda y: y < 4, lambda y: y + step, 0.0)

        return while_loop(lambda c: c[0] < rounds, body, (0, 0.0))[1]

    close(pb.vmap(f)(np.array([1.0, 3.0, 2.0]), np.array([3, 0, 1])), [12.0, 0.0, 4.0])
    found = pb.vmap(pb.grad(f), (0, 0))(np.array([1.0, 3.0, 2.0]), np.array([3, 0, 1]))
    close(found, [12.0, 0.0, 2.0])


def test_a_condition_may_hold_a_loop():
    def halvings(n):
        return while_loop(lambda c: is_even(c[0]), lambda c: (half(c[0]), c[1] + 1), (n, 0))[1]

    def f(n):
        return while_loop(lambda m: halvings(m) < 3, lambda m: m + 1, n)

    assert pb.vmap(f)(np.array([1, 8, 17])).tolist() == [8, 8, 24]


def test_recursion_ends_when_no_element_goes_on():
    def factorial(n):
        return cond(n <= 1, lambda n: 1, lambda n: n * factorial(n - 1), n)

    assert pb.vmap(factorial)(np.array([1, 5, 3])).tolist() == [1, 120, 6]
    assert int(factorial(6)) == 720


def test_nested_vmaps_have_trip_counts_of_their_own():
    xs, limits = np.array([1.0, 2.0, 5.0]), np.array([3.0, 20.0])

    def f(x, limit):
        return while_loop(lambda y: y < limit, lambda y: cond(y > x * 2, lambda y: y * 2, lambda y: y + x, y), x)

    def by_hand(x, limit):
        y = x
        while y < limit:
            y = y * 2 if y > x * 2 else y + x
        return y

    both = pb.vmap(pb.vmap(f, (0, None)), (None, 0))
    close(both(xs, limits), [[by_hand(x, m) for x in xs] for m in limits])
    wanted = [[pb.grad(lambda x, m=m: by_hand(x, m))(x) for x in xs] for m in limits]
    close(pb.vmap(pb.vmap(pb.grad(f), (0, None)), (None, 0))(xs, limits), wanted)
    inner = pb.vmap(lambda m: pb.grad(lambda xs: pb.sum(pb.vmap(f, (0, None))(xs, m)))(xs))
    close(inner(limits), wanted)


def test_a_predicate_may_begin_to_differ_in_the_middle():
    """The carry is the same for all elements until the body brings in one that is not."""

    def f(x):
        return while_loop(lambda c: c < 10, lambda c: c + x, 1.0)

    close(pb.vmap(f)(np.array([2.0, 5.0])), [11.0, 11.0])
    close(pb.vmap(pb.grad(f))(np.array([2.0, 5.0])), [5.0, 2.0])


def test_fori_loop_with_bounds_by_element():
    lower, upper = np.array([0, 2, 5]), np.array([3, 7, 5])
    total = lambda a, b: fori_loop(a, b, lambda i, c: c + i, 0)  # noqa: E731
    wanted = [sum(range(a, b)) for a, b in zip(lower, upper, strict=True)]
    assert pb.vmap(total)(lower, upper).tolist() == wanted
    assert pb.vmap(total, (None, 0))(1, upper).tolist() == [sum(range(1, b)) for b in upper]
    assert pb.vmap(total, (0, None))(lower, 6).tolist() == [sum(range(a, 6)) for a in lower]
    power = lambda x, n: fori_loop(0, n, lambda i, y: y * x, 1.0)  # noqa: E731
    close(pb.vmap(pb.grad(power))(np.array([2.0, 3.0, 0.0]), np.array([4, 0, 1])), [32.0, 0.0, 1.0])


def test_the_counter_of_an_element_that_is_done_is_no_index_out_of_range():
    x = np.arange(5.0)
    lower, upper = np.array([[3, 0], [5, 4]]), np.array([[5, 2], [5, 5]])
    total = lambda a, b: fori_loop(a, b, lambda i, c: c + x[i], 0.0)  # noqa: E731
    wanted = [[x[a:b].sum() for a, b in zip(*row, strict=True)] for row in zip(lower, upper, strict=True)]
    x = pb.tensor(x)
    assert pb.vmap(pb.vmap(total))(lower, upper).tolist() == wanted


def test_switch_by_element():
    functions = [pb.sqrt, pb.log, lambda x: x * x]
    index, xs = np.array([2, 0, 1, 2]), np.array([-3.0, 4.0, 2.0, 0.0])
    f = lambda i, x: switch(i, functions, x)  # noqa: E731
    close(pb.vmap(f)(index, xs), [9.0, 2.0, math.log(2), 0.0])
    close(pb.vmap(pb.grad(f, 1))(index, xs), [-6.0, 0.25, 0.5, 0.0])
    close(pb.vmap(pb.grad(pb.grad(f, 1), 1))(index, xs), [2.0, -1 / 32, -0.25, 2.0])


def test_functions_that_no_element_takes_do_not_run():
    def never(x):
        raise AssertionError

    assert pb.vmap(lambda x: cond(x > 0, pb.sqrt, never, x))(np.array([1.0, 4.0])).tolist() == [1.0, 2.0]
    assert pb.vmap(lambda x: switch(x.astype(int), [never, pb.sqrt], x))(np.array([1.0, 1.0])).tolist() == [1.0, 1.0]


def test_a_batch_of_no_elements():
    xs = np.zeros(0)
    assert pb.vmap(lambda x: cond(x > 0, pb.sqrt, pb.negative, x))(xs).shape == (0,)
    assert pb.vmap(root)(xs).shape == (0,)
    assert pb.vmap(lambda i: switch(i, [pb.square, pb.square], 2.0))(np.zeros(0, int)).shape == (0,)


def test_warnings_are_for_elements_that_take_part():
    f = lambda x: cond(x >= 0, lambda x: 1 / x, lambda x: x, x)  # noqa: E731
    assert pb.vmap(f)(np.array([-1.0, 2.0])).tolist() == [-1.0, 0.5]
    assert np.isinf(pb.vmap(lambda x: cond(x > 0, lambda x: -x, lambda x: 1 / x, x))(np.array([0.0, 1.0]))[0])
    with pytest.warns(RuntimeWarning, match="divide by zero"):
        pb.vmap(f)(np.array([0.0, 2.0]))  # all take the branch: this is the user's own division
    overflow = lambda n: while_loop(lambda n: n < 2**40, lambda n: n * n, n)  # noqa: E731
    assert pb.vmap(overflow)(np.array([2**62, 3])).tolist() == [2**62, 3**32]


def test_branches_that_write_to_their_arguments_do_not_meet():
    def bump(y):
        y += 1.0
        return y

    def f(x):
        shared = pb.tensor(10.0)
        return cond(x > 0, bump, bump, shared) + x + shared

    assert pb.vmap(f)(np.array([1.0, -1.0])).tolist() == [22.0, 20.0]


def test_exceptions_leave_no_mask_behind():
    def fails(x):
        raise KeyError("mine")

    for f in (
        lambda x: cond(x > 0, fails, lambda x: x, x),
        lambda x: switch(pb.astype(x > 0, int), [lambda x: x, fails], x),
        lambda x: while_loop(lambda y: y > 0, fails, x),
        lambda x: while_loop(lambda y: fails(y) if batch_masks._current_mask.get() else y > 0, lambda y: y - 1, x),
    ):
        with pytest.raises(KeyError, match="mine"):
            pb.vmap(f)(np.array([1.0, -1.0, 2.0]))
        assert batch_masks._current_mask.get() is None
    assert np.geterr()["divide"] == "warn"


def test_threads_have_masks_of_their_own():
    start, found = threading.Barrier(4), {}

    def work(name):
        xs = np.array([0.5, 2.0, 10.0 ** (name + 1)])
        start.wait()
        for _ in range(5):
            found[name] = pb.vmap(pb.grad(root))(xs)

    threads = [threading.Thread(target=work, args=(n,)) for n in range(4)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for name in range(4):
        close(found[name], [root_derivative(a, 1) for a in (0.5, 2.0, 10.0 ** (name + 1))])


def test_generators_resume_under_the_mask_of_whoever_asks():
    def endless(x):
        while True:
            yield while_loop(lambda y: y < 6, lambda y: y + x, 0.0)

    def f(x):
        made = endless(x)
        return cond(x > 0, lambda: next(made), lambda: x)

    assert pb.vmap(f)(np.array([4.0, -1.0])).tolist() == [8.0, -1.0]


# Scan, map.


@pytest.mark.parametrize("count", [0, 1, 2, 40])
@pytest.mark.parametrize("reverse", [False, True])
def test_scan_agrees_with_a_loop(count, reverse):
    xs = np.arange(count * 2.0).reshape(count, 2)
    carry, wanted = np.ones(2), [None] * count
    for i in range(count)[:: -1 if reverse else 1]:
        carry = carry * 0.5 + xs[i]
        wanted[i] = {"sum": carry.sum(), "both": (carry, i)}
    found, ys = scan(step, np.ones(2), (xs, np.arange(count)), reverse=reverse)
    assert np.array_equal(found, carry)
    assert ys["sum"].shape == (count,)
    assert ys["both"][0].shape == (count, 2)
    assert ys["both"][1].tolist() == list(range(count))
    assert ys["both"][1].dtype == int
    assert np.array_equal(ys["sum"], np.array([y["sum"] for y in wanted]))


def step(c, x):
    c = c * 0.5 + x[0]
    return c, {"sum": pb.sum(c), "both": (c, x[1])}


def rnn(params, xs, reverse=False):
    def cell(h, x):
        h = pb.tanh(params["w"] @ h + params["u"] * x)
        return h, pb.sum(h * h)

    return scan(cell, np.zeros(2), xs, reverse=reverse)


def rnn_by_hand(params, xs):
    h, ys = np.zeros(2), []
    for i in range(len(xs)):
        h = pb.tanh(params["w"] @ h + params["u"] * xs[i])
        ys.append(pb.sum(h * h))
    return h, pb.stack(ys)


@pytest.mark.parametrize("count", [1, 5, 70])
def test_scan_of_a_recurrent_cell(count):
    rng = np.random.default_rng(3)
    params = {"w": 0.5 * rng.normal(size=(2, 2)), "u": rng.normal(size=2)}
    xs = rng.normal(size=count)

    def loss(run, params, xs):
        h, ys = run(params, xs)
        return pb.sum(h) + pb.sum(ys**2)

    found, wanted = (pb.grad(lambda p, x, r=r: loss(r, p, x), (0, 1))(params, xs) for r in (rnn, rnn_by_hand))
    for name in params:
        close(found[0][name], wanted[0][name])
    close(found[1], wanted[1])
    second = [
        pb.grad(lambda x, r=r: pb.sum(pb.grad(lambda p: loss(r, p, x))(params)["w"] ** 2))(xs)
        for r in (rnn, rnn_by_hand)
    ]
    close(*second)
    along = rng.normal(size=count)
    tangents = [pb.jvp(lambda x, r=r: r(params, x)[1], (xs,), (along,))[1] for r in (rnn, rnn_by_hand)]
    close(*tangents)
    x = leaf(xs)
    loss(rnn, params, x).backward()
    close(x.grad.numpy(), wanted[1])


def test_scan_under_vmap():
    xs = np.random.default_rng(5).normal(size=(3, 4))
    f = lambda x: scan(lambda c, x: (c * x, cond(x > 0, pb.sqrt, pb.negative, x)), 1.0, x)  # noqa: E731
    products, ys = pb.vmap(f)(xs)
    close(products, xs.prod(axis=1))
    close(ys, np.where(xs > 0, np.sqrt(np.abs(xs)), -xs))
    gradient = pb.vmap(pb.grad(lambda x: pb.sum(f(x)[1])))(xs)
    close(gradient, np.where(xs > 0, 0.5 / np.sqrt(np.abs(xs)), -1.0))


def test_scan_without_xs():
    powers = scan(lambda c, _: (c * 2, c), 1, None, length=5)
    assert int(powers[0]) == 32
    assert powers[1].tolist() == [1, 2, 4, 8, 16]
    assert scan(lambda c, _: (c, None), 1, length=3) == (1, None)


@pytest.mark.parametrize("kind", [np.asarray, pb.tensor, leaf])
def test_scan_of_no_steps(kind):
    x = kind(np.zeros((0, 3)))
    carry, ys = scan(lambda c, x: (c + pb.sum(x), {"y": x[:2] * c, "n": pb.argmax(x)}), kind(np.array(2.0)), x)
    assert float(carry.item()) == 2.0
    assert ys["y"].shape == (0, 2)
    assert ys["y"].dtype == np.float64
    assert ys["n"].shape == (0,)
    assert ys["n"].dtype == np.int64
    assert isinstance(ys["y"], pb.Tensor) == (kind is not np.asarray)
    assert pb.grad(lambda c: scan(lambda c, x: (c * x, x), c, np.zeros(0))[0])(2.0) == 1.0
    batched = pb.vmap(lambda c: scan(lambda c, x: (c * x, c), c, np.zeros((0,), np.float32)))(np.ones(3, np.float32))
    assert batched[1].shape == (3, 0)
    assert batched[1].dtype == np.float32


def test_scan_of_no_steps_of_a_function_that_needs_values():
    with pytest.raises(errors.ArgumentError, match=r"(?s)no steps to take.*being traced"):
        scan(lambda c, x: (pb.sin(c) if x > 0 else pb.cos(c), x), 1.0, np.zeros(0))
    last, ys = scan(lambda c, x: (cond(x > 0, pb.sin, pb.cos, c), x), 1.0, np.zeros(0))
    assert (last, ys.shape) == (1.0, (0,))


def test_map_in_turn():
    xs = {"a": np.arange(6.0).reshape(3, 2), "b": np.array([1, -1, 1])}
    f = lambda x: (pb.sum(x["a"]) * x["b"], x["b"] > 0)  # noqa: E731
    sums, signs = map_in_turn(f, xs)
    assert sums.tolist() == [1.0, -5.0, 9.0]
    assert signs.tolist() == [True, False, True]
    close(pb.grad(lambda a: pb.sum(map_in_turn(pb.sum, a) ** 2))(xs["a"]), 2 * xs["a"].sum(1)[:, None] * np.ones(2))
    close(pb.vmap(lambda x: map_in_turn(pb.square, x))(xs["a"]), xs["a"] ** 2)
    assert map_in_turn(pb.square, np.zeros((0, 2))).shape == (0, 2)


def test_the_way_back_through_a_scan_is_linear_in_its_length():
    """Neither cutting the sequence nor stacking the results makes an op of very many arguments."""
    x = leaf(np.linspace(0.0, 1.0, 3000))
    carry, ys = scan(lambda c, x: (c + x, c * x), 0.0, x)
    (carry + pb.sum(ys)).backward()
    numbers = x.detach().numpy()
    close(x.grad.numpy(), 1 + numbers.sum() - numbers)  # sum over pairs: each x meets all others
    stack = [ys.node]
    while stack:
        node = stack.pop()
        assert len(node.parents) <= 32
        stack += [p for p in node.parents if p.name == "concat"]


# Associative scan.


def affine(left, right):
    """x -> a x + b, one after the other."""
    return {"a": left["a"] * right["a"], "b": right["a"] * left["b"] + right["b"]}


@settings(max_examples=25, deadline=None)
@given(count=st.integers(0, 70), axis=st.integers(-2, 1), reverse=st.booleans())
def test_associative_scan_of_sums(count, axis, reverse):
    x = np.arange(count * 3.0).reshape((count, 3) if axis % 2 == 0 else (3, count))
    turn = (lambda x: np.flip(x, axis)) if reverse else np.asarray
    assert np.array_equal(associative_scan(pb.add, x, reverse=reverse, axis=axis), turn(turn(x).cumsum(axis)))


@pytest.mark.parametrize("count", range(18))
@pytest.mark.parametrize("reverse", [False, True])
def test_associative_scan_of_matrices_and_affine_maps(count, reverse):
    rng = np.random.default_rng(count)
    matrices = rng.normal(size=(count, 2, 2))
    maps = {"a": rng.normal(size=count), "b": rng.normal(size=count)}
    order = range(count)[:: -1 if reverse else 1]
    wanted, wanted_maps = [None] * count, [None] * count
    for k, i in enumerate(order):
        last = order[k - 1]
        wanted[i] = wanted[last] @ matrices[i] if k else matrices[i]
        one = {name: maps[name][i] for name in maps}
        wanted_maps[i] = affine(wanted_maps[last], one) if k else one
    found = associative_scan(pb.matmul, matrices, reverse=reverse)
    found_maps = associative_scan(affine, maps, reverse=reverse)
    assert found.shape == matrices.shape
    for i in range(count):
        close(found[i], wanted[i])
        close([found_maps["a"][i], found_maps["b"][i]], [wanted_maps[i]["a"], wanted_maps[i]["b"]])


@pytest.mark.parametrize("count", [1, 2, 3, 6, 7])
def test_derivatives_of_an_associative_scan(count):
    rng = np.random.default_rng(count)
    x = rng.normal(size=(count, 2, 2))

    def by_hand(x):
        parts = [x[0]]
        for i in range(1, count):
            parts.append(parts[-1] @ x[i])
        return pb.sum(pb.stack(parts) ** 3)

    f = lambda x: pb.sum(associative_scan(pb.matmul, x) ** 3)  # noqa: E731
    close(pb.grad(f)(x), pb.grad(by_hand)(x))
    twice = [pb.grad(lambda x, f=f: pb.sum(pb.grad(f)(x) ** 2))(x) for f in (f, by_hand)]
    close(*twice)
    along = rng.normal(size=x.shape)
    close(pb.jvp(f, (x,), (along,))[1], pb.jvp(by_hand, (x,), (along,))[1])
    batch = rng.normal(size=(3, *x.shape))
    close(pb.vmap(pb.grad(f))(batch), [pb.grad(by_hand)(b) for b in batch])


def test_associative_scan_calls_its_function_a_logarithmic_number_of_times():
    calls = []

    def add(a, b):
        calls.append(len(a))
        return a + b

    associative_scan(add, np.ones(1000))
    assert len(calls) <= 2 * 10
    assert min(calls) > 0


# Dtypes of numbers.


def test_numbers_in_a_carry_take_the_precision_beside_them():
    x = np.ones(2, np.float32)
    total, array, count = fori_loop(0, 2, lambda i, c: (c[0] + pb.sum(c[1]), c[1], c[2] + 1), (0.0, x, 0))
    assert (total.dtype, array.dtype, count.dtype) == (np.float32, np.float32, np.int64)
    assert fori_loop(0, 0, None_body, 0.0).dtype == np.float64
    assert fori_loop(0, 0, None_body, (1j, x))[0].dtype == np.complex64
    assert fori_loop(0, 0, None_body, True).dtype == bool
    assert fori_loop(0, 1, lambda i, c: 2, np.float32(1)).dtype == np.float32  # a number gives way


def None_body(i, c):
    return c


def test_a_number_in_a_branch_gives_way():
    f = lambda x: cond(x > 0, lambda: x, lambda: 0.0)  # noqa: E731
    assert pb.vmap(f)(np.array([1, -1], np.float32)).dtype == np.float32


# Errors.


@pytest.mark.parametrize(
    ("call", "kind", "text"),
    [
        (lambda: cond(1, pb.sin, pb.cos, 1.0), errors.DtypeError, "predicate must be a boolean, got int"),
        (lambda: cond("yes", pb.sin, pb.cos, 1.0), errors.DtypeError, "must be a boolean, got a str"),
        (lambda: cond(np.array([True]), pb.sin, pb.cos, 1.0), errors.ShapeError, r"one boolean, got bool\[1\]"),
        (lambda: cond(True, 1.0, pb.cos), errors.ArgumentError, "cond: wants a function, got a float"),
        (lambda: while_loop(lambda x: x, lambda x: x, 1.0), errors.DtypeError, "while_loop: the condition must be"),
        (lambda: switch(3, [pb.sin], 1.0), errors.IndexingError, "index 3 is out of range for 1 functions"),
        (lambda: switch(-1, [pb.sin], 1.0), errors.IndexingError, "index -1 is out of range"),
        (lambda: switch(1.0, [pb.sin], 1.0), errors.DtypeError, "the index must be an integer, got float"),
        (lambda: switch(True, [pb.sin], 1.0), errors.DtypeError, "the index must be an integer, got bool"),
        (lambda: switch(0, []), errors.ArgumentError, "at least one function"),
        (lambda: fori_loop(0, 2.5, None_body, 1), errors.DtypeError, "fori_loop: upper must be an integer"),
        (lambda: fori_loop([0], 2, None_body, 1), errors.DtypeError, "lower must be an integer, got a list"),
        (
            lambda: fori_loop(0, 1, lambda i, c: c[:1], np.ones(2)),
            errors.ShapeError,
            r"carry was float64\[2\] and became float64\[1\]",
        ),
        (
            lambda: fori_loop(0, 1, lambda i, c: {"a": [c["a"][0] + 1.5]}, {"a": [1]}),
            errors.DtypeError,
            r"carry\['a'\]\[0\] was int64\[\] and became float64\[\]",
        ),
        (
            lambda: fori_loop(0, 1, lambda i, c: (c, c), 1),
            errors.ArgumentError,
            "the carry after a step and the initial one: the trees differ",
        ),
        (lambda: fori_loop(0, 1, lambda i, c: "no", 1), errors.PullbackError, "fori_loop|cannot"),
        (lambda: scan(lambda c, x: c, 1, np.ones(2)), errors.ArgumentError, r"scan: the function returns \(carry, y\)"),
        (lambda: scan(lambda c, x: (c, x), 1, np.float64(2)), errors.ShapeError, "xs is float64.. and has no axis"),
        (lambda: scan(lambda c, x: (c, x), 1, None), errors.ArgumentError, "length=n"),
        (lambda: scan(lambda c, x: (c, x), 1, None, length=-1), errors.ArgumentError, "must not be negative"),
        (lambda: scan(lambda c, x: (c, x), 1, np.ones(2), length=3), errors.ShapeError, "length has 3, xs has 2"),
        (
            lambda: scan(lambda c, x: (c, c), 1, {"a": np.ones(2), "b": np.ones(3)}),
            errors.ShapeError,
            r"xs\['a'\] has 2, xs\['b'\] has 3",
        ),
        (
            lambda: scan(lambda c, x: (c + 1, 1.5 if c else 1), 0, np.ones(3)),
            errors.DtypeError,
            r"result was int64\[\] at first and float64\[\] in step 2",
        ),
        (lambda: map_in_turn(pb.sin, None), errors.ArgumentError, "map: xs holds no arrays"),
        (
            lambda: associative_scan(lambda a, b: a[:1], np.ones(4)),
            errors.ShapeError,
            r"got float64\[2\] for leaf and returned float64\[1\]",
        ),
        (lambda: associative_scan(pb.divide, np.ones(4, int)), errors.DtypeError, "returned float64"),
        (
            lambda: associative_scan(affine, {"a": np.ones(2), "b": np.ones(3)}),
            errors.ShapeError,
            "lengths along axis 0 differ",
        ),
        (lambda: associative_scan(pb.add, np.float64(1)), errors.ShapeError, "axis 0 does not exist"),
    ],
)
def test_errors_say_what_is_wrong(call, kind, text):
    with pytest.raises(kind, match=text):
        call()


@pytest.mark.parametrize(
    ("f", "kind", "text"),
    [
        (
            lambda x: cond(x > 0, lambda: x, lambda: (x, x)),
            errors.ArgumentError,
            "false_function and true_function: the trees differ",
        ),
        (
            lambda x: cond(x > 0, lambda: [x], lambda: [pb.stack([x, x])]),
            errors.ShapeError,
            r"result\[0\] is float64\[2\] and float64\[\]",
        ),
        (
            lambda x: cond(x > 0, lambda: x, lambda: pb.astype(x, "float32")),
            errors.DtypeError,
            "is float32.. and float64..",
        ),
        (lambda x: cond(x > 0, lambda: 1.5, lambda: pb.astype(x, int)), errors.DtypeError, "is int64.. and float"),
        (
            lambda x: switch(pb.astype(x, int) + 1, [pb.sin, pb.cos, lambda x: None], x),
            errors.ArgumentError,
            r"functions\[2\] and functions\[0\]",
        ),
        (
            lambda x: switch(pb.astype(x, int), [pb.sin, pb.cos], x),
            errors.IndexingError,
            "of some element is out of range for 2",
        ),
        (lambda x: cond(pb.stack([x, x]) > 0, pb.sin, pb.cos, x), errors.ShapeError, "one boolean"),
        (lambda x: while_loop(lambda y: y < 5, lambda y: pb.stack([y, y]), x), errors.ShapeError, "the carry was"),
    ],
)
def test_errors_where_elements_differ(f, kind, text):
    with pytest.raises(kind, match=text):
        pb.vmap(f)(np.array([1.0, -1.0]))


def test_indices_of_elements_that_take_no_part_may_be_out_of_range():
    f = lambda i: cond(i < 2, lambda: switch(i, [lambda: 5, lambda: 7]), lambda: 0)  # noqa: E731
    assert pb.vmap(f)(np.array([0, 1, 9])).tolist() == [5, 7, 0]


def test_what_is_known_can_be_staged():
    def f(x):
        total, _ = scan(lambda c, x: (c + x, x), 0.0, x)
        return fori_loop(0, 2, lambda i, c: c * x, cond(True, lambda: x + total, lambda: x))

    assert stage(f)(np.ones(2)).run(np.array([2.0, 3.0])).tolist() == [28.0, 72.0]


def test_values_of_a_transform_that_is_over():
    kept = []
    pb.vmap(lambda x: kept.append(x > 0) or x)(np.ones(2))
    with pytest.raises(errors.LeakError, match="vmap that is over"):
        cond(kept[0], pb.sin, pb.cos, 1.0)


def test_loops_hand_out_arrays_that_cannot_be_written_to():
    def add_in_place(carry, x):
        carry += x
        return carry, carry

    init = np.zeros(2)
    with pytest.raises(ValueError, match="read-only"):
        pb.scan(add_in_place, init, np.ones((2, 2)))
    with pytest.raises(ValueError, match="read-only"):
        pb.fori_loop(0, 2, lambda i, c: c.__iadd__(1.0), init)
    assert init.tolist() == [0.0, 0.0]


def test_loops_answer_memory_of_their_own():
    init = np.zeros(2)
    for found in (
        pb.fori_loop(0, 0, lambda i, c: c, init),
        pb.while_loop(lambda c: c[0] > 0, lambda c: c, init),
        pb.scan(lambda c, _: (c, c), init, length=2)[0],
        pb.scan(lambda c, _: (c, c), init, length=2)[1],
    ):
        found[...] = 9.0
    assert init.tolist() == [0.0, 0.0]


CAPTURES = {
    "scan": lambda w: lambda x: pb.scan(lambda c, e: (c * w * e, c), x, np.ones(2))[0].sum(),
    "grad in scan": lambda w: (
        lambda x: pb.scan(lambda c, e: (c + pb.grad(lambda u: (w * u * u).sum())(x) * e, c), x * 0, np.ones(2))[0].sum()
    ),
    "fori_loop": lambda w: lambda x: pb.fori_loop(0, 2, lambda i, c: c * w, x).sum(),
    "while_loop": lambda w: (
        lambda x: pb.while_loop(lambda c: c[0] < 2, lambda c: (c[0] + 1, c[1] * w), (0, x))[1].sum()
    ),
    "cond": lambda w: lambda x: pb.cond(x[0] > 0, lambda c: w * c * c, lambda c: c, x).sum(),
    "branch in a loop": lambda w: lambda x: pb.fori_loop(0, 2, lambda i, c: c * w if x[0] > 0 else c, x).sum(),
}


@pytest.mark.parametrize("name", CAPTURES)
def test_a_compiled_loop_rereads_the_tensors_that_its_body_captured(name):
    """The body's copy of a tensor had hidden which tensor it was, so the program kept the first call's values."""
    x, w = np.array([0.7, 1.3, 0.4]), pb.tensor(np.ones(3))
    f = CAPTURES[name](w)
    compiled = pb.jit(f)
    for value in (1.0, 5.0, 2.0):
        w[...] = np.full(3, value)
        assert float(compiled(x)) == pytest.approx(float(f(x)))


def test_a_compiled_loop_has_no_carries_that_nothing_depends_on():
    def rounds(kind, x):
        # (count, what is wanted, what it depends on, a history of it that is not looked at)
        def body(c):
            return c[0] + 1, c[1] + c[2], c[2] * 0.5, c[3] + c[1] * pb.ones(1000)

        start = (np.int64(0), x, x, np.zeros(1000))
        if kind == "while":
            return pb.while_loop(lambda c: c[0] < 4, body, start)
        if kind == "fori":
            return pb.fori_loop(0, 4, lambda i, c: body(c), start)
        return pb.scan(lambda c, e: (body(c), c[2] * e), start, np.ones(4))[0]

    for kind in ("while", "fori", "scan"):
        compiled = pb.jit(lambda x, kind=kind: rounds(kind, x)[1])
        assert compiled(1.0) == rounds(kind, 1.0)[1]
        assert compiled.find(1.0).memory().arena < 4000
        assert np.array_equal(pb.jit(lambda x, kind=kind: rounds(kind, x)[3])(1.0), rounds(kind, 1.0)[3])
        assert pb.jit(pb.grad(lambda x, kind=kind: rounds(kind, x)[1]))(1.0) == 2.875


def halve(x):
    def body(c):
        total, x = c
        total += x
        x /= 2
        return total, x

    return pb.while_loop(lambda c: c[1] > 1, body, (x * 0.0, x))[0]


def add_three_times(x):
    def body(i, total):
        total += x * (i + 1)
        return total

    return pb.fori_loop(0, 3, body, 0.0 * x)


@pytest.mark.parametrize(
    ("f", "wanted", "slopes"), [(halve, [14, 4.5], [1.75, 1.5]), (add_three_times, [48, 18], [6, 6])]
)
def test_a_body_may_update_numbers_in_place(f, wanted, slopes):
    xs, ones = np.array([8.0, 3.0]), np.ones(2)
    for run in (lambda x: x, pb.jit):
        assert [float(run(f)(x)) for x in xs] == wanted
        assert [float(run(pb.grad(f))(x)) for x in xs] == slopes
        close(run(pb.vmap(f))(xs), wanted)
        close(run(pb.vmap(pb.grad(f)))(xs), slopes)
        close(run(lambda x: pb.jvp(pb.vmap(f), (x,), (ones,))[1])(xs), slopes)
    x = np.array(8.0)
    pb.while_loop(lambda n: n < 9, lambda n: n.__iadd__(1), x)
    assert x == 8


@pytest.mark.parametrize("change", [lambda f: f, pb.grad, pb.jit, pb.vmap, lambda f: pb.jit(pb.grad(f))])
@pytest.mark.parametrize(
    "loop", [pb.map, lambda f, xs: pb.scan(lambda c, x: (c, f(x)), 0.0, xs)[1]], ids=["map", "scan"]
)
def test_steps_may_return_one_array_that_each_fills(loop, change):
    """Each result is what the array held in its step: all of them were what it held in the last one."""
    weights, xs = np.array([[1.0, 2.0], [3.0, 4.0], [5.0, 6.0]]), np.arange(6.0).reshape(3, 2)

    def total(xs, shared):
        kept = np.zeros(2)

        def fill(x):
            made = kept if shared else np.zeros(2)
            made[:] = x * x
            return made

        return pb.sum(loop(fill, xs) * weights)

    given = xs[None] if change is pb.vmap else xs
    found, wanted = (change(lambda xs, shared=shared: total(xs, shared))(given) for shared in (True, False))
    np.testing.assert_array_equal(found, wanted)


def test_steps_may_return_a_tensor_that_each_updates():
    total = pb.tensor(np.zeros(2))

    def add(x):
        nonlocal total
        total += x
        return total

    xs = np.arange(6.0).reshape(3, 2)
    assert pb.map(add, pb.tensor(xs)).tolist() == np.cumsum(xs, axis=0).tolist()


def test_a_number_that_a_body_updates_keeps_the_sign_of_zero():
    def negate(i, c):
        c *= -1.0
        return c

    assert np.signbit(pb.fori_loop(0, 3, negate, np.array(0.0)))
    assert not np.signbit(pb.fori_loop(0, 2, negate, np.array(0.0)))
