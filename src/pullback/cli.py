"""Command-line words in, an exit status out: `pullback doctor`, `demo`, `ops`, `certify`, `compile`, `cache`."""

from __future__ import annotations

import argparse
import os
import platform
import shutil
import time
from collections.abc import Callable, Sequence
from importlib import import_module
from importlib.metadata import version
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from pullback import __version__
from pullback import demo as fitting
from pullback.compile import cache as code
from pullback.errors import ArgumentError, PullbackError
from pullback.ops import everything
from pullback.tools.certify import DTYPES, certify_ops
from pullback.tools.stages import STAGES, passes_text, stage_text


class Part(NamedTuple):
    """One thing `pullback doctor` looks for. `look` returns what it found, and raises when it is not there."""

    name: str
    look: Callable[[], str]
    enables: str
    extra: str = ""


def main(arguments: Sequence[str] | None = None, console: Console | None = None) -> int:
    """Runs one command and returns the exit status; `console` is where it prints."""
    chosen = parser().parse_args(arguments)
    status: int = chosen.command(console or Console(), chosen)
    return status


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(prog="pullback", description="Automatic differentiation for NumPy arrays.")
    top.add_argument("--version", action="version", version=f"pullback {__version__}")
    commands = top.add_subparsers(title="commands", required=True, metavar="COMMAND")

    doctor_words = commands.add_parser("doctor", help="what is installed and found, and what each part enables")
    doctor_words.set_defaults(command=doctor)

    demo_words = commands.add_parser("demo", help="train a small CNN on handwritten digits, by tape and compiled")
    demo_words.add_argument("--steps", type=positive, default=500, help="training steps (%(default)s)")
    demo_words.add_argument("--seed", type=int, default=0, help="seed of the random numbers (%(default)s)")
    demo_words.add_argument("--report", type=Path, metavar="FILE", help="where the HTML page goes (pullback-demo.html)")
    demo_words.add_argument("--no-peers", action="store_true", help="leave PyTorch and JAX out")
    demo_words.set_defaults(command=demo)

    ops_words = commands.add_parser("ops", help="the table of ops and what each supports")
    ops_words.set_defaults(command=ops)

    certify_words = commands.add_parser("certify", help="check every derivative of every op in every role")
    certify_words.add_argument("names", nargs="*", metavar="op", help="ops to check (all)")
    certify_words.add_argument("--dtype", action="append", choices=DTYPES, help="check in this dtype only")
    certify_words.add_argument("--write", type=Path, action="append", default=[], metavar="FILE",
                               help="write the table too; .md and .json by the suffix, else text")  # fmt: skip
    certify_words.set_defaults(command=certify)

    compile_words = commands.add_parser("compile", help="show what a function becomes on its way to machine code")
    compile_words.add_argument("target", nargs="?", metavar="FILE.py:function", help="or package.module:function")
    compile_words.add_argument("--args", default="", metavar="SPECS",
                               help='the kinds of its arguments, as in "float32[32,784] [int64[10]] 0.5"')  # fmt: skip
    compile_words.add_argument("--show", choices=tuple(STAGES), default="explain", help="the stage (%(default)s)")
    compile_words.set_defaults(command=compile_function)

    cache_words = commands.add_parser("cache", help="the machine code that is kept on disk: list it, or clear it")
    cache_words.add_argument("what", nargs="?", choices=("list", "clear"), default="list")
    cache_words.set_defaults(command=cache)
    return top


def positive(text: str) -> int:
    number = int(text)
    if number < 1:
        raise argparse.ArgumentTypeError(f"{number} is not a positive number")
    return number


def doctor(console: Console, _: argparse.Namespace) -> int:
    how = escape("Get an extra with: pip install 'pullback[NAME]'")
    table = Table("part", "found", "what it enables", title=f"pullback {__version__}", caption=how)
    for part in PARTS:
        table.add_row(part.name, found(part), part.enables)
    console.print(table)
    return 0


def found(part: Part) -> str:
    """What the part says of itself; a part that is missing or broken is a finding too, never a crash."""
    try:
        return f"[green]{escape(part.look())}[/green]"
    except ModuleNotFoundError:
        return f"[yellow]not installed[/yellow] (extra {part.extra})" if part.extra else "[red]not installed[/red]"
    except Exception as error:  # an extension or a driver may fail to load in its own way
        return f"[red]{escape(f'{type(error).__name__}: {error}')}[/red]"


def demo(console: Console, chosen: argparse.Namespace) -> int:
    fitting.main(chosen.steps, chosen.seed, console, chosen.report, not chosen.no_peers)
    return 0


