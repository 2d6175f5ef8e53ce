"""`shrink`: the ranks that are left when one is lost go on as a world of their own."""

from __future__ import annotations

from typing import Any

from ..errors import RankLostError, WorldError
from ..ops.collective.world import CANNOT_SHRINK, current_world
from ..settings import set_process_rank
from .job_reports import least_ranks
from .start import _Exit


def shrink() -> None:
    """Go on without ranks that were lost: once a collective has raised `pb.errors.RankLostError` since a process died,
    all ranks that are left call this, and are a world of their own, with new numbers from 0 in the order they had.
    Compiled functions are traced anew for it. It returns on all of them or raises on all of them.

    Ranks may have left the step that failed at different places: take parameters from the last checkpoint, or from one
    rank by `broadcast`, and make anew what has a share of each rank, such as the state of `sharded`.

    Ranks of one machine need nothing for that but the memory that they share; those of several, an MPI that goes on
    after a loss (Open MPI, as `pullback run` starts it). Where that is not so it raises `pb.errors.WorldError`, as it
    does if a rank ended by an error of the program, or if fewer are left than `pullback run --elastic` wants.

    >>> import pullback as pb
    >>> def train_on(path):
    ...     while True:
    ...         try:
    ...             return train(path)  # which loads the last checkpoint, if there is one
    ...         except pb.errors.RankLostError:
    ...             pb.distributed.shrink()
    """
    world: Any = current_world()
    if world.size == 1:
        raise WorldError("shrink: this process is no rank among others.")
    if world is not _Exit.world:
        world.shrink()  # threads, which say why they cannot
        raise WorldError(CANNOT_SHRINK)
    if not isinstance(world.error, RankLostError):
        raise WorldError(
            f"shrink: no rank is lost, {_describe(world.error)}.\n"
            "  Call it where a collective has raised pb.errors.RankLostError, on all ranks that are left."
        )
    left, members = world.shrink()
    _Exit.replace(left, members)
    set_process_rank(left if left.size > 1 else None)
    if left.size < (least := least_ranks()):
        error = WorldError(f"shrink: of {world.size} ranks {left.size} are left, and the job wants {least} at least.")
        left.fail(error)
        raise error


def _describe(error: WorldError | None) -> str:
    return "as far as this one knows" if error is None else f"the world came apart by {type(error).__name__}"
