"""Networks drawn from layers, activations, norms, losses and optimisers, as text; trained for three rounds, eager and
compiled.

`python tests/networks.py --networks 600 --seed 0` tries so many and prints what fails, shrunk, as Python. Sizes are
drawn so that they coincide: all of a network's widths, steps and batch are of one or two numbers.
"""

import argparse
import os
import sys
import time
from dataclasses import dataclass, field, fields, replace
from pathlib import Path

os.environ.setdefault("PULLBACK_CACHE_DIR", "off")
sys.path.insert(0, str(Path(__file__).parent))

import numpy as np
from composed_modes import poisoned

import pullback as pb
from pullback.compile.cpu.runtime import link
from pullback.compile.jit import jit

__all__ = ["ROUNDS", "WAYS", "Network", "drawn_network", "find_fault", "reproduction", "shrink"]

ROUNDS = 3
SIZES = (1, 2, 3, 3, 4, 4, 5, 7, 8, 8, 9, 15, 16, 17)
FAMILIES = ("dense", "dense", "attention", "heads", "conv1d", "conv2d", "lstm", "gru", "rnn", "embedding")
ACTIVATIONS = (
    "pb.tanh", "pb.relu", "pb.nn.gelu", "pb.sigmoid", "pb.silu", "pb.nn.leaky_relu", "pb.nn.elu", "pb.softplus",
    "pb.nn.selu", "pb.nn.mish", "pb.nn.hardtanh", "pb.nn.softsign", "pb.nn.relu6", "pb.softmax",
)  # fmt: skip
NORMS = ("", "", "layer", "rms", "batch", "group")
CLASSES = (
    "pb.nn.cross_entropy(h, y)",
    "pb.nn.cross_entropy(h, y, ignore_index=1)",
    "pb.nn.cross_entropy(h, y, label_smoothing=0.1)",
    'pb.nn.cross_entropy(h, y, reduction="sum")',
    "pb.nn.nll_loss(pb.log_softmax(h, axis=-1), y)",
    "pb.nn.multi_margin_loss(h, y)",
    "pb.mean(pb.logsumexp(h, axis=-1) - pb.take_along_axis(h, y[:, None], axis=-1)[:, 0])",
)
NUMBERS = (
    "pb.nn.mse_loss(h, y)", "pb.nn.huber_loss(h, y)", "pb.nn.smooth_l1_loss(h, y)", "pb.nn.l1_loss(h, y)",
    "pb.nn.log_cosh_loss(h, y)", "pb.nn.quantile_loss(h, y, q=0.7)", "pb.mean(pb.where(y > 0, (h - y) ** 2, 0.0))",
    "pb.max(pb.abs(h - y))", "pb.mean(pb.clip(h - y, -1.0, 1.0) ** 2)", "pb.sqrt(pb.sum((h - y) ** 2) + 1e-3)",
    "pb.std(h - y)", "pb.mean(pb.max((h - y) ** 2, axis=-1))", "pb.median(pb.abs(h - y))",
)  # fmt: skip
TRUTHS = (
    "pb.nn.binary_cross_entropy_with_logits(h, y)", "pb.nn.binary_cross_entropy(pb.sigmoid(h), y)",
    "pb.nn.focal_loss(h, y)", "pb.nn.hinge_loss(h, 2 * y - 1)", "pb.nn.squared_hinge_loss(h, 2 * y - 1)",
    "pb.nn.soft_margin_loss(h, 2 * y - 1)", "pb.nn.dice_loss(pb.sigmoid(h), y)",
)  # fmt: skip
RULES = (
    "sgd(0.1)", "sgd(0.1, momentum=0.9)", "sgd(0.1, momentum=0.9, nesterov=True, weight_decay=0.01)", "adam(0.01)",
    "adamw(0.01, weight_decay=0.1)", "rmsprop(0.01)", "adagrad(0.05)", "adamax(0.01)", "nadam(0.01)", "radam(0.01)",
    "adadelta()", "lamb(0.01)", "adafactor(0.01)",
)  # fmt: skip


