"""Op in, whether its result is worth keeping out: what a checkpoint saves so that it is not computed again."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike
from typing import Any

from ..errors import ArgumentError
from ..ops.op import Op
from .storage import InMemory, OnDisk, OnHost, Storage

__all__ = ["Policy", "offload_named", "save_contractions", "save_everything", "save_named", "save_nothing"]


class Policy(ABC):
    """Decides which results a checkpoint saves. `names` are those of `pb.name` whose values it saves; `storage` is
    where to; `saves` is asked for each op, and only if there is something to ask (`asks`); `doc` says what it is for.
    """

    __slots__ = ()

    names: frozenset[str] = frozenset()
    storage: Storage = InMemory()
    asks = False
    doc = ""

    @abstractmethod
    def saves(self, op: Op, nbytes: int) -> bool: ...


class _Nothing(Policy):
    __slots__ = ()
    doc = "A policy: keep the arguments alone; everything else is computed again."

    def saves(self, op: Op, nbytes: int) -> bool:
        return False

    def __repr__(self) -> str:
        return "save_nothing"

    def __reduce__(self) -> str:
        return "save_nothing"


class _Everything(Policy):
    __slots__ = ()
    doc = "A policy: keep what the function would keep without a checkpoint."

    def saves(self, op: Op, nbytes: int) -> bool:
        return True

    def __repr__(self) -> str:
        return "save_everything"

    def __reduce__(self) -> str:
        return "save_everything"


class _Chosen(Policy):
    """A function of the op and the bytes of its result."""

    __slots__ = ("_choose", "_shown", "doc")
    asks = True

    def __init__(self, choose: Callable[[Op, int], Any], shown: str, doc: str = "") -> None:
        self._choose = choose
        self._shown = shown
        self.doc = doc

    def saves(self, op: Op, nbytes: int) -> bool:
        return bool(self._choose(op, nbytes))

    def __repr__(self) -> str:
        return self._shown


class _Named(Policy):
    __slots__ = ("_shown", "names", "storage")

    def __init__(self, names: tuple[str, ...], storage: Storage, what: str) -> None:
        if not names or not all(isinstance(name, str) for name in names):
            raise ArgumentError(f"{what}: wants the names given with pb.name, got {names!r}.")
        self.names = frozenset(names)
        self.storage = storage
        self._shown = f"{what}({', '.join(map(repr, names))})"

    def saves(self, op: Op, nbytes: int) -> bool:
        return False

    def __repr__(self) -> str:
        return self._shown


def _is_contraction(op: Op, nbytes: int) -> bool:
    return op.family == "contraction"


save_nothing: Policy = _Nothing()
save_everything: Policy = _Everything()
save_contractions: Policy = _Chosen(
    _is_contraction,
    "save_contractions",
    "A policy: keep the results of contractions (`matmul` and its like), which cost most; compute the rest again.",
)


def save_named(*names: str) -> Policy:
    """Keep the values marked with `pb.name`; what computed them does not run again.

    >>> import numpy as np, pullback as pb
    >>> f = pb.checkpoint(lambda x: pb.sin(pb.name(pb.exp(x), "e")), policy=pb.save_named("e"))
    >>> pb.grad(f)(0.0)
    array(0.54030231)
    """
    return _Named(names, InMemory(), "save_named")


def offload_named(*names: str, to: str | PathLike[str] = "host") -> Policy:
    """Move the values marked with `pb.name` out of the way until they are needed: to the memory of the host for arrays
    of a GPU (`to="host"`), or to files in a folder, which are gone as soon as nobody needs them.

    >>> import tempfile, numpy as np, pullback as pb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     policy = pb.offload_named("e", to=folder)
    ...     pb.grad(pb.checkpoint(lambda x: pb.sin(pb.name(pb.exp(x), "e")), policy=policy))(0.0)
    array(0.54030231)
    """
    return _Named(names, OnHost() if isinstance(to, str) and to == "host" else OnDisk(to), "offload_named")


def as_policy(policy: Any) -> Policy:
    """A policy, or a user's function of op and bytes as one."""
    if isinstance(policy, Policy):
        return policy
    if not callable(policy) or isinstance(policy, type):
        raise ArgumentError(
            "checkpoint: policy wants save_nothing, save_contractions, save_named(...) or their like, or a function "
            f"of (op, bytes), got {policy!r}."
        )
    return _Chosen(policy, getattr(policy, "__name__", repr(policy)))
