// Matrix products by tiles. A block computes ROWS by COLUMNS elements of one matrix of the batch and hands each of them
// to `store(z, m, n, value)`. Elements of the arguments come from `left(z, m, k)` and `right(z, k, n)`, asked only within
// the sizes, so that any strides, guards and functions of the arguments are theirs to say. Sums have one fixed order.
// Threads of the block beyond those of the tile take no part.

template <int M_, int N_, int K_> struct Sizes { static constexpr int M = M_, N = N_, K = K_; };

template <bool, class A, class B> struct Pick { using type = A; };
template <class A, class B> struct Pick<false, A, B> { using type = B; };

template <class E> __device__ __forceinline__ unsigned pair_(const E low, const E high) {
  return low.bits | (unsigned)high.bits << 16;
}

// The element as a plain sum: where splitting made an infinity or NaN of it, this decides what it is.
template <class T, class S, class Left, class Right>
__device__ __noinline__ T plain_sum_(const Left left, const Right right, const int z, const int m, const int n) {
  T total = 0;
  #pragma unroll 1
  for (int k = 0; k < S::K; ++k) total = fma((T)left(z, m, k), (T)right(z, k, n), total);
  return total;
}

// A warp has MT x NT fragments of 16 x 8; the block WM x WN warps side by side, and WK that share K. Arguments pass
// straight to registers. BY_K: whether neighbours in memory are neighbours along K. DIGITS 3: each float32 is a sum of
// two tf32, of whose products the largest three are added, which has the accuracy of float32 arithmetic; DIGITS 1:
// rounded to tf32. Half types are multiplied as they are: one instruction takes 16 along K, not 8, two in each register.
// VECTORS: `load_left` and `load_right` return four neighbours in memory, and a warp has 2 x 4 fragments. Which numbers
// of a sum meet in one instruction, and which row or column is whose, is free, so a lane takes what it has loaded at once.
template <
    class Element_, int MT_, int NT_, int WM_, int WN_, int WK_, int DIGITS_, bool LEFT_BY_K_, bool RIGHT_BY_K_,
    bool VECTORS_>
struct TensorShape {
  using Element = Element_;
  static constexpr bool IS_HALF = sizeof(Element) == 2;
  static constexpr int DEPTH = IS_HALF ? 16 : 8;
  using Register = typename Pick<IS_HALF, unsigned, float>::type;
  static constexpr int MT = MT_, NT = NT_, WM = WM_, WN = WN_, WK = WK_, DIGITS = DIGITS_;
  static constexpr int ROWS = 16 * MT * WM, COLUMNS = 8 * NT * WN, THREADS = 32 * WM * WN * WK;
  static constexpr bool LEFT_BY_K = LEFT_BY_K_, RIGHT_BY_K = RIGHT_BY_K_, VECTORS = VECTORS_;
  // the row and the column of a warp's tile that an element of a fragment is: of half h of 16 rows, and of column c of 8
  static __device__ __forceinline__ int row(const int i, const int h, const int g) {
    return VECTORS && !LEFT_BY_K ? 32 * (i / 2) + 4 * g + 2 * (i % 2) + h : 16 * i + 8 * h + g;
  }
  static __device__ __forceinline__ int column(const int j, const int c) {
    return VECTORS && !RIGHT_BY_K ? 32 * (j / 4) + 4 * c + j % 4 : 8 * j + c;
  }
};

// The same for large products, whose arguments pass through shared memory: a piece of CHUNK along K is multiplied while
// the next is on its way. WIDTH numbers are copied at a time. An argument whose neighbours are not along K has its
// fragments in pairs (rows) or fours (columns), of which a lane takes four neighbours.
template <
    int MT_, int NT_, int WM_, int WN_, int DIGITS_, bool LEFT_BY_K_, bool RIGHT_BY_K_, int LEFT_WIDTH_, int RIGHT_WIDTH_>
struct PanelShape : TensorShape<float, MT_, NT_, WM_, WN_, 1, DIGITS_, LEFT_BY_K_, RIGHT_BY_K_, true> {
  static constexpr int LEFT_WIDTH = LEFT_WIDTH_, RIGHT_WIDTH = RIGHT_WIDTH_, CHUNK = 32;
  static constexpr bool BOTH_BY_K = LEFT_BY_K_ && RIGHT_BY_K_;
  static_assert((LEFT_BY_K_ || MT_ % 2 == 0) && (RIGHT_BY_K_ || NT_ % 4 == 0), "fragments in groups");
};

