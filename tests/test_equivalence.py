"""The same functions through every road to their derivatives: one table of functions, one of roads, and they all agree.

The reference is the plain tape, row by row. No road is compared with differences, so the tolerance is that of rounding.
"""

import collections
import contextlib
import functools
import itertools

import numpy as np
import pytest

import pullback as pb

SIZE = 6  # every function takes a vector of so many numbers
DRAWN = np.random.default_rng(20).normal(size=(20, SIZE))
U, V, W = DRAWN[:3]  # directions
WEIGHTS = 0.5 + DRAWN[3:7].ravel() ** 2  # of the elements of a result, so that none stands for another
SAMPLES = DRAWN[7:12]
UNIT = np.eye(SIZE)


# The functions: vector to vector; the scalar form is the weighted sum. `step` marks intermediates for hooks.

hooks_run: list[int] | None = None


def step(x):
    """x itself; while `hooked`, with a hook that hands its gradient on as it is."""
    if hooks_run is not None and isinstance(x, pb.Tensor) and x.requires_grad:
        x.register_hook(handed_on)
    return x


def handed_on(gradient):
    hooks_run.append(1)
    return gradient


@contextlib.contextmanager
def hooked():
    """Every intermediate that a function marks has a hook; yields the list that grows as they run."""
    global hooks_run
    hooks_run = []
    try:
        yield hooks_run
    finally:
        hooks_run = None


def network(x):
    """Predictions of a network of two layers on five samples."""
    hidden = step(pb.tanh(SAMPLES[:, :2] @ pb.reshape(x[:4], (2, 2)) + SAMPLES[0, 2:4]))
    return pb.log_softmax(pb.gelu(step(hidden @ x[4:])))


def lennard_jones(x):
    """The energy of each pair of three particles in the plane."""
    places = pb.reshape(x, (3, 2))
    apart = step(places[[0, 0, 1]] - places[[1, 2, 2]])
    attraction = step(pb.sum(apart * apart, axis=1) ** -3)
    return 4.0 * (attraction**2 - attraction)


def likelihood(x):
    """Mixture of two normals for what was seen, their survival function for what was cut off, and a normaliser."""
    seen = DRAWN[13, :4, None]
    scaled = step((seen - x[:2]) * pb.exp(-x[2:4]))
    each = -0.5 * scaled**2 - x[2:4] - pb.softplus(pb.stack([x[4], -x[4]]))
    mixture = step(pb.logaddexp(each[:, 0], each[:, 1]))
    cut = pb.log1p(-pb.erf((1.5 - x[:2]) / 2.0) + x[5] ** 2)
    return pb.concat([mixture, cut, pb.reshape(pb.logsumexp(pb.sin(x)), (1,))])


def oscillators(x):
    """Three phases, each drawn to its neighbour, after ten steps of Runge-Kutta; starts and speeds are the input."""

    def rate(phases):
        return x[3:] + pb.sin(pb.roll(phases, 1) - phases)

    phases, h = x[:3], 0.2
    for _ in range(10):
        first = rate(phases)
        second = rate(phases + h / 2 * first)
        third = rate(phases + h / 2 * second)
        fourth = rate(phases + h * third)
        phases = step(phases + h / 6 * (first + 2 * (second + third) + fourth))
    return phases


def linear_algebra(x):
    """A system solved by elimination, an eigenvalue by power iteration, and a triple product."""
    grown = pb.einsum("i,j->ij", x[:3], pb.cos(x[3:]))
    matrix = step(4.0 * np.eye(3) + grown + pb.tril(grown @ pb.matrix_transpose(grown)))
    rows = [pb.concat([matrix[i], x[i : i + 1] ** 2]) for i in range(3)]
    for i, j in itertools.product(range(3), range(3)):
        if i != j:
            rows[j] = step(rows[j] - rows[i] * (rows[j][i] / rows[i][i]))
    solution = pb.stack([rows[i][3] / rows[i][i] for i in range(3)])
    vector = np.ones(3)
    for _ in range(4):
        vector = matrix @ vector
        vector = step(vector / pb.sqrt(pb.sum(vector * vector)))
    triple = pb.einsum("i,ij,jk,k->", vector, grown, matrix, solution)
    return pb.concat([solution, pb.reshape(vector @ matrix @ vector, (1,)), pb.reshape(triple, (1,))])


