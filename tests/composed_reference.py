"""Plain NumPy for the forms that NumPy has no function for; it shares no code with the package."""

import numpy as np

__all__ = [
    "add_at", "branch", "conv1d", "correlated", "fori", "gathered_rows", "layer_norm", "log_softmax", "logsumexp",
    "map_rows", "pool1d", "pool2d", "put_along", "recurrence", "scan", "scan_rows", "scan_with", "segment_sum",
    "set_at", "set_mask", "sigmoid", "softmax", "switched", "topk", "while_halved", "while_pair",
]  # fmt: skip


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def logsumexp(x, axis=None, keepdims=False):
    top = np.max(x, axis=axis, keepdims=True)
    found = np.log(np.sum(np.exp(x - top), axis=axis, keepdims=True)) + top
    return found if keepdims else np.squeeze(found, axis=axis)


def softmax(x, axis):
    e = np.exp(x - np.max(x, axis=axis, keepdims=True))
    return e / np.sum(e, axis=axis, keepdims=True)


def log_softmax(x, axis):
    return x - logsumexp(x, axis, True)


def layer_norm(x):
    centered = x - np.mean(x, axis=-1, keepdims=True)
    return centered / np.sqrt(np.mean(centered**2, axis=-1, keepdims=True) + np.asarray(1e-5, x.dtype))


def add_at(x, index, values):
    x = np.array(x)
    np.add.at(x, index, values)
    return x


def set_at(x, index, values):
    x = np.array(x)
    x[index] = values
    return x


def set_mask(x, mask, value):
    return np.where(mask, np.asarray(value, x.dtype), x)


def put_along(x, indices, values, axis):
    x = np.array(x)
    np.put_along_axis(x, indices, values, axis)
    return x


def segment_sum(x, segments, count):
    return add_at(np.zeros((count, *x.shape[1:]), x.dtype), (segments,), x)


def topk(x, k):
    return np.flip(np.sort(x, axis=-1), axis=-1)[..., :k]


def pool1d(x, fold, size, stride, padding=0):
    """Of (n, c, width); `fold` is np.max, which padding never wins, or np.mean, which counts it."""
    empty = -np.inf if fold is np.max else 0.0
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)), constant_values=empty)
    starts = range(0, x.shape[-1] - size + 1, stride)
    return np.stack([fold(x[..., s : s + size], axis=-1) for s in starts], axis=-1)


def pool2d(x, fold, size, stride):
    """Of (n, c, height, width): what lies at each place of a window, for all windows at once."""
    rows, columns = ((n - size) // stride + 1 for n in x.shape[-2:])
    places = [
        x[..., r : r + (rows - 1) * stride + 1 : stride, c : c + (columns - 1) * stride + 1 : stride]
        for r in range(size)
        for c in range(size)
    ]
    return fold(np.stack(places, axis=-1), axis=-1)


def conv1d(x, weight, padding):
    x = np.pad(x, ((0, 0), (0, 0), (padding, padding)))
    size = weight.shape[-1]
    starts = range(x.shape[-1] - size + 1)
    return np.stack([np.einsum("ncw,fcw->nf", x[..., s : s + size], weight) for s in starts], axis=-1)


def correlated(x, taps):
    """Sums of neighbours along the last axis, weighed by a tuple of numbers."""
    count = x.shape[-1] - len(taps) + 1
    return sum(np.asarray(t, x.dtype) * x[..., i : i + count] for i, t in enumerate(taps))


def recurrence(a, b):
    out, y = np.zeros_like(b), np.zeros_like(b[..., 0])
    for i in range(b.shape[-1]):
        y = out[..., i] = a[..., i] * y + b[..., i]
    return out


def scan(x):
    """The carry is a row: c <- c / 2 + r, and c * r is stacked."""
    carry, rows = np.zeros_like(x[0]), []
    for row in x:
        rows.append(carry * row)
        carry = carry * x.dtype.type(0.5) + row
    return np.stack(rows) + carry


def scan_with(x, y):
    """The same with a value from outside of the loop in each round."""
    carry, rows = np.zeros_like(x[0]), []
    for row in x:
        carry = np.tanh(carry + row) + y
        rows.append(carry)
    return np.stack(rows)


def scan_rows(x):
    """Each round folds its row and spreads the sum again."""
    carry, rows = np.zeros((), x.dtype), []
    for row in x:
        carry = carry * x.dtype.type(0.5) + np.sum(row)
        rows.append(row - carry)
    return np.stack(rows)


def gathered_rows(x):
    total = np.zeros_like(x[0])
    for i in range(x.shape[0]):
        total = total * x.dtype.type(0.5) + x[i]
    return total


def fori(x, rounds):
    c = x
    for _ in range(rounds):
        c = np.sin(c) + x * x.dtype.type(0.5)
    return c


def while_halved(x):
    while np.sum(np.abs(x)) > 1:
        x = x * x.dtype.type(0.5)
    return x


def while_pair(x):
    y, total = x, np.zeros_like(x)
    while np.sum(np.abs(y)) > 1:
        y, total = y * x.dtype.type(0.25), total + y
    return total


def map_rows(x):
    return np.stack([row - np.sum(row) for row in x])


def branch(x):
    return x * x.dtype.type(2) if np.sum(x) > 0 else np.tanh(x)


def switched(i, x):
    return (np.sin(x), x * x, -x)[int(i)]
