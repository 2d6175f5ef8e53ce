"""`GradientTape`: the engine's graph as an explicit tape.

Ops record themselves for whatever requires a gradient. A tape only decides which tensors do and for how long, so it
costs nothing per op, and nothing about it is ambient.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from types import CodeType
from typing import Any, Literal

from ...arrays.call_site import format_line, set_call_site, user_line
from ...arrays.node import Node
from ...arrays.scope import current_scope
from ...arrays.tensor import Tensor, tensor, wrap
from ...arrays.trees import flatten, unflatten
from ...errors import ArgumentError, GraphError
from ...public_names import explain_missing_attributes
from ...settings import modes, no_grad, override_modes
from ...tape.sweep import replay_decision
from .listing import format_table, live_steps
from .query import (
    LeafPlace,
    TapeQuery,
    check_one_batch,
    check_real,
    check_source,
    check_target,
    check_watchable,
    jacobian_rows,
    pull_to_sources,
    release_graph,
    seeds_of,
)
from .watch_marks import WatchMark, is_marked_by_others, mark_at

Unconnected = Literal["none", "zero"]

#: Derivatives that were returned without recording, as long as they live.
_unrecorded_gradients: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()


class GradientTape:
    """Records what is computed from the tensors it watches, and returns derivatives of it.

    `variable` makes a tensor that is watched for good; `watch` watches an existing one until the `with` block ends, or
    without a block until the first query. A tape can be queried once, unless it is `persistent`.

    >>> import pullback as pb
    >>> tape = pb.GradientTape()
    >>> x, w = tape.variable([2.0, 3.0]), tape.variable([1.0, 0.5])
    >>> gx, gw = tape.gradient(pb.sum(x * w), [x, w])
    >>> gx.tolist(), gw.tolist()
    ([1.0, 0.5], [2.0, 3.0])
    """

    def __init__(self, persistent: bool = False) -> None:
        self.persistent = persistent
        self._variables: dict[int, WatchMark] = {}
        self._watches: dict[int, WatchMark] = {}
        self._reference = weakref.ref(self)
        self._open, self._inside, self._consumed = True, False, False
        self._asked: tuple[CodeType, int] | None = None  # the line of the last query
        self._unrecorded: tuple[CodeType, int] | None = None  # and of one whose result was not recorded

    def __enter__(self) -> GradientTape:
        if self._inside:
            raise GraphError("GradientTape: this tape is recording already; a second `with` needs a second tape.")
        # A second `with` on a tape that was queried records anew.
        if self._consumed:
            self.reset()
        self._open = self._inside = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._open = self._inside = False
        self._remove_marks()

    def __del__(self) -> None:
        if hasattr(self, "_watches"):  # not if it was called with wrong arguments
            self._remove_marks()

    def _remove_marks(self) -> None:
        for mark in reversed(self._watches.values()):
            mark.remove_mark()

    def variable(self, data: Any, dtype: Any = None) -> Tensor:
        """A new tensor with a copy of the data, which the tape watches as long as both live.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable([1, 2], dtype=pb.float32)
        >>> tape.gradient(x * x, x)
        tensor([2., 4.], dtype=float32)
        """
        if isinstance(data, Tensor) and data.node is not None:
            scope = current_scope()
            if scope is None or data.level >= scope.level:
                raise GraphError(
                    "variable: the data is a tensor that is recorded already.\n"
                    "  Use tape.watch(x), or tape.variable(x.detach()) to start anew from its value."
                )
            data = scope.lift(scope, data)  # a constant of the transform, which outer tapes see through
        x = tensor(data, dtype=dtype, requires_grad=True)
        self._variables[id(x)] = WatchMark.for_variable(x, self._reference)
        return x

    def watch(self, tensors: Any) -> None:
        """Record what is computed from a tensor, or from a tree of them, from now on. What was computed from it before
        stays out. When the `with` block ends the tensor is again what it was.

        >>> import pullback as pb
        >>> x = pb.tensor(3.0)
        >>> with pb.GradientTape() as tape:
        ...     tape.watch(x)
        ...     y = x * x
        >>> tape.gradient(y, x).item(), x.requires_grad
        (6.0, False)
        """
        self._check_not_consumed("watch")
        if not self._open:
            raise GraphError("watch: the `with` block of this tape is over.\n  Watch inside of it, or start another.")
        leaves, structure = flatten(tensors)
        # All are checked before any is watched: a refused call changes nothing.
        for i, x in enumerate(leaves):
            check_watchable(x, LeafPlace("watch: x", structure, i))
        for x in leaves:
            known = self._mark_of(x)
            # A tensor that was rebound to a constant since is watched anew, in its new value.
            if known is None or not known.open or known.current_node() is None:
                if known is not None:
                    known.remove_mark()
                mark = self._watches[id(x)] = WatchMark.attach(x, self._reference)
                set_call_site(mark.node, sys._getframe(1))

    def _mark_of(self, x: Tensor) -> WatchMark | None:
        for marks in (self._watches, self._variables):
            mark = marks.get(id(x))
            if mark is not None and mark.tensor() is x:  # an id may be reused after its tensor died
                return mark
        return None

    def _marks(self) -> list[WatchMark]:
        return [*self._variables.values(), *self._watches.values()]

    @property
    def watched(self) -> tuple[Tensor, ...]:
        """The tensors that can be sources: variables of the tape and watched ones, as far as they live."""
        found = [mark.tensor() for mark in self._marks()]
        return tuple(x for x in found if x is not None)

    def stop_recording(self) -> override_modes:
        """Record nothing inside, on this or any other tape: a context manager, `pb.no_grad` by another name.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable(3.0)
        >>> with tape.stop_recording():
        ...     scale = x * x
        >>> tape.gradient(x * scale, x).item()
        9.0
        """
        return no_grad()

    def reset(self) -> None:
        """Forget all that was recorded and watched. Variables stay variables, with nothing computed from them yet.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable(3.0)
        >>> for _ in range(2):
        ...     print(tape.gradient(x * x, x).item())
        ...     tape.reset()
        6.0
        6.0
        """
        self._remove_marks()
        self._watches.clear()
        self._open, self._consumed, self._unrecorded = True, False, None
        renewed = {key: mark.renew() for key, mark in self._variables.items()}
        self._variables = {key: mark for key, mark in renewed.items() if mark is not None}

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, unconnected: Unconnected = "none"
    ) -> Any:
        """The gradient of the sum of all elements of the target with respect to each source, in the structure of the
        sources. Targets and sources are trees of tensors; a source may be any tensor on the way to a target.

        `output_gradients` looks like the target and weighs its elements. Where no path leads from the target to a
        source the result is None, or zeros with `unconnected="zero"`. What another tape watches is recorded there.

        >>> import pullback as pb
        >>> with pb.GradientTape() as outer:
        ...     x = outer.variable(2.0)
        ...     with pb.GradientTape() as inner:
        ...         y = x**3
        ...     first = inner.gradient(y, x)
        >>> first.item(), outer.gradient(first, x).item()
        (12.0, 12.0)
        """
        ask = self._make_query("gradient", target, sources, unconnected)
        seeds = seeds_of(ask, output_gradients)
        create_graph, retain = self._graph_needs([*ask.targets, *seeds])
        found = pull_to_sources(ask.targets, ask.twins, seeds, create_graph, retain)
        self._finish_query()
        return self._make_result(ask, found, create_graph)

    def jacobian(
        self, target: Any, sources: Any, unconnected: Unconnected = "none", *, chunk_size: int | None = None
    ) -> Any:
        """The derivative of each element of the target with respect to each element of each source: the shape of the
        target, then the source's. A tree of targets returns a tree of such results.

        All rows are pulled back at once, as one batch; in batches of `chunk_size` they take less memory.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable([2.0, 3.0])
        >>> tape.jacobian(pb.stack([x[0] ** 2, x[0] * x[1]]), x).tolist()
        [[4.0, 0.0], [3.0, 2.0]]
        """
        ask = self._make_query("jacobian", target, sources, unconnected)
        for i, y in enumerate(ask.targets):
            check_real(y, LeafPlace("jacobian: target", ask.shape, i))
        create_graph, retain = self._graph_needs(ask.targets)
        found = [jacobian_rows(y, ask.twins, create_graph, chunk_size) for y in ask.targets]
        self._finish_query(() if retain else ask.targets)
        pairs = zip(found, ask.targets, strict=True)
        return unflatten(ask.shape, [self._make_result(ask, rows, create_graph, y.shape) for rows, y in pairs])

    def batch_jacobian(
        self, target: Tensor, sources: Any, unconnected: Unconnected = "none", *, chunk_size: int | None = None
    ) -> Any:
        """The Jacobian of each example by itself: a target (b, *out) and a source (b, *in) give (b, *out, *in).

        It relies on example i of the target depending on example i of the sources alone. If it depends on others too,
        as with batch statistics, the result adds those dependences up; use `jacobian` then.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable([[1.0, 2.0], [3.0, 4.0]])
        >>> tape.batch_jacobian(x * x, x).tolist()
        [[[2.0, 0.0], [0.0, 4.0]], [[6.0, 0.0], [0.0, 8.0]]]
        """
        ask = self._make_query("batch_jacobian", target, sources, unconnected)
        y = check_one_batch(ask)
        create_graph, retain = self._graph_needs([y])
        found = jacobian_rows(y, ask.twins, create_graph, chunk_size, shared=1)
        self._finish_query(() if retain else [y])
        return self._make_result(ask, found, create_graph, y.shape, shared=1)

    def hessian(self, target: Any, sources: Any, *, chunk_size: int | None = None) -> Any:
        """The second derivatives of the sum of all elements of the target: for one source its shape twice, for a tree
        of them a tree of trees. Where no path leads they are zero.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable([2.0, 3.0])
        >>> tape.hessian(x[0] * x[0] * x[1], x).tolist()
        [[6.0, 4.0], [4.0, 0.0]]
        """
        ask = self._make_query("hessian", target, sources, "zero")
        for i, x in enumerate(ask.sources):
            check_real(x, LeafPlace("hessian: source", ask.structure, i))
        create_graph, retain = self._graph_needs(ask.targets)
        first = pull_to_sources(ask.targets, ask.twins, seeds_of(ask, None), True, True)
        # A missing gradient is a constant here: its rows come out as zeros of the right shape.
        slopes = [wrap(x.value, x.spec) if g is None else g for g, x in zip(first, ask.sources, strict=True)]
        found = [jacobian_rows(g, ask.twins, create_graph, chunk_size) for g in slopes]
        self._finish_query(() if retain else ask.targets)
        pairs = zip(found, slopes, strict=True)
        return unflatten(ask.structure, [self._make_result(ask, rows, create_graph, g.shape) for rows, g in pairs])

    def _make_query(self, what: str, target: Any, sources: Any, unconnected: str) -> TapeQuery:
        """Check a query, and look up the watched node of each source."""
        self._check_not_consumed(what)
        if unconnected not in ("none", "zero"):
            raise ArgumentError(f"{what}: unconnected is 'none' or 'zero', got {unconnected!r}.")
        targets, shape = flatten(target)
        if not targets:
            raise ArgumentError(f"{what}: the target is empty.")
        for i, y in enumerate(targets):
            check_target(y, LeafPlace(f"{what}: target", shape, i))
        level = max(y.level for y in targets)
        wanted, structure = flatten(sources)
        nodes = [self._node_of(x, LeafPlace(f"{what}: source", structure, i), level) for i, x in enumerate(wanted)]
        # Twins on the watched nodes: the tensors themselves may have been rebound or unmarked since.
        twins = [wrap(x.value, x.spec, node) for x, node in zip(wanted, nodes, strict=True)]
        return TapeQuery(what, targets, shape, wanted, twins, structure, unconnected == "zero")

    def _node_of(self, x: Any, what: LeafPlace, level: int) -> Node:
        check_source(x, what, level)
        mark = self._mark_of(x)
        node = x.node if mark is None else mark.current_node()
        if node is None:
            why = "was never watched" if mark is None else "got a new value since, which is a constant"
            raise GraphError(f"{what} ({x.spec}) {why}.\n  Call tape.watch(x) before computing with it.")
        return node

    def _graph_needs(self, roots: Sequence[Any]) -> tuple[bool, bool]:
        """Whether the result is recorded, on this tape or on another that may differentiate it again; and whether the
        graph is needed afterwards.
        """
        recording = modes().grad
        # Inside the block of a persistent tape derivatives are recorded too, for higher orders.
        if recording and self.persistent and self._open:
            return True, True
        nodes = [y.node for y in roots if isinstance(y, Tensor) and y.node is not None]
        others = replay_decision(is_marked_by_others(nodes, {mark.node for mark in self._marks()}))
        return recording and others, self.persistent or others

    def _finish_query(self, released: Sequence[Tensor] = ()) -> None:
        """Note the line; a tape that is not persistent releases what it recorded and watched."""
        self._asked = user_line(sys._getframe(1))
        release_graph(released)
        if not self.persistent:
            self._consumed = True
            self._remove_marks()

    def _make_result(
        self, ask: TapeQuery, found: Sequence[Any], create_graph: bool, lead: tuple[int, ...] = (), shared: int = 0
    ) -> Any:
        """The derivatives, in the structure of the sources."""
        # None must mean that there is no path, not that a path was not recorded.
        for i, g in enumerate(found):
            if g is None:
                self._check_recorded(ask, i)
        tensors = ask.as_tensors(found, lead, shared)
        if not create_graph:
            self._unrecorded = self._asked
            _unrecorded_gradients.update((id(g), g) for g in tensors if g is not None)
        return unflatten(ask.structure, tensors)

    def _check_recorded(self, ask: TapeQuery, number: int) -> None:
        """A missing path may lead through a gradient that was not recorded: then None or zero is wrong."""
        mark = mark_at(ask.sources[number].node)
        other = None if mark is None or mark.owner is self._reference else mark.owner()
        asked = None if other is None else other._unrecorded
        if asked is None and not any(y.node is None and _unrecorded_gradients.get(id(y)) is y for y in ask.targets):
            return
        where = "" if asked is None else f"\n  computed at {format_line(*asked)}"
        raise GraphError(
            f"{LeafPlace(f'{ask.what}: no path leads to source', ask.structure, number)}. "
            "It may lead through a gradient "
            f"that was computed without recording.{where}\n"
            "  Ask for it inside the `with` block of a persistent tape, or let an outer tape watch the source."
        )

    def _check_not_consumed(self, what: str) -> None:
        if self._consumed and self._asked is not None:
            raise GraphError(
                f"{what}: this tape is consumed; it was queried once and released what it recorded.\n"
                f"  queried at {format_line(*self._asked)}\n"
                "  Make it with persistent=True to query it more than once, or call tape.reset() to record anew."
            )

    def _live_steps(self) -> list[Node]:
        return live_steps(mark.node for mark in self._marks())

    def __len__(self) -> int:
        return len(self._live_steps())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        state = "consumed" if self._consumed else "recording" if self._open else "closed"
        return f"<GradientTape {'persistent, ' if self.persistent else ''}{state}, {len(self.watched)} watched>"

    def __str__(self) -> str:
        steps = self._live_steps()
        kept, lines = format_table(steps)
        return "\n".join([f"{self!r}: {len(steps)} ops keep {kept} bytes", *(lines if steps else ())])


explain_missing_attributes(GradientTape, "GradientTape", "watched_variables jacobians record")