def indexing(x):
    """Gather and scatter: lists with repeats, masks, steps, places along an axis."""
    taken = step(pb.take(x, np.array([5, 0, 0, 3])) * x[[1, 1, 2, -1]])
    scattered = pb.add_at(x * x, np.array([2, 2, 4]), taken[1:])
    written = step(pb.set_at(scattered, slice(None, None, 2), pb.sin(taken[:3])))
    table = pb.reshape(written, (2, 3))
    along = pb.take_along_axis(table, np.array([[2, 0], [1, 1]]), axis=1)
    put = pb.put_along_axis(table, np.array([[1], [0]]), along[:, :1] * x[:2, None], axis=1)
    mask = np.array([True, False, True, True, False, True])
    return pb.concat([along[..., ::-1].ravel() * x[mask], x[None, 1:3].ravel() * put[1, :2], x[mask] * x[~mask][0]])


def reductions(x):
    table = pb.reshape(x, (2, 3))
    smooth = pb.stack([pb.prod(x), pb.var(x), pb.std(table) * x[0], pb.mean(x**3), pb.logsumexp(x)])
    picked = pb.concat([pb.max(table, axis=0) ** 2, pb.min(table, axis=1) * x[:2], pb.prod(table, axis=0)])
    return pb.concat([smooth, step(picked), pb.cumulative_sum(x * x)[::2] * x[:3], pb.var(table, axis=1, correction=1)])


def choices(x):
    """Every point is far from a tie, so each choice has a derivative."""
    bent = step(pb.where(x > 0.0, pb.exp(x), x * x))
    held = step(pb.clip(bent * x, -0.5, 1.0))
    above, below = pb.maximum(x, pb.flip(x) ** 2), pb.minimum(pb.sin(x), 0.3 * bent)
    return above * held + pb.abs(below) * pb.relu(x) + pb.sign(x) * pb.sqrt(pb.where(x > 0.0, x, 1.0)) * below


def arrangement(x):
    left, right = pb.split(x * x, [2])
    padded = step(pb.pad(left, (1, 3), constant_values=0.5) * pb.roll(x, 2))
    tall = pb.moveaxis(pb.reshape(pb.concat([right, left]), (3, 2)), 0, 1)
    tiled = step(pb.tile(tall, (1, 2))[:, 1:4] * pb.flip(tall, axis=1))
    stacked = pb.stack([pb.repeat(x[:3], 2), padded, pb.transpose(tiled).ravel()], axis=1)
    return pb.sum(stacked**3, axis=1) + pb.diagonal(pb.outer(x, padded)) * pb.triu(pb.outer(x, x))[0]


def complex_inside(x):
    """Real to real by way of complex numbers."""
    turned = step(pb.exp(1j * x) * (1.0 + 0.5j * x))
    mixed = step(turned[:3] * pb.conj(turned[3:]) / (2.0 + turned[::2]))
    folded = pb.einsum("i,j->ij", mixed, pb.conj(mixed)) @ turned[:3]
    return pb.concat([pb.real(mixed), pb.imag(folded), pb.abs(turned) ** 2])


def broadcasting(x):
    column, row, number = x[:3, None], x[None, 3:], x[0]
    table = step(column * row + number - pb.expand_dims(pb.sin(x[2:5]), axis=1) / (2.0 + row * row))
    centred = table - pb.mean(table, axis=0, keepdims=True) * number
    cube = step(centred[:, None, :] * pb.broadcast_to(x[1:4], (2, 3, 3))[:1] + np.ones((3, 1)) * x[5])
    return pb.sum(pb.tanh(cube), axis=(0, 1)) * pb.tensordot(table, x[:3], axes=1)


