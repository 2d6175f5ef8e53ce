"""Jacobians as products through narrow places: against single modes, NumPy, and cuts found by trying all of them."""

import numpy as np
import pytest
from scipy.sparse import csr_array
from scipy.sparse.csgraph import maximum_flow

import pullback as pb
from pullback import errors
from pullback.program.stage import stage
from pullback.transforms.flat_call import FlatCall
from pullback.transforms.jacobian.cuts import MovingProgram, find_cuts, split_at
from pullback.transforms.jacobian.products import stage_call

RNG = np.random.default_rng(0)
N, M = 30, 40
DOWN, UP = RNG.normal(size=(3, N)) / 5, RNG.normal(size=(M, 3)) / 2
DOWN2, UP2 = RNG.normal(size=(2, M)) / 5, RNG.normal(size=(N, 2)) / 2
X = RNG.normal(size=N)


def narrow(x):
    return pb.sin(UP @ pb.tanh(DOWN @ (x * x)))


def twice(x):
    return pb.exp(UP2 @ pb.cos(DOWN2 @ narrow(x)))


def beside(x):
    """One number goes round the narrow place, another one is used on both sides of it."""
    middle = pb.tanh(DOWN @ x)
    return UP @ (middle * pb.sum(x * x)) + pb.sum(middle) * x[0]


def chosen(x):
    """What has no derivatives may be wide: a mask, places, an order."""
    mask = pb.sort(x) > 0
    middle = DOWN @ pb.sin(x)
    return pb.where(pb.concat([mask, mask[:10]]), UP @ middle, 0.0) * pb.argmax(x)


def trees(x):
    a, b = x["a"], x["b"]
    middle = pb.tanh(DOWN[:, :20] @ a + DOWN[:, 20:] @ b)
    return [UP @ middle, {"c": pb.reshape(UP[:12] @ pb.exp(middle), (3, 4))}]


def factored(x):
    q, r = pb.linalg.qr(pb.reshape(x[:6], (3, 2)) + pb.reshape(DOWN @ x, (3, 1)))
    return UP @ q[:, 0] + pb.sum(r) * pb.sin(UP[:, 0])


def looped(x):
    def step(c, w):
        c = pb.tanh(c + w * pb.sum(x))
        return c, c

    return UP @ pb.scan(step, DOWN @ x, np.arange(4.0))[0]


TREE = {"a": X[:20], "b": X[20:]}
CASES = {
    "narrow": (narrow, X),
    "twice": (twice, X),
    "beside": (beside, X),
    "chosen": (chosen, X),
    "trees": (trees, TREE),
    "looped": (looped, X),
}


def close(left, right, rtol=1e-11):
    for one, other in zip(pb.tree.leaves(left), pb.tree.leaves(right), strict=True):
        assert np.shape(one) == np.shape(other)
        assert one.dtype == other.dtype
        np.testing.assert_allclose(np.asarray(one), np.asarray(other), rtol=rtol, atol=rtol)


