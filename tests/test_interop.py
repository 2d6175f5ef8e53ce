"""Tensors among NumPy arrays, numbers and other libraries: what comes out, and what refuses to lose a derivative."""

import copy
import math
import operator
import pickle

import numpy as np
import pytest
import scipy.special

import pullback as pb
from pullback import errors


def leaf(data, dtype=np.float64):
    return pb.tensor(data, dtype=dtype, requires_grad=True)


MATRIX = np.array([[1.5, 2.5], [3.5, 4.5]])
DTYPES = ["bool", "int8", "int32", "int64", "uint8", "float16", "float32", "float64", "complex64", "complex128"]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("shape", [(), (1,), (2, 3), (0, 2)])
def test_conversions_keep_values_dtype_and_shape(dtype, shape):
    array = np.asarray(np.arange(np.prod(shape)).reshape(shape) % 2).astype(dtype)
    x = pb.tensor(array)
    for back in (x.numpy(), np.asarray(x), np.array(x), np.asarray(x, dtype=dtype), np.from_dlpack(x)):
        assert (type(back), back.dtype, back.shape) == (np.ndarray, array.dtype, shape)
        np.testing.assert_array_equal(back, array)
    assert (x.dtype, x.shape, x.ndim, x.size, x.device) == (array.dtype, shape, array.ndim, array.size, "cpu")
    assert x.tolist() == array.tolist()
    assert pb.from_dlpack(array).tolist() == array.tolist()
    if array.size == 1:
        assert (x.item(), type(x.item())) == (array.item(), type(array.item()))


def test_bfloat16_goes_in_and_out():
    ml_dtypes = pytest.importorskip("ml_dtypes")
    x = pb.tensor([1.0, 2.5], dtype=ml_dtypes.bfloat16, requires_grad=True)
    pb.sum(x * x * 2).backward()
    assert (x.grad.dtype, x.grad.astype(np.float32).tolist()) == (ml_dtypes.bfloat16, [4.0, 10.0])


def test_gradient_of_swapped_bytes_has_its_tensors_dtype():
    x = pb.tensor(np.array([1.0, 2.0], ">f8"), requires_grad=True)
    pb.sum(x * x).backward()
    assert (x.grad.dtype, x.grad.tolist()) == (x.dtype, [2.0, 4.0])
    assert x.tolist() == [1.0, 2.0]


def test_array_protocol_copies_when_asked():
    x = pb.tensor([1.0, 2.0])
    mine = np.array(x)
    mine[0] = 5.0
    assert x.tolist() == [1.0, 2.0]
    assert np.shares_memory(np.asarray(x), x.numpy())
    assert np.asarray(x, dtype=np.float32).dtype == np.float32


REFUSED = {
    "np.asarray": np.asarray,
    "np.array": np.array,
    "numpy()": lambda x: x.numpy(),
    "DLPack": np.from_dlpack,
    "math": lambda x: math.sin(x),
    "pb.tensor": pb.tensor,
    "list of tensors": lambda x: np.array([x, x]),
    "pb.tensor of a list": lambda x: pb.tensor([x, x]),
    "full": lambda x: pb.full(2, x),
}