@dataclass(frozen=True)
class Network:
    """All that a network is drawn from."""

    seed: int
    family: str = "dense"
    batch: int = 2
    steps: int = 2
    widths: tuple = (2, 2)
    outputs: int = 2
    activation: str = "pb.tanh"
    norm: str = ""
    residual: bool = False
    bias: bool = False
    dropout: bool = False
    loss: str = "pb.nn.mse_loss(h, y)"
    rule: str = "sgd(0.1)"
    dtype: str = "float64"
    pool: str = ""
    shapes: dict = field(default_factory=dict, compare=False, hash=False)

    def source(self):
        """The loss as a Python function of parameters, data, labels and a key; fills `shapes` with its parameters."""
        self.shapes.clear()
        rows = ["def loss(p, x, y, key):", *(f"    {row}" for row in self._rows()), f"    return {self.loss}", ""]
        return "\n".join(rows)

    def weight(self, name, *shape):
        self.shapes[name] = shape
        return f'p["{name}"]'

    def _rows(self):
        yield "h = x"
        yield from getattr(self, f"_{self.family}")()
        yield f"h = h @ {self.weight('last', self._width(), self.outputs)}" + (
            f" + {self.weight('b', self.outputs)}" if self.bias else ""
        )

    def _width(self):
        return self.widths[-1]

    def _layer(self, i, old, new, channels=False):
        """What follows a linear map: a norm, an activation, a shortcut, dropout."""
        if self.norm in ("batch", "group"):
            moved = self.family not in ("dense", "embedding", "conv1d", "conv2d")
            if not moved:
                yield {"batch": "h = pb.nn.batch_norm(h, training=True)[0]", "group": "h = pb.nn.group_norm(h, 1)"}[
                    self.norm
                ]
        elif self.norm and not channels:
            yield f"h = pb.nn.{self.norm}_norm(h)"
        act = f"{self.activation}(h, axis=-1)" if self.activation == "pb.softmax" else f"{self.activation}(h)"
        yield f"h = {act} + before" if self.residual and old == new else f"h = {act}"
        if self.dropout:
            yield f"h = pb.nn.dropout(h, 0.25, key=pb.random.split(key, {i + 2})[{i}])"

    def _dense(self, first=0):
        for i, (old, new) in enumerate(zip(self.widths, self.widths[1:], strict=False), first):
            yield "before = h"
            bias = f" + {self.weight(f'b{i}', new)}" if self.bias and not self.norm else ""
            yield f"h = h @ {self.weight(f'w{i}', old, new)}{bias}"
            yield from self._layer(i, old, new)

    def _embedding(self):
        yield f"h = pb.nn.embedding(x, {self.weight('table', 5, self.widths[0])})"
        yield f"h = pb.{'max' if self.pool == 'max' else 'mean'}(h, axis=1)"
        yield from self._dense()

    def _attention(self):
        for i in range(len(self.widths) - 1):
            q, k, v = (f"h @ {self.weight(f'{n}{i}', self.widths[0], self.widths[0])}" for n in "qkv")
            yield "before = h"
            how = {
                "attention": "scaled_dot_product_attention({}, is_causal=True)",
                "heads": f"multi_head_attention({{}}, heads={self.pool or 1})",
            }
            yield f"h = pb.nn.{how[self.family].format(f'{q}, {k}, {v}')}"
            yield from self._layer(i, 0, 0)
        yield f"h = h @ {self.weight('out', self.widths[0], self.widths[-1])}"
        yield "h = pb.mean(h, axis=1)"

    _heads = _attention

    def _conv1d(self, rank=1):
        for i, (old, new) in enumerate(zip(self.widths, self.widths[1:], strict=False)):
            shape = (new, old) + (min(2, self.steps),) * rank
            yield "before = h"
            yield f'h = pb.nn.conv{rank}d(h, {self.weight(f"w{i}", *shape)}, padding="same")'
            yield from self._layer(i, old, new, channels=True)
            if self.pool and i == 0 and self.steps > 1:
                yield f"h = pb.nn.{self.pool}_pool{rank}d(h, 2, 1)"
        yield f"h = pb.{'max' if self.pool == 'max' else 'mean'}(h, axis={(2, 3)[:rank]})"

    def _conv2d(self):
        return self._conv1d(2)

    def _recurrent(self, gates):
        old, new = self.widths[0], self.widths[-1]
        given = [self.weight("w", gates * new, old), self.weight("u", gates * new, new)]
        given += [self.weight("c", gates * new)] if self.bias else []
        yield f"hs, _ = pb.nn.{self.family}(h, {', '.join(given)})"
        yield "h = hs[-1]" if self.pool != "avg" else "h = pb.mean(hs, axis=0)"
        yield from self._layer(0, 0, 1)

    def _lstm(self):
        return self._recurrent(4)

    def _gru(self):
        return self._recurrent(3)

    def _rnn(self):
        return self._recurrent(1)

    def function(self):
        space = {"np": np, "pb": pb}
        exec(compile(self.source(), f"<network {self.seed}>", "exec"), space)
        return space["loss"]

    def data_shape(self):
        n, t, d = self.batch, self.steps, self.widths[0]
        return {
            "dense": (n, d), "embedding": (n, t), "attention": (n, t, d), "heads": (n, t, d), "conv1d": (n, d, t),
            "conv2d": (n, d, t, t),
        }.get(self.family, (t, n, d))  # fmt: skip

    def target(self):
        return "class" if self.loss in CLASSES else "truth" if self.loss in TRUTHS else "number"

    def texts(self):
        """How parameters, data and labels are made, as Python."""
        self.source()
        scale = {name: round(1 / max(shape[0], 1) ** 0.5, 2) for name, shape in self.shapes.items()}
        params = ", ".join(f'"{n}": {scale[n]} * rng.normal(size={s})' for n, s in self.shapes.items())
        x = (
            f"rng.integers(0, 5, {self.data_shape()})"
            if self.family == "embedding"
            else f"rng.normal(size={self.data_shape()})"
        )
        y = {
            "class": f"rng.integers(0, {self.outputs}, {self.batch})",
            "truth": f"(rng.random({(self.batch, self.outputs)}) < 0.5).astype(float)",
            "number": f"rng.normal(size={(self.batch, self.outputs)})",
        }[self.target()]
        return f"{{{params}}}", x, y

    def arguments(self):
        rng = np.random.default_rng([self.seed, 5])
        made = [eval(text, {"rng": rng}) for text in self.texts()]
        cast = lambda a: a.astype(self.dtype) if a.dtype.kind == "f" else a  # noqa: E731
        return {n: cast(w) for n, w in made[0].items()}, cast(made[1]), cast(made[2])


