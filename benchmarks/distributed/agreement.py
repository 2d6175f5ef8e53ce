"""What it costs that ranks agree before they compute together: a compiled step of about 2 ms, with and without.

Before a compiled program does anything, its ranks meet and compare which collectives it calls; at each collective they
compare what they came for. The same step is compiled again without both, and the two take turns, step by step. So does
a program that only sums eight numbers, which shows the cost by itself, where the noise of a long step would hide it.

    python benchmarks/distributed/agreement.py            2 ranks, by shared memory and by messages
    python benchmarks/distributed/agreement.py -n 4
"""

import argparse
import itertools
import json
import os
import subprocess
import sys
import time

WIDTHS, RATE = [784, 256, 128, 10], 1e-4
#: Milliseconds that a step of a rank alone is to take.
STEP_MS = 2.0
ENGINES = {"shared memory": "1", "messages": "0"}


def median(values):
    return sorted(values)[len(values) // 2]


def make_layers():
    import numpy as np

    random = np.random.default_rng(0)
    return [
        ((random.normal(size=(a, b)) / a**0.5).astype("float32"), np.zeros(b, "float32"))
        for a, b in itertools.pairwise(WIDTHS)
    ]


def make_step(rule, batch):
    """A compiled training step, which is compiled now."""
    import numpy as np

    import pullback as pb
    from pullback import distributed, optim

    random = np.random.default_rng(distributed.rank())
    x, y = (random.normal(size=(batch, w)).astype("float32") for w in (WIDTHS[0], WIDTHS[-1]))

    def loss(layers):
        h = x
        for i, (w, b) in enumerate(layers):
            h = h @ w + b
            h = pb.nn.relu(h) if i < len(layers) - 1 else h
        return pb.sum((h - y) ** 2) / batch

    def step(layers, state):
        updates, state = rule.update(pb.grad(loss)(layers), state, layers)
        return optim.apply_updates(layers, updates), state

    run = pb.jit(step, donate_argnums=(0, 1))
    held = [make_layers(), rule.init(make_layers())]

    def advance():
        held[:] = run(*held)

    for _ in range(3):
        advance()
    return advance


def make_sum(rule, batch):
    """A compiled program with one small sum, and nothing else."""
    import numpy as np

    import pullback as pb
    from pullback import distributed

    x = np.ones(8, "float32")
    run = pb.jit(lambda x: distributed.total(x))
    for _ in range(3):
        run(x)
    return lambda: run(x)


def time_steps(steps, repeats):
    """Seconds of steps that take turns, each of which all ranks begin at once."""
    from pullback import distributed

    found = [[] for _ in steps]
    for _ in range(repeats):
        for step, seconds in zip(steps, found, strict=True):
            distributed.barrier()
            start = time.perf_counter()
            step()
            seconds.append(time.perf_counter() - start)
    return found


def find_batch():
    """How many samples make a step of a rank alone as long as it is to be; all ranks take the largest."""
    from pullback import distributed, optim

    batch = 16
    while batch < 4096:
        (seconds,) = time_steps([make_step(optim.sgd(RATE), batch)], 20)
        if distributed.largest(min(seconds)) > STEP_MS / 1e3:
            break
        batch += max(batch // 4, 1)
    return batch


class Agreement:
    """Whether ranks compare what they came for; meetings that move data stay."""

    is_on = True

    @classmethod
    def make_optional(cls):
        from pullback.compile import specialization
        from pullback.distributed.engines import cluster, shared_slots

        def agree_first(program, name, agree=specialization.agree_first):
            return agree(program, name) if cls.is_on else program

        def compare_slots(slots, *arguments, compare=shared_slots.SharedSlots.all_agree):
            return not cls.is_on or compare(slots, *arguments)

        def compare_messages(lane, call, compare=cluster.Lane._agree):
            if cls.is_on:
                compare(lane, call)
            else:
                lane.count += 1

        specialization.agree_first = agree_first
        shared_slots.SharedSlots.all_agree, cluster.Lane._agree = compare_slots, compare_messages


def run_rank(repeats):
    import numpy as np

    from pullback import distributed, optim

    distributed.init()
    Agreement.make_optional()
    batch = find_batch()
    rule = optim.chain(distributed.aggregate(finite=False, check_every=0), optim.sgd(RATE))
    pairs = [make_pair(make, rule, batch) for make in (make_step, make_sum)]
    found = [*time_steps(pairs[0], repeats), *time_steps(pairs[1], 10 * repeats)]
    slowest = [distributed.largest(np.array(seconds)).tolist() for seconds in found]
    if distributed.rank() == 0:
        print(json.dumps([batch, *slowest]), flush=True)


def make_pair(make, rule, batch):
    """A function compiled with agreement and without; each runs as it was compiled."""
    agreeing = make(rule, batch)
    Agreement.is_on = False
    plain = make(rule, batch)
    Agreement.is_on = True

    def run_plain():
        Agreement.is_on = False
        plain()
        Agreement.is_on = True

    return agreeing, run_plain


def launch(ranks, engine, repeats):
    environment = {**os.environ, "PULLBACK_SHARED_MEMORY": ENGINES[engine]}
    command = [sys.executable, "-m", "pullback", "run", "-n", str(ranks), __file__, "--as-rank", "--repeats"]
    done = subprocess.run([*command, str(repeats)], env=environment, capture_output=True, text=True, timeout=900)
    rows = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if not rows:
        sys.exit(f"{engine} failed:\n{done.stdout[-1000:]}\n{done.stderr[-2000:]}")
    return json.loads(rows[0])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", "--ranks", type=int, default=2)
    parser.add_argument("--repeats", type=int, default=1000, help="steps of each kind")
    parser.add_argument("--rounds", type=int, default=3, help="jobs of each engine, of which the best counts")
    parser.add_argument("--as-rank", action="store_true", help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.as_rank:
        run_rank(chosen.repeats)
        return
    print(f"{chosen.ranks} ranks, {chosen.repeats} steps of each kind a job; the slowest rank counts")
    for engine in ENGINES:
        for _ in range(chosen.rounds):
            batch, *found = launch(chosen.ranks, engine, chosen.repeats)
            step, plain_step, small, plain_small = ([1e6 * s for s in seconds] for seconds in found)
            cost = min(small) - min(plain_small)
            print(
                f"{engine:13s} by itself: {min(small):.1f} us with it and {min(plain_small):.1f} us without at best, "
                f"{median(small):.1f} and {median(plain_small):.1f} us (median): {cost:.1f} us, "
                f"{cost / (1e3 * STEP_MS):.2%} of {STEP_MS:g} ms\n"
                f"{'':13s} a step, batch {batch}: {min(step):.0f} us and {min(plain_step):.0f} us at best, "
                f"{median(step):.0f} and {median(plain_step):.0f} us (median)",
                flush=True,
            )


if __name__ == "__main__":
    main()
