"""The backward pass through one op on 1,000 x 1,000 arrays: pullback, NumPy by hand, PyTorch, HIPS autograd.

The graph is built once; what is timed is one pass back. The last line is what a call with keywords costs over NumPy.
"""

import math
from time import perf_counter

import numpy as np
from contest import OURS, bare, machine, race, start

import pullback as pb
from pullback.tape.backward import sweep
from pullback.tape.cotangents import strip_mask

HAND, TORCH, HIPS = "NumPy by hand", "PyTorch", "HIPS autograd"
N = 1000
rng = np.random.default_rng(0)
X, Y = rng.normal(size=(2, N, N))
ROWS, TWICE = rng.permutation(N)[:500], rng.integers(0, N, size=N)
MASK = X > 0.3
PLACES = rng.integers(0, N, size=(N, N))
ORDER = np.argsort(X, axis=1)


def added(shape, index, bar):
    out = np.zeros(shape)
    np.add.at(out, index, bar)
    return out


def written(shape, index, bar):
    out = np.zeros(shape)
    out[index] = bar
    return out


def along(bar, places):
    out = np.zeros((N, N))
    np.put_along_axis(out, places, bar, axis=1)
    return out


def summed_along(bar, places):
    out = np.zeros((N, N))
    np.add.at(out, (np.arange(N)[:, None], places), bar)
    return out


def extreme(axis):
    out = np.max(X, axis=axis, keepdims=True)

    def pull(bar):
        chosen = out == X
        return chosen * (np.expand_dims(bar, axis) / chosen.sum(axis=axis, keepdims=True))

    return pull


# name: (function of (library, x), pull by hand); PyTorch and autograd are given the same function where it fits them.
def cases():
    spread = np.exp(X - X.max(axis=1, keepdims=True))
    softmax = spread / spread.sum(axis=1, keepdims=True)
    near_one = 1 + 0.01 * X
    whole = near_one.prod(axis=1, keepdims=True)
    running = np.cumprod(near_one, axis=1)
    wide = np.broadcast_to
    return {
        "sum axis 0": (lambda m, x: m.sum(x, axis=0), X, lambda b: wide(b, (N, N))),
        "sum axis 1": (lambda m, x: m.sum(x, axis=1), X, lambda b: wide(b[:, None], (N, N))),
        "mean axis 0": (lambda m, x: m.mean(x, axis=0), X, lambda b: wide(b / N, (N, N))),
        "max axis 0": (lambda m, x: m.amax(x, axis=0), X, extreme(0)),
        "max axis 1": (lambda m, x: m.amax(x, axis=1), X, extreme(1)),
        "prod axis 1": (lambda m, x: m.prod(x, axis=1), near_one, lambda b: b[:, None] * whole / near_one),
        "cumsum axis 0": (lambda m, x: m.cumsum(x, axis=0), X, lambda b: np.cumsum(b[::-1], axis=0)[::-1]),
        "cumsum axis 1": (lambda m, x: m.cumsum(x, axis=1), X, lambda b: np.cumsum(b[:, ::-1], axis=1)[:, ::-1]),
        "cumprod axis 1": (
            lambda m, x: m.cumprod(x, axis=1),
            near_one,
            lambda b: np.cumsum((b * running)[:, ::-1], axis=1)[:, ::-1] / near_one,
        ),
        "logsumexp axis 1": (lambda m, x: m.logsumexp(x, axis=1), X, lambda b: b[:, None] * softmax),
        "x[10:900, ::2]": (
            lambda m, x: x[10:900, ::2],
            X,
            lambda b: written((N, N), (slice(10, 900), slice(None, None, 2)), b),
        ),
        "x[3]": (lambda m, x: x[3], X, lambda b: written((N, N), 3, b)),
        "x[rows]": (lambda m, x: x[ROWS], X, lambda b: written((N, N), ROWS, b)),
        "x[rows], repeated": (lambda m, x: x[TWICE], X, lambda b: added((N, N), TWICE, b)),
        "x[i, j], repeated": (lambda m, x: x[TWICE, TWICE], X, lambda b: added((N, N), (TWICE, TWICE), b)),
        "x[mask]": (lambda m, x: x[MASK], X, lambda b: written((N, N), MASK, b)),
        "take_along_axis": (lambda m, x: m.take_along_axis(x, PLACES, axis=1), X, lambda b: summed_along(b, PLACES)),
        "sort": (lambda m, x: m.sort(x, axis=1), X, lambda b: along(b, ORDER)),
        "matmul": (lambda m, x: m.matmul(x, Y), X, lambda b: b @ Y.T),
        "einsum ij,kj->ik": (lambda m, x: m.einsum("ij,kj->ik", x, Y), X, lambda b: b @ Y),
        "concat": (lambda m, x: m.concatenate([x, Y], axis=1), X, lambda b: b[:, :N]),
        "pad": (lambda m, x: m.pad(x, 2), X, lambda b: b[2:-2, 2:-2]),
        "transpose": (lambda m, x: m.transpose(x), X, lambda b: b.T),
        "tile": (lambda m, x: m.tile(x, (1, 2)), X, lambda b: b[:, :N] + b[:, N:]),
    }