// Where the elements of an argument are: `at` the place of a row or column, and `along` what the number `d` of a piece
// of K adds to it.
template <class At, class Along> struct Operand { const float* base; At at; Along along; };
template <class At, class Along> Operand(const float*, At, Along) -> Operand<At, Along>;

// COUNT rows or columns by CHUNK along K in shared memory, neighbours as they are in memory, in fours that change places
// within a row, so that what the lanes of a warp read lies in different banks.
template <int COUNT, int CHUNK, int THREADS, bool BY_K, int WIDTH> struct Panel {
  static_assert(CHUNK == 32 && COUNT % 32 == 0, "a row has all banks");
  static constexpr int SIZE = COUNT * CHUNK, COPIES = SIZE / WIDTH, EACH = (COPIES + THREADS - 1) / THREADS;
  static __device__ __forceinline__ int place(const int i, const int k) {
    return BY_K ? i * CHUNK + (k ^ (i % 2 * 16 + i / 2 % 4 * 4)) : k * COUNT + (i ^ k % 4 * 8);
  }
  static __device__ __forceinline__ int index(const int e) { return BY_K ? e / (CHUNK / WIDTH) : e % (COUNT / WIDTH) * WIDTH; }
  static __device__ __forceinline__ int depth(const int e) { return BY_K ? e % (CHUNK / WIDTH) * WIDTH : e / (COUNT / WIDTH); }

  // copies of elements from number k0 of K on, whose rows or columns have the places `at`, none below zero
  template <int K, class I, class From>
  static __device__ __forceinline__ void fetch(float* panel, const int k0, const I (&at)[EACH], const From& from) {
    #pragma unroll
    for (int i = 0; i < EACH; ++i) {
      const int e = threadIdx.x + i * THREADS;
      if (COPIES % THREADS && e >= COPIES) continue;
      const bool inside = at[i] >= 0 && (K % CHUNK == 0 || k0 + depth(e) < K);
      const float* const source = from.base + (inside ? at[i] + from.along(k0, depth(e)) : 0);
      copy_async_<WIDTH>(panel + place(index(e), depth(e)), source, inside);
    }
  }
};

// Tensor cores cut off the bits of the lower part that do not fit, which are fewer than those of the product of both.
template <int DIGITS> __device__ __forceinline__ void split_tf32_(const float x, unsigned& high, unsigned& low) {
  high = tf32_(x);
  if (DIGITS == 3) low = __float_as_uint(x - __uint_as_float(high));
}

// STEPS instructions' worth along K.
template <class T, int STEPS>
__device__ __forceinline__ void multiply_floats_(
    float (&sum)[T::MT][T::NT][4], const float (&a)[STEPS][T::MT][4], const float (&b)[STEPS][T::NT][2]) {
  unsigned bh[STEPS][T::NT][2], bl[STEPS][T::NT][2];
  #pragma unroll
  for (int s = 0; s < STEPS; ++s)
    #pragma unroll
    for (int j = 0; j < T::NT; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e) split_tf32_<T::DIGITS>(b[s][j][e], bh[s][j][e], bl[s][j][e]);
  #pragma unroll
  for (int i = 0; i < T::MT; ++i) {
    // tensor cores cut off what does not fit when they add, so long sums are added here, rounded to the nearest
    float part[T::NT][4] = {};
    #pragma unroll
    for (int s = 0; s < STEPS; ++s) {
      unsigned ah[4], al[4];
      #pragma unroll
      for (int e = 0; e < 4; ++e) split_tf32_<T::DIGITS>(a[s][i][e], ah[e], al[e]);
      if (T::DIGITS == 1) {
        #pragma unroll
        for (int j = 0; j < T::NT; ++j) mma_(sum[i][j], ah, bh[s][j]);
        continue;
      }
      // one instruction waits for the result of another, so those of a fragment are apart
      #pragma unroll
      for (int j = 0; j < T::NT; ++j) mma_(part[j], al, bh[s][j]);
      #pragma unroll
      for (int j = 0; j < T::NT; ++j) mma_(part[j], ah, bl[s][j]);
      #pragma unroll
      for (int j = 0; j < T::NT; ++j) mma_(part[j], ah, bh[s][j]);
    }
    if (T::DIGITS == 1) continue;
    #pragma unroll
    for (int j = 0; j < T::NT; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e) sum[i][j][e] += part[j][e];
  }
}

