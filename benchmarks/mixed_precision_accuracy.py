"""Does training in mixed precision end where float32 ends? The demo's digits and a small transformer, over five seeds.

Three ways from the same start over the same batches: float32, bfloat16 under `pb.autocast`, and float16 under
`pb.autocast` with `pb.optim.scaled`. Weights stay float32 in all of them, and each step is one compiled call. The CNN
is judged by its accuracy on held-out digits, the transformer (the example's: words written backwards) by its loss on
unseen words: bfloat16 and float16 must be within 0.3 points and within 1% of float32, on average over the seeds. The
standard error of that average says what chance alone makes of it: a rounding is enough to send two runs apart.
"""

import argparse
import sys
from contextlib import nullcontext
from pathlib import Path
from statistics import mean, stdev
from time import perf_counter

import numpy as np
from contest import machine, pin

import pullback as pb
from pullback.demo.network import RATE, init_parameters, iter_batches, load_shuffled_digits
from pullback.demo.network import loss as digits_loss
from pullback.demo.network import scores as digits_scores

sys.path.insert(0, str(Path(__file__).parents[1] / "examples"))
import transformer as words  # the example of that name

WAYS = ("float32", "bfloat16", "float16")
#: How far mixed precision may be from float32: points of accuracy, and parts of the loss.
POINTS, PART = 0.3, 0.01
#: The last part of the steps over which the accuracy is averaged: one image of 360 is 0.28 points.
LATE = 0.2


def casting(way):
    return nullcontext() if way == "float32" else pb.autocast(way)


def make_step(way, loss, rule):
    """A compiled step, and the state of its rule for some parameters."""
    rule = pb.optim.scaled(rule) if way == "float16" else rule

    def step(params, state, *batch):
        def objective(p):
            with casting(way):
                value = loss(p, *batch)
            return (pb.optim.scale_loss(value, state) if way == "float16" else value), value

        grads, value = pb.grad(objective, has_aux=True)(params)
        updates, state = rule.update(grads, state, params)
        return value, pb.optim.apply_updates(params, updates), state

    return pb.jit(step, donate_argnums=(0, 1)), rule.init


def copy_tree(tree):
    return pb.tree.map(lambda x: x.copy(), tree)


def train_digits(way, seed, steps, known={}):  # noqa: B006 - one compilation for all seeds
    """The accuracy on held-out digits, in percent, averaged over the last steps."""
    random = np.random.default_rng(seed)
    data = load_shuffled_digits(random)
    params = copy_tree(init_parameters(random))
    if way not in known:
        evaluate = pb.jit(lambda p, x: pb.argmax(_scores(way, p, x), axis=-1))
        known[way] = (*make_step(way, digits_loss, pb.optim.adam(RATE)), evaluate)
    step, init, evaluate = known[way]
    state, found = init(params), []
    for i, rows in enumerate(iter_batches(random, len(data.images), steps)):
        _, params, state = step(params, state, data.images[rows], data.labels[rows])
        if i >= (1 - LATE) * steps and i % 10 == 0:
            found.append(100 * np.mean(evaluate(params, data.test_images) == data.test_labels))
    return mean(found), state


def _scores(way, params, images):
    with casting(way):
        return digits_scores(params, images)


def train_words(way, seed, steps, known={}, batch=24):  # noqa: B006 - one compilation for all seeds
    """The loss on words that were not learned from."""
    random = np.random.default_rng(seed)
    text = words.encoded("".join(map(words.sentence, words.new_words(random, 3000))))
    unseen = words.encoded("".join(map(words.sentence, words.new_words(random, 600))))
    params = copy_tree(words.new_model(random))
    if way not in known:
        plan = pb.optim.schedules.warm_up(50, then=pb.optim.schedules.cosine(6e-3, steps))
        rule = pb.optim.chain(pb.optim.clip_by_global_norm(1.0), pb.optim.adamw(plan, weight_decay=0.05))
        evaluate = pb.jit(lambda p, x: _words_loss(way, p, x))
        known[way] = (*make_step(way, words.loss, rule), evaluate)
    step, init, evaluate = known[way]
    state = init(params)

    def rows_of(text, count):
        return text[random.integers(len(text) - words.LENGTH, size=count)[:, None] + np.arange(words.LENGTH + 1)]

    for _ in range(steps):
        _, params, state = step(params, state, rows_of(text, batch))
    judged = np.random.default_rng(0).integers(len(unseen) - words.LENGTH, size=200)[:, None]
    return float(evaluate(params, unseen[judged + np.arange(words.LENGTH + 1)])), state


def _words_loss(way, params, letters):
    with casting(way):
        return words.loss(params, letters)


def compare(name, train, seeds, steps, unit):
    """One row for each way: the mean over the seeds, its distance from float32, seconds for a seed."""
    found = {}
    for way in WAYS:
        begin = perf_counter()
        runs = [train(way, seed, steps) for seed in range(seeds)]
        seconds = (perf_counter() - begin) / seeds
        found[way] = [float(value) for value, _ in runs]
        shown = _distance(found[way], found["float32"], unit)
        row = (name, way, f"{mean(found[way]):.3f}{unit}", shown, f"{seconds:.1f} s", _scaling(way, runs))
        print("{:12s} {:10s} {:>10s} {:>22s} {:>9s}  {}".format(*row), flush=True)
    return {way: mean(values) for way, values in found.items()}


def _distance(found, wanted, unit):
    """The mean distance from float32, seed by seed, and its standard error."""
    away = [a - b for a, b in zip(found, wanted, strict=True)]
    error = stdev(away) / len(away) ** 0.5 if len(away) > 1 else 0.0
    if unit == "%":
        return f"{mean(away):+.2f} ({error:.2f}) points"
    return f"{mean(away) / mean(wanted):+.2%} ({error / mean(wanted):.2%})"


def _scaling(way, runs):
    """What loss scaling did."""
    if way != "float16":
        return ""
    states = [state for _, state in runs]
    skipped = mean(int(state[0].steps) for state in states)
    return f"scale {mean(float(pb.optim.loss_scale(state)) for state in states):g}, {skipped:g} steps skipped"


def main(argv=None):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="one seed and few steps: shows that it runs")
    parser.add_argument("--only", choices=("digits", "words"))
    options = parser.parse_args(argv)
    pin(1)
    seeds, digits_steps, words_steps = (1, 60, 40) if options.quick else (5, 800, 1500)
    print(machine())
    failed = []
    if options.only != "words":
        means = compare("digits CNN", train_digits, seeds, digits_steps, "%")
        failed += [w for w in WAYS if abs(means[w] - means["float32"]) > POINTS]
    if options.only != "digits":
        means = compare("transformer", train_words, seeds, words_steps, "")
        failed += [w for w in WAYS if abs(means[w] / means["float32"] - 1) > PART]
    if failed and not options.quick:
        print(f"too far from float32: {', '.join(failed)}")
        sys.exit(1)


if __name__ == "__main__":
    main()