def ours(function, x, bar):
    """One pass of the engine, without the copies that `gradients` makes of a seed and of an answer at the border."""
    leaf = pb.tensor(x, requires_grad=True)
    out, found = function(pb, leaf), {}
    starts, targets = [(out.node, bar)], frozenset([leaf.node])

    def step():
        found.clear()  # as by hand, the memory of the last answer is free again
        sweep(starts, targets, found.__setitem__, print, retain=True, create_graph=False, workers=1)
        return strip_mask(found[leaf.node])

    return step


#: The same in PyTorch's words, where they differ.
IN_TORCH = {
    "logsumexp axis 1": lambda t, x: t.logsumexp(x, 1),
    "x[rows]": lambda t, x: x[t.from_numpy(ROWS)],
    "x[rows], repeated": lambda t, x: x[t.from_numpy(TWICE)],
    "x[i, j], repeated": lambda t, x: x[t.from_numpy(TWICE), t.from_numpy(TWICE)],
    "x[mask]": lambda t, x: x[t.from_numpy(MASK)],
    "take_along_axis": lambda t, x: t.take_along_dim(x, t.from_numpy(PLACES), dim=1),
    "sort": lambda t, x: t.sort(x, dim=1)[0],
    "matmul": lambda t, x: t.matmul(x, t.from_numpy(Y)),
    "einsum ij,kj->ik": lambda t, x: t.einsum("ij,kj->ik", x, t.from_numpy(Y)),
    "concat": lambda t, x: t.concatenate([x, t.from_numpy(Y)], dim=1),
    "pad": lambda t, x: t.nn.functional.pad(x, (2, 2, 2, 2)),
    "transpose": lambda t, x: x.T,
    "tile": lambda t, x: x.tile((1, 2)),
}


def torch_step(name, function, x, bar):
    import torch

    leaf = torch.tensor(x, requires_grad=True)
    out = IN_TORCH.get(name, function)(torch, leaf)
    seed = torch.tensor(bar)
    return lambda: torch.autograd.grad(out, leaf, seed, retain_graph=True)[0]


def hips_step(name, function, x, bar):
    import autograd
    import autograd.numpy as anp
    from autograd.scipy.special import logsumexp

    if name == "take_along_axis":
        pull, _ = autograd.make_vjp(lambda v: v[np.arange(N)[:, None], PLACES])(x)
    elif name == "logsumexp axis 1":
        pull, _ = autograd.make_vjp(lambda v: logsumexp(v, axis=1))(x)
    elif name == "pad":
        pull, _ = autograd.make_vjp(lambda v: anp.pad(v, 2, "constant"))(x)
    else:
        pull, _ = autograd.make_vjp(lambda v: function(anp, v))(x)
    return lambda: pull(bar)


def steps_of(name, function, x, by_hand):
    bar = np.asarray(rng.normal(size=np.shape(bare(function(pb, x)))))
    steps = {OURS: ours(function, x, bar), HAND: lambda: by_hand(bar)}
    for peer, make in ((TORCH, torch_step), (HIPS, hips_step)):
        try:
            steps[peer] = make(name, function, x, bar)
            steps[peer]()
        except Exception as error:  # a peer that has no such op is left out
            steps.pop(peer, None)
            print(f"  {name}: {peer} left out ({type(error).__name__})")
    expected = bare(steps[OURS]())
    for peer, step in steps.items():
        error = np.linalg.norm(bare(step()) - expected)
        if not error <= 1e-9 * np.linalg.norm(expected):
            raise AssertionError(f"{name}: {peer} and {OURS} disagree")
    return steps


def keyword_call():
    """Nanoseconds that pb.sum(x, axis=1, keepdims=True) costs on a raw 4 x 4 array, and NumPy's own call."""
    x, best = X[:4, :4].copy(), [math.inf, math.inf]
    for _ in range(300):
        for i, module in enumerate((pb, np)):
            begin = perf_counter()
            for _ in range(200):
                module.sum(x, axis=1, keepdims=True)
            best[i] = min(best[i], (perf_counter() - begin) / 200 * 1e9)
    return best


def main():
    options = start(__doc__)
    print(machine())
    heads = (OURS, HAND, TORCH, HIPS)
    print(f"\nmilliseconds\n  {'':20s}" + "".join(f"{h:>15s}" for h in heads) + f"{'over by hand':>15s}")
    for name, (function, x, by_hand) in cases().items():
        best = race(steps_of(name, function, x, by_hand), 0.3 if options.quick else 2.0)
        cells = [f"{best[h] * 1e3:.3f}" if h in best else "" for h in heads]
        print(f"  {name:20s}" + "".join(f"{c:>15s}" for c in cells) + f"{best[OURS] / best[HAND]:15.2f}")
    mine, theirs = keyword_call()
    print(f"\npb.sum(x, axis=1, keepdims=True) {mine:.0f} ns, NumPy {theirs:.0f} ns, over it {mine - theirs:+.0f} ns")


if __name__ == "__main__":
    main()
