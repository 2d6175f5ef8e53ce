// Matrix products by groups of four warps, each with 64 rows of a tile: the left argument passes through shared memory to
// registers, the right one through registers to shared memory, where it lies along K and in two parts if DIGITS is 3.
// Pieces of CHUNK along K are copied STAGES ahead. Sums of a piece are added up here, rounded to the nearest.
template <
    int COLUMNS_, int GROUPS_, int DIGITS_, bool LEFT_BY_K_, bool RIGHT_BY_K_, int LEFT_WIDTH_, int RIGHT_WIDTH_>
struct GroupShape {
  static constexpr int COLUMNS = COLUMNS_, GROUPS = GROUPS_, DIGITS = DIGITS_, CHUNK = 32, STAGES = 3;
  static constexpr int ROWS = 64 * GROUPS, THREADS = 128 * GROUPS, PARTS = DIGITS == 3 ? 2 : 1;
  static constexpr bool LEFT_BY_K = LEFT_BY_K_, RIGHT_BY_K = RIGHT_BY_K_;
  static constexpr int LEFT_WIDTH = LEFT_WIDTH_, RIGHT_WIDTH = RIGHT_WIDTH_;
};

// The base of a group's memory: the machine counts its rows from there.
struct __align__(1024) GroupMemory { float v[256]; };

// A piece of the right argument: COUNT columns by CHUNK along K, of which each thread has EACH times WIDTH neighbours.
template <int COUNT, int CHUNK, int THREADS, bool BY_K, int WIDTH> struct RightPiece {
  static constexpr int SIZE = COUNT * CHUNK, COPIES = SIZE / WIDTH, EACH = (COPIES + THREADS - 1) / THREADS;
  // neighbours that are not along K go to banks of their own if lanes take eight numbers along K
  static __device__ __forceinline__ int index(const int e) {
    return BY_K ? e / (CHUNK / WIDTH) : e / 8 % (COUNT / WIDTH) * WIDTH;
  }
  static __device__ __forceinline__ int depth(const int e) {
    return BY_K ? e % (CHUNK / WIDTH) * WIDTH : e % 8 + e / (8 * (COUNT / WIDTH)) * 8;
  }
  Vec<float, WIDTH> own[EACH];

  template <int K, class I, class From>
  __device__ __forceinline__ void load(const int k0, const I (&at)[EACH], const From& from) {
    #pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int e = threadIdx.x + i * THREADS;
      own[i] = {};
      if (COPIES % THREADS && e >= COPIES) continue;
      if (at[i] >= 0 && (K % CHUNK == 0 || k0 + depth(e) < K))
        own[i] = *reinterpret_cast<const Vec<float, WIDTH>*>(from.base + at[i] + from.along(k0, depth(e)));
    }
  }

  template <int DIGITS> __device__ __forceinline__ void store(float* const high, float* const low) const {
    #pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int e = threadIdx.x + i * THREADS;
      if (COPIES % THREADS && e >= COPIES) continue;
      Vec<float, WIDTH> first, second;
      #pragma unroll
      for (int w = 0; w < WIDTH; ++w) {
        unsigned h, l = 0;
        split_tf32_<DIGITS>(own[i].v[w], h, l);
        first.v[w] = __uint_as_float(h), second.v[w] = __uint_as_float(l);
      }
      if constexpr (BY_K) {
        const int place = right_place_(index(e), depth(e));
        *reinterpret_cast<Vec<float, WIDTH>*>(high + place) = first;
        if (DIGITS == 3) *reinterpret_cast<Vec<float, WIDTH>*>(low + place) = second;
      } else {
        #pragma unroll
        for (int w = 0; w < WIDTH; ++w) {
          const int place = right_place_(index(e) + w, depth(e));
          high[place] = first.v[w];
          if (DIGITS == 3) low[place] = second.v[w];
        }
      }
    }
  }
};