def drawn_network(seed):
    rng = np.random.default_rng([13, seed])
    palette = [int(n) for n in rng.choice(SIZES, size=2)]
    size = lambda: int(rng.choice(palette))  # noqa: E731
    family = str(rng.choice(FAMILIES))
    widths = tuple(size() for _ in range(int(rng.integers(2, 5))))
    outputs = max(size(), 2)
    heads = [n for n in (1, 2, 3, 4) if widths[0] % n == 0]
    return Network(
        seed,
        family,
        size(),
        min(size(), 8),
        widths,
        outputs,
        str(rng.choice(ACTIVATIONS)),
        str(rng.choice(NORMS)),
        bool(rng.random() < 0.3),
        bool(rng.random() < 0.6),
        bool(rng.random() < 0.25),
        str(rng.choice((CLASSES, NUMBERS, TRUTHS)[int(rng.integers(3))])),
        str(rng.choice(RULES)),
        "float32" if rng.random() < 0.2 else "float64",
        str(rng.choice(heads if family == "heads" else ("", "max", "avg"))),
    )


class Training:
    """Three rounds of a network: what each way of running it gives, one list of arrays for a round."""

    def __init__(self, network):
        self.network = network
        self.loss = network.function()
        self.params, self.x, self.y = network.arguments()
        self.rule = eval(f"pb.optim.{network.rule}", {"pb": pb})

    def keys(self):
        return pb.random.split(pb.random.key(self.network.seed), ROUNDS)

    def step(self, slopes):
        def step(params, state, x, y, key):
            value, grads = slopes(params, x, y, key)
            updates, state = self.rule.update(grads, state, params)
            return value, grads, pb.optim.apply_updates(params, updates), state

        return step

    def rounds(self, step):
        """Value, gradients and new parameters of each round, the parameters going on."""
        params = {n: w.copy() for n, w in self.params.items()}
        state, found = self.rule.init(params), []
        for key in self.keys():
            value, grads, params, state = step(params, state, self.x, self.y, key)
            found.append(
                [np.array(value), *(np.array(grads[n]) for n in params), *(np.array(params[n]) for n in params)]
            )
        return found


