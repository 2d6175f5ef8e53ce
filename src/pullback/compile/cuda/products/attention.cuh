// Attention whose scores stay on the chip. A block has ROWS rows of queries (or keys) and goes through the keys (queries)
// in pieces of 32. Rows lie in shared memory as they are; a piece in two parts if DIGITS is 3, along the width where
// scores are made (`Along`), and turned where they are summed up (`Turned`). Scores of a piece are in registers, as
// products leave them, and so are the left argument of the next one: which number along K is whose is free.
template <int T_, int S_, int W_, bool CAUSAL_, int DIGITS_> struct AttendShape {
  static constexpr int T = T_, S = S_, W = W_, DIGITS = DIGITS_, ROWS = 64, THREADS = 128, PIECE = 32;
  static constexpr int PARTS = DIGITS == 3 ? 2 : 1, SIZE = PIECE * W, EACH = SIZE / 4 / THREADS;
  static constexpr bool CAUSAL = CAUSAL_;
  using Rows = Panel<ROWS, 32, THREADS, true, 4>;
};

// The place of a piece's row among the eight that one instruction takes along K.
__device__ __forceinline__ constexpr int turned_(const int c) { return c / 8 * 8 + c % 2 * 4 + c % 8 / 2; }

// A piece of 32 rows of an array: each thread has EACH times four neighbours.
template <class A> struct AttendPiece {
  Vec<float, 4> own[A::EACH];
  static __device__ __forceinline__ int row(const int e) { return e % 8 + e / (2 * A::W) * 8; }
  static __device__ __forceinline__ int depth(const int e) { return e / 8 % (A::W / 4) * 4; }

  template <int COUNT> __device__ __forceinline__ void load(const float* base, const int stride, const int first) {
    #pragma unroll
    for (int i = 0; i < A::EACH; ++i) {
      const int e = threadIdx.x + i * A::THREADS, n = first + row(e);
      own[i] = {};
      if (COUNT % A::PIECE == 0 || n < COUNT)
        own[i] = *reinterpret_cast<const Vec<float, 4>*>(base + (long long)n * stride + depth(e));
    }
  }

  template <bool ALONG, bool TURNED> __device__ __forceinline__ void store(float* along, float* turned) const {
    #pragma unroll
    for (int i = 0; i < A::EACH; ++i) {
      const int e = threadIdx.x + i * A::THREADS, n = row(e), d = depth(e);
      Vec<float, 4> high, low;
      #pragma unroll
      for (int w = 0; w < 4; ++w) {
        unsigned h, l = 0;
        split_tf32_<A::DIGITS>(own[i].v[w], h, l);
        high.v[w] = __uint_as_float(h), low.v[w] = __uint_as_float(l);
      }
      if constexpr (ALONG) {
        const int place = d / 32 * 32 * A::PIECE + right_place_(n, d % 32);
        *reinterpret_cast<Vec<float, 4>*>(along + place) = high;
        if (A::DIGITS == 3) *reinterpret_cast<Vec<float, 4>*>(along + A::SIZE + place) = low;
      }
      if constexpr (TURNED) {
        #pragma unroll
        for (int w = 0; w < 4; ++w) {
          const int place = right_place_(d + w, turned_(n));
          turned[place] = high.v[w];
          if (A::DIGITS == 3) turned[A::SIZE + place] = low.v[w];
        }
      }
    }
  }
};

// Rows of an array to shared memory, zeros beyond the last.
template <class A, int COUNT>
__device__ __forceinline__ void load_rows_(float* panel, const float* base, const int stride, const int first) {
  #pragma unroll 4
  for (int e = threadIdx.x; e < A::ROWS * A::W / 4; e += A::THREADS) {
    const int n = e / (A::W / 4), d = e % (A::W / 4) * 4;
    Vec<float, 4> x = {};
    if (COUNT % A::ROWS == 0 || first + n < COUNT)
      x = *reinterpret_cast<const Vec<float, 4>*>(base + (long long)(first + n) * stride + d);
    *reinterpret_cast<Vec<float, 4>*>(panel + d / 32 * 32 * A::ROWS + A::Rows::place(n, d % 32)) = x;
  }
}

