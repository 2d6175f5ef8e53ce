"""Device functions that the text of a tile calls: instructions of the tensor cores, and the tiles themselves."""

from __future__ import annotations

import functools
import importlib.resources

#: Machine instructions of the tensor cores, which an emulator replaces: `a` and `b` in tf32 or a half type, `c` is
#: added to. Machines that have none of this kind exchange numbers between lanes and multiply them as they are.
_WARP_INSTRUCTIONS = """
// ptx
#if __CUDA_ARCH__ >= 800
__device__ __forceinline__ unsigned tf32_(const float x) {
  unsigned found;
  asm("cvt.rna.tf32.f32 %0, %1;" : "=r"(found) : "f"(x));
  return found;
}
__device__ __forceinline__ void mma_(float* c, const unsigned* a, const unsigned* b) {
  asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_(float* c, const unsigned* a, const unsigned* b, bfloat16_) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
__device__ __forceinline__ void mma_(float* c, const unsigned* a, const unsigned* b, float16_) {
  asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0,%1,%2,%3}, {%4,%5,%6,%7}, {%8,%9}, {%0,%1,%2,%3};"
      : "+f"(c[0]), "+f"(c[1]), "+f"(c[2]), "+f"(c[3])
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b[0]), "r"(b[1]));
}
#else
__device__ __forceinline__ unsigned tf32_(const float x) { return __float_as_uint(x); }
__device__ __forceinline__ void mma_(float* c, const unsigned* a, const unsigned* b) {
  const int lane = threadIdx.x % 32;
  for (int k = 0; k < 8; ++k)
    for (int e = 0; e < 4; ++e) {
      const unsigned low = __shfl_sync(~0u, a[k / 4 * 2], lane / 4 * 4 + k % 4);
      const unsigned high = __shfl_sync(~0u, a[k / 4 * 2 + 1], lane / 4 * 4 + k % 4);
      const unsigned other = __shfl_sync(~0u, b[k / 4], (lane % 4 * 2 + e % 2) * 4 + k % 4);
      c[e] = fmaf(__uint_as_float(e / 2 ? high : low), __uint_as_float(other), c[e]);
    }
}
template <class E> __device__ __forceinline__ float half_of_(const unsigned two, const int k) {
  E x;
  x.bits = two >> k % 2 * 16;
  return x;
}
template <class E> __device__ __forceinline__ void mma_(float* c, const unsigned* a, const unsigned* b, E) {
  const int lane = threadIdx.x % 32;
  for (int k = 0; k < 16; ++k)
    for (int e = 0; e < 4; ++e) {
      const unsigned low = __shfl_sync(~0u, a[k / 8 * 2], lane / 4 * 4 + k % 8 / 2);
      const unsigned high = __shfl_sync(~0u, a[k / 8 * 2 + 1], lane / 4 * 4 + k % 8 / 2);
      const unsigned other = __shfl_sync(~0u, b[k / 8], (lane % 4 * 2 + e % 2) * 4 + k % 8 / 2);
      c[e] = fmaf(half_of_<E>(e / 2 ? high : low, k), half_of_<E>(other, k), c[e]);
    }
}
#endif
// end of ptx
""".lstrip()

#: The columns of a product that one instruction of a group of four warps makes.
GROUP_COLUMNS = (32, 64)


@functools.cache
def tiles_text() -> str:
    """What the text of a tile needs, after the preamble of all modules."""
    files = importlib.resources.files(__package__)
    own = [files.joinpath(name).read_text() for name in ("tile.cuh", "group_tile.cuh", "attention.cuh")]
    return "\n".join([_WARP_INSTRUCTIONS, _group_instructions(), *own])


def _group_instructions() -> str:
    """Four warps multiply 64 rows and 8 numbers along K, in registers, with 8 by N in shared memory, which lies as
    `right_place_` has it. That goes on while the threads do: `begin_group_` comes after registers are written,
    `send_group_` after the last instruction, and `end_group_` waits for the sums. Without `ADDS` these begin. Other
    machines do the same warp by warp.
    """
    instructions = "\n".join(_multiply_text(n, adds) for n in GROUP_COLUMNS for adds in (False, True))
    ends = "\n".join(_end_text(n) for n in GROUP_COLUMNS)
    return f"""
__device__ __forceinline__ constexpr int right_place_(const int n, const int k) {{ return n * 32 + (k ^ n % 8 * 4); }}
template <bool> struct Adds {{}};
#ifdef __CUDA_ARCH_FEAT_SM90_ALL
__device__ __forceinline__ void publish_() {{ asm volatile("fence.proxy.async;" ::: "memory"); }}
__device__ __forceinline__ void begin_group_() {{ asm volatile("wgmma.fence.sync.aligned;" ::: "memory"); }}
__device__ __forceinline__ void send_group_() {{ asm volatile("wgmma.commit_group.sync.aligned;" ::: "memory"); }}
__device__ __forceinline__ unsigned long long right_at_(const float* panel, const int k) {{
  // rows of 128 bytes, whose sixteenths change places within eight rows, which are 1024 bytes apart
  const unsigned place = (unsigned)__cvta_generic_to_shared(panel) + 4 * k;
  return (1ull << 62) | (64ull << 32) | (1ull << 16) | ((place & 0x3ffff) >> 4);
}}
{instructions}
{ends}
#else
__device__ __forceinline__ void publish_() {{}}
__device__ __forceinline__ void begin_group_() {{}}
__device__ __forceinline__ void send_group_() {{}}
template <int COUNT> __device__ __forceinline__ void end_group_(float (&)[COUNT][4]) {{}}
template <int COUNT, bool ADDS> __device__ __forceinline__ void multiply_group_(
    float (&sum)[COUNT][4], const unsigned (&a)[4], const float* panel, const int k, Adds<ADDS>) {{
  const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  #pragma unroll
  for (int j = 0; j < COUNT; ++j) {{
    const float first = panel[right_place_(8 * j + g, k + q)], second = panel[right_place_(8 * j + g, k + q + 4)];
    const unsigned b[2] = {{__float_as_uint(first), __float_as_uint(second)}};
    #pragma unroll
    for (int e = 0; e < 4 && !ADDS; ++e) sum[j][e] = 0;
    mma_(sum[j], a, b);
  }}
}}
#endif
"""


def _sums(columns: int, constraint: str) -> str:
    return ", ".join(f'"{constraint}"(sum[{i // 4}][{i % 4}])' for i in range(columns // 2))


def _multiply_text(columns: int, adds: bool) -> str:
    count = columns // 2
    sums, left = (", ".join(f"%{i}" for i in some) for some in (range(count), range(count, count + 4)))
    kind = f"wgmma.mma_async.sync.aligned.m64n{columns}k8.f32.tf32.tf32"
    flag = "true" if adds else "false"
    return f"""__device__ __forceinline__ void multiply_group_(
    float (&sum)[{columns // 8}][4], const unsigned (&a)[4], const float* panel, const int k, Adds<{flag}>) {{
  asm volatile("{{ .reg .pred p; setp.ne.b32 p, %{count + 5}, 0; "
      "{kind} {{{sums}}}, {{{left}}}, %{count + 4}, p, 1, 1; }}"
      : {_sums(columns, "+f" if adds else "=f")}
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "l"(right_at_(panel, k)), "r"({int(adds)}));
}}"""


def _end_text(columns: int) -> str:
    # what reads the sums must come after
    return f"""__device__ __forceinline__ void end_group_(float (&sum)[{columns // 8}][4]) {{
  asm volatile("wgmma.wait_group.sync.aligned 0;" : {_sums(columns, "+f")} :: "memory");
}}"""
