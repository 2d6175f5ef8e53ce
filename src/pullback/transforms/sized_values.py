"""Values that know only their size: a function runs as it stands, and its ops and memory are counted, not computed.

Unlike a symbol, which its program holds, such a value lives exactly as long as the array it replaces. So peaks include
what the function's own variables hold, which no traced program could tell.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any

from ..arrays.scope import Scope
from ..arrays.spec import Spec, spec_of
from ..arrays.value import SymbolicValue
from ..ops.op import Op


class SizeLedger(ABC):
    """What the sized values of one run tell about it."""

    @abstractmethod
    def add(self, nbytes: int) -> None:
        """Memory begins to be used, or fewer than zero bytes: it ends."""

    @abstractmethod
    def shared_memory(self, op: Op, args: Sequence[Any], static: dict[str, Any], out: Spec) -> Allocation | None:
        """The memory of an argument that the result of an op is a view of; None for memory of its own."""

    @abstractmethod
    def record(self, op: Op, args: Sequence[Any], results: tuple[SizedValue, ...]) -> None:
        """An op has run."""


class Allocation:
    """Memory that would be allocated while this lives."""

    __slots__ = ("_ledger", "_nbytes")

    def __init__(self, nbytes: int, ledger: SizeLedger) -> None:
        self._nbytes, self._ledger = nbytes, ledger
        ledger.add(nbytes)

    def __del__(self) -> None:
        self._ledger.add(-self._nbytes)


class SizedValue(SymbolicValue):
    """A value known by its spec and by the memory it would take; its ledger may give it a `key`."""

    __slots__ = ("allocation", "key", "ledger", "level", "scope", "spec")
    level: int
    scope: Scope

    def __init__(self, spec: Spec, scope: Scope, ledger: SizeLedger, allocation: Allocation | None = None) -> None:
        self.spec = spec.as_guarded()
        self.scope = scope
        self.level = scope.level
        self.ledger = ledger
        # Views share the allocation of their source, which ends with the last of them.
        self.allocation = Allocation(spec.nbytes, ledger) if allocation is None else allocation
        self.key = 0

    def interpret(self, op: Op, args: Sequence[Any], static: dict[str, Any]) -> Any:
        """Count the op; its results are sized values too."""
        self.scope.check()
        made = op.spec_of([spec_of(x) for x in args], static)
        specs = made if type(made) is tuple else (made,)
        # before the results are made: a view must not raise the peak, not even for a moment
        memory = self.ledger.shared_memory(op, args, static, specs[0])
        results = tuple([SizedValue(spec, self.scope, self.ledger, memory) for spec in specs])
        self.ledger.record(op, args, results)
        return results if type(made) is tuple else results[0]

    def __repr__(self) -> str:
        return f"<sized value {self.spec}>"
