"""Public functions in, calls of them with one argument replaced by something hostile out."""

import functools
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

T = pb.tensor(X, requires_grad=True)
CUBE = np.linspace(0.1, 0.8, 8).reshape(1, 1, 2, 2, 2)
WEIGHTS = {n: np.linspace(-0.5, 0.5, 4 * n).reshape(2 * n, 2) for n in (3, 4)}  # of gates, two hidden numbers each

#: Arguments of functions that accept none of these.
OWN = {
    "argmin": (lambda z, x: pb.sum((z - x) ** 2), X, X),
    "checkpoint_loop": (lambda i, c, p: pb.sin(c) * p, X, 2, X),
    "checkpoint_sequential": ([pb.sin, pb.cos], X, 2),
    "custom_op": (lambda x: x,),
    "fixed_point": (lambda z, x: 0.5 * pb.sin(z) + x, X, X),
    "gradients": (T, T),
    "index_reduce": (X, 0, I, X),
    "is_autocast_enabled": ("cpu",),
    "jit": (lambda x: pb.sum(x * x),),
    "least_squares": (lambda z, x: z * z - x, X, X),
    "linear_solve": (M, X[:2]),
    "nn.affine_grid": (np.ones((2, 2, 3)), (2, 1, 2, 2)),
    "nn.conv_transpose1d": (M[None], M[:, None]),
    "nn.ctc_loss": (np.log(np.full((4, 2, 3), 1 / 3)), np.array([[1, 1], [2, 1]])),
    "nn.embedding_bag": (np.array([[0, 1], [1, 1]]), M),
    "nn.create_block_mask": (lambda b, h, q, k: q >= k, None, None, 4, 4),
    "nn.flex_attention": (M[None, None], M[None, None], M[None, None]),
    "nn.fold": (np.ones((1, 4, 1)), (2, 2), (2, 2)),
    "nn.fractional_max_pool2d": (np.ones((1, 1, 4, 4)), 2, 2),
    "nn.fractional_max_pool3d": (np.ones((1, 1, 4, 4, 4)), 2, 2),
    "nn.gru": (M[None], WEIGHTS[3], WEIGHTS[3]),
    "nn.gru_cell": (M, M, WEIGHTS[3], WEIGHTS[3]),
    "nn.lp_pool3d": (CUBE, 2.0, 2),
    "nn.lstm": (M[None], WEIGHTS[4], WEIGHTS[4]),
    "nn.lstm_cell": (M, (M, M), WEIGHTS[4], WEIGHTS[4]),
    "nn.max_unpool1d": (M[None, :, :1], np.zeros((1, 2, 1), int), 2),
    "nn.max_unpool2d": (np.ones((1, 1, 1, 1)), np.zeros((1, 1, 1, 1), int), 2),
    "nn.max_unpool3d": (np.ones((1, 1, 1, 1, 1)), np.zeros((1, 1, 1, 1, 1), int), 2),
    "nn.multi_head_attention": (M[None], M[None], M[None], 2),
    "random.restore": (pb.random.state(),),
    "register_multi_grad_hook": ([T], lambda grads: None),
    "root": (lambda z, x: z * z - x, X, X),
    "scatter_reduce": (X, 0, I, X),
}
#: Keyword arguments that they want besides.
WITH = {
    "index_reduce": {"reduce": "sum"}, "scatter_reduce": {"reduce": "sum"},
    "nn.fractional_max_pool2d": {"key": KEY}, "nn.fractional_max_pool3d": {"key": KEY},
}  # fmt: skip
#: Functions that take nothing.
BARE = ("detect_anomaly", "enable_grad", "get_matmul_precision", "get_num_threads", "inference_mode",
        "is_deterministic", "is_grad_enabled", "no_grad", "profile", "random.state")  # fmt: skip


@functools.wraps(pb.jit)
def called_jit(f, **options):
    """A compiled function says what is wrong with its options when it is made, or when it is called."""
    return pb.jit(f, **options)(X)


@functools.wraps(pb.gradients)
def gradients_of_a_sum(outputs, inputs, *rest, **options):
    """A graph is gone when it was differentiated, so each call has one of its own."""
    return pb.gradients(pb.sum(T * T) if outputs is T else outputs, inputs, *rest, **options)


@functools.wraps(pb.register_tree)
def registered(kind, flatten, unflatten):
    """A class can be registered once, so each call has a class of its own where one is wanted."""
    return pb.register_tree(type("Tree", (), {}) if kind is Tree else kind, flatten, unflatten)


def in_a_batch(function):
    """What elements ask of each other is asked inside of a batch."""

    @functools.wraps(function)
    def asked(*args, **options):
        return pb.vmap(lambda x: function(*args, **options), axis_name="i")(X)

    return asked


class Tree:
    """Stands for a new class."""


#: Functions that are called in another manner, so that calls do not disturb each other and options are used.
CALLED = {pb.gradients: gradients_of_a_sum, pb.jit: called_jit, pb.register_tree: registered}
for name in ("sum", "mean", "max", "min", "gather", "permute", "index", "size"):
    function = getattr(pb, f"batch_{name}")
    CALLED[function] = in_a_batch(function)
    given = () if name in ("index", "size") else (X,)
    OWN[f"batch_{name}"] = (*given, "i", [(0, 1)]) if name == "permute" else (*given, "i")
OWN["register_tree"] = (Tree, lambda tree: ((), None), lambda aux, children: Tree())

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
    skipped = {
        "save",
        "save_async",
        "load",
        "load_metadata",
        "certify",
        "set_num_threads",
        "offload_to_disk",
        "memory_budget",
    }
    for prefix, space in SPACES.items():
        for name in getattr(space, "__all__", ()):
            found = getattr(space, name)
            if callable(found) and not inspect.isclass(found) and not inspect.ismodule(found) and name not in skipped:
                yield prefix + name, CALLED.get(found, found)


def quietly(call):
    with np.errstate(all="ignore"):
        return call()


def base_of(name, function):
    """Arguments that a function accepts, or None."""
    if name in BARE:
        return ()
    for args in [OWN[name]] if name in OWN else TEMPLATES:
        try:
            quietly(lambda args=args: function(*args, **WITH.get(name, {})))
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


def calls(name, function, base):
    """(what, call) for each place of the base arguments and each keyword, and each hostile value."""
    named = WITH.get(name, {})
    free = [n for n in keywords(function) if n not in positional(function, base)]
    for place, (what, value) in itertools.product(range(len(base)), HOSTILE.items()):
        args = (*base[:place], value, *base[place + 1 :])
        yield f"argument {place} {what}", lambda args=args: function(*args, **named)
    for key, (what, value) in itertools.product(free, HOSTILE.items()):
        yield f"{key}={what}", lambda key=key, value=value: function(*base, **{**named, key: value})


def positional(function, base):
    """The names of parameters that the base arguments fill."""
    try:
        return inspect.signature(function).bind_partial(*base).arguments.keys()
    except (TypeError, ValueError):
        return keywords(function)[: len(base)]
