"""`Function`: a class with `forward`, `backward` and `jvp` as an op, as in PyTorch."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, NamedTuple

import numpy as np

from ...arrays.backends import is_array
from ...arrays.spec import Spec, spec_of, zeros
from ...arrays.tensor import Tensor, value_of, wrap
from ...arrays.trees import flatten, unflatten
from ...arrays.value import Value
from ...errors import ArgumentError, GraphError
from ...ops.dispatch import apply, as_value
from ...ops.elementwise.pointwise import stop_gradient
from ...ops.op import Formula, Op
from .rules import CALL_PARAMETER, UnknownTangent, as_bare_results, check_autocast, make_custom_record


class FunctionContext:
    """What `forward` saves for `backward` and `jvp`: tensors by `save_for_backward`, anything as an attribute.

    A saved input or result carries its history, so that derivatives of every order are right. Any other array is an
    intermediate whose own derivative is unknown: a second derivative that needs it raises, unless it was saved with
    `save_constant`, which states that it does not depend on the inputs.
    """

    def __init__(self) -> None:
        self._saved: list[tuple[Any, bool]] = []
        self.saved_tensors: tuple[Any, ...] = ()
        self.needs_input_grad: tuple[bool, ...] = ()

    def save_for_backward(self, *tensors: Any) -> None:
        """Save inputs, results or intermediates for the rules."""
        self._saved += [(_current_value(t), False) for t in tensors]

    def save_constant(self, *tensors: Any) -> None:
        """Save values that do not depend on the inputs, such as a random mask."""
        self._saved += [(_current_value(t), True) for t in tensors]


def _current_value(x: Any) -> Any:
    """The value that a variable has now; a tracked one is returned as it is, to be refused."""
    return value_of(x) if isinstance(x, Tensor) and x.node is None else x


_CONTEXT_FIELDS = frozenset(vars(FunctionContext()))


class Function:
    """The abstract parent of a custom op in class form: static methods `forward(ctx, *args)` and one or both of
    `backward(ctx, *bars)` and `jvp(ctx, *tangents)`; the missing one is derived. Call it by `apply`. The class
    attribute `autocast` is what `pb.custom_op` calls so.

    >>> import numpy as np, pullback as pb
    >>> class Exp(pb.Function):
    ...     @staticmethod
    ...     def forward(ctx, x):
    ...         y = pb.exp(x)
    ...         ctx.save_for_backward(y)
    ...         return y
    ...     @staticmethod
    ...     def backward(ctx, bar):
    ...         (y,) = ctx.saved_tensors
    ...         return bar * y
    >>> pb.grad(pb.grad(Exp.apply))(0.0), pb.jvp(Exp.apply, (0.0,), (2.0,))
    (array(1.), (array(1.), array(2.)))
    """

    autocast: ClassVar[str] = "promote"

    @staticmethod
    def forward(ctx: FunctionContext, *args: Any) -> Any:
        """The value; arrays come as tensors without history, anything else as it was given."""
        raise NotImplementedError

    @classmethod
    def apply(cls, *args: Any) -> Any:
        """Run the function as an op."""
        call = _FunctionCall(cls, args)
        out = apply(_op_record(cls), *call.arrays(args), **{CALL_PARAMETER: call})
        results = out[: call.results] if type(out) is tuple else (out,)
        return results if call.layout.has_several else results[0]


def _op_record(kind: type[Function]) -> Op:
    """The record of a class, made once; what belongs to one call travels as a static parameter."""
    found: Op | None = vars(kind).get("_op")
    if found is None:
        backward, jvp = getattr(kind, "backward", None), getattr(kind, "jvp", None)
        pull = _attribute_to_method(backward, _FunctionCall.backward) if backward is not None else None
        push = _attribute_to_method(jvp, _FunctionCall.jvp) if jvp is not None else None
        found = make_custom_record(
            kind.__name__,
            ("*xs",),
            lambda xp, *xs, **static: static[CALL_PARAMETER].forward(xs),
            pull and Formula(pull, ("bar", "out", "xs", CALL_PARAMETER)),
            push and Formula(push, ("tangents", "out", "xs", CALL_PARAMETER)),
            None,
            None,
        )
        found = replace(found, autocast=check_autocast(kind.autocast, f"{kind.__name__}.autocast"))
        kind._op = found  # type: ignore[attr-defined]
    return found


class _SavedPlace(NamedTuple):
    """Where a rule finds a value that `forward` saved: among inputs, results, or results that the user does not see."""

    where: str
    number: int


class _Layout(NamedTuple):
    """What `forward` made: its own results, and where each value it saved is found."""

    results: int
    has_several: bool
    saved: list[_SavedPlace]
    #: By name, the structure of an attribute of the context and its leaves, arrays replaced by their places.
    attributes: dict[str, Any]

    def agrees_with(self, other: _Layout) -> bool:
        return self[:3] == other[:3] and _is_same_context(self.attributes, other.attributes)

    def constants(self) -> set[int]:
        """The results that were saved as constants."""
        return {place.number for place in self.saved if place.where == "constant"}


class _FunctionCall:
    """One call: which arguments are arrays, and after `forward` has run, where each saved value is found."""

    def __init__(self, kind: type[Function], args: tuple[Any, ...]) -> None:
        self.kind = kind
        self.name = kind.__name__
        self.places = [i for i, x in enumerate(args) if _is_arraylike(x)]
        if not self.places:
            raise ArgumentError(f"{self.name}.apply: no argument is an array or a floating-point number.")
        self.given = [None if i in self.places else x for i, x in enumerate(args)]  # arrays are saved by the op
        self._layout: _Layout | None = None

    @property
    def layout(self) -> _Layout:
        assert self._layout is not None
        return self._layout

    @property
    def results(self) -> int:
        return self.layout.results

    def arrays(self, args: tuple[Any, ...]) -> list[Any]:
        """The arguments of the op."""
        return [as_value(args[i]) for i in self.places]

    def forward(self, xs: tuple[Any, ...]) -> Any:
        """Run the user's forward on bare arrays, and record where each saved value is."""
        ctx = FunctionContext()
        # Tensors without history: their methods are there, and nothing that forward does is recorded.
        arrays = [x if is_array(x) else np.asarray(x) for x in xs]
        try:
            found = self.kind.forward(ctx, *self._filled([wrap(x, spec_of(x)) for x in arrays]))
        except Exception as error:
            error.add_note(f"  in {self.name}.forward")
            raise
        outs = tuple(found) if isinstance(found, (tuple, list)) else (found,)
        known = [(x, _SavedPlace("input", i)) for i, x in enumerate(arrays)]
        known += [(_current_value(x), _SavedPlace("result", i)) for i, x in enumerate(outs)]
        extras: list[Any] = []

        def place(x: Any, constant: bool = False) -> _SavedPlace:
            """Inputs and results are found as such; other arrays become further results of the op."""
            # By identity: an equal array may be another value, with a derivative of its own.
            for value, where in known:
                if x is value:
                    return where
            extras.append(x)
            return _SavedPlace("constant" if constant else "intermediate", len(outs) + len(extras) - 1)

        saved = [place(x, constant) for x, constant in ctx._saved]
        attributes = {name: _place_leaves(x, place) for name, x in vars(ctx).items() if name not in _CONTEXT_FIELDS}
        self._note(_Layout(len(outs), isinstance(found, (tuple, list)), saved, attributes))
        bare = as_bare_results((*outs, *extras), self.name)
        return bare if len(bare) > 1 else bare[0]

    def _note(self, layout: _Layout) -> None:
        """What is saved where; a vmap runs forward for each element, and they must agree."""
        # One layout serves all elements: the rules run once on the whole batch.
        if self._layout is not None and not self._layout.agrees_with(layout):
            raise GraphError(
                f"{self.name}: what forward saves, or a number it keeps as an attribute of the context, differs by "
                "element of a vmap.\n  Keep arrays, by ctx.save_for_backward, and the same ones for every element."
            )
        self._layout = layout

    def _filled(self, arrays: Sequence[Any]) -> list[Any]:
        args = list(self.given)
        for i, x in zip(self.places, arrays, strict=True):
            args[i] = x
        return args

    def _make_context(self, bars: Sequence[Any], out: Any, xs: Any) -> tuple[FunctionContext, list[Any]]:
        """The context as a rule sees it, saved values in terms of what the rule was given; and bars or tangents."""
        outs = out if type(out) is tuple else (out,)
        found = {"input": xs, "result": outs, "intermediate": outs, "constant": [stop_gradient(x) for x in outs]}
        # In terms of what the rule was given, so that a derivative of the rule sees inputs and results.
        as_tensors = _choose_wrapper([*bars, *outs, *xs])
        ctx = FunctionContext()
        floats = {i for i, x in zip(self.places, xs, strict=True) if spec_of(x).inexact}
        ctx.needs_input_grad = tuple(i in floats for i in range(len(self.given)))
        ctx.saved_tensors = tuple(as_tensors(found[where][i]) for where, i in self.layout.saved)
        for name, (structure, leaves) in self.layout.attributes.items():
            values = [as_tensors(found[x.where][x.number]) if type(x) is _SavedPlace else x for x in leaves]
            setattr(ctx, name, unflatten(structure, values))
        return ctx, [as_tensors(b) for b in bars]

    def backward(self, bar: Any, out: Any, xs: Any) -> Any:
        """The cotangents of the arrays, by the user's backward."""
        bars = bar if type(bar) is tuple else (bar,)
        self.refuse_spare_cotangents(bars)
        filled = [zeros(b) if isinstance(b, Spec) else b for b in bars[: self.results]]
        ctx, given = self._make_context(filled, out, xs)
        found = self.kind.backward(ctx, *given)  # type: ignore[attr-defined]
        shares = found if isinstance(found, (tuple, list)) else (found,)
        if len(shares) != len(self.given):
            raise ArgumentError(
                f"{self.name}: backward returned {len(shares)} cotangents for {len(self.given)} arguments."
            )
        for i, share in enumerate(shares):
            if share is not None and i not in self.places:
                raise ArgumentError(f"{self.name}: backward returned a cotangent for argument {i}, which is no array.")
        return [shares[i] for i in self.places]

    def jvp(self, tangents: Any, out: Any, xs: Any) -> Any:
        """The tangents of the results, by the user's jvp."""
        along = dict(zip(self.places, tangents, strict=True))
        ctx, moving = self._make_context(list(along.values()), out, xs)
        given = dict(zip(along, moving, strict=True))
        found = self.kind.jvp(ctx, *(given.get(i) for i in range(len(self.given))))  # type: ignore[attr-defined]
        outs = list(found) if isinstance(found, (tuple, list)) else [found]
        if len(outs) != self.results:
            raise ArgumentError(f"{self.name}: jvp returned {len(outs)} tangents for {self.results} results.")
        return (*outs, *self.spare_tangents(out)) if type(out) is tuple else outs[0]

    def refuse_spare_cotangents(self, bars: Sequence[Any]) -> None:
        """Raise if a value that was saved but not returned has a cotangent; that of a constant is dropped."""
        constants = self.layout.constants()
        # A spec stands for a missing cotangent.
        for i, bar in enumerate(bars[self.results :], self.results):
            if i not in constants and not isinstance(bar, Spec):
                raise self._unknown_derivative_error()

    def spare_tangents(self, out: tuple[Any, ...]) -> list[Any]:
        """The tangents of values that were saved but not returned: none for constants, else unknown."""
        constants = self.layout.constants()
        later = range(self.results, len(out))
        return [
            None if i in constants else UnknownTangent(spec_of(out[i]), self._unknown_derivative_error()) for i in later
        ]

    def _unknown_derivative_error(self) -> GraphError:
        return GraphError(
            f"{self.name}: this derivative needs that of a value which forward saved but did not return, which is "
            "unknown.\n  Save inputs and results and compute it again in the rule, or ctx.save_constant it if it does "
            "not depend on the inputs."
        )


