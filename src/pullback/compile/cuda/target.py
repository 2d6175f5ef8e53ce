"""The GPU as a target: every number that is about a GPU, and CUDA C for its compiler."""

from __future__ import annotations

import math
from collections.abc import Callable

from ..target import Compilation, Costs, Limits, Runner, Target
from ..vocabulary import VOCABULARY
from .products.join import group_steps
from .render import render_program
from .routines import has_routine
from .words import C_TYPES

DTYPES = frozenset(C_TYPES)
#: About what a GPU does with all of its memory's bandwidth.
COSTS = Costs(operation_ns=0.0001, byte_ns=0.00025, multiplication_ns=0.00004)
LIMITS = Limits(
    # a thread has registers for more than the longest chains that are worth one loop; a compiler's time grows faster
    max_kernel_weight=4000,
    max_row_kernel_weight=4000,
    # memory is far, and arithmetic is free meanwhile
    max_recompute_weight=60,
    max_row_recompute_weight=60,
    costly_weight=math.inf,
    near_bytes=1 << 62,
    patch_bytes=1 << 28,
    large_domain=1,  # every walk is a launch
    max_window_places=64,
    alignment=256,
    cache_line_bytes=128,
    vector_bytes=16,
    max_unroll=4,
    # every launch is parallel in itself
    min_program_ns=math.inf,
    min_step_ns=math.inf,
    min_block_ns=math.inf,
    max_blocks=1,
    max_product_parts=1,
    product_part_multiple=1,
    max_batch_product_ns=math.inf,
    gil_release_ns=math.inf,
    max_batch_axes=4,
    patchless_dtypes=frozenset({"float32"}),
    doubles_rounds=True,
)


def make_cuda_target(link: Callable[[Compilation], Runner], min_float8_product: float = math.inf) -> Target:
    """A GPU whose compiled programs run by what `link` makes of them."""
    return Target(
        "cuda",
        DTYPES,
        frozenset(VOCABULARY),
        COSTS,
        LIMITS,
        render=render_program,
        link=link,
        group=group_steps,
        has_routine=has_routine,
        extra_bytes=lambda steps: render_program(steps, False).plan.scratch_bytes,
        has_half_products=True,
        min_float8_product=min_float8_product,
    )
