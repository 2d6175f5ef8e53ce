"""Launches as one: side by side, each block of threads with the work of one of them, or one after the other, each block
going on with what it has made.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Sequence

import numpy as np

from ..loop_ir import Buffer
from ..vocabulary import FLOAT8_DTYPES, HALF_DTYPES
from .kernel.writer import FunctionLaunch
from .words import C_TYPES

POINTER = re.compile(r"\bb\d+\b")
_SHARED = re.compile(r"__shared__ (?:__align__\(16\) )?([a-z0-9_ ]+?) \w+((?:\[\d+\])+)")
_SIZES = {
    name: 1 if dtype in FLOAT8_DTYPES else 2 if dtype in HALF_DTYPES else np.dtype(dtype).itemsize
    for dtype, name in C_TYPES.items()
}
#: What a function may declare, and what the sort of the preamble does.
MAX_SHARED_BYTES = 48 << 10
SORT_BYTES = 36 << 10
#: So many threads a GPU has room for at once, with the registers that a product needs.
RESIDENT_THREADS = 132 << 10
#: What makes threads of a block wait for each other, and what lanes of a warp exchange.
_WAITS = re.compile(r"__syncthreads|__shared__|fold_block_|block_sort_|_tile_<")
_EXCHANGES = re.compile(r"_sync\(|fold_warp_")

#: What the text of a tile declares.
_TILE = re.compile(r"__shared__ __align__\(16\) (float|double) shared\[(\d+)\];")


def share_launches(launches: Sequence[FunctionLaunch]) -> list[FunctionLaunch]:
    """As few launches for several as the machine allows."""
    groups: list[list[FunctionLaunch]] = []
    for launch in launches:
        group = next((g for g in groups if _can_share([*g, launch])), None)
        if group is None:
            groups.append([launch])
        else:
            group.append(launch)
    return [merge_launches(group) for group in groups]


def _can_share(launches: Sequence[FunctionLaunch]) -> bool:
    """Whether blocks have room in shared memory, in which each part of a function has its own; and whether threads that
    blocks of other parts do not need leave room on the machine.
    """
    if any(x.shared_bytes for x in launches):
        return False
    tiles = [_count_tile_bytes(x.body) for x in launches]
    own = sum(count_shared_bytes(x.body) for x in launches) - sum(tiles)
    threads = max(count_threads(x) for x in launches)
    room = sum(-(-math.prod(x.grid) // _count_together(x, threads)) for x in launches) * threads
    needed = sum(math.prod(x.grid) * count_threads(x) for x in launches)
    return own + max(tiles) <= MAX_SHARED_BYTES and room <= max(RESIDENT_THREADS, 2 * needed)


def count_threads(launch: FunctionLaunch) -> int:
    return math.prod(launch.block)


def _count_together(launch: FunctionLaunch, threads: int) -> int:
    """How many blocks of a launch one block of so many threads can do: one, if their threads wait for each other."""
    return 1 if has_barrier(launch) or exchanges_in_part(launch) else threads // count_threads(launch)


def has_barrier(launch: FunctionLaunch) -> bool:
    """Whether threads of a block wait for each other, so that it is the first threads that do its work."""
    return _WAITS.search(launch.body) is not None


def exchanges_in_part(launch: FunctionLaunch) -> bool:
    """Whether lanes exchange values where a warp is not whole."""
    return count_threads(launch) % 32 != 0 and _EXCHANGES.search(launch.body) is not None


def _count_tile_bytes(body: str) -> int:
    """The bytes of a tile's memory, of which a block needs one: launches side by side share it."""
    return sum(_SIZES[kind] * int(size) for kind, size in _TILE.findall(body))


def count_shared_bytes(body: str) -> int:
    """The bytes of shared memory that a function's text declares."""
    declared = [(kind, re.findall(r"\d+", sizes)) for kind, sizes in _SHARED.findall(body)]
    own = sum(_SIZES[kind] * math.prod(map(int, sizes)) for kind, sizes in declared)
    return own + SORT_BYTES * body.count("block_sort_")