def control_flow(x):
    """Loops and branches whose course is that of the values."""
    last, path = pb.scan(lambda carry, y: (step(carry * pb.cos(y) + y), carry * y), x[0], x[1:])
    root = pb.while_loop(
        lambda r: pb.abs(r * r - 2.0 - x[1] ** 2) > 1e-3, lambda r: r / 2 + (1 + x[1] ** 2 / 2) / r, 2.0
    )
    branch = pb.cond(x[2] > 0.0, lambda y: step(y * y * root), lambda y: pb.exp(y) * x[4], x[3])
    rounds = pb.fori_loop(0, 3, lambda i, y: pb.sin(y * x[i]), last)
    chosen = pb.switch(np.array(1), [pb.sin, pb.exp], x[5])
    runs = pb.associative_scan(pb.multiply, 1.0 + x[:3] / 5)
    return pb.concat([path, pb.stack([last, root, branch, rounds, chosen]), pb.map(pb.square, runs)])


def special_functions(x):
    """Each element alone, for the roads that ask for that."""
    return (
        pb.erf(step(pb.exp(x) * x)) * pb.log1p(x * x) + pb.atan(x) ** 2 * pb.expm1(-x) + pb.asin(x / 4) * pb.sigmoid(x)
    )


@pb.custom_op
def by_cotangent(x):
    return np.sin(x) * x


@by_cotangent.def_vjp
def _(bar, x):
    return bar * (pb.cos(x) * x + pb.sin(x))


class ByTangent(pb.Function):
    @staticmethod
    def forward(ctx, x, y):
        ctx.save_for_backward(x, y)
        return np.exp(x) * y * y

    @staticmethod
    def jvp(ctx, dx, dy):
        x, y = ctx.saved_tensors
        return pb.exp(x) * y * (y * dx + 2.0 * dy)


def custom_rules(x):
    """A rule given forward, one given backward, and a factor that counts as a constant."""
    return by_cotangent(step(x * x)) + ByTangent.apply(x, step(pb.flip(x))) * pb.stop_gradient(pb.cos(x))


TRIANGLE = np.array([0.0, 0.1, 1.1, 0.0, 0.4, 1.05])
MIXED = np.array([0.7, -0.8, 0.4, 1.3, -0.6, 0.2])
POINTS = {
    network: DRAWN[12],
    lennard_jones: TRIANGLE,
    likelihood: np.array([0.3, -0.5, 0.2, -0.1, 0.4, 1.2]),
    oscillators: np.array([0.5, -0.2, 1.4, 0.3, 0.6, 1.7]),
    linear_algebra: MIXED,
    indexing: MIXED,
    reductions: MIXED,
    choices: MIXED,
    arrangement: MIXED,
    complex_inside: MIXED,
    broadcasting: MIXED,
    control_flow: MIXED,
    special_functions: MIXED,
    custom_rules: MIXED,
}
FUNCTIONS = list(POINTS)


def weights(y):
    return WEIGHTS[: y.shape[0]]


def scalar(f):
    def weighted(x):
        y = f(x)
        return pb.sum(y * weights(y))

    return weighted


# The roads. Each takes the vector function and the point, and answers one kind of derivative, a key of `reference`.

ROADS = {}
TAPED = set()  # roads that record on the user's own tape, which no_grad forbids
SPARSE = set()  # roads by way of a SciPy matrix, which do not run in a batch
Road = collections.namedtuple("Road", "kind run")


def road(kind, name, *marks):
    def entered(run):
        ROADS[f"{kind}: {name}"] = Road(kind, run)
        for mark in marks:
            mark.add(f"{kind}: {name}")
        return run

    return entered


