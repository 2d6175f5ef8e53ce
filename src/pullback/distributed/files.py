"""`save` and `load`: checkpoints that all ranks write and read together, of whole arrays by name.

A checkpoint is a directory. Each rank writes a file with its slices, and the index, which says what lies where, takes
the place of the one before as the last step; so a reader finds the old checkpoint or the new one.
"""

from __future__ import annotations

import functools
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

from ..arrays.files import name_of_path
from ..errors import ArgumentTypeError, FormatError, StorageError
from ..ops.collective.world import current_world
from ..saving.atomic_write import sync_directory, write_atomically
from ..saving.save_load import INDEX_NAME
from .file_index import (
    Index,
    data_name,
    encode_index,
    listed_files,
    new_token,
    parse_index,
    read_index,
    remove_unlisted,
)
from .file_reader import CheckpointReader
from .file_tree import read_everything, read_tree
from .file_writer import check_agreement, cut_pieces, describe_arrays, list_contents, make_index, write_pieces
from .job_reports import note_checkpoint
from .outcomes import gather_json, run_on_all, share_from_first


def save(path: Any, tree: Any) -> None:
    """Write a tree of arrays and settings to a directory, all ranks together: files there hold whole arrays by name,
    and any number of ranks can `load` them. The directory is on a file system that all ranks see. A kill at any moment
    leaves the checkpoint that was there before, or the new one; an error of one rank, such as a full disk, is raised on
    all, and leaves the one before.

    Values that all ranks have in common are written once, each rank writing a share. The state of `sharded` knows what
    it is a part of; parts of parameters are marked by `mark_parts` and `mark_state`, and values of each rank's own, of
    which the sum matters, by `mark_summed`.

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path, w = os.path.join(tempfile.mkdtemp(), "checkpoint"), np.arange(6.0)
    >>> rule = pb.distributed.sharded(pb.optim.adam(0.1))
    >>> def train():
    ...     updates, state = rule.update(np.ones(6), rule.init(w), w)
    ...     pb.distributed.save(path, {"w": pb.optim.apply_updates(w, updates), "state": state, "step": 1})
    >>> _ = pb.distributed.run(train, 3)
    >>> like = {"w": w, "state": pb.optim.adam(0.1).init(w), "step": 0}  # on one rank, without sharded
    >>> found = pb.distributed.load(path, like)
    >>> found["step"], found["state"][0].slots["mean"].round(3).tolist()
    (1, [0.1, 0.1, 0.1, 0.1, 0.1, 0.1])
    """
    if isinstance(tree, (str, os.PathLike)) and not isinstance(path, (str, bytes, os.PathLike)):
        raise ArgumentTypeError("save: the path comes first: pb.distributed.save(path, tree).")
    contents = run_on_all("save", lambda: list_contents(tree)).unwrap()
    check_agreement(contents)
    pieces = cut_pieces(contents.items)
    rank = current_world().rank
    directory = run_on_all("save", lambda: _prepare_directory(path, makes=rank == 0)).unwrap()
    mine = directory / data_name(share_from_first("save: token", new_token().encode()).decode(), rank)
    written = run_on_all("save", lambda: write_pieces(mine, pieces))
    if written.error is not None:
        _remove_on_all(mine)
    reports = gather_json("save: written", [*written.unwrap(), describe_arrays(contents.items, only_owned=rank > 0)])
    committed = run_on_all(
        "save", lambda: _commit(directory, make_index(reports, contents.values)) if rank == 0 else ""
    )
    if committed.error is not None:
        _remove_on_all(mine)
    if doubt := share_from_first("save: doubt", committed.unwrap().encode()).decode():
        raise StorageError(doubt)


def _prepare_directory(path: Any, makes: bool) -> Path:
    """The directory of a checkpoint; the first rank makes it, and removes what a killed save has left there."""
    directory = Path(os.path.realpath(name_of_path(path, "save")))
    if not makes:
        return directory
    try:
        directory.mkdir(parents=True, exist_ok=True)
    except FileExistsError:
        raise StorageError(
            f"save: {directory} is a file; a checkpoint of ranks is a directory.\n  Choose another path."
        ) from None
    sync_directory(directory.parent)
    if (listed := listed_files(directory)) is not None:
        remove_unlisted(directory, listed)
    return directory


def _remove_on_all(path: Path) -> None:
    """Remove what this rank has written, and wait until all have: a save that raised has left nothing."""
    with suppress(OSError):
        path.unlink()
    run_on_all("save: removed", lambda: None)


def _commit(directory: Path, index: Index) -> str:
    """Put the index in place, and remove what it replaces. Returns what is in doubt afterwards, if anything."""
    for rank, file in enumerate(index.files):
        path = directory / file.name
        if not path.is_file() or path.stat().st_size != file.size:
            raise StorageError(
                f"save: rank 0 does not see {path}, which rank {rank} wrote.\n"
                "  Save to a directory on a file system that all ranks have in common."
            )
    raw = encode_index(index)
    parse_index(raw, "save")
    try:
        write_atomically(directory / INDEX_NAME, [raw])
    except OSError as error:
        if not _is_in_place(directory, raw):
            raise
        return f"save: the checkpoint is in place, but may not be after a power failure: {error}"
    note_checkpoint()
    remove_unlisted(directory, {file.name for file in index.files})
    return ""


def _is_in_place(directory: Path, raw: bytes) -> bool:
    try:
        return read_index(directory, "save") == raw
    except (OSError, FormatError):
        return False


def load(path: Any, like: Any = None, *, verify: bool = False) -> Any:
    """The tree that `save` wrote, on any number of ranks: a tree of the structure of `like`, whose leaves say what is
    wanted by their names, shapes, dtypes and devices (arrays, tensors, or specs), with what the files have. `like` has
    the marks of this run: its parts become this rank's parts, and of values to be summed the first rank gets the sum,
    the others zeros. What `like` has no place for is not read.

    Each rank reads the bytes that it needs. With `verify` all files are read, each rank reading a share, and compared
    with their digests. A name that is missing, another shape or dtype, and a damaged or missing file raise, on all
    ranks. Without `like` the result is a dict of whole arrays and values by name.

    >>> import numpy as np, os, tempfile, pullback as pb
    >>> path, w = os.path.join(tempfile.mkdtemp(), "checkpoint"), np.arange(4.0)
    >>> pb.distributed.save(path, {"w": w, "step": 7})
    >>> def parts():
    ...     like = {"w": pb.distributed.mark_parts(pb.distributed.shard(np.zeros(4)), w)}
    ...     return pb.distributed.load(path, like, verify=True)["w"].tree.tolist()
    >>> pb.distributed.run(parts, 2)
    [[0.0, 1.0], [2.0, 3.0]]
    >>> pb.distributed.load(path)
    {'w': array([0., 1., 2., 3.]), 'step': 7}
    """
    what = f"load: {name_of_path(path, 'load')}"
    directory = Path(name_of_path(path, "load"))
    world = current_world()

    def read(raw: bytes) -> Any:
        with CheckpointReader(directory, parse_index(raw, what), what) as reader:
            if verify:
                reader.verify(world.rank, world.size)
            return read_everything(reader) if like is None else read_tree(reader, like, what)

    before = None
    while True:
        first = run_on_all("load", lambda: read_index(directory, what) if world.rank == 0 else b"")
        raw = share_from_first("load: index", first.unwrap())
        found = run_on_all("load", functools.partial(read, raw))
        if found.error is None or raw == before:
            return found.unwrap()
        before = raw  # a save may have replaced the files meanwhile: then the index is another one
