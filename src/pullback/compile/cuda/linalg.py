"""Small systems of equations as launches: a block of threads has one matrix, in shared memory and in float64."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ...arrays.spec import Spec
from ..loop_ir import Buffer, Host, Kernel, Layout, Routine
from .kernel.grid import Grid
from .kernel.writer import FunctionLaunch, FunctionWriter

_THREADS = 128
#: So many numbers fit the shared memory of a block, beside that of other steps.
_MAX_NUMBERS = 5632
_PROBES = 3
_DOUBLE = np.dtype(np.float64)

#: Device functions of a text that calls one of them. Matrices are by rows, with right sides behind their columns. Loops
#: are not unrolled: a compiler would take long.
SYSTEMS = """
// N equations with K right sides, by elimination with the largest pivot of each column. False if one is zero.
template <int N, int K, int T> __device__ bool eliminate_(double* m) {
  constexpr int W = N + K;
  __shared__ int found;
  #pragma unroll 1
  for (int c = 0; c < N; ++c) {
    if (threadIdx.x < 32) {
      int best = c + (int)threadIdx.x;
      double most = best < N ? fabs(m[best * W + c]) : -1.0;
      #pragma unroll 1
      for (int r = best + 32; r < N; r += 32)
        if (fabs(m[r * W + c]) > most) most = fabs(m[r * W + c]), best = r;
      #pragma unroll 1
      for (int d = 16; d; d >>= 1) {
        const double other = __shfl_xor_sync(~0u, most, d);
        const int at = __shfl_xor_sync(~0u, best, d);
        if (other > most || (other == most && at < best)) most = other, best = at;
      }
      if (threadIdx.x == 0) found = best;
    }
    barrier_<T>();
    const int p = found;
    if (p != c)
      #pragma unroll 1
      for (int j = c + (int)threadIdx.x; j < W; j += T) {
        const double x = m[c * W + j];
        m[c * W + j] = m[p * W + j], m[p * W + j] = x;
      }
    barrier_<T>();
    const double pivot = m[c * W + c];
    if (pivot == 0) return false;
    const int wide = W - 1 - c;
    #pragma unroll 1
    for (int e = threadIdx.x; e < (N - 1 - c) * wide; e += T) {
      const int r = c + 1 + e / wide, j = c + 1 + e % wide;
      m[r * W + j] -= m[r * W + c] / pivot * m[c * W + j];
    }
    barrier_<T>();
  }
  #pragma unroll 1
  for (int c = N - 1; c >= 0; --c) {
    #pragma unroll 1
    for (int k = threadIdx.x; k < K; k += T) m[c * W + N + k] /= m[c * W + c];
    barrier_<T>();
    #pragma unroll 1
    for (int e = threadIdx.x; e < c * K; e += T) m[e / K * W + N + e % K] -= m[e / K * W + c] * m[c * W + N + e % K];
    barrier_<T>();
  }
  return true;
}
__device__ inline bool is_finite_(const double x) { return fabs(x) <= 1.7976931348623157e308; }

