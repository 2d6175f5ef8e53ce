"""Every public function with arguments that make no sense: what comes is an error of ours, or stands in this table."""

import os
import warnings

import hostile_arguments as hostile
import pytest

import pullback as pb
from pullback import errors

FUNCTIONS = dict(hostile.functions())
#: Functions that let a built-in error through, and why.
BUILT_IN = {
    # an array in the place of a flag: NumPy's own "the truth value of an array is ambiguous"
    "flag": (ValueError, "truth value of a"),
    # what the given function itself raises is the user's
    "function": (TypeError, "len()"),
    # the protocol's own word for what cannot be handed over
    "from_dlpack": (BufferError, "DLPack"),
}


def is_expected(what, error):
    if isinstance(error, (errors.PullbackError, MemoryError, OverflowError)):
        return True
    if any(isinstance(error, kind) and text in str(error) for kind, text in BUILT_IN.values()):
        return True
    return is_users(error)


def is_users(error):
    """Whether the error was raised by a line of the caller's own function."""
    step = error.__traceback__
    while step.tb_next is not None:
        step = step.tb_next
    return (
        os.path.basename(step.tb_frame.f_code.co_filename) == "hostile_arguments.py"
        and step.tb_frame.f_code.co_name == "<lambda>"
    )


def unexpected(name):
    function = FUNCTIONS[name]
    base = hostile.base_of(name, function)
    assert base is not None
    found = []
    for what, call in hostile.calls(name, function, base):
        try:
            hostile.quietly(call)
        except Exception as error:
            if not is_expected(what, error):
                found.append(f"{what}: {type(error).__name__}: {error}")
    return found


@pytest.mark.parametrize("name", sorted(FUNCTIONS))
def test_hostile_arguments_get_a_typed_error(name):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        assert unexpected(name) == []


def test_no_static_arguments_may_be_said_as_none():
    f = pb.jit(lambda x: x + 1.0, static_argnums=None, static_argnames=None, donate_argnums=None)
    assert f(1.0) == 2.0


@pytest.mark.parametrize(
    "call",
    [
        lambda: pb.linear_solve(lambda v: 2.0 * v, hostile.X, method="cg"),
        lambda: pb.linear_solve(hostile.M, hostile.X[:2], method=pb.implicit.CG),
        lambda: pb.linear_solve(hostile.M, hostile.X[:2], method=[]),  # was taken for no method at all
        lambda: pb.jit(lambda b: pb.linear_solve(lambda v: 2.0 * v, b, method="cg"))(hostile.X),
        lambda: pb.implicit.Implicit(adjoint="cg"),
        lambda: pb.implicit.custom_root(lambda x, a: x - a, adjoint="cg"),
        lambda: pb.root(lambda z: z, hostile.X, solver="newton"),
    ],
)
def test_a_method_that_is_none_is_refused_where_it_is_said(call):
    with pytest.raises(errors.ArgumentError, match=r"must be one of pb.implicit, such as"):
        call()


def test_a_class_is_registered_once():
    kind = type("Once", (), {})
    pb.register_tree(kind, lambda tree: ((), None), lambda rest, children: kind())
    with pytest.raises(errors.ArgumentError, match="Once is a tree already"):
        pb.register_tree(kind, lambda tree: ((), None), lambda rest, children: kind())
