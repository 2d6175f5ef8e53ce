"""Which programs the GPU's target takes, and why not where it takes none."""

from __future__ import annotations

import ctypes
import functools
import math

from ....arrays.spec import spec_of
from ....errors import DeviceError
from ....program.ir import Program
from ...target import Target
from ...vocabulary import is_float8
from ..target import make_cuda_target
from . import driver
from .nvrtc import load_nvrtc
from .runner import CudaRunner

#: The first GPUs that multiply matrices of eight bits.
FLOAT8_CAPABILITY = (8, 9)
#: Smaller products are quicker in bfloat16, by tiles that round nothing on the way: sums of eight bits have about 14.
MIN_FLOAT8_PRODUCT = 1 << 30


@functools.cache
def cuda_target(min_float8_product: float = math.inf) -> Target:
    return make_cuda_target(CudaRunner, min_float8_product)


@functools.cache
def why_unavailable() -> str:
    """What is missing to compile for a GPU; empty if nothing is."""
    try:
        ctypes.CDLL(driver.LIBRARY)
    except OSError:
        return f"CUDA's driver ({driver.LIBRARY}) is not installed"
    try:
        load_nvrtc().getVersion()
    except Exception as error:
        return f'NVRTC cannot be loaded ({str(error).partition(chr(10))[0]}); pip install "pullback[cuda13]"'
    return ""


def find_cuda_target(program: Program) -> Target | None:
    """The target of a program whose arguments are on one GPU; numbers and small arrays may come from the host."""
    devices = {s.spec.device for s in program.inputs if s.spec.device != "cpu"}
    if len(devices) != 1 or why_unavailable():
        return None
    for out in program.outputs:
        if is_float8(spec_of(out).dtype):
            raise DeviceError(
                f"jit: a result is {spec_of(out)}, and CuPy has no arrays of eight bits.\n"
                "  Use them inside the function, or return what they stand for: q.dequantize()."
            )
    if not any(is_float8(s.spec.dtype) for e in program.equations for s in e.results):
        return cuda_target()
    machine = driver.find_driver(int(devices.pop().partition(":")[2] or 0))
    return cuda_target(MIN_FLOAT8_PRODUCT if machine.capability >= FLOAT8_CAPABILITY else math.inf)
