"""`batches`: arrays in shuffled batches, epoch after epoch, reproducible and resumable."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Generator, Iterator, Mapping
from typing import Any, final

import numpy as np

from ..arrays import tree
from ..arrays.argument_checks import explains_arguments, short_repr
from ..arrays.backends import device_context, is_array, namespace_on
from ..arrays.devices import normalize_device
from ..arrays.spec import spec_of
from ..arrays.value import Value
from ..errors import ArgumentError, ArgumentTypeError, ShapeError
from ..ops import random
from ..ops.index.indexing import take
from ..ops.shape.arrange import stack
from .feeding import feed_ahead, pin_batch, place_batch
from .prefetch import prefetch_items

#: Seconds between two lines of progress.
_BETWEEN_LINES = 0.1


@final
class Batches:
    """What `pb.data.batches` returns: each loop over it is one epoch."""

    def __init__(
        self, data: Any, size: int, shuffle: bool, seed: int, drop_last: bool, prefetch: int, progress: Any, device: Any
    ) -> None:  # fmt: skip
        self.size, self.shuffle, self.seed = _positive(size, "size"), shuffle, seed
        self.drop_last, self.prefetch, self.progress = drop_last, _positive(prefetch, "prefetch", 0), progress
        #: The number of rows in all batches together.
        self.rows, self._read = _open_data(data)
        #: Where the batches lie; None is where their data does.
        self.device = None if device is None else normalize_device(device, "batches")
        #: The number of the epoch, and how many of its batches have been handed out.
        self.epoch = self.batch = 0
        self._is_resumed = False

    def __len__(self) -> int:
        return self.rows // self.size if self.drop_last else -(-self.rows // self.size)

    def __repr__(self) -> str:
        return f"<{len(self)} batches of {self.size} from {self.rows} rows, epoch {self.epoch}>"

    def __iter__(self) -> Iterator[Any]:
        if not self._is_resumed and self.batch:
            self.epoch, self.batch = self.epoch + 1, 0
        self._is_resumed = False
        made: Generator[Any, None, None] = self._make_batches(self.epoch, self.batch)
        if self.prefetch:
            made = prefetch_items(made, self.prefetch)
            if self._is_fed_ahead:
                made = feed_ahead(made, str(self.device), made.close)
        return self._hand_out(made)

    @property
    def _is_fed_ahead(self) -> bool:
        return bool(self.prefetch) and self.device not in (None, "cpu")

    def _make_batches(self, epoch: int, first: int) -> Generator[Any, None, None]:
        order = self._order(epoch)
        for number in range(first, len(self)):
            start = number * self.size
            batch = self._read(order[start : start + self.size])
            if self._is_fed_ahead:
                yield pin_batch(batch)
            else:
                yield batch if self.device is None else place_batch(batch, self.device)

    def _order(self, epoch: int) -> Any:
        """The rows in the order of an epoch, which depends on the seed and the epoch alone."""
        if not self.shuffle:
            return np.arange(self.rows)
        return np.asarray(random.permutation(self.rows, key=random.fold_in(random.key(self.seed), epoch)))

    def _hand_out(self, made: Any) -> Generator[Any, None, None]:
        report = _make_report(self.progress, self.epoch, len(self))
        try:
            for item in made:
                self.batch += 1  # before the loop's body, which may save the state
                yield item
                report(self.batch)
        finally:
            made.close()
            report(-1)

    def state_dict(self) -> dict[str, int]:
        """Where the loop is: what `load_state_dict` needs to go on with the next batch.

        >>> import numpy as np, pullback as pb
        >>> loader = pb.data.batches(np.arange(6), 2, shuffle=False)
        >>> _ = next(iter(loader))
        >>> loader.state_dict()
        {'seed': 0, 'epoch': 0, 'batch': 1}
        """
        return {"seed": self.seed, "epoch": self.epoch, "batch": self.batch}

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on where a loader over the same data was: the next loop hands out the rest of its epoch.

        >>> import numpy as np, pullback as pb
        >>> loader = pb.data.batches(np.arange(6), 2, shuffle=False)
        >>> loader.load_state_dict({"seed": 0, "epoch": 3, "batch": 2})
        >>> [batch.tolist() for batch in loader]
        [[4, 5]]
        """
        if not isinstance(state, Mapping) or not {"seed", "epoch", "batch"} <= set(state):
            raise ArgumentError("load_state_dict: wants what state_dict returned: seed, epoch and batch.")
        seed, epoch, batch = (int(state[name]) for name in ("seed", "epoch", "batch"))
        if not 0 <= batch <= len(self) or epoch < 0:
            raise ArgumentError(f"load_state_dict: there is no batch {batch} of {len(self)} in epoch {epoch}.")
        if batch == len(self):
            epoch, batch = epoch + 1, 0
        self.seed, self.epoch, self.batch, self._is_resumed = seed, epoch, batch, True