def roads(kind, table):
    for name, run in table.items():
        road(kind, name)(run)


def dot(a, b):
    return pb.sum(a * b)


def leaf(x):
    return pb.tensor(x, requires_grad=True)


def along(f, direction):
    """The derivative of f in one direction, by forward mode."""
    return lambda x: pb.jvp(f, (x,), (direction,))[1]


def dual_parts(f, x, **moving):
    with pb.ForwardContext() as context:
        y = f(context.dual(x, **moving))
        return y.tangents if "tangents" in moving else y.tangent


def curve(f, x, direction, order):
    """The derivatives of f along a straight line, up to an order."""
    return pb.jet(f, (x,), ([direction, *[None] * (order - 1)],))[1]


def in_rows(product):
    return pb.stack([product(e) for e in UNIT])


def in_columns(product):
    return pb.stack([product(e) for e in UNIT], axis=1)


# The value, which every road computes on its way.


@road("value", "duals")
def _(f, x):
    with pb.ForwardContext() as context:
        return f(context.dual(x, V)).primal


roads(
    "value",
    {
        "arrays": lambda f, x: f(x),
        "tensors": lambda f, x: f(pb.tensor(x)),
        "vjp": lambda f, x: pb.vjp(f, x)[0],
        "jvp": lambda f, x: pb.jvp(f, (x,), (V,))[0],
        "linearize": lambda f, x: pb.linearize(f, x)[0],
        "jet": lambda f, x: pb.jet(f, (x,), ([V],))[0],
        "vmap": lambda f, x: pb.vmap(f)(pb.stack([x + 0.01, x]))[1],
    },
)

# First derivatives of the scalar.


@road("gradient", "backward", TAPED)
def _(f, x):
    a = leaf(x)
    scalar(f)(a).backward()
    return a.grad


@road("gradient", "backward with a seed", TAPED)
def _(f, x):
    a = leaf(x)
    y = f(a)
    y.backward(weights(y))
    return a.grad


@road("gradient", "backward on two threads", TAPED)
def _(f, x):
    a = leaf(x)
    scalar(f)(a).backward(workers=2)
    return a.grad


@road("gradient", "gradients", TAPED)
def _(f, x):
    a = leaf(x)
    return pb.gradients(scalar(f)(a), a)[0]


@road("gradient", "GradientTape.variable", TAPED)
def _(f, x):
    tape = pb.GradientTape()
    a = tape.variable(x)
    return tape.gradient(scalar(f)(a), a)


@road("gradient", "GradientTape.watch", TAPED)
def _(f, x):
    a = pb.tensor(x)
    with pb.GradientTape() as tape:
        tape.watch(a)
        y = f(a)
    return tape.gradient(y, a, output_gradients=weights(y))


@road("gradient", "vjp of the vector")
def _(f, x):
    y, pull = pb.vjp(f, x)
    return pull(weights(y))[0]


@road("gradient", "transpose of linearize")
def _(f, x):
    y, push = pb.linearize(f, x)
    return pb.linear_transpose(push, np.zeros(SIZE))(weights(y))[0]


roads(
    "gradient",
    {
        "grad": lambda f, x: pb.grad(scalar(f))(x),
        "value_and_grad": lambda f, x: pb.value_and_grad(scalar(f))(x)[1],
        "vjp": lambda f, x: pb.vjp(scalar(f), x)[1](np.ones(()))[0],
        "jvp": lambda f, x: in_rows(lambda e: along(scalar(f), e)(x)),
        "vmap of jvp": lambda f, x: pb.vmap(lambda e: along(scalar(f), e)(x))(UNIT),
        "linearize": lambda f, x: in_rows(pb.linearize(scalar(f), x)[1]),
        "duals one by one": lambda f, x: in_rows(lambda e: dual_parts(scalar(f), x, tangent=e)),
        "duals at once": lambda f, x: dual_parts(scalar(f), x, tangents=UNIT),
        "jacfwd": lambda f, x: pb.jacfwd(scalar(f))(x),
        "jacrev": lambda f, x: pb.jacrev(scalar(f))(x),
        "jet": lambda f, x: in_rows(lambda e: curve(scalar(f), x, e, 1)[0]),
    },
)

