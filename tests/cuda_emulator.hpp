// CUDA C on a CPU: a kernel's threads run one after the other, as fibers that switch where they wait for each other.
#pragma once
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <ucontext.h>

struct uint3_ { unsigned x, y, z; };
using dim3 = uint3_;
static uint3_ threadIdx, blockIdx, blockDim, gridDim;
static const int warpSize = 32;
struct alignas(16) float4 { float x, y, z, w; };
struct alignas(8) float2 { float x, y; };
struct alignas(16) int4 { int x, y, z, w; };
struct alignas(16) uint4 { unsigned x, y, z, w; };
struct alignas(8) uint2 { unsigned x, y; };
struct alignas(16) double2 { double x, y; };

#define __global__
#define __device__
#define __host__
#define __constant__ static
#define __forceinline__ inline
#define __noinline__ __attribute__((noinline))
#define __shared__ static
#define __align__(n) __attribute__((aligned(n)))
#define __launch_bounds__(...)

// Fibers

struct Fiber {
  ucontext_t context;
  uint3_ thread;
  int lane, warp;
  int waits;      // 0: it can run, 1: for its warp, 2: for its block, 3: it has ended, 5: for the first of its block
  unsigned mask;  // the lanes it waits for, or how many
};
static const int MAX_THREADS = 1024;
static const size_t STACK = 128 << 10;
static Fiber fibers[MAX_THREADS];
static ucontext_t scheduler;
static char* stacks;
static int running = -1, threads_of_block;
static void (*entry)();
static void** entry_arguments;
static int entry_count;
static const char* failure;
static unsigned char dynamic_shared_[256 << 10] __attribute__((aligned(1024)));

static void call_entry() {
  void** a = entry_arguments;
#define A8(i) a[i], a[i + 1], a[i + 2], a[i + 3], a[i + 4], a[i + 5], a[i + 6], a[i + 7]
#define T8 void*, void*, void*, void*, void*, void*, void*, void*
  if (entry_count <= 8) ((void (*)(T8))entry)(A8(0));
  else if (entry_count <= 32) ((void (*)(T8, T8, T8, T8))entry)(A8(0), A8(8), A8(16), A8(24));
  else ((void (*)(T8, T8, T8, T8, T8, T8, T8, T8, T8, T8, T8, T8, T8, T8, T8, T8))entry)(
      A8(0), A8(8), A8(16), A8(24), A8(32), A8(40), A8(48), A8(56), A8(64), A8(72), A8(80), A8(88), A8(96), A8(104),
      A8(112), A8(120));
}

static void begin_fiber() {
  call_entry();
  fibers[running].waits = 3;
  swapcontext(&fibers[running].context, &scheduler);
}

static void wait_(int kind, unsigned mask) {
  if (running < 0) { fprintf(stderr, "a barrier in a kernel without fibers\n"); abort(); }
  Fiber& self = fibers[running];
  self.waits = kind;
  self.mask = mask;
  swapcontext(&self.context, &scheduler);
}

static bool release_() {
  bool any = false;
  for (int w = 0; w * 32 < threads_of_block; ++w) {  // warps whose live lanes all wait for each other
    int end = (w + 1) * 32 < threads_of_block ? (w + 1) * 32 : threads_of_block;
    unsigned waiting = 0, live = 0;
    for (int t = w * 32; t < end; ++t) {
      waiting |= (fibers[t].waits == 1) << (t % 32) ;
      live |= (unsigned)(fibers[t].waits != 3) << (t % 32);
    }
    for (int t = w * 32; t < end; ++t)
      if (fibers[t].waits == 1 && (fibers[t].mask & live & ~waiting) == 0) { fibers[t].waits = 4; any = true; }
    for (int t = w * 32; t < end; ++t) if (fibers[t].waits == 4) fibers[t].waits = 0;
  }
  if (any) return true;
  unsigned first = 0, wanted = 0;
  for (int t = 0; t < threads_of_block; ++t)
    if (fibers[t].waits == 5) {
      if (wanted && fibers[t].mask != wanted) failure = "two barriers at once";
      ++first, wanted = fibers[t].mask;
    }
  if (first && first == wanted && !failure) {
    for (int t = 0; t < threads_of_block; ++t) if (fibers[t].waits == 5) fibers[t].waits = 0;
    return true;
  }
  bool all = true, some = false;
  for (int t = 0; t < threads_of_block; ++t) {
    all = all && (fibers[t].waits == 2 || fibers[t].waits == 3);
    some = some || fibers[t].waits == 2;
  }
  if (!all || !some) return false;
  for (int t = 0; t < threads_of_block; ++t) if (fibers[t].waits == 2) fibers[t].waits = 0;
  return true;
}