template <class T, int STEPS>
__device__ __forceinline__ void multiply_fragments_(
    float (&sum)[T::MT][T::NT][4], const typename T::Register (&a)[STEPS][T::MT][4],
    const typename T::Register (&b)[STEPS][T::NT][2]) {
  if constexpr (T::IS_HALF) {
    #pragma unroll
    for (int s = 0; s < STEPS; ++s)
      #pragma unroll
      for (int i = 0; i < T::MT; ++i)
        #pragma unroll
        for (int j = 0; j < T::NT; ++j) mma_(sum[i][j], a[s][i], b[s][j], typename T::Element());
  } else {
    multiply_floats_<T, STEPS>(sum, a, b);
  }
}

// Fragments as mma.m16n8k8 wants them: lane 4g + q holds rows g, g + 8 and columns q, q + 4 of the left, and column g of
// the right; `left(i, k)` and `right(k, j)` count from the warp's first row and column. Of half types, a column is two.
template <class T> struct Fragments {
  typename T::Register a[1][T::MT][4], b[1][T::NT][2];
  template <class Left, class Right>
  __device__ __forceinline__ void load(const int k, const Left& left, const Right& right) {
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    #pragma unroll
    for (int i = 0; i < T::MT; ++i)
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = 16 * i + g + e % 2 * 8;
        if constexpr (T::IS_HALF) {
          const int first = k + 2 * q + e / 2 * 8;
          a[0][i][e] = pair_(left(m, first), left(m, first + 1));
        } else {
          a[0][i][e] = left(m, k + q + e / 2 * 4);
        }
      }
    #pragma unroll
    for (int j = 0; j < T::NT; ++j)
      #pragma unroll
      for (int e = 0; e < 2; ++e) {
        if constexpr (T::IS_HALF) {
          const int first = k + 2 * q + e * 8;
          b[0][j][e] = pair_(right(first, 8 * j + g), right(first + 1, 8 * j + g));
        } else {
          b[0][j][e] = right(k + q + e * 4, 8 * j + g);
        }
      }
  }
};

// The same for 16 numbers along K, of floats two instructions' worth, of which a lane has four neighbours: `left(i, k)`
// and `right(k, j)` return vectors along K or along rows and columns, as memory has it.
template <class T> struct WideFragments {
  static constexpr int COUNT = 16 / T::DEPTH;
  typename T::Register a[COUNT][T::MT][4], b[COUNT][T::NT][2];
  template <class Left, class Right>
  __device__ __forceinline__ void load(const int k, const Left& left, const Right& right) {
    const int g = threadIdx.x % 32 / 4, own = k + threadIdx.x % 4 * 4;
    Vec<typename T::Element, 4> x[4], y[4];
    #pragma unroll
    for (int i = 0; i < 4; ++i) {
      x[i] = T::LEFT_BY_K ? left(T::row(i / 2, i % 2, g), own) : left(4 * g, own + i);
      y[i] = T::RIGHT_BY_K ? right(own, T::column(i, g)) : right(own + i, 4 * g);
    }
    #pragma unroll
    for (int from = 0; from < 4; ++from)
      #pragma unroll
      for (int step = 0; step < 4; ++step) {
        // `from` is a row or a column, `step` the number along K that the lane has of it
        const auto of_left = [&](const int s) { return T::LEFT_BY_K ? x[from].v[s] : x[s].v[from]; };
        const auto of_right = [&](const int s) { return T::RIGHT_BY_K ? y[from].v[s] : y[s].v[from]; };
        if constexpr (!T::IS_HALF) {
          a[step / 2][from / 2][from % 2 + step % 2 * 2] = of_left(step);
          b[step / 2][from][step % 2] = of_right(step);
        } else if (step % 2 == 0) {
          a[0][from / 2][from % 2 + step] = pair_(of_left(step), of_left(step + 1));
          b[0][from][step / 2] = pair_(of_right(step), of_right(step + 1));
        }
      }
  }
};

