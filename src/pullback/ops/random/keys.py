"""Random keys: made from seeds, split and folded; and the public functions of the default generator."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING, Any

import numpy as np

from ...arrays.argument_checks import short_repr
from ...arrays.call_site import format_line, user_line
from ...arrays.devices import normalize_device
from ...arrays.scope import current_scope
from ...arrays.spec import Spec, make_spec, spec_of
from ...errors import ArgumentError, ArgumentTypeError, DtypeError
from .. import batching, statics
from ..axes import as_integer
from ..dispatch import apply, as_value, counts_as_number
from ..families import broadcast_shape, general
from ..forms import Expand
from ..placement import move
from ..replay import default_stream
from ..replay.default_stream import State
from ..signatures import of_array
from .expansions import MAX_EXPANDED, expand_fold_in, expand_split
from .threefry import FOLDS, SPLITS, generate_words, key_batch_shape, sample_key, threefry

if TYPE_CHECKING:
    from numpy.typing import NDArray

_UINT32 = np.dtype("uint32")


_split = general(
    "split_key",
    statics={"count": statics.integer(0)},
    value=lambda xp, key, count: generate_words(xp, key, count, SPLITS),
    spec=lambda key, count: make_spec((*key_batch_shape(key), count, 2), _UINT32, key.device),
    form=Expand(lambda key, count: expand_split(key, count) if count <= MAX_EXPANDED else None),
    samples=lambda rng: [((sample_key(rng),), {"count": count}) for count in (3, 0)],
)


def _fold_value(xp: Any, key: Any, data: Any) -> Any:
    """The two words at the counter `data`; negative numbers count down from 2^60."""
    number = xp.asarray(data).astype("int64").reshape(*np.shape(data), 1)
    low = (number & 0xFFFFFFFF).astype("uint32")
    high = ((number >> 32) & 0x0FFFFFFF).astype("uint32") | xp.uint32(FOLDS)
    return xp.concatenate(threefry(xp, (key[..., :1], key[..., 1:]), (high, low)), axis=-1)


def _batch_fold(op: Any, size: int, args: Any, axes: Any, static: dict[str, Any]) -> tuple[Any, int]:
    key, data = args
    ranks = [len(spec_of(x).shape) - (axis is not None) for x, axis in zip(args, axes, strict=True)]
    rank = max(ranks[0] - 1, ranks[1])
    return apply(op, batching.align_rank(key, axes[0], rank + 1), batching.align_rank(data, axes[1], rank)), 0


def _fold_spec(key: Spec, data: Spec) -> Spec:
    return make_spec((*broadcast_shape("fold_in", key_batch_shape(key), data.shape), 2), _UINT32, key.device)


_fold_in = general(
    "fold_in",
    value=_fold_value,
    spec=_fold_spec,
    batch=_batch_fold,
    form=Expand(expand_fold_in),
    samples=lambda rng: [((sample_key(rng), data), {}) for data in (np.asarray(5), np.arange(3))],
)


def key(seed: int, /) -> NDArray[np.uint32]:
    """A key, from which numbers and further keys are derived: an array of two words.

    >>> import pullback as pb
    >>> pb.random.key(7)
    array([0, 7], dtype=uint32)
    """
    if isinstance(seed, bool) or not isinstance(seed, int | np.integer):
        raise ArgumentError(f"random.key: a seed must be an integer, got {seed!r}.")
    bits = int(seed) & (2**64 - 1)
    return np.array([bits >> 32, bits & 0xFFFFFFFF], _UINT32)


def check_key(key: Any, what: str) -> Any:
    """Check that an argument is a key."""
    if isinstance(key, (np.random.Generator, np.random.RandomState)):
        raise ArgumentTypeError(
            f"random.{what}: key is a {type(key).__name__} of NumPy.\n"
            "  Keys are made by pb.random.key(seed); without key= the default generator is used (pb.random.seed)."
        )
    key = as_value(key)
    key_batch_shape(spec_of(key), f"random.{what}")
    return key


def refuse_key(x: Any, what: str, place: str) -> Any:
    """Refuse a key in place of a parameter: in `normal(key, (3,))` the key would be taken for numbers."""
    dtype = getattr(x, "dtype", None)
    shape: tuple[int, ...] = getattr(x, "shape", ())
    if dtype is not None and dtype == _UINT32 and len(shape) and shape[-1] == 2:
        raise ArgumentTypeError(
            f"random.{what}: {place} is an array like a key, uint32 of shape {tuple(shape)}.\n"
            f"  Pass a key by keyword: pb.random.{what}(..., key=key); pass numbers as another dtype."
        )
    return x


@of_array
def split(key: Any, num: int = 2) -> Any:
    """Independent new keys, one per row. A key that was split, or used to draw, should not be used again.

    >>> import pullback as pb
    >>> first, second = pb.random.split(pb.random.key(0))
    >>> bool((first == second).all())
    False
    """
    count = as_integer(num, "random.split: num")
    if count < 0:
        raise ArgumentError(f"random.split: num must not be negative, got {count}.")
    return apply(_split, check_key(key, "split"), count=count)


@of_array
def fold_in(key: Any, data: Any) -> Any:
    """A new key from a key and an integer, such as a step or an index; one for each element of an array, on its device.

    >>> import pullback as pb
    >>> pb.random.fold_in(pb.random.key(0), 3).shape
    (2,)
    """
    number = as_value(data)
    if spec_of(number).dtype.kind not in "iu":
        raise DtypeError(f"random.fold_in: data must be an integer or an array of integers, got {spec_of(number)}.")
    key = check_key(key, "fold_in")
    return apply(_fold_in, key if counts_as_number(spec_of(number)) else move(key, spec_of(number).device), number)


def seed(number: int, /) -> None:
    """Restart the default generator: the same seed gives the same numbers, eager, staged or recomputed.

    >>> import pullback as pb
    >>> pb.random.seed(0)
    >>> first = pb.random.normal()
    >>> pb.random.seed(0)
    >>> bool(first == pb.random.normal())
    True
    """
    high, low = key(number).tolist()
    restore(State((high, low), 0))


def state() -> State:
    """What `restore` needs to continue from here.

    >>> import pullback as pb
    >>> pb.random.seed(3)
    >>> pb.random.state()
    State(words=(0, 3), drawn=0)
    """
    return default_stream.read_state()


def restore(state: State, /) -> None:
    """Set the default generator to a state returned by `state()`.

    >>> import pullback as pb
    >>> before = pb.random.state()
    >>> first = pb.random.uniform()
    >>> pb.random.restore(before)
    >>> bool(first == pb.random.uniform())
    True
    """
    try:
        (high, low), drawn = state
        restored = State((int(high), int(low)), int(drawn))
    except (TypeError, ValueError):
        raise ArgumentTypeError(
            f"random.restore: expected a result of pb.random.state(), got {short_repr(state)}."
        ) from None
    default_stream.write_state(restored)


def next_key() -> Any:
    """The default generator's next key."""
    scope = current_scope()
    if scope is not None and any(s.name == "jit" for s in scope.and_enclosing()):
        raise ArgumentError(
            "random: a compiled function draws from keys that it is given; without one each call would repeat the same "
            f"numbers.\n  at {format_line(*user_line(sys._getframe(1)))}\n"
            "  Pass a key in: f(x, key) with pb.random.normal(..., key=key), and pb.random.split(key) for each call."
        )
    now = default_stream.next_state()
    return fold_in(np.array(now.words, _UINT32), now.drawn)


def key_on_device(key: Any, device: Any, what: str) -> Any:
    """The given key, or the next of the default generator, on a device; None is the key's own."""
    found = next_key() if key is None else check_key(key, what)
    return found if device is None else move(found, normalize_device(device, f"random.{what}"))