// The rows of a warp group as instructions take them. All are in registers before the first instruction, which would
// wait for those that are under way.
template <class A> struct RowFragments {
  unsigned high[A::W / 8][4], low[A::W / 8][4];
  __device__ __forceinline__ void load(const float* panel) {
    const int own = threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    #pragma unroll
    for (int k = 0; k < A::W; k += 8)
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const float x = panel[k / 32 * 32 * A::ROWS + A::Rows::place(own + e % 2 * 8, k % 32 + q + e / 2 * 4)];
        split_tf32_<A::DIGITS>(x, high[k / 8][e], low[k / 8][e]);
      }
  }
};

// Begins products of rows with a piece: scores. Small parts come first, since tensor cores cut off what does not fit
// when they add.
template <class A>
__device__ __forceinline__ void multiply_rows_(float (&sum)[4][4], const RowFragments<A>& rows, const float* right) {
  begin_group_();
  // in braces: NVRTC takes a pragma there for the statement, and the loops are lost
  if constexpr (A::DIGITS == 3) {
    #pragma unroll
    for (int k = 0; k < A::W; k += 8) {
      const float* const high = right + k / 32 * 32 * A::PIECE;
      if (k) multiply_group_(sum, rows.low[k / 8], high, k % 32, Adds<true>());
      else multiply_group_(sum, rows.low[k / 8], high, k % 32, Adds<false>());
      multiply_group_(sum, rows.high[k / 8], high + A::SIZE, k % 32, Adds<true>());
    }
  }
  #pragma unroll
  for (int k = 0; k < A::W; k += 8) {
    const float* const high = right + k / 32 * 32 * A::PIECE;
    if (k || A::DIGITS == 3) multiply_group_(sum, rows.high[k / 8], high, k % 32, Adds<true>());
    else multiply_group_(sum, rows.high[k / 8], high, k % 32, Adds<false>());
  }
  send_group_();
}

// Two products of rows in shared memory with pieces.
template <class A>
__device__ __forceinline__ void multiply_panels_(
    float (&s)[4][4], const float* s_rows, const float* s_piece, float (&t)[4][4], const float* t_rows,
    const float* t_piece) {
  RowFragments<A> rows;
  rows.load(s_rows);
  multiply_rows_<A>(s, rows, s_piece);
  // registers for both at once there are none
  end_group_(s);
  rows.load(t_rows);
  multiply_rows_<A>(t, rows, t_piece);
  end_group_(t);
}

// Adds scores times a turned piece to sums.
template <class A>
__device__ __forceinline__ void multiply_scores_(float (&sum)[A::W / 8][4], const float (&s)[4][4], const float* right) {
  unsigned ah[4][4], al[4][4];
  float part[A::W / 8][4];
  #pragma unroll
  for (int j = 0; j < 4; ++j)
    #pragma unroll
    for (int e = 0; e < 4; ++e) split_tf32_<A::DIGITS>(s[j][e % 2 * 2 + e / 2], ah[j][e], al[j][e]);
  begin_group_();
  if constexpr (A::DIGITS == 3) {
    #pragma unroll
    for (int j = 0; j < 4; ++j) {
      if (j) multiply_group_(part, al[j], right, 8 * j, Adds<true>());
      else multiply_group_(part, al[j], right, 8 * j, Adds<false>());
      multiply_group_(part, ah[j], right + A::SIZE, 8 * j, Adds<true>());
    }
  }
  #pragma unroll
  for (int j = 0; j < 4; ++j) {
    if (j || A::DIGITS == 3) multiply_group_(part, ah[j], right, 8 * j, Adds<true>());
    else multiply_group_(part, ah[j], right, 8 * j, Adds<false>());
  }
  send_group_();
  end_group_(part);
  #pragma unroll
  for (int j = 0; j < A::W / 8; ++j)
    #pragma unroll
    for (int e = 0; e < 4; ++e) sum[j][e] += part[j][e];
}

