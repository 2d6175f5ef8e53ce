"""The command line: `pullback doctor`, `demo`, `ops`, `certify`, `compile`, `export`, `profile`, `cache`, `run`."""

from __future__ import annotations

import argparse
import difflib
import inspect
import os
import platform
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple, NoReturn, TypeVar

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

import pullback
from pullback import __version__, demo
from pullback.compile import cache
from pullback.compile.cpu.runtime.entry import is_abi_supported
from pullback.compile.cpu.runtime.link import vector_bytes
from pullback.compile.threads import get_num_threads
from pullback.distributed.elastic import RESTARTS, parse_sizes, run_elastic
from pullback.distributed.launch import count_cores, launch
from pullback.distributed.mpi_check import describe_mpi
from pullback.errors import ArgumentError, DeviceError, PullbackError, WorldError
from pullback.exchange.c_library import CLibrary, to_c_library
from pullback.ops import load_all_ops
from pullback.ops.casting import family_rule
from pullback.ops.fusion import WHOLES
from pullback.tools.certify import DTYPES, HALF_DTYPES, ROLES, certify_ops, device_roles
from pullback.tools.compile_stages import STAGES, load_function, parse_arguments, passes_text, stage_text
from pullback.tools.gpu_check import check_gpu, count_gpus
from pullback.tools.profile.roofline import measure_roofline, save_roofline
from pullback.tools.profile.run_script import run_profiled
from pullback.tools.profile.summary import KEYS

R = TypeVar("R")


