"""Workloads in, one table out: pullback, PyTorch and JAX doing the same work on one device, synchronized each time.

Contestants take turns in short bursts and the best single call counts, as in `../contest.py`. One that fails is
reported on the error stream and leaves the others their places.
"""

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import tempfile
import traceback
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from pathlib import Path
from time import perf_counter
from typing import Any

os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")  # JAX would take most of the memory for itself
sys.path.insert(1, str(Path(__file__).resolve().parent.parent))
import numpy as np
from contest import installed, processor

import pullback as pb

OURS = ("eager", "jit", "tf32", "float32")
PEERS = ("eager", "compile", "reduce-overhead", "graph", "compile+graph", "jax")
#: What a line with a row begins with.
MARK = "ROW "
DEFAULT_PEERS = "eager,graph,jax"  # torch.compile takes minutes over all rows


@dataclass(frozen=True)
class Workload:
    """One row. `data(small)` makes NumPy arguments `(parameters, *others)`; a loss is written once for each library.

    With a `rate` a call is a whole training step that updates the parameters, else the value and its gradients. Where
    the loss is an array, the last argument is its cotangent and no part of the loss's arguments. `ours` in mixed
    precision is compared with `wide`, the same in float32, which takes `wide_ratio` times as long or longer.
    """

    name: str
    title: str
    data: Callable[[bool], tuple]
    ours: Callable
    torch: Callable[[], Callable]
    jax: Callable[[], Callable]
    must_reach: float | None = None  # microseconds; None: ahead of the best peer
    eager_ratio: float | None = None  # our eager time over PyTorch's, at most
    rate: float | None = None
    is_array: bool = False
    tolerance: float = 2e-2  # peers may round products to tf32
    watches_median: bool = False
    wide: Callable | None = None
    wide_ratio: float = 1.0


@dataclass(frozen=True)
class Contestant:
    """`call` starts the work, `wait` ends it, `results` are its last results as NumPy arrays, `reset` starts afresh;
    all calls are made inside `around()`.
    """

    call: Callable[[], Any]
    wait: Callable[[], None]
    results: Callable[[], list[np.ndarray]]
    reset: Callable[[], None]
    around: Callable[[], AbstractContextManager] = nullcontext

    def run(self) -> None:
        self.call()
        self.wait()


@dataclass
class Row:
    """What a workload's race found: seconds by contestant, and why a contestant has none."""

    workload: Workload
    best: dict[str, float] = field(default_factory=dict)
    median: dict[str, float] = field(default_factory=dict)
    failures: dict[str, str] = field(default_factory=dict)


# pullback


def arrays_for(device: str) -> tuple[Callable, Callable, Callable[[], None]]:
    """How arrays of a device are made of NumPy's and made NumPy's again, and how one waits for it."""
    if device == "cpu":
        return (lambda a: a.copy()), np.asarray, lambda: None
    import cupy

    return cupy.asarray, cupy.asnumpy, cupy.cuda.get_current_stream().synchronize


def plain(value: Any) -> Any:
    """The array of a tensor."""
    return value.detach().value if isinstance(value, pb.Tensor) else value


def our_step(work: Workload) -> Callable:
    """The function of `(parameters, *others)` that users would compile: it knows nothing of the row."""
    loss, rate = work.ours, work.rate

    def pulled(p: Any, *others: Any) -> tuple:
        *rest, bar = others
        y, pull = pb.vjp(lambda p: loss(p, *rest), p)
        return y, pull(bar)[0]

    if work.is_array:
        return pulled
    graded = pb.value_and_grad(loss)
    if rate is None:
        return graded

    def step(p: Any, *others: Any) -> tuple:
        value, g = graded(p, *others)
        return value, [a - rate * b for a, b in zip(p, g, strict=True)]

    return step