# All first derivatives of the vector.


@road("jacobian", "GradientTape.jacobian", TAPED)
def _(f, x):
    tape = pb.GradientTape()
    a = tape.variable(x)
    return tape.jacobian(f(a), a)


@road("jacobian", "GradientTape.jacobian in chunks", TAPED)
def _(f, x):
    tape = pb.GradientTape()
    a = tape.variable(x)
    return tape.jacobian(f(a), a, chunk_size=2)


@road("jacobian", "GradientTape.batch_jacobian", TAPED)
def _(f, x):
    tape = pb.GradientTape()
    a = tape.variable(pb.stack([x + 0.01, x]))
    return tape.batch_jacobian(pb.vmap(f)(a), a)[1]


@road("jacobian", "vjp")
def _(f, x):
    y, pull = pb.vjp(f, x)
    return pb.stack([pull(e)[0] for e in np.eye(y.shape[0])])


@road("jacobian", "vmap of vjp")
def _(f, x):
    y, pull = pb.vjp(f, x)
    return pb.vmap(pull)(np.eye(y.shape[0]))[0]


for how in ("column", "row", "bidirectional"):

    @road("jacobian", f"sparse_jacobian by {how}", SPARSE)
    def _(f, x, how=how):
        return pb.sparse_jacobian(f, coloring=how)(x).toarray()


@road("jacobian diagonal", "jacobian_diagonal", SPARSE)
def _(f, x):
    return pb.jacobian_diagonal(f)(x)


roads(
    "jacobian",
    {
        **{
            f"jacobian {mode}": lambda f, x, mode=mode: pb.jacobian(f, mode=mode)(x)
            for mode in ("auto", "forward", "reverse")
        },
        "jacobian in chunks": lambda f, x: pb.jacobian(f, memory_budget="1 KiB")(x),
        "jacfwd": lambda f, x: pb.jacfwd(f)(x),
        "jacrev": lambda f, x: pb.jacrev(f)(x),
        "jvp": lambda f, x: in_columns(lambda e: along(f, e)(x)),
        "linearize": lambda f, x: in_columns(pb.linearize(f, x)[1]),
        "vmap of linearize": lambda f, x: pb.vmap(pb.linearize(f, x)[1], out_axes=1)(UNIT),
        "duals at once": lambda f, x: pb.transpose(dual_parts(f, x, tangents=UNIT)),
        "jet": lambda f, x: in_columns(lambda e: curve(f, x, e, 1)[0]),
    },
)
roads("divergence", {"divergence": lambda f, x: pb.divergence(f)(x)})
roads("elementwise", {"elementwise_grad": lambda f, x: pb.elementwise_grad(f)(x)})
roads("gauss-newton", {"ggnvp": lambda f, x: pb.ggnvp(f, lambda y: dot(y * y, weights(y)), (x,), (V,))})

# Second derivatives of the scalar: the whole matrix, its diagonal and trace, and products with it.


@road("hessian", "GradientTape.hessian", TAPED)
def _(f, x):
    tape = pb.GradientTape()
    a = tape.variable(x)
    return tape.hessian(scalar(f)(a), a)


@road("hessian", "GradientTape in a GradientTape", TAPED)
def _(f, x):
    with pb.GradientTape() as outer:
        a = outer.variable(x)
        with pb.GradientTape() as inner:
            y = scalar(f)(a)
        first = inner.gradient(y, a)
    return outer.jacobian(first, a)


@road("hessian", "sparse_hessian", SPARSE)
def _(f, x):
    return pb.sparse_hessian(scalar(f))(x).toarray()


