"""A rank that meets a fault: rank 1 does what the fault's name says, and every rank notes which error it got, and when.

    pullback run -n 2 tests/ranks/fault_check.py kill compiled 2.0 reports/

`fault_jobs.py` starts such jobs and judges the notes.
"""

from __future__ import annotations

import json
import os
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

import pullback as pb
from pullback import distributed, optim
from pullback.errors import PullbackError
from pullback.ops.collective.world import current_world

_NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")
NUMBER = int(next((os.environ[name] for name in _NUMBERS if name in os.environ), "0"))
#: The rank that something happens to.
CULPRIT = 1
KIND, MODE, DEADLINE, NOTES = sys.argv[1], sys.argv[2], float(sys.argv[3]), Path(sys.argv[4])
#: Seconds that ranks have to start, where that is not what is tried; and that a fault lasts which does not end.
START_SECONDS, LONG = 30.0, 300.0


def is_culprit() -> bool:
    return NUMBER == CULPRIT


class Note:
    """What became of this rank, in a file: what a rank prints may be lost where a launcher ends it."""

    def __init__(self) -> None:
        self.start = time.monotonic()
        self.is_as_before: Callable[[], bool] = lambda: True

    def write(self, error: BaseException | None) -> None:
        found = {
            "error": None if error is None else type(error).__name__,
            "kinds": [] if error is None else [kind.__name__ for kind in type(error).__mro__],
            "text": str(error),
            "seconds": time.monotonic() - self.start,
            "as_before": self.is_as_before(),
        }
        NOTES.joinpath(f"{NUMBER}.tmp").write_text(json.dumps(found))
        NOTES.joinpath(f"{NUMBER}.tmp").rename(NOTES / f"{NUMBER}.json")


# what ranks compute together


def loss(w: Any, x: Any, variant: str) -> Any:
    first, second = distributed.total, distributed.all_gather
    if variant == "order":
        y = second(x)
        return pb.sum(first(x) * distributed.shared(w)) + pb.sum(y)
    if variant == "op":
        first = distributed.all_reduce if variant == "" else lambda x: distributed.broadcast(x, root=0)
    y = first(x)
    if variant == "one more":
        y = distributed.total(y)
    return distributed.total(pb.sum(y * distributed.shared(w)) + pb.sum(second(x)))


class Tape:
    """Steps on the tape; what must not change when one fails is the gradient."""

    def __init__(self) -> None:
        self.w = pb.tensor(np.ones(3), requires_grad=True)
        pb.sum(3.0 * self.w).backward()

    def step(self, x: Any, variant: str = "") -> None:
        loss(self.w, x, variant).backward()

    def state(self) -> bytes:
        assert self.w.grad is not None
        return self.w.grad.numpy().tobytes()


class Compiled:
    """Compiled steps; what must not change when one fails is what they are allowed to overwrite."""

    def __init__(self) -> None:
        self.w = np.ones(3)
        self._step = pb.jit(self._advance, donate_argnums=0, static_argnums=2)

    @staticmethod
    def _advance(w: Any, x: Any, variant: str) -> Any:
        return w - 0.1 * pb.grad(lambda w: loss(w, x, variant))(w)

    def step(self, x: Any, variant: str = "") -> None:
        self.w = self._step(self.w, x, variant)

    def state(self) -> bytes:
        return self.w.tobytes()


class TrainedTape:
    """Gradients summed by `DistributedGradient`."""

    def __init__(self, w: float = 1.0) -> None:
        self.params = {name: pb.tensor(np.full(3, w), requires_grad=True) for name in ("w", "b")}
        for p in self.params.values():
            pb.sum(3.0 * p).backward()
        self.sums = distributed.DistributedGradient(self.params, bucket_mb=1e-5)

    def step(self, x: Any, reaches_b: bool = True) -> None:
        terms = x * self.params["w"] + (self.params["b"] if reaches_b else 0.0)
        pb.sum(terms).backward()

    def state(self) -> bytes:
        return b"".join(p.grad.numpy().tobytes() for p in self.params.values() if p.grad is not None)

    def gradients(self) -> list[Any]:
        return [p.grad.numpy().tolist() for p in self.params.values() if p.grad is not None]


