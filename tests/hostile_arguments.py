"""Public functions in, calls of them with one argument replaced by something hostile out."""

import inspect
import itertools
import math

import numpy as np

import pullback as pb

X = np.array([0.3, 0.6, 0.9])
M = np.array([[2.0, 0.5], [0.5, 1.0]])
I = np.array([0, 1, 1])  # noqa: E741
B = np.array([True, False, True])
KEY = pb.random.key(0)

#: Arguments to try, from the simplest on, until a function accepts some.
TEMPLATES = [
    (X,), (M,), (X, X), (M, M), (X, I), (I,), (I, I), ([X, X],), (X, 1), (2,), (X, (3,)), (B, X, X), (X, B), (B,),
    (X, 0, 1), (X, X, X), (X, I, X), (M, X[:2]), (np.sin,), (pb.sum, X), (lambda x: pb.sum(x * x), (X,), (X,)),
    (X, 2, 1), (M, 0, 1), ("ij->ji", M), (M[None, None], M[None, None]), (M[None],), (M[None, None], 2), (X, I, 3),
    (lambda x: x * 0.5 + 1.0, 1.0), (M[None], M[None], M[None]), (X, 0.5), (2, 0.5), (M, 2), ((3,), (1,)), (3, 2),
    (X[:1], X[:1], X[:1], X[:1]), (KEY,), (KEY, 2), (0, X), ("float32", "float64"), ("float32",), ("int8", "integral"),
    (X, 0, I, X), (X, "float32"), (lambda c, x: (c + x, c), 0.0, X), (pb.add, X), (lambda x: x, X),
    (True, lambda: X, lambda: X), (0, [lambda: X]), (0, 3, lambda i, c: c + 1.0, 0.0),
    (lambda c: c < 3, lambda c: c + 1, 0.0), ([B], [X], 0.0), (X, [B], [np.sin]), (pb.sum, 0, M), (M[None, None], 1),
    (M, "a b -> b a"), (M, "a b -> a", "sum"), (X, "a -> a b"), (I, M), (X, B, 0.0), (X, B, X), (X, 0, I, X, "sum"),
    (M[None], M[None][:, :, :1]), (M[None, None, None], M[None, None, None]), (M[None], 2.0, 2),
    (M[None, None], 2.0, 2),
    (M[None, None, None], 2.0, 2), ([np.sin, np.cos], X), (pb.sin, pb.sum, (X,), (X,)), (pb.sin, (X,), ((X,),)),
    (M, M, M), (M, M, M, M), (M, M, M, M, X[:2], X[:2]), (M[None], (1, 1, 2, 2)), (M, (2, 2), (1, 1)),
    ([0], [1]), (X, 0, I, 5.0), (X, 0, I, X, "mean"), (M, ((0, 0), (1, 1))), (X, 0, (3, 1)), (M, (1,), (1,)),
]  # fmt: skip

HOSTILE = {
    "None": None,
    "number": 3.5,
    "negative": -7,
    "nan": math.nan,
    "text": "abc",
    "empty tuple": (),
    "empty list": [],
    "tuple": (0, 99),
    "dict": {"a": 1},
    "object": object(),
    "function": len,
    "texts": np.array(["a", "b"]),
    "objects": np.array([None, {}], dtype=object),
    "ragged": [[1.0], [1.0, 2.0]],
    "no axes": np.array(1.0),
    "no elements": np.zeros((0, 2)),
    "many axes": np.zeros((1,) * 9),
    "booleans": np.array([True, False]),
    "complex": np.array([1j, 2.0]),
    "dates": np.array(["2020-01-01"], dtype="datetime64[D]"),
    "tensor": pb.tensor([1.0, 2.0], requires_grad=True),
}

SPACES = {"": pb, "linalg.": pb.linalg, "fft.": pb.fft, "random.": pb.random, "special.": pb.special, "nn.": pb.nn,
          "einops.": pb.einops}  # fmt: skip


def functions():
    """Every public function by its name; classes, modules, constants and what touches files or processes are not."""
    skipped = {"save", "load", "load_metadata", "certify", "set_num_threads", "offload_to_disk", "memory_budget"}
    for prefix, space in SPACES.items():
        for name in getattr(space, "__all__", ()):
            found = getattr(space, name)
            if callable(found) and not inspect.isclass(found) and not inspect.ismodule(found) and name not in skipped:
                yield prefix + name, found


def quietly(call):
    with np.errstate(all="ignore"):
        return call()


def base_of(function):
    """Arguments that a function accepts, or None."""
    for args in TEMPLATES:
        try:
            quietly(lambda args=args: function(*args))
        except Exception:
            continue
        return args
    return None


def keywords(function):
    try:
        parameters = inspect.signature(function).parameters.values()
    except ValueError:
        return []
    return [p.name for p in parameters if p.kind is p.KEYWORD_ONLY or (p.kind is p.POSITIONAL_OR_KEYWORD)]


def calls(function, base):
    """(what, call) for each place of the base arguments and each keyword, and each hostile value."""
    names = keywords(function)
    free = names[len(base) :]
    for place, (what, value) in itertools.product(range(len(base)), HOSTILE.items()):
        args = (*base[:place], value, *base[place + 1 :])
        yield f"argument {place} {what}", lambda args=args: function(*args)
    for name, (what, value) in itertools.product(free, HOSTILE.items()):
        yield f"{name}={what}", lambda name=name, value=value: function(*base, **{name: value})