class Component(NamedTuple):
    """One thing `pullback doctor` looks for. `probe` returns a description, and raises if it is missing."""

    name: str
    probe: Callable[[], str]
    enables: str
    extra: str = ""


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Runs one command and returns the exit status; `console` is where it prints."""
    parser = build_parser()
    chosen = parser.parse_args(arguments)
    if chosen.command is None:
        parser.print_help()
        return 0
    status: int = chosen.command(console or Console(), chosen)
    return status


class _Parser(argparse.ArgumentParser):
    """A parser that guesses at misspelt commands."""

    def error(self, message: str) -> NoReturn:
        if wrong := re.search(r"invalid choice: '([^']*)' \(choose from (.*)\)", message):
            close = difflib.get_close_matches(wrong[1], re.findall(r"[\w-]+", wrong[2]))
            message += f". Did you mean {close[0]}?" if close else ""
        argparse.ArgumentParser.error(self, message)


def build_parser() -> argparse.ArgumentParser:
    top = _Parser(prog="pullback", description="Automatic differentiation for NumPy arrays.")
    top.set_defaults(command=None)
    top.add_argument("--version", action="version", version=f"pullback {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND")

    def add(name: str, command: Callable[..., int], help: str) -> argparse.ArgumentParser:
        parser: argparse.ArgumentParser = commands.add_parser(name, help=help)
        parser.set_defaults(command=command)
        return parser

    doctor_parser = add("doctor", run_doctor, "what is installed and found, and what each part enables")
    doctor_parser.add_argument("--measure", action="store_true", help="measure the machine's roofline, and keep it")
    ops_parser = add("ops", list_ops, "the table of ops and what each supports")
    ops_parser.add_argument("names", nargs="*", metavar="name", help="only ops whose name contains one of these")

    demo_parser = add("demo", run_demo, "train a small CNN on handwritten digits, by tape and compiled")
    demo_parser.add_argument("--steps", type=positive_int, default=500, help="training steps (%(default)s)")
    demo_parser.add_argument("--seed", type=int, default=0, help="random seed (%(default)s)")
    demo_parser.add_argument("--report", type=Path, metavar="FILE", help="where the page goes (pullback-demo.html)")
    demo_parser.add_argument("--no-peers", action="store_true", help="leave PyTorch and JAX out")

    certify_parser = add("certify", run_certify, "check every derivative of every op in every role")
    certify_parser.add_argument("names", nargs="*", metavar="op", help="ops to check (all)")
    certify_parser.add_argument(
        "--dtype", action="append", choices=(*DTYPES, *HALF_DTYPES), help="check in this dtype only"
    )
    certify_parser.add_argument("--device", metavar="DEVICE",
                               help='only value, jvp and vjp on this device ("cuda") against the CPU')  # fmt: skip
    certify_parser.add_argument("--write", type=Path, action="append", default=[], metavar="FILE",
                               help="write the table too; .md and .json by the suffix, else text")  # fmt: skip

    compile_parser = add("compile", show_compile_stage, "show what a function becomes on its way to machine code")
    compile_parser.add_argument("target", nargs="?", metavar="FILE.py:function", help="or package.module:function")
    compile_parser.add_argument("--args", default="", metavar="SPECS",
                               help='the kinds of its arguments, as in "float32[32,784] [int64[10]] 0.5"')  # fmt: skip
    compile_parser.add_argument("--show", choices=tuple(STAGES), default="explain", help="the stage (%(default)s)")

    export_parser = add("export", export_function, "write a function and its gradient as a library of C")
    export_parser.add_argument("target", metavar="FILE.py:function", help="or package.module:function")
    export_parser.add_argument("--args", default="", metavar="SPECS", help="the kinds of its arguments, as for compile")
    export_parser.add_argument("--to", required=True, metavar="FOLDER/NAME",
                               help="writes NAME.h, NAME.o and libNAME.so there, with the function NAME")  # fmt: skip
    export_parser.add_argument("--gradient", action="store_true", help="add NAME_gradient, which returns both")
    export_parser.add_argument("--cpu", metavar="CPU", help="x86-64-v2, -v3 or -v4, or native (x86-64-v3)")

    profile_parser = add("profile", profile_script, "run a script and show where its time went")
    profile_parser.add_argument("--by", choices=(*KEYS, "step"), default="line", help="what rows are by (%(default)s)")
    profile_parser.add_argument("--rows", type=positive_int, default=25, help="how many rows (%(default)s)")
    profile_parser.add_argument("--steps", action="store_true", help="time the steps of compiled programs too")
    profile_parser.add_argument("--trace", type=Path, metavar="FILE.json", help="write a trace, which Perfetto opens")
    profile_parser.add_argument("--flame", type=Path, metavar="FILE.html", help="write a flame graph")
    profile_parser.add_argument("program", nargs=argparse.REMAINDER, metavar="SCRIPT ...", help="with its arguments")

    run_parser = add("run", run_ranks, "run a script on several ranks, which are processes: pullback run -n 4 train.py")
    run_parser.add_argument("-n", "--ranks", type=positive_int, default=0, help="how many (one for each core)")
    run_parser.add_argument("--hosts", default="", metavar="A:4,B:4", help="machines and how many ranks each has")
    run_parser.add_argument("--elastic", default="", metavar="LEAST:MOST",
                            help="start again with those that are left when a rank is lost: 2:4")  # fmt: skip
    run_parser.add_argument("--restarts", type=positive_int, default=RESTARTS, metavar="N",
                            help="how often without a checkpoint in between (%(default)s)")  # fmt: skip
    run_parser.add_argument("-m", "--module", action="store_true", help="the program is a module, not a script")
    run_parser.add_argument("program", nargs=argparse.REMAINDER, metavar="SCRIPT ...", help="with its arguments")

    cache_parser = add("cache", manage_cache, "the machine code cached on disk: list it, or clear it")
    cache_parser.add_argument("what", nargs="?", choices=("list", "clear"), default="list")
    return top


def run_ranks(console: Console, chosen: argparse.Namespace) -> int:
    if not chosen.program:
        console.print("pullback run: which script? As in: pullback run -n 4 train.py", highlight=False)
        return 2
    try:
        program = ["-m", *chosen.program] if chosen.module else chosen.program
        if chosen.elastic:
            sizes = parse_sizes(chosen.elastic)
            return run_elastic(sizes, chosen.ranks, program, hosts=chosen.hosts, restarts=chosen.restarts)
        return launch(chosen.ranks or count_cores(), program, hosts=chosen.hosts)
    except (WorldError, ArgumentError) as error:
        console.print(str(error), style="red", highlight=False, markup=False)
        return 2


def profile_script(console: Console, chosen: argparse.Namespace) -> int:
    if not chosen.program:
        console.print("pullback profile: which script? As in: pullback profile train.py", highlight=False)
        return 2
    try:
        status, seen = run_profiled(chosen.program, chosen.steps or chosen.by == "step")
    except ArgumentError as error:
        console.print(str(error), style="red", highlight=False, markup=False)
        return 2
    console.print(seen.table(chosen.by, chosen.rows), markup=False, highlight=False, soft_wrap=True)
    for path in (chosen.trace, chosen.flame):
        if path is not None:
            seen.save(path)
            console.print(f"wrote {path}", markup=False, highlight=False)
    return status


def positive_int(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def run_doctor(console: Console, chosen: argparse.Namespace) -> int:
    if chosen.measure:
        found = measure_roofline()
        console.print(f"{found}\nkept in {save_roofline(found)}", markup=False, highlight=False, soft_wrap=True)
        return 0
    how = escape("Get an extra with: pip install 'pullback[NAME]'")
    table = Table("part", "found", "what it enables", title=f"pullback {__version__}", caption=how)
    for part in COMPONENTS:
        table.add_row(part.name, describe_component(part), part.enables)
    console.print(table)
    return print_gpu_findings(console)


def print_gpu_findings(console: Console) -> int:
    """Where there is a GPU, what runs on it; fails if something does not."""
    if not count_gpus():
        console.print("No NVIDIA GPU that CuPy can use: everything runs on the CPU.", highlight=False)
        return 0
    table, failed = Table("on the GPU", title="one kernel, one product, one graph"), False
    table.add_column("found", overflow="fold")
    for finding in check_gpu():
        color = "green" if finding.ok else "red"
        table.add_row(finding.name, f"[{color}]{escape(finding.found)}[/{color}]")
        failed |= not finding.ok
    console.print(table)
    return int(failed)


def describe_component(part: Component) -> str:
    """The part's description; one that is missing or broken is reported, never a crash."""
    try:
        return f"[green]{escape(part.probe())}[/green]"
    except ModuleNotFoundError:
        return f"[yellow]not installed[/yellow] (extra {part.extra})" if part.extra else "[red]not installed[/red]"
    except Exception as error:  # an extension or a driver may fail to load in its own way
        return f"[red]{escape(f'{type(error).__name__}: {error}')}[/red]"