def our_jit(work: Workload, data: tuple, device: str) -> Contestant:
    to_device, to_numpy, wait = arrays_for(device)
    is_step = work.rate is not None
    compiled = pb.jit(our_step(work), donate_argnums=0 if is_step else ())
    others = [to_device(a) for a in data[1:]]
    state: list[Any] = [None, None]

    def reset() -> None:
        state[:] = None, [to_device(a) for a in data[0]]

    def call() -> None:
        value, found = compiled(state[1], *others)
        state[0] = value, found
        if is_step:
            state[1] = found

    reset()
    return Contestant(call, wait, lambda: [to_numpy(plain(a)) for a in (state[0][0], *state[0][1])], reset)


@contextmanager
def rounding_to_tf32() -> Iterator[None]:
    pb.set_matmul_precision("tf32")
    try:
        yield
    finally:
        pb.set_matmul_precision("float32")


def our_tf32(work: Workload, data: tuple, device: str) -> Contestant:
    """The compiled step with products rounded to tf32, as PyTorch (where allowed) and JAX (by default) have it."""
    return replace(our_jit(work, data, device), around=rounding_to_tf32)


def our_float32(work: Workload, data: tuple, device: str) -> Contestant:
    """The compiled step of a row in mixed precision, all in float32."""
    assert work.wide is not None
    return our_jit(replace(work, ours=work.wide), data, device)


def our_eager(work: Workload, data: tuple, device: str) -> Contestant:
    """The loop by tape, as people write it."""
    to_device, to_numpy, wait = arrays_for(device)
    others = [pb.tensor(to_device(a)) for a in data[1:]]
    state: dict[str, Any] = {}

    def reset() -> None:
        state["leaves"] = leaves = [pb.tensor(to_device(a), requires_grad=True) for a in data[0]]
        state["optimizer"] = pb.optim.SGD(leaves, lr=work.rate or 1.0)

    def call() -> None:
        leaves, optimizer = state["leaves"], state["optimizer"]
        optimizer.zero_grad()
        bar = others[-1:] if work.is_array else []
        value = work.ours(leaves, *others[: len(others) - len(bar)])
        value.backward(*bar)
        state["value"] = value
        if work.rate is not None:
            optimizer.step()

    def results() -> list[np.ndarray]:
        found = [p if work.rate is not None else p.grad for p in state["leaves"]]
        return [to_numpy(plain(a)) for a in (state["value"], *found)]

    reset()
    return Contestant(call, wait, results, reset)


# PyTorch


def torch_contestant(
    work: Workload, data: tuple, device: str, mode: str | None = None, captures: bool = False
) -> Contestant:
    """With a `mode`, by `torch.compile`."""
    import torch

    torch.set_float32_matmul_precision("high")  # tf32 where the hardware has it: the peer at its best
    torch.backends.cudnn.allow_tf32 = True

    def to_device(a: np.ndarray) -> torch.Tensor:
        if a.dtype.name == "bfloat16":
            return torch.tensor(a.astype(np.float32), device=device).to(torch.bfloat16)
        return torch.tensor(a, device=device)

    loss = work.torch()
    loss = loss if mode is None else torch.compile(loss, mode=mode)
    leaves = [to_device(a).requires_grad_() for a in data[0]]
    others = [to_device(a) for a in data[1:]]
    bar = others.pop() if work.is_array else None
    state: dict[str, Any] = {}

    def call() -> None:
        if mode == "reduce-overhead":
            torch.compiler.cudagraph_mark_step_begin()
        value = loss(leaves, *others)
        gradients = torch.autograd.grad(value, leaves, bar)
        if work.rate is not None:
            with torch.no_grad():
                torch._foreach_add_(leaves, gradients, alpha=-work.rate)
        state.update(value=value.detach(), found=gradients if work.rate is None else leaves)

    wait = (lambda: None) if device == "cpu" else torch.cuda.current_stream().synchronize

    def reset() -> None:
        with torch.no_grad():
            for p, a in zip(leaves, data[0], strict=True):
                p.copy_(to_device(a))

    def results() -> list[np.ndarray]:
        found = state["value"], *state["found"]
        return [a.detach().float().cpu().numpy() if a.is_floating_point() else a.cpu().numpy() for a in found]

    return Contestant(torch_graph(call) if captures else call, wait, results, reset)