class TrainedCompiled:
    """Gradients summed by the rule of a compiled step."""

    def __init__(self, w: float = 1.0) -> None:
        self.rule = optim.chain(distributed.aggregate(), optim.sgd(1.0))
        self.params = {name: np.full(3, w) for name in ("w", "b")}
        self.optimizer = self.rule.init(self.params)
        self._step = pb.jit(self._advance, donate_argnums=0, static_argnums=3)

    def _advance(self, params: Any, optimizer: Any, x: Any, reaches_b: bool) -> Any:
        terms = lambda p: pb.sum(x * p["w"] + (p["b"] if reaches_b else 0.0))  # noqa: E731
        updates, optimizer = self.rule.update(pb.grad(terms)(params), optimizer, params)
        return optim.apply_updates(params, updates), optimizer

    def step(self, x: Any, reaches_b: bool = True) -> None:
        self.params, self.optimizer = self._step(self.params, self.optimizer, x, reaches_b)

    def state(self) -> bytes:
        return b"".join(p.tobytes() for p in self.params.values())

    def gradients(self) -> list[Any]:
        return [(1.0 - p).tolist() for p in self.params.values()]


STEPS = {"eager": Tape, "compiled": Compiled}
TRAINED: dict[str, Any] = {"eager": TrainedTape, "compiled": TrainedCompiled}


def init(overlap: bool | None = None, timeout: float = START_SECONDS) -> None:
    """Become a rank, whose deadline is the one to try; the start may take longer on a machine that is busy."""
    distributed.init(timeout=timeout, engine="mpi", overlap=overlap)
    world: Any = current_world()
    for part in (world, world._main, world._side):
        part.timeout = DEADLINE
    distributed.barrier()


# faults in a step


def _loop() -> None:
    end = time.monotonic() + LONG
    while time.monotonic() < end:
        pass


def _raise() -> None:
    raise KeyError("mine")


def _exit() -> None:
    sys.exit(3)


def _kill() -> None:
    os.kill(os.getpid(), signal.SIGKILL)


def _stop() -> None:
    os.kill(os.getpid(), signal.SIGSTOP)


def _sleep() -> None:
    time.sleep(LONG)


def _run_late() -> None:
    time.sleep(DEADLINE + 1.0)  # it comes when the others have given up


def _run_other_program() -> None:
    """One that was made for another number of ranks."""
    n = distributed.world_size() + 1
    program = distributed.run(lambda: pb.stage(lambda x: distributed.all_gather(x))(pb.spec_of(np.ones(2))), n)[0]
    program(np.ones(2))


ACTS: dict[str, Callable[[], None]] = {
    "raise": _raise,
    "kill": _kill,
    "stop": _stop,
    "late": _run_late,
    "loop": _loop,
    "exit": _exit,
    "world size": _run_other_program,
}
SHAPES = {
    "shape": (np.ones((2, 3)), ""),
    "dtype": (np.ones(3, np.float32), ""),
    "order": (np.ones(3), "order"),
    "op": (np.ones(3), "op"),
    "recompile": (np.ones(3), "one more"),
}


def run_step(note: Note) -> None:
    init()
    steps = STEPS[MODE]()
    steps.step(np.ones(3))
    before = steps.state()
    note.is_as_before = lambda: steps.state() == before
    distributed.barrier()
    note.start = time.monotonic()
    if is_culprit() and KIND == "return":
        return
    if is_culprit() and KIND in ACTS:
        ACTS[KIND]()
    steps.step(*(SHAPES[KIND] if is_culprit() and KIND in SHAPES else (np.ones(3),)))


def run_two_errors(note: Note) -> None:
    """Ranks that raise at once, each its own."""
    init()
    distributed.barrier()
    note.start = time.monotonic()
    if NUMBER:
        raise (KeyError if is_culprit() else ValueError)("mine")
    STEPS[MODE]().step(np.ones(3))


def run_killed_inside(note: Note) -> None:
    """Death in the middle of sums that take long."""
    init()
    x = np.ones(4_000_000)
    call = distributed.total if MODE == "eager" else pb.jit(distributed.total)
    call(x)
    distributed.barrier()
    note.start = time.monotonic()
    if is_culprit():
        threading.Timer(0.2, _kill).start()
    while True:
        call(x)
        note.start = time.monotonic() - 0.2  # the last that went well


# faults of numbers


