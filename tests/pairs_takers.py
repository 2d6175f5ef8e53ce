"""Features that differentiate a program: each makes a program of the derivative."""

from __future__ import annotations

from typing import Any

import numpy as np
from pairs import ALONG, SHAPE, WEIGHTS, Program, Taker, World, loss_of, plain

import pullback as pb

ALONG_ONLY = ("value", "grad", "forward")


def value_and_grad(f: Program, world: World) -> Program:
    def loss(x: Any) -> Any:
        y = f(x)
        return pb.sum(WEIGHTS * y), y

    return lambda x: pb.value_and_grad(loss, has_aux=True)(x)[1]


def linear_transpose(f: Program, world: World) -> Program:
    return lambda x: pb.linear_transpose(pb.linearize(f, x)[1], np.zeros(SHAPE))(WEIGHTS)[0]


def by_rows(jacobian: Any) -> Any:
    return lambda f, world: lambda x: pb.einsum("ij,ijkl->kl", WEIGHTS, jacobian(f)(x))


def hessian(f: Program, world: World) -> Program:
    return lambda x: pb.einsum("ijkl,kl->ij", pb.hessian(loss_of(f))(x), ALONG)


def gauss_newton(f: Program, world: World) -> Program:
    return lambda x: pb.ggnvp(f, lambda y: 0.5 * pb.sum(y * y), (x,), (ALONG,))


def jet(f: Program, world: World) -> Program:
    return lambda x: pb.jet(f, (x,), ([ALONG, None],))[1][1]


def as_dual(y: Any, context: Any) -> Any:
    """A result of plain code as a dual: a tape inside the context returns a tensor over one."""
    return y.value if isinstance(y, pb.Tensor) and isinstance(y.value, pb.Dual) else y + context.dual(np.zeros(SHAPE))


