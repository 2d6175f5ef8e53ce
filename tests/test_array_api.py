"""The package as an array API namespace, version 2025.12: every name, every parameter, and programs written to it."""

import inspect
import operator

import numpy as np
import pytest
from array_api_names import ARRAY, CONSTANTS, FUNCTIONS

import pullback as pb
from pullback import errors

SIGNATURES = {line.partition("(")[0]: line.partition("(")[2][:-1] for line in FUNCTIONS.strip().splitlines()}
#: Names that other modules bring; the list must shrink, never grow.
ELSEWHERE = tuple(name for name in ("linalg", "fft") if not hasattr(pb, name))


def found(name):
    at = pb
    for part in name.split("."):
        at = getattr(at, part, None)
    return at


def parameters(name):
    """The names of a function's parameters, and which of them may be given by keyword."""
    scope = {}
    exec(f"def f({SIGNATURES[name]}): pass", scope)
    return inspect.signature(scope["f"]).parameters


def test_nothing_is_missing():
    missing = [n for n in SIGNATURES if found(n) is None and not n.startswith(ELSEWHERE)]
    missing += [n for n in CONSTANTS.split() if not hasattr(pb, n)]
    assert missing == []
    assert [n for n in ARRAY.split() if not hasattr(pb.Tensor, n)] == []


@pytest.mark.parametrize("name", [n for n in SIGNATURES if found(n) is not None])
def test_parameters_are_the_standards(name):
    function = found(name)
    try:
        mine = inspect.signature(function).parameters
    except ValueError:
        pytest.skip("a class of a library")
    if any(p.kind is p.VAR_KEYWORD for p in mine.values()):
        return
    for parameter in parameters(name).values():
        if parameter.kind is parameter.KEYWORD_ONLY:
            assert parameter.name in mine, parameter.name
    positional = [p for p in parameters(name).values() if p.kind is p.POSITIONAL_ONLY]
    takes = [p for p in mine.values() if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)]
    assert len(takes) >= len(positional) or any(p.kind is p.VAR_POSITIONAL for p in mine.values())


def test_the_namespace_says_what_it_is():
    x = pb.ones(2)
    assert x.__array_namespace__() is pb
    assert x.__array_namespace__(api_version="2025.12") is pb
    with pytest.raises(errors.ArgumentError, match="1999"):
        x.__array_namespace__(api_version="1999.01")
    assert pb.__array_api_version__ == "2025.12"
    info = pb.__array_namespace_info__()
    assert info.capabilities()["boolean indexing"]
    assert (info.default_device(), info.devices()[0]) == ("cpu", "cpu")
    assert info.default_dtypes()["real floating"] == pb.float64
    assert set(info.dtypes(kind="bool")) == {"bool"}
    assert set(info.dtypes(kind=("signed integer", "real floating"))) == {
        "int8", "int16", "int32", "int64", "float32", "float64",
    }  # fmt: skip
    assert len(info.dtypes()) == 13
    for wrong in (lambda: info.dtypes(kind="text"), lambda: info.dtypes(device="tape")):
        with pytest.raises(ValueError, match="there is no"):
            wrong()


def test_dtype_functions():
    x = pb.tensor([1.0], dtype=pb.float32)
    assert pb.finfo(pb.float32).eps == pb.finfo(x).eps == np.finfo(np.float32).eps
    assert type(pb.finfo(x).max) is float
    assert pb.finfo(pb.complex64).dtype == pb.float32
    assert (pb.iinfo(pb.int16).max, pb.iinfo(pb.tensor([1])).bits) == (32767, 64)
    assert pb.isdtype(pb.int8, "integral")
    assert pb.isdtype(pb.int8, ("bool", pb.int8))
    assert not pb.isdtype(pb.float32, "complex floating")
    assert pb.result_type(x, 1.0) == pb.float32
    assert pb.result_type(x, pb.float64) == pb.float64
    assert pb.result_type(pb.tensor([1]), 2.5) == pb.float64
    assert pb.can_cast(x, pb.float64)
    assert pb.broadcast_shapes((3, 1), (2,)) == (3, 2)
    for wrong in (lambda: pb.finfo(pb.int8), lambda: pb.iinfo(pb.float32), lambda: pb.isdtype(pb.int8, "word")):
        with pytest.raises(errors.ArgumentError):
            wrong()
    with pytest.raises(errors.ShapeError, match="broadcast"):
        pb.broadcast_shapes((3,), (2,))


def test_bfloat16_is_a_real_floating_dtype():
    pytest.importorskip("ml_dtypes")
    assert pb.isdtype(pb.bfloat16, "real floating")
    assert pb.tensor([1.0], dtype=pb.dtypes.bfloat16).dtype == pb.dtypes.bfloat16 == pb.bfloat16
    assert pb.dtypes.float8_e4m3fn == pb.float8_e4m3fn
    with pytest.raises(AttributeError, match="bfloat17"):
        _ = pb.dtypes.bfloat17
    assert not pb.isdtype(pb.bfloat16, "integral")
    assert pb.finfo(pb.bfloat16).bits == 16


