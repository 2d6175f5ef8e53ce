"""Features that run a program in another manner and leave its results alone."""

from __future__ import annotations

import contextlib
import contextvars
import copy
import functools
import io
import pickle
import tempfile
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
from pairs import SHAPE, Cell, Program, World, Wrap, loss_of, plain, restore, streams

import pullback as pb

TRANSFORMED = ("value", "grad", "forward", "second")


def apply(transform: Callable[[Program], Program]) -> Callable[[Program, World], Program]:
    return lambda f, world: transform(f)


def donated(f: Program) -> Program:
    compiled = pb.jit(f, donate_argnums=0)
    return lambda x: compiled(x.copy() if isinstance(x, np.ndarray) else x)


def named(f: Program) -> Program:
    return lambda x: pb.name(f(x), "middle") * 1.0


def batched(f: Program) -> Program:
    """As many elements as each axis is long, along an axis in the middle."""
    many = pb.vmap(f, in_axes=1, out_axes=2)
    return lambda x: many(pb.stack([0.5 * x, x, -x], axis=1))[..., 1]


def batched_in_chunks(f: Program) -> Program:
    """The same, two elements at a time, and the one that is left."""
    many = pb.vmap(f, in_axes=1, out_axes=2, chunk_size=2)
    return lambda x: many(pb.stack([0.5 * x, -x, x], axis=1))[..., 2]


def batched_by_name(f: Program) -> Program:
    """The same, but each element works for another one."""
    name = f"elements of {id(f)}"

    def element(x: Any) -> Any:
        share = pb.batch_sum(1.0, name) / pb.batch_size(name)
        neighbor = pb.batch_gather(x, name)[(pb.batch_index(name) + 1) % 3]
        return pb.batch_permute(f(neighbor * share), name, [(0, 1), (1, 2), (2, 0)])

    many = pb.vmap(element, in_axes=1, out_axes=2, axis_name=name)
    return lambda x: many(pb.stack([0.5 * x, x, -x], axis=1))[..., 1]


def in_context(make: Callable[[], Any]) -> Callable[[Program, World], Program]:
    """The program, and not its backward pass, inside of a context manager."""

    def wrap(f: Program, world: World) -> Program:
        def program(x: Any) -> Any:
            with make():
                return f(x)

        return program

    return wrap


def around(make: Callable[[], Any]) -> Callable[[Callable[[], Any], str], Any]:
    """The whole evaluation inside of a context manager."""

    def run_inside(run: Callable[[], Any], mode: str) -> Any:
        with make():
            return run()

    return run_inside


def within_budgets(run: Callable[[], Any], mode: str) -> Any:
    """The evaluation with room to spare, and with ever less: results keep their bits until it is refused."""
    start = streams()
    with pb.memory_budget("1 MiB") as roomy:
        found = run()
    after = streams()
    for share in (0.9, 0.75, 0.6):
        restore(start)
        with contextlib.suppress(pb.errors.MemoryBudgetError), pb.memory_budget(int(share * roomy.report().peak) + 1):
            again = run()
            assert all(np.array_equal(a, b) for a, b in zip(found, again, strict=True)), (
                f"with {share} of the memory: {again}, wanted {found}"
            )
            assert repr(streams()) == repr(after), "random streams stand elsewhere with less memory"
    restore(start)
    with pb.memory_budget("1 MiB"):  # what was refused half way has left its traces: the last run is a whole one
        return run()


def profiled(run: Callable[[], Any], mode: str) -> Any:
    with pb.memory.profile() as seen:
        found = run()
    if mode in ("tape", "grad", "second"):
        wanted = 2 * 8 * np.prod(SHAPE)
        assert seen.peak >= wanted, f"memory.profile: a peak of {seen.peak} bytes, wanted {wanted} at least"
        assert seen.by_holder()["parameter"] > 0, "memory.profile: the variable is not among what is held"
    return found


def hooked(f: Program, world: World) -> Program:
    """A hook on the result: on the tape it is called once for each pass."""
    made, called = [], []

    def program(x: Any) -> Any:
        y = f(x)
        if isinstance(y, pb.Tensor) and y.requires_grad:
            made.append(y.register_hook(lambda gradient: called.append(gradient.shape)))
        return y

    world.checks.append(lambda: check_calls(world, made, called))
    return program


