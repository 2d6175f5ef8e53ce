"""Which ways there are to do a product: tiles of several shapes, and the library."""

from __future__ import annotations

from ...loop_ir import Product
from ...vocabulary import is_float8, is_half
from .library import CANDIDATES, can_take
from .tile import GroupShape, PanelShape, PlainShape, TensorShape, TileShape, is_left_by_k

#: Up to so many multiplications latency counts more than arithmetic: a tile of our own wins in any case.
SMALL_PRODUCT = 1 << 24
#: Up to so many a tile may share a launch, while the library is tried too.
SHARED_PRODUCT = 1 << 26
#: Above, only the library's tiles are worth trying.
LARGE_PRODUCT = 1 << 28
#: The least K that is worth a block of a large tile.
CUT_DEPTH = 128
#: Multiprocessors of the machines that this is tuned for, and the warps that keep one busy while memory is slow.
MULTIPROCESSORS, _BUSY_WARPS = 132, 16


def count_multiplications(product: Product) -> int:
    return product.out.size * product.depth


def uses_tensor_cores(product: Product) -> bool:
    return product.left.buffer.dtype.name != "float64"


def _count_steps(product: Product) -> int:
    """The instructions of the tensor cores along K."""
    return max(1, -(-product.depth // (16 if is_half(product.left.buffer.dtype) else 8)))


def choose_shape(product: Product) -> TileShape:
    """The shape for a small product, by rule. K is shared by as many warps as keep the machine busy, each with some
    steps to do; fragments beside each other read less, as long as there are blocks for all multiprocessors.
    """
    columns = product.out.shape[-1]
    if not uses_tensor_cores(product):
        return PlainShape(1, 1) if product.out.size <= 256 * 2 * MULTIPROCESSORS else PlainShape(4, 4)
    wide = 1
    while wide < 4 and 8 * wide < columns and count_blocks(product, 16, 16 * wide) >= 2 * MULTIPROCESSORS:
        wide *= 2
    steps = _count_steps(product)
    room = max(1, MULTIPROCESSORS * _BUSY_WARPS // count_blocks(product, 16, 8 * wide))
    warps = min(16, room, -(-steps // 2))
    return TensorShape(1, wide, (1, 1, -(-steps // -(-steps // warps))))


def middle_shape(product: Product) -> TileShape:
    """The shape for a product of middle size: tiles of 32 by 32, and warps that each have some steps along K, whose
    loads are all under way at once.
    """
    steps = _count_steps(product)
    return TensorShape(2, 4, (1, 1, min(8, max(1, -(-steps // 4)))))


def row_shape(product: Product) -> TensorShape | None:
    """A shape whose blocks have whole rows, 16 of them; None if there is none."""
    rows, columns = product.out.shape[-2:]
    if not uses_tensor_cores(product) or rows % 16 or columns not in (32, 64, 96, 128):
        return None
    across, steps = columns // 32, _count_steps(product)
    # threads go on with rows in groups of 128
    deep = next((n for n in (8, 4, 2, 1) if n * across <= 16 and n * across % 4 == 0 and 2 * n <= max(steps, 8)), None)
    return None if deep is None else TensorShape(1, 4, (1, across, deep))


def panel_shape(product: Product) -> PanelShape:
    """The shape for a large product: the largest tiles that are nearly full and of which all multiprocessors have one,
    or will have when K is cut. Warps with one row of fragments each hide more of what they wait for, if they can be.
    """
    rows, columns = product.out.shape[-2:]
    can_be_low = is_left_by_k(product)
    across = 1 if columns <= 32 else 2
    if columns <= 32:
        shapes = [PanelShape(2, 4, (4, 1))]
    else:
        large = PanelShape(4, 4, (2, 2))
        is_full = -(-rows // large.rows) * large.rows <= 1.15 * rows
        parts = max(1, product.depth // CUT_DEPTH)
        if is_full and parts * count_blocks(product, large.rows, large.columns) >= MULTIPROCESSORS:
            return large
        shapes = [] if can_be_low else [PanelShape(2, 4, (2, 2))]
    if can_be_low:
        shapes += [PanelShape(1, 4, (4, across)), PanelShape(1, 4, (2, across))]
    return next((s for s in shapes if count_blocks(product, s.rows, s.columns) >= MULTIPROCESSORS), shapes[-1])


def group_shape(product: Product) -> GroupShape | None:
    """The shape for a product of float32 with the most groups that leave a tile to all multiprocessors. The library has
    better ones where there are too few tiles; what it cannot do is tried with the smallest.
    """
    if count_multiplications(product) <= SHARED_PRODUCT or product.left.buffer.dtype.name != "float32":
        return None
    columns = 32 if product.out.shape[-1] <= 32 else 64
    shapes = [GroupShape(columns, groups) for groups in (3, 2, 1)]
    enough = (s for s in shapes if count_blocks(product, s.rows, s.columns) >= MULTIPROCESSORS)
    return next(enough, None if product.axes is None else shapes[-1])


def tile_shape(product: Product) -> TileShape:
    is_small = count_multiplications(product) <= SMALL_PRODUCT or not uses_tensor_cores(product)
    if is_small:
        return choose_shape(product)
    return middle_shape(product) if product.axes is None else panel_shape(product)


def offered_shapes(product: Product, digits: int = 3) -> list[TileShape]:
    """The shapes of tiles that a program has code for: it takes longer to compile one than to try many. In tf32 the
    library is as fast as a product can be.
    """
    if is_float8(product.left.buffer.dtype):
        return []
    is_large = count_multiplications(product) > LARGE_PRODUCT and can_take(product)
    middle = [] if is_large else [tile_shape(product)]
    group = group_shape(product) if digits == 3 or not can_take(product) else None
    return middle if group is None else [group, *middle]


def offered_algorithms(product: Product) -> list[int]:
    """The numbers of the library's algorithms that are tried; of half types it is fast at smaller products too, and
    those of eight bits are its alone.
    """
    if is_float8(product.left.buffer.dtype):
        return list(range(CANDIDATES))
    small = SMALL_PRODUCT >> 3 if is_half(product.left.buffer.dtype) else SMALL_PRODUCT
    return list(range(CANDIDATES)) if count_multiplications(product) > small and can_take(product) else []


def count_blocks(product: Product, rows: int, columns: int) -> int:
    m, n = product.out.shape[-2:]
    return product.count * -(-m // rows) * -(-n // columns)
