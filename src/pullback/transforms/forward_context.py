"""`ForwardContext`: forward mode in plain code, without a function around it."""

from __future__ import annotations

from typing import Any

from ..arrays.backends import is_array
from ..arrays.protect import as_immutable
from ..arrays.scope import Scope
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.value import Value
from ..errors import ArgumentError, GraphError, ShapeError
from ..ops.shape.arrange import stack
from .boundary import as_array_leaf, as_differentiable, unwrap_to_level
from .forward import Dual, check_tangent, forward_scope
from .vectorize import Batched, batch_scope


class ForwardContext:
    """Forward mode in plain code: values made by `dual` carry their derivative along, through every op.

    Several directions at once are given by `tangents=`, one after the other along the first axis, the same number for
    all duals of a context. Contexts nest, and a dual may be made of a dual of another context. After the `with` block
    results can still be read, but no op accepts them.

    >>> import pullback as pb
    >>> with pb.ForwardContext() as context:
    ...     x = context.dual(2.0, 1.0)
    ...     z = pb.sin(x) * x
    >>> z.primal, z.tangent
    (array(1.81859485), array(0.07700375))
    >>> with pb.ForwardContext() as context:
    ...     x = context.dual([3.0, 4.0], tangents=[[1.0, 0.0], [0.0, 1.0]])
    ...     y = pb.sum(x * x)
    >>> y.tangents
    array([6., 8.])
    """

    __slots__ = ("_directions", "_scope", "_single")

    def __init__(self) -> None:
        # Its size is that of the first dual with several directions.
        self._directions = batch_scope(0)
        self._scope: Scope | None = None
        self._single = False

    def __enter__(self) -> ForwardContext:
        if self._scope is not None:
            raise ArgumentError("ForwardContext: a context is entered once; make another one.")
        self._directions = batch_scope(0)  # first, since tangents are values of the level below the duals'
        self._scope = forward_scope("ForwardContext", self._directions)
        self._scope.__enter__()
        return self

    def __exit__(self, *exception: object) -> None:
        self._require_running("exit").__exit__(*exception)

    def _require_running(self, what: str) -> Scope:
        if self._scope is None:
            raise ArgumentError(f"{what}: enter the context first: with pb.ForwardContext() as context: ...")
        self._scope.check()
        return self._scope

    def dual(self, primal: Any, tangent: Any = None, *, tangents: Any = None) -> Dual:
        """A value and its tangent; without one, a constant. `tangents` gives several directions, first axis first."""
        scope = self._require_running("dual")
        if tangent is not None and tangents is not None:
            raise ArgumentError("dual: give a tangent or several tangents, not both.")
        x = self._lower_value(as_differentiable(primal, "dual"), scope)
        if tangents is not None:
            return Dual(x, self._make_tangents(x, tangents), scope)
        if tangent is None:
            return Dual(x, None, scope)
        if self._directions.size:
            raise ArgumentError(f"dual: duals of this context have {self._directions.size} directions; give tangents=.")
        self._single = True
        return Dual(x, check_tangent(x, self._lower_value(tangent, scope), "dual"), scope)

    def _lower_value(self, x: Any, scope: Scope) -> Any:
        """A value of a lower level than the duals of this context, made immutable."""
        if is_array(x):
            return as_immutable(x)
        if isinstance(x, Dual) and x.scope is scope:
            raise ArgumentError("dual: this is a dual of this context already.")
        # Duals hold lower values only: a leaf above them would see none of their tangents.
        if isinstance(x, Tensor) and x.node is not None and x.level > scope.level:
            raise GraphError(
                "dual: a leaf that was made inside the context lies above its duals.\n"
                "  Make the leaf before entering the context."
            )
        return unwrap_to_level(x, scope) if isinstance(x, Value) else x

    def _make_tangents(self, x: Any, tangents: Any) -> Batched:
        rows = [as_array_leaf(t, "dual") for t in tangents] if isinstance(tangents, (list, tuple)) else None
        given = as_array_leaf(tangents, "dual") if rows is None else stack(rows)
        shape = spec_of(given).shape
        if self._single:
            raise ArgumentError("dual: other duals of this context have one direction; give a tangent.")
        if len(shape) == 0 or shape[0] == 0 or shape[1:] != spec_of(x).shape:
            raise ShapeError(
                f"dual: tangents have shape {shape}, wanted (directions, *{spec_of(x).shape}): one after the other "
                "along the first axis."
            )
        if self._directions.size not in (0, shape[0]):
            raise ShapeError(f"dual: {shape[0]} directions, other duals of this context have {self._directions.size}.")
        self._directions.size = shape[0]
        given = as_immutable(given) if is_array(given) else given
        return check_tangent(x, Batched(given, 0, self._directions), "dual")  # type: ignore[no-any-return]
