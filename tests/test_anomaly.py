"""`detect_anomaly` in compiled code and in forward mode: the op and the line of the first NaN or infinity."""

import numpy as np
import pytest

import pullback as pb
from pullback.errors import AnomalyError

X = np.array([1.0, 0.0, 4.0])


def loss(x):
    roots = pb.sqrt(x)
    return pb.sum(roots * 2.0)


def quotient(x):
    y = x - x
    return pb.sum(y / y)


def looped(x):
    return pb.scan(lambda c, v: (pb.log(c - v), c), pb.sum(x), x)[0]


def where(function, line):
    """The text of a line of one of the functions above."""
    return f"test_anomaly.py:{function.__code__.co_firstlineno + line}"


def raises(words, f, *args, **options):
    with pb.detect_anomaly(**options), pytest.raises(AnomalyError) as info, np.errstate(all="ignore"):
        f(*args)
    text = str(info.value)
    for word in words:
        assert word in text, text


@pytest.mark.parametrize(
    "compiled",
    [
        lambda: pb.jit(pb.grad(loss)),
        lambda: pb.grad(pb.jit(loss)),
        lambda: lambda x: pb.jvp(pb.jit(loss), (x,), (np.ones(3),)),
        lambda: pb.jit(lambda x: pb.jvp(loss, (x,), (np.ones(3),))),
        lambda: pb.vmap(pb.jit(pb.grad(lambda x: loss(x[None])))),
        lambda: pb.jit(pb.vmap(pb.grad(lambda x: loss(x[None])))),
    ],
    ids=["jit_grad", "grad_jit", "jvp_jit", "jit_jvp", "vmap_jit", "jit_vmap"],
)
def test_an_infinite_slope_in_compiled_code_is_named_by_its_line(compiled):
    f = compiled()
    with np.errstate(all="ignore"):
        f(X)  # compiled before, without the lines of equations
    raises(["inf", where(loss, 1), "sqrt"], f, X)
    with np.errstate(all="ignore"):
        f(X)  # and goes on as before
    with pb.detect_anomaly():
        f(X + 1.0)


def test_values_of_compiled_functions_are_checked():
    raises(["divide made nan", where(quotient, 2), "in compiled code of quotient"], pb.jit(quotient), X)
    raises(["log made", where(looped, 1)], pb.jit(looped), X)
    t = pb.tensor(X, requires_grad=True)
    raises(["sqrt", where(loss, 1)], lambda: pb.jit(loss)(t).backward())


def test_what_arguments_bring_is_no_anomaly_of_the_program():
    bad = np.array([1.0, np.inf])
    with pb.detect_anomaly():
        assert pb.jit(lambda x: x * 2.0)(bad)[1] == np.inf


@pytest.mark.parametrize("f", [loss, lambda x: pb.vmap(lambda v: pb.sqrt(v) * 3.0)(x)], ids=["plain", "vmap"])
def test_forward_mode_names_op_and_line(f):
    line = where(f, 1 if f is loss else 0)
    raises(["forward mode: the rule of sqrt returned inf", line], lambda: pb.jvp(f, (X,), (np.ones(3),)))
    raises(["the rule of sqrt returned nan", line], lambda: pb.jacfwd(f)(X))
    with np.errstate(all="ignore"):
        pb.jvp(f, (X,), (np.ones(3),))
    with pb.detect_anomaly():
        pb.jvp(f, (X + 1.0,), (np.ones(3),))


def test_taylor_mode_and_linearized_functions_are_checked_too():
    raises(["the rule of sqrt returned inf", where(loss, 1)], lambda: pb.jet(loss, (X,), ([np.ones(3), None],)))
    push = pb.linearize(loss, X + 1.0)[1]
    with pb.detect_anomaly():
        push(np.ones(3))
        pb.jet(loss, (X + 1.0,), ([np.ones(3), None],))
    with np.errstate(all="ignore"):
        push = pb.linearize(loss, X)[1]
    raises(["linearize returned inf", "push(np.ones(3))"], lambda: push(np.ones(3)))


def test_only_nan():
    with pb.detect_anomaly(nan_only=True), np.errstate(all="ignore"):
        assert pb.jvp(loss, (X,), (np.ones(3),))[1] == np.inf
        assert pb.jit(pb.grad(loss))(X)[1] == np.inf
    raises(["nan", "divide"], lambda: pb.jvp(quotient, (X,), (np.ones(3),)), nan_only=True)
    raises(["nan", "divide"], pb.jit(quotient), X, nan_only=True)


def test_both_modes_at_once_and_trees_of_results():
    hessian_of = lambda x: pb.sum(x * pb.sqrt(x))  # noqa: E731
    raises(["sqrt"], lambda: pb.hessian(hessian_of)(X))
    pair = lambda x: pb.frexp(pb.sqrt(x))  # noqa: E731
    raises(["sqrt"], lambda: pb.jvp(pair, (X,), (np.ones(3),)))
