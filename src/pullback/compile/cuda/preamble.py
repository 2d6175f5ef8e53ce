"""Device functions that every module starts with: words that are no operator of C, folds, and indexed places."""

from __future__ import annotations

#: NumPy's results where C leaves them undefined: a zero divisor, the lowest number by -1, a shift by too many bits.
_WORDS = """
template <class T> struct wrapping_ { using type = T; };
template <> struct wrapping_<int> { using type = unsigned; };
template <> struct wrapping_<long long> { using type = unsigned long long; };
template <> struct wrapping_<signed char> { using type = unsigned; };
template <> struct wrapping_<unsigned char> { using type = unsigned; };
template <> struct wrapping_<short> { using type = unsigned; };
template <> struct wrapping_<unsigned short> { using type = unsigned; };
template <class T> __device__ T negative_(T x) { using U = typename wrapping_<T>::type; return (T)(U(0) - (U)x); }
template <class T> __device__ bool is_minus_one_(T x) { return T(-1) < T(0) && x == T(-1); }
template <class T> __device__ T divide_(T x, T y) {
  return y == 0 ? T(0) : is_minus_one_(y) ? negative_(x) : T(x / y);
}
template <class T> __device__ T fmod_(T x, T y) { return y == 0 || is_minus_one_(y) ? T(0) : T(x % y); }
__device__ inline float fmod_(float x, float y) { return fmodf(x, y); }
__device__ inline double fmod_(double x, double y) { return fmod(x, y); }
template <class T> __device__ T remainder_(T x, T y) {
  const T rest = fmod_(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? T(rest + y) : rest;
}
template <class T> __device__ T floor_divide_(T x, T y) {
  const T rest = fmod_(x, y), found = divide_(x, y);
  return rest != 0 && (rest < 0) != (y < 0) ? T(found - 1) : found;
}
template <class T> __device__ T real_remainder_(T x, T y) {
  const T rest = fmod_(x, y);
  if (rest == 0) return copysign(T(0), y);
  return (rest < 0) != (y < 0) ? rest + y : rest;
}
template <class T> __device__ T real_floor_divide_(T x, T y) {
  if (y == 0) return x / y;
  const T rest = fmod_(x, y);
  T found = (x - rest) / y;
  if (rest != 0 && (rest < 0) != (y < 0)) found -= T(1);
  if (found == 0) return copysign(T(0), x / y);
  const T whole = floor(found);
  return found - whole > T(0.5) ? whole + T(1) : whole;
}
template <class T> __device__ T left_shift_(T x, T y) {
  using U = typename wrapping_<T>::type;
  return (unsigned long long)y < 8 * sizeof(T) ? (T)((U)x << y) : T(0);
}
template <class T> __device__ T right_shift_(T x, T y) {
  return (unsigned long long)y < 8 * sizeof(T) ? (T)(x >> y) : x < 0 ? T(-1) : T(0);
}
template <class U> __device__ U rotate_left_(U x, U y) {
  const unsigned bits = 8 * sizeof(U), by = (unsigned)(y % bits);
  return by ? (U)((U)(x << by) | (U)(x >> (bits - by))) : x;
}
template <class T, class F> __device__ T saturate_(F x, T low, T high) {
  return x != x ? T(0) : x <= (F)low ? low : x >= (F)high ? high : (T)x;
}
template <class T> __device__ T logaddexp_(T x, T y) {
  const T high = x > y || x != x ? x : y, away = x - y;
  return high - high != 0 ? high : high + log1p(exp(away < 0 ? away : -away));
}
template <class T> __device__ T sigmoid_(T x) {
  const T small = exp(x < 0 ? x : -x);
  return (x < 0 ? small : T(1)) / (T(1) + small);
}
"""