def run_training(note: Note) -> None:
    init()
    trained = TRAINED[MODE](2.0 if KIND == "drift" and is_culprit() else 1.0)
    before = trained.state()
    note.is_as_before = lambda: trained.state() == before
    note.start = time.monotonic()
    x = np.ones(3)
    if KIND == "nan" and is_culprit():
        x[1] = np.nan
    trained.step(x)


def run_beside(note: Note) -> None:
    """Sums go on in a thread of their own when a rank fails."""
    init(overlap=True)
    trained = TRAINED[MODE]()
    for _ in range(2):
        trained.step(np.ones(3))
    before = trained.state()
    note.is_as_before = lambda: trained.state() == before
    distributed.barrier()
    note.start = time.monotonic()
    if is_culprit():
        ACTS[KIND.removesuffix(" beside")]()
    trained.step(np.ones(3))


def run_unused(note: Note) -> None:
    """No fault: a parameter that the loss of one rank does not depend on."""
    init()
    trained = TRAINED[MODE]()
    if MODE == "eager":
        for p in trained.params.values():
            p.grad = None
    trained.step(np.full(3, 1.0 + NUMBER), reaches_b=not is_culprit())
    n = distributed.world_size()
    assert trained.gradients() == [[n * (n + 1) / 2] * 3, [n - 1.0] * 3], trained.gradients()


def run_uneven(note: Note) -> None:
    """No fault: batches of different sizes, and of none."""
    init()
    n, r = distributed.world_size(), distributed.rank()
    rng = np.random.default_rng(0)
    x = rng.normal(size=(n * (n - 1) // 2, 2))
    mine = x[r * (r - 1) // 2 : r * (r - 1) // 2 + r]
    f = distributed.data_parallel(lambda w, x: (pb.sum(pb.sin(x @ w)), float(len(x))))
    g = pb.grad(f)
    for batch in (mine, mine[:0] if is_culprit() and n > 2 else mine):
        found = (pb.jit(g) if MODE == "compiled" else g)(np.ones(2), batch)
    rows = np.concatenate([x[: 0 if n > 2 else 1], x[1:]])
    np.testing.assert_allclose(found, pb.grad(lambda w: pb.sum(pb.sin(rows @ w)) / len(rows))(np.ones(2)), rtol=1e-12)


def run_full_disk(note: Note) -> None:
    """The old checkpoint stays, and the ranks go on together."""
    init()
    directory = Path(os.environ.get("FAULT_DISK", NOTES / "checkpoint"))
    distributed.save(directory, {"w": np.zeros(100_000)})
    note.start = time.monotonic()
    if is_culprit() and "FAULT_DISK" not in os.environ:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 16, 1 << 16))
    try:
        distributed.save(directory, {"w": np.ones(100_000)})
    except PullbackError:
        assert not distributed.load(directory, {"w": np.ones(100_000)})["w"].any()
        STEPS[MODE]().step(np.ones(3))
        raise


# faults at the start


def run_start(note: Note) -> None:
    """`note.start` is the call of `init`: what comes before it no rank can know."""
    if is_culprit():
        {
            "raise at start": _raise,
            "kill at start": _kill,
            "stop at start": _stop,
            "stuck at start": _sleep,
            "no init": lambda: sys.exit(0),
        }[KIND]()
    note.start = time.monotonic()
    distributed.init(timeout=DEADLINE, engine="mpi")
    STEPS[MODE]().step(np.ones(3))


def run_wrong_launcher(note: Note) -> None:
    note.start = time.monotonic()
    distributed.init(timeout=DEADLINE)


RUNS: dict[str, Callable[[Note], None]] = {
    "nan": run_training,
    "drift": run_training,
    "two errors": run_two_errors,
    "kill inside": run_killed_inside,
    "unused": run_unused,
    "uneven": run_uneven,
    "full disk": run_full_disk,
    "launcher": run_wrong_launcher,
    "no init": run_start,
}


def find_run() -> Callable[[Note], None]:
    if KIND in RUNS:
        return RUNS[KIND]
    if KIND.endswith(" at start"):
        return run_start
    return run_beside if KIND.endswith(" beside") else run_step


if __name__ == "__main__":
    note = Note()
    held_back = open(NOTES / f"{NUMBER}.log", "w")  # noqa: SIM115 - what Python has not written yet must not be lost
    held_back.write("kept")
    try:
        find_run()(note)
    except BaseException as error:
        note.write(error)
        raise
    note.write(None)