@road("hessian diagonal", "hessian_diagonal", SPARSE)
def _(f, x):
    return pb.hessian_diagonal(scalar(f))(x)


roads(
    "hessian",
    {
        **{
            f"hessian {mode}": lambda f, x, mode=mode: pb.hessian(scalar(f), mode=mode)(x)
            for mode in ("auto", *(f"{a}-over-{b}" for a in ("forward", "reverse") for b in ("forward", "reverse")))
        },
        "jacfwd of grad": lambda f, x: pb.jacfwd(pb.grad(scalar(f)))(x),
        "jacrev of grad": lambda f, x: pb.jacrev(pb.grad(scalar(f)))(x),
        "hvp": lambda f, x: in_rows(lambda e: pb.hvp(scalar(f), (x,), (e,))),
        "vmap of hvp": lambda f, x: pb.vmap(lambda e: pb.hvp(scalar(f), (x,), (e,)))(UNIT),
        "linearize of grad": lambda f, x: in_rows(pb.linearize(pb.grad(scalar(f)), x)[1]),
        "duals of grad": lambda f, x: dual_parts(pb.grad(scalar(f)), x, tangents=UNIT),
        "grad of jvp": lambda f, x: in_rows(lambda e: pb.grad(along(scalar(f), e))(x)),
        "jet of grad": lambda f, x: in_rows(lambda e: curve(pb.grad(scalar(f)), x, e, 1)[0]),
    },
)
roads("laplacian", {"laplacian": lambda f, x: pb.laplacian(scalar(f))(x)})


@road("second", "tape and tape", TAPED)
def _(f, x):
    a = leaf(x)
    (first,) = pb.gradients(scalar(f)(a), a, create_graph=True)
    return dot(pb.gradients(dot(first, V), a)[0], W)


@road("second", "backward through jvp", TAPED)
def _(f, x):
    a = leaf(x)
    along(scalar(f), V)(a).backward()
    return dot(a.grad, W)


@road("second", "backward through vmap of grad", TAPED)
def _(f, x):
    a = leaf(x)
    found = pb.vmap(pb.grad(scalar(f)))(pb.stack([a + 0.01, a]))
    dot(found[1], V).backward()
    return dot(a.grad, W)


@road("second", "duals in duals")
def _(f, x):
    with pb.ForwardContext() as outer:
        return dual_parts(scalar(f), outer.dual(x, V), tangent=W).tangent


@road("second", "jet on two lines")
def _(f, x):
    # (v + w) H (v + w) - (v - w) H (v - w) = 4 v H w
    return (curve(scalar(f), x, V + W, 2)[1] - curve(scalar(f), x, V - W, 2)[1]) / 4


roads(
    "second",
    {
        "hvp": lambda f, x: dot(pb.hvp(scalar(f), (x,), (V,)), W),
        "jvp of jvp": lambda f, x: along(along(scalar(f), V), W)(x),
        "jvp of grad": lambda f, x: dot(along(pb.grad(scalar(f)), V)(x), W),
        "grad of jvp": lambda f, x: dot(pb.grad(along(scalar(f), V))(x), W),
        "grad of grad": lambda f, x: dot(pb.grad(lambda x: dot(pb.grad(scalar(f))(x), V))(x), W),
        "vjp of grad": lambda f, x: dot(pb.vjp(pb.grad(scalar(f)), x)[1](V)[0], W),
        "jet of jvp": lambda f, x: curve(along(scalar(f), V), x, W, 1)[0],
        "jvp of jet": lambda f, x: along(lambda x: curve(scalar(f), x, V, 1)[0], W)(x),
        "grad of jet": lambda f, x: dot(pb.grad(lambda x: curve(scalar(f), x, V, 1)[0])(x), W),
        "linearize of jvp": lambda f, x: pb.linearize(along(scalar(f), V), x)[1](W),
    },
)

# Third derivatives of the scalar in three different directions.


