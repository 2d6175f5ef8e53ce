"""The constants of the cost model that chooses how to take Jacobians and Hessians, as tables to paste.

A chain of ops of one family, short and long: the difference is what an op costs. Tiny arrays give the fixed cost, and
few and many directions of large ones the cost of an element. The tables stand in `pullback/transforms/costs.py`; the
choice depends on ratios between them, so they need measuring again only when an interpreter changes.
"""

import functools

import numpy as np
from contest import burst, machine, start

import pullback as pb
from pullback.transforms.jacobian.functions import hessian, jacfwd

SHORT, LONG = 2, 22
FEW, MANY = 4, 24
MODES = {
    "ff": "forward-over-forward",
    "fr": "forward-over-reverse",
    "rf": "reverse-over-forward",
    "rr": "reverse-over-reverse",
}
WEIGHTS = np.random.default_rng(0).normal(size=(64, 64)) / 8

#: For each family an op that keeps the shape, the shape of a tiny argument and of a large one, and the elements (flops)
#: of the large one.
FAMILIES = {
    "elementwise": (pb.sin, (2,), (8192,), 8192),
    "linear": (lambda x: pb.roll(x, 1, axis=0), (2,), (8192,), 8192),
    "contraction": (lambda x: x @ WEIGHTS[: x.shape[-1], : x.shape[-1]], (1, 2), (64, 64), 2 * 64**3),
    "reduction": (lambda x: pb.max(x, axis=0, keepdims=True), (1, 2), (1, 8192), 8192),
}


def chain(op, length):
    def f(x):
        for _ in range(length):
            x = op(x)
        return x

    return f


def best(step, rounds):
    return min(burst(step) for _ in range(rounds)) * 1e9


def slope(make, few, many, rounds):
    """Nanoseconds for one more op (or direction) of what `make(count)` does."""
    times = {few: np.inf, many: np.inf}
    for _ in range(rounds):
        for count in times:
            times[count] = min(times[count], best(make(count), 1))
    return max((times[many] - times[few]) / (many - few), 0.0)


def overheads(op, shape, rounds):
    x = np.full(shape, 0.3)
    eye = np.eye(x.size).reshape(x.size, *shape)

    def pulling(length):
        _, pull = pb.vjp(chain(op, length), x)
        return lambda: pb.vmap(pull)(eye)

    def pulling_one(length):
        _, pull = pb.vjp(chain(op, length), x)
        return lambda: pull(eye[0])

    makers = {
        "push": lambda n: lambda: jacfwd(chain(op, n))(x),
        "push one": lambda n: lambda: pb.jvp(chain(op, n), (x,), (eye[0],)),
        "note": lambda n: lambda: pb.vjp(chain(op, n), x),
        "pull": pulling,
        "pull one": pulling_one,
    } | {
        way: lambda n, mode=mode: lambda: hessian(lambda y: pb.sum(chain(op, n)(y) ** 2), mode=mode)(x)
        for way, mode in MODES.items()
    }
    return {way: slope(make, SHORT, LONG, rounds) for way, make in makers.items()}


def rates(op, shape, rounds):
    """Nanoseconds for one direction of one op on a large array, each way."""
    x = np.full(shape, 0.3)
    length = 6
    f = chain(op, length)
    seed = np.ones(shape)

    def g(y):
        return pb.sum(f(y) ** 2)

    def along(y):
        return pb.jvp(g, (y,), (seed,))[1]

    def directions(k):
        return np.ones((k, *shape))

    def batched(linear):
        return lambda k: functools.partial(pb.vmap(linear), directions(k))

    makers = {
        "push": batched(lambda t: pb.jvp(f, (x,), (t,))[1]),
        "pull": batched(pb.vjp(f, x)[1]),
        "ff": batched(lambda t: pb.jvp(along, (x,), (t,))[1]),
        "fr": batched(lambda t: pb.jvp(pb.grad(g), (x,), (t,))[1]),
        "rf": batched(lambda t: pb.grad(lambda y: pb.jvp(g, (y,), (t,))[1])(x)),
        "rr": batched(pb.vjp(pb.grad(g), x)[1]),
    }
    return {way: slope(make, FEW, MANY, rounds) / length for way, make in makers.items()}


def main():
    options = start(__doc__)
    rounds = 3 if options.quick else 15
    print(machine())
    fixed = {name: overheads(op, tiny, rounds) for name, (op, tiny, _, _) in FAMILIES.items()}
    print("\nOVERHEAD = {")
    for name, costs in fixed.items():
        print(f'    "{name}": {{' + ", ".join(f'"{way}": {cost / 1e3:.1f}e3' for way, cost in costs.items()) + "},")
    print("}")
    each = {name: rates(op, large, rounds) for name, (op, _, large, _) in FAMILIES.items()}
    print("RATE = {" + ", ".join(f'"{n}": {each[n]["push"] / FAMILIES[n][3]:.2g}' for n in FAMILIES) + "}")
    ratios = {
        way: np.median([each[n][way] / each[n]["push"] for n in ("elementwise", "contraction")])
        for way in each["linear"]
    }
    print("MULTIPLE = {" + ", ".join(f'"{way}": {ratio:.1f}' for way, ratio in ratios.items()) + "}")
    for name, costs in each.items():
        print(f"  {name}: " + ", ".join(f"{way} {cost / costs['push']:.2f}" for way, cost in costs.items()))


if __name__ == "__main__":
    main()