// The shortest of the best solutions, by one warp: rotations make the columns of the matrix orthogonal.
template <int N, int K, class Matrix, class Right, class Store>
__device__ void fit_singular_(double* u, double* v, const Matrix& matrix, const Right& right, const Store& store) {
  const int lane = threadIdx.x;
  double most = 0;
  #pragma unroll 1
  for (int e = lane; e < N * N; e += 32) {
    u[e] = matrix(e % N, e / N), v[e] = e % N == e / N;
    most = maximum_::of(most, fabs(u[e]));
  }
  most = fold_warp_<maximum_, 32>(most);
  const double scale = most > 0 ? most : 1;
  #pragma unroll 1
  for (int e = lane; e < N * N; e += 32) u[e] /= scale;
  __syncwarp();
  bool turned = is_finite_(most);
  #pragma unroll 1
  for (int sweep = 0; turned && sweep < 40; ++sweep) {
    turned = false;
    #pragma unroll 1
    for (int p = 0; p < N - 1; ++p)
      #pragma unroll 1
      for (int q = p + 1; q < N; ++q) {
        double a = 0, b = 0, g = 0;
        #pragma unroll 1
        for (int r = lane; r < N; r += 32) {
          const double x = u[p * N + r], y = u[q * N + r];
          a += x * x, b += y * y, g += x * y;
        }
        a = fold_warp_<add_, 32>(a), b = fold_warp_<add_, 32>(b), g = fold_warp_<add_, 32>(g);
        if (!(fabs(g) > 1e-15 * sqrt(a * b)) || fabs(g) < 1e-300) continue;
        turned = true;
        const double zeta = (b - a) / (2 * g), t = copysign(1.0, zeta) / (fabs(zeta) + sqrt(1 + zeta * zeta));
        const double c = 1 / sqrt(1 + t * t), s = c * t;
        #pragma unroll 1
        for (int r = lane; r < N; r += 32) {
          const double x = u[p * N + r], y = u[q * N + r], z = v[p * N + r], w = v[q * N + r];
          u[p * N + r] = c * x - s * y, u[q * N + r] = s * x + c * y;
          v[p * N + r] = c * z - s * w, v[q * N + r] = s * z + c * w;
        }
        __syncwarp();
      }
  }
  double largest = 0;
  #pragma unroll 1
  for (int j = 0; j < N; ++j) {
    double size = 0;
    #pragma unroll 1
    for (int r = lane; r < N; r += 32) size += u[j * N + r] * u[j * N + r];
    largest = maximum_::of(largest, fold_warp_<add_, 32>(size));
  }
  #pragma unroll 1
  for (int k = 0; k < K; ++k) {
    double x[(N + 31) / 32] = {};
    #pragma unroll 1
    for (int j = 0; j < N; ++j) {
      double size = 0, along = 0;
      #pragma unroll 1
      for (int r = lane; r < N; r += 32) size += u[j * N + r] * u[j * N + r], along += u[j * N + r] * right(r, k);
      size = fold_warp_<add_, 32>(size), along = fold_warp_<add_, 32>(along);
      // squares of what is lost in rounding
      if (!(size > largest * (N * 2.3e-16) * (N * 2.3e-16))) continue;
      #pragma unroll 1
      for (int r = lane; r < N; r += 32) x[r / 32] += v[j * N + r] * (along / size);
    }
    #pragma unroll 1
    for (int r = lane; r < N; r += 32) store(r, k, is_finite_(most) ? x[r / 32] / scale : most - most);
  }
}

template <int N, int K, int T, class Matrix, class Right, class Store>
__device__ void block_fit_(double* shared, const Matrix& matrix, const Right& right, const Store& store) {
  constexpr int W = N + K;
  __shared__ bool fails;
  #pragma unroll 1
  for (int e = threadIdx.x; e < N * W; e += T) shared[e] = e % W < N ? matrix(e / W, e % W) : right(e / W, e % W - N);
  barrier_<T>();
  const bool regular = eliminate_<N, K, T>(shared);
  if (threadIdx.x == 0) fails = !regular;
  barrier_<T>();
  #pragma unroll 1
  for (int e = threadIdx.x; e < N * K; e += T)
    if (!is_finite_(shared[e / K * W + N + e % K])) fails = true;
  barrier_<T>();
  if (!fails)
    #pragma unroll 1
    for (int e = threadIdx.x; e < N * K; e += T) store(e / K, e % K, shared[e / K * W + N + e % K]);
  else if (threadIdx.x < 32)
    fit_singular_<N, K>(shared, shared + N * N, matrix, right, store);
  barrier_<T>();
}

__device__ inline double power_near_(const double x) {
  int exponent;
  frexp(is_finite_(x) && x > 0 ? x : 1.0, &exponent);
  return ldexp(1.0, exponent);
}

