# The public names of `pullback.distributed` and where they live; read at run time too, by `public_names`.
# fmt: off
# ruff: noqa: I001
from ..ops.collective.collectives import (
    all_gather as all_gather, all_ranks as all_ranks, all_reduce as all_reduce, all_to_all as all_to_all,
    any_rank as any_rank, barrier as barrier, broadcast as broadcast, halo as halo, largest as largest, part as part,
    permute as permute, reduce_scatter as reduce_scatter, shared as shared, shift as shift, smallest as smallest,
    total as total, whole as whole,
)
from .aggregation import aggregate as aggregate
from .batches import RankBatches as RankBatches, batches as batches
from . import codecs as codecs
from .collective_law import Measurement as Measurement
from .compressed_adam import one_bit_adam as one_bit_adam
from .data_parallel import data_parallel as data_parallel
from .distributed_gradient import DistributedGradient as DistributedGradient
from .engines.threads import run as run
from .files import load as load, save as save
from .marks import (
    MarkedTree as MarkedTree, mark_parts as mark_parts, mark_state as mark_state, mark_summed as mark_summed,
)
from .measure import measure as measure
from .predict import CodecCost as CodecCost, predict as predict
from .prediction import Prediction as Prediction, Scaling as Scaling
from .recorded_step import GradientTime as GradientTime, Step as Step, record_step as record_step
from .replicas import check_replicas as check_replicas
from .sharding import fully_sharded as fully_sharded, shard as shard, sharded as sharded, unshard as unshard
from .shrinking import shrink as shrink
from .start import init as init, is_initialized as is_initialized
from .streams import key as key, seed as seed
from .world_model import WorldModel as WorldModel
from ..ops.collective.world import local_rank as local_rank, rank as rank, world_size as world_size