class Around(pb.nn.Module):
    """A program as a module."""

    program: Program

    def forward(self, x: Any) -> Any:
        return self.program(x)


def hooked_module(f: Program, world: World) -> Program:
    """A hook on the backward pass of a module: its pull runs, and changes nothing."""
    module = Around(f)
    module.register_full_backward_hook(lambda m, given, wanted: tuple(None if g is None else g * 1.0 for g in given))
    return lambda x: module(x)


def hooked_together(f: Program, world: World) -> Program:
    made, called = [], []

    def program(x: Any) -> Any:
        y = f(x)
        tensors = [t for t in (x, y) if isinstance(t, pb.Tensor) and t.requires_grad]
        if len(tensors) == 2:
            made.append(pb.register_multi_grad_hook(tensors, lambda found: called.append(len(found))))
        return y

    world.checks.append(lambda: check_calls(world, made, called))
    return program


def check_calls(world: World, made: list[Any], called: list[Any]) -> None:
    """On the tape each run of the program has one call. A run for a checkpoint registers once more and is not called;
    inside of a loop the program runs several times."""
    if world.mode != "tape" or not made:
        return
    others = [f for f in world.cell.features if f.name not in ("hooks", "multi_hooks")]
    if all(isinstance(f, Wrap) and f.name != "threads" for f in others):
        assert len(called) == 1, f"a hook was called {len(called)} times"
    assert 1 <= len(called) <= len(made), f"{len(made)} hooks registered, {len(called)} calls"


def packed(counts: dict[str, int]) -> Any:
    def pack(value: Any) -> Any:
        counts["packed"] += 1
        return (value,)

    def unpack(box: Any) -> Any:
        counts["unpacked"] += 1
        return box[0]

    return pb.saved_tensors_hooks(pack, unpack)


def packing(run: Callable[[], Any], mode: str) -> Any:
    counts = {"packed": 0, "unpacked": 0}
    with packed(counts):
        found = run()
    if mode == "tape":
        assert counts["packed"] > 0, "saved_tensors_hooks: nothing was packed"
        assert counts["unpacked"] > 0, "saved_tensors_hooks: nothing was unpacked"
    return found


def on_threads(f: Program, world: World) -> Program:
    """The program on two other threads at once; on one alone if two runs of it are not alike. A checkpoint compares the
    order of ops in its two runs, so there one thread follows the other.
    """
    has_order = world.cell is not None and any(f.name.startswith("checkpoint") for f in world.cell.features)

    def program(x: Any) -> Any:
        with ThreadPoolExecutor(1 if has_order else 2) as pool:
            runs = [pool.submit(contextvars.copy_context().run, f, x) for _ in range(1 if world.once else 2)]
            found = [run.result() for run in runs]
        return found[0] if world.once else 0.5 * (found[0] + found[1])

    return program


def staged(f: Program) -> Program:
    return lambda x: pb.stage(f)(pb.spec_of(x))(x)


def through_text(f: Program) -> Program:
    return lambda x: pb.Program.parse(pb.stage(f)(pb.spec_of(x)).text())(x)


def through_json(f: Program) -> Program:
    return lambda x: pb.Program.from_json(pb.stage(f)(pb.spec_of(x)).to_json())(x)


def compiled_graph(f: Program) -> Program:
    return lambda x: pb.stage(f)(pb.spec_of(x)).compile()(x)


def copied(f: Program) -> Program:
    return lambda x: f(copy.deepcopy(x * 1.0))


def pickled(f: Program) -> Program:
    return lambda x: f(pickle.loads(pickle.dumps(x * 1.0)))


def saved(f: Program, world: World) -> Program:
    """The result in a file and back: a constant, so only its numbers are compared. Other values than arrays and tensors
    are refused by `pb.save`."""

    def program(x: Any) -> Any:
        y = f(x)
        with tempfile.TemporaryDirectory() as directory, contextlib.suppress(pb.errors.PullbackError):
            path = Path(directory) / "y.safetensors"
            pb.save(path, {"y": y})
            assert np.array_equal(plain(pb.load(path)["y"]), plain(y)), "save and load"
        return y

    return program


