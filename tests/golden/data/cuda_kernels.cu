// elementwise: a vector for each thread

__global__ void __launch_bounds__(64) kernel0(const float* __restrict__ b0, const float* __restrict__ b1, float* __restrict__ b2) {
  using I = int;
  const I i = ((I)blockIdx.x * 64 + threadIdx.x) * 4;
  if (i >= 512) return;
  const I c0 = i % 8, c0q = i / 8;
  const Vec<float, 4> a1 = *reinterpret_cast<const Vec<float, 4>*>(&b0[c0]);
  const Vec<float, 4> a2 = *reinterpret_cast<const Vec<float, 4>*>(&b1[c0 + c0q * 8]);
  Vec<float, 4> s8;
  #pragma unroll
  for (int u = 0; u < 4; ++u) {
    const float v3 = a1.v[u];
    const float v4 = a2.v[u];
    const float v5 = v4 * 2.0f;
    const float v6 = tanh_(v5);
    const float v7 = v6 + v3;
    s8.v[u] = v7;
  }
  *reinterpret_cast<Vec<float, 4>*>(&b2[c0 + c0q * 8]) = s8;
}



// softmax of rows: a part of a warp each

__global__ void __launch_bounds__(32) kernel0(const float* __restrict__ b0, float* __restrict__ b1) {
  using I = int;
  const I row = (I)blockIdx.x * 2 + (I)threadIdx.y;
  Vec<float, 4> k0[1];
  float f0 = __int_as_float(0xff800000);
  {
    const I j = (I)threadIdx.x * 4;
    if (j < 40) {
      k0[0] = *reinterpret_cast<const Vec<float, 4>*>(&b0[row * 40 + j]);
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        const float v1 = k0[0].v[u];
        f0 = maximum_::of(f0, v1);
      }
    }
  }
  f0 = fold_warp_<maximum_, 16>(f0);
  float f2 = 0.0f;
  {
    const I j = (I)threadIdx.x * 4;
    if (j < 40) {
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        const float v3 = k0[0].v[u];
        const float v4 = v3 - f0;
        const float v5 = expf(v4);
        k0[0].v[u] = v5;
        f2 = add_::of(f2, v5);
      }
    }
  }
  f2 = fold_warp_<add_, 16>(f2);
  {
    const I j = (I)threadIdx.x * 4;
    if (j < 40) {
      Vec<float, 4> s7;
      #pragma unroll
      for (int u = 0; u < 4; ++u) {
        const float v6 = k0[0].v[u] / f2;
        s7.v[u] = v6;
      }
      *reinterpret_cast<Vec<float, 4>*>(&b1[row * 40 + j]) = s7;
    }
  }
}



// sums over the first axis

__global__ void __launch_bounds__(256) kernel0(const float* __restrict__ b0, float* __restrict__ b1) {
  using I = int;
  const I k = (I)(blockIdx.x * 32 + threadIdx.x) * 1;
  float f0 = 0.0f;
  if (k < 96) {
    const I end = min((I)40, (I)(blockIdx.y + 1) * 40);
    #pragma unroll 4
    for (I j = (I)blockIdx.y * 40 + threadIdx.y; j < end; j += 8) {
      const float v1 = b0[k + j * 96];
      const float v2 = v1 * v1;
      f0 = add_::of(f0, v2);
    }
  }
  __shared__ float f0s[1][8][32];
  for (int u = 0; u < 1; ++u) f0s[u][threadIdx.y][threadIdx.x] = f0;
  __syncthreads();
  if (threadIdx.y == 0) for (int u = 0; u < 1; ++u)
    for (int y = 1; y < 8; ++y) f0 = add_::of(f0, f0s[u][y][threadIdx.x]);
  if (threadIdx.y == 0 && k < 96) {
    b1[k] = f0;
  }
}



// a transposition, through tiles

__global__ void __launch_bounds__(256) kernel0(const float* __restrict__ b0, float* __restrict__ b1) {
  using I = int;
  const I x = (I)(blockIdx.x % 5) * 32, y = (I)(blockIdx.x / 5 % 6) * 32;
  __shared__ float tile0[32][33];
  #pragma unroll
  for (int r = 0; r < 32; r += 8) {
    const I x1 = x + threadIdx.y + r, y1 = y + threadIdx.x;
    tile0[threadIdx.y + r][threadIdx.x] = b0[x1 * 192 + y1];
  }
  __syncthreads();
  #pragma unroll
  for (int r = 0; r < 32; r += 8) {
    const I x1 = x + threadIdx.x, y1 = y + threadIdx.y + r;
    const float v0 = tile0[threadIdx.x][threadIdx.y + r];
    const float v1 = v0 + 1.0f;
    b1[x1 + y1 * 160] = v1;
  }
}


