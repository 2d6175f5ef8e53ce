"""What a rank with a GPU is to do: derivatives of every order, the same bits as without GPUs, errors instead of hangs.

    pullback run -n 2 tests/ranks/nccl_check.py derivatives bits
    pullback run -n 2 tests/ranks/nccl_check.py kill

On a machine with fewer GPUs than ranks, NCCL takes each rank for one on a machine of its own (`NCCL_HOSTID`), and they
talk over sockets: good for this, not for speed. Without a GPU, CuPy and NCCL are stand-ins.
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import numpy as np

import pullback as pb
from pullback import distributed, errors
from pullback.distributed.engines.nccl.world import NcclWorld
from pullback.ops.collective.world import current_world

_NUMBERS = ("OMPI_COMM_WORLD_RANK", "PMI_RANK", "PMIX_RANK", "SLURM_PROCID")


def separate_from_others() -> None:
    """Let NCCL take this rank for one on a machine of its own. Not on import, which a test run does in its own
    process.
    """
    number = next((os.environ[name] for name in _NUMBERS if name in os.environ), "0")
    for name, value in {
        "NCCL_HOSTID": f"rank{number}",
        "NCCL_P2P_DISABLE": "1",
        "NCCL_SHM_DISABLE": "1",
        "NCCL_NET": "Socket",
        "NCCL_SOCKET_IFNAME": "lo",
    }.items():
        os.environ.setdefault(name, value)


def find_cupy(stack: contextlib.ExitStack) -> Any:
    """CuPy, or the stand-ins where there is no GPU."""
    try:
        import cupy

        cupy.cuda.runtime.getDeviceCount()
    except Exception:
        import fake_cupy
        import nccl_over_mpi

        stack.enter_context(fake_cupy.installed())
        nccl_over_mpi.install()
        return fake_cupy.cupy
    return cupy


def hvp(f, x, v):
    return pb.jvp(pb.grad(f), (x,), (v,))[1]


WAYS = {
    "grad": lambda f, x, v: pb.grad(f)(x),
    "jvp": lambda f, x, v: pb.jvp(f, (x,), (v,))[1],
    "second": hvp,
    "third": lambda f, x, v: pb.grad(lambda x: pb.sum(hvp(f, x, v) * v))(x),
    "vmap": lambda f, x, v: pb.vmap(pb.grad(f))(pb.stack([x, v])),
}
COLLECTIVES = {
    "all_reduce": distributed.all_reduce,
    "all_gather": lambda x: distributed.all_gather(x, axis=1),
    "reduce_scatter": distributed.reduce_scatter,
    "broadcast": lambda x: distributed.shared(distributed.broadcast(x, root=1)),
    "all_to_all": lambda x: distributed.all_to_all(x, 0, 1),
    "shift": distributed.shift,
    "halo": distributed.halo,
}


def check_derivatives(cupy: Any) -> None:
    """Each collective, differentiated in each way, as on arrays of the host."""
    n, r = distributed.world_size(), distributed.rank()
    x, v = np.random.default_rng(r).normal(size=(2, n, n))
    for name, call in COLLECTIVES.items():
        for way, derive in WAYS.items():

            def f(x, call=call):
                return distributed.total(pb.sum(pb.sin(call(pb.tanh(x))) * (1.0 + r)))

            wanted = np.asarray(derive(f, x, v))
            found = derive(f, cupy.asarray(x), cupy.asarray(v)).get()
            np.testing.assert_allclose(found, wanted, rtol=1e-12, atol=1e-13, err_msg=f"{name}, {way}")


def train(asarray: Any, bucket_mb: float, steps: int = 20) -> str:
    """The digest of what a network has learnt."""
    n, r, rng = distributed.world_size(), distributed.rank(), np.random.default_rng(0)
    net = [pb.tensor(asarray(rng.normal(size=(16, 16)) / 4), requires_grad=True) for _ in range(4)]
    data = asarray(np.random.default_rng(1).normal(size=(8 * n, 16))[8 * r : 8 * r + 8])
    ddp = distributed.DistributedGradient(net, bucket_mb=bucket_mb)
    optimizer = pb.optim.SGD(net, lr=0.125)
    for _ in range(steps):
        optimizer.zero_grad()
        h = data
        for p in net:
            h = pb.maximum(h * p[0] + p[1], 0.0)  # sums of ranks, and no products whose bits a GPU has its own of
        (pb.sum(h) / 256.0).backward()
        optimizer.step()
    ddp.remove()
    return hashlib.blake2b(b"".join(p.detach().numpy().tobytes() for p in net), digest_size=8).hexdigest()


def check_bits(cupy: Any) -> None:
    """The sums have the bits of other engines, whatever the sizes of buckets; what GPUs compute otherwise is another
    matter, so the same terms are summed here.
    """
    r = distributed.rank()
    for dtype in ("float16", "float32", "float64", "int64"):
        for size in (1, 1000, 300_007):
            x = (8 * np.random.default_rng(r).normal(size=size)).astype(dtype)
            found, wanted = distributed.total(cupy.asarray(x)).get(), distributed.total(x)
            assert found.tobytes() == np.asarray(wanted).tobytes(), (dtype, size)
            pieces = [distributed.total(p).get() for p in np.array_split(cupy.asarray(x), 3)]
            assert np.concatenate(pieces).tobytes() == found.tobytes(), (dtype, size)
    digests = {train(cupy.asarray, size) for size in (25.0, 0.001, 0.003)}
    assert len(digests) == 1, digests
    number = float(int(digests.pop(), 16) >> 16)
    assert float(distributed.smallest(number)) == float(distributed.largest(number)), "replicas differ"


class Fault(NamedTuple):
    """What the ranks are to raise where rank 1 does something else than the others."""

    kinds: tuple[type[Exception], ...]
    text: str
    act: Callable[[Any], Any]


def _raise() -> None:
    raise KeyError("mine")


#: A rank that is gone is missed by the deadline at the latest.
_LOST = (errors.RankLostError, errors.CollectiveTimeoutError)

FAULTS = {
    "mismatch": Fault((errors.MismatchError,), "rank 1:", lambda cupy: distributed.total(cupy.ones(5))),
    "host array": Fault((errors.MismatchError,), "on GPUs", lambda cupy: distributed.total(np.ones(3))),
    "late": Fault((errors.CollectiveTimeoutError,), "rank 1", lambda cupy: time.sleep(60.0)),
    "raise": Fault((errors.RankLostError,), "KeyError", lambda cupy: _raise()),
    "kill": Fault(_LOST, "", lambda cupy: os.kill(os.getpid(), signal.SIGKILL)),
    "stop": Fault((errors.CollectiveTimeoutError,), "rank 1", lambda cupy: os.kill(os.getpid(), signal.SIGSTOP)),
    "kill in a collective": Fault(_LOST, "", lambda cupy: _die_in_collective(cupy)),
}


def _die_in_collective(cupy: Any) -> None:
    """The host has agreed, and the GPU never comes."""
    world = current_world()
    lane = next(iter(world._main.values()))
    lane.sum = lambda *arguments: os.kill(os.getpid(), signal.SIGKILL)
    distributed.total(cupy.ones(3))


def check_fault(cupy: Any, name: str) -> None:
    fault, start = FAULTS[name], time.monotonic()
    distributed.total(cupy.ones(3))
    try:
        if distributed.rank() == 1:
            fault.act(cupy)
        for _ in range(3):
            pb.tensor(distributed.total(cupy.ones(3))).numpy()
    except fault.kinds as error:
        is_expected = fault.text in str(error) and time.monotonic() - start < current_world().timeout + 4.0
        if is_expected and cupy.ones(3).sum().item() == 3.0:  # the GPU is free
            print(f"rank {distributed.rank()}: {name}: {type(error).__name__}", flush=True)
        raise


CHECKS = {"derivatives": check_derivatives, "bits": check_bits}


def main(cupy: Any) -> None:
    distributed.init(engine="nccl", timeout=float(os.environ.get("NCCL_CHECK_TIMEOUT", "20")))
    world = current_world()
    assert isinstance(world, NcclWorld)
    for name in sys.argv[1:] or CHECKS:
        if name in CHECKS:
            CHECKS[name](cupy)
        else:
            check_fault(cupy, name)
        print(f"rank {distributed.rank()}: {name}: ok", flush=True)
    assert not world._is_staged


if __name__ == "__main__":
    separate_from_others()
    with contextlib.ExitStack() as stack:
        main(find_cupy(stack))
