"""CUDA C to machine code: by NVRTC, or from the disk."""

from __future__ import annotations

import importlib
from typing import Any

from ... import cache
from ...target import COMPILER, UnlinkableCodeError

_DISK = "the disk cache"


class CudaCompileError(UnlinkableCodeError):
    """NVRTC refused the text of a module."""


def load_nvrtc() -> Any:
    """CuPy's own binding: it finds the library wherever CuPy does."""
    return importlib.import_module("cupy_backends.cuda.libs.nvrtc")


def compile_options(architecture: str, fast: bool) -> tuple[str, ...]:
    """Sums and products round as NumPy rounds them, unless arithmetic may be `fast`."""
    contract = "true" if fast else "false"
    return f"--gpu-architecture={architecture}", "--std=c++17", "-default-device", f"--fmad={contract}"


def compile_cubin(text: str, architecture: str, fast: bool) -> tuple[bytes, str]:
    """The machine code of a text, and where it came from."""
    nvrtc = load_nvrtc()
    options = compile_options(architecture, fast)
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