// The same from panels, from number k0 of their K on: along K a lane has four neighbours if both arguments have them,
// else each fourth number.
template <class T, class A, class B> struct PanelFragments {
  float a[2][T::MT][4], b[2][T::NT][2];
  __device__ __forceinline__ void load(
      const float* left, const float* right, const int row, const int column, const int k0) {
    using Four = Vec<float, 4>;
    const int g = threadIdx.x % 32 / 4, q = threadIdx.x % 4;
    if constexpr (T::BOTH_BY_K) {
      #pragma unroll
      for (int n = 0; n < 2 * T::MT; ++n) {
        const Four x = *reinterpret_cast<const Four*>(left + A::place(row + 8 * n + g, k0 + 4 * q));
        #pragma unroll
        for (int e = 0; e < 4; ++e) a[e / 2][n / 2][n % 2 + e % 2 * 2] = x.v[e];
      }
      #pragma unroll
      for (int j = 0; j < T::NT; ++j) {
        const Four y = *reinterpret_cast<const Four*>(right + B::place(column + 8 * j + g, k0 + 4 * q));
        #pragma unroll
        for (int e = 0; e < 4; ++e) b[e / 2][j][e % 2] = y.v[e];
      }
      return;
    }
    #pragma unroll
    for (int c = 0; c < 4; ++c) {
      const int k = k0 + q + 4 * c;
      #pragma unroll
      for (int n = 0; n < 2 * T::MT; n += T::LEFT_BY_K ? 1 : 4)
        if constexpr (T::LEFT_BY_K) {
          a[c / 2][n / 2][n % 2 + c % 2 * 2] = left[A::place(row + 8 * n + g, k)];
        } else {
          const Four x = *reinterpret_cast<const Four*>(left + A::place(row + 8 * n + 4 * g, k));
          #pragma unroll
          for (int e = 0; e < 4; ++e) a[c / 2][(n + e) / 2][e % 2 + c % 2 * 2] = x.v[e];
        }
      #pragma unroll
      for (int j = 0; j < T::NT; j += T::RIGHT_BY_K ? 1 : 4)
        if constexpr (T::RIGHT_BY_K) {
          b[c / 2][j][c % 2] = right[B::place(column + 8 * j + g, k)];
        } else {
          const Four y = *reinterpret_cast<const Four*>(right + B::place(column + 8 * j + 4 * g, k));
          #pragma unroll
          for (int e = 0; e < 4; ++e) b[c / 2][j + e][c % 2] = y.v[e];
        }
    }
  }
};

// `order` has the number of K at which a piece begins: pieces in an order in which neighbours read the same memory.
template <class S, class T, class Left, class Right, class FromLeft, class FromRight, class Order, class Store>
__device__ __forceinline__ void panel_tile_(
    const unsigned block, float* shared, const Left& left, const Right& right, const FromLeft& from_left,
    const FromRight& from_right, const Order& order, const Store& store) {
  constexpr int ACROSS = (S::N + T::COLUMNS - 1) / T::COLUMNS, DOWN = (S::M + T::ROWS - 1) / T::ROWS;
  const int z = block / (ACROSS * DOWN), row = block / ACROSS % DOWN * T::ROWS, column = block % ACROSS * T::COLUMNS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int own_row = warp / T::WN * 16 * T::MT, own_column = warp % T::WN * 8 * T::NT;
  using A = Panel<T::ROWS, T::CHUNK, T::THREADS, T::LEFT_BY_K, T::LEFT_WIDTH>;
  using B = Panel<T::COLUMNS, T::CHUNK, T::THREADS, T::RIGHT_BY_K, T::RIGHT_WIDTH>;
  constexpr int CHUNKS = (S::K + T::CHUNK - 1) / T::CHUNK, STAGE = A::SIZE + B::SIZE;
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
    float* const panel = shared + c % 2 * STAGE;
    A::template fetch<S::K>(panel, order(c), left_at, from_left);
    B::template fetch<S::K>(panel + A::SIZE, order(c), right_at, from_right);
    end_copies_();
  };
  float sum[T::MT][T::NT][4] = {};
  if (CHUNKS) fetch(0);
  #pragma unroll 1
  for (int c = 0; c < CHUNKS; ++c) {
    await_copies_<0>();
    // all have what all copied, and are done with what is copied over next
    barrier_<T::THREADS>();
    if (c + 1 < CHUNKS) fetch(c + 1);
    const float* const panel = shared + c % 2 * STAGE;
    #pragma unroll
    for (int k = 0; k < T::CHUNK; k += 16) {
      PanelFragments<T, A, B> own;
      own.load(panel, panel + A::SIZE, own_row, own_column, k);
      multiply_floats_<T, 2>(sum, own.a, own.b);
    }
  }
  #pragma unroll
  for (int i = 0; i < T::MT; ++i)
    #pragma unroll
    for (int j = 0; j < T::NT; ++j)
      #pragma unroll
      for (int e = 0; e < 4; ++e) {
        const int m = row + own_row + T::row(i, e / 2, lane / 4), n = column + own_column + T::column(j, lane % 4 * 2 + e % 2);
        if ((S::M % T::ROWS && m >= S::M) || (S::N % T::COLUMNS && n >= S::N)) continue;
        const bool finite = fabsf(sum[i][j][e]) <= 3.402823466e38f;
        store(z, m, n, finite ? sum[i][j][e] : plain_sum_<float, S>(left, right, z, m, n));
      }
}