def torch_graph(call: Callable[[], None]) -> Callable[[], None]:
    """The call captured in a CUDA graph after a few runs on the stream of the capture. Other libraries of the process
    may call CUDA meanwhile.
    """
    import torch

    stream, graph = torch.cuda.Stream(), torch.cuda.CUDAGraph()
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for _ in range(3):
            call()
    torch.cuda.synchronize()
    with torch.cuda.graph(graph, stream=stream, capture_error_mode="relaxed"):
        call()
    torch.cuda.synchronize()

    def replay(arguments: Callable[[], None] = call) -> None:  # a graph does not keep what it reads alive
        graph.replay()

    return replay


# JAX


def jax_contestant(work: Workload, data: tuple, device: str) -> Contestant:
    import jax
    import jax.numpy as jnp

    place = jax.devices("cpu" if device == "cpu" else "gpu")[0]
    loss = work.jax()

    def pulled(p: Any, *others: Any) -> tuple:
        *rest, bar = others
        y, pull = jax.vjp(lambda p: loss(p, *rest), p)
        return y, pull(bar)[0]

    def step(p: Any, *others: Any) -> tuple:
        value, g = jax.value_and_grad(loss)(p, *others)
        return value, g if work.rate is None else [a - work.rate * b for a, b in zip(p, g, strict=True)]

    is_step = work.rate is not None
    compiled = jax.jit(pulled if work.is_array else step, donate_argnums=0 if is_step else ())
    others = [jax.device_put(jnp.asarray(a), place) for a in data[1:]]
    state: list[Any] = [None, None]

    def reset() -> None:
        state[:] = None, [jax.device_put(jnp.array(a), place) for a in data[0]]

    def call() -> None:
        state[0] = compiled(state[1], *others)
        if is_step:
            state[1] = state[0][1]

    def results() -> list[np.ndarray]:
        return [np.asarray(a) for a in (state[0][0], *state[0][1])]

    reset()
    return Contestant(call, lambda: jax.block_until_ready(state[0]), results, reset)


MAKERS: dict[str, Callable[[Workload, tuple, str], Contestant]] = {
    "pullback eager": our_eager,
    "pullback jit": our_jit,
    "pullback tf32": our_tf32,
    "pullback float32": our_float32,
    "PyTorch eager": torch_contestant,
    "PyTorch compile": lambda *a: torch_contestant(*a, mode="default"),
    "PyTorch reduce-overhead": lambda *a: torch_contestant(*a, mode="reduce-overhead"),
    "PyTorch graph": lambda *a: torch_contestant(*a, captures=True),
    "PyTorch compile+graph": lambda *a: torch_contestant(*a, mode="default", captures=True),
    "JAX": jax_contestant,
}


# the race


def compete(work: Workload, options: argparse.Namespace) -> Row:
    """Every contestant is made, agrees with the others after one call, and races. Memory is free again at the end."""
    row, data = Row(work), work.data(options.small)
    ready: dict[str, Contestant] = {}
    expected: list[np.ndarray] | None = None
    for name in options.contestants:
        if name == "pullback float32" and work.wide is None:
            continue
        try:
            made = MAKERS[name](work, data, options.device)
            with made.around():
                made.reset()
                made.run()
            results = made.results()
            # the first that works sets the standard: a peer, so that our fault is ours
            expected = check(results, expected, work.tolerance)
            ready[name] = made
        except Exception as error:
            row.failures[name] = last_lines(error)
    race(ready, options.seconds, row)
    ready.clear()
    free_memory(options.device)
    return row


def check(results: list[np.ndarray], expected: list[np.ndarray] | None, tolerance: float) -> list[np.ndarray]:
    """The results to agree with; raises where these do not (by their norms)."""
    results = [thinned(a).astype(np.float64) for a in results]
    if expected is None:
        return results
    for i, (found, wanted) in enumerate(zip(results, expected, strict=True)):
        off = np.linalg.norm(found - wanted) / max(float(np.linalg.norm(wanted)), 1e-30)
        if not off <= tolerance:
            raise AssertionError(f"result {i} differs by {off:.1e} of its norm")
    return expected


