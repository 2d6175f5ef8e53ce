"""What one eager op costs over NumPy on 4x4 float32 matrices: on raw arrays, on tensors, under `no_grad`, recorded on
the tape, and in the backward pass, there over the NumPy calls of its derivative written by hand. PyTorch's forward is
beside it.
"""

import math
from time import perf_counter

import numpy as np
from contest import machine, start

import pullback as pb
from pullback.tape.hooks import HookRun
from pullback.tape.sweep import Sweep

OPS = {
    "add": (lambda m, x, y: m.add(x, y)),
    "multiply": (lambda m, x, y: m.multiply(x, y)),
    "x * y": (lambda m, x, y: x * y),
    "x * 2.0": (lambda m, x, y: x * 2.0),
    "x + y[0]": (lambda m, x, y: x + y[0]),
    "tanh": (lambda m, x, y: m.tanh(x)),
    "sum": (lambda m, x, y: m.sum(x)),
    "sum, axis": (lambda m, x, y: m.sum(x, axis=0)),
    "sum, axis, keepdims": (lambda m, x, y: m.sum(x, axis=0, keepdims=True)),
    "mean": (lambda m, x, y: m.mean(x)),
    "max": (lambda m, x, y: m.max(x)),
    "where": (lambda m, x, y: m.where(CONDITION[m.__name__], x, y)),
    "reshape": (lambda m, x, y: m.reshape(x, (2, 8))),
    "x.T": (lambda m, x, y: x.T),
    "x[1:3]": (lambda m, x, y: x[1:3]),
    "matmul": (lambda m, x, y: m.matmul(x, y)),
    "concat": (lambda m, x, y: m.concat((x, y))),
}
#: What one would write for one cotangent g of a result: its shares, added to the sums of x and y.
BY_HAND = {
    "multiply": lambda g, x, y, gx, gy: (add(gx, g * y, gx), add(gy, g * x, gy)),
    "x * 2.0": lambda g, x, y, gx, gy: add(gx, g * 2.0, gx),
    "x + y[0]": lambda g, x, y, gx, gy: (add(gx, g, gx), add(gy[0], g.sum(0), gy[0])),
    "tanh": lambda g, x, y, gx, gy: add(gx, g * (1 - x * x), gx),
    "sum, axis": lambda g, x, y, gx, gy: add(gx, g, gx),
    "reshape": lambda g, x, y, gx, gy: add(gx, g.reshape(4, 4), gx),
    "x.T": lambda g, x, y, gx, gy: add(gx, g.T, gx),
    "x[1:3]": lambda g, x, y, gx, gy: add(gx, scattered(g), gx),
    "matmul": lambda g, x, y, gx, gy: (add(gx, g @ y.T, gx), add(gy, x.T @ g, gy)),
    "concat": lambda g, x, y, gx, gy: (add(gx, g[:4], gx), add(gy, g[4:], gy)),
}
add = np.add
CONDITION = {name: np.eye(4) > 0 for name in ("numpy", "pullback")}
CALLS = 200


def scattered(g):
    out = np.zeros((4, 4), g.dtype)
    out[1:3] = g
    return out


def cost(call):
    """The time of one call in nanoseconds, over a short loop."""
    calls = range(CALLS)
    begin = perf_counter()
    for _ in calls:
        call()
    return (perf_counter() - begin) / CALLS * 1e9


def unrecorded(call):
    """The call in a loop under `no_grad`: entering the mode is not counted."""

    def run():
        with pb.no_grad():
            return cost(call)

    return run


def forward_table(x, y, repeats, peer):
    tracked = pb.tensor(x, requires_grad=True), pb.tensor(y, requires_grad=True)
    ways = {
        "NumPy": (np, x, y),
        "raw": (pb, x, y),
        "untracked": (pb, pb.tensor(x), pb.tensor(y)),
        "no_grad": (pb, *tracked),
        "tracked": (pb, *tracked),
    }
    if peer is not None:
        CONDITION["torch"] = peer.tensor(CONDITION["numpy"])
        ways["PyTorch"] = (peer, *(peer.tensor(z, requires_grad=True) for z in (x, y)))
    print(f"\nforward, nanoseconds a call (and over NumPy)\n  {'':22s}" + "".join(f"{way:>16s}" for way in ways))
    for name, op in OPS.items():
        best = dict.fromkeys(ways, math.inf)
        for _ in range(repeats):
            for way, operands in ways.items():
                call = lambda op=op, operands=operands: op(*operands)  # noqa: E731 - called at once
                best[way] = min(best[way], unrecorded(call)() if way == "no_grad" else cost(call))
        over = {way: time - best["NumPy"] for way, time in best.items()}
        cells = [f"{best[way]:.0f}" + ("" if way == "NumPy" else f" ({over[way]:+.0f})") for way in ways]
        print(f"  {name:22s}" + "".join(f"{cell:>16s}" for cell in cells))


def backward_table(x, y, repeats):
    """The step of a node and its share of the pass's loop; the shares of both are added to sums."""
    print(f"\nbackward, nanoseconds a node (and over its NumPy calls)\n  {'':22s}{'NumPy':>16s}{'tracked':>16s}")
    gx, gy = np.zeros((2, 4, 4), np.float32)
    for name, formula in BY_HAND.items():
        a, b = pb.tensor(x, requires_grad=True), pb.tensor(y, requires_grad=True)
        bias = b[0]
        op = (lambda a=a, bias=bias: a + bias) if "[0]" in name else (lambda name=name, a=a, b=b: OPS[name](pb, a, b))
        nodes = [op().node for _ in range(CALLS)]
        g = np.ones(nodes[0].spec.shape, np.float32)
        found = hand = math.inf
        for _ in range(repeats):
            sweep = Sweep(None, frozenset(), retain=True, create_graph=False)
            sweep.hooks, sweep.wanted, sweep.claimed, sweep._line = HookRun([], False), None, True, None
            a.node.bar = b.node.bar = bias.node.bar = sweep.waiting
            for node in nodes:
                node.bar = g
            begin = perf_counter()
            sweep._run_plain(nodes)
            found = min(found, (perf_counter() - begin) / CALLS * 1e9)
            hand = min(hand, cost(lambda formula=formula, g=g: formula(g, x, y, gx, gy)))
        print(f"  {name:22s}{hand:>16.0f}{f'{found:.0f} ({found - hand:+.0f})':>16s}")


def main():
    options = start(__doc__)
    print(machine())
    repeats = 50 if options.quick else 1000
    x, y = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
    try:
        import torch
    except ModuleNotFoundError:
        torch = None
    forward_table(x, y, repeats, torch)
    backward_table(x, y, repeats)


if __name__ == "__main__":
    main()
