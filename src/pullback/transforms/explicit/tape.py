"""Tensors to watch in, derivatives of what was computed from them out: the engine's graph as an explicit tape.

Ops record themselves for whatever requires a gradient. A tape only decides which tensors do and for how long, so it
costs nothing per op, and nothing about it is ambient.
"""

from __future__ import annotations

import sys
import weakref
from collections.abc import Sequence
from types import CodeType
from typing import Any, Literal

from ...arrays.node import Node, show_line, sign, user_line
from ...arrays.scope import running
from ...arrays.tensor import Tensor, tensor, wrap
from ...arrays.trees import flatten, unflatten
from ...errors import ArgumentError, GraphError
from ...settings import modes, no_grad, switched
from .listing import living_steps, table
from .marks import Mark, mark_at, marked_by_others
from .question import (
    Place,
    Question,
    check_real,
    check_source,
    check_target,
    check_watchable,
    one_batch,
    seeds_of,
)
from .rows import let_go, pulled, rows_of

__all__ = ["GradientTape"]

Unconnected = Literal["none", "zero"]

#: Derivatives that were handed out while nobody recorded, as long as they live.
_given: weakref.WeakValueDictionary[int, Tensor] = weakref.WeakValueDictionary()


class GradientTape:
    """Records what is computed from the tensors it watches, and answers derivatives of it.

    `variable` makes a tensor that is watched for good; `watch` watches an existing one until the `with` block ends, or
    without a block until the tape has answered. A tape answers once, unless it is `persistent`.

    >>> import pullback as pb
    >>> tape = pb.GradientTape()
    >>> x, w = tape.variable([2.0, 3.0]), tape.variable([1.0, 0.5])
    >>> gx, gw = tape.gradient(pb.sum(x * w), [x, w])
    >>> gx.tolist(), gw.tolist()
    ([1.0, 0.5], [2.0, 3.0])
    """

    def __init__(self, persistent: bool = False) -> None:
        self.persistent = persistent
        self._variables: dict[int, Mark] = {}
        self._watches: dict[int, Mark] = {}
        self._me = weakref.ref(self)
        self._open, self._inside, self._consumed = True, False, False
        self._asked: tuple[CodeType, int] | None = None  # the line it last answered
        self._unrecorded: tuple[CodeType, int] | None = None  # and one where nobody recorded the answer

    def __enter__(self) -> GradientTape:
        if self._inside:
            raise GraphError("GradientTape: this tape is recording already; a second `with` needs a second tape.")
        if self._consumed:
            self.reset()
        self._open = self._inside = True
        return self

    def __exit__(self, *exception: object) -> None:
        self._open = self._inside = False
        self._take_off()

    def __del__(self) -> None:
        if hasattr(self, "_watches"):  # not if it was called with wrong arguments
            self._take_off()

    def _take_off(self) -> None:
        for mark in reversed(self._watches.values()):
            mark.take_off()

    def variable(self, data: Any, dtype: Any = None) -> Tensor:
        """A new tensor with a copy of the data, which the tape watches as long as both live.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable([1, 2], dtype=pb.float32)
        >>> tape.gradient(x * x, x)
        tensor([2., 4.], dtype=float32)
        """
        if isinstance(data, Tensor) and data.node is not None:
            scope = running()
            if scope is None or data.level >= scope.level:
                raise GraphError(
                    "variable: the data is a tensor that is recorded already.\n"
                    "  Use tape.watch(x), or tape.variable(x.detach()) to start anew from its value."
                )
            data = scope.lift(scope, data)  # a constant of the transform, which outer tapes see through
        x = tensor(data, dtype=dtype, requires_grad=True)
        self._variables[id(x)] = Mark.of_variable(x, self._me)
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
        for i, x in enumerate(leaves):
            check_watchable(x, Place("watch: x", structure, i))
        for x in leaves:
            known = self._mark_of(x)
            if known is None or not known.open or known.seen() is None:
                if known is not None:
                    known.take_off()
                mark = self._watches[id(x)] = Mark.put_on(x, self._me)
                sign(mark.node, sys._getframe(1))

    def _mark_of(self, x: Tensor) -> Mark | None:
        for marks in (self._watches, self._variables):
            mark = marks.get(id(x))
            if mark is not None and mark.tensor() is x:  # an id may come again after its tensor is gone
                return mark
        return None

    def _marks(self) -> list[Mark]:
        return [*self._variables.values(), *self._watches.values()]

    @property
    def watched(self) -> tuple[Tensor, ...]:
        """The tensors that the tape can answer for: its variables and what was watched, as far as they live."""
        found = [mark.tensor() for mark in self._marks()]
        return tuple(x for x in found if x is not None)

    def stop_recording(self) -> switched:
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
        self._take_off()
        self._watches.clear()
        self._open, self._consumed, self._unrecorded = True, False, None
        renewed = {key: mark.renewed() for key, mark in self._variables.items()}
        self._variables = {key: mark for key, mark in renewed.items() if mark is not None}

    def gradient(
        self, target: Any, sources: Any, output_gradients: Any = None, unconnected: Unconnected = "none"
    ) -> Any:
        """The gradient of the sum of all elements of the target with respect to each source, in the structure of the
        sources. Targets and sources are trees of tensors; a source may be any tensor on the way to a target.

        `output_gradients` looks like the target and weighs its elements. Where no path leads from the target to a
        source the answer is None, or zeros with `unconnected="zero"`. What another tape watches is recorded there.

        >>> import pullback as pb
        >>> with pb.GradientTape() as outer:
        ...     x = outer.variable(2.0)
        ...     with pb.GradientTape() as inner:
        ...         y = x**3
        ...     first = inner.gradient(y, x)
        >>> first.item(), outer.gradient(first, x).item()
        (12.0, 12.0)
        """
        ask = self._question("gradient", target, sources, unconnected)
        seeds = seeds_of(ask, output_gradients)
        linked, retain = self._needs([*ask.targets, *seeds])
        found = pulled(ask.targets, ask.twins, seeds, linked, retain)
        self._answered()
        return self._answer(ask, found, linked)

    def jacobian(
        self, target: Any, sources: Any, unconnected: Unconnected = "none", *, chunk_size: int | None = None
    ) -> Any:
        """The derivative of each element of the target with respect to each element of each source: the shape of the
        target, then the source's. A tree of targets answers a tree of what one target answers.

        All rows go back at once, as one batch; in batches of `chunk_size` they take less memory.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable([2.0, 3.0])
        >>> tape.jacobian(pb.stack([x[0] ** 2, x[0] * x[1]]), x).tolist()
        [[4.0, 0.0], [3.0, 2.0]]
        """
        ask = self._question("jacobian", target, sources, unconnected)
        for i, y in enumerate(ask.targets):
            check_real(y, Place("jacobian: target", ask.shape, i))
        linked, retain = self._needs(ask.targets)
        found = [rows_of(y, ask.twins, linked, chunk_size) for y in ask.targets]
        self._answered(() if retain else ask.targets)
        pairs = zip(found, ask.targets, strict=True)
        return unflatten(ask.shape, [self._answer(ask, rows, linked, y.shape) for rows, y in pairs])

    def batch_jacobian(
        self, target: Tensor, sources: Any, unconnected: Unconnected = "none", *, chunk_size: int | None = None
    ) -> Any:
        """The Jacobian of each example by itself: a target (b, *out) and a source (b, *in) give (b, *out, *in).

        It relies on example i of the target depending on example i of the sources alone. If it depends on others too,
        as with batch statistics, the answer adds those dependences up; use `jacobian` then.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable([[1.0, 2.0], [3.0, 4.0]])
        >>> tape.batch_jacobian(x * x, x).tolist()
        [[[2.0, 0.0], [0.0, 4.0]], [[6.0, 0.0], [0.0, 8.0]]]
        """
        ask = self._question("batch_jacobian", target, sources, unconnected)
        y = one_batch(ask)
        linked, retain = self._needs([y])
        found = rows_of(y, ask.twins, linked, chunk_size, shared=1)
        self._answered(() if retain else [y])
        return self._answer(ask, found, linked, y.shape, shared=1)

    def hessian(self, target: Any, sources: Any, *, chunk_size: int | None = None) -> Any:
        """The second derivatives of the sum of all elements of the target: for one source its shape twice, for a tree
        of them a tree of trees. Where no path leads they are zero.

        >>> import pullback as pb
        >>> tape = pb.GradientTape()
        >>> x = tape.variable([2.0, 3.0])
        >>> tape.hessian(x[0] * x[0] * x[1], x).tolist()
        [[6.0, 4.0], [4.0, 0.0]]
        """
        ask = self._question("hessian", target, sources, "zero")
        for i, x in enumerate(ask.sources):
            check_real(x, Place("hessian: source", ask.structure, i))
        linked, retain = self._needs(ask.targets)
        first = pulled(ask.targets, ask.twins, seeds_of(ask, None), True, True)
        slopes = [wrap(x.value, x.spec) if g is None else g for g, x in zip(first, ask.sources, strict=True)]
        found = [rows_of(g, ask.twins, linked, chunk_size) for g in slopes]
        self._answered(() if retain else ask.targets)
        pairs = zip(found, slopes, strict=True)
        return unflatten(ask.structure, [self._answer(ask, rows, linked, g.shape) for rows, g in pairs])

    def _question(self, what: str, target: Any, sources: Any, unconnected: str) -> Question:
        """Check what was asked, and look up what the tape means by each source."""
        self._check_not_consumed(what)
        if unconnected not in ("none", "zero"):
            raise ArgumentError(f"{what}: unconnected is 'none' or 'zero', got {unconnected!r}.")
        targets, shape = flatten(target)
        if not targets:
            raise ArgumentError(f"{what}: the target is empty.")
        for i, y in enumerate(targets):
            check_target(y, Place(f"{what}: target", shape, i))
        level = max(y.level for y in targets)
        wanted, structure = flatten(sources)
        nodes = [self._node_of(x, Place(f"{what}: source", structure, i), level) for i, x in enumerate(wanted)]
        twins = [wrap(x.value, x.spec, node) for x, node in zip(wanted, nodes, strict=True)]
        return Question(what, targets, shape, wanted, twins, structure, unconnected == "zero")

    def _node_of(self, x: Any, what: Place, level: int) -> Node:
        check_source(x, what, level)
        mark = self._mark_of(x)
        node = x.node if mark is None else mark.seen()
        if node is None:
            why = "was never watched" if mark is None else "got a new value since, which is a constant"
            raise GraphError(f"{what} ({x.spec}) {why}.\n  Call tape.watch(x) before computing with it.")
        return node

    def _needs(self, roots: Sequence[Any]) -> tuple[bool, bool]:
        """Whether the answer goes on a tape, this one or that of somebody else who may differentiate it again; and
        whether the graph is needed after it.
        """
        recording = modes().grad
        if recording and self.persistent and self._open:
            return True, True
        nodes = [y.node for y in roots if isinstance(y, Tensor) and y.node is not None]
        others = marked_by_others(nodes, {mark.node for mark in self._marks()})
        return recording and others, self.persistent or others

    def _answered(self, released: Sequence[Tensor] = ()) -> None:
        """Note the line; a tape that answers once lets go of what it recorded and watched."""
        self._asked = user_line(sys._getframe(1))
        let_go(released)
        if not self.persistent:
            self._consumed = True
            self._take_off()

    def _answer(
        self, ask: Question, found: Sequence[Any], linked: bool, lead: tuple[int, ...] = (), shared: int = 0
    ) -> Any:
        """What was found, in the structure of the sources."""
        for i, g in enumerate(found):
            if g is None:
                self._check_recorded(ask, i)
        tensors = ask.tensors(found, lead, shared)
        if not linked:
            self._unrecorded = self._asked
            _given.update((id(g), g) for g in tensors if g is not None)
        return unflatten(ask.structure, tensors)

    def _check_recorded(self, ask: Question, number: int) -> None:
        """No path may mean that a gradient on the way was given while nobody recorded: then None or zero is wrong."""
        mark = mark_at(ask.sources[number].node)
        other = None if mark is None or mark.owner is self._me else mark.owner()
        asked = None if other is None else other._unrecorded
        if asked is None and not any(y.node is None and _given.get(id(y)) is y for y in ask.targets):
            return
        where = "" if asked is None else f"\n  given at {show_line(*asked)}"
        raise GraphError(
            f"{Place(f'{ask.what}: no path leads to source', ask.structure, number)}. It may lead through a gradient "
            f"that was given while nobody recorded.{where}\n"
            "  Ask for it inside the `with` block of a persistent tape, or let an outer tape watch the source."
        )

    def _check_not_consumed(self, what: str) -> None:
        if self._consumed and self._asked is not None:
            raise GraphError(
                f"{what}: this tape is consumed; it has answered once and let go of what it recorded.\n"
                f"  asked at {show_line(*self._asked)}\n"
                "  Make it with persistent=True to ask more than once, or call tape.reset() to record anew."
            )

    def _steps(self) -> list[Node]:
        return living_steps(mark.node for mark in self._marks())

    def __len__(self) -> int:
        return len(self._steps())

    def __bool__(self) -> bool:
        return True

    def __repr__(self) -> str:
        state = "consumed" if self._consumed else "recording" if self._open else "closed"
        return f"<GradientTape {'persistent, ' if self.persistent else ''}{state}, {len(self.watched)} watched>"

    def __str__(self) -> str:
        steps = self._steps()
        kept, lines = table(steps)
        return "\n".join([f"{self!r}: {len(steps)} ops keep {kept} bytes", *(lines if steps else ())])