#: Half types of memory: values are widened to float when they are loaded, and rounded to the nearest when stored.
HALVES = """
struct bfloat16_ {
  unsigned short bits;
  bfloat16_() = default;
  __device__ __forceinline__ bfloat16_(const float x) {
#if __CUDA_ARCH__ >= 800
    asm("cvt.rn.bf16.f32 %0, %1;" : "=h"(bits) : "f"(x));
#else
    const unsigned all = __float_as_uint(x);
    bits = x != x ? 0x7fc0 : (all + 0x7fff + (all >> 16 & 1)) >> 16;
#endif
  }
  __device__ __forceinline__ operator float() const { return __uint_as_float((unsigned)bits << 16); }
};
// ptx
__device__ __forceinline__ float half_value_(const unsigned short bits) {
  float x;
  asm("cvt.f32.f16 %0, %1;" : "=f"(x) : "h"(bits));
  return x;
}
__device__ __forceinline__ unsigned short half_bits_(const float x) {
  unsigned short bits;
  asm("cvt.rn.f16.f32 %0, %1;" : "=h"(bits) : "f"(x));
  return bits;
}
__device__ __forceinline__ unsigned short half_bits_(const double x) {
  unsigned short bits;
  asm("cvt.rn.f16.f64 %0, %1;" : "=h"(bits) : "d"(x));
  return bits;
}
// end of ptx
struct float16_ {
  unsigned short bits;
  float16_() = default;
  __device__ __forceinline__ float16_(const float x) : bits(half_bits_(x)) {}
  __device__ __forceinline__ float16_(const double x) : bits(half_bits_(x)) {}
  __device__ __forceinline__ operator float() const { return half_value_(bits); }
};
"""

#: Types of eight bits: what is too large for them becomes the largest number. Digits, the bias of the exponent, and the
#: largest number with its bits are parameters.
FLOAT8 = """
template <int DIGITS, int BIAS> __device__ __forceinline__ float float8_value_(const unsigned bits) {
  const unsigned size = bits & 127, power = size >> DIGITS, digits = size & (1u << DIGITS) - 1;
  const float tiny = (float)size * __uint_as_float((unsigned)(128 - BIAS - DIGITS) << 23);
  const float found = power ? __uint_as_float((power + 127 - BIAS) << 23 | digits << (23 - DIGITS)) : tiny;
  return bits & 128 ? -found : found;
}
#if __CUDA_ARCH__ >= 890
__device__ __forceinline__ unsigned char float8_e4m3fn_bits_(const float x) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e4m3x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return (unsigned char)pair;
}
__device__ __forceinline__ unsigned char float8_e5m2_bits_(const float x) {
  unsigned short pair;
  asm("cvt.rn.satfinite.e5m2x2.f32 %0, %1, %2;" : "=h"(pair) : "f"(0.0f), "f"(x));
  return (unsigned char)pair;
}
#else
template <int DIGITS, int BIAS> __device__ __forceinline__ unsigned char float8_bits_(float x, float most, int last) {
  const unsigned all = __float_as_uint(x), size = all & 0x7fffffffu, sign = all >> 24 & 128;
  if (x != x) return 127;
  if (__uint_as_float(size) >= most) return sign | last;
  if (size < (unsigned)(128 - BIAS) << 23)
    return sign | (unsigned)rintf(__uint_as_float(size) * __uint_as_float((unsigned)(126 + BIAS + DIGITS) << 23));
  const unsigned up = (1u << (22 - DIGITS)) - 1 + (size >> (23 - DIGITS) & 1);
  return sign | ((size + up >> (23 - DIGITS)) - ((127 - BIAS) << DIGITS));
}
__device__ __forceinline__ unsigned char float8_e4m3fn_bits_(float x) { return float8_bits_<3, 7>(x, 448.0f, 126); }
__device__ __forceinline__ unsigned char float8_e5m2_bits_(float x) { return float8_bits_<2, 15>(x, 57344.0f, 123); }
#endif
struct float8_e4m3fn_ {
  unsigned char bits;
  float8_e4m3fn_() = default;
  __device__ __forceinline__ float8_e4m3fn_(const float x) : bits(float8_e4m3fn_bits_(x)) {}
  __device__ __forceinline__ float8_e4m3fn_(const double x) : float8_e4m3fn_((float)x) {}
  __device__ __forceinline__ operator float() const {
    return (bits & 127) == 127 ? __uint_as_float(0x7fc00000u) : float8_value_<3, 7>(bits);
  }
};
struct float8_e5m2_ {
  unsigned char bits;
  float8_e5m2_() = default;
  __device__ __forceinline__ float8_e5m2_(const float x) : bits(float8_e5m2_bits_(x)) {}
  __device__ __forceinline__ float8_e5m2_(const double x) : float8_e5m2_((float)x) {}
  __device__ __forceinline__ operator float() const {
    const unsigned size = bits & 127, special = size == 124 ? 0x7f800000u : 0x7fc00000u;
    return float8_value_<2, 15>(bits) * (size < 124 ? 1.0f : __uint_as_float(special));
  }
};
"""

