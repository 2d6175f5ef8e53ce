"""Which programs the GPU's target takes, and why not where it takes none."""

from __future__ import annotations

import ctypes
import functools

from ....program.ir import Program
from ...target import Target
from ..target import make_cuda_target
from .driver import LIBRARY
from .nvrtc import load_nvrtc
from .runner import CudaRunner


@functools.cache
def cuda_target() -> Target:
    return make_cuda_target(CudaRunner)


@functools.cache
def why_unavailable() -> str:
    """What is missing to compile for a GPU; empty if nothing is."""
    try:
        ctypes.CDLL(LIBRARY)
    except OSError:
        return f"CUDA's driver ({LIBRARY}) is not installed"
    try:
        load_nvrtc().getVersion()
    except Exception as error:
        return f'NVRTC cannot be loaded ({str(error).partition(chr(10))[0]}); pip install "pullback[cuda13]"'
    return ""


def find_cuda_target(program: Program) -> Target | None:
    """The target of a program whose arguments are on one GPU; numbers and small arrays may come from the host."""
    devices = {s.spec.device for s in program.inputs if s.spec.device != "cpu"}
    return None if len(devices) != 1 or why_unavailable() else cuda_target()