@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("mode", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_products_agree_with_single_modes(name, mode):
    f, x = CASES[name]
    found = mode(pb.jacobian(f, mode="product"))(x)
    close(found, pb.jacfwd(f)(x))
    close(found, pb.jacrev(f)(x))


def test_the_closed_form():
    middle = np.tanh(DOWN @ (X * X))
    wanted = np.cos(UP @ middle)[:, None] * (UP @ ((1 - middle**2)[:, None] * DOWN * (2 * X)))
    np.testing.assert_allclose(pb.jacobian(narrow, mode="product")(X), wanted, rtol=1e-11)


def test_what_is_needed_of_an_op_of_several_results_may_be_on_both_sides():
    close(pb.jacobian(factored)(X), pb.jacfwd(factored)(X))


@pytest.mark.parametrize("name", ["narrow", "beside", "chosen"])
def test_other_transforms_go_through_and_around(name):
    f, _ = CASES[name]
    product, single = pb.jacobian(f, mode="product"), pb.jacfwd(f)
    rows = np.stack([X, X + 0.1])
    close(pb.vmap(product)(rows), pb.vmap(single)(rows))
    close(pb.jacobian(product)(X), pb.jacfwd(single)(X))
    total = lambda J: lambda x: pb.sum(pb.sin(J(x)))  # noqa: E731
    close(pb.grad(total(product))(X), pb.grad(total(single))(X))
    close(pb.jit(pb.grad(total(product)))(X), pb.grad(total(single))(X))
    close(pb.jvp(product, (X,), (rows[1],))[1], pb.jvp(single, (X,), (rows[1],))[1])
    close(pb.checkpoint(product)(X), single(X))
    t = pb.tensor(X, requires_grad=True)
    pb.sum(product(t) ** 2).backward()
    close(t.grad, pb.tensor(pb.grad(lambda x: pb.sum(single(x) ** 2))(X)))


def test_what_a_function_closes_over_keeps_its_derivative():
    def loss(make, w):
        return pb.sum(make(lambda x: UP @ pb.tanh((w * DOWN) @ x))(X) ** 2)

    product = pb.grad(lambda w: loss(lambda f: pb.jacobian(f, mode="product"), w))(1.5)
    np.testing.assert_allclose(product, pb.grad(lambda w: loss(pb.jacfwd, w))(1.5), rtol=1e-11)
    w = pb.tensor(1.5, requires_grad=True)
    loss(lambda f: pb.jacobian(f, mode="product"), w).backward()
    np.testing.assert_allclose(float(w.grad), product, rtol=1e-12)


def test_argnums_dtypes_and_chunks():
    f = lambda s, x: s * narrow(x)  # noqa: E731
    close(pb.jacobian(f, (0, 1), mode="product")(2.0, X), pb.jacfwd(f, (0, 1))(2.0, X))
    low = X.astype(np.float32)
    down, up = DOWN.astype(np.float32), UP.astype(np.float32)
    g = lambda x: up @ pb.tanh(down @ x)  # noqa: E731
    found = pb.jacobian(g, mode="product")(low)
    close(found, pb.jacfwd(g)(low), rtol=1e-5)
    close(pb.jacobian(twice, mode="product", memory_budget="2 KiB")(X), pb.jacfwd(twice)(X))
    wave = lambda x: pb.exp(1j * (UP @ (DOWN @ x)))  # noqa: E731
    close(pb.jacobian(wave, mode="product")(X), pb.jacfwd(wave)(X))


@pytest.mark.parametrize("mode", [lambda f: f, pb.jit], ids=["eager", "jit"])
def test_infinities_stay_where_they_are(mode):
    """The slope of the root at zero is infinite, and is not used."""

    def f(x):
        root = pb.sqrt(abs(DOWN @ x))
        return UP @ pb.where(root > 0, root, 0.0)

    x = X.copy()
    x[:] = 0
    with np.errstate(all="ignore"):
        found, wanted = mode(pb.jacobian(f, mode="product"))(x), pb.jacrev(f)(x)
    np.testing.assert_array_equal(found, wanted)
    assert np.all(wanted == 0)


def test_a_product_is_chosen_where_it_pays_and_explained(capsys):
    wide = RNG.normal(size=(5, 1000)) / 30
    f = lambda x: pb.tanh(wide.T @ pb.tanh(wide @ x))  # noqa: E731
    x = RNG.normal(size=1000)
    close(pb.jacobian(f, explain=True)(x), pb.jacfwd(f)(x))
    text = capsys.readouterr().out
    assert "* product                      5 in between" in text
    assert "    to it: reverse             5 directions" in text
    assert "    from it: forward           5 directions" in text
    assert "chosen: product (the least estimated time)" in text
    pb.jacobian(lambda x: pb.sin(x) * x, explain=True)(x)
    assert "product" not in capsys.readouterr().out
    small = lambda x: UP[:9] @ (DOWN @ x)  # noqa: E731
    pb.jacobian(small, explain=True)(X)
    assert "chosen: forward" in (text := capsys.readouterr().out) or "chosen: reverse" in text


def test_a_plan_is_advice():
    class Switch:
        on = True

    switch = Switch()

    def f(x):
        return narrow(x) if switch.on else pb.concat([x * x, x[:10]])

    product = pb.jacobian(f, mode="product")
    close(product(X), pb.jacfwd(f)(X))
    switch.on = False
    close(product(X), pb.jacfwd(f)(X))
    assert np.count_nonzero(product(X)) == M

    def g(x):  # the same ops, but another way round the narrow place
        middle = pb.tanh(DOWN @ x)
        whole, part = pb.sum(x * x), pb.sum(middle * middle)
        return pb.sin(UP @ middle) * (part if switch.on else whole)

    switch.on = True
    product = pb.jacobian(g, mode="product")
    close(product(X), pb.jacfwd(g)(X))
    switch.on = False
    close(product(X), pb.jacfwd(g)(X))


def test_arrays_of_a_function_s_own_may_be_written_to():
    def f(x):
        middle = np.zeros(3)
        middle[0] = DOWN[0] @ x
        middle[1:] = DOWN[1:] @ x
        return UP @ pb.tanh(middle)

    close(pb.jit(pb.jacobian(f, mode="product"))(X), pb.jacrev(lambda x: UP @ pb.tanh(DOWN @ x))(X))


def test_objects_that_a_function_sets_are_set():
    class Counted:
        calls = 0

    wide = RNG.normal(size=(5, 1000)) / 30

    def f(x):
        own.calls += 1
        return pb.tanh(wide.T @ pb.tanh(wide @ x))

    own = Counted()
    x = RNG.normal(size=1000)
    close(pb.jacobian(f)(x), pb.jacfwd(f)(x))
    assert own.calls == 2


def test_functions_that_cannot_be_staged_are_differentiated_in_one_mode():
    counted = []

    class Model(pb.nn.Module):
        def __init__(self):
            self.calls = 0

        def __call__(self, x):
            self.calls = self.calls + 1
            return narrow(x)

    model = Model()
    wanted = pb.jacfwd(narrow)(X)
    close(pb.jacobian(model)(X), wanted)
    assert model.calls == 1
    close(pb.jacobian(lambda x: (narrow(x), counted.append(1))[0])(X), wanted)
    generator = np.random.default_rng(0)
    draws = [lambda x: narrow(x) + pb.random.normal(), lambda x: narrow(x) * generator.normal()]
    for f in (lambda x: narrow(x) if x[0] > -9 else x, lambda x: pb.sin(x), model, *draws):
        with pytest.raises(errors.ArgumentError, match="no Jacobian as a product"):
            pb.jacobian(f, mode="product")(X)
    with pytest.raises(errors.ArgumentError, match="no Jacobian as a product"):
        pb.jacobian(lambda x: (narrow(x), 1), mode="product", has_aux=True)(X)


def narrowest_width(whole):
    """The least width of a separating set of values, by SciPy's maximum flow through the same graph."""
    values = whole.values
    moving, places = whole.moving_values(), {id(s): i for i, s in enumerate(values)}
    capacity = np.zeros((2 * len(values) + 2,) * 2, np.int32)
    source, sink, free = 2 * len(values), 2 * len(values) + 1, 10**6
    for i, s in enumerate(values):
        capacity[2 * i, 2 * i + 1] = s.spec.size
    for s in whole.program.inputs[: whole.moving]:
        capacity[source, 2 * places[id(s)]] = free
    for e in whole.program.equations:
        for a in e.args:
            if id(a) in moving:
                capacity[2 * places[id(a)] + 1, 2 * places[id(e.results[0])]] = free
    for o in whole.program.outputs:
        capacity[2 * places[id(o)] + 1, sink] = free
    return maximum_flow(csr_array(capacity), source, sink).flow_value


@pytest.mark.parametrize("seed", range(25))
def test_cuts_are_the_narrowest(seed):
    rng = np.random.default_rng(seed)
    lines = [
        (rng.integers(max(n - 2, 0), n), rng.integers(n), rng.normal(size=(rng.integers(1, 7), 9))) for n in range(1, 7)
    ]

    def f(x):
        values = [x]
        for first, second, matrix in lines:
            a, b = values[first], values[second]
            values.append(pb.sin(matrix[:, : a.size] @ a) * pb.sum(b))
        return pb.concat([values[-1], values[-2], pb.ones(9) * pb.sum(values[-1])])

    whole = stage_call(FlatCall("jacobian", f, (np.ones(9),)))
    outputs = sum(o.spec.size for o in whole.program.outputs)
    below = min(9, outputs)
    cuts = find_cuts(whole, below)
    widths = {sum(whole.values[i].spec.size for i in cut) for cut in cuts}
    wanted = narrowest_width(whole)
    assert widths == ({wanted} if wanted < below else set())
    for cut in cuts:
        halves = split_at(whole, cut)
        assert not {id(s) for s in halves.held.outputs} & whole.moving_values()


def test_a_side_of_a_program_is_a_program():
    program = stage(lambda x: narrow(x), pb.Spec((N,), "float64"))
    whole = MovingProgram(program, 1)
    (near, *_) = find_cuts(whole, N)
    halves = split_at(whole, near)
    middle = halves.first.program.run(X)
    out = halves.second.program.run(middle)
    np.testing.assert_array_equal(out, narrow(X))