def quietly(look: Callable[[Program, Any], None]) -> Callable[[Program, World], Program]:
    """Something that looks at a program before it runs, and must leave no trace in streams."""

    def wrap(f: Program, world: World) -> Program:
        def program(x: Any) -> Any:
            before = streams()
            if isinstance(x, np.ndarray) and not world.once and not is_cut(world.cell):
                look(f, x)
            restore(before)
            return f(x)

        return program

    return wrap


def is_cut(cell: Cell) -> bool:
    """Whether the tape ends inside of the program, so that there is no gradient to look at."""
    return cell.inner is not None and "grad" not in (getattr(cell.inner, "inside", ()) or ("grad",))


def check_gradient(f: Program, x: Any) -> None:
    assert pb.gradcheck(f, x), "gradcheck: disagrees"


def check_second(f: Program, x: Any) -> None:
    assert pb.gradgradcheck(f, x, rtol=1e-3, atol=1e-4), "gradgradcheck: disagrees"


def predict(f: Program, x: Any) -> None:
    found = pb.memory.predict(loss_of(f), pb.spec_of(x))
    assert found.peak >= x.nbytes, f"memory.predict: a peak of {found.peak} bytes"


def report(f: Program, x: Any) -> None:
    found = pb.tools.gradient_report({"x": x}, lambda p: loss_of(f)(p["x"]))
    assert "x" in str(found)


