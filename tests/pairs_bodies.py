"""Features that are part of a program, each with the same program in plain NumPy."""

from __future__ import annotations

import functools
import importlib.util
import math
import random
from typing import Any

import numpy as np
from pairs import GENERATOR, MATRIX, SHAPE, Body, Program, World, X, rewound

import pullback as pb

KEY = pb.random.key(11)
WANTED = np.array([[0.3, 0.8, -0.5], [-1.0, 0.4, 0.6], [0.2, -0.7, 0.9]])
ROUNDS = 3


def folds(f: Program, world: World) -> Program:
    """A fold along one axis, spread, and folded along the other one."""

    def program(x: Any) -> Any:
        y = f(x)
        rows = pb.broadcast_to(pb.sum(y, axis=1, keepdims=True), SHAPE)
        return 0.5 * y + 0.1 * pb.sum(rows, axis=0)

    return program


def folds_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = f(z)
        return 0.5 * y + 0.1 * np.sum(y)

    return program


def equal_widths(f: Program, world: World) -> Program:
    """Two layers of equal widths and a loss."""

    def program(x: Any) -> Any:
        y = f(x)
        return 0.5 * y + 0.3 * pb.nn.huber_loss(pb.tanh(X @ y) @ y, WANTED, delta=0.5)

    return program


def equal_widths_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = f(z)
        away = np.tanh(X @ y) @ y - WANTED
        large = np.where(away.real > 0, away, -away)
        return 0.5 * y + 0.3 * np.mean(np.where(large.real < 0.5, 0.5 * away**2, 0.5 * (large - 0.25)))

    return program