// Rows of results, whose sums are in registers.
template <class A, int COUNT>
__device__ __forceinline__ void store_rows_(
    float* base, const int first, const float (&sum)[A::W / 8][4], const float factor) {
  const int own = first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int n = own + 8 * h;
    if (COUNT % A::ROWS && n >= COUNT) continue;
    #pragma unroll
    for (int j = 0; j < A::W / 8; ++j) {
      const Vec<float, 2> two = {sum[j][2 * h] * factor, sum[j][2 * h + 1] * factor};
      *reinterpret_cast<Vec<float, 2>*>(base + (long long)n * A::W + 8 * j + 2 * q) = two;
    }
  }
}

__device__ __forceinline__ float fold_four_(float x, const bool adds) {
  #pragma unroll
  for (int by = 1; by < 4; by *= 2) {
    const float other = __shfl_xor_sync(~0u, x, by);
    x = adds ? x + other : fmaxf(x, other);
  }
  return x;
}

// An element of the output as plain sums: where splitting made an infinity or NaN of it, this decides what it is.
template <class A>
__device__ __noinline__ float attend_plainly_(
    const float* q, const float* k, const int k_stride, const float* v, const int v_stride, const int reach,
    const float scale) {
  float highest = -1.0f / 0.0f, total = 0, sum = 0;
  #pragma unroll 1
  for (int pass = 0; pass < 2; ++pass)
    #pragma unroll 1
    for (int n = 0; n < reach; ++n) {
      float score = 0;
      #pragma unroll 1
      for (int d = 0; d < A::W; ++d) score = fmaf(q[d], k[(long long)n * k_stride + d], score);
      score *= scale;
      if (pass == 0) {
        highest = fmaxf(highest, score);
      } else {
        const float weight = expf(score - highest);
        total += weight, sum = fmaf(weight, v[(long long)n * v_stride], sum);
      }
    }
  return sum / total;
}

// The outputs, and of each row the logarithm of the sum of its exponentials. The largest score so far is subtracted.
template <class A>
__device__ __forceinline__ void attend_(
    float* shared, const int first, const float scale, const float* q, const int q_stride, const float* k,
    const int k_stride, const float* v, const int v_stride, float* out, float* logs) {
  constexpr int PART = A::PARTS * A::SIZE;
  float *const keys = shared, *const values = keys + PART, *const queries = values + PART;
  const int own = first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
  const int reach = A::CAUSAL && first + A::ROWS < A::S ? first + A::ROWS : A::S;
  load_rows_<A, A::T>(queries, q, q_stride, first);
  AttendPiece<A> next_k, next_v;
  next_k.template load<A::S>(k, k_stride, 0);
  next_v.template load<A::S>(v, v_stride, 0);
  RowFragments<A> rows;
  __syncthreads();
  rows.load(queries);
  float sum[A::W / 8][4] = {}, highest[2] = {-1.0f / 0.0f, -1.0f / 0.0f}, total[2] = {};
  #pragma unroll 1
  for (int at = 0; at < reach; at += A::PIECE) {
    next_k.template store<true, false>(keys, nullptr);
    next_v.template store<false, true>(nullptr, values);
    publish_();
    __syncthreads();
    if (at + A::PIECE < reach) {
      next_k.template load<A::S>(k, k_stride, at + A::PIECE);
      next_v.template load<A::S>(v, v_stride, at + A::PIECE);
    }
    float s[4][4];
    multiply_rows_<A>(s, rows, keys);
    end_group_(s);
    #pragma unroll
    for (int h = 0; h < 2; ++h) {
      float found = -1.0f / 0.0f;
      #pragma unroll
      for (int e = 0; e < 8; ++e) {
        const int column = at + e / 2 * 8 + 2 * lane + e % 2;
        float& x = s[e / 2][2 * h + e % 2];
        x *= scale;
        if ((A::S % A::PIECE && column >= A::S) || (A::CAUSAL && column > own + 8 * h)) x = -1.0f / 0.0f;
        found = fmaxf(found, x);
      }
      const float now = fmaxf(highest[h], fold_four_(found, false)), base = now == -1.0f / 0.0f ? 0.0f : now;
      const float factor = expf(highest[h] - base);
      highest[h] = now;
      total[h] *= factor;
      #pragma unroll
      for (int e = 0; e < 8; ++e) {
        float& x = s[e / 2][2 * h + e % 2];
        x = expf(x - base);
        total[h] += x;
      }
      #pragma unroll
      for (int j = 0; j < A::W / 8; ++j) sum[j][2 * h] *= factor, sum[j][2 * h + 1] *= factor;
    }
    multiply_scores_<A>(sum, s, values);
    __syncthreads();
  }
  float factor[2];
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    total[h] = fold_four_(total[h], true);
    factor[h] = 1.0f / total[h];
    if (lane == 0 && (A::T % A::ROWS == 0 || own + 8 * h < A::T)) logs[own + 8 * h] = highest[h] + logf(total[h]);
  }
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const int n = own + 8 * h;
    if (A::T % A::ROWS && n >= A::T) continue;
    #pragma unroll
    for (int e = 0; e < A::W / 4; ++e) {
      float& x = sum[e / 2][2 * h + e % 2];
      const int d = e / 2 * 8 + 2 * lane + e % 2, end = A::CAUSAL && n + 1 < A::S ? n + 1 : A::S;
      x *= factor[h];
      if (!(fabsf(x) <= 3.402823466e38f))
        x = attend_plainly_<A>(q + (long long)n * q_stride, k, k_stride, v + d, v_stride, end, scale);
    }
  }
  store_rows_<A, A::T>(out, first, sum, 1.0f);
}

