"""Data-parallel training steps: ours, compiled and on the tape, and PyTorch's DistributedDataParallel with Gloo.

Every rank has a core and one thread. A step is measured twice: by all ranks at once, each for itself, and with the
gradients summed over ranks; the quotient of the two is the efficiency. Contestants take turns, and the best median of
all rounds counts.

    python benchmarks/distributed/steps.py            ranks: as many as cores, at most 8
    python benchmarks/distributed/steps.py -n 2 --quick
"""

import argparse
import importlib.util
import itertools
import json
import os
import subprocess
import sys
import time

#: Widths of the layers, samples a rank, steps a measurement.
MODELS = {
    "784-256-128-10, batch 64": ([784, 256, 128, 10], 64, 120),
    "784-256-128-10, batch 512": ([784, 256, 128, 10], 512, 40),
    "1024 x3, batch 256": ([1024, 1024, 1024, 1024], 256, 15),
}
RATE = 1e-4
CONTESTANTS = ("pullback jit", "pullback tape", "PyTorch DDP")


def median(values):
    return sorted(values)[len(values) // 2]


def measure(step, steps, barrier):
    """Median seconds of a step that all ranks begin at once."""
    seconds = []
    for i in range(steps + 3):
        barrier()
        start = time.perf_counter()
        step()
        if i >= 3:
            seconds.append(time.perf_counter() - start)
    return median(seconds)


def make_data(widths, batch, seed):
    import numpy as np

    random = np.random.default_rng(seed)
    return [random.normal(size=(batch, w)).astype("float32") for w in (widths[0], widths[-1])]


def make_layers(widths):
    import numpy as np

    random = np.random.default_rng(0)
    return [
        ((random.normal(size=(a, b)) / a**0.5).astype("float32"), np.zeros(b, "float32"))
        for a, b in itertools.pairwise(widths)
    ]


def run_ours(name, model):
    import numpy as np

    import pullback as pb
    from pullback import distributed, optim

    distributed.init()
    widths, batch, steps = MODELS[model]
    x, y = make_data(widths, batch, distributed.rank())
    scale = np.float32(1 / (batch * distributed.world_size()))

    def loss(layers, x, y):
        h = x
        for i, (w, b) in enumerate(layers):
            h = h @ w + b
            h = pb.nn.relu(h) if i < len(layers) - 1 else h
        return pb.sum((h - y) ** 2) * scale

    def compiled(rule):
        def step(layers, state, x, y):
            updates, state = rule.update(pb.grad(loss)(layers, x, y), state, layers)
            return optim.apply_updates(layers, updates), state

        run = pb.jit(step, donate_argnums=(0, 1))
        held = [make_layers(widths), rule.init(make_layers(widths))]

        def advance():
            held[:] = run(*held, x, y)

        return advance, held

    def taped(over_ranks):
        layers = [tuple(pb.tensor(p, requires_grad=True) for p in layer) for layer in make_layers(widths)]
        optimizer = optim.SGD(layers, lr=RATE)
        sums = distributed.DistributedGradient(layers) if over_ranks else None

        def advance():
            optimizer.zero_grad()
            loss(layers, x, y).backward()
            optimizer.step()

        return advance, [layers, sums]

    if name == "pullback jit":
        alone, over = compiled(optim.sgd(RATE)), compiled(optim.chain(distributed.aggregate(), optim.sgd(RATE)))
    else:
        alone, over = taped(False), taped(True)
    seconds = [measure(step, steps, distributed.barrier) for step, _ in (alone, over)]
    seconds = [float(distributed.largest(s)) for s in seconds]
    first = pb.tree.leaves(over[1][0])[0]
    first = first if isinstance(first, np.ndarray) else first.detach().numpy()
    if distributed.rank() == 0:
        print(json.dumps([*seconds, float(np.abs(first).sum())]), flush=True)


def run_torch(rank, ranks, model, port):
    import torch
    import torch.distributed as dist

    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(ranks))
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {rank})
    dist.init_process_group("gloo", rank=rank, world_size=ranks)
    widths, batch, steps = MODELS[model]
    x, y = map(torch.from_numpy, make_data(widths, batch, rank))

    def make_net():
        layers = []
        for i, (w, b) in enumerate(make_layers(widths)):
            layer = torch.nn.Linear(*w.shape)
            layer.weight.data, layer.bias.data = torch.from_numpy(w.T.copy()), torch.from_numpy(b)
            layers += [layer] if i == len(widths) - 2 else [layer, torch.nn.ReLU()]
        return torch.nn.Sequential(*layers)

    def make_step(net):
        optimizer = torch.optim.SGD(net.parameters(), RATE)

        def advance():
            optimizer.zero_grad()
            (((net(x) - y) ** 2).sum() / batch).backward()  # the mean over ranks is taken by DDP
            optimizer.step()

        return advance

    nets = make_net(), torch.nn.parallel.DistributedDataParallel(make_net())
    seconds = torch.tensor([measure(make_step(net), steps, dist.barrier) for net in nets])
    dist.all_reduce(seconds, dist.ReduceOp.MAX)
    if rank == 0:
        first = next(iter(nets[1].parameters())).detach()
        print(json.dumps([*seconds.tolist(), float(first.abs().sum())]), flush=True)
    dist.destroy_process_group()


def launch(name, ranks, model, port):
    """Seconds alone and over ranks, and a check sum of the parameters."""
    environment = {**os.environ, **dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")}
    if name == "PyTorch DDP":
        command = [sys.executable, __file__, "--as-torch", model, "-n", str(ranks), "--port", str(port)]
    else:
        command = [sys.executable, "-m", "pullback", "run", "-n", str(ranks), __file__, "--as-rank", name, model]
    done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=600)
    lines = [line for line in done.stdout.splitlines() if line.startswith("[")]
    if not lines:  # PyTorch may abort while it ends
        sys.exit(f"{name} failed:\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}")
    return json.loads(lines[-1])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("-n", "--ranks", type=int, default=min(8, len(os.sched_getaffinity(0))))
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="two rounds")
    parser.add_argument("--as-rank", nargs=2, help=argparse.SUPPRESS)
    parser.add_argument("--as-torch", help=argparse.SUPPRESS)
    parser.add_argument("--port", type=int, default=29512, help=argparse.SUPPRESS)
    chosen = parser.parse_args()
    if chosen.as_rank:
        run_ours(*chosen.as_rank)
        return
    if chosen.as_torch:
        import torch.multiprocessing

        torch.multiprocessing.spawn(run_torch, (chosen.ranks, chosen.as_torch, chosen.port), nprocs=chosen.ranks)
        return
    names = CONTESTANTS
    if importlib.util.find_spec("torch") is None:
        print("PyTorch is not installed: it is left out")
        names = CONTESTANTS[:2]
    port = 29512
    print(f"{chosen.ranks} ranks, each with one core and one thread; milliseconds a step, best median of all rounds")
    for model in MODELS:
        found = {name: [] for name in names}
        for _ in range(2 if chosen.quick else chosen.rounds):
            for name in names:
                port += 1
                found[name].append(launch(name, chosen.ranks, model, port))
        print(f"\n{model}")
        sums = [rows[0][2] for rows in found.values()]
        assert max(sums) - min(sums) < 1e-3 * max(sums), f"parameters differ: {sums}"
        for name, rows in found.items():
            alone, over = (1e3 * min(row[i] for row in rows) for i in (0, 1))
            print(f"  {name:15s} alone {alone:8.3f}   over ranks {over:8.3f}   efficiency {alone / over:.2f}")


if __name__ == "__main__":
    main()