@road("third", "tape, tape and tape", TAPED)
def _(f, x):
    a = leaf(x)
    found = scalar(f)(a)
    for direction in (U, V, W):
        found = dot(pb.gradients(found, a, create_graph=True)[0], direction)
    return found.detach()


@road("third", "backward through hvp", TAPED)
def _(f, x):
    a = leaf(x)
    dot(pb.hvp(scalar(f), (a,), (V,)), W).backward()
    return dot(a.grad, U)


@road("third", "jet of grad, on two lines")
def _(f, x):
    lines = [curve(pb.grad(scalar(f)), x, direction, 2)[1] for direction in (V + W, V - W)]
    return dot(lines[0] - lines[1], U) / 4


@road("third", "jet on four lines")
def _(f, x):
    # 24 T(u, v, w) = T(u + v + w) - T(u + v - w) - T(u - v + w) + T(u - v - w), with T(s) = T(s, s, s)
    signs = [(1, 1), (1, -1), (-1, 1), (-1, -1)]
    return sum(a * b * curve(scalar(f), x, U + a * V + b * W, 3)[2] for a, b in signs) / 24


roads(
    "third",
    {
        "jvp of jvp of jvp": lambda f, x: along(along(along(scalar(f), U), V), W)(x),
        "jvp of hvp": lambda f, x: dot(along(lambda x: pb.hvp(scalar(f), (x,), (V,)), W)(x), U),
        "grad of hvp": lambda f, x: dot(pb.grad(lambda x: dot(pb.hvp(scalar(f), (x,), (V,)), W))(x), U),
        "grad of jvp of jvp": lambda f, x: dot(pb.grad(along(along(scalar(f), U), V))(x), W),
        "jvp of grad of jvp": lambda f, x: dot(along(pb.grad(along(scalar(f), U)), V)(x), W),
        "grad of grad of jvp": lambda f, x: dot(pb.grad(lambda x: dot(pb.grad(along(scalar(f), U))(x), V))(x), W),
        "jet of jvp of jvp": lambda f, x: curve(along(along(scalar(f), U), V), x, W, 1)[0],
        "jvp of jvp of jet": lambda f, x: along(along(lambda x: curve(scalar(f), x, U, 1)[0], V), W)(x),
        "jvp of hessian": lambda f, x: dot(along(pb.hessian(scalar(f)), W)(x) @ V, U),
    },
)

# The reference: nothing but the plain tape, one row after the other.


def rows(y, a):
    """The derivatives of each element of y, by one backward pass for each."""
    found = [pb.gradients(y, a, e, retain_graph=True, allow_unused=True)[0] for e in np.eye(y.shape[0])]
    return np.array([np.zeros(SIZE) if row is None else row.numpy() for row in found])


@functools.cache
def reference(f, point):
    """Each kind of derivative of f at a point."""
    a = leaf(np.array(point))
    y = f(a)
    (gradient,) = pb.gradients(dot(y, weights(y)), a, create_graph=True)
    (curvature,) = pb.gradients(dot(gradient, V), a, create_graph=True)
    (third,) = pb.gradients(dot(curvature, W), a, retain_graph=True)
    jacobian, hessian = rows(y, a), rows(gradient, a)
    return {
        "value": plain(y),
        "gradient": plain(gradient),
        "jacobian": jacobian,
        "jacobian diagonal": np.diagonal(jacobian),
        "elementwise": np.diagonal(jacobian),
        "divergence": np.trace(jacobian[:, : jacobian.shape[0]]),
        "gauss-newton": jacobian.T @ (2 * weights(y) * (jacobian @ V)),
        "hessian": hessian,
        "hessian diagonal": np.diagonal(hessian),
        "laplacian": np.trace(hessian),
        "second": V @ hessian @ W,
        "third": plain(third) @ U,
    }


def plain(x):
    """A derivative as an array, whether it came as an array or as a tensor."""
    return np.asarray(x.detach() if isinstance(x, pb.Tensor) else x)


