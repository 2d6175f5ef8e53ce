"""`check_replicas`: whether ranks have in common what they should."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..arrays.trees import flatten, leaf_paths
from ..ops.collective.agreement import replicas_op
from ..ops.collective.world import current_world
from ..ops.concrete import strip_derivatives
from ..ops.dispatch import apply, as_value


def check_replicas(tree: Any) -> None:
    """Raise `pb.errors.ReplicaDriftError` on all ranks if any leaf of a tree, such as a model's parameters, has other
    bits on one rank than on another; leaves and ranks are named. Sixteen bytes a leaf are sent.

    >>> import numpy as np, pullback as pb
    >>> pb.distributed.run(lambda: pb.distributed.check_replicas({"w": np.ones(3)}), 2)
    [None, None]
    >>> pb.distributed.run(lambda: pb.distributed.check_replicas({"w": pb.distributed.rank() * 1.0}), 2)
    Traceback (most recent call last):
    pullback.errors.ReplicaDriftError: values that all ranks should have in common differ:
      ['w']: rank 0 differs from rank 1
    ...
    """
    leaves, structure = flatten(tree)
    values = [strip_derivatives(as_value(x)) for x in leaves]
    names = tuple(path or "the value" for path in leaf_paths(structure))
    if leaves:
        apply(replicas_op, np.array(0), *values, ranks=current_world().size, every=1, names=names)
