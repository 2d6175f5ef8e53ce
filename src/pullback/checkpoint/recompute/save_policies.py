"""Policies: which results a checkpoint saves instead of recomputing them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from os import PathLike
from typing import Any

from ...errors import ArgumentError
from ...ops.op import Op
from ..offload.storage import InMemory, OnDisk, OnHost, Storage


class SavePolicy(ABC):
    """Decides which results a checkpoint saves. `names` are those of `pb.name` whose values it saves; `storage` is
    where to; `saves` is called for each op, only if `decides_per_op`; `doc` describes it.
    """

    __slots__ = ()

    names: frozenset[str] = frozenset()
    storage: Storage = InMemory()
    decides_per_op = False
    doc = ""

    @abstractmethod
    def saves(self, op: Op, nbytes: int) -> bool: ...


class _SaveNothing(SavePolicy):
    __slots__ = ()
    doc = "A policy: save the arguments alone; everything else is recomputed."

    def saves(self, op: Op, nbytes: int) -> bool:
        return False

    def __repr__(self) -> str:
        return "save_nothing"

    def __reduce__(self) -> str:
        return "save_nothing"


class _SaveEverything(SavePolicy):
    __slots__ = ()
    doc = "A policy: save what the function would save without a checkpoint."

    def saves(self, op: Op, nbytes: int) -> bool:
        return True

    def __repr__(self) -> str:
        return "save_everything"

    def __reduce__(self) -> str:
        return "save_everything"


class _SaveByPredicate(SavePolicy):
    """A function of the op and the bytes of its result."""

    __slots__ = ("_choose", "_label", "doc")
    decides_per_op = True

    def __init__(self, choose: Callable[[Op, int], Any], shown: str, doc: str = "") -> None:
        self._choose = choose
        self._label = shown
        self.doc = doc

    def saves(self, op: Op, nbytes: int) -> bool:
        return bool(self._choose(op, nbytes))

    def __repr__(self) -> str:
        return self._label


class _SaveNamed(SavePolicy):
    __slots__ = ("_label", "names", "storage")

    def __init__(self, names: tuple[str, ...], storage: Storage, what: str) -> None:
        if not names or not all(isinstance(name, str) for name in names):
            raise ArgumentError(f"{what}: wants the names given with pb.name, got {names!r}.")
        self.names = frozenset(names)
        self.storage = storage
        self._label = f"{what}({', '.join(map(repr, names))})"

    def saves(self, op: Op, nbytes: int) -> bool:
        return False

    def __repr__(self) -> str:
        return self._label


def _is_contraction(op: Op, nbytes: int) -> bool:
    return op.family == "contraction"


save_nothing: SavePolicy = _SaveNothing()
save_everything: SavePolicy = _SaveEverything()
save_contractions: SavePolicy = _SaveByPredicate(
    _is_contraction,
    "save_contractions",
    "A policy: save the results of contractions (such as `matmul`), which cost most; recompute the rest.",
)


def save_named(*names: str) -> SavePolicy:
    """Save the values marked with `pb.name`; what computed them does not run again.

    >>> import numpy as np, pullback as pb
    >>> f = pb.checkpoint(lambda x: pb.sin(pb.name(pb.exp(x), "e")), policy=pb.save_named("e"))
    >>> pb.grad(f)(0.0)
    array(0.54030231)
    """
    return _SaveNamed(names, InMemory(), "save_named")


def offload_named(*names: str, to: str | PathLike[str] = "host") -> SavePolicy:
    """Offload the values marked with `pb.name` until they are needed: to the memory of the host for arrays of a GPU
    (`to="host"`), or to files in a folder, which are removed as soon as they are unused.

    >>> import tempfile, numpy as np, pullback as pb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     policy = pb.offload_named("e", to=folder)
    ...     pb.grad(pb.checkpoint(lambda x: pb.sin(pb.name(pb.exp(x), "e")), policy=policy))(0.0)
    array(0.54030231)
    """
    return _SaveNamed(names, OnHost() if isinstance(to, str) and to == "host" else OnDisk(to), "offload_named")


def as_policy(policy: Any) -> SavePolicy:
    """A policy, or a user's function of op and bytes as one."""
    if isinstance(policy, SavePolicy):
        return policy
    if not callable(policy) or isinstance(policy, type):
        raise ArgumentError(
            "checkpoint: policy wants save_nothing, save_contractions, save_named(...) or their like, or a function "
            f"of (op, bytes), got {policy!r}."
        )
    return _SaveByPredicate(policy, getattr(policy, "__name__", repr(policy)))
