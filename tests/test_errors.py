"""Every error is ours and the built-in a Python user expects, and says what it got, what it wanted and where."""

import inspect

import numpy as np
import pytest

import pullback as pb
from pullback import errors

BUILT_IN = {
    "ShapeError": ValueError,
    "DtypeError": TypeError,
    "DeviceError": ValueError,
    "ArgumentError": ValueError,
    "IndexingError": IndexError,
    "ConversionError": TypeError,
    "GraphError": RuntimeError,
    "LeakError": RuntimeError,
    "ConvergenceError": RuntimeError,
    "ArgumentTypeError": TypeError,
    "AxisError": IndexError,
    "MemoryBudgetError": MemoryError,
    "MiscompiledError": AssertionError,
    "WorldError": RuntimeError,
    "MismatchError": RuntimeError,
    "CollectiveTimeoutError": TimeoutError,
    "RankLostError": RuntimeError,
    "NonFiniteError": FloatingPointError,
    "ReplicaDriftError": RuntimeError,
    "IntegrationError": RuntimeError,
    "TooManyStepsError": RuntimeError,
    "StepUnderflowError": RuntimeError,
    "NonFiniteStateError": FloatingPointError,
    "RecomputeError": RuntimeError,
    "StorageError": OSError,
    "FormatError": ValueError,
    "ExportError": NotImplementedError,
    "SingularError": np.linalg.LinAlgError,
    "DegenerateError": ArithmeticError,
    "GaugeError": ArithmeticError,
    "DeterminismError": RuntimeError,
    "HookError": ValueError,
    "AnomalyError": FloatingPointError,
    "UnsupportedFunction": TypeError,
}


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


def test_every_error_is_in_the_table():
    found = {n for n, c in vars(errors).items() if inspect.isclass(c) and issubclass(c, errors.PullbackError)}
    assert found - {"PullbackError"} == set(BUILT_IN) == set(errors.__all__) - {"PullbackError"}


@pytest.mark.parametrize("name", BUILT_IN)
def test_every_error_is_ours_and_a_built_in(name):
    kind = getattr(errors, name)
    assert issubclass(kind, errors.PullbackError)
    assert issubclass(kind, BUILT_IN[name])
    assert kind.__doc__


A, M = np.ones(3), np.ones((2, 3))