template <class S, class T, class Left, class Right, class FromLeft, class FromRight, class Order, class Store>
__device__ __forceinline__ void group_tile_(
    const unsigned block, float* shared, const Left& left, const Right& right, const FromLeft& from_left,
    const FromRight& from_right, const Order& order, const Store& store) {
  constexpr int ACROSS = (S::N + T::COLUMNS - 1) / T::COLUMNS, DOWN = (S::M + T::ROWS - 1) / T::ROWS;
  const int z = block / (ACROSS * DOWN), row = block / ACROSS % DOWN * T::ROWS, column = block % ACROSS * T::COLUMNS;
  const int own_row = threadIdx.x / 32 * 16, g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
  using A = Panel<T::ROWS, T::CHUNK, T::THREADS, T::LEFT_BY_K, T::LEFT_WIDTH>;
  using B = RightPiece<T::COLUMNS, T::CHUNK, T::THREADS, T::RIGHT_BY_K, T::RIGHT_WIDTH>;
  constexpr int CHUNKS = (S::K + T::CHUNK - 1) / T::CHUNK, COUNT = T::COLUMNS / 8;
  float* const panels = shared + 2 * T::PARTS * B::SIZE;
  // what of an address does not change along K
  decltype(from_left.at(0, 0)) left_at[A::EACH];
  decltype(from_right.at(0, 0)) right_at[B::EACH];
  #pragma unroll
  for (int i = 0; i < A::EACH; ++i) {
    const int m = row + A::index(threadIdx.x + i * T::THREADS);
    left_at[i] = S::M % T::ROWS == 0 || m < S::M ? from_left.at(z, m) : -1;
  }
  #pragma unroll
  for (int i = 0; i < B::EACH; ++i) {
    const int n = column + B::index(threadIdx.x + i * T::THREADS);
    right_at[i] = S::N % T::COLUMNS == 0 || n < S::N ? from_right.at(z, n) : -1;
  }
  const auto fetch = [&](const int c) {
    if (c < CHUNKS) A::template fetch<S::K>(panels + c % T::STAGES * A::SIZE, order(c), left_at, from_left);
    end_copies_();
  };
  B ahead;
  float sum[COUNT][4] = {};
  // of two places for the right piece, one is read while the other is filled
  const auto high_of = [&](const int c) { return shared + c % 2 * T::PARTS * B::SIZE; };
  const auto prepare = [&](const int c) {
    if (c < CHUNKS) ahead.template store<T::DIGITS>(high_of(c), high_of(c) + B::SIZE);
    if (c + 1 < CHUNKS) ahead.template load<S::K>(order(c + 1), right_at, from_right);
    await_copies_<T::STAGES - 2>();
    publish_();
  };
  #pragma unroll
  for (int c = 0; c + 1 < T::STAGES; ++c) fetch(c);
  if (CHUNKS) ahead.template load<S::K>(order(0), right_at, from_right);
  prepare(0);
  #pragma unroll 1
  for (int c = 0; c < CHUNKS; ++c) {
    // all have what all copied, and are done with what is copied over next
    __syncthreads();
    fetch(c + T::STAGES - 1);
    const float *const panel = panels + c % T::STAGES * A::SIZE, *const high = high_of(c);
    // all of a piece is in registers before the first instruction, which would wait for those that are under way
    unsigned ah[T::CHUNK / 8][4], al[T::CHUNK / 8][4];
    #pragma unroll
    for (int k = 0; k < T::CHUNK; k += 8)
      #pragma unroll
      for (int e = 0; e < 4; ++e)
        split_tf32_<T::DIGITS>(panel[A::place(own_row + g + e % 2 * 8, k + q + e / 2 * 4)], ah[k / 8][e], al[k / 8][e]);
    float part[COUNT][4];
    begin_group_();
    if constexpr (T::DIGITS == 3) {
      multiply_group_(part, al[0], high, 0, Adds<false>());
      multiply_group_(part, ah[0], high + B::SIZE, 0, Adds<true>());
      #pragma unroll
      for (int k = 8; k < T::CHUNK; k += 8) {
        multiply_group_(part, al[k / 8], high, k, Adds<true>());
        multiply_group_(part, ah[k / 8], high + B::SIZE, k, Adds<true>());
      }
      // the largest come last: what does not fit is cut off when tensor cores add
      #pragma unroll
      for (int k = 0; k < T::CHUNK; k += 8) multiply_group_(part, ah[k / 8], high, k, Adds<true>());
    } else {
      #pragma unroll
      for (int k = 0; k < T::CHUNK; k += 8) multiply_group_(sum, ah[k / 8], high, k, Adds<true>());
    }
    send_group_();
    prepare(c + 1);
    if constexpr (T::DIGITS == 3) {
      end_group_(part);
      #pragma unroll
      for (int j = 0; j < COUNT; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e) sum[j][e] += part[j][e];
    } else {
      end_group_(sum);
    }
  }
  #pragma unroll
  for (int j = 0; j < COUNT; ++j)
    #pragma unroll
    for (int e = 0; e < 4; ++e) {
      const int m = row + own_row + g + e / 2 * 8, n = column + 8 * j + 2 * q + e % 2;
      if ((S::M % T::ROWS && m >= S::M) || (S::N % T::COLUMNS && n >= S::N)) continue;
      const bool finite = fabsf(sum[j][e]) <= 3.402823466e38f;
      store(z, m, n, finite ? sum[j][e] : plain_sum_<float, S>(left, right, z, m, n));
    }
}