def run_demo(console: Console, chosen: argparse.Namespace) -> int:
    demo.main(chosen.steps, chosen.seed, console, chosen.report, not chosen.no_peers)
    return 0


def list_ops(console: Console, chosen: argparse.Namespace) -> int:
    heading, *rows = op_rows()
    rows = [row for row in rows if not chosen.names or any(name in row[0] for name in chosen.names)]
    legend = "-: the result carries no derivative, or there is no kernel"
    table = Table(*heading, title=f"{len(rows)} ops", caption=legend, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns:
        column.no_wrap = column.header != "reverse"
        column.min_width = len(str(column.header))  # a narrow terminal folds the names, and shows every column
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return 0


def run_certify(console: Console, chosen: argparse.Namespace) -> int:
    """Prints the table; fails if a role fails."""
    try:
        with console.status("certifying") as status:
            roles = device_roles(chosen.device) if chosen.device else ROLES
            report = certify_ops(chosen.names, chosen.dtype or DTYPES, roles, watch=lambda name: status.update(name))
    except (ArgumentError, DeviceError) as error:
        console.print(str(error), markup=False)
        return 2
    console.print(str(report), markup=False, highlight=False, soft_wrap=True)
    for path in chosen.write:
        report.write(path)
    return 0 if report else 1


def show_compile_stage(console: Console, chosen: argparse.Namespace) -> int:
    """Prints a stage of the compilation of a function; without a function, the list of passes."""
    if chosen.target is None and chosen.show != "passes":
        console.print("compile: which function? Name it as FILE.py:function.", markup=False)
        return 2

    def make_text() -> str:
        return passes_text() if chosen.target is None else stage_text(chosen.target, chosen.args, chosen.show)

    text = run_on_user_code(console, "compile", make_text)
    if text is None:
        return 2
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


def export_function(console: Console, chosen: argparse.Namespace) -> int:
    """Writes the library, and prints what it has."""

    def make() -> CLibrary:
        f, examples = load_function(chosen.target), parse_arguments(chosen.args)
        return to_c_library(f, *examples, path=chosen.to, gradient=chosen.gradient, cpu=chosen.cpu)

    made = run_on_user_code(console, "export", make)
    if made is None:
        return 2
    for function in made.functions:
        console.print(function.render(), markup=False, highlight=False, soft_wrap=True)
    console.print(f"wrote {made.header}, {made.object}, {made.library}", markup=False, highlight=False, soft_wrap=True)
    return 0


def run_on_user_code(console: Console, command: str, make: Callable[[], R]) -> R | None:
    """What a command makes of the user's file; None if that failed, which is printed."""
    try:
        return make()
    except PullbackError as error:
        console.print(str(error), markup=False, highlight=False)
    except Exception as error:  # the user's file or function failed in its own way
        console.print(describe_failure(command, error), markup=False, highlight=False, soft_wrap=True)
    return None


def describe_failure(command: str, error: Exception) -> str:
    """An error of the user's code in two lines: what it says, and their last line on the way to it."""
    package = str(Path(__file__).parent)
    lines = [f for f in traceback.extract_tb(error.__traceback__) if not f.filename.startswith((package, "<frozen"))]
    where = f"\n  at {lines[-1].filename}:{lines[-1].lineno}: {lines[-1].line}" if lines else ""
    return f"{command}: {type(error).__name__}: {error}{where}"


def manage_cache(console: Console, chosen: argparse.Namespace) -> int:
    """Lists the compiled programs on disk, or removes them."""
    place = cache.directory()
    if place is None:
        console.print("Machine code is not cached: PULLBACK_CACHE_DIR turns it off.", markup=False)
        return 0
    if refused := cache.why_refused(place):
        console.print(f"{place} is not used: {refused}.", markup=False, highlight=False, soft_wrap=True)
        return 1
    if chosen.what == "clear":
        gone = cache.clear()
        console.print(f"Removed {gone.files} programs, {gone.nbytes:,} bytes.", highlight=False)
        return 0
    files, now = cache.list_files(), time.time()
    table = Table("program", "bytes", "last used", "function", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for file in files:
        label = escape(file.label() or "(shared by all)")
        table.add_row(file.path.stem[:12], f"{file.nbytes:,}", format_age(now - file.used), label)
    if files:
        console.print(table)
    total = sum(f.nbytes for f in files)
    console.print(f"{len(files)} programs, {total:,} of {cache.MAX_BYTES:,} bytes, in {place}", markup=False,
                  highlight=False, soft_wrap=True)  # fmt: skip
    return 0


def format_age(seconds: float) -> str:
    """A duration in its largest unit."""
    for name, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name} ago"
    return f"{max(seconds, 0):.0f} seconds ago"


def op_rows() -> list[list[str]]:
    """A heading, then a row for each op from its record, sorted by family and name; reverse names the arguments. The
    functions that are composed of ops follow: they support what their ops do.
    """
    rows = [["op", "family", "forward", "reverse", "kernel", "autocast", "samples"]]
    for op in sorted(load_all_ops().values(), key=lambda op: (op.family, op.name)):
        pulled = [name for name in op.args if op.differentiable and op.pulls.get(name)]
        marks = ["-" if x is None else "yes" for x in (pulled or None, op.kernel)]
        samples = str(len(op.samples(np.random.default_rng(0))))
        kind = family_rule(op).kind
        rows.append([op.name, op.family, marks[0], ", ".join(pulled) or "-", marks[1], kind, samples])
    return rows + sorted(composite_rows({row[0] for row in rows}), key=lambda row: (row[1], row[0]))


def composite_rows(ops: set[str]) -> Iterator[list[str]]:
    """The public functions of arrays that are no ops themselves, such as `mean` and `nn.cross_entropy`."""
    for space in ("", "nn", "linalg", "fft", "special", "random"):
        package = getattr(pullback, space) if space else pullback
        for name in package.__all__:
            function = getattr(package, name)
            layer, family = (*getattr(function, "__module__", "").split(".")[1:], "", "")[:2]
            if inspect.isfunction(function) and layer in ("ops", "nn") and name not in ops:
                whole = getattr(function, "fusion", None) or getattr(function, "whole", None) or WHOLES.get(name)
                kind = "" if whole is None else whole.autocast
                yield [f"{space}.{name}".lstrip("."), family or space, "composite", "", "", kind, ""]


def describe_python() -> str:
    return f"{platform.python_version()} ({platform.system()} {platform.machine()}, {os.cpu_count()} cores)"


def package_probe(name: str) -> Callable[[], str]:
    def probe() -> str:
        import_module(name)
        return version(name)

    return probe


def describe_blas() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}"


