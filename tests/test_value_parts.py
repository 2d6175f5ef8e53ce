"""Every wrapper of a transform says what it is made of, and can be made again of the same or of other parts."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

import pullback as pb
from pullback.arrays.convertible import ConvertibleValue
from pullback.arrays.spec import spec_of
from pullback.arrays.tensor import Tensor
from pullback.arrays.trees import flatten
from pullback.arrays.value import SymbolicValue, Value, unwrap_array
from pullback.errors import GraphError
from pullback.graph.builder_lines import GraphValue
from pullback.ops.remember import _Probe
from pullback.program.ir import Symbol
from pullback.transforms.custom.rules import UnknownTangent
from pullback.transforms.forward import Dual
from pullback.transforms.linear_functions import LinearVariable
from pullback.transforms.sized_values import SizedValue
from pullback.transforms.sparse.pattern import TracedValue
from pullback.transforms.taylor.series import Series
from pullback.transforms.vectorize import Batched

POINT = np.array([1.0, 2.0, 3.0])
SPEC = spec_of(POINT)


def _build(f: Callable[[Any], Any]) -> None:
    f(pb.Graph().placeholder("x", (3,)))


#: A transform that runs a function on a value of each class, directly or inside a tensor.
TRANSFORMS: dict[type[Value], Callable[[Callable[[Any], Any]], Any]] = {
    Tensor: lambda f: f(pb.tensor(POINT, requires_grad=True) * 2.0),
    Dual: lambda f: pb.jvp(f, (POINT,), (POINT + 1,)),
    Batched: lambda f: pb.vmap(f)(np.outer(POINT, POINT)),
    Series: lambda f: pb.jet(f, (POINT,), ((POINT, POINT * POINT),)),
    TracedValue: lambda f: pb.sparsity(f, POINT),
    LinearVariable: lambda f: pb.linear_transpose(f, POINT)(POINT),
    Symbol: lambda f: pb.jit(f)(POINT),
    GraphValue: _build,
    SizedValue: lambda f: pb.memory.predict(f, POINT),
    UnknownTangent: lambda f: f(UnknownTangent(SPEC, GraphError("unknown"))),
}


def _concrete_subclasses(kind: type[Value]) -> set[type[Value]]:
    below = {k for child in kind.__subclasses__() for k in _concrete_subclasses(child)}
    return below if kind in (Value, SymbolicValue, ConvertibleValue) else {kind, *below}


def _innermost(x: Any, kind: type[Value]) -> Any:
    while type(x) is not kind:
        (x,) = x.parts()
    return x


def test_every_class_of_values_is_covered() -> None:
    found = {k for k in _concrete_subclasses(Value) if k.__module__.startswith("pullback.")}
    assert found - {_Probe} == TRANSFORMS.keys()  # which only asks a public function what op it calls


@pytest.mark.parametrize("kind", TRANSFORMS, ids=lambda kind: kind.__name__)
def test_a_value_made_again_of_its_parts_is_the_same_value(kind: type[Value]) -> None:
    seen = []

    def look(given: Any) -> Any:
        x = _innermost(given, kind)
        twin = x.with_parts(*x.parts())
        assert type(twin) is kind
        assert twin.spec is x.spec
        assert (twin.level, twin.is_tracked, twin.scope) == (x.level, x.is_tracked, x.scope)
        assert all(a is b for a, b in zip(twin.parts(), x.parts(), strict=True))
        assert (x.parts() == ()) == issubclass(kind, SymbolicValue)
        assert (twin is x) == issubclass(kind, SymbolicValue)
        array = unwrap_array(given)
        assert array is None if issubclass(kind, SymbolicValue) else isinstance(array, np.ndarray)
        seen.append(kind)
        return given

    TRANSFORMS[kind](look)
    assert seen


@pytest.mark.parametrize(
    "transform",
    [
        lambda f: pb.grad(lambda x: pb.sum(f(x) * x))(POINT),
        lambda f: pb.jvp(f, (POINT,), (POINT + 1,)),
        lambda f: pb.vmap(f)(np.outer(POINT, POINT)),
        lambda f: pb.jet(f, (POINT,), ((POINT, POINT * POINT),)),
        lambda f: pb.sparsity(f, POINT).toarray(),
        lambda f: pb.jit(f)(POINT),
        lambda f: pb.vmap(pb.grad(lambda x: pb.sum(pb.jvp(f, (x,), (x,))[1])))(np.outer(POINT, POINT)),
    ],
)
def test_derivatives_pass_through_a_value_made_again(transform: Callable[..., Any]) -> None:
    def rebuilt(x: Any) -> Any:
        return x.with_parts(*(rebuilt(p) if isinstance(p, Value) else p for p in x.parts()))

    found, wanted = (transform(lambda x, g=g: pb.sin(g(x)) * x) for g in (rebuilt, lambda x: x))
    for a, b in zip(flatten(found)[0], flatten(wanted)[0], strict=True):
        np.testing.assert_array_equal(a, b)


def test_other_parts_give_another_value_of_the_same_transform() -> None:
    def f(x: Any) -> Any:
        return x.with_parts(*(2.0 * p for p in x.parts()))

    value, tangent = pb.jvp(f, (POINT,), (POINT + 1,))
    np.testing.assert_array_equal(value, 2 * POINT)
    np.testing.assert_array_equal(tangent, 2 * (POINT + 1))


def test_a_checkpoint_rebuilds_a_dual_that_its_function_rebinds() -> None:
    def body(y: Any, w: Any) -> Any:
        y += 1.0
        return pb.sum(pb.sin(y) * w * w)

    def slopes(call: Callable[..., Any]) -> Any:
        return pb.jvp(lambda x: pb.grad(lambda w: call(x, w))(POINT), (POINT,), (np.ones(3),))

    np.testing.assert_array_equal(slopes(pb.checkpoint(body)), slopes(body))


def test_a_variable_knows_the_call_that_differentiates_it() -> None:
    calls = []

    def f(x: Any) -> Any:
        calls.append(x.node.variable_of)
        assert calls[-1].running
        assert x.node.is_owned_leaf
        return pb.sum(x * x)

    pb.grad(f)(POINT)
    assert not calls[0].running
    assert pb.tensor(POINT, requires_grad=True).node.variable_of is None  # type: ignore[union-attr]