@pytest.mark.parametrize("convert", REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("made", ["leaf", "result"])
def test_tracked_tensor_refuses_to_become_bare_and_says_what_to_do(convert, made):
    x = leaf(2.0)
    with pytest.raises(errors.ConversionError, match="detach") as caught:
        convert(x if made == "leaf" else x * 2)
    assert isinstance(caught.value, TypeError)
    assert "test_interop.py" in str(caught.value)


def test_lists_of_tensors_beside_arrays_are_joined():
    x = leaf(2.0)
    y = pb.add(np.ones(2), [x, 3.0 * x])
    pb.sum(y * np.array([1.0, 10.0])).backward()
    assert (y.tolist(), float(x.grad)) == ([3.0, 7.0], 31.0)


def test_tracked_tensor_does_not_slip_into_an_array():
    array = np.zeros(2)
    with pytest.raises(ValueError, match="array element"):
        array[0] = leaf(1.0)
    assert array.tolist() == [0.0, 0.0]


@pytest.mark.parametrize(
    "convert", [float, int, complex, bool, np.asarray, lambda x: x.item(), lambda x: f"{x:.1f}", operator.index]
)
def test_untracked_number_converts(convert):
    value = 3 if convert is operator.index else 3.0
    found, wanted = convert(pb.tensor(value)), convert(np.asarray(value))
    assert (found, type(found)) == (wanted, type(wanted))


def test_looking_at_a_tracked_tensor_is_allowed():
    x = leaf([2.0])
    assert (x.item(), x.tolist(), bool(x > 1), f"{x:.2f}", f"{x}", str(x)) == (
        2.0,
        [2.0],
        True,
        "2.00",
        repr(x),
        repr(x),
    )
    assert bool(x)
    assert (float(x), int(x), complex(x)) == (2.0, 2, 2 + 0j)
    assert "%.1f" % x == "2.0"  # noqa: UP031 - Python's oldest way to print a loss


@pytest.mark.parametrize(
    "convert", [float, int, complex, operator.index, bool, lambda x: x.item(), lambda x: f"{x:.1f}"]
)
def test_many_elements_are_no_number(convert):
    with pytest.raises(errors.ShapeError, match=r"\(2,\)"):
        convert(pb.tensor([1, 2]))


def test_index_needs_an_integer():
    assert [10, 20, 30][pb.tensor(1)] == 20
    with pytest.raises((TypeError, AttributeError)):
        operator.index(pb.tensor(1.0))


@pytest.mark.parametrize(
    ("x", "parts"),
    [
        (pb.tensor([1.0, 2.0]), ["1., 2.", "float64"]),
        (leaf([1.0], np.float32), ["float32", "requires_grad=True"]),
        (leaf([1.0]) * 2, ["2.", "multiply"]),
        (pb.sum(leaf([1.0, 2.0])), ["3.", "op=sum"]),
        (pb.tensor(True), ["True", "bool"]),
        (pb.zeros((0, 2)), ["float64"]),
        (pb.tensor(1 + 2j), ["1.+2.j", "complex128"]),
    ],
)
def test_repr_shows_values_dtype_and_producing_op(x, parts):
    for part in parts:
        assert part in repr(x)
    assert "requires_grad" in repr(x) or x.node is None or f"op={x.node.name}" in repr(x)


def test_repr_of_many_elements_is_short():
    assert len(repr(pb.zeros((1000, 1000)))) < 2000


def test_copy_is_on_the_tape_and_deepcopy_is_a_twin():
    x = leaf([1.0, 2.0])
    x.grad = np.array([3.0, 4.0])
    for twin in (copy.copy(x), x.copy()):
        assert not twin.is_leaf
        pb.sum(twin * twin).backward(inputs=[x])
    assert x.grad.tolist() == [7.0, 12.0]
    deep = copy.deepcopy({"a": x, "b": [x]})
    twin = deep["a"]
    assert twin is deep["b"][0]
    assert twin is not x
    assert (twin.tolist(), twin.grad.tolist(), twin.is_leaf, twin.requires_grad) == (
        [1.0, 2.0],
        [7.0, 12.0],
        True,
        True,
    )
    assert not np.shares_memory(twin.detach().numpy(), x.detach().numpy())
    assert not np.shares_memory(twin.grad.numpy(), x.grad.numpy())


@pytest.mark.parametrize("dtype", ["float32", "int64", "bool", "complex128"])
def test_pickle_of_a_leaf_brings_it_back(dtype):
    x = pb.tensor(np.ones((2, 3)), dtype=dtype, requires_grad=dtype in ("float32", "complex128"))
    y = pickle.loads(pickle.dumps(x))
    assert (y.tolist(), y.dtype, y.requires_grad, y.is_leaf) == (x.tolist(), x.dtype, x.requires_grad, True)


def test_graph_is_not_stored():
    y = leaf(1.0) * 2
    with pytest.raises(errors.GraphError, match="detach"):
        pickle.dumps(y)
    assert pickle.dumps(y.detach()) is not None


def test_a_deep_copy_keeps_the_derivative():
    x = leaf(1.0)
    copy.deepcopy(x * 2).backward()
    assert x.grad == 2.0


OPERATORS = {
    "+": operator.add, "-": operator.sub, "*": operator.mul, "/": operator.truediv, "**": operator.pow,
    "@": operator.matmul, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge, "==": operator.eq,
    "!=": operator.ne, "&": operator.and_, "|": operator.or_,
}  # fmt: skip
OTHERS = {
    "array": MATRIX,
    "row": np.array([0.5, 2.0]),
    "0-d": np.array(2.0),
    "NumPy scalar": np.float64(2.0),
    "float": 2.0,
    "int": 2,
    "list": [0.5, 2.0],
    "float32": np.array([0.5, 2.0], np.float32),
    "integers": np.array([1, 2]),
}


@pytest.mark.parametrize("symbol", OPERATORS)
@pytest.mark.parametrize("other", OTHERS)
def test_operators_with_other_things_on_either_side(symbol, other):
    f, beside, mine = OPERATORS[symbol], OTHERS[other], MATRIX
    if symbol in "&|":
        beside, mine = np.asarray(beside) > 1, MATRIX > 2
    if symbol == "@" and np.ndim(beside) == 0:
        with pytest.raises((errors.ShapeError, ValueError)):
            f(pb.tensor(mine), beside)
        return
    x = pb.tensor(mine)
    raw = np.asarray(beside) if isinstance(beside, list) else beside
    for found, wanted in ((f(x, beside), f(mine, raw)), (f(beside, x), f(raw, mine))):
        assert type(found) is pb.Tensor
        assert found.dtype == np.asarray(wanted).dtype
        np.testing.assert_allclose(found.numpy(), wanted, rtol=1e-15)


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "**", "@"])
@pytest.mark.parametrize("side", ["left", "right"])
def test_array_on_either_side_does_not_cut_the_tape(symbol, side):
    f = OPERATORS[symbol]
    x = leaf(MATRIX)
    out = f(MATRIX, x) if side == "left" else f(x, MATRIX)
    assert out.requires_grad
    report = pb.gradcheck((lambda t: f(MATRIX, t)) if side == "left" else (lambda t: f(t, MATRIX)), MATRIX)
    assert report.ok, str(report)


