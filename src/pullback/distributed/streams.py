"""Random numbers over ranks: a key that all of them share, and one of each rank's own; and the same for the stream."""

from __future__ import annotations

from typing import Any

from ..ops import random
from ..ops.collective.world import current_world


def key(seed: int, *, common: bool = False) -> Any:
    """A key for random numbers: of this rank's own, for dropout, noise or augmentation; or, if it is to be `common`,
    the same on all ranks, for initial parameters or the order of samples.

    >>> import pullback as pb
    >>> def draw():
    ...     own, common = pb.distributed.key(0), pb.distributed.key(0, common=True)
    ...     return float(pb.random.normal(key=own)), float(pb.random.normal(key=common))
    >>> (a, c), (b, d) = pb.distributed.run(draw, 2)
    >>> a != b, c == d
    (True, True)
    """
    found = random.key(seed)
    return found if common else random.fold_in(found, current_world().rank)


def seed(seed: int, *, common: bool = False) -> None:
    """Seed the stream that `pb.random` draws from without a key: for this rank alone, or alike on all ranks. Ranks that
    are threads share one stream; give them keys.

    >>> import pullback as pb
    >>> pb.distributed.seed(0, common=True)  # before a model is made
    >>> pb.distributed.seed(1)  # before it is trained, for dropout
    """
    random.seed(seed if common else int(random.bits(key=key(seed))))