@pytest.mark.parametrize("make", [pb.zeros, pb.ones, pb.empty])
def test_creation_takes_dtype_and_device(make):
    assert make((2, 3), dtype=pb.int8, device="cpu").dtype == pb.int8
    assert make(3).dtype == pb.float64
    with pytest.raises(errors.DeviceError, match="moon"):
        make(3, device="moon")


def test_more_creation():
    x = pb.ones(2, dtype=pb.float32)
    for like in (pb.zeros_like, pb.ones_like, pb.empty_like):
        assert (like(x).dtype, like(x, dtype=pb.int8, device="cpu").dtype) == (pb.float32, pb.int8)
    assert pb.full(2, 1, device="cpu").dtype == pb.int64
    assert pb.eye(2, 3, k=1, device="cpu").tolist() == [[0, 1, 0], [0, 0, 1]]
    assert pb.arange(4, device="cpu").tolist() == [0, 1, 2, 3]
    assert pb.linspace(0.0, 1.0, 3, device="cpu", endpoint=True).tolist() == [0.0, 0.5, 1.0]
    assert pb.asarray(x, device="cpu") is x
    assert pb.from_dlpack(np.ones(2), device="cpu").tolist() == [1.0, 1.0]
    assert x.to_device("cpu") is x
    with pytest.raises(errors.DeviceError):
        x.to_device("moon")
    with pytest.raises(errors.DeviceError):
        pb.astype(x, pb.float64, device="moon")


def program(x):
    """Written to the standard alone, as a library would."""
    xp = x.__array_namespace__()
    y = xp.permute_dims(xp.reshape(x, (2, -1)), (1, 0))
    z = xp.concat([y, xp.flip(y, axis=0)], axis=1)
    w = xp.where(z > 0, xp.hypot(z, xp.asarray(1.0, dtype=z.dtype)), xp.expm1(z))
    out = xp.sum(w**2, axis=0) / xp.mean(xp.abs(w)) + xp.max(w, axis=0, keepdims=False)
    table = xp.cumulative_sum(xp.stack([out, xp.sign(out) * out], axis=1), axis=1, include_initial=True)
    return xp.sum(xp.take(table, xp.asarray([0, 2, 2]), axis=1) @ xp.ones((3,), dtype=z.dtype) % 3.7)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_a_program_of_the_standard_is_differentiable(dtype):
    x = np.random.default_rng(3).normal(size=6).astype(dtype)
    value = program(pb.tensor(x))
    assert (value.dtype, value.shape) == (np.dtype(dtype), ())
    if dtype == "float64":
        np.testing.assert_allclose(value.item(), program(x), rtol=1e-14)
        assert pb.gradcheck(lambda t: program(pb.tensor(t) if isinstance(t, np.ndarray) else t), x).ok


IN_PLACE = {
    "+=": operator.iadd, "-=": operator.isub, "*=": operator.imul, "/=": operator.itruediv, "//=": operator.ifloordiv,
    "%=": operator.imod, "**=": operator.ipow,
}  # fmt: skip
BITS = {
    "&": operator.and_, "|": operator.or_, "^": operator.xor, "<<": operator.lshift, ">>": operator.rshift,
    "&=": operator.iand, "|=": operator.ior, "^=": operator.ixor, "<<=": operator.ilshift, ">>=": operator.irshift,
    "//": operator.floordiv, "%": operator.mod,
}  # fmt: skip


@pytest.mark.parametrize("symbol", IN_PLACE)
def test_in_place_operators_are_on_the_tape(symbol):
    x, other = np.array([2.3, -1.7]), np.array([1.1, 2.0])
    wanted = IN_PLACE[symbol](x.copy(), other)
    np.testing.assert_allclose(IN_PLACE[symbol](pb.tensor(x), other).numpy(), wanted, rtol=1e-15)

    def f(t):
        y = t * 1.0
        return pb.sum(IN_PLACE[symbol](pb.tensor(y) if isinstance(y, np.ndarray) else y, other))

    assert pb.gradcheck(f, np.abs(x)).ok


@pytest.mark.parametrize("symbol", BITS)
@pytest.mark.parametrize("other", [np.array([1, 3]), 2])
def test_integer_operators_are_numpys(symbol, other):
    x = np.array([5, 12])
    f = BITS[symbol]
    assert f(pb.tensor(x), other).tolist() == f(x.copy(), other).tolist()
    if "=" not in symbol:
        assert f(other, pb.tensor(x)).tolist() == f(other, x).tolist()


def test_unique_isin_and_searchsorted_answer_tensors_or_arrays_as_they_are_asked():
    x = np.array([3.0, 1.0, 3.0])
    assert pb.isin(x, [3.0]).tolist() == pb.isin(pb.tensor(x), pb.tensor([3.0])).tolist() == [True, False, True]
    assert pb.isin(pb.tensor(x), pb.tensor([3.0]), invert=True).tolist() == [False, True, False]
    assert type(pb.isin(x, [3.0])) is np.ndarray
    leaf = pb.tensor(x, requires_grad=True)
    pb.sum(pb.unique_values(leaf) * np.array([2.0, 5.0])).backward()
    assert leaf.grad.tolist() == [5.0, 2.0, 0.0]