// A score's weight, from the logarithm of its row's sum, or zero where it is masked.
template <class A>
__device__ __forceinline__ float weigh_(const float score, const float log, const int query, const int key) {
  const bool inside = (A::S % A::PIECE == 0 || key < A::S) && (A::T % A::PIECE == 0 || query < A::T);
  return inside && (!A::CAUSAL || key <= query) ? expf(score - log) : 0.0f;
}

// The cotangents of queries: sums over keys. `deltas` are sums of outputs times their cotangents, a row each.
template <class A>
__device__ __forceinline__ void attend_back_queries_(
    float* shared, const int first, const float scale, const float* q, const int q_stride, const float* k,
    const int k_stride, const float* v, const int v_stride, const float* bar, const int bar_stride, const float* logs,
    const float* deltas, float* out) {
  constexpr int PART = A::PARTS * A::SIZE;
  float *const keys = shared, *const turned = keys + PART, *const values = turned + PART;
  float *const queries = values + PART, *const bars = queries + A::ROWS * A::W;
  const int own = first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
  const int reach = A::CAUSAL && first + A::ROWS < A::S ? first + A::ROWS : A::S;
  load_rows_<A, A::T>(queries, q, q_stride, first);
  load_rows_<A, A::T>(bars, bar, bar_stride, first);
  float log[2], delta[2];
  #pragma unroll
  for (int h = 0; h < 2; ++h) {
    const bool inside = A::T % A::ROWS == 0 || own + 8 * h < A::T;
    log[h] = inside ? logs[own + 8 * h] : 0.0f, delta[h] = inside ? deltas[own + 8 * h] : 0.0f;
  }
  AttendPiece<A> next_k, next_v;
  next_k.template load<A::S>(k, k_stride, 0);
  next_v.template load<A::S>(v, v_stride, 0);
  float sum[A::W / 8][4] = {};
  #pragma unroll 1
  for (int at = 0; at < reach; at += A::PIECE) {
    next_k.template store<true, true>(keys, turned);
    next_v.template store<true, false>(values, nullptr);
    publish_();
    __syncthreads();
    if (at + A::PIECE < reach) {
      next_k.template load<A::S>(k, k_stride, at + A::PIECE);
      next_v.template load<A::S>(v, v_stride, at + A::PIECE);
    }
    float s[4][4], t[4][4];
    multiply_panels_<A>(s, queries, keys, t, bars, values);
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int query = own + e / 2 * 8, key = at + 8 * j + 2 * lane + e % 2;
        s[j][e] = weigh_<A>(s[j][e] * scale, log[e / 2], query, key) * (t[j][e] - delta[e / 2]);
      }
    multiply_scores_<A>(sum, s, turned);
    __syncthreads();
  }
  store_rows_<A, A::T>(out, first, sum, scale);
}