MISTAKES = {
    # what: (the call, its error, what the message must hold)
    "shapes that do not broadcast": (lambda: pb.tensor(A) + np.ones(2), errors.ShapeError, ["add", "(3,)", "(2,)"]),
    "the same without a tensor": (lambda: pb.add(A, np.ones(2)), errors.ShapeError, ["add", "(3,)", "(2,)"]),
    "where": (lambda: pb.where(np.ones(2, bool), pb.tensor(A), 0.0), errors.ShapeError, ["where", "(2,)", "(3,)"]),
    "matmul": (lambda: pb.tensor(M) @ M, errors.ShapeError, ["matmul", "(2, 3)"]),
    "matmul of vectors": (lambda: pb.tensor(A) @ np.ones(2), errors.ShapeError, ["matmul", "(3,)", "(2,)"]),
    "matmul of a number": (lambda: pb.matmul(pb.tensor(2.0), A), errors.ShapeError, ["matmul", "()"]),
    "einsum sizes": (lambda: pb.einsum("ij,jk->ik", M, M), errors.ShapeError, ["einsum", "j", "3", "2"]),
    "einsum count": (lambda: pb.einsum("i,j->ij", A), errors.ArgumentError, ["einsum", "i,j->ij"]),
    "einsum rank": (lambda: pb.einsum("ijk->i", A), errors.ShapeError, ["einsum", "ijk"]),
    "tensordot": (lambda: pb.tensordot(M, M, axes=1), errors.ShapeError, ["tensordot", "(2, 3)"]),
    "reshape": (lambda: pb.tensor(A).reshape((2, 2)), errors.ShapeError, ["reshape", "3", "(2, 2)"]),
    "two unknown sizes": (lambda: pb.reshape(A, (-1, -1)), errors.ShapeError, ["reshape", "-1"]),
    "broadcast_to": (lambda: pb.broadcast_to(A, (2,)), errors.ShapeError, ["broadcast_to", "(3,)", "(2,)"]),
    "axis": (lambda: pb.sum(A, axis=1), errors.AxisError, ["sum", "axis 1", "1 axes"]),
    "axis of a method": (lambda: pb.tensor(M).max(axis=-3), errors.AxisError, ["max", "axis -3"]),
    "axis twice": (lambda: pb.sum(M, axis=(0, 0)), errors.ArgumentError, ["sum", "twice"]),
    "axis that is no integer": (lambda: pb.sum(M, axis=0.5), errors.DtypeError, ["sum", "0.5"]),
    "permute_dims": (lambda: pb.permute_dims(M, (0, 0)), errors.ShapeError, ["permute_dims", "(0, 0)"]),
    "squeeze": (lambda: pb.squeeze(M, axis=0), errors.ShapeError, ["squeeze", "2"]),
    "concat": (lambda: pb.concat([M, A]), errors.ShapeError, ["concat", "(2, 3)", "(3,)"]),
    "concat of nothing": (lambda: pb.concat([]), errors.ArgumentError, ["concat"]),
    "stack": (lambda: pb.stack([A, np.ones(2)]), errors.ShapeError, ["stack", "(3,)", "(2,)"]),
    "split": (lambda: pb.split(A, 2), errors.ShapeError, ["split", "3", "2"]),
    "max of nothing": (lambda: pb.max(np.ones(0)), errors.ShapeError, ["max", "(0,)"]),
    "argmax of nothing": (lambda: pb.argmax(np.ones(0)), errors.ShapeError, ["argmax"]),
    "pad": (lambda: pb.pad(A, (-1, 0)), errors.ArgumentError, ["pad", "-1"]),
    "tile": (lambda: pb.tile(A, -1), errors.ArgumentError, ["tile"]),
    "repeat": (lambda: pb.repeat(A, [1, 2]), errors.ShapeError, ["repeat", "3"]),
    "tril": (lambda: pb.tril(A), errors.ShapeError, ["tril", "(3,)"]),
    "diagonal": (lambda: pb.diagonal(M, axis1=0, axis2=0), errors.ArgumentError, ["diagonal"]),
    "index out of range": (lambda: pb.tensor(A)[5], errors.IndexingError, ["5", "3"]),
    "index array out of range": (lambda: pb.tensor(A)[np.array([0, 7])], errors.IndexingError, ["7", "(3,)"]),
    "too many indices": (lambda: pb.tensor(A)[0, 0], errors.IndexingError, ["too many", "1 axes"]),
    "index of floats": (lambda: pb.tensor(A)[np.array([0.5])], errors.IndexingError, ["float64"]),
    "two ellipses": (lambda: pb.tensor(M)[..., ...], errors.IndexingError, ["ellipsis"]),
    "mask that is too short": (lambda: pb.tensor(A)[np.ones(2, bool)], errors.IndexingError, ["2", "3"]),
    "mask that is too long": (lambda: pb.tensor(A)[np.zeros(4, bool)], errors.IndexingError, ["4", "3"]),
    "mask over the wrong axes": (lambda: pb.tensor(M)[np.ones((3, 2), bool)], errors.IndexingError, ["3", "2"]),
    "mask that is a tensor": (lambda: pb.tensor(A)[pb.tensor([True, False])], errors.IndexingError, ["2", "3"]),
    "mask to write through": (lambda: pb.set_at(A, np.ones(2, bool), 1.0), errors.IndexingError, ["2", "3"]),
    "take": (lambda: pb.take(A, [5]), errors.IndexingError, ["5", "(3,)"]),
    "take_along_axis": (lambda: pb.take_along_axis(M, np.array([0])), errors.ShapeError, ["take_along_axis", "1", "2"]),
    "set_at": (lambda: pb.set_at(A, 0, A), errors.ShapeError, ["(3,)", "()"]),
    "values of another kind": (lambda: pb.set_at(np.ones(2, int), 0, A[0]), errors.DtypeError, ["float64", "int64"]),
    "astype": (lambda: pb.astype(A, "no dtype"), errors.DtypeError, ["no dtype"]),
    "operand that is no array": (lambda: pb.sin(object()), errors.DtypeError, ["object"]),
    "operand of text": (lambda: pb.sin("text"), errors.DtypeError, []),
    "integers cannot track": (lambda: leaf([1, 2], int), errors.DtypeError, ["int64", "astype"]),
    "booleans cannot track": (lambda: leaf([True], bool), errors.DtypeError, ["bool"]),
    "~ of floats": (lambda: ~pb.tensor(A), errors.DtypeError, ["float64"]),
    "truth of many": (lambda: bool(pb.tensor(A)), errors.ShapeError, ["(3,)", "any", "all"]),
    "len of a number": (lambda: len(pb.tensor(1.0)), errors.ArgumentTypeError, ["0-d"]),
    "tracked to array": (lambda: np.asarray(leaf(1.0)), errors.ConversionError, ["detach()", "test_errors.py"]),
    "no rule": (lambda: np.savetxt("none", leaf([1.0])), errors.UnsupportedFunction, ["np.savetxt", "register_numpy"]),
    "root that tracks nothing": (lambda: pb.tensor(1.0).backward(), errors.GraphError, ["requires_grad=True"]),
    "root that is no tensor": (lambda: pb.gradients(1.0, leaf(1.0)), errors.ArgumentError, ["float"]),
    "vector root": (lambda: (leaf(A) * 2).backward(), errors.ShapeError, ["(3,)", "seed", "test_errors.py"]),
    "seed": (lambda: (leaf(A) * 2).backward(np.ones((3, 1))), errors.ShapeError, ["(3, 1)", "(3,)", "test_errors.py"]),
    "complex seed": (lambda: leaf(1.0).backward(np.asarray(1j)), errors.DtypeError, ["complex128", "float64"]),
    "leaf that is none": (lambda: setattr(leaf(1.0) * 2, "requires_grad", False), errors.GraphError, ["detach"]),
    "chained assignment": (lambda: chained(), errors.GraphError, ["x[i, j] = v"]),
    "negative sizes": (lambda: pb.zeros((-1,)), errors.ArgumentError, ["zeros", "-1"]),
    "sizes that are no integers": (lambda: pb.zeros(1.5), errors.DtypeError, ["zeros", "1.5"]),
}  # fmt: skip


