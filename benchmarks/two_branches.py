"""Two independent branches of four matrix products each, backward with two workers against one.

BLAS has one thread, the process two cores. The limit: two workers at least 1.6 times faster, results bitwise equal.
"""

import math
import os
from time import perf_counter

import numpy as np
from contest import machine, readable, start

import pullback as pb

BRANCHES, PRODUCTS, SIZE = 2, 4, 1500


def leaves(size):
    """For each branch a matrix and the factors it is multiplied by."""
    rng = np.random.default_rng(0)
    matrices = rng.normal(size=(BRANCHES, PRODUCTS + 1, size, size)) / size
    return [[pb.tensor(matrix, requires_grad=True) for matrix in branch] for branch in matrices]


def forward(branches):
    """The sum of all the branches' products."""
    total = 0.0
    for first, *factors in branches:
        product = first
        for factor in factors:
            product = pb.matmul(product, factor)
        total = total + pb.sum(product)
    return total


def backward(branches, workers):
    """The time of one backward pass, and its gradients."""
    everything = [leaf for branch in branches for leaf in branch]
    for leaf in everything:
        leaf.grad = None
    total = forward(branches)
    begin = perf_counter()
    total.backward(workers=workers)
    return perf_counter() - begin, [leaf.grad.numpy() for leaf in everything]


def main():
    options = start(__doc__, cores=2)
    print(machine())
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    if cores < 2:
        print("  only one core is free here: two workers cannot be faster")
    size = SIZE // 3 if options.quick else SIZE
    branches = leaves(size)
    best = {1: math.inf, 2: math.inf}
    for _ in range(3 if options.quick else 8):
        results = {}
        for workers in best:
            seconds, results[workers] = backward(branches, workers)
            best[workers] = min(best[workers], seconds)
        if not all(np.array_equal(one, two) for one, two in zip(results[1], results[2], strict=True)):
            raise AssertionError("two workers give other bits than one")
    print(f"\n{BRANCHES} branches of {PRODUCTS} products, {size}x{size}, float64, backward only")
    print(f"  one worker {readable(best[1])}, two workers {readable(best[2])}")
    print(f"  two are {best[1] / best[2]:.2f} times faster (limit 1.60)")


if __name__ == "__main__":
    main()