// The cotangents of keys and values: sums over queries, of which causal ones begin at the rows themselves.
template <class A>
__device__ __forceinline__ void attend_back_keys_(
    float* shared, const int first, const float scale, const float* q, const int q_stride, const float* k,
    const int k_stride, const float* v, const int v_stride, const float* bar, const int bar_stride, const float* logs,
    const float* deltas, float* k_out, float* v_out) {
  constexpr int PART = A::PARTS * A::SIZE;
  float *const queries = shared, *const turned_queries = queries + PART, *const bars = turned_queries + PART;
  float *const turned_bars = bars + PART, *const keys = turned_bars + PART, *const values = keys + A::ROWS * A::W;
  const int own = first + threadIdx.x / 32 * 16 + threadIdx.x % 32 / 4, lane = threadIdx.x % 4;
  const int begin = A::CAUSAL ? first : 0;
  load_rows_<A, A::S>(keys, k, k_stride, first);
  load_rows_<A, A::S>(values, v, v_stride, first);
  AttendPiece<A> next_q, next_bar;
  if (begin < A::T) {
    next_q.template load<A::T>(q, q_stride, begin);
    next_bar.template load<A::T>(bar, bar_stride, begin);
  }
  float k_sum[A::W / 8][4] = {}, v_sum[A::W / 8][4] = {};
  #pragma unroll 1
  for (int at = begin; at < A::T; at += A::PIECE) {
    next_q.template store<true, true>(queries, turned_queries);
    next_bar.template store<true, true>(bars, turned_bars);
    publish_();
    __syncthreads();
    if (at + A::PIECE < A::T) {
      next_q.template load<A::T>(q, q_stride, at + A::PIECE);
      next_bar.template load<A::T>(bar, bar_stride, at + A::PIECE);
    }
    float s[4][4], t[4][4];
    multiply_panels_<A>(s, keys, queries, t, values, bars);
    #pragma unroll
    for (int j = 0; j < 4; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int key = own + e / 2 * 8, query = at + 8 * j + 2 * lane + e % 2;
        const bool inside = A::T % A::PIECE == 0 || query < A::T;
        s[j][e] = weigh_<A>(s[j][e] * scale, inside ? logs[query] : 0.0f, query, key);
        t[j][e] = s[j][e] * (t[j][e] - (inside ? deltas[query] : 0.0f));
      }
    multiply_scores_<A>(v_sum, s, turned_bars);
    multiply_scores_<A>(k_sum, t, turned_queries);
    __syncthreads();
  }
  store_rows_<A, A::S>(k_out, first, k_sum, scale);
  store_rows_<A, A::S>(v_out, first, v_sum, 1.0f);
}

// Of each row, the sum of an output times its cotangent: W / 4 lanes have a row.
template <int W, int COUNT>
__device__ __forceinline__ void sum_rows_(const float* x, const float* y, const int y_stride, float* sums) {
  const int n = (blockIdx.x * blockDim.x + threadIdx.x) / (W / 4) % COUNT, d = threadIdx.x % (W / 4) * 4;
  const Vec<float, 4> a = *reinterpret_cast<const Vec<float, 4>*>(x + (long long)n * W + d);
  const Vec<float, 4> b = *reinterpret_cast<const Vec<float, 4>*>(y + (long long)n * y_stride + d);
  float sum = a.v[0] * b.v[0] + a.v[1] * b.v[1] + (a.v[2] * b.v[2] + a.v[3] * b.v[3]);
  #pragma unroll
  for (int by = 1; by < W / 4; by *= 2) sum += __shfl_xor_sync(~0u, sum, by);
  if (d == 0) sums[n] = sum;
}