static void run_block_in_fibers(bool backwards) {
  if (!stacks) stacks = (char*)mmap(0, STACK * MAX_THREADS, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  for (int t = 0; t < threads_of_block; ++t) {
    Fiber& f = fibers[t];
    getcontext(&f.context);
    f.context.uc_stack.ss_sp = stacks + STACK * t;
    f.context.uc_stack.ss_size = STACK;
    f.context.uc_link = &scheduler;
    makecontext(&f.context, begin_fiber, 0);
    f.waits = 0;
    f.warp = t / 32;
    f.lane = t % 32;
    f.thread = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
  }
  for (;;) {
    for (int i = 0; i < threads_of_block; ++i) {  // in both orders, so that a missing barrier shows
      int t = backwards ? threads_of_block - 1 - i : i;
      if (fibers[t].waits) continue;
      running = t;
      threadIdx = fibers[t].thread;
      swapcontext(&scheduler, &fibers[t].context);
    }
    running = -1;
    if (!release_()) break;
  }
  for (int t = 0; t < threads_of_block; ++t)
    if (fibers[t].waits != 3) { failure = "threads wait for others that never come"; return; }
}

static int backwards = 0;
extern "C" void emulate_order(int is_backwards) { backwards = is_backwards; }

static void run_block_one_by_one() {
  for (int i = 0; i < threads_of_block; ++i) {
    unsigned t = backwards ? threads_of_block - 1 - i : i;
    threadIdx = {t % blockDim.x, t / blockDim.x % blockDim.y, t / (blockDim.x * blockDim.y)};
    call_entry();
  }
}

extern "C" const char* emulate_launch(void (*f)(), void** arguments, int count, const unsigned* grid,
                                      const unsigned* block, int has_barriers) {
  entry = f, entry_arguments = arguments, entry_count = count, failure = 0;
  gridDim = {grid[0], grid[1], grid[2]}, blockDim = {block[0], block[1], block[2]};
  threads_of_block = block[0] * block[1] * block[2];
  if (threads_of_block > MAX_THREADS) return "too many threads";
  const unsigned long total = (unsigned long)grid[0] * grid[1] * grid[2];
  for (unsigned long n = 0; n < total; ++n) {
    const unsigned long m = backwards ? total - 1 - n : n;
    blockIdx = {(unsigned)(m % grid[0]), (unsigned)(m / grid[0] % grid[1]), (unsigned)(m / grid[0] / grid[1])};
    if (!has_barriers) {
      run_block_one_by_one();
      continue;
    }
    memset(dynamic_shared_, 0xff, 4096);
    run_block_in_fibers((m + backwards) % 2);
    if (failure) return failure;
  }
  return 0;
}

// Waiting for each other, and exchanging values within a warp

// the condition of a node is the address of its value here
extern "C" inline void cudaGraphSetConditional(unsigned long long condition, unsigned value) {
  *(unsigned*)condition = value;
}
static inline void __syncthreads() { wait_(2, ~0u); }
template <int N> static void barrier_() {
  if (N % 32 || running >= N) failure = "a barrier for other threads";
  wait_(5, N);
}
static inline void __syncwarp(unsigned mask = ~0u) { wait_(1, mask); }
static inline void __threadfence() {}
static inline void __threadfence_block() {}
static unsigned char exchanged_[MAX_THREADS][256] __attribute__((aligned(16)));

template <class T> static T exchange_(unsigned mask, T x, int from) {
  const int warp = fibers[running].warp;
  memcpy(exchanged_[running], &x, sizeof x);
  wait_(1, mask);
  T found = x;
  if (from >= 0 && from < 32) memcpy(&found, exchanged_[warp * 32 + from], sizeof x);
  wait_(1, mask);
  return found;
}
template <class T> static T __shfl_sync(unsigned mask, T x, int lane, int width = 32) {
  const int own = fibers[running].lane;
  return exchange_(mask, x, own / width * width + lane % width);
}
template <class T> static T __shfl_xor_sync(unsigned mask, T x, int by, int width = 32) {
  const int own = fibers[running].lane, to = own ^ by;
  return exchange_(mask, x, to / width == own / width ? to : own);
}
template <class T> static T __shfl_down_sync(unsigned mask, T x, int by, int width = 32) {
  const int own = fibers[running].lane, to = own + by;
  return exchange_(mask, x, to / width == own / width ? to : own);
}
template <class T> static T __shfl_up_sync(unsigned mask, T x, int by, int width = 32) {
  const int own = fibers[running].lane, to = own - by;
  return exchange_(mask, x, to >= own / width * width ? to : own);
}
static inline unsigned __ballot_sync(unsigned mask, int predicate) {
  unsigned found = 0;
  const int warp = fibers[running].warp;
  exchanged_[running][0] = predicate != 0;
  wait_(1, mask);
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1) && warp * 32 + i < threads_of_block && fibers[warp * 32 + i].waits != 3)
      found |= (unsigned)exchanged_[warp * 32 + i][0] << i;
  wait_(1, mask);
  return found;
}
static inline int __any_sync(unsigned mask, int p) { return __ballot_sync(mask, p) != 0; }
static inline unsigned __match_any_sync(unsigned mask, unsigned value) {
  unsigned found = 0;
  const int warp = fibers[running].warp;
  memcpy(exchanged_[running], &value, 4);
  wait_(1, mask);
  for (int i = 0; i < 32; ++i)
    if ((mask >> i & 1) && warp * 32 + i < threads_of_block) found |= (unsigned)!memcmp(exchanged_[warp * 32 + i], &value, 4) << i;
  wait_(1, mask);
  return found;
}

