"""Policies: which results a checkpoint saves instead of recomputing them, and where to."""

from __future__ import annotations

import os
from collections.abc import Callable
from dataclasses import dataclass
from os import PathLike
from typing import Any

from ...arrays.argument_checks import short_repr
from ...arrays.backends import device_of, is_array, namespace_on
from ...errors import ArgumentError, ArgumentTypeError
from ...ops.op import Op
from ..offload.disk import Disk

#: Loads a stored value, any number of times.
Loader = Callable[[], Any]


def store_in_memory(value: Any) -> Loader:
    """The value itself."""
    return lambda: value


def store_on_host(value: Any) -> Loader:
    """Arrays of a GPU in the memory of the host; host arrays stay as they are."""
    if not is_array(value) or device_of(value) == "cpu":
        return store_in_memory(value)
    device, copy = value.device, value.get()
    library = namespace_on(device_of(value))

    def load() -> Any:
        with device:
            return library.asarray(copy)

    return load


class StoreOnDisk:
    """Arrays in files of a folder, which have no names: nothing is left behind, also if the process is killed."""

    __slots__ = ("_disk", "_folder")

    def __init__(self, folder: str | PathLike[str]) -> None:
        if not isinstance(folder, (str, PathLike)):
            raise ArgumentTypeError(f"offload_named: to is 'host' or the path of a folder, got {short_repr(folder)}.")
        self._folder = os.fspath(folder)
        if not os.path.isdir(self._folder):
            raise ArgumentError(f"offload_named: {self._folder!r} is no folder.\n  Make it first, or pass to='host'.")
        self._disk = Disk(self._folder)

    def __call__(self, value: Any) -> Loader:
        return self._disk.store(value) if is_array(value) else store_in_memory(value)

    def __reduce__(self) -> Any:
        return StoreOnDisk, (self._folder,)  # where it is loaded, it opens files of its own


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
