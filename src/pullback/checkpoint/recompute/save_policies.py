"""Policies: which results a checkpoint saves instead of recomputing them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

from ...errors import ArgumentError
from ...ops.op import Op
from ..offload.storage import Loader, StoreOnDisk, store_in_memory, store_on_host


@dataclass(frozen=True, slots=True, eq=False, repr=False)
class SavePolicy:
    """Decides which results a checkpoint saves: those for which `chooses(op, nbytes)` is true, and those marked by
    `pb.name` with one of `names`; `store` says where to.
    """

    label: str
    doc: str = ""
    chooses: Callable[[Op, int], Any] | None = None
    names: frozenset[str] = frozenset()
    store: Callable[[Any], Loader] = store_in_memory

    def __repr__(self) -> str:
        return self.label

    def __reduce__(self) -> Any:
        # a policy of this module is one object, known by its identity
        if globals().get(self.label) is self:
            return self.label
        return SavePolicy, (self.label, self.doc, self.chooses, self.names, self.store)


save_nothing = SavePolicy("save_nothing", "A policy: save the arguments alone; everything else is recomputed.")
save_everything = SavePolicy(
    "save_everything", "A policy: save what the function would save without a checkpoint.", lambda op, nbytes: True
)
save_contractions = SavePolicy(
    "save_contractions",
    "A policy: save the results of contractions (such as `matmul`), which cost most; recompute the rest.",
    lambda op, nbytes: op.family == "contraction",
)


def _save_marked(names: tuple[str, ...], store: Callable[[Any], Loader], what: str) -> SavePolicy:
    if not names or not all(isinstance(name, str) for name in names):
        raise ArgumentError(f"{what}: wants the names given with pb.name, got {names!r}.")
    return SavePolicy(f"{what}({', '.join(map(repr, names))})", names=frozenset(names), store=store)


def save_named(*names: str) -> SavePolicy:
    """Save the values marked with `pb.name`; what computed them does not run again.

    >>> import numpy as np, pullback as pb
    >>> f = pb.checkpoint(lambda x: pb.sin(pb.name(pb.exp(x), "e")), policy=pb.save_named("e"))
    >>> pb.grad(f)(0.0)
    array(0.54030231)
    """
    return _save_marked(names, store_in_memory, "save_named")


def offload_named(*names: str, to: str | PathLike[str] = "host") -> SavePolicy:
    """Offload the values marked with `pb.name` until they are needed: to the memory of the host for arrays of a GPU
    (`to="host"`), or to files in a folder, which are removed as soon as they are unused.

    >>> import tempfile, numpy as np, pullback as pb
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     policy = pb.offload_named("e", to=folder)
    ...     pb.grad(pb.checkpoint(lambda x: pb.sin(pb.name(pb.exp(x), "e")), policy=policy))(0.0)
    array(0.54030231)
    """
    return _save_marked(
        names, store_on_host if isinstance(to, str) and to == "host" else StoreOnDisk(to), "offload_named"
    )


def as_policy(policy: Any) -> SavePolicy:
    """A policy, or a user's function of op and bytes as one."""
    if isinstance(policy, SavePolicy):
        return policy
    # a class is callable, but as a policy it is a forgotten pair of parentheses
    if not callable(policy) or isinstance(policy, type):
        raise ArgumentError(
            "checkpoint: policy wants save_nothing, save_contractions, save_named(...) or their like, or a function "
            f"of (op, bytes), got {policy!r}."
        )
    return SavePolicy(getattr(policy, "__name__", repr(policy)), chooses=policy)