def masked(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        y = f(x)
        rows = pb.broadcast_to(pb.any(y > 0.5, axis=1, keepdims=True), SHAPE)
        return pb.where(pb.any(rows, axis=0), y, 0.4 * y)

    return program


def masked_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = f(z)
        return y if np.any(y.real > 0.5) else 0.4 * y

    return program


LEFT_OUT = np.array([[True, False, False], [False, False, True], [False, True, False]])


def left_out(f: Program, world: World) -> Program:
    """A masked array that shares its mean with what is masked, where there are no numbers."""

    def program(x: Any) -> Any:
        y = f(x)
        kept = pb.masked.array(pb.where(LEFT_OUT, np.nan, y), LEFT_OUT)
        return 0.5 * y + 0.2 * (np.exp(kept) * kept).mean(axis=1, keepdims=True).filled(0.0)

    return program


def left_out_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = f(z)
        terms = np.where(LEFT_OUT, 0.0, np.exp(y) * y)
        return 0.5 * y + 0.2 * terms.sum(axis=1, keepdims=True) / (~LEFT_OUT).sum(axis=1, keepdims=True)

    return program


#: Added before a maximum is taken, so that differences of references do not cross a tie of what features compute.
APART = np.array([[0.0, 4.0, -4.0], [4.0, 0.0, -4.0], [-4.0, 0.0, 4.0]])


def pooled(f: Program, world: World) -> Program:
    """Pooling whose result has one place, against what it was taken of."""

    def program(x: Any) -> Any:
        y = pb.reshape(f(x) + APART, (1, *SHAPE))
        pooled = 0.4 * pb.nn.max_pool1d(y, 3, 1) + 0.3 * pb.nn.avg_pool1d(y, 3, 1)
        return pb.reshape(y * pooled, SHAPE)

    return program


def pooled_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = f(z) + APART
        greatest = np.take_along_axis(y, np.argmax(y.real, axis=1)[:, None], axis=1)
        return y * (0.4 * greatest + 0.3 * np.mean(y, axis=1, keepdims=True))

    return program


def times(noise: Any) -> tuple[Any, Any]:
    """A program that multiplies by noise drawn when it runs, and its reference, which draws the same."""

    def build(f: Program, world: World) -> Program:
        return lambda x: pb.sin(f(x) * (1.0 + 0.3 * noise()))

    def reference(f: Program, world: World) -> Program:
        return lambda z: np.sin(f(z) * (1.0 + 0.3 * noise()))

    return build, reference


@functools.cache
def keyed_noise() -> Any:
    return pb.random.normal(size=SHAPE, key=KEY)


@functools.cache
def keyed_mask() -> Any:
    return pb.nn.dropout(np.ones(SHAPE), 0.5, key=KEY)


def times_keyed(f: Program, world: World) -> Program:
    return lambda x: pb.sin(f(x) * (1.0 + 0.3 * pb.random.normal(size=SHAPE, key=KEY)))


def drop_keyed(f: Program, world: World) -> Program:
    return lambda x: pb.sin(0.5 * pb.nn.dropout(f(x), 0.5, key=KEY) + 0.3 * x)


def drop_keyed_reference(f: Program, world: World) -> Program:
    return lambda z: np.sin(0.5 * f(z) * keyed_mask() + 0.3 * z)


def drop_stream(f: Program, world: World) -> Program:
    return lambda x: pb.sin(0.5 * pb.nn.dropout(f(x), 0.5) + 0.3 * x)


def drop_stream_reference(f: Program, world: World) -> Program:
    return lambda z: np.sin(0.5 * f(z) * pb.nn.dropout(np.ones(SHAPE), 0.5) + 0.3 * z)


def drop_module(f: Program, world: World) -> Program:
    layer = pb.nn.Dropout(0.5)
    return lambda x: pb.sin(0.5 * layer(f(x)) + 0.3 * x)


def cupy_noise() -> Any:
    import cupy

    return cupy.asnumpy(cupy.random.normal(size=SHAPE))


def batch_norm(f: Program, world: World) -> Program:
    layer = pb.nn.BatchNorm(3, dtype=np.float64)
    world.watch("statistics", lambda: np.stack([np.asarray(layer.mean), np.asarray(layer.variance)]))
    return lambda x: pb.sin(0.5 * layer(f(x)))


def batch_norm_reference(f: Program, world: World) -> Program:
    name = world.name("statistics")
    world.state[name] = np.stack([np.zeros(3), np.ones(3)])

    def program(z: Any) -> Any:
        y = f(z)
        mean, variance = np.mean(y, axis=0), np.mean((y - np.mean(y, axis=0)) ** 2, axis=0)
        world.state[name] = 0.9 * world.state[name] + 0.1 * np.stack([mean.real, 1.5 * variance.real])
        return np.sin(0.5 * (y - mean) / np.sqrt(variance + 1e-5))

    return program


class Layer(pb.nn.Module):
    """Two Linear layers with an activation between, float64."""

    def __init__(self) -> None:
        first, second = pb.random.split(KEY)
        self.first = pb.nn.Linear(3, 3, key=first, dtype=np.float64)
        self.second = pb.nn.Linear(3, 3, key=second, dtype=np.float64)

    def forward(self, x: Any) -> Any:
        return self.second(pb.tanh(self.first(x)))


def module(f: Program, world: World) -> Program:
    net = Layer()
    return lambda x: net(f(x)) + 0.3 * x


def module_arrays(f: Program, world: World) -> Program:
    net = Layer().arrays()
    apply = pb.vjp  # the module is an argument of a transform inside of the program
    return lambda x: apply(lambda n, y: n(y), net, f(x))[0] + 0.3 * x


def module_reference(f: Program, world: World) -> Program:
    state = {name: np.asarray(a) for name, a in Layer().arrays().state_dict().items()}

    def program(z: Any) -> Any:
        h = np.tanh(f(z) @ state["first.weight"].T + state["first.bias"])
        return h @ state["second.weight"].T + state["second.bias"] + 0.3 * z

    return program


def custom_vjp(f: Program, world: World) -> Program:
    op = pb.custom_op(lambda x: 0.2 * np.asarray(x) ** 3)
    op.def_vjp(lambda bar, x: 0.6 * x**2 * bar)
    op.def_spec(lambda x: x)
    return lambda x: op(f(x)) + 0.5 * x


def custom_jvp(f: Program, world: World) -> Program:
    op = pb.custom_op(lambda x: 0.2 * np.asarray(x) ** 3)
    op.def_jvp(lambda tangents, x: 0.6 * x**2 * tangents[0])
    op.def_spec(lambda x: x)
    return lambda x: op(f(x)) + 0.5 * x


class Cube(pb.Function):
    """The same op in the class form."""

    @staticmethod
    def forward(ctx: Any, x: Any) -> Any:
        ctx.save_for_backward(x)
        return 0.2 * x**3

    @staticmethod
    def backward(ctx: Any, bar: Any) -> Any:
        (x,) = ctx.saved_tensors
        return 0.6 * x**2 * bar


def function_class(f: Program, world: World) -> Program:
    return lambda x: Cube.apply(f(x)) + 0.5 * x


def cube_reference(f: Program, world: World) -> Program:
    return lambda z: 0.2 * f(z) ** 3 + 0.5 * z


def fixed_point(f: Program, world: World) -> Program:
    return lambda x: pb.fixed_point(lambda z, x: 0.2 * pb.tanh(f(z)) + x, np.zeros(SHAPE), x, tol=1e-13)


def root(f: Program, world: World) -> Program:
    """As the fixed point, but the equation closes over x."""
    return lambda x: pb.root(lambda z: 0.2 * pb.tanh(f(z)) + x - z, np.zeros(SHAPE), tol=1e-13)


def custom_root(f: Program, world: World) -> Program:
    """The same equation with a solver of its own, on bare arrays."""

    @pb.implicit.custom_root(lambda z, x: 0.2 * pb.tanh(f(z)) + x - z)
    def solver(x: Any) -> Any:
        again, z = rewound(f, world), np.zeros(SHAPE)
        for _ in range(25):
            z = 0.2 * np.tanh(plain_array(again(z))) + x
        return z

    return solver


def plain_array(x: Any) -> Any:
    return x.detach().numpy() if isinstance(x, pb.Tensor) else np.asarray(x)


def fixed_point_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        again, found = rewound(f, world), np.zeros(SHAPE)
        for _ in range(22):
            found = 0.2 * np.tanh(again(found)) + z
        return found

    return program


def argmin(f: Program, world: World) -> Program:
    def energy(z: Any, y: Any) -> Any:
        return pb.sum(0.5 * z * z + 0.05 * z**4 - z * y)

    return lambda x: pb.argmin(energy, np.zeros(SHAPE), f(x), tol=1e-12)


def least_squares(f: Program, world: World) -> Program:
    return lambda x: pb.least_squares(lambda z, y: z + 0.2 * z**3 - y, np.zeros(SHAPE), f(x), tol=1e-12)


def cubic_reference(f: Program, world: World) -> Program:
    """z + 0.2 z^3 = y by Newton's method."""

    def program(z: Any) -> Any:
        y = f(z)
        found = y * 0.0
        for _ in range(12):
            found = found - (found + 0.2 * found**3 - y) / (1 + 0.6 * found**2)
        return found

    return program


def quadratic_program(f: Program, world: World) -> Program:
    """The closest point with the sum zero, and bounds that do not matter."""
    size = math.prod(SHAPE)

    def program(x: Any) -> Any:
        y, one = pb.reshape(f(x), (size,)), np.eye(size)
        found = pb.implicit.qp(one, -y, np.ones((1, size)), np.zeros(1), one, np.full(size, 100.0))
        return pb.reshape(found, SHAPE)

    return program


def constrained_argmin(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        limits = [pb.implicit.Equal(lambda z, y: pb.sum(z))]
        return pb.argmin(
            lambda z, y: pb.sum((z - y) ** 2), np.zeros(SHAPE), f(x), bounds=(-100.0, None), constraints=limits
        )

    return program


def centered_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = f(z)
        return y - np.mean(y)

    return program


def linear_solve(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        y = f(x)
        return pb.linear_solve(lambda v: (2.0 + pb.tanh(y)) * v + 0.1 * pb.sum(v), x)

    return program


def linear_solve_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        matrix = np.diag((2.0 + np.tanh(f(z))).ravel()) + 0.1
        return np.linalg.solve(matrix, z.ravel()).reshape(SHAPE)

    return program


#: Five places of a matrix of three rows, one of them twice.
ROWS, COLUMNS = np.array([0, 1, 2, 0, 2, 1]), np.array([0, 1, 2, 2, 0, 1])


def sparse_arrays(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        y = pb.tanh(f(x))
        A = pb.sparse.coo(pb.reshape(y, (-1,))[:6], ROWS, COLUMNS, SHAPE)
        solved = pb.sparse.solve(A * 0.3 + pb.sparse.diagonal(np.full(3, 2.0)), x)
        return solved + A @ x + 0.1 * (A @ A.T).todense() + pb.sum(pb.square(A.sum(0)))

    return program


def sparse_arrays_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = np.tanh(f(z))
        A = np.zeros(SHAPE, y.dtype)
        np.add.at(A, (ROWS, COLUMNS), y.ravel()[:6])
        solved = np.linalg.solve(0.3 * A + 2.0 * np.eye(3), z)
        return solved + A @ z + 0.1 * (A @ A.T) + np.sum(A.sum(0) ** 2)

    return program


def scan(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        def step(c: Any, s: Any) -> Any:
            c = 0.6 * f(c) + s * x
            return c, c * c

        last, ys = pb.scan(step, x, np.array([0.1, 0.4, -0.3]))
        return last + 0.1 * pb.sum(ys, axis=0)

    return program


def scan_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        c, total = z, 0.0
        for s in (0.1, 0.4, -0.3):
            c = 0.6 * f(c) + s * z
            total = total + c * c
        return c + 0.1 * total

    return program


def fori_loop(f: Program, world: World) -> Program:
    return lambda x: pb.fori_loop(0, ROUNDS, lambda i, c: 0.6 * f(c) + 0.3 * x, x)


def while_loop(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        going = lambda c: c[0] < ROUNDS  # noqa: E731
        return pb.while_loop(going, lambda c: (c[0] + 1, 0.6 * f(c[1]) + 0.3 * x), (0, x))[1]

    return program


def python_loop(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        c = x
        for _ in range(ROUNDS):
            c = 0.6 * f(c) + 0.3 * x
        return c

    return program


def checkpoint_loop(f: Program, world: World) -> Program:
    return lambda x: pb.checkpoint_loop(lambda i, c, p: 0.6 * f(c) + 0.3 * p, x, ROUNDS, x, snapshots=2)


def python_if(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        taken = f(x) if pb.sum(x) > 0.0 else 2.0 * x
        if pb.sum(x) < 0.0:
            return taken + 0.1 * pb.log(x)
        return taken + 0.1 * (x * x)

    return program


def cond(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        taken = pb.cond(pb.sum(x) > 0.0, f, lambda x: 2.0 * x, x)
        return taken + 0.1 * pb.cond(pb.sum(x) < 0.0, lambda: pb.log(x), lambda: x * x)

    return program


def switch(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        index = pb.astype(pb.sum(x) > 0.0, np.int64)
        return pb.switch(index, [lambda x: 2.0 * x, f, pb.sin], x) + 0.1 * x * x

    return program


def branch_reference(f: Program, world: World) -> Program:
    return lambda z: f(z) + 0.1 * z * z


def mapped(f: Program, world: World) -> Program:
    return lambda x: pb.sum(pb.map(f, pb.stack([x, 0.5 * x])), axis=0) * 0.7


def mapped_reference(f: Program, world: World) -> Program:
    return lambda z: 0.7 * (f(z) + f(0.5 * z))


def associative_scan(f: Program, world: World) -> Program:
    return lambda x: pb.associative_scan(lambda a, b: a + b + 0.1 * a * b, f(x))


def associative_scan_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = f(z)
        rows = [y[0]]
        for row in y[1:]:
            rows.append(rows[-1] + row + 0.1 * rows[-1] * row)
        return np.stack(rows)

    return program


def optimizer_rule(f: Program, world: World) -> Program:
    """Two steps of training inside of the program, differentiated by the data."""
    rule = pb.optim.sgd(0.2, momentum=0.9)

    def program(x: Any) -> Any:
        y, p = f(x), x
        state = rule.init(p)
        for _ in range(2):
            slope = pb.grad(lambda p: 0.5 * pb.sum((pb.tanh(p) - y) ** 2))(p)
            updates, state = rule.update(slope, state, p)
            p = pb.optim.apply_updates(p, updates)
        return p

    return program


def optimizer_rule_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y, p, velocity = f(z), z, 0.0
        for _ in range(2):
            velocity = 0.9 * velocity + (np.tanh(p) - y) * (1 - np.tanh(p) ** 2)
            p = p - 0.2 * velocity
        return p

    return program


def sequential(f: Program, world: World) -> Program:
    """A row of functions in checkpoints: the first segment is one, the last is not."""
    functions = [f, lambda h: pb.sin(h) * 0.9, lambda h: pb.exp(0.5 * h) - 1.0, lambda h: pb.tanh(h @ MATRIX)]
    return lambda x: pb.checkpoint_sequential(functions, x, segments=2)


def sequential_reference(f: Program, world: World) -> Program:
    return lambda z: np.tanh((np.exp(0.5 * np.sin(f(z)) * 0.9) - 1.0) @ MATRIX)


def in_place(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        y = f(x) * 1.0
        y[0] = y[1] * 0.5
        y += x
        return y

    return program


def in_place_reference(f: Program, world: World) -> Program:
    def program(z: Any) -> Any:
        y = f(z) * 1.0
        return np.stack([y[1] * 0.5, y[1], y[2]]) + z

    return program


def scratch(f: Program, world: World) -> Program:
    """A NumPy buffer of the program's own that is written again in each round."""

    def program(x: Any) -> Any:
        buffer, total, y = np.zeros(SHAPE), 0.0 * x, f(x)
        for i in range(3):
            buffer[:] = 0.2 * (i + 1)
            total = total + y * buffer
        return total

    return program


def scratch_reference(f: Program, world: World) -> Program:
    return lambda z: 1.2 * f(z) * 1.0


def gradient_ops(f: Program, world: World) -> Program:
    """Ops with another derivative than their own, undone by each other."""
    turn, scale, keep = pb.reverse_gradient, pb.scale_gradient, pb.straight_through(lambda x: x * 1.0)
    return lambda x: pb.clip_gradient(keep(scale(scale(turn(turn(f(x))), 2.0), 0.5)), -100.0, 100.0)


def same_reference(f: Program, world: World) -> Program:
    return lambda z: f(z)


def drawing(name: str, noise: Any, **more: Any) -> Body:
    """A program that multiplies by noise drawn when it runs, and a reference that draws the same."""
    return Body(name, *times(noise), once=True, **more)


BODIES = [
    Body("folds", folds, folds_reference),
    Body("equal_widths", equal_widths, equal_widths_reference),
    Body("mask", masked, masked_reference),
    Body("masked_array", left_out, left_out_reference, covers=("masked",), like="mask"),
    Body("pooling", pooled, pooled_reference),
    Body("dropout_key", drop_keyed, drop_keyed_reference, like="normal_key"),
    Body("dropout_stream", drop_stream, drop_stream_reference, once=True),
    Body("dropout_module", drop_module, drop_stream_reference, once=True, like="dropout_stream"),
    Body("normal_key", times_keyed, times(keyed_noise)[1], covers=("random",)),
    drawing("normal_stream", lambda: pb.random.normal(size=SHAPE), like="dropout_stream"),
    drawing("numpy_generator", lambda: GENERATOR.normal(size=SHAPE)),
    drawing("numpy_global", lambda: np.random.normal(size=SHAPE), like="numpy_generator"),
    drawing("python_random", lambda: random.random()),
    drawing("cupy_random", cupy_noise, needs="cupy"),
    Body("batch_norm", batch_norm, batch_norm_reference, once=True),
    Body("module", module, module_reference, covers=("nn",)),
    Body("module_argument", module_arrays, module_reference, covers=("vjp",), like="module"),
    Body("custom_vjp", custom_vjp, cube_reference, covers=("custom_op", "CustomOp")),
    Body("custom_jvp", custom_jvp, cube_reference, like="custom_vjp"),
    Body("function_class", function_class, cube_reference, covers=("Function", "FunctionContext")),
    Body("fixed_point", fixed_point, fixed_point_reference, covers=("fixed_point",)),
    Body("root", root, fixed_point_reference, covers=("root",)),
    Body("custom_root", custom_root, fixed_point_reference, covers=("implicit", "implicit.custom_root")),
    Body("argmin", argmin, cubic_reference, covers=("argmin",)),
    Body("least_squares", least_squares, cubic_reference, covers=("least_squares",), like="argmin"),
    Body("sparse_arrays", sparse_arrays, sparse_arrays_reference, covers=("sparse",)),
    Body("qp", quadratic_program, centered_reference, covers=("implicit.qp",)),
    Body("constrained_argmin", constrained_argmin, centered_reference, covers=("argmin",), like="qp"),
    Body("linear_solve", linear_solve, linear_solve_reference, covers=("linear_solve",)),
    Body("scan", scan, scan_reference, covers=("scan",)),
    Body("fori_loop", fori_loop, python_loop, covers=("fori_loop",), like="scan"),
    Body("while_loop", while_loop, python_loop, covers=("while_loop",)),
    Body("checkpoint_loop", checkpoint_loop, python_loop, covers=("checkpoint_loop",)),
    Body("cond", cond, branch_reference, covers=("cond",)),
    Body("python_if", python_if, branch_reference),
    Body("switch", switch, branch_reference, covers=("switch",), like="cond"),
    Body("map", mapped, mapped_reference, covers=("map",), like="scan"),
    Body("associative_scan", associative_scan, associative_scan_reference, covers=("associative_scan",)),
    Body("optimizer_rule", optimizer_rule, optimizer_rule_reference, covers=("optim",)),
    Body("checkpoint_sequential", sequential, sequential_reference, covers=("checkpoint_sequential",)),
    Body("in_place", in_place, in_place_reference),
    Body("scratch_buffer", scratch, scratch_reference),
    Body(
        "gradient_ops",
        gradient_ops,
        same_reference,
        covers=("clip_gradient", "reverse_gradient", "scale_gradient", "straight_through", "stop_gradient"),
    ),
]


def is_present(feature: Any) -> bool:
    return not feature.needs or importlib.util.find_spec(feature.needs) is not None