#: Hyperbolic tangents of float32: one formula where x is small, one where it is not, and a choice that no thread of a
#: warp waits for. CUDA's own does the same in more steps that follow each other. Off by two units in the last place.
_TANH = """
// ptx
__device__ __forceinline__ float exp2_approximate_(const float x) {
  float y;
  asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
__device__ __forceinline__ float reciprocal_approximate_(const float x) {
  float y;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
  return y;
}
// end of ptx
__device__ __forceinline__ float tanh_(const float x) {
  const float a = fabsf(x), z = x * x, s = copysignf(1.0f, x);
  // x P(x^2), with the polynomial of least relative error below 0.65
  float p = -0.0055151433f;
  p = fmaf(p, z, 0.020469397f);
  p = fmaf(p, z, -0.053688016f);
  p = fmaf(p, z, 0.1333083f);
  p = fmaf(p, z, -0.3333326f);
  p = fmaf(p, z, 1.0f);
  const float small = x * p;
  // 1 - 2 / (exp(2 a) + 1) with the sign of x
  const float large = fmaf(reciprocal_approximate_(exp2_approximate_(a * 2.88539008f) + 1.0f), -2.0f * s, s);
  return a < 0.65f ? small : large;
}
__device__ __forceinline__ double tanh_(const double x) { return tanh(x); }
"""

#: Copies to shared memory that go on while the thread does, zeros for what is not `inside`, in groups of which the last
#: may be awaited `LATER`; what is read once (`IS_STREAM`) passes by a processor's cache. An emulator has its own.
_COPIES = """
// ptx
#if __CUDA_ARCH__ >= 800
template <int WIDTH, bool IS_STREAM = false, class T>
__device__ __forceinline__ void copy_async_(T* to, const T* from, const bool inside) {
  constexpr int BYTES = WIDTH * (int)sizeof(T);
  static_assert(BYTES == 4 || BYTES == 8 || BYTES == 16, "bytes of one copy");
  const unsigned place = (unsigned)__cvta_generic_to_shared(to), count = inside ? BYTES : 0;
  if (IS_STREAM && BYTES == 16)
    asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(place), "l"(from), "r"(count));
  else
    asm volatile("cp.async.ca.shared.global [%0], [%1], %3, %2;"
                 ::"r"(place), "l"(from), "r"(count), "n"(BYTES));
}
__device__ __forceinline__ void end_copies_() { asm volatile("cp.async.commit_group;" ::: "memory"); }
template <int LATER> __device__ __forceinline__ void await_copies_() {
  asm volatile("cp.async.wait_group %0;" ::"n"(LATER) : "memory");
}
#else
template <int WIDTH, bool IS_STREAM = false, class T>
__device__ __forceinline__ void copy_async_(T* to, const T* from, const bool inside) {
  for (int i = 0; i < WIDTH; ++i) to[i] = inside ? from[i] : T{};
}
__device__ __forceinline__ void end_copies_() {}
template <int LATER> __device__ __forceinline__ void await_copies_() {}
#endif
// end of ptx
"""