def forward_context(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        with pb.ForwardContext() as context:
            return as_dual(f(context.dual(x, ALONG)), context).tangent

    return program


def forward_directions(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        with pb.ForwardContext() as context:
            return as_dual(f(context.dual(x, tangents=[WEIGHTS, ALONG, -ALONG])), context).tangents[1]

    return program


def backward(**options: Any) -> Any:
    def take(f: Program, world: World) -> Program:
        def program(x: Any) -> Any:
            x = pb.tensor(x, requires_grad=True)
            loss_of(f)(x).backward(**options)
            return x.grad

        return program

    return take


def gradients(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        x = x if isinstance(x, pb.Tensor) and x.requires_grad else pb.tensor(x, requires_grad=True)
        return pb.gradients(loss_of(f)(x), [x], create_graph=True)[0]

    return program


def watched(tape: Any, x: Any) -> Any:
    """A variable of the tape; a tensor that is recorded already is one."""
    return x if isinstance(x, pb.Tensor) and x.requires_grad else tape.variable(x)


def connected(found: Any) -> Any:
    """A tape returns None where nothing leads from the target to the source: here that is a refusal."""
    if found is None:
        raise pb.errors.GraphError("GradientTape: None")
    return found


def gradient_tape(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        tape = pb.GradientTape()
        x = watched(tape, x)
        return connected(tape.gradient(loss_of(f)(x), x))

    return program


def persistent_tape(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        with pb.GradientTape(persistent=True) as tape:
            x = watched(tape, x)
            y = f(x)
            twice = connected(tape.gradient(y, x, output_gradients=2.0 * WEIGHTS))
            return twice - tape.gradient(y, x, output_gradients=WEIGHTS)

    return program


def optimizer(f: Program, world: World) -> Program:
    """One step of plain descent at rate one."""

    def program(x: Any) -> Any:
        before = np.asarray(x)
        x = pb.tensor(x, requires_grad=True)
        step = pb.optim.SGD([x], lr=1.0)
        loss_of(f)(x).backward()
        step.step()
        return before - plain(x)

    return program


def graph_gradients(f: Program, world: World) -> Program:
    return lambda x: pb.stage(loss_of(f))(pb.spec_of(x)).gradients(wrt=0).run(x)


def graph_jvp(f: Program, world: World) -> Program:
    return lambda x: pb.stage(f)(pb.spec_of(x)).jvp(0).run(x, ALONG)[1]


def builder(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        graph = pb.Graph()
        fed = graph.placeholder("x", SHAPE)
        (slope,) = graph.gradients(loss_of(f)(fed), [fed])
        return graph.run(slope, x=np.asarray(x))

    return program


def builder_step(f: Program, world: World) -> Program:
    """A compiled step that updates a variable, at rate one."""

    def program(x: Any) -> Any:
        graph = pb.Graph()
        w = graph.variable("w", np.asarray(x))
        (slope,) = graph.gradients(loss_of(f)(w), [w])
        found = graph.compile(slope, updates=[(w, w - slope)])()
        assert np.allclose(graph.read(w), np.asarray(x) - found, rtol=1e-12), (
            "the variable did not step by its gradient"
        )
        return found

    return program


def sparse_jacobian(f: Program, world: World) -> Program:
    return lambda x: (pb.sparse_jacobian(f)(x).T @ WEIGHTS.ravel()).reshape(SHAPE)


def sparse_array_jacobian(f: Program, world: World) -> Program:
    # the whole pattern, so that it is known where numbers are hidden too
    whole = np.ones((WEIGHTS.size, WEIGHTS.size))
    return lambda x: (pb.sparse.jacobian(f, pattern=whole)(x).T @ WEIGHTS.ravel()).reshape(SHAPE)


def sparse_hessian(f: Program, world: World) -> Program:
    return lambda x: (pb.sparse_hessian(loss_of(f))(x) @ ALONG.ravel()).reshape(SHAPE)


def jacobian_diagonal(f: Program, world: World) -> Program:
    return lambda x: pb.jacobian_diagonal(f)(x)


def hessian_diagonal(f: Program, world: World) -> Program:
    return lambda x: pb.hessian_diagonal(loss_of(f))(x)


def laplacian(f: Program, world: World) -> Program:
    return lambda x: pb.laplacian(loss_of(f))(x) * WEIGHTS


def divergence(f: Program, world: World) -> Program:
    return lambda x: pb.divergence(f)(x) * WEIGHTS


TAKERS = [
    Taker("grad", lambda f, world: pb.grad(loss_of(f)), "reverse", covers=("grad",)),
    Taker("value_and_grad", value_and_grad, "reverse", covers=("value_and_grad",), like="grad"),
    Taker("vjp", lambda f, world: lambda x: pb.vjp(f, x)[1](WEIGHTS)[0], "reverse", covers=("vjp",), like="grad"),
    Taker("jvp", lambda f, world: lambda x: pb.jvp(f, (x,), (ALONG,))[1], "forward", covers=("jvp",)),
    Taker("linearize", lambda f, world: lambda x: pb.linearize(f, x)[1](ALONG), "forward", covers=("linearize",)),
    Taker("linear_transpose", linear_transpose, "reverse", covers=("linear_transpose",), like="linearize"),
    Taker(
        "elementwise_grad",
        lambda f, world: pb.elementwise_grad(lambda x: WEIGHTS * f(x)),
        "reverse",
        covers=("elementwise_grad",),
        like="grad",
    ),
    Taker("jacobian", by_rows(pb.jacobian), "reverse", covers=("jacobian",)),
    Taker("jacrev", by_rows(pb.jacrev), "reverse", covers=("jacrev",), like="jacobian"),
    Taker("jacfwd", by_rows(pb.jacfwd), "reverse", covers=("jacfwd",), like="jacobian"),
    Taker("hessian", hessian, "second", covers=("hessian",)),
    Taker(
        "hvp", lambda f, world: lambda x: pb.hvp(loss_of(f), (x,), (ALONG,)), "second", covers=("hvp",), like="hessian"
    ),
    Taker("ggnvp", gauss_newton, "gauss_newton", covers=("ggnvp",)),
    Taker("jet", jet, "curve", covers=("jet",)),
    Taker("laplacian", laplacian, "laplacian", modes=("value",), covers=("laplacian",), like="jet"),
    Taker("divergence", divergence, "divergence", modes=ALONG_ONLY, covers=("divergence",), like="jacobian"),
    Taker(
        "jacobian_diagonal",
        jacobian_diagonal,
        "diagonal",
        ("value",),
        True,
        covers=("jacobian_diagonal",),
        like="sparse_jacobian",
    ),
    Taker(
        "hessian_diagonal",
        hessian_diagonal,
        "second_diagonal",
        ("value",),
        True,
        covers=("hessian_diagonal",),
        like="sparse_hessian",
    ),
    Taker("forward_context", forward_context, "forward", covers=("ForwardContext", "Dual")),
    Taker("forward_directions", forward_directions, "forward", like="forward_context"),
    Taker("backward", backward(), "reverse", modes=("value", "forward"), covers=("Tensor", "tensor")),
    Taker("workers", backward(workers=2), "reverse", modes=("value",), like="backward"),
    Taker("gradients", gradients, "reverse", covers=("gradients",)),
    Taker("gradient_tape", gradient_tape, "reverse", covers=("GradientTape",)),
    Taker("persistent_tape", persistent_tape, "reverse", like="gradient_tape"),
    Taker("optimizer", optimizer, "reverse", modes=("value",)),
    Taker("graph_gradients", graph_gradients, "reverse"),
    Taker("graph_jvp", graph_jvp, "forward", like="graph_gradients"),
    Taker("builder", builder, "reverse", modes=("value",), covers=("Graph", "GraphValue")),
    Taker(
        "builder_step", builder_step, "reverse", modes=("value",), compiled=True, covers=("GraphStep",), like="builder"
    ),
    Taker(
        "sparse_jacobian",
        sparse_jacobian,
        "reverse",
        ("value",),
        True,
        covers=("sparse_jacobian", "sparsity", "SparsePlan"),
    ),
    Taker("sparse_array_jacobian", sparse_array_jacobian, "reverse"),
    Taker("sparse_hessian", sparse_hessian, "second", ("value",), True, covers=("sparse_hessian",)),
]