template <class T> static T atomicAdd(T* p, T x) { T old = *p; *p = old + x; return old; }
template <class T> static T atomicMax(T* p, T x) { T old = *p; if (x > old) *p = x; return old; }
template <class T> static T atomicMin(T* p, T x) { T old = *p; if (x < old) *p = x; return old; }
template <class T> static T atomicExch(T* p, T x) { T old = *p; *p = x; return old; }
template <class T> static T atomicOr(T* p, T x) { T old = *p; *p = old | x; return old; }
template <class T> static T atomicCAS(T* p, T c, T x) { T old = *p; if (old == c) *p = x; return old; }

// Arithmetic that CUDA has and C has not

template <class To, class From> static To as_(From x) { To y; memcpy(&y, &x, sizeof y); return y; }
static inline float __int_as_float(int x) { return as_<float>(x); }
static inline float __uint_as_float(unsigned x) { return as_<float>(x); }
static inline int __float_as_int(float x) { return as_<int>(x); }
static inline unsigned __float_as_uint(float x) { return as_<unsigned>(x); }
static inline double __longlong_as_double(long long x) { return as_<double>(x); }
static inline long long __double_as_longlong(double x) { return as_<long long>(x); }
static inline int __popc(unsigned x) { return __builtin_popcount(x); }
static inline int __clz(int x) { return x ? __builtin_clz(x) : 32; }
static inline int __ffs(int x) { return __builtin_ffs(x); }
static inline float exp2_approximate_(float x) { return exp2f(x); }
static inline float reciprocal_approximate_(float x) { return 1.0f / x; }
static inline float rsqrtf(float x) { return 1.0f / sqrtf(x); }
static inline double rsqrt(double x) { return 1.0 / sqrt(x); }
static inline float __fmaf_rn(float x, float y, float z) { return fmaf(x, y, z); }
template <class T> static T __ldg(const T* p) { return *p; }
template <class T> static T __ldcs(const T* p) { return *p; }
template <class T> static void __stcs(T* p, T x) { *p = x; }
template <class T> static T min(T a, T b) { return b < a ? b : a; }
template <class T> static T max(T a, T b) { return a < b ? b : a; }

