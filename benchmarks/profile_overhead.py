"""What `pb.profile` costs: ops of about 10 microseconds, forward and backward, with a profile and without.

Runs alternate within one process, and the best of many counts: the machine's noise is larger than what is measured.

    python benchmarks/profile_overhead.py
"""

import time

import numpy as np

import pullback as pb
from pullback.settings import PLAIN, modes

ROUNDS, CALLS = 60, 40


def time_calls(work):
    start = time.perf_counter()
    for _ in range(CALLS):
        work()
    return (time.perf_counter() - start) / CALLS


def forward(function, x):
    def work():
        y = x
        for _ in range(10):
            y = function(y)
        return y

    return work


def both(function, x):
    run = forward(function, x)
    return lambda: pb.sum(run()).backward()


def find_size(function, seconds=10e-6):
    """The size at which one call takes about 10 microseconds."""
    for size in (100, 200, 500, 1000, 2000, 4000, 8000, 16000, 32000):
        x = np.full(size, 0.5)
        if min(time_calls(lambda x=x: function(x)) for _ in range(20)) >= seconds:
            return size
    return 32000


def compare(work):
    """(without, with a profile, what the profile says of itself), seconds."""
    plain, profiled, said = [], [], 0.0
    for _ in range(ROUNDS):
        assert modes() is PLAIN
        plain.append(time_calls(work))
        with pb.profile() as seen:
            profiled.append(time_calls(work))
        said = seen.overhead
    return min(plain), min(profiled), said


def main():
    rng = np.random.default_rng(0)
    w = rng.normal(size=(48, 48))
    print(f"{'':22} {'without':>11} {'with':>11} {'added an op':>12} {'share':>7} {'says':>6}")
    for name, function, array in (
        ("sin (elementwise)", pb.sin, None),
        ("x * x (elementwise)", lambda x: x * x, None),
        ("48x48 product (plan)", lambda x: x @ w, np.full((48, 48), 0.01)),
    ):
        array = np.full(find_size(function), 0.5) if array is None else array
        x = pb.tensor(array, requires_grad=True)
        for phase, work, events in (("forward", forward(function, x), 10), ("both", both(function, x), 21)):
            before, after, said = compare(work)
            added = (after - before) / events
            row = f"{name[:14]} {phase:7} {before * 1e6:8.1f} us {after * 1e6:8.1f} us {added * 1e9:9.0f} ns"
            print(f"{row} {(after - before) / before:7.1%} {said:6.1%}", flush=True)


if __name__ == "__main__":
    main()
