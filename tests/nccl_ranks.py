"""Ranks with GPUs, without GPUs: threads of this process whose CuPy and NCCL are stand-ins."""

from __future__ import annotations

import contextvars
import threading
from collections.abc import Callable
from typing import Any

import fake_cupy
from fake_cupy import nccl

from pullback.distributed.engines.nccl.world import NcclWorld
from pullback.distributed.engines.node import MEMORY_BYTES, NodeWorld
from pullback.distributed.engines.peers import ENDED, RAISED
from pullback.errors import WorldError
from pullback.settings import override_modes

#: More than a rank needs that does not hang.
PATIENCE = 30.0


def run(
    function: Callable[[], Any],
    ranks: int,
    *,
    timeout: float = 10.0,
    is_required: bool = False,
    overlap: bool = True,
    shares_gpus: bool = True,
) -> list[Any]:
    """What a function returned, or raised, on each rank. A rank's GPU is that of its number, in turns."""
    memories = [bytearray(MEMORY_BYTES) for _ in range(ranks)]
    nccl.Behaviour.may_share_gpu = shares_gpus
    results: list[Any] = [None] * ranks
    failed: list[NcclWorld] = []

    def work(rank: int) -> None:
        host = NodeWorld(memories, rank, timeout)
        world = NcclWorld(host, fake_cupy.cupy, nccl, is_required)
        world.runs_beside = overlap
        with fake_cupy.Device(rank % fake_cupy.DEVICES), fake_cupy.Stream(), override_modes(rank=world):
            try:
                results[rank] = function()
            except BaseException as error:
                results[rank] = error
                if not isinstance(error, WorldError):
                    host.peers.announce(RAISED, f"{type(error).__name__}: {error}")
            else:
                if host.error is None:
                    world.close()
                    host.peers.announce(ENDED, "")
                    host.peers.close()
                    return
            failed.append(world)

    threads = [
        threading.Thread(target=contextvars.copy_context().run, args=(work, r), name=f"rank {r}", daemon=True)
        for r in range(ranks)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(PATIENCE)
    hanging = [thread.name for thread in threads if thread.is_alive()]
    assert not hanging, f"{hanging} hang"
    for world in failed:
        world.close()
        world.peers.close()
    return results


def returned(results: list[Any]) -> list[Any]:
    """Results of ranks, none of which may have raised."""
    for result in results:
        if isinstance(result, BaseException):
            raise result
    return results
