# The public names of `pullback.distributed` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from ..ops.collective.collectives import (
    all_gather as all_gather, all_ranks as all_ranks, all_reduce as all_reduce, all_to_all as all_to_all,
    any_rank as any_rank, barrier as barrier, broadcast as broadcast, halo as halo, largest as largest, part as part,
    permute as permute, reduce_scatter as reduce_scatter, shared as shared, shift as shift, smallest as smallest,
    total as total, whole as whole,
)
from .threads import run as run
from ..ops.collective.world import rank as rank, world_size as world_size
