"""Codecs that converge: the digits CNN trained on two ranks, with and without, for equally many steps.

Ten seeds; each trains with the same data, in the same order, from the same parameters. Printed are the accuracy on
held-out digits, and by how many points that differs from plain sums: the mean over seeds, and its standard error. A
codec may lose half a point. Ranks are threads here, which changes no number.
"""

import sys
from pathlib import Path
from time import perf_counter

sys.path.insert(1, str(Path(__file__).resolve().parent.parent))
import numpy as np
from contest import machine, start

import pullback as pb
from pullback import distributed
from pullback.demo.network import init_parameters, iter_batches, load_shuffled_digits, loss
from pullback.demo.training import accuracy
from pullback.distributed import codecs
from pullback.distributed.compressed_adam import one_bit_adam

RANKS, STEPS, WARM, SEEDS, LIMIT = 2, 600, 120, 10, 0.5


def sgd(codec=None):
    return pb.optim.chain(distributed.aggregate(codec), pb.optim.sgd(0.05, momentum=0.9))


def adam(codec=None):
    return pb.optim.chain(distributed.aggregate(codec), pb.optim.adam(3e-3))


def kept(codec):
    return codecs.error_feedback(codec)


LATE_TOP_K = codecs.after(WARM, kept(codecs.top_k(0.01)))
LATE_ONE_BIT = codecs.after(WARM, kept(codecs.one_bit()))
#: Plain sums first, then codecs; True: may lose half a point, False: shows what to expect.
CONTESTS = {
    "SGD": {
        "plain": (sgd(), False),
        "bfloat16": (sgd(codecs.bfloat16()), True),
        "int8 + feedback": (sgd(kept(codecs.int8())), True),
        "power_sgd 2 + feedback": (sgd(kept(codecs.power_sgd(2))), True),
        "top_k 1 % + feedback": (sgd(kept(codecs.top_k(0.01))), True),
        f"top_k 1 %, after {WARM} steps": (sgd(LATE_TOP_K), True),
        f"one_bit, after {WARM} steps": (sgd(LATE_ONE_BIT), False),
        "one_bit from the start": (sgd(kept(codecs.one_bit())), False),
        "random_k 1 % + feedback": (sgd(kept(codecs.random_k(0.01))), False),
    },
    "Adam": {
        "plain": (adam(), False),
        "power_sgd 2 + feedback": (adam(kept(codecs.power_sgd(2))), True),
        f"one_bit_adam, {WARM} warm": (one_bit_adam(3e-3, warmup=WARM), True),
        "top_k 1 % + feedback": (adam(kept(codecs.top_k(0.01))), False),
    },
}


def train(rule, seed):
    """The held-out accuracy after training; each rank has every second sample of a batch, and half of the loss."""

    def step(params, state, images, labels):
        grads = pb.grad(lambda p: loss(p, images, labels) / RANKS)(params)
        updates, state = rule.update(grads, state, params)
        return pb.optim.apply_updates(params, updates), state

    def train_rank():
        random = np.random.default_rng(seed)
        data, params = load_shuffled_digits(random), init_parameters(random)
        state, call = rule.init(params), pb.jit(step)
        for rows in iter_batches(random, len(data.images), STEPS):
            mine = rows[distributed.rank() :: RANKS]
            params, state = call(params, state, data.images[mine], data.labels[mine])
        return accuracy(params, data.test_images, data.test_labels)

    return 100 * distributed.run(train_rank, RANKS)[0]


def main():
    options = start(__doc__)
    print(machine())
    seeds = 2 if options.quick else SEEDS
    print(f"{seeds} seeds, {STEPS} steps, {RANKS} ranks")
    for name, rules in CONTESTS.items():
        print(f"\n  {name:30s}{'accuracy':>10s}{'difference, points':>22s}  {LIMIT} lost at most")
        plain = None
        for what, (rule, is_limited) in rules.items():
            begin = perf_counter()
            found = np.array([train(rule, seed) for seed in range(seeds)])
            plain = found if plain is None else plain
            lead, error = (found - plain).mean(), (found - plain).std(ddof=1) / seeds**0.5
            shown = "" if what == "plain" else f"{lead:+.2f} +- {error:.2f}"
            verdict = ("met" if lead >= -LIMIT else "missed") if is_limited else ""
            print(
                f"  {what:30s}{found.mean():10.2f}{shown:>22s}  {verdict:8s}({perf_counter() - begin:.0f} s)",
                flush=True,
            )


if __name__ == "__main__":
    main()
