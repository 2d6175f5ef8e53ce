"""Kernels without folds that read some arrays in another order than they write: through tiles in shared memory.

A tile is loaded along the axis in which the array is contiguous, and read along the one in which results are.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...loop_ir import KernelLine
from .grid import Grid, count_blocks
from .writer import FunctionLaunch, FunctionWriter, Known, stored_type

#: The points of a tile along each of two axes, and the threads along the second.
TILE, DEPTH = 32, 8
#: Smaller domains stay in near caches whatever their order; shorter axes leave most of a tile empty.
MIN_POINTS = 1 << 14
MIN_SIZE = 8
#: Bytes of shared memory for the tiles of a block.
MAX_BYTES = 32 << 10


def find_turned_loads(grid: Grid, inner: int) -> tuple[int, list[KernelLine]] | None:
    """Another group, and the loads contiguous along it instead of the inner one; None if it is not worth it."""
    loads = [x for x in grid.lines if x.kind == "load" and grid.stride(x, inner) not in (0, 1)]
    found: dict[int, list[KernelLine]] = {}
    for line in loads:
        for group in range(len(grid.groups)):
            if group != inner and grid.stride(line, group) == 1:
                found.setdefault(group, []).append(line)
    if not found or grid.size_of(range(len(grid.groups))) < MIN_POINTS:
        return None
    group, turned = max(found.items(), key=lambda item: len(item[1]))
    size = TILE * (TILE + 1) * sum(x.buffer.dtype.itemsize for x in turned if x.buffer is not None)
    is_large = min(grid.sizes[inner], grid.sizes[group]) >= MIN_SIZE
    return (group, turned) if is_large and size <= MAX_BYTES else None


def render_tiles(grid: Grid, inner: int, other: int, turned: Sequence[KernelLine]) -> FunctionLaunch:
    """A block for each tile of the domain along the inner group and another one."""
    writer = FunctionWriter(grid)
    rest = [g for g in range(len(grid.groups)) if g not in (inner, other)]
    across, down = (count_blocks(grid.sizes[g], TILE) for g in (inner, other))
    split, at = writer.split_counter(rest, "outer")
    body = [f"const I x = (I)(blockIdx.x % {across}) * {TILE}, y = (I)(blockIdx.x / {across} % {down}) * {TILE};"]
    body += [f"const I outer = (I)(blockIdx.x / {across * down});", *split] if rest else []
    tiles = {id(line): f"tile{n}" for n, line in enumerate(turned)}
    body += [f"__shared__ {stored_type(x)} {tiles[id(x)]}[{TILE}][{TILE + 1}];" for x in turned]
    here = {**at, inner: "x1", other: "y1"}
    loads = [f"{tiles[id(x)]}[threadIdx.y + r][threadIdx.x] = {writer.address(x, here)};" for x in turned]
    body += _loop_over_tile(grid, inner, other, ("threadIdx.y + r", "threadIdx.x"), loads)
    known: Known = {}
    stores = grid.kernel.stores
    loaded = {key: f"{name}[threadIdx.x][threadIdx.y + r]" for key, name in tiles.items()}
    text = writer.compute([x for s in stores for x in (s.line, *s.args)], known, here, loaded)
    text += [x for s in stores for x in writer.store(s, known, here)]
    body += ["__syncthreads();", *_loop_over_tile(grid, inner, other, ("threadIdx.x", "threadIdx.y + r"), text)]
    return writer.finish(body, (across * down * grid.size_of(rest), 1), (TILE, DEPTH))


def _loop_over_tile(grid: Grid, inner: int, other: int, places: tuple[str, str], text: Sequence[str]) -> list[str]:
    """Statements at the points of a tile that a thread takes."""
    guards = [f"{c} < {grid.sizes[g]}" for g, c in ((inner, "x1"), (other, "y1")) if grid.sizes[g] % TILE]
    inside = [f"if ({' && '.join(guards)}) {{", *("  " + x for x in text), "}"] if guards else text
    return [
        "#pragma unroll",
        f"for (int r = 0; r < {TILE}; r += {DEPTH}) {{",
        f"  const I x1 = x + {places[0]}, y1 = y + {places[1]};",
        *("  " + x for x in inside),
        "}",
    ]