// Rows and columns are scaled first. NaN where the matrix is singular to working precision: where what its inverse
// makes of some `probes`, times its own size and `rounding`, is not below one.
template <int N, int P, int T, class Matrix, class Right, class Store>
__device__ void block_solve_(
    double* shared, const double* probes, const double rounding, const Matrix& matrix, const Right& right,
    const Store& store) {
  constexpr int W = N + 1 + P;
  double* const down = shared + N * W;
  double* const across = down + N;
  double* const sizes = across + N;
  #pragma unroll 1
  for (int r = threadIdx.x; r < N; r += T) {
    double most = 0;
    #pragma unroll 1
    for (int c = 0; c < N; ++c) most = maximum_::of(most, fabs(matrix(r, c)));
    down[r] = power_near_(most);
  }
  barrier_<T>();
  #pragma unroll 1
  for (int c = threadIdx.x; c < N; c += T) {
    double most = 0;
    #pragma unroll 1
    for (int r = 0; r < N; ++r) most = maximum_::of(most, fabs(matrix(r, c) / down[r]));
    across[c] = power_near_(most);
  }
  barrier_<T>();
  #pragma unroll 1
  for (int r = threadIdx.x; r < N; r += T) {
    double size = 0;
    #pragma unroll 1
    for (int c = 0; c < N; ++c) {
      const double x = matrix(r, c) / down[r] / across[c];
      shared[r * W + c] = x, size += x * x;
    }
    sizes[r] = size, shared[r * W + N] = right(r, 0) / down[r];
    #pragma unroll 1
    for (int k = 0; k < P; ++k) shared[r * W + N + 1 + k] = probes[r * P + k];
  }
  barrier_<T>();
  const bool regular = eliminate_<N, 1 + P, T>(shared);
  double height = 0, reach = 0;
  #pragma unroll 1
  for (int r = 0; r < N; ++r) height += sizes[r];
  #pragma unroll 1
  for (int k = 0; k < P; ++k) {
    double size = 0;
    #pragma unroll 1
    for (int r = 0; r < N; ++r) size += shared[r * W + N + 1 + k] * shared[r * W + N + 1 + k];
    reach = maximum_::of(reach, sqrt(size));
  }
  const bool sound = regular && reach * sqrt(height) * rounding < 1;
  const double none = __longlong_as_double(0x7ff8000000000000ll);
  #pragma unroll 1
  for (int r = threadIdx.x; r < N; r += T) store(r, 0, sound ? shared[r * W + N] / across[r] : none);
  barrier_<T>();
}
"""


def can_solve(routine: Routine, specs: Sequence[Spec]) -> bool:
    """Whether a launch can do a routine for arguments and results of these specs."""
    matrix, right, out = specs[0], specs[1] if len(specs) > 2 else specs[0], specs[-1]
    n = matrix.shape[-1] if matrix.ndim > 1 else 0
    if not n or matrix.shape[-2] != n or any(s.dtype.name not in ("float32", "float64") for s in specs):
        return False
    if routine.name == "guarded_solve":
        numbers = n * (n + 4 + _PROBES)
        return routine.static["kind"] == "lu" and matrix.ndim == right.ndim + 1 and numbers <= _MAX_NUMBERS
    is_fit = routine.name == "solve" and routine.static.get("fits", False)
    return is_fit and matrix.ndim == out.ndim and _count_numbers(n, out.shape[-1]) <= _MAX_NUMBERS


def _count_numbers(n: int, columns: int) -> int:
    """Those that `block_fit_` works in: of the elimination, or of two matrices."""
    return n * max(n + columns, 2 * n)


def render_system(step: Host, routine: Routine) -> FunctionLaunch:
    """The launch of an op that solves systems."""
    writer = FunctionWriter(Grid(Kernel((), 0), [], {}))
    matrix, right = step.args[:2]
    (out,) = step.outs
    is_guarded = routine.name == "guarded_solve"
    core, n = 1 if is_guarded else 2, matrix.shape[-1]
    stack = out.shape[: len(out.shape) - core]
    columns = 1 if is_guarded else out.shape[-1]
    writer.written.append(out.buffer)
    body = [
        "const I z = blockIdx.x;",
        f"const auto matrix = [&](const int r, const int c) {{ return {_element(writer, matrix, stack, 2)}; }};",
        f"const auto right = [&](const int r, const int c) {{ return {_element(writer, right, stack, core)}; }};",
        "const auto store = [&](const int r, const int c, const double x) {",
        f"  {_element(writer, out, stack, core)} = x;",
        "};",
    ]
    if is_guarded:
        rounding = 8 * float(np.finfo(routine.static["dtype"]).eps)
        probes = writer.pointer(Buffer("constant", n * _PROBES, _DOUBLE, constant=_make_probes(n)))
        body += [
            f"__shared__ double shared[{n * (n + 4 + _PROBES)}];",
            f"block_solve_<{n}, {_PROBES}, {_THREADS}>(shared, {probes}, {rounding!r}, matrix, right, store);",
        ]
    else:
        body += [
            f"__shared__ double shared[{_count_numbers(n, columns)}];",
            f"block_fit_<{n}, {columns}, {_THREADS}>(shared, matrix, right, store);",
        ]
    return writer.finish(body, (max(math.prod(stack), 1), 1), (_THREADS, 1))


def _element(writer: FunctionWriter, x: Layout, stack: tuple[int, ...], core: int) -> str:
    """The element at r and c of matrix z of a stack; `core` axes are those of a matrix or a vector."""
    before = len(x.shape) - core
    terms, step = [str(x.offset)], 1
    for axis in reversed(range(before)):
        n, stride = stack[axis], x.strides[axis] if x.shape[axis] > 1 else 0
        terms += [f"z / {step} % {n} * {stride}"] if stride else []
        step *= n
    terms += [f"{letter} * {stride}" for letter, stride in zip("rc", x.strides[before:], strict=False)]
    return f"{writer.pointer(x.buffer)}[{' + '.join(terms)}]"


def _make_probes(n: int) -> Any:
    """The vectors that `_solve_by_elimination` of `implicit.linear.direct` takes."""
    found = np.random.default_rng(n).normal(size=(n, _PROBES))
    return found / np.sqrt(np.sum(found**2, axis=0))
