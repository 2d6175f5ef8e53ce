"""The eighth derivative of tanh(tanh(tanh(x))) at a number, by Taylor mode and by others; float64.

The limit: a hundredth of the time that nested JAX grads take once they are warm. Nested derivatives multiply the work
with each order, so by default they run at order five only; with --full also at order eight, where a call takes many
seconds, or minutes to be compiled before the first.
"""

import sys
from time import perf_counter

from contest import OURS, Limit, check_agreement, gather, machine, pin, race, readable, report, start

import pullback as pb

X = 0.3
LIMITS = (Limit("JAX nested", 1 / 100),)


def three_tanh(x):
    return pb.tanh(pb.tanh(pb.tanh(x)))


def ours(order):
    series = ([1.0] + [None] * (order - 1),)
    return lambda: pb.jet(three_tanh, (X,), series)[1][-1:]


def ours_nested(order):
    """Forward mode, once for each order."""

    def derivative(f):
        return lambda x: pb.jvp(f, (x,), (1.0,))[1]

    f = repeated(derivative, three_tanh, order)
    return lambda: [f(X)]


def repeated(transform, f, times):
    for _ in range(times):
        f = transform(f)
    return f


def jax_function():
    import jax

    jax.config.update("jax_enable_x64", True)
    return jax, lambda x: jax.numpy.tanh(jax.numpy.tanh(jax.numpy.tanh(x)))


def jax_nested(order):
    jax, f = jax_function()
    derivative = repeated(jax.grad, f, order)
    return lambda: [derivative(X).block_until_ready()]


def jax_nested_compiled(order):
    jax, f = jax_function()
    derivative = jax.jit(repeated(jax.grad, f, order))
    return lambda: [derivative(X).block_until_ready()]


def jax_jet(order):
    _, f = jax_function()
    from jax.experimental.jet import jet as jet

    return lambda: [jet(f, (X,), ([1.0] + [0.0] * (order - 1),))[1][-1].block_until_ready()]


def jax_jet_compiled(order):
    jax, f = jax_function()
    from jax.experimental.jet import jet as jet

    derivative = jax.jit(lambda x: jet(f, (x,), ([1.0] + [0.0] * (order - 1),))[1][-1])
    return lambda: [derivative(X).block_until_ready()]


TAYLOR = {OURS: ours, "JAX jet": jax_jet, "JAX jet, jit": jax_jet_compiled}
NESTED = {"JAX nested": jax_nested, "JAX nested, jit": jax_nested_compiled}


def compare(order, makers, seconds):
    steps = gather(makers, order)
    first = {}
    for name, step in steps.items():
        begin = perf_counter()
        step()
        first[name] = perf_counter() - begin
    check_agreement(steps, tolerance=1e-9)
    report(f"tanh(tanh(tanh(x))), derivative of order {order}", race(steps, seconds), LIMITS)
    print(f"  first calls: {', '.join(f'{name} {readable(time)}' for name, time in first.items())}")


def main():
    pin(1)
    full = "--full" in sys.argv
    if full:
        sys.argv.remove("--full")
    options = start(__doc__)
    print(machine())
    seconds = 1 if options.quick else 8
    compare(5, {**TAYLOR, "pullback nested": ours_nested, **NESTED}, seconds)
    compare(8, {**TAYLOR, **(NESTED if full else {})}, seconds)


if __name__ == "__main__":
    main()
