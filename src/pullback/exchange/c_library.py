"""`to_c_library`: a function with its gradient as native code that C calls, without Python."""

from __future__ import annotations

import ctypes
import functools
import inspect
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from ..arrays.argument_checks import check_functions, explains_arguments
from ..arrays.files import name_of_path
from ..arrays.spec import spec_of
from ..arrays.tensor import Tensor
from ..arrays.trees import flatten, unflatten
from ..compile.cpu.export import NO_MEMORY, Processor, compile_to_object, find_processor, is_written_out
from ..compile.cpu.program.render import OUT_OF_RANGE, UNFINISHED
from ..compile.cpu.runtime.link import has_llvm
from ..compile.cpu.target import DTYPES
from ..errors import ArgumentError, ExportError
from ..ops.forms import Matrix, Running
from ..program.hoist import hoist
from ..program.ir import Equation, Program
from ..program.passes import expand_without_libraries, optimize
from ..saving.atomic_write import write_atomically
from ..transforms.reverse import value_and_grad
from ..transforms.stage import stage
from .c_header import CFunction, is_identifier, name_arguments, render_header
from .export import refuse_draws
from .matrix_expansions import expand_matrix
from .window_expansions import expand_running

_CODES = {
    "OK": (0, "everything was written"),
    "OUT_OF_RANGE": (OUT_OF_RANGE, "an index was out of range"),
    "UNFINISHED": (UNFINISHED, "a routine could not finish, as for a singular matrix, or a check failed"),
    "NO_MEMORY": (NO_MEMORY, "there was no memory to work in"),
}


@dataclass(frozen=True, slots=True)
class CLibrary:
    """What `to_c_library` wrote: the files, and the functions with their arguments in order."""

    header: Path
    object: Path
    #: The shared library; None if only the object was wanted.
    library: Path | None
    functions: tuple[CFunction, ...]


@explains_arguments("to_c_library")
def to_c_library(
    f: Callable[..., Any] | Program,
    *examples: Any,
    path: Any,
    gradient: bool | int | Sequence[int] = False,
    cpu: str | None = None,
    shared: bool = True,
) -> CLibrary:
    """A function as native code for programs in C, or in any language that calls C. Beside `path`, such as
    "build/loss", it writes build/loss.h, the object build/loss.o and the shared library build/libloss.so, with a
    function `loss` that takes a pointer for each leaf of the arguments and results and returns a status. With
    `gradient`, a function `loss_gradient` also writes the gradient, with respect to all arguments of floating dtypes
    or those at the positions given.

    Shapes and dtypes are those of the examples; arrays that f captured are constants of the code. It needs no Python,
    NumPy or BLAS when it runs, and is for `cpu`: "x86-64-v3" by default, or "x86-64-v2", "x86-64-v4",
    "native". An op that NumPy, SciPy or LAPACK would execute raises `pb.errors.ExportError`. The shared library is
    linked by the system's C compiler; `shared=False` needs none.

    >>> import numpy as np, pullback as pb, tempfile
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     made = pb.exchange.to_c_library(
    ...         lambda x: pb.sum(pb.sin(x)), np.ones(3), path=f"{folder}/wave", gradient=True, shared=False)
    ...     print([(g.name, [a.name for a in g.arguments]) for g in made.functions])
    [('wave', ['x', 'out']), ('wave_gradient', ['x', 'out', 'gradient_x'])]
    """
    target = Path(name_of_path(path, "to_c_library"))
    name = target.name
    if not is_identifier(name):
        raise ArgumentError(
            f"to_c_library: the last part of the path names the function, and {name!r} is no name in C.\n"
            "  Write path='folder/loss', without a suffix."
        )
    if name == "main" or _is_in_c(name):
        raise ArgumentError(
            f"to_c_library: the name {name} is taken by a function of the C library, or by the program's own.\n"
            "  Take another."
        )
    if not has_llvm():
        raise ArgumentError('to_c_library: llvmlite is not installed.\n  Install it: pip install "pullback[jit]".')
    linker = _find_linker() if shared else None
    processor = find_processor(cpu)
    with refuse_draws("to_c_library", f):
        functions, programs = _describe(f, examples, name, gradient, processor)
    code = compile_to_object(programs, processor)
    about = f"{name}, compiled by pullback {sys.modules['pullback'].__version__} for {processor.name}."
    header, compiled = target.with_name(f"{name}.h"), target.with_name(f"{name}.o")
    write_atomically(header, [render_header(name, functions, _CODES, about).encode()], "to_c_library")
    write_atomically(compiled, [code], "to_c_library")
    library = None if linker is None else _link(linker, compiled, target.with_name(f"lib{name}{_SUFFIX}"))
    return CLibrary(header, compiled, library, functions)


def _is_in_c(name: str) -> bool:
    """Whether the C library of this process has the name: code that is made may call it, and so may a user's."""
    return sys.platform != "win32" and hasattr(ctypes.CDLL(None), name)


