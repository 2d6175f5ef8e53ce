# Every public name of the package once, with the module that it lives in: type checkers read it as a stub, and
# `__init__.py` imports each name from there on first access. `name as name` says that the name is exported.
# fmt: off
# ruff: noqa: I001
from typing import Any

from . import (
    amp as amp, curvature as curvature, data as data, distributed as distributed, distributions as distributions,
    errors as errors, exchange as exchange, implicit as implicit, interop as interop, masked as masked, nn as nn,
    ode as ode, optim as optim, sparse as sparse, tools as tools,
)
from .arrays import cuda as cuda, dtypes as dtypes, tree as tree
from .arrays.devices import Device as Device
from .arrays.dtypes import (
    bool_ as bool_, complex128 as complex128, complex64 as complex64, float16 as float16, float32 as float32,
    float64 as float64, int16 as int16, int32 as int32, int64 as int64, int8 as int8, uint16 as uint16,
    uint32 as uint32, uint64 as uint64, uint8 as uint8,
)
from .arrays.namespace import e as e, inf as inf, nan as nan, newaxis as newaxis, pi as pi
from .arrays.node import Handle as Handle, Node as Node
from .arrays.spec import Spec as Spec, spec_of as spec_of
from .arrays.exchange import asarray as asarray, from_dlpack as from_dlpack
from .arrays.tensor import Tensor as Tensor, tensor as tensor
from .arrays.trees import register_tree as register_tree
from .checkpoint.budget.memory_budget import memory_budget as memory_budget
from .checkpoint.loops.checkpoint_loop import checkpoint_loop as checkpoint_loop
from .checkpoint.offload.offload_to_disk import offload_to_disk as offload_to_disk
from .checkpoint.recompute.checkpoint import checkpoint as checkpoint, checkpoint_sequential as checkpoint_sequential
from .checkpoint.recompute.save_policies import (
    offload_named as offload_named, save_contractions as save_contractions, save_everything as save_everything,
    save_named as save_named, save_nothing as save_nothing,
)
from .compile.disable import disable_jit as disable_jit
from .compile.explain import explain as explain
from .compile.jit import jit as jit
from .compile.threads import get_num_threads as get_num_threads, set_num_threads as set_num_threads
from .graph import Graph as Graph, GraphStep as GraphStep, GraphValue as GraphValue
from .implicit import (
    argmin as argmin, fixed_point as fixed_point, least_squares as least_squares, linear_solve as linear_solve,
    root as root,
)
from .nn.policy import Policy as Policy
from .ops import fft as fft, linalg as linalg, random as random, special as special
from .ops.contract.dot_products import (
    cross as cross, dot as dot, inner as inner, kron as kron, matvec as matvec, vdot as vdot, vecdot as vecdot,
    vecmat as vecmat,
)
from .ops.contract.einsum import einsum as einsum
from .ops.contract.matrix_products import matmul as matmul, outer as outer, tensordot as tensordot
from .ops.contract.polynomials import convolve as convolve, correlate as correlate, polyval as polyval, vander as vander
from .ops.creation import (
    arange as arange, empty as empty, empty_like as empty_like, eye as eye, full as full, full_like as full_like,
    linspace as linspace, ones as ones, ones_like as ones_like, zeros as zeros, zeros_like as zeros_like,
)
from .ops.dtype_info import (
    broadcast_shapes as broadcast_shapes, can_cast as can_cast, finfo as finfo, iinfo as iinfo, isdtype as isdtype,
    result_type as result_type,
)
from .ops.elementwise.arithmetic import (
    addcdiv as addcdiv, addcmul as addcmul, bitwise_count as bitwise_count, bitwise_left_shift as bitwise_left_shift,
    bitwise_right_shift as bitwise_right_shift, copysign as copysign, divmod as divmod, float_power as float_power,
    floor_divide as floor_divide, fmax as fmax, fmin as fmin, fmod as fmod, gcd as gcd, hypot as hypot, lcm as lcm,
    logaddexp2 as logaddexp2, logical_xor as logical_xor, nextafter as nextafter, reciprocal as reciprocal,
    remainder as remainder, rsqrt as rsqrt, xlogy as xlogy,
)
from .ops.elementwise.piecewise import (
    apply_along_axis as apply_along_axis, isin as isin, piecewise as piecewise, select as select,
)
from .ops.elementwise.pointwise import (
    abs as abs, acos as acos, add as add, asin as asin, atan as atan, atan2 as atan2, bitwise_and as bitwise_and,
    bitwise_invert as bitwise_invert, bitwise_or as bitwise_or, bitwise_xor as bitwise_xor, conj as conj, cos as cos,
    cosh as cosh, divide as divide, equal as equal, erf as erf, exp as exp, expm1 as expm1, greater as greater,
    greater_equal as greater_equal, heaviside as heaviside, imag as imag, isfinite as isfinite, isinf as isinf,
    isnan as isnan, less as less, less_equal as less_equal, log as log, log1p as log1p, logaddexp as logaddexp,
    logical_and as logical_and, logical_not as logical_not, logical_or as logical_or, maximum as maximum,
    minimum as minimum, multiply as multiply, negative as negative, not_equal as not_equal, positive as positive,
    power as power, real as real, relu as relu, sigmoid as sigmoid, sign as sign, sin as sin, sinh as sinh,
    softplus as softplus, sqrt as sqrt, square as square, stop_gradient as stop_gradient, subtract as subtract,
    tan as tan, tanh as tanh, where as where,
)
from .ops.elementwise.quantize import fake_quantize as fake_quantize
from .ops.elementwise.rounding import (
    ceil as ceil, fix as fix, floor as floor, frexp as frexp, isclose as isclose, iscomplex as iscomplex,
    isneginf as isneginf, isposinf as isposinf, isreal as isreal, ldexp as ldexp, modf as modf,
    nan_to_num as nan_to_num, rint as rint, round as round, signbit as signbit, spacing as spacing, trunc as trunc,
)
from .ops.elementwise.transcendental import (
    acosh as acosh, angle as angle, asinh as asinh, atanh as atanh, cbrt as cbrt, deg2rad as deg2rad, exp2 as exp2,
    log10 as log10, log2 as log2, rad2deg as rad2deg, sinc as sinc,
)
from .ops.autocast import autocast as autocast, is_autocast_enabled as is_autocast_enabled
from .ops.fusion import fuse as fuse
from .ops.functions import (
    astype as astype, clip as clip, gelu as gelu, log_softmax as log_softmax, mean_squared_error as mean_squared_error,
    silu as silu, softmax as softmax,
)
from .ops.index.indexing import (
    add_at as add_at, getitem as getitem, put_along_axis as put_along_axis, set_at as set_at, take as take,
    take_along_axis as take_along_axis,
)
from .ops.index.scatter_gather import (
    gather as gather, index_add as index_add, index_copy as index_copy, index_fill as index_fill,
    index_reduce as index_reduce, scatter as scatter, scatter_add as scatter_add, scatter_reduce as scatter_reduce,
)
from .ops.index.segments import (
    segment_max as segment_max, segment_mean as segment_mean, segment_min as segment_min, segment_prod as segment_prod,
    segment_sum as segment_sum,
)
from .ops.index.selection import (
    argwhere as argwhere, choose as choose, compress as compress, extract as extract, flatnonzero as flatnonzero,
    masked_fill as masked_fill, masked_scatter as masked_scatter, masked_select as masked_select, nonzero as nonzero,
    one_hot as one_hot, place as place, put as put,
)
from .ops.naming import name as name
from .ops.order.quantiles import (
    median as median, nanmedian as nanmedian, nanpercentile as nanpercentile, nanquantile as nanquantile,
    percentile as percentile, quantile as quantile,
)
from .ops.order.sorting import (
    argpartition as argpartition, argsort as argsort, kthvalue as kthvalue, lexsort as lexsort, msort as msort,
    partition as partition, searchsorted as searchsorted, sort as sort, topk as topk, unique as unique,
    unique_all as unique_all, unique_counts as unique_counts, unique_inverse as unique_inverse,
    unique_values as unique_values,
)
from .ops.protocol import register_numpy as register_numpy
from .ops.protocol.elements import histogram as histogram
from .ops.reduce.calculus import (
    diff as diff, ediff1d as ediff1d, gradient as gradient, interp as interp, unwrap as unwrap,
)
from .ops.reduce.distances import cdist as cdist, pairwise_distance as pairwise_distance, pdist as pdist
from .ops.reduce.reductions import (
    all as all, any as any, argmax as argmax, logsumexp as logsumexp, max as max, mean as mean, min as min,
    prod as prod, std as std, sum as sum, var as var,
)
from .ops.reduce.running import (
    cummax as cummax, cummin as cummin, logcumsumexp as logcumsumexp, nancumprod as nancumprod, nancumsum as nancumsum,
)
from .ops.reduce.scans import (
    cumulative_prod as cumulative_prod, cumulative_sum as cumulative_sum, linear_recurrence as linear_recurrence,
)
from .ops.reduce.statistics import (
    average as average, bincount as bincount, count_nonzero as count_nonzero,
    cumulative_trapezoid as cumulative_trapezoid, nanargmax as nanargmax, nanargmin as nanargmin, nanmax as nanmax,
    nanmean as nanmean, nanmin as nanmin, nanprod as nanprod, nanstd as nanstd, nansum as nansum, nanvar as nanvar,
    ptp as ptp, trapezoid as trapezoid, trapz as trapz,
)
from .ops.saved_values import saved_tensors_hooks as saved_tensors_hooks
from .ops.shape import einops as einops
from .ops.shape.arrange import (
    concat as concat, diagonal as diagonal, flip as flip, pad as pad, repeat as repeat, roll as roll, split as split,
    stack as stack, tile as tile, tril as tril, triu as triu,
)
from .ops.shape.diagonals import (
    block_diag as block_diag, diag as diag, diag_embed as diag_embed, diagflat as diagflat,
    fill_diagonal as fill_diagonal, trace as trace, tri as tri,
)
from .ops.shape.edit import (
    append as append, cartesian_prod as cartesian_prod, combinations as combinations, delete as delete,
    insert as insert, resize as resize, trim_zeros as trim_zeros,
)
from .ops.shape.ravel_tree import ravel_pytree as ravel_pytree
from .ops.shape.reshaping import (
    broadcast_to as broadcast_to, expand_dims as expand_dims, matrix_transpose as matrix_transpose,
    moveaxis as moveaxis, permute_dims as permute_dims, reshape as reshape, squeeze as squeeze,
)
from .ops.shape.stack_split import (
    array_split as array_split, atleast_1d as atleast_1d, atleast_2d as atleast_2d, atleast_3d as atleast_3d,
    block as block, broadcast_arrays as broadcast_arrays, column_stack as column_stack, dsplit as dsplit,
    dstack as dstack, flatten as flatten, fliplr as fliplr, flipud as flipud, hsplit as hsplit, hstack as hstack,
    meshgrid as meshgrid, ravel as ravel, rollaxis as rollaxis, rot90 as rot90, swapaxes as swapaxes,
    tensor_split as tensor_split, unflatten as unflatten, unstack as unstack, vsplit as vsplit, vstack as vstack,
)
from .ops.window.sliding_window import (
    as_strided as as_strided, im2col as im2col, sliding_window_view as sliding_window_view, unfold as unfold,
)
from .program.ir import Program as Program
from .saving.asynchronous import save_async as save_async
from .saving.checkpoints import Checkpoints as Checkpoints
from .saving.pending import PendingSave as PendingSave
from .saving.save_load import load as load, load_metadata as load_metadata, save as save
from .saving.stored_arrays import StoredArrays as StoredArrays
from .settings import (
    enable_grad as enable_grad, get_matmul_precision as get_matmul_precision, inference_mode as inference_mode,
    is_deterministic as is_deterministic, is_grad_enabled as is_grad_enabled, native as native, no_grad as no_grad,
    set_grad_enabled as set_grad_enabled, set_matmul_precision as set_matmul_precision,
    use_deterministic as use_deterministic,
)
from .tape.anomaly import detect_anomaly as detect_anomaly
from .tape.backward import gradients as gradients
from .tape.hooks import register_multi_grad_hook as register_multi_grad_hook
from .tools import memory as memory
from .tools.certify.report import Certificate as Certificate
from .tools.certify.run import certify as certify
from .tools.digests import digest as digest
from .tools.gradcheck import CheckReport as CheckReport, gradcheck as gradcheck, gradgradcheck as gradgradcheck
from .tools.profile import profile as profile
from .transforms import debug as debug
from .transforms.batch_axis import (
    batch_gather as batch_gather, batch_index as batch_index, batch_max as batch_max, batch_mean as batch_mean,
    batch_min as batch_min, batch_permute as batch_permute, batch_size as batch_size, batch_sum as batch_sum,
)
from .transforms.batch_calls import vmap as vmap
from .transforms.control.associative_scan import associative_scan as associative_scan
from .transforms.control.branches_and_loops import (
    cond as cond, fori_loop as fori_loop, switch as switch, while_loop as while_loop,
)
from .transforms.control.scan import map as map, scan as scan
from .transforms.curvature_products import ggnvp as ggnvp, hvp as hvp
from .transforms.custom.custom_op import custom_op as custom_op, CustomOp as CustomOp
from .transforms.custom.function import Function as Function, FunctionContext as FunctionContext
from .transforms.custom.gradient_modifiers import (
    clip_gradient as clip_gradient, reverse_gradient as reverse_gradient, scale_gradient as scale_gradient,
    straight_through as straight_through,
)
from .transforms.forward import Dual as Dual, jvp as jvp, linearize as linearize
from .transforms.forward_context import ForwardContext as ForwardContext
from .transforms.gradient_tape import GradientTape as GradientTape
from .transforms.jacobian.functions import hessian as hessian, jacfwd as jacfwd, jacobian as jacobian, jacrev as jacrev
from .transforms.linear_functions import linear_transpose as linear_transpose
from .transforms.reverse import (
    elementwise_grad as elementwise_grad, grad as grad, value_and_grad as value_and_grad, vjp as vjp,
)
from .transforms.sparse import (
    hessian_diagonal as hessian_diagonal, jacobian_diagonal as jacobian_diagonal, sparse_hessian as sparse_hessian,
    sparse_jacobian as sparse_jacobian, SparsePlan as SparsePlan, sparsity as sparsity,
)
from .transforms.stage import stage as stage
from .transforms.taylor.jet import jet as jet
from .transforms.vector_calculus import divergence as divergence, laplacian as laplacian

absolute = abs
amax = max
amin = min
arccos = acos
arcsin = asin
arctan = atan
arctan2 = atan2
bool = bool_
concatenate = concat
cumprod = cumulative_prod
cumsum = cumulative_sum
device = Device
pow = power
transpose = permute_dims

__version__: str
__array_api_version__: str
__array_namespace_info__: Any
bfloat16: Any
float8_e4m3fn: Any
float8_e5m2: Any
