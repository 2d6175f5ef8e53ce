"""`save_async`: a save that goes on while the program computes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from ..arrays import cuda
from ..arrays.backends import device_of
from ..arrays.files import name_of_path
from .contents import encode_contents
from .pending import PendingSave, finish_pending, start_save
from .save_load import check_target, write_contents


def save_async(
    path: Any, tree: Any, metadata: Mapping[str, str] | None = None, *, max_shard_bytes: int | str | None = None
) -> PendingSave:
    """Start a `save` of the tree as it is now and return at once; a thread writes while the program goes on. What it
    returns has `wait`, which returns when the file is on the disk and raises if the save failed.

    Values of tensors never change, so they are not copied: while the save runs it refers to them, and what would update
    them in place (steps of optimizers) takes new memory. Plain arrays are copied first, since they may be written to.
    One save runs at a time: the next one, of either kind, first waits for it, and raises its error unless `wait` did.

    >>> import os, tempfile, pullback as pb
    >>> path, w = os.path.join(tempfile.mkdtemp(), "w.safetensors"), pb.tensor([1.0, 2.0], requires_grad=True)
    >>> pending = pb.save_async(path, {"w": w})
    >>> with pb.no_grad():
    ...     w -= 0.5
    >>> pending.wait()
    >>> pb.load(path)
    {'w': tensor([1., 2.], dtype=float64, requires_grad=True)}
    """
    return start_saving(path, tree, metadata, max_shard_bytes)


def start_saving(
    path: Any, tree: Any, metadata: Mapping[str, str] | None, max_shard_bytes: int | str | None = None,
    afterwards: Callable[[], None] = lambda: None,
) -> PendingSave:  # fmt: skip
    """Start a save; `afterwards` runs when the file is there."""
    limit = check_target(path, tree, max_shard_bytes)
    finish_pending()  # before anything is copied, so that there is one copy at a time
    contents = encode_contents(tree, metadata, copies=True)
    for place in {device_of(array) for array in contents.arrays.values()} - {"cpu"}:
        cuda.synchronize(place)  # the other thread has streams of its own

    def write() -> None:
        write_contents(path, contents, limit)
        afterwards()

    return start_save(name_of_path(path, "save"), write)