def thinned(a: np.ndarray) -> np.ndarray:
    """A million elements of an array, from everywhere."""
    return a.ravel()[:: max(a.size >> 20, 1)]


def race(ready: dict[str, Contestant], seconds: float, row: Row) -> None:
    """Rounds of short bursts, each contestant in turn; the best and the median of all calls."""
    times: dict[str, list[float]] = {name: [] for name in ready}
    until = perf_counter() + seconds * max(len(ready), 1)
    while ready and (perf_counter() < until or not all(times.values())):
        for name in list(ready):
            try:
                with ready[name].around():
                    times[name] += burst(ready[name].run)
            except Exception as error:
                row.failures[name] = last_lines(error)
                del ready[name]
    for name in ready:
        row.best[name], row.median[name] = min(times[name]), statistics.median(times[name])


def burst(run: Callable[[], None], seconds: float = 0.02, most: int = 200) -> list[float]:
    """The times of a few calls in a row; the first, uncounted, warms the caches again after the others' turns."""
    run()
    times: list[float] = []
    until = perf_counter() + seconds
    while not times or (perf_counter() < until and len(times) < most):
        begin = perf_counter()
        run()
        times.append(perf_counter() - begin)
    return times


def last_lines(error: BaseException) -> str:
    """What a report needs of an error: its message and where it came from."""
    frames = traceback.extract_tb(error.__traceback__)[-3:]
    where = " < ".join(f"{Path(f.filename).name}:{f.lineno} {f.name}" for f in reversed(frames))
    return f"{type(error).__name__}: {str(error)[:600]} [{where}]"


def free_memory(device: str) -> None:
    gc.collect()
    if device == "cpu":
        return
    for module, free in (
        ("cupy", lambda m: m.get_default_memory_pool().free_all_blocks()),
        ("torch", lambda m: m.cuda.empty_cache()),
    ):
        if module in sys.modules:
            free(sys.modules[module])


# the table


def peers_of(row: Row) -> dict[str, float]:
    return {name: t for name, t in row.best.items() if not name.startswith("pullback")}


def verdicts(row: Row) -> Iterator[str]:
    """Our best compiled time against the best peer's and the time to reach; our eager time against PyTorch's."""
    work, best, peers = row.workload, row.best, peers_of(row)
    compiled = [best[name] for name in ("pullback jit", "pullback tf32") if name in best]
    if compiled and peers:
        ratio = min(compiled) / min(peers.values())
        yield f"{ratio:.2f} of best peer{'' if work.must_reach else judge(ratio, 1.0)}"
    if compiled and work.must_reach:
        yield f"must reach {work.must_reach:,.0f} us{judge(min(compiled) * 1e6, work.must_reach)}"
    if work.watches_median and compiled and peers:
        ours = min(row.median[n] for n in row.median if n in ("pullback jit", "pullback tf32"))
        theirs = min(row.median[n] for n in peers)
        yield f"median {ours / theirs:.2f} of the peers'{judge(ours, theirs)}"
    if compiled and "pullback float32" in best:
        ratio = best["pullback float32"] / min(compiled)
        yield f"{ratio:.2f} times as fast as float32, must reach {work.wide_ratio}{judge(work.wide_ratio, ratio)}"
    if work.eager_ratio and {"pullback eager", "PyTorch eager"} <= best.keys():
        ratio = best["pullback eager"] / best["PyTorch eager"]
        yield f"eager {ratio:.2f} of PyTorch's, must reach {work.eager_ratio:.2f}{judge(ratio, work.eager_ratio)}"


def judge(found: float, limit: float) -> str:
    return " met" if found <= limit else " MISSED"


def print_heading(names: list[str]) -> None:
    print(f"| microseconds, best of many | {' | '.join(names)} | pullback |")
    print(f"|{'---|' * (len(names) + 2)}", flush=True)


