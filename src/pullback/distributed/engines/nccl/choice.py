"""Whether NCCL can serve the ranks of a job: all of them, or none; and which GPU each one uses."""

from __future__ import annotations

import importlib
import logging
import os
import platform
import warnings
from collections.abc import Sequence
from typing import Any, NamedTuple

from ....errors import WorldError
from ....ops.collective.world import name_ranks
from .world import NcclWorld

_LOG = logging.getLogger("pullback")
#: The first version of NCCL that sends from rank to rank.
_OLDEST = 2700


class Finding(NamedTuple):
    """What a rank found: the GPU that it would use, "" if there is none, and why NCCL cannot serve it, "" if it can."""

    gpu: str
    problem: str


def add_nccl(host: Any, findings: Sequence[Finding], is_required: bool) -> Any:
    """The world of processes, with NCCL for arrays on GPUs if all ranks can use it, by what each has found."""
    problem = describe_problems(findings)
    if not problem:
        return NcclWorld(host, importlib.import_module("cupy"), load_nccl(), is_required)
    if is_required:
        raise WorldError(f"init: NCCL cannot serve all ranks.\n{problem}")
    if host.rank == 0 and any(found.gpu for found in findings):
        _LOG.warning(
            "arrays on GPUs travel through memory of the host, since NCCL cannot serve all ranks.\n%s", problem
        )
    return host


def find_gpu_of_rank(local_rank: int) -> Finding:
    """Look for a GPU and for NCCL. Ranks of one machine take its GPUs in turn, and the one found is made current."""
    try:
        cupy = importlib.import_module("cupy")
    except ImportError:
        return Finding("", 'CuPy is not installed: pip install "pullback[cuda12]" (or cuda13)')
    try:
        count = int(cupy.cuda.runtime.getDeviceCount())
    except Exception as error:  # no driver
        return Finding("", f"CuPy finds no GPU: {error}")
    if not count:
        return Finding("", "CuPy finds no GPU")
    device = local_rank % count
    cupy.cuda.Device(device).use()
    # NCCL takes ranks for those of different machines by this name
    machine = os.environ.get("NCCL_HOSTID") or platform.node()
    gpu = f"{machine}, {cupy.cuda.runtime.deviceGetPCIBusId(device)}"
    return Finding(gpu, _why_without_nccl())


def load_nccl() -> Any:
    """CuPy's binding of NCCL; it warns where it does not find the library."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return importlib.import_module("cupy.cuda.nccl")


def _why_without_nccl() -> str:
    try:
        nccl = load_nccl()
    except ImportError as error:
        return f"CuPy has no NCCL: {error}"
    if not nccl.available:
        return "CuPy does not find the library of NCCL: pip install nvidia-nccl-cu12 (or cu13)"
    if (version := nccl.get_version()) < _OLDEST:
        return f"NCCL {version // 1000}.{version % 1000 // 100} is too old: 2.7 is wanted"
    return ""


def describe_problems(findings: Sequence[Finding]) -> str:
    """Why NCCL cannot serve all ranks; "" if it can."""
    ranks: dict[str, list[int]] = {}
    for r, found in enumerate(findings):
        if found.problem:
            ranks.setdefault(found.problem, []).append(r)
    for gpu in dict.fromkeys(found.gpu for found in findings if found.gpu):
        if len(sharing := [r for r, found in enumerate(findings) if found.gpu == gpu]) > 1:
            ranks[f"share one GPU ({gpu}), and NCCL wants one for each"] = sharing
    return "\n".join(f"  {name_ranks(found)}: {problem}" for problem, found in ranks.items())