@pytest.mark.parametrize("scalar", [2, 2.0, True, np.float32(2), np.float64(2), np.int64(2)])
@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int32"])
@pytest.mark.parametrize("symbol", ["+", "*", "/", "**"])
def test_promotion_is_numpys(scalar, dtype, symbol):
    f, array = OPERATORS[symbol], np.ones(2, dtype)
    assert f(pb.tensor(array), scalar).dtype == f(array, scalar).dtype
    assert f(scalar, pb.tensor(array)).dtype == f(scalar, array).dtype


@pytest.mark.parametrize("numbers", [(0.0, -0.0), (-0.0, 0.0), (0, -0.0), (1, True), (1.0, 1), (2**53 + 1, 2.0**53)])
def test_numbers_that_compare_equal_are_not_taken_for_each_other(numbers):
    x, array = pb.tensor([1.0, -1.0]), np.array([1.0, -1.0])
    for number in numbers:
        for found, wanted in ((x * number, array * number), (number / x, number / array)):
            np.testing.assert_array_equal(found.numpy(), wanted)
            np.testing.assert_array_equal(np.signbit(found.numpy()), np.signbit(wanted))


class Foreign:
    """An object that knows how to meet tensors itself."""

    def __radd__(self, other):
        return "mine"

    __rsub__ = __rmul__ = __rtruediv__ = __rmatmul__ = __rpow__ = __radd__


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "**", "@"])
def test_other_classes_get_their_turn(symbol):
    assert OPERATORS[symbol](pb.ones((2, 2)), Foreign()) == "mine"


@pytest.mark.parametrize("symbol", ["+", "-", "*", "/", "**", "@", "<", "&"])
@pytest.mark.parametrize("other", [None, {}, object()])
def test_what_is_no_number_is_a_type_error(symbol, other):
    for pair in ((pb.ones(2), other), (other, pb.ones(2))):
        with pytest.raises(TypeError):
            OPERATORS[symbol](*pair)


def test_comparison_with_what_is_no_number_is_just_false():
    x = pb.ones(2)
    assert (x == None, x != None, x == "text") == (False, True, False)  # noqa: E711
    assert x in {x: 1}


TWO = [np.add, np.subtract, np.multiply, np.divide, np.power, np.arctan2, np.maximum, np.minimum, np.matmul]
ONE = [
    np.negative, np.abs, np.square, np.sqrt, np.exp, np.log, np.log1p, np.expm1, np.sin, np.cos, np.tan, np.tanh,
    np.sinh, np.cosh, np.arcsin, np.arccos, np.arctan, np.conj, np.positive, np.sign,
]  # fmt: skip


@pytest.mark.parametrize("ufunc", ONE + TWO, ids=lambda u: u.__name__)
def test_numpy_ufuncs_are_differentiable(ufunc):
    points = [np.array([[0.2, 0.4], [0.6, 0.8]]), np.array([[0.5, 0.3], [0.9, 0.7]])][: ufunc.nin]
    leaves = [leaf(p) for p in points]
    out = ufunc(*leaves)
    np.testing.assert_allclose(out.detach().numpy(), ufunc(*points), rtol=1e-15)
    assert pb.gradcheck(ufunc, *points).ok
    mixed = ufunc(*points[:-1], leaves[-1])
    assert mixed.requires_grad


@pytest.mark.parametrize(
    "ufunc", [np.isnan, np.isfinite, np.logical_not, np.greater, np.equal, np.logical_and], ids=lambda u: u.__name__
)
def test_numpy_predicates_answer_untracked_booleans(ufunc):
    x = leaf([0.0, np.nan])
    out = ufunc(*[x] * ufunc.nin)
    assert (type(out), out.dtype, out.requires_grad) == (pb.Tensor, np.bool_, False)