def print_row(row: Row, names: list[str]) -> None:
    """Printed as soon as it is known: a run that is cut short has what it found."""
    cells = [f"{row.best[n] * 1e6:,.1f}" if n in row.best else "failed" if n in row.failures else "" for n in names]
    print(f"| {row.workload.title} | {' | '.join(cells)} | {'; '.join(verdicts(row))} |", flush=True)
    for name, why in row.failures.items():
        print(f"  {name}: {why}", file=sys.stderr, flush=True)


def parse(doc: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=doc, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help="a short run: rough numbers")
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"), help="cpu tries the scripts without a GPU")
    parser.add_argument("--small", action="store_true", help="small sizes, the default on the CPU")
    parser.add_argument("--rows", default="", help="only rows whose name begins with one of these, by commas")
    parser.add_argument("--ours", default=",".join(OURS), help="of %(default)s")
    parser.add_argument("--peers", default=DEFAULT_PEERS, help=f"of {','.join(PEERS)} (%(default)s); all for all")
    parser.add_argument("--worker", help=argparse.SUPPRESS)
    options = parser.parse_args()
    options.small = options.small or options.device == "cpu"
    options.seconds = 0.15 if options.quick else 2.0
    peers = PEERS if options.peers == "all" else [p for p in options.peers.split(",") if p]
    if options.device == "cpu":
        peers = [p for p in peers if "graph" not in p and p != "reduce-overhead"]
    theirs = ["JAX" if p == "jax" else f"PyTorch {p}" for p in peers]
    ours = [f"pullback {o}" for o in options.ours.split(",") if o]
    # the first sets the standard; captures come last, since one that fails leaves PyTorch in disorder
    options.contestants = sorted([*theirs, *ours], key=lambda name: name.endswith("graph"))
    return options


def machine(device: str) -> str:
    packages = [f"{n} {v}" for n in ("pullback", "numpy", "cupy-cuda13x", "torch", "jax") if (v := installed(n))]
    name = processor()
    if device != "cpu":
        import cupy

        name = cupy.cuda.runtime.getDeviceProperties(0)["name"].decode()
    return f"{', '.join(packages)}; {name}"


def choose(rows: tuple[Workload, ...], wanted: str) -> list[Workload]:
    return [w for w in rows if not wanted or w.name.startswith(tuple(wanted.split(",")))]


def main(doc: str, workloads: tuple[Workload, ...]) -> None:
    """Rows are computed by a process that is replaced when it is lost: an assertion on a device ends all that runs in
    its process.
    """
    options = parse(doc)
    if options.worker is not None:
        work(workloads, options)
        return
    print(machine(options.device))
    print_heading(options.contestants)
    waiting = [w.name for w in choose(workloads, options.rows)]
    by_name = {w.name: w for w in workloads}
    while waiting:
        before = len(waiting)
        for row in rows_of_worker(waiting, by_name):
            waiting.remove(row.workload.name)
            print_row(row, options.contestants)
        if len(waiting) == before:
            print(f"| {waiting.pop(0)} | the process was lost |", flush=True)


def work(workloads: tuple[Workload, ...], options: argparse.Namespace) -> None:
    """Compute rows by name and print each as JSON; give up the process when the device is lost."""
    for name in json.loads(options.worker):
        row = compete(next(w for w in workloads if w.name == name), options)
        print(MARK + json.dumps([name, row.best, row.median, row.failures]), flush=True)
        if any("cuda" in why.lower() and "error" in why.lower() for why in row.failures.values()):
            os._exit(0)


def rows_of_worker(names: list[str], by_name: dict[str, Workload]) -> Iterator[Row]:
    """Rows as a new process finds them, until it ends."""
    command = [sys.executable, *sys.argv, "--worker", json.dumps(names)]
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(command, stdout=subprocess.PIPE, stderr=log, text=True)
        assert process.stdout is not None
        for line in process.stdout:
            if line.startswith(MARK):
                name, *found = json.loads(line.removeprefix(MARK))
                yield Row(by_name[name], *found)
        if process.wait():
            log.seek(0)
            print("\n".join(log.read().splitlines()[-4:]), flush=True)