def merge_launches(launches: Sequence[FunctionLaunch]) -> FunctionLaunch:
    """One launch for several: blocks are numbered through, and threads that a part does not need return at once, so
    that barriers and exchanges wait for none of them.
    """
    if len(launches) == 1:
        return launches[0]
    assert not any(launch.shared_bytes for launch in launches)
    pointers: dict[Buffer, str] = {}
    parameters: dict[str, str] = {}
    parts: list[str] = []
    start, threads = 0, max(map(count_threads, launches))
    for launch in launches:
        names = dict(_rename(launch, pointers, parameters))
        body = POINTER.sub(lambda found, names=names: names[found[0]], launch.body)  # type: ignore[misc]
        together = _count_together(launch, threads)
        parts.append(_part_text(launch, body, start, together))
        start += -(-math.prod(launch.grid) // together)
    head = "struct Place { unsigned x, y, z; };\n  "
    tile = max(_count_tile_bytes(launch.body) for launch in launches)
    if tile:
        head += f"__shared__ __align__(16) double tile[{-(-tile // 8)}];\n  "
        parts = [_TILE.sub(r"\1* shared = (\1*)tile;", part) for part in parts]
    text = head + " else ".join(parts)
    at_once = min((launch.at_once for launch in launches if launch.at_once), default=0)
    return FunctionLaunch(tuple(parameters.values()), text, tuple(pointers), (start, 1, 1), (threads, 1, 1), at_once)


def can_chain(first: FunctionLaunch, second: FunctionLaunch, rows: int) -> bool:
    """Whether the blocks of a launch that make so many rows each can go on with a launch that takes these rows."""
    (wide, high, _), threads = second.block, math.prod(second.block)
    return (
        wide <= 32
        and rows % high == 0
        and first.block[0] % threads == 0
        and second.grid == (first.grid[0] * (rows // high), 1, 1)
    )


def chain_launches(first: FunctionLaunch, second: FunctionLaunch, rows: int) -> FunctionLaunch:
    """One launch for two, of which a block of the second reads nothing of the first but the rows that a block has."""
    pointers, parameters, bodies = _rename_all(first, second)
    (wide, high, _), threads = second.block, math.prod(second.block)
    text = [
        "struct Place { unsigned x, y, z; };",
        f"[&] {{\n  {bodies[0]}\n  }}();",
        "__syncthreads();",
        f"const unsigned thread = threadIdx.x % {threads}, before = blockIdx.x * {rows // high};",
        f"for (unsigned i = threadIdx.x / {threads}; i < {rows // high}; i += {first.block[0] // threads}) [&] {{",
        f"  const Place blockIdx = {{before + i, 0, 0}}, threadIdx = {{thread % {wide}, thread / {wide}, 0}};",
        f"  {bodies[1]}",
        "}();",
    ]
    return FunctionLaunch(
        tuple(parameters.values()), "\n  ".join(text), tuple(pointers), first.grid, first.block, first.at_once
    )


def _rename_all(*launches: FunctionLaunch) -> tuple[dict[Buffer, str], dict[str, str], list[str]]:
    """The pointers of launches by buffer, the parameters for them, and the bodies in which they have these names."""
    pointers: dict[Buffer, str] = {}
    parameters: dict[str, str] = {}
    bodies = []
    for launch in launches:
        names = dict(_rename(launch, pointers, parameters))
        bodies.append(POINTER.sub(lambda found, names=names: names[found[0]], launch.body))  # type: ignore[misc]
    return pointers, parameters, bodies


def _rename(
    launch: FunctionLaunch, pointers: dict[Buffer, str], parameters: dict[str, str]
) -> Iterator[tuple[str, str]]:
    """The names of a launch's pointers, with those they have beside other launches."""
    for buffer, parameter in zip(launch.buffers, launch.parameters, strict=True):
        kind, old = parameter.rsplit(" ", 1)
        new = pointers.setdefault(buffer, f"b{len(pointers)}" if POINTER.fullmatch(old) else old)
        known = parameters.get(new)
        parameters[new] = f"{kind} {new}" if known is None else _common_parameter(known, f"{kind} {new}")
        yield old, new


def _common_parameter(a: str, b: str) -> str:
    """A pointer that two parts take: what one of them writes, the other does not take for constant."""
    if a == b:
        return a
    return next((x for x in (a, b) if not x.startswith("const ")), a).replace(" __restrict__", "")


def _part_text(launch: FunctionLaunch, body: str, start: int, together: int) -> str:
    """The blocks of a launch from the number `start` on, so many of them `together` in one."""
    count, threads = math.prod(launch.grid), count_threads(launch)
    (across, down, _), (wide, high, _) = launch.grid, launch.block
    end = start + -(-count // together)
    lines = [f"if (blockIdx.x < {end}) {{", f"if (threadIdx.x >= {threads * together}) return;"]
    inside = []
    if together > 1:
        lines.append(f"const unsigned number = (blockIdx.x - {start}) * {together} + threadIdx.x / {threads};")
        lines += [f"if (number >= {count}) return;"] if count % together else []
    elif start or down > 1:
        lines.append(f"const unsigned number = blockIdx.x - {start};")
    if start or down > 1 or together > 1:
        inside.append(f"const Place blockIdx = {{number % {across}, number / {across}, 0}};")
    if high > 1 or together > 1:
        lines.append(f"const unsigned thread = threadIdx.x{f' % {threads}' if together > 1 else ''};")
        inside.append(f"const Place threadIdx = {{thread % {wide}, thread / {wide}, 0}};")
    text = "\n    ".join([*inside, *body.split("\n  ")])
    return "\n  ".join([*lines, f"[&] {{\n    {text}\n  }}();", "}"])
