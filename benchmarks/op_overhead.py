"""What one eager op costs over NumPy on 4x4 float32 matrices: on raw arrays, on tensors, and recorded on the tape."""

import math
from time import perf_counter

import numpy as np
from contest import machine, start

import pullback as pb

OPS = {
    "add": (lambda m, x, y: m.add(x, y)),
    "multiply": (lambda m, x, y: m.multiply(x, y)),
    "x * y": (lambda m, x, y: x * y),
    "x * 2.0": (lambda m, x, y: x * 2.0),
    "tanh": (lambda m, x, y: m.tanh(x)),
    "sum": (lambda m, x, y: m.sum(x)),
    "sum, axis, keepdims": (lambda m, x, y: m.sum(x, axis=0, keepdims=True)),
    "max": (lambda m, x, y: m.max(x)),
    "where": (lambda m, x, y: m.where(True, x, y)),
    "reshape": (lambda m, x, y: m.reshape(x, (2, 8))),
    "x[1:3]": (lambda m, x, y: x[1:3]),
    "matmul": (lambda m, x, y: m.matmul(x, y)),
    "concat": (lambda m, x, y: m.concat((x, y))),
}
CALLS = 200


def cost(op, module, x, y):
    """The time of one call in nanoseconds, over a short loop."""
    calls = range(CALLS)
    begin = perf_counter()
    for _ in calls:
        op(module, x, y)
    return (perf_counter() - begin) / CALLS * 1e9


def main():
    options = start(__doc__)
    print(machine())
    x, y = np.random.default_rng(0).normal(size=(2, 4, 4)).astype(np.float32)
    ways = {
        "NumPy": (np, x, y),
        "raw": (pb, x, y),
        "untracked": (pb, pb.tensor(x), pb.tensor(y)),
        "tracked": (pb, pb.tensor(x, requires_grad=True), pb.tensor(y, requires_grad=True)),
    }
    print(f"\nnanoseconds a call (and over NumPy)\n  {'':22s}" + "".join(f"{way:>16s}" for way in ways))
    for name, op in OPS.items():
        best = dict.fromkeys(ways, math.inf)
        for _ in range(50 if options.quick else 1000):
            for way, (module, *operands) in ways.items():
                best[way] = min(best[way], cost(op, module, *operands))
        over = {way: time - best["NumPy"] for way, time in best.items()}
        cells = [f"{best[way]:.0f}" + ("" if way == "NumPy" else f" ({over[way]:+.0f})") for way in ways]
        print(f"  {name:22s}" + "".join(f"{cell:>16s}" for cell in cells))


if __name__ == "__main__":
    main()