static inline float half_value_(unsigned short bits) { return (float)as_<_Float16>(bits); }
static inline unsigned short half_bits_(float x) { return as_<unsigned short>((_Float16)x); }
static inline unsigned short half_bits_(double x) { return as_<unsigned short>((_Float16)x); }

// Tensor cores: lane 4g + q holds a[g + 8 (e % 2)][q + 4 (e / 2)], b[q + 4 e][g] and c[g + 8 (e / 2)][2 q + e % 2]

static inline unsigned tf32_(float x) {  // to the nearest number of ten bits, ties away from zero
  const unsigned bits = __float_as_uint(x);
  return (bits >> 23 & 255) == 255 ? bits : (bits + 0x1000u) & ~0x1fffu;
}
template <int WIDTH, bool IS_STREAM = false, class T> static void copy_async_(T* to, const T* from, bool inside) {
  for (int i = 0; i < WIDTH; ++i) to[i] = inside ? from[i] : T{};
}
static inline void end_copies_() {}
template <int LATER> static void await_copies_() {}
static inline void mma_(float* c, const unsigned* a, const unsigned* b) {
  const int g = fibers[running].lane / 4, q = fibers[running].lane % 4, first = fibers[running].warp * 32;
  memcpy(exchanged_[running], a, 16);
  memcpy(exchanged_[running] + 16, b, 8);
  wait_(1, ~0u);
  for (int e = 0; e < 4; ++e) {
    double sum = c[e];
    for (int k = 0; k < 8; ++k) {
      float x, y;
      memcpy(&x, exchanged_[first + g * 4 + k % 4] + 4 * (e / 2 + k / 4 * 2), 4);
      memcpy(&y, exchanged_[first + (q * 2 + e % 2) * 4 + k % 4] + 16 + 4 * (k / 4), 4);
      // of the mantissa, ten bits are there
      sum += (double)__uint_as_float(__float_as_uint(x) & ~0x1fffu) * __uint_as_float(__float_as_uint(y) & ~0x1fffu);
    }
    c[e] = (float)sum;
  }
  wait_(1, ~0u);
}
// Of half types, a register has two: a[g + 8 (e % 2)][2 q + 8 (e / 2) + i] and b[2 q + 8 e + i][g]
template <class E> static void mma_(float* c, const unsigned* a, const unsigned* b, E) {
  const int g = fibers[running].lane / 4, q = fibers[running].lane % 4, first = fibers[running].warp * 32;
  memcpy(exchanged_[running], a, 16);
  memcpy(exchanged_[running] + 16, b, 8);
  wait_(1, ~0u);
  for (int e = 0; e < 4; ++e) {
    double sum = c[e];
    for (int k = 0; k < 16; ++k) {
      E x, y;
      memcpy(&x, exchanged_[first + g * 4 + k % 8 / 2] + 4 * (e / 2 + k / 8 * 2) + 2 * (k % 2), 2);
      memcpy(&y, exchanged_[first + (q * 2 + e % 2) * 4 + k % 8 / 2] + 16 + 4 * (k / 8) + 2 * (k % 2), 2);
      sum += (double)(float)x * (float)y;
    }
    c[e] = (float)sum;
  }
  wait_(1, ~0u);
}