def eager(training):
    return training.rounds(training.step(pb.value_and_grad(training.loss)))


def jit_grad(training):
    return training.rounds(training.step(jit(pb.value_and_grad(training.loss))))


def grad_jit(training):
    return training.rounds(training.step(pb.value_and_grad(jit(training.loss))))


def backward(training):
    compiled = jit(training.loss)

    def slopes(params, x, y, key):
        tensors = {n: pb.tensor(w, requires_grad=True) for n, w in params.items()}
        value = compiled(tensors, x, y, key)
        value.backward()
        return value.detach().numpy(), {n: t.grad.numpy() for n, t in tensors.items()}

    return training.rounds(training.step(slopes))


def whole_step(training):
    return training.rounds(jit(training.step(pb.value_and_grad(training.loss)), donate_argnums=(0, 1)))


WAYS = {"whole_step": whole_step, "jit_grad": jit_grad, "grad_jit": grad_jit, "backward": backward}


@dataclass(frozen=True)
class Fault:
    network: Network
    way: str
    kind: str
    what: str

    def __str__(self):
        return f"network {self.network.seed}, {self.way}: {self.what}"


def find_fault(network, way):
    """The fault of a network in one way of compiling it, or None."""
    with np.errstate(all="ignore"):
        training = Training(network)
        try:
            wanted = eager(training)
        except Exception as error:
            return Fault(
                network,
                way,
                f"eager {type(error).__name__}",
                f"eager raises {type(error).__name__}: {str(error)[:200]}",
            )
        try:
            with poisoned((0xFF, 0x7F)[network.seed % 2]):
                found = WAYS[way](training)
        except Exception as error:
            return Fault(network, way, type(error).__name__, f"{type(error).__name__}: {str(error)[:200]}")
        return _difference(training, way, found, wanted)


def _difference(training, way, found, wanted):
    tolerance = 1e-9 if training.network.dtype == "float64" else 5e-4
    names = ["value", *(f"gradient of {n}" for n in training.params), *training.params]
    slack = None
    for number, i in np.ndindex(ROUNDS, len(names)):
        x, y = found[number][i], wanted[number][i]
        if (x.shape, x.dtype) != (y.shape, y.dtype):
            return Fault(training.network, way, "kind", f"{names[i]} is {x.dtype}{x.shape}, not {y.dtype}{y.shape}")
        size = max(float(np.max(np.abs(y), initial=0.0)), 1e-2)
        if np.array_equal(x, y, equal_nan=True) or np.max(np.abs(x - y)) <= tolerance * size:
            continue
        slack = slacks(training, wanted) if slack is None else slack
        gap = float(np.max(np.abs(x - y)))
        if not gap <= tolerance * size + 16 * slack[number][i]:  # also if it is NaN
            what = f"round {number}, {names[i]}: off by {gap:.3g} of {size:.3g}"
            return Fault(training.network, way, "numbers", what)
    return None


def slacks(training, wanted):
    """How far the eager results move when parameters and data move in their last places."""
    found = [[0.0] * len(row) for row in wanted]
    for number in range(5):
        rng, other = np.random.default_rng(number), Training(training.network)
        other.params = {n: moved(w, rng) for n, w in other.params.items()}
        other.x = moved(other.x, rng)
        for i, row in enumerate(eager(other)):
            for j, x in enumerate(row):
                found[i][j] = max(found[i][j], float(np.max(np.abs(x - wanted[i][j]), initial=0.0)))
    return found