def describe_llvm() -> str:
    binding = import_module("llvmlite.binding")
    found = f"LLVM {'.'.join(map(str, binding.llvm_version_info))}, llvmlite {version('llvmlite')}"
    if not is_abi_supported():
        return f"{found}, not used: native code needs 64 bits and a Python with the GIL"
    return f"{found}, {binding.get_host_cpu_name()} with vectors of {vector_bytes()} bytes"


def describe_cuda() -> str:
    cupy = import_module("cupy")
    runtime = cupy.cuda.runtime
    major, minor = divmod(runtime.runtimeGetVersion() // 10, 100)
    names = [runtime.getDeviceProperties(i)["name"].decode() for i in range(runtime.getDeviceCount())]
    return f"CuPy {cupy.__version__}, CUDA {major}.{minor}, {', '.join(names)}"


def describe_threads() -> str:
    return f"{get_num_threads()} for compiled code"


def describe_cache() -> str:
    place = cache.directory()
    if place is None:
        return "off"
    return f"{place}" if (why := cache.why_refused(place)) is None else f"{place} is not used: {why}"


COMPONENTS = (
    Component("Python", describe_python, "everything"),
    Component("NumPy", package_probe("numpy"), "arrays on the CPU"),
    Component("BLAS", describe_blas, "matrix products on the CPU"),
    Component("SciPy", package_probe("scipy"), "special functions, sparse Jacobians, optimizers"),
    Component("ml_dtypes", package_probe("ml_dtypes"), "bfloat16"),
    Component("optree", package_probe("optree"), "trees of arrays"),
    Component("rich", package_probe("rich"), "this command, tables of reports"),
    Component("LLVM", describe_llvm, "native code on the CPU (pb.jit)", extra="jit"),
    Component("threads", describe_threads, "long loops of native code"),
    Component("code cache", describe_cache, "native code from earlier runs"),
    Component("CUDA", describe_cuda, "arrays on an NVIDIA GPU", extra="cuda12 or cuda13"),
    Component("PyTorch", lambda: version("torch"), "functions across the border (pb.interop.torch)", extra="bridges"),
    Component("JAX", lambda: version("jax"), "functions across the border (pb.interop.jax)", extra="bridges"),
    Component("MPI", describe_mpi, "ranks that are processes (pullback run)", extra="mpi"),
)


if __name__ == "__main__":
    raise SystemExit(main())