template <class S, class T, class Left, class Right, class LoadLeft, class LoadRight, class Store>
__device__ __forceinline__ void tensor_tile_(
    const unsigned block, float* shared, const Left& left, const Right& right, const LoadLeft& load_left,
    const LoadRight& load_right, const Store& store) {
  constexpr int ACROSS = (S::N + T::COLUMNS - 1) / T::COLUMNS, DOWN = (S::M + T::ROWS - 1) / T::ROWS;
  const int z = block / (ACROSS * DOWN), row = block / ACROSS % DOWN * T::ROWS, column = block % ACROSS * T::COLUMNS;
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, wk = warp / (T::WM * T::WN);
  const int own_row = warp / T::WN % T::WM * 16 * T::MT, own_column = warp % T::WN * 8 * T::NT;
  // how much of K a warp takes at once; guards that constants make superfluous are gone in the machine code
  constexpr int STEPS = ((S::K + T::DEPTH - 1) / T::DEPTH + T::WK - 1) / T::WK, PAIRS = (STEPS * T::DEPTH + 15) / 16;
  constexpr bool WHOLE = S::K == (T::VECTORS ? 16 * PAIRS : T::DEPTH * STEPS) * T::WK;
  using Element = decltype(load_left(0, 0, 0));
  const auto guarded_left = [&](const int m, const int k) {
    const bool inside = (S::M % T::ROWS == 0 || m < S::M) && (WHOLE || k < S::K);
    return inside ? load_left(z, m, k) : Element();
  };
  const auto guarded_right = [&](const int k, const int n) {
    const bool inside = (S::N % T::COLUMNS == 0 || n < S::N) && (WHOLE || k < S::K);
    return inside ? load_right(z, k, n) : Element();
  };
  float sum[T::MT][T::NT][4] = {};
  if constexpr (T::VECTORS) {
    constexpr int FIT = T::DEPTH / 4, ROUNDS = (PAIRS + FIT - 1) / FIT, AHEAD = ROUNDS ? (PAIRS + ROUNDS - 1) / ROUNDS : 1;
    WideFragments<T> ahead[AHEAD];
    #pragma unroll 1
    for (int first = 0; first < PAIRS; first += AHEAD) {
      #pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (PAIRS % AHEAD == 0 || first + i < PAIRS)
          ahead[i].load((wk * PAIRS + first + i) * 16,
              [&](const int m, const int k) { return guarded_left(row + own_row + m, k); },
              [&](const int k, const int n) { return guarded_right(k, column + own_column + n); });
      #pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (PAIRS % AHEAD == 0 || first + i < PAIRS)
          multiply_fragments_<T, 16 / T::DEPTH>(sum, ahead[i].a, ahead[i].b);
    }
  } else {
    // all that registers hold is asked for at once: memory takes longer than the arithmetic
    constexpr int FIT = 64 / (4 * T::MT + 2 * T::NT), ROUNDS = (STEPS + FIT - 1) / FIT;
    constexpr int AHEAD = ROUNDS ? (STEPS + ROUNDS - 1) / ROUNDS : 1;
    Fragments<T> ahead[AHEAD];
    #pragma unroll 1
    for (int first = 0; first < STEPS; first += AHEAD) {
      #pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (STEPS % AHEAD == 0 || first + i < STEPS)
          ahead[i].load((wk * STEPS + first + i) * T::DEPTH,
              [&](const int m, const int k) { return guarded_left(row + own_row + m, k); },
              [&](const int k, const int n) { return guarded_right(k, column + own_column + n); });
      #pragma unroll
      for (int i = 0; i < AHEAD; ++i)
        if (STEPS % AHEAD == 0 || first + i < STEPS) multiply_fragments_<T, 1>(sum, ahead[i].a, ahead[i].b);
    }
  }
  const auto finish = [&](const int m, const int n, const float found) {
    if ((S::M % T::ROWS && m >= S::M) || (S::N % T::COLUMNS && n >= S::N)) return;
    const bool finite = fabsf(found) <= 3.402823466e38f;
    store(z, m, n, T::IS_HALF || finite ? found : plain_sum_<float, S>(left, right, z, m, n));
  };
  if constexpr (T::WK == 1) {
    #pragma unroll
    for (int i = 0; i < T::MT; ++i)
      #pragma unroll
      for (int j = 0; j < T::NT; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          finish(row + own_row + T::row(i, e / 2, lane / 4), column + own_column + T::column(j, lane % 4 * 2 + e % 2), sum[i][j][e]);
  } else {
    constexpr int STEP = T::COLUMNS + 1, PART = T::ROWS * STEP;
    #pragma unroll
    for (int i = 0; i < T::MT; ++i)
      #pragma unroll
      for (int j = 0; j < T::NT; ++j)
        #pragma unroll
        for (int e = 0; e < 4; ++e)
          shared[wk * PART + (own_row + T::row(i, e / 2, lane / 4)) * STEP + own_column + T::column(j, lane % 4 * 2 + e % 2)] = sum[i][j][e];
    barrier_<T::THREADS>();
    for (int e = threadIdx.x; e < T::ROWS * T::COLUMNS; e += T::THREADS) {
      const int m = e / T::COLUMNS, n = e % T::COLUMNS;
      float total = shared[m * STEP + n];
      #pragma unroll
      for (int w = 1; w < T::WK; ++w) total += shared[w * PART + m * STEP + n];
      finish(row + m, column + n, total);
    }
  }
}

// For every dtype and machine: 256 threads, each of R x C elements that are 16 apart.
template <class T, class S, int R, int C, bool LEFT_BY_K, bool RIGHT_BY_K, class Left, class Right, class Store>
__device__ __forceinline__ void plain_tile_(
    const unsigned block, T* shared, const Left& left, const Right& right, const Store& store) {
  constexpr int ROWS = 16 * R, COLUMNS = 16 * C, CHUNK = 16;
  constexpr int ACROSS = (S::N + COLUMNS - 1) / COLUMNS, DOWN = (S::M + ROWS - 1) / ROWS;
  const int z = block / (ACROSS * DOWN), row = block / ACROSS % DOWN * ROWS, column = block % ACROSS * COLUMNS;
  const int x = threadIdx.x % 16, y = threadIdx.x / 16;
  T* const a = shared;
  T* const b = shared + CHUNK * (ROWS + 1);
  T sum[R][C] = {};
  for (int k0 = 0; k0 < S::K; k0 += CHUNK) {
    #pragma unroll
    for (int i = 0; i < R; ++i) {
      const int e = threadIdx.x + i * 256, m = LEFT_BY_K ? e / CHUNK : e % ROWS, k = LEFT_BY_K ? e % CHUNK : e / ROWS;
      a[k * (ROWS + 1) + m] = row + m < S::M && k0 + k < S::K ? (T)left(z, row + m, k0 + k) : (T)0;
    }
    #pragma unroll
    for (int j = 0; j < C; ++j) {
      const int e = threadIdx.x + j * 256;
      const int n = RIGHT_BY_K ? e / CHUNK : e % COLUMNS, k = RIGHT_BY_K ? e % CHUNK : e / COLUMNS;
      b[k * (COLUMNS + 1) + n] = column + n < S::N && k0 + k < S::K ? (T)right(z, k0 + k, column + n) : (T)0;
    }
    barrier_<256>();
    #pragma unroll
    for (int k = 0; k < CHUNK; ++k)
      #pragma unroll
      for (int i = 0; i < R; ++i)
        #pragma unroll
        for (int j = 0; j < C; ++j)
          sum[i][j] = fma(a[k * (ROWS + 1) + y + 16 * i], b[k * (COLUMNS + 1) + x + 16 * j], sum[i][j]);
    barrier_<256>();
  }
  #pragma unroll
  for (int i = 0; i < R; ++i)
    #pragma unroll
    for (int j = 0; j < C; ++j)
      if (row + y + 16 * i < S::M && column + x + 16 * j < S::N) store(z, row + y + 16 * i, column + x + 16 * j, sum[i][j]);
}