def moved(a, rng):
    if a.dtype.kind != "f":
        return a
    return (a * (1 + 4 * np.finfo(a.dtype).eps * rng.normal(size=a.shape))).astype(a.dtype)


#: The plainest of each field, in the order in which they are tried.
PLAIN = (
    ("dropout", False), ("norm", ""), ("residual", False), ("bias", False), ("rule", "sgd(0.1)"), ("dtype", "float64"),
    ("pool", ""), ("activation", "pb.tanh"), ("activation", "pb.relu"), ("family", "dense"),
    ("loss", "pb.nn.mse_loss(h, y)"), ("loss", "pb.max(pb.abs(h - y))"), ("loss", "pb.nn.cross_entropy(h, y)"),
)  # fmt: skip


def shrink(fault):
    """The plainest network that fails in the same way."""
    smaller = True
    while smaller:
        smaller = False
        for candidate in candidates(fault.network):
            found = _attempt(candidate, fault)
            if found is not None:
                fault, smaller = found, True
                break
    return fault


def _attempt(network, fault):
    found = find_fault(network, fault.way)
    return found if found is not None and found.kind == fault.kind else None


def candidates(network):
    """Networks that are plainer in one respect."""
    for name, plain in PLAIN:
        if getattr(network, name) not in [p for n, p in PLAIN if n == name]:
            yield replace(network, **{name: plain}, shapes={})
    if len(network.widths) > 2:
        yield replace(network, widths=network.widths[1:], shapes={})
        yield replace(network, widths=network.widths[:-1], shapes={})
    for n in sorted({network.batch, network.steps, network.outputs, *network.widths}, reverse=True):
        for m in (m for m in (1, 2, 3) if m < n):
            smaller = resized(network, n, m)
            if smaller != network:
                yield smaller


def resized(network, n, m):
    """Every size of n becomes m; there are at least two outputs."""
    batch, steps, outputs, *widths = (
        m if s == n else s for s in (network.batch, network.steps, network.outputs, *network.widths)
    )
    outputs = max(outputs, 2)
    return replace(network, batch=batch, steps=steps, outputs=outputs, widths=tuple(widths), shapes={})


def reproduction(fault):
    """A network as runnable Python: both gradients, or both steps."""
    network = fault.network
    params, x, y = network.texts()
    calls = {
        "jit_grad": "print(pb.grad(loss)(p, x, y, key), pb.jit(pb.grad(loss))(p, x, y, key))",
        "whole_step": "print(pb.grad(loss)(p, x, y, key), pb.jit(pb.grad(loss))(p, x, y, key))"
        f"  # step with pb.optim.{network.rule}, p and state donated",
    }
    call = calls.get(fault.way, "print(pb.grad(loss)(p, x, y, key), pb.grad(pb.jit(loss))(p, x, y, key))")
    settings = {f.name: getattr(network, f.name) for f in fields(network) if f.name != "shapes"}
    head = [
        f"# {fault}",
        f"# Network({', '.join(f'{n}={v!r}' for n, v in settings.items())})",
        "import numpy as np",
        "import pullback as pb",
        "",
        "rng, key = np.random.default_rng(0), pb.random.key(0)",
    ]
    return "\n".join([*head, f"p = {params}", f"x = {x}", f"y = {y}", "", network.source(), call, ""])


def main():
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args()
    faults, start = 0, time.process_time()
    for seed in range(given.seed, given.seed + given.networks):
        link.EFFORT = (link.PASSES, 3) if seed % 10 == 0 else ((), 0)
        for way in ("whole_step", list(WAYS)[1 + seed % 3]):
            fault = find_fault(drawn_network(seed), way)
            if fault is not None:
                faults += 1
                print(f"\n== {fault}", flush=True)
                print(reproduction(shrink(fault)) if faults < 25 else "", flush=True)
    print(f"{given.networks} networks from {given.seed}, {faults} faults, {time.process_time() - start:.0f} s of CPU")
    sys.exit(bool(faults))


if __name__ == "__main__":
    main()
