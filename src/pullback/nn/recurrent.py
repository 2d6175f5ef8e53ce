"""LSTM, GRU and plain recurrent networks over sequences, as scans.

Sequences have their steps along the first axis, weights one row for each gate and feature that comes out, gates in
PyTorch's order. The input's contribution to all gates of all steps is one matrix product before the loop.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from ..arrays.call_site import attributed_to_caller
from ..arrays.spec import make_spec, spec_of, zeros
from ..arrays.trees import flatten, map_tree
from ..errors import ArgumentError, ShapeError
from ..ops.contract.matrix_products import matmul
from ..ops.dispatch import as_value, ndim, shape
from ..ops.elementwise import pointwise
from ..ops.fusion import fuse
from ..ops.shape import reshaping
from ..ops.shape.arrange import split
from ..ops.signatures import of_mixed_arrays
from ..transforms.control.scan import scan


def _affine(x: Any, weight: Any, bias: Any) -> Any:
    y = matmul(x, reshaping.matrix_transpose(weight))
    return y if bias is None else pointwise.add(y, bias)


def _split_gates(x: Any, count: int) -> Any:
    """The parts of the last axis, one for each gate."""
    width = shape(x)[-1] // count
    return split(x, [width * i for i in range(1, count)], axis=-1)


def _lstm_step(at: Any, state: tuple[Any, Any], weight: Any, bias: Any) -> tuple[Any, Any]:
    h, c = state
    i, f, g, o = _split_gates(pointwise.add(at, _affine(h, weight, bias)), 4)
    c = pointwise.sigmoid(f) * c + pointwise.sigmoid(i) * pointwise.tanh(g)
    return pointwise.sigmoid(o) * pointwise.tanh(c), c


def _gru_step(at: Any, h: Any, weight: Any, bias: Any) -> Any:
    r, z, n = _split_gates(at, 3)
    hr, hz, hn = _split_gates(_affine(h, weight, bias), 3)
    z = pointwise.sigmoid(z + hz)
    new = pointwise.tanh(n + pointwise.sigmoid(r + hr) * hn)
    return new + z * (h - new)


def _make_rnn_step(activation: Callable[[Any], Any]) -> Callable[..., Any]:
    return lambda at, h, weight, bias: activation(pointwise.add(at, _affine(h, weight, bias)))


@fuse
@attributed_to_caller
def lstm_cell(
    x: Any, state: tuple[Any, Any], w_input: Any, w_hidden: Any, bias: Any = None, bias_hidden: Any = None
) -> tuple[Any, Any]:
    """One step of `lstm`: (h, c) after x.

    >>> import numpy as np, pullback as pb
    >>> h, c = pb.nn.lstm_cell(np.ones(2), (np.zeros(3), np.zeros(3)), np.ones((12, 2)), np.ones((12, 3)))
    >>> h.shape, c.shape
    ((3,), (3,))
    """
    w_input, w_hidden = _check_weights("lstm_cell", x, w_input, w_hidden, 4)
    return _lstm_step(_affine(as_value(x), w_input, bias), state, w_hidden, bias_hidden)


@of_mixed_arrays
@fuse
@attributed_to_caller
def gru_cell(x: Any, h: Any, w_input: Any, w_hidden: Any, bias: Any = None, bias_hidden: Any = None) -> Any:
    """One step of `gru`: h after x.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.gru_cell(np.ones(2), np.zeros(3), np.ones((9, 2)), np.ones((9, 3))).shape
    (3,)
    """
    w_input, w_hidden = _check_weights("gru_cell", x, w_input, w_hidden, 3)
    return _gru_step(_affine(as_value(x), w_input, bias), as_value(h), w_hidden, bias_hidden)


@of_mixed_arrays
@fuse
@attributed_to_caller
def rnn_cell(
    x: Any, h: Any, w_input: Any, w_hidden: Any, bias: Any = None, bias_hidden: Any = None, *,
    activation: Callable[[Any], Any] = pointwise.tanh,
) -> Any:  # fmt: skip
    """One step of `rnn`: h after x.

    >>> import numpy as np, pullback as pb
    >>> pb.nn.rnn_cell(np.ones(2), np.zeros(3), np.ones((3, 2)), np.ones((3, 3))).round(3)
    array([0.964, 0.964, 0.964])
    """
    w_input, w_hidden = _check_weights("rnn_cell", x, w_input, w_hidden, 1)
    return _make_rnn_step(activation)(_affine(as_value(x), w_input, bias), as_value(h), w_hidden, bias_hidden)


@fuse
@attributed_to_caller
def lstm(
    x: Any, w_input: Any, w_hidden: Any, bias: Any = None, bias_hidden: Any = None, *, state: Any = None,
    lengths: Any = None, reverse: bool = False,
) -> tuple[Any, tuple[Any, Any]]:  # fmt: skip
    """A long short-term memory over x of shape (steps, ..., features): h of all steps, and the last (h, c).

    With gates i, f, g, o = x W^T + h U^T + biases, c' = sigmoid(f) c + sigmoid(i) tanh(g) and h' = sigmoid(o)
    tanh(c'). `state` is (h, c) to start from, zeros by default. `lengths` is the number of steps of each sequence of a
    batch: later ones return zeros and leave its state alone. `reverse` goes from the last step to the
    first.

    >>> import numpy as np, pullback as pb
    >>> hs, (h, c) = pb.nn.lstm(np.ones((5, 2, 3)), np.ones((16, 3)), np.ones((16, 4)))
    >>> hs.shape, h.shape
    ((5, 2, 4), (2, 4))
    """
    weights = w_input, w_hidden, bias, bias_hidden
    return _unroll("lstm", x, *weights, 4, _lstm_step, state, lengths, reverse)


@fuse
@attributed_to_caller
def gru(
    x: Any, w_input: Any, w_hidden: Any, bias: Any = None, bias_hidden: Any = None, *, state: Any = None,
    lengths: Any = None, reverse: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """Gated recurrent units over x of shape (steps, ..., features): h of all steps, and the last h.

    With r, z from x W^T + h U^T by a sigmoid and n = tanh(W_n x + r (U_n h)), h' = (1 - z) n + z h. See `lstm` for
    the rest.

    >>> import numpy as np, pullback as pb
    >>> hs, h = pb.nn.gru(np.ones((5, 2, 3)), np.ones((12, 3)), np.ones((12, 4)))
    >>> bool((hs[-1] == h).all())
    True
    """
    return _unroll("gru", x, w_input, w_hidden, bias, bias_hidden, 3, _gru_step, state, lengths, reverse)


@fuse
@attributed_to_caller
def rnn(
    x: Any, w_input: Any, w_hidden: Any, bias: Any = None, bias_hidden: Any = None, *,
    activation: Callable[[Any], Any] = pointwise.tanh, state: Any = None, lengths: Any = None, reverse: bool = False,
) -> tuple[Any, Any]:  # fmt: skip
    """h' = activation(x W^T + h U^T + biases) over x of shape (steps, ..., features). See `lstm` for the rest.

    >>> import numpy as np, pullback as pb
    >>> hs, h = pb.nn.rnn(np.ones((5, 3)), np.ones((4, 3)), np.ones((4, 4)))
    >>> hs.shape, h.shape
    ((5, 4), (4,))
    """
    step = _make_rnn_step(activation)
    return _unroll("rnn", x, w_input, w_hidden, bias, bias_hidden, 1, step, state, lengths, reverse)


def _check_weights(what: str, x: Any, w_input: Any, w_hidden: Any, gates: int) -> tuple[Any, Any]:
    x, w_input, w_hidden = as_value(x), as_value(w_input), as_value(w_hidden)
    rows = shape(w_hidden)[0] if ndim(w_hidden) == 2 else -1
    if ndim(w_input) != 2 or rows != gates * shape(w_hidden)[-1] or shape(w_input)[0] != rows:
        raise ShapeError(
            f"{what}: wants weights of shape ({gates} hidden, features) and ({gates} hidden, hidden), got "
            f"{shape(w_input)} and {shape(w_hidden)}."
        )
    if not ndim(x) or shape(x)[-1] != shape(w_input)[1]:
        raise ShapeError(f"{what}: x of shape {shape(x)} has other features than weights of shape {shape(w_input)}.")
    return w_input, w_hidden


def _unroll(
    what: str, x: Any, w_input: Any, w_hidden: Any, bias: Any, bias_hidden: Any, gates: int,
    step: Callable[..., Any], state: Any, lengths: Any, reverse: bool,
) -> tuple[Any, Any]:  # fmt: skip
    x = as_value(x)
    w_input, w_hidden = _check_weights(what, x, w_input, w_hidden, gates)
    if ndim(x) < 2:
        raise ShapeError(f"{what}: x has shape {shape(x)}, wanted (steps, ..., features).")
    at = _affine(x, w_input, bias)
    if state is None:
        spec = spec_of(at)
        empty = zeros(make_spec((*shape(x)[1:-1], shape(w_hidden)[-1]), spec.dtype, spec.device))
        state = (empty, empty) if gates == 4 else empty
    if gates == 4 and (not isinstance(state, (tuple, list)) or len(state) != 2):
        raise ArgumentError(f"{what}: state is a pair (h, c), got a {type(state).__name__}.")
    indices = np.arange(shape(x)[0])

    def scan_step(state: Any, row: Any) -> tuple[Any, Any]:
        at, number = row
        new = step(at, state, w_hidden, bias_hidden)
        h = flatten(new)[0][0]
        if lengths is None:
            return new, h
        goes = _step_mask(number, lengths, what, h)
        return map_tree(lambda n, s: pointwise.where(goes, n, s), new, state), pointwise.where(goes, h, 0)

    last, hs = scan(scan_step, tuple(state) if gates == 4 else state, (at, indices), reverse=reverse)
    return hs, last


def _step_mask(number: Any, lengths: Any, what: str, h: Any) -> Any:
    """Whether a step belongs to each sequence of a batch."""
    lengths = as_value(lengths)
    if shape(lengths) != shape(h)[:-1] or spec_of(lengths).dtype.kind not in "iu":
        raise ShapeError(f"{what}: lengths are integers of shape {shape(h)[:-1]}, got {spec_of(lengths)}.")
    return reshaping.expand_dims(pointwise.less(number, lengths), -1)