def explained(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        y = f(x)
        if isinstance(y, pb.Tensor) and y.requires_grad:
            assert pb.memory.explain(y).total >= 0
        return y

    return program


def printed(f: Program, world: World) -> Program:
    def program(x: Any) -> Any:
        y = f(x)
        with contextlib.redirect_stdout(io.StringIO()):
            pb.debug.print("{}", y)
        return y

    return program


@contextlib.contextmanager
def recording_again() -> Iterator[None]:
    with pb.no_grad(), pb.enable_grad():
        yield


@contextlib.contextmanager
def recording_by_flag() -> Iterator[None]:
    with pb.set_grad_enabled(False), pb.set_grad_enabled(True):
        yield


def lowered(f: Program, world: World) -> Program:
    """Float64 keeps its dtype. A product of float32 beside the program runs in bfloat16, with its derivatives, and
    counts for nothing."""

    def program(x: Any) -> Any:
        with pb.autocast("bfloat16"):
            y = f(x)
            low = pb.matmul(pb.astype(x, "float32"), np.eye(SHAPE[0], dtype="float32"))
            assert low.dtype == pb.bfloat16, f"autocast: a product of float32 ran in {low.dtype}"
            return y + 0.0 * pb.astype(low, "float64")

    return program


def collected(f: Program) -> Program:
    """Through collectives, alone in the world: they change nothing, run once and in order."""
    return lambda x: pb.distributed.total(f(pb.distributed.part(pb.distributed.shared(x))))


def checkpoint(
    name: str, *covers: str, program: Callable[[Program], Program] = lambda f: f, like: str = "", **options: Any
) -> Wrap:
    return Wrap(name, lambda f, world: pb.checkpoint(program(f), **options), covers=covers, like=like)


def context(name: str, make: Callable[[], Any], *covers: str, **more: Any) -> Wrap:
    return Wrap(name, in_context(make), around=around(make), covers=covers, **more)


WRAPS = [
    Wrap("jit", apply(pb.jit), compiled=True, covers=("jit",)),
    Wrap("jit_donated", apply(donated), compiled=True, like="jit"),
    Wrap("jit_budget", apply(functools.partial(pb.jit, memory_budget="1 MiB")), compiled=True, like="jit"),
    Wrap("jit_check", apply(functools.partial(pb.jit, check=True)), compiled=True, like="jit"),
    Wrap("fuse", apply(pb.fuse), compiled=True, covers=("fuse",)),
    context("native", lambda: pb.native(False), "native", like="enable_grad"),
    context("disable_jit", lambda: pb.disable_jit(), "disable_jit", like="enable_grad"),
    Wrap("debug_print", printed, covers=("debug",)),
    Wrap("autocast", lowered, covers=("autocast",)),
    Wrap("collectives", apply(collected), covers=("distributed",)),
    checkpoint("checkpoint", "checkpoint"),
    checkpoint("checkpoint_verify", verify=True),
    checkpoint("checkpoint_nothing", "save_nothing", policy=pb.save_nothing, like="checkpoint"),
    checkpoint("checkpoint_contractions", "save_contractions", policy=pb.save_contractions),
    checkpoint("checkpoint_everything", "save_everything", policy=pb.save_everything, like="checkpoint"),
    checkpoint(
        "checkpoint_named", "save_named", "name", policy=pb.save_named("middle"), program=named, like="checkpoint"
    ),
    checkpoint(
        "checkpoint_offload",
        "offload_named",
        policy=pb.offload_named("middle", to="host"),
        program=named,
        like="checkpoint",
    ),
    checkpoint("checkpoint_by_size", policy=lambda op, nbytes: nbytes < 100, like="checkpoint"),
    Wrap(
        "memory_budget", in_context(lambda: pb.memory_budget("1 MiB")), around=within_budgets, covers=("memory_budget",)
    ),
    context("offload_to_disk", lambda: pb.offload_to_disk(at_least=1), "offload_to_disk"),
    Wrap("vmap", apply(batched), covers=("vmap",)),
    Wrap("vmap_chunks", apply(batched_in_chunks), like="vmap"),
    Wrap(
        "vmap_named",
        apply(batched_by_name),
        covers=("batch_sum", "batch_size", "batch_gather", "batch_index", "batch_permute"),
        like="vmap",
    ),
    Wrap("hooks", hooked, covers=("Handle", "Node")),
    Wrap("module_hooks", hooked_module),
    Wrap("multi_hooks", hooked_together, covers=("register_multi_grad_hook",), like="hooks"),
    Wrap(
        "saved_hooks",
        in_context(lambda: packed({"packed": 0, "unpacked": 0})),
        around=packing,
        covers=("saved_tensors_hooks",),
    ),
    context("detect_anomaly", lambda: pb.detect_anomaly(), "detect_anomaly"),
    Wrap("memory_profile", in_context(lambda: pb.memory.profile()), around=profiled, covers=("memory.profile",)),
    context("time_profile", lambda: pb.profile(), "profile"),
    context("run_digest", lambda: pb.tools.RunDigest(), "tools.RunDigest", like="time_profile"),
    context(
        "deterministic", lambda: pb.use_deterministic(), "use_deterministic", "is_deterministic", like="enable_grad"
    ),
    Wrap("memory_predict", quietly(predict), modes=("value",), covers=("memory.predict",)),
    Wrap("memory_explain", explained, covers=("memory.explain",), like="memory_profile"),
    Wrap("gradient_report", quietly(report), modes=("value",), covers=("tools.gradient_report",), like="gradcheck"),
    Wrap("gradcheck", quietly(check_gradient), modes=("value",), covers=("gradcheck",)),
    Wrap("gradgradcheck", quietly(check_second), modes=("value",), covers=("gradgradcheck",), like="gradcheck"),
    context("no_grad", lambda: pb.no_grad(), "no_grad", modes=TRANSFORMED, inside=("value", "forward")),
    context(
        "inference_mode",
        lambda: pb.inference_mode(),
        "inference_mode",
        modes=TRANSFORMED,
        inside=("value", "forward"),
        like="no_grad",
    ),
    context("enable_grad", recording_again, "enable_grad"),
    context("set_grad_enabled", recording_by_flag, "set_grad_enabled", "is_grad_enabled", like="enable_grad"),
    Wrap("threads", on_threads),
    Wrap("stage", apply(staged), covers=("stage", "Program")),
    Wrap("graph_text", apply(through_text)),
    Wrap("graph_json", apply(through_json), like="graph_text"),
    Wrap("graph_compiled", apply(compiled_graph), compiled=True, like="jit"),
    Wrap("deepcopy", apply(copied)),
    Wrap("pickle", apply(pickled), like="deepcopy"),
    Wrap("save_load", saved, covers=("save", "load")),
]