def assert_equal(found, wanted):
    """Equal up to rounding, relative to the largest entry. Third derivatives need no more room than first ones."""
    assert found.shape == np.shape(wanted)
    np.testing.assert_allclose(found, wanted, rtol=0.0, atol=1e-12 * np.abs(wanted).max())


SQUARE = {"jacobian diagonal", "divergence"}  # kinds for results of the size of the argument
ALONE = {"elementwise"}  # kinds for functions of each element alone


def pairs(but=()):
    """Every function with every road that applies to it, leaving out some roads."""
    found = []
    for f, (name, (kind, _)) in itertools.product(FUNCTIONS, ROADS.items()):
        square = kind not in SQUARE or f(POINTS[f]).shape == (SIZE,)
        alone = kind not in ALONE or f is special_functions
        if square and alone and name not in but:
            found.append(pytest.param(f, name, id=f"{f.__name__}-{name}"))
    return found


@pytest.mark.parametrize(("f", "name"), pairs())
def test_roads_agree(f, name):
    kind, run = ROADS[name]
    assert_equal(plain(run(f, POINTS[f])), reference(f, tuple(POINTS[f]))[kind])


@pytest.mark.parametrize(("f", "name"), pairs())
def test_roads_agree_with_hooks_on_the_way(f, name):
    kind, run = ROADS[name]
    with hooked() as runs:
        found = run(f, POINTS[f])
    if name in TAPED and kind == "gradient":  # elsewhere f may run inside of another transform, on values of its own
        assert runs
    assert_equal(plain(found), reference(f, tuple(POINTS[f]))[kind])


@pytest.mark.parametrize(("f", "name"), pairs(but=TAPED))
def test_roads_agree_under_no_grad(f, name):
    kind, run = ROADS[name]
    with pb.no_grad():
        found = run(f, POINTS[f])
    assert not isinstance(found, pb.Tensor) or not found.requires_grad
    assert_equal(plain(found), reference(f, tuple(POINTS[f]))[kind])


@pytest.mark.parametrize(("f", "name"), pairs(but=SPARSE))
def test_roads_agree_in_a_batch(f, name):
    kind, run = ROADS[name]
    points = POINTS[f] + 0.02 * DRAWN[14:16]
    found = pb.vmap(functools.partial(run, f))(points)
    for row, point in zip(plain(found), points, strict=True):
        assert_equal(row, reference(f, tuple(point))[kind])


@functools.cache
def with_batch_inside(f):
    """A function that runs f in a batch, and the same by a loop."""
    scales, shares = np.array([0.98, 1.01]), np.array([0.7, -1.3])

    def at_once(x):
        return pb.tensordot(shares, pb.vmap(lambda scale: f(x * scale))(scales), axes=1)

    def one_by_one(x):
        return sum(share * f(x * scale) for share, scale in zip(shares, scales, strict=True))

    return at_once, one_by_one


@pytest.mark.parametrize(("f", "name"), pairs())
def test_roads_agree_around_a_batch(f, name):
    kind, run = ROADS[name]
    at_once, one_by_one = with_batch_inside(f)
    assert_equal(plain(run(at_once, POINTS[f])), reference(one_by_one, tuple(POINTS[f]))[kind])


@pytest.mark.parametrize("f", FUNCTIONS)
@pytest.mark.parametrize("name", ["gradient: grad", "jacobian: jacfwd", "hessian: hvp", "third: grad of jvp of jvp"])
def test_roads_agree_between_two_batches(f, name):
    kind, run = ROADS[name]
    at_once, one_by_one = with_batch_inside(f)
    points = POINTS[f] + 0.02 * DRAWN[14:16]
    found = pb.vmap(functools.partial(run, at_once))(points)
    for row, point in zip(plain(found), points, strict=True):
        assert_equal(row, reference(one_by_one, tuple(point))[kind])