def chained():
    x = pb.ones((2, 2))
    x[0][0] = 1.0


@pytest.mark.parametrize("case", MISTAKES)
def test_message_says_what_where_and_wanted(case):
    call, kind, parts = MISTAKES[case]
    with pytest.raises(kind) as caught:
        call()
    assert type(caught.value) is kind
    message = str(caught.value)
    for part in parts:
        assert part in message


SAME_FOR_TENSORS = {
    "sum": lambda x: pb.sum(x, axis=4),
    "reshape": lambda x: pb.reshape(x, (7,)),
    "concat": lambda x: pb.concat([x, np.ones((1, 1, 1))]),
    "index": lambda x: pb.getitem(x, (9, 9)),
    "power": lambda x: pb.power(x, np.ones(5)),
    "clip": lambda x: pb.clip(x, np.ones(5), None),
    "matmul": lambda x: pb.matmul(x, np.ones((7, 1))),
    "atan2": lambda x: pb.atan2(np.ones(5), x),
}


@pytest.mark.parametrize("call", SAME_FOR_TENSORS.values(), ids=SAME_FOR_TENSORS)
def test_arrays_tensors_and_tracked_tensors_raise_the_same(call):
    found = []
    for x in (np.ones((2, 3)), pb.ones((2, 3)), leaf(np.ones((2, 3)))):
        with pytest.raises(errors.PullbackError) as caught:
            call(x)
        found.append((type(caught.value), str(caught.value)))
    assert len(set(found)) == 1


def test_error_in_a_rule_carries_a_note_with_the_forward_line():
    x = leaf(1.0)
    with pb.saved_tensors_hooks(lambda t: t, lambda t: 1 / 0):
        y = pb.sin(x)
    with pytest.raises(ZeroDivisionError) as caught:
        y.backward()
    assert any("sin" in note and "test_errors.py" in note for note in caught.value.__notes__)


@pytest.mark.parametrize(
    "f", [lambda x: pb.add(x), lambda x: pb.sin(x, x), lambda x: pb.where(x, x), lambda x: pb.clip(x, foo=1)]
)
def test_wrong_count_of_arguments_is_pythons_own_type_error(f):
    with pytest.raises(TypeError):
        f(pb.ones(2))


def test_failed_op_leaves_the_tape_usable():
    x = leaf([1.0, 2.0])
    y = x * x
    with pytest.raises(errors.ShapeError):
        y + np.ones(3)
    pb.sum(y).backward()
    assert x.grad.tolist() == [2.0, 4.0]