def ops(console: Console, _: argparse.Namespace) -> int:
    heading, *rows = op_rows()
    legend = "-: the result carries no derivative, or there is no kernel"
    table = Table(*heading, title=f"{len(rows)} ops", caption=legend, box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for column in table.columns:
        column.no_wrap = column.header != "reverse"
    for row in rows:
        table.add_row(*row)
    console.print(table)
    return 0


def certify(console: Console, chosen: argparse.Namespace) -> int:
    """Prints the table, and is a failure if one of its roles is."""
    try:
        with console.status("certifying") as status:
            report = certify_ops(chosen.names, chosen.dtype or DTYPES, watch=lambda name: status.update(name))
    except ArgumentError as error:
        console.print(str(error), markup=False)
        return 2
    console.print(str(report), markup=False, highlight=False, soft_wrap=True)
    for path in chosen.write:
        report.write(path)
    return 0 if report else 1


def compile_function(console: Console, chosen: argparse.Namespace) -> int:
    """Prints a stage of the compilation of a function; without one, the passes there are."""
    if chosen.target is None and chosen.show != "passes":
        console.print("compile: which function? Name it as FILE.py:function.", markup=False)
        return 2
    try:
        text = passes_text() if chosen.target is None else stage_text(chosen.target, chosen.args, chosen.show)
    except PullbackError as error:
        console.print(str(error), markup=False, highlight=False)
        return 2
    console.print(text, markup=False, highlight=False, soft_wrap=True)
    return 0


def cache(console: Console, chosen: argparse.Namespace) -> int:
    """Lists the compiled programs on disk, or throws them away."""
    place = code.directory()
    if place is None:
        console.print("Machine code is not kept: PULLBACK_CACHE_DIR turns it off.", markup=False)
        return 0
    if refused := code.refusal(place):
        console.print(f"{place} is not used: {refused}.", markup=False, highlight=False, soft_wrap=True)
        return 1
    if chosen.what == "clear":
        gone = code.cleared()
        console.print(f"Removed {gone.files} programs, {gone.nbytes:,} bytes.", highlight=False)
        return 0
    files, now = code.kept(), time.time()
    table = Table("program", "bytes", "last used", box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for file in files:
        table.add_row(file.path.stem[:12], f"{file.nbytes:,}", ago(now - file.used))
    if files:
        console.print(table)
    total = sum(f.nbytes for f in files)
    console.print(f"{len(files)} programs, {total:,} of {code.LARGEST:,} bytes, in {place}", markup=False,
                  highlight=False, soft_wrap=True)  # fmt: skip
    return 0


def ago(seconds: float) -> str:
    """A stretch of time in its largest unit."""
    for name, length in (("days", 86400), ("hours", 3600), ("minutes", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:.0f} {name} ago"
    return f"{max(seconds, 0):.0f} seconds ago"


def op_rows() -> list[list[str]]:
    """A heading, then what each op's record says of it, sorted by family and name; reverse names the arguments."""
    rows = [["op", "family", "forward", "reverse", "batching", "kernel", "samples"]]
    for op in sorted(everything().values(), key=lambda op: (op.family, op.name)):
        pulled = [name for name in op.args if op.differentiable and op.pulls.get(name)]
        rows.append(
            [
                op.name,
                op.family,
                "yes" if pulled else "-",
                ", ".join(pulled) or "-",
                "-" if op.batch is None else "yes",
                "-" if op.kernel is None else "yes",
                str(len(op.samples(np.random.default_rng(0)))),
            ]
        )
    return rows


def python_found() -> str:
    return f"{platform.python_version()} ({platform.system()} {platform.machine()}, {os.cpu_count()} cores)"


def package_found(name: str) -> Callable[[], str]:
    def look() -> str:
        import_module(name)
        return version(name)

    return look


def blas_found() -> str:
    config: Any = np.show_config(mode="dicts")
    blas = config["Build Dependencies"]["blas"]
    return f"{blas['name']} {blas['version']}"


def llvm_found() -> str:
    binding = import_module("llvmlite.binding")
    return f"LLVM {'.'.join(map(str, binding.llvm_version_info))}, llvmlite {version('llvmlite')}"


def cuda_found() -> str:
    cupy = import_module("cupy")
    runtime = cupy.cuda.runtime
    major, minor = divmod(runtime.runtimeGetVersion() // 10, 100)
    names = [runtime.getDeviceProperties(i)["name"].decode() for i in range(runtime.getDeviceCount())]
    return f"CuPy {cupy.__version__}, CUDA {major}.{minor}, {', '.join(names)}"


def mpi_found() -> str:
    # Asking for the library's name needs no running MPI, and starting one here could abort the process.
    mpi4py = import_module("mpi4py")
    mpi4py.rc.initialize = False
    library = import_module("mpi4py.MPI").Get_library_version().strip("\0").splitlines()[0]
    return f"{' '.join(library.split())}, mpi4py {mpi4py.__version__}"


def graphviz_found() -> str:
    module = import_module("graphviz")
    program = "dot found" if shutil.which("dot") else "but no dot program: install Graphviz itself to draw"
    return f"{module.__version__}, {program}"


PARTS = (
    Part("Python", python_found, "everything"),
    Part("NumPy", package_found("numpy"), "arrays on the CPU"),
    Part("BLAS", blas_found, "matrix products on the CPU"),
    Part("SciPy", package_found("scipy"), "special functions"),
    Part("ml_dtypes", package_found("ml_dtypes"), "bfloat16"),
    Part("optree", package_found("optree"), "trees of arrays (to come)"),
    Part("CUDA", cuda_found, "arrays on an NVIDIA GPU", extra="cuda12 or cuda13"),
    Part("LLVM", llvm_found, "native code on the CPU", extra="jit"),
    Part("MPI", mpi_found, "many processes (to come)", extra="mpi"),
    Part("safetensors", package_found("safetensors"), "tensors on disk (to come)", extra="io"),
    Part("matplotlib", package_found("matplotlib"), "plots (to come)", extra="viz"),
    Part("graphviz", graphviz_found, "drawings of graphs (to come)", extra="viz"),
)


if __name__ == "__main__":
    raise SystemExit(main())