@explains_arguments("batches")
def batches(
    data: Any,
    size: int,
    shuffle: bool = True,
    seed: int = 0,
    drop_last: bool = False,
    prefetch: int = 0,
    progress: bool | Callable[[int, int], Any] = False,
    device: Any = None,
) -> Batches:
    """The rows of some arrays in batches: each loop over the result is one epoch, in an order of its own.

    `data` is an array, a tree of arrays with as many rows (a tuple, a dict), or any object with `len()` and indices,
    whose items are stacked. The order of an epoch depends on `seed` and its number alone. `prefetch` batches are
    made ahead in a thread. `progress` shows a line on the terminal, or is a function of (batches done, all batches).
    With a `device` batches come on it; with `prefetch` too, they are copied from pinned memory beside the step before.

    >>> import numpy as np, pullback as pb
    >>> x, y = np.arange(10.0).reshape(5, 2), np.arange(5)
    >>> for epoch in range(2):
    ...     print([labels.tolist() for images, labels in pb.data.batches((x, y), 2, shuffle=False)])
    [[0, 1], [2, 3], [4]]
    [[0, 1], [2, 3], [4]]
    >>> loader = pb.data.batches({"x": x, "y": y}, 2, seed=1, drop_last=True)
    >>> len(loader), next(iter(loader))["x"].shape
    (2, (2, 2))
    """
    return Batches(data, size, shuffle, seed, drop_last, prefetch, progress, device)


def _positive(number: Any, what: str, least: int = 1) -> int:
    if not isinstance(number, (int, np.integer)) or isinstance(number, bool) or number < least:
        raise ArgumentTypeError(f"batches: {what} is an integer, {least} or more, got {short_repr(number)}.")
    return int(number)


def _open_data(data: Any) -> tuple[int, Callable[[Any], Any]]:
    """The number of rows, and the function that reads some of them."""
    leaves, structure = tree.flatten(data)
    if leaves and all(isinstance(x, Value) or is_array(x) for x in leaves):
        shapes = [spec_of(x).shape for x in leaves]
        if not all(shapes) or len({shape[0] for shape in shapes}) > 1:
            shown = ", ".join(map(str, shapes))
            raise ShapeError(f"batches: the arrays should have as many rows, got shapes {shown}.")
        return shapes[0][0], lambda rows: tree.unflatten(structure, [_read_rows(x, rows) for x in leaves])
    is_dataset = len(leaves) == 1 and leaves[0] is data and hasattr(data, "__getitem__") and hasattr(data, "__len__")
    if not is_dataset or isinstance(data, (str, bytes)):
        raise ArgumentTypeError(
            f"batches: wants arrays, a tree of arrays, or an object with len() and indices, got {short_repr(data)}.\n"
            "  Make arrays of lists of numbers: np.array(rows)."
        )
    return len(data), lambda rows: _join_items([data[int(i)] for i in rows])


def _read_rows(x: Any, rows: Any) -> Any:
    """A copy of some rows, on the device of the array."""
    if isinstance(x, Value):
        return take(x, rows, axis=0)
    device = spec_of(x).device
    with device_context(device):
        return x[namespace_on(device).asarray(rows)]


def _join_items(items: list[Any]) -> Any:
    return tree.map(lambda *leaves: _stack(leaves), *items)


def _stack(leaves: tuple[Any, ...]) -> Any:
    if isinstance(leaves[0], Value):
        return stack(leaves)
    return namespace_on(spec_of(leaves[0]).device if is_array(leaves[0]) else "cpu").stack(leaves)


def _make_report(progress: Any, epoch: int, count: int) -> Callable[[int], None]:
    """A function that is called with the number of batches done, and with -1 at the end."""
    if not progress:
        return lambda done: None
    if callable(progress):
        return lambda done: None if done < 0 else progress(done, count)
    began, shown, latest = time.monotonic(), -1.0, 0

    def report(done: int) -> None:
        nonlocal shown, latest
        now, is_last = time.monotonic(), done < 0
        latest = latest if is_last else done
        if is_last or now - shown > _BETWEEN_LINES:
            shown = now
            line = f"\repoch {epoch}: batch {latest} of {count}, {now - began:.1f} s"
            print(line, end="\n" if is_last else "", file=sys.stderr, flush=True)

    return report