#: What is folded, by one thread, by a warp or part of one, and by a block; always in the same order. At a barrier the
#: first N threads of a block wait for each other.
_FOLDS = """
// ptx
template <int N> __device__ __forceinline__ void barrier_() { asm volatile("bar.sync 1, %0;" ::"n"(N) : "memory"); }
// end of ptx
template <class T, int N> struct alignas(sizeof(T) * N) Vec { T v[N]; };
struct add_ { template <class T> static __device__ T of(T a, T b) {
  using U = typename wrapping_<T>::type; return (T)((U)a + (U)b); } };
struct multiply_ { template <class T> static __device__ T of(T a, T b) {
  using U = typename wrapping_<T>::type; return (T)((U)a * (U)b); } };
struct maximum_ { template <class T> static __device__ T of(T a, T b) { return a > b || a != a ? a : b; } };
struct minimum_ { template <class T> static __device__ T of(T a, T b) { return a < b || a != a ? a : b; } };
struct logical_or_ { template <class T> static __device__ T of(T a, T b) { return a || b; } };
struct logical_and_ { template <class T> static __device__ T of(T a, T b) { return a && b; } };
template <class Op, int N, class T> __device__ T fold_warp_(T x) {
  for (int d = N / 2; d; d >>= 1) x = Op::of(x, __shfl_xor_sync(~0u, x, d));
  return x;
}
template <class Op, int N, class T> __device__ T fold_block_(T x, T* shared) {
  x = fold_warp_<Op, 32>(x);
  if (threadIdx.x % 32 == 0) shared[threadIdx.x / 32] = x;
  barrier_<N>();
  constexpr int WARPS = N / 32;
  if (WARPS >= 8 && (WARPS & (WARPS - 1)) == 0) return fold_warp_<Op, WARPS>(shared[threadIdx.x % WARPS]);
  T all = shared[0];
  for (int i = 1; i < WARPS; ++i) all = Op::of(all, shared[i]);
  return all;
}
"""

#: The element an index points at; negative ones count from the end. Out of range it is -1, and the status is noted.
_INDICES = """
template <class T> __device__ long long place_(T index, long long size, int* status) {
  const long long at = (long long)index < 0 ? (long long)index + size : (long long)index;
  if (at >= 0 && at < size) return at;
  *status = 1;
  return -1;
}
"""

#: A stable sort of keys and their numbers by one block, eight bits in each pass: a warp takes one part of the keys in
#: order, after others that have the same bits.
_SORT = """
template <int N, int PASSES>
__device__ void block_sort_(unsigned* keys, unsigned* items, unsigned* keys2, unsigned* items2) {
  __shared__ unsigned counts[256 * 32], sums[1024];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32;
  const int part = (N + 1023) / 1024 * 32, begin = warp * part, end = begin + part < N ? begin + part : N;
  for (int pass = 0; pass < PASSES; ++pass) {
    for (int i = t; i < 256 * 32; i += 1024) counts[i] = 0;
    __syncthreads();
    for (int i = begin + lane; i < end; i += 32) atomicAdd(&counts[(keys[i] >> 8 * pass & 255) * 32 + warp], 1u);
    __syncthreads();
    unsigned total = 0;
    for (int i = 0; i < 8; ++i) total += counts[8 * t + i];
    sums[t] = total;
    __syncthreads();
    for (int by = 1; by < 1024; by *= 2) {
      const unsigned before = t >= by ? sums[t - by] : 0;
      __syncthreads();
      sums[t] += before;
      __syncthreads();
    }
    unsigned at = sums[t] - total;
    for (int i = 0; i < 8; ++i) {
      const unsigned own = counts[8 * t + i];
      counts[8 * t + i] = at;
      at += own;
    }
    __syncthreads();
    for (int first = begin; first < end; first += 32) {
      const int i = first + lane;
      const unsigned key = i < end ? keys[i] : 0, item = i < end ? pass ? items[i] : (unsigned)i : 0;
      const unsigned digit = i < end ? key >> 8 * pass & 255 : 256;
      const unsigned peers = __match_any_sync(~0u, digit), rank = __popc(peers & ((1u << lane) - 1));
      if (i < end) {
        const unsigned to = counts[digit * 32 + warp] + rank;
        keys2[to] = key;
        items2[to] = item;
      }
      __syncwarp();
      if (i < end && rank == 0) counts[digit * 32 + warp] += __popc(peers);
      __syncwarp();
    }
    __syncthreads();
    unsigned* const sorted = keys2;
    keys2 = keys, keys = sorted;
    unsigned* const moved = items2;
    items2 = items, items = moved;
  }
}
"""

