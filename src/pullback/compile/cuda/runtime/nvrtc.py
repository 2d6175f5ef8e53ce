"""CUDA C to machine code: by NVRTC, in several threads where there is much of it, or from the disk."""

from __future__ import annotations

import contextvars
import importlib
import os
import re
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from ... import cache
from ...target import COMPILER, UnlinkableCodeError

_DISK = "the disk cache"
#: A module of more functions is compiled in parts, of at least so many functions; and the most parts.
_FUNCTIONS_PER_PART, _MAX_PARTS = 4, 8
_FUNCTION = re.compile(r'extern "C" __global__ [^(]*?(?:__launch_bounds__\([^)]*\) )?(\w+)\(')


class CudaCompileError(UnlinkableCodeError):
    """NVRTC refused the text of a module."""


def load_nvrtc() -> Any:
    """CuPy's own binding: it finds the library wherever CuPy does."""
    return importlib.import_module("cupy_backends.cuda.libs.nvrtc")


def compile_options(architecture: str, fast: bool) -> tuple[str, ...]:
    """Sums and products round as NumPy rounds them, unless arithmetic may be `fast`."""
    contract = "true" if fast else "false"
    return f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", f"--fmad={contract}"


def split_functions(text: str) -> tuple[str, dict[str, str]]:
    """What a module's kernels share, and each of them by its name."""
    found = [*_FUNCTION.finditer(text)]
    starts = [m.start() for m in found]
    ends = [*starts[1:], len(text)]
    head = text[: starts[0]] if found else text
    return head, {m[1]: text[m.start() : end] for m, end in zip(found, ends[: len(found)], strict=True)}


def compile_parts(text: str, architecture: str, fast: bool) -> tuple[list[tuple[list[str], bytes]], str]:
    """The machine code of a text in parts, each with the names of its kernels, and where it came from."""
    head, functions = split_functions(text)
    count = max(1, min(len(functions) // _FUNCTIONS_PER_PART, _MAX_PARTS, os.cpu_count() or 1))
    names = [list(functions)[i::count] for i in range(count)]
    if count == 1:
        cubin, source = compile_cubin(text, architecture, fast)
        return [(names[0], cubin)], source
    texts = [head + "".join(functions[name] for name in some) for some in names]
    with ThreadPoolExecutor(count) as pool:
        # the label of what is compiled goes along
        jobs = [pool.submit(contextvars.copy_context().run, compile_cubin, part, architecture, fast) for part in texts]
        found = [job.result() for job in jobs]
    source = COMPILER if any(where == COMPILER for _, where in found) else _DISK
    return [(some, cubin) for some, (cubin, _) in zip(names, found, strict=True)], source


def compile_cubin(text: str, architecture: str, fast: bool, more: Sequence[str] = ()) -> tuple[bytes, str]:
    """The machine code of a text, and where it came from; `more` options are the compiler's own."""
    nvrtc = load_nvrtc()
    options = (*compile_options(architecture, fast), *more)
    key = cache.key_of("cuda", text, repr(nvrtc.getVersion()), *options)
    known = cache.fetch(key)
    if known is not None:
        return known, _DISK
    program = nvrtc.createProgram(text, "pullback.cu", (), ())
    try:
        nvrtc.compileProgram(program, options)
        cubin: bytes = nvrtc.getCUBIN(program)
    except nvrtc.NVRTCError as error:
        log = str(nvrtc.getProgramLog(program)).strip()
        raise CudaCompileError(f"NVRTC refused the generated code ({error}).\n{log}") from error
    finally:
        nvrtc.destroyProgram(program)
    cache.store(key, cubin)
    return cubin, COMPILER
