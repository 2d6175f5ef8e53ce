"""A hundred ops on eight floats: `tape.gradient` against `.backward()` on the same graph, PyTorch's beside them.

Recording costs a tape nothing. What it adds is a fixed cost for each question, and one walk over the graph to see
whether the result may be differentiated again. The limit: a third more than `.backward()`.
"""

import numpy as np
from contest import OURS, check_agreement, gather, machine, race, report, start

import pullback as pb
from pullback import GradientTape

STEPS = 50


def chain(library, x):
    for _ in range(STEPS):
        x = library.sin(x) * 1.01
    return x.sum()


def by_tape(array):
    x = pb.tensor(array)

    def step():
        with GradientTape() as tape:
            tape.watch(x)
            y = chain(pb, x)
        return [tape.gradient(y, x)]

    return step


def by_variable(array):
    tape = GradientTape(persistent=True)
    x = tape.variable(array)
    stopped = tape.stop_recording

    def step():
        y = chain(pb, x)
        with stopped():
            return [tape.gradient(y, x)]

    return step


def by_backward(array):
    x = pb.tensor(array, requires_grad=True)

    def step():
        x.grad = None
        chain(pb, x).backward()
        return [x.grad]

    return step


def pytorch(array):
    import torch

    x = torch.tensor(array, requires_grad=True)

    def step():
        return torch.autograd.grad(chain(torch, x), (x,))

    return step


MAKERS = {OURS: by_tape, "one tape, kept": by_variable, ".backward()": by_backward, "PyTorch": pytorch}


def main():
    options = start(__doc__)
    print(machine())
    steps = gather(MAKERS, np.random.default_rng(0).normal(size=8))
    check_agreement(steps, tolerance=1e-12)
    times = race(steps, seconds=2 if options.quick else 8)
    report("100 ops on 8 floats, float64", times, reference=".backward()")


if __name__ == "__main__":
    main()