#: One pass of the same sort by BLOCKS blocks, in three launches: how often each digit occurs in the part of a block,
#: where the first key of each digit and block goes, and the keys in their new places.
_SORT_BY_BLOCKS = """
template <int N, int BLOCKS>
__device__ void block_sort_count_(const unsigned* keys, unsigned* counts, int shift, int block) {
  __shared__ unsigned own[256];
  const int t = threadIdx.x, part = (N + BLOCKS * 1024 - 1) / (BLOCKS * 1024) * 1024;
  const int begin = block * part, end = begin + part < N ? begin + part : N;
  if (t < 256) own[t] = 0;
  __syncthreads();
  for (int i = begin + t; i < end; i += 1024) atomicAdd(&own[keys[i] >> shift & 255], 1u);
  __syncthreads();
  if (t < 256) counts[t * BLOCKS + block] = own[t];
}
template <int BLOCKS>
__device__ void block_sort_sum_(unsigned* counts) {
  __shared__ unsigned sums[1024];
  const int t = threadIdx.x, part = BLOCKS / 4;
  unsigned total = 0;
  for (int i = 0; i < part; ++i) total += counts[part * t + i];
  sums[t] = total;
  __syncthreads();
  for (int by = 1; by < 1024; by *= 2) {
    const unsigned before = t >= by ? sums[t - by] : 0;
    __syncthreads();
    sums[t] += before;
    __syncthreads();
  }
  unsigned at = sums[t] - total;
  for (int i = 0; i < part; ++i) {
    const unsigned own = counts[part * t + i];
    counts[part * t + i] = at;
    at += own;
  }
}
template <int N, int BLOCKS>
__device__ void block_sort_place_(const unsigned* keys, const unsigned* items, unsigned* keys2, unsigned* items2,
                                  const unsigned* counts, int shift, int block) {
  __shared__ unsigned next[256 * 32];
  const int t = threadIdx.x, lane = t % 32, warp = t / 32, part = (N + BLOCKS * 1024 - 1) / (BLOCKS * 1024) * 32;
  const int begin = (block * 32 + warp) * part, end = begin + part < N ? begin + part : N;
  for (int i = t; i < 256 * 32; i += 1024) next[i] = 0;
  __syncthreads();
  for (int i = begin + lane; i < end; i += 32) atomicAdd(&next[(keys[i] >> shift & 255) * 32 + warp], 1u);
  __syncthreads();
  if (t < 256) {
    unsigned at = counts[t * BLOCKS + block];
    for (int i = 0; i < 32; ++i) {
      const unsigned own = next[t * 32 + i];
      next[t * 32 + i] = at;
      at += own;
    }
  }
  __syncthreads();
  for (int first = begin; first < end; first += 32) {
    const int i = first + lane;
    const unsigned key = i < end ? keys[i] : 0, item = i < end ? shift ? items[i] : (unsigned)i : 0;
    const unsigned digit = i < end ? key >> shift & 255 : 256;
    const unsigned peers = __match_any_sync(~0u, digit), rank = __popc(peers & ((1u << lane) - 1));
    if (i < end) {
      const unsigned to = next[digit * 32 + warp] + rank;
      keys2[to] = key;
      items2[to] = item;
    }
    __syncwarp();
    if (i < end && rank == 0) next[digit * 32 + warp] += __popc(peers);
    __syncwarp();
  }
}
"""

PREAMBLE = (_WORDS + HALVES + _TANH + _COPIES + _FOLDS + _INDICES + _SORT + _SORT_BY_BLOCKS).lstrip()
