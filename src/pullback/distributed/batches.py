"""`batches`: each rank's rows of the batches that all ranks take together; epochs end on all of them at once."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from ..arrays import tree
from ..arrays.argument_checks import check_count
from ..arrays.trees import flatten
from ..errors import ArgumentError
from ..ops import random
from ..ops.collective.collectives import largest
from ..ops.collective.world import current_world
from ..ops.index.indexing import take


class RankBatches:
    """What `pb.distributed.batches` returns: each loop over it is one epoch."""

    def __init__(self, data: Any, size: int, shuffle: bool, seed: int, own: bool) -> None:
        rows = {len(x) for x in flatten(data)[0]}
        if len(rows) != 1:
            raise ArgumentError(f"batches: wants arrays with as many rows each, got {sorted(rows)}.")
        self.size, self.shuffle, self.seed, self.own = check_count(size, "batches: size"), shuffle, seed, own
        self.epoch = 0
        self._data, self._rows = data, rows.pop()

    def __len__(self) -> int:
        """How many batches an epoch has, on every rank. Of ranks with data of their own, that of the longest."""
        count = -(-self._rows // self._own_size())
        return int(largest(np.array(count))) if self.own else count

    def __iter__(self) -> Iterator[Any]:
        order, epoch = self._order(), self.epoch
        self.epoch = epoch + 1
        world, step = current_world(), self._own_size()
        for number in range(len(self)):
            rows = order[number * step : (number + 1) * step]
            if not self.own:
                cuts = [len(rows) * r // world.size for r in (world.rank, world.rank + 1)]
                rows = rows[cuts[0] : cuts[1]]
            yield tree.map(lambda x, rows=rows: take(x, rows, axis=0), self._data)

    def _own_size(self) -> int:
        """Rows of a batch that are taken from the data here."""
        return -(-self.size // current_world().size) if self.own else self.size

    def _order(self) -> Any:
        if not self.shuffle:
            return np.arange(self._rows)
        key = random.fold_in(random.key(self.seed), self.epoch)
        key = random.fold_in(key, current_world().rank) if self.own else key
        return np.asarray(random.permutation(self._rows, key=key))


def batches(data: Any, size: int, *, shuffle: bool = True, seed: int = 0, own: bool = False) -> RankBatches:
    """This rank's rows of batches of `size` rows that all ranks take together. All ranks have the same `data` (a tree
    of arrays with as many rows each), and every batch is divided evenly among them, in one order for all. Or each rank
    has data of its `own`, of any length: epochs then last as long as the longest, and a rank that has no rows left gets
    empty batches. Either way all ranks take as many steps, and a loss that divides the total of errors by the total of
    counts (`data_parallel`) weighs every sample alike.

    >>> import numpy as np, pullback as pb
    >>> def rows():
    ...     return [batch.tolist() for batch in pb.distributed.batches(np.arange(5), 3, shuffle=False)]
    >>> pb.distributed.run(rows, 2)
    [[[0], [3]], [[1, 2], [4]]]
    """
    return RankBatches(data, size, shuffle, seed, own)