def _describe(
    f: Any, examples: tuple[Any, ...], name: str, gradient: Any, processor: Processor
) -> tuple[tuple[CFunction, ...], dict[str, Program]]:
    """The functions of C, and the program of each."""
    if isinstance(f, Program):
        if examples:
            raise ArgumentError("to_c_library: a program has its arguments' shapes already, so no examples are given.")
        examples, named = f.specs()
        if named:
            raise ArgumentError("to_c_library: a program of arguments by name has no order in C.")
        f = f.run
    check_functions("to_c_library", f)
    prefixes = _argument_names(f, len(examples))
    wanted = _gradient_positions(gradient, examples)
    programs = {name: _stage_optimized(f, examples, processor)}
    functions = [_describe_function(name, f"The value of {name}.", programs[name], prefixes, ["out"])]
    if wanted:
        both = f"{name}_gradient"
        programs[both] = _stage_optimized(value_and_grad(f, tuple(wanted)), examples, processor)
        outs = ["out", *(f"gradient_{prefixes[i]}" for i in wanted)]
        functions.append(
            _describe_function(both, f"The value of {name} and its gradient.", programs[both], prefixes, outs)
        )
    return tuple(functions), programs


def _stage_optimized(f: Callable[..., Any], examples: Sequence[Any], processor: Processor) -> Program:
    """The program of a function, in which what it captured, such as parameters, is arrays."""
    program, _ = hoist(stage(f)(*examples), lambda x: False, lambda x: x.value if type(x) is Tensor else x)
    for _ in range(2):  # the second time in the bodies of the loops that the first one wrote
        program = expand_without_libraries(program, functools.partial(_expand_as_loop, processor))
    return optimize(program)


def _expand_as_loop(processor: Processor, e: Equation) -> Callable[..., Any] | None:
    form, made = e.op.form, [s.spec for s in e.results]
    if isinstance(form, Running):
        return expand_running(form.word, made[0], e.static["axis"])
    if isinstance(form, Matrix) and not is_written_out(e, processor):
        return expand_matrix(form.routine, made, e.static, checks=True)
    return None


def _describe_function(
    name: str, purpose: str, program: Program, prefixes: Sequence[str], results: Sequence[str]
) -> CFunction:
    args, _ = program.specs()
    if any(s.spec.device != "cpu" for s in program.inputs):
        raise ArgumentError(
            "to_c_library: the code is for a CPU, and these examples are on a GPU.\n  Pass NumPy arrays."
        )
    for spec in (*program.input_specs, *program.output_specs):
        if spec.dtype.name not in DTYPES:
            raise ExportError(f"to_c_library: code for a CPU has no arrays of {spec.dtype}.", name, f"{spec.dtype}")
    taken: set[str] = set()
    given = name_arguments(prefixes, [flatten(a)[1] for a in args], [s.spec for s in program.inputs], taken)
    # a tuple of the value and the gradients, or the result itself
    trees = [program.results]
    if len(results) > 1:
        value, gradients = unflatten(program.results, program.output_specs)
        trees = [flatten(t)[1] for t in (value, *gradients)]
    made = name_arguments(results, trees, [spec_of(o) for o in program.outputs], taken, is_output=True)
    return CFunction(name, purpose, (*given, *made))


def _argument_names(f: Callable[..., Any], count: int) -> list[str]:
    """The names of the positional parameters, as far as there are any."""
    try:
        parameters = list(inspect.signature(f).parameters.values())
    except (TypeError, ValueError):  # a function of C may have none
        parameters = []
    names = [p.name for p in parameters if p.kind in (p.POSITIONAL_ONLY, p.POSITIONAL_OR_KEYWORD)][:count]
    return names + [f"x{i}" for i in range(len(names), count)]


def _gradient_positions(gradient: Any, examples: Sequence[Any]) -> list[int]:
    if gradient is False:
        return []
    floating = [i for i, tree in enumerate(examples) if (leaves := flatten(tree)[0]) and all(map(_is_float, leaves))]
    wanted = [gradient] if isinstance(gradient, int) else list(gradient) if isinstance(gradient, Sequence) else []
    wanted = floating if gradient is True else wanted
    if not wanted or not set(wanted) <= set(floating) or len(set(wanted)) < len(wanted):
        raise ArgumentError(
            f"to_c_library: gradient is True, or positions of arguments whose arrays are floating ({floating} of these "
            f"examples), got {gradient!r}."
        )
    return wanted


def _is_float(leaf: Any) -> bool:
    return spec_of(leaf).dtype.kind not in "biu"


_SUFFIX = ".dylib" if sys.platform == "darwin" else ".so"


def _find_linker() -> str:
    """The C compiler that links the shared library."""
    for found in map(shutil.which, filter(None, (os.environ.get("CC"), "cc", "gcc", "clang"))):
        if found and sys.platform != "win32":
            return found
    raise ArgumentError(
        "to_c_library: a shared library is linked by the system's C compiler (cc, gcc, clang, or $CC), and there is "
        "none.\n  Install one, or pass shared=False: the object file and the header are written without it."
    )


def _link(linker: str, compiled: Path, library: Path) -> Path:
    with tempfile.TemporaryDirectory(dir=library.resolve().parent) as folder:
        made = Path(folder) / library.name
        # a name that no library has is an error here, not where the library is loaded
        how = ["-dynamiclib"] if sys.platform == "darwin" else ["-shared", "-Wl,-z,defs"]
        run = subprocess.run([linker, *how, "-o", made, compiled, "-lm"], capture_output=True, text=True)
        if run.returncode:
            raise ExportError(f"to_c_library: {linker} could not link {library.name}:\n  {run.stderr.strip()}")
        os.replace(made, library)
    return library
