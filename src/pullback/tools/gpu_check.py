"""Does the GPU work? One kernel, one product and one graph are run on it, and each library says where it came from."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from importlib import import_module
from pathlib import Path
from time import perf_counter
from typing import Any, NamedTuple

import numpy as np

from ..arrays.backends import move_array, to_host
from ..compile.jit import jit
from ..ops.elementwise.pointwise import tanh
from ..ops.reduce.reductions import sum as total_of
from ..transforms.reverse import grad

DEVICE = "cuda:0"
#: Libraries by the beginning of their files' names, and what asks for them.
LIBRARIES = {
    "libcuda": "the driver",
    "libnvrtc": "compiles kernels",
    "libcublasLt": "large products",
    "libcublas": "CuPy's products",
    "libcudart": "CuPy's runtime",
}


class Finding(NamedTuple):
    """One line of the report: what was tried or looked for, what was found, and whether that is as it should be."""

    name: str
    found: str
    ok: bool = True


def count_gpus() -> int:
    """How many GPUs there are; none where CuPy, the driver or the device is missing."""
    try:
        return int(import_module("cupy").cuda.runtime.getDeviceCount())
    except Exception:  # CuPy is not installed, or raises an error of its own without a driver
        return 0


def check_gpu() -> Iterator[Finding]:
    """Findings on the first GPU; one that raises is a finding as well, and the others follow."""
    for name, check in (("versions", describe_versions), *CHECKS.items()):
        try:
            yield Finding(name, check())
        except Exception as error:  # a driver, a compiler or a library may fail in its own way
            lines = str(error).strip().splitlines() or [""]
            yield Finding(name, f"{type(error).__name__}: {lines[0]}", False)
    for name, what in LIBRARIES.items():
        places = loaded_libraries(name)
        if places:
            yield Finding(f"{name} ({what})", ", ".join(places))


def describe_versions() -> str:
    cupy: Any = import_module("cupy")
    runtime = cupy.cuda.runtime
    driver, own = (f"{n // 1000}.{n % 1000 // 10}" for n in (runtime.driverGetVersion(), runtime.runtimeGetVersion()))
    device = runtime.getDeviceProperties(0)
    kind = f"{device['name'].decode()}, compute capability {device['major']}.{device['minor']}"
    return f"{kind}; driver for CUDA {driver}, runtime {own}; CuPy {cupy.__version__} in {Path(cupy.__file__).parent}"


def check_kernel() -> str:
    """A chain of elementwise ops in one compiled kernel."""
    x = np.linspace(-2, 2, 1000, dtype=np.float32)
    return _compare(lambda x: tanh(x * 1.5 + 0.5) * x, x)


def check_product() -> str:
    """A product that is large enough for the vendor's library."""
    rng = np.random.default_rng(0)
    a, b = (rng.normal(size=(512, 512)).astype(np.float32) for _ in range(2))
    return _compare(lambda a, b: a @ b, a, b)


def check_graph() -> str:
    """A gradient of several launches, called again with other memory."""
    rng = np.random.default_rng(1)
    w, x = (rng.normal(size=(64, 64)).astype(np.float32) for _ in range(2))
    return _compare(grad(lambda w, x: total_of(tanh(tanh(x @ w) @ w))), w, x)


#: What is run, by name.
CHECKS: dict[str, Callable[[], str]] = {"kernel": check_kernel, "product": check_product, "graph": check_graph}


def _compare(f: Callable[..., Any], *arrays: Any) -> str:
    """Runs f compiled on the GPU, twice with other memory, against NumPy in double precision; says how long it took."""
    wanted = to_host(f(*(a.astype(np.float64) for a in arrays)))
    compiled, here = jit(f), [move_array(a, DEVICE) for a in arrays]
    begin = perf_counter()
    first = to_host(compiled(*here))
    took = perf_counter() - begin
    again = to_host(compiled(*(move_array(a, DEVICE) for a in arrays)))
    error = max(float(np.abs(found - wanted).max() / np.abs(wanted).max()) for found in (first, again))
    if not error <= 1e-4:
        raise ArithmeticError(f"the GPU's result is off by {error:.1e}")
    if not np.array_equal(first, again):
        raise ArithmeticError("two calls gave different bits")
    return f"right to {error:.0e}; compiled and run in {took * 1e3:.0f} ms, {_summary_of(compiled, here)}"


def _summary_of(compiled: Any, arrays: list[Any]) -> str:
    """The line of `explain()` that says how a call is launched."""
    lines = str(compiled.lower(*arrays).explain()).splitlines()
    return next((line for line in lines if line.startswith("launched")), "not compiled for a GPU")


def loaded_libraries(name: str) -> list[str]:
    """The files of a shared library that this process has loaded, where the system says so."""
    maps = Path("/proc/self/maps")
    if not maps.exists():
        return []
    files = {line.split(maxsplit=5)[-1] for line in maps.read_text().splitlines() if "/" in line}
    return sorted(f for f in files if re.fullmatch(rf"{name}\.so[.\d]*", Path(f).name))