UNKNOWN = {
    "at into an array": lambda x: np.add.at(np.zeros(2), [0], x),
    "out": lambda x: np.sin(x, out=np.empty(2)),
    "out of a function": lambda x: np.sum(x, out=np.empty(())),
    "where without out": lambda x: np.sin(x, where=np.array([True, False])),
    "array += tensor": lambda x: operator.iadd(np.ones(2), x),
    "a ufunc nobody knows": scipy.special.wrightomega,
    "np.packbits": lambda x: np.packbits(x > 0),
    "np.savetxt": lambda x: np.savetxt("never", x),
    "np.sort_complex": np.sort_complex,
    "np.lib.scimath.sqrt": np.lib.scimath.sqrt,
}


@pytest.mark.parametrize("call", UNKNOWN.values(), ids=UNKNOWN)
@pytest.mark.parametrize("tracked", [False, True])
def test_numpy_function_without_a_rule_raises_and_names_itself(call, tracked):
    with pytest.raises(errors.UnsupportedFunction, match=r"np\.[\w<].*no rule") as caught:
        call(pb.tensor([1.0, 2.0], requires_grad=tracked))
    assert isinstance(caught.value, TypeError)


@pytest.mark.parametrize("name", ["sum", "mean", "max", "concatenate", "where", "reshape", "exp"])
def test_numpy_function_that_has_an_op_never_drops_a_gradient(name):
    x = leaf([1.0, 2.0])
    calls = {
        "concatenate": lambda: np.concatenate([x, x]),
        "where": lambda: np.where(np.array([True, False]), x, x),
        "reshape": lambda: np.reshape(x, (2, 1)),
    }
    try:
        out = calls.get(name, lambda: getattr(np, name)(x))()
    except errors.UnsupportedFunction as error:
        assert name in str(error)  # noqa: PT017 - refusing is as good as knowing
    else:
        assert type(out) is pb.Tensor
        assert out.requires_grad


def test_dlpack_never_hands_out_memory_that_can_be_written():
    torch = pytest.importorskip("torch")
    x = pb.tensor([1.0, 2.0])
    theirs = torch.from_dlpack(x)
    theirs += 1.0
    assert x.tolist() == [1.0, 2.0]
    ours = pb.from_dlpack(theirs)
    theirs += 1.0
    assert ours.tolist() == [2.0, 3.0]
    shared = pb.from_dlpack(torch.ones(2), copy=False)
    assert (shared.dtype, shared.tolist()) == (np.float32, [1.0, 1.0])
    with pytest.raises(errors.ConversionError, match="detach"):
        torch.from_dlpack(leaf([1.0]))


def test_dlpack_says_where_it_lives():
    assert pb.ones(2).__dlpack_device__() == np.ones(2).__dlpack_device__()
    x = pb.ones(2)
    assert pb.from_dlpack(x) is x
    assert pb.from_dlpack(x, copy=True) is not x


@pytest.mark.parametrize(
    "data",
    [
        ["a"],
        None,
        object(),
        "text",
        np.array(["x"]),
        np.array([None]),
        [[1.0], [1.0, 2.0]],
        np.array(["2020-01-01"], "M8[D]"),
    ],
)
def test_tensors_hold_numbers_only(data):
    with pytest.raises(errors.DtypeError):
        pb.tensor(data)


def test_masked_arrays_are_refused_rather_than_unmasked():
    masked = np.ma.array([1.0, 2.0], mask=[True, False])
    for use in (pb.tensor, lambda m: pb.ones(2) * m, lambda m: pb.exp(m)):
        with pytest.raises(errors.DtypeError, match="masked"):
            use(masked)


def test_length_iteration_and_membership_are_an_arrays():
    x = leaf([[1.0, 2.0], [3.0, 4.0]])
    assert len(x) == 2
    first, second = x
    pb.sum(first * second).backward()
    assert x.grad.tolist() == [[3.0, 4.0], [1.0, 2.0]]
    for use in (len, iter):
        with pytest.raises(TypeError if use is len else (TypeError, IndexError)):
            use(pb.tensor(1.0))
    assert x.T.shape == x.mT.shape == (2, 2)


def test_plain_arrays_in_plain_arrays_out():
    a = np.array([1.0, 2.0])
    for out in (pb.sin(a), pb.sum(a), a + pb.exp(a), pb.where(a > 1, a, 0), pb.einsum("i,i->", a, a), pb.softmax(a)):
        assert type(out) is np.ndarray
    assert type(pb.sin(pb.tensor(a))) is pb.Tensor
    assert type(pb.add(a, pb.tensor(a))) is pb.Tensor