def _place_leaves(value: Any, place: Callable[[Any], _SavedPlace]) -> tuple[Any, list[Any]]:
    """An attribute of the context: arrays in it are saved like any other."""
    leaves, structure = flatten(value)
    return structure, [place(_current_value(x)) if isinstance(x, Tensor) or is_array(x) else x for x in leaves]


def _attribute_to_method(method: Callable[..., Any], of_call: Callable[..., Any]) -> Callable[..., Any]:
    """A rule of the call, attributed to the method of the class in errors."""

    @functools.wraps(method)
    def rule(*values: Any) -> Any:
        *given, call = values
        return of_call(call, *given)

    return rule


def _is_arraylike(x: Any) -> bool:
    return isinstance(x, (Value, float, complex)) or (is_array(x) or isinstance(x, np.generic))


def _is_same_context(mine: dict[str, Any], other: dict[str, Any]) -> bool:
    """Whether two elements saved the same: NaN equals NaN, and what cannot be compared equals only itself."""
    if mine.keys() != other.keys():
        return False
    for (shape, leaves), (other_shape, other_leaves) in ((mine[name], other[name]) for name in mine):
        if shape != other_shape or not all(map(_is_same_value, leaves, other_leaves)):
            return False
    return True


def _is_same_value(a: Any, b: Any) -> bool:
    try:
        return a is b or bool(a == b) or bool(a != a and b != b)
    except Exception:  # objects without a usable equality
        return False


def _choose_wrapper(values: Sequence[Any]) -> Callable[[Any], Any]:
    """Arrays as tensors, so that their methods are there, where all that is computed with lies on the lowest tape;
    among values of transforms arrays stay arrays, lest a tensor comes out where none went in.
    """
    if any(isinstance(x, Value) and x.level > 1 for x in values):
        return lambda x: x
    return lambda x: wrap(x, spec_of(x)) if is_array(x) else x
