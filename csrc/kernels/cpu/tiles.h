// Products and transposes of small matrices in registers, for our products on the CPU.

namespace lltm::LLTM_LEVEL {

// A tile is a matrix of sums, usually of kTileRows rows by kTileVectors registers. That many sums
// hide the latency of a multiply-add and leave registers for the operands.
#if LLTM_VECTOR_BYTES == 64 || defined(__aarch64__)  // 32 registers
constexpr int kTileRows = 8;
#else
constexpr int kTileRows = 4;
#endif
#ifdef LLTM_MULTIPLIES_BY_SVE
constexpr int kTileVectors = 4;  // a row fills SVE vectors of up to 64 bytes
#else
constexpr int kTileVectors = LLTM_VECTOR_BYTES == 32 ? 3 : 2;
#endif

template <typename C, int rows, int vectors>
using Tile = Vector<C>[rows][vectors];

#ifdef LLTM_MULTIPLIES_BY_SVE
LLTM_INLINE svbool_t first_lanes(int64_t count, float) { return svwhilelt_b32(int64_t{0}, count); }
LLTM_INLINE svbool_t first_lanes(int64_t count, double) { return svwhilelt_b64(int64_t{0}, count); }
LLTM_INLINE int64_t sve_lanes(float) { return static_cast<int64_t>(svcntw()); }
LLTM_INLINE int64_t sve_lanes(double) { return static_cast<int64_t>(svcntd()); }

// Does the part of `multiply` below for the columns of one SVE register or, if `two`, of two,
// starting at `column`. The length of SVE registers is unknown at compile time, so arrays cannot
// hold them. Macros name the registers of 8 rows; only the first `rows` rows are added to.
template <int rows, bool two, typename C>
LLTM_INLINE void multiply_by_sve(int64_t depth, const C* a, int64_t a_row, int64_t a_depth,
                                 const C* b, int64_t b_depth, int64_t width, int64_t column,
                                 C* sum) {
  static_assert(rows <= 8);
  const int64_t next = column + sve_lanes(C{});
  const svbool_t lanes = first_lanes(width - column, C{});
  const svbool_t next_lanes = first_lanes(width - next, C{});
#define LLTM_EACH_ROW(DO) DO(0) DO(1) DO(2) DO(3) DO(4) DO(5) DO(6) DO(7)
#define LLTM_LOAD(m)                                             \
  C* const row##m = sum + (m < rows ? m : rows - 1) * width;     \
  auto sum##m = svld1(lanes, row##m + column), next##m = sum##m; \
  if constexpr (two) next##m = svld1(next_lanes, row##m + next);
  LLTM_EACH_ROW(LLTM_LOAD)
#undef LLTM_LOAD
#pragma GCC unroll 1
  for (int64_t k = 0; k < depth; ++k) {
    const auto right = svld1(lanes, b + k * b_depth + column);
    auto next_right = right;
    if constexpr (two) next_right = svld1(next_lanes, b + k * b_depth + next);
#define LLTM_ADD(m)                                                              \
  if constexpr (m < rows) {                                                      \
    const C left = a[m * a_row + k * a_depth];                                   \
    sum##m = svmla_x(lanes, sum##m, right, left);                                \
    if constexpr (two) next##m = svmla_x(next_lanes, next##m, next_right, left); \
  }
    LLTM_EACH_ROW(LLTM_ADD)
#undef LLTM_ADD
  }
#define LLTM_STORE(m)                                             \
  if constexpr (m < rows) {                                       \
    svst1(lanes, row##m + column, sum##m);                        \
    if constexpr (two) svst1(next_lanes, row##m + next, next##m); \
  }
  LLTM_EACH_ROW(LLTM_STORE)
#undef LLTM_STORE
#undef LLTM_EACH_ROW
}

template <typename C, int rows, int vectors>
LLTM_INLINE void multiply(int64_t depth, const C* a, int64_t a_row, int64_t a_depth, const C* b,
                          int64_t b_depth, Tile<C, rows, vectors>& sum) {
  constexpr int64_t kWidth = vectors * Lanes<C>::kCount;
  C* const sums = reinterpret_cast<C*>(&sum[0][0]);
  const int64_t lanes = sve_lanes(C{});
  for (int64_t column = 0; column < kWidth; column += 2 * lanes) {
    if (kWidth - column > lanes) {
      multiply_by_sve<rows, true>(depth, a, a_row, a_depth, b, b_depth, kWidth, column, sums);
    } else {
      multiply_by_sve<rows, false>(depth, a, a_row, a_depth, b, b_depth, kWidth, column, sums);
    }
  }
}
#else
// sum[m][v] += sum over k of a[m * a_row + k * a_depth] * (register v of b + k * b_depth)
template <typename C, int rows, int vectors>
LLTM_INLINE void multiply(int64_t depth, const C* a, int64_t a_row, int64_t a_depth, const C* b,
                          int64_t b_depth, Tile<C, rows, vectors>& sum) {
#pragma GCC unroll 1
  for (int64_t k = 0; k < depth; ++k) {
    Vector<C> right[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      right[v] = load(b + k * b_depth + v * Lanes<C>::kCount);
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; ++m) {
      const Vector<C> left = broadcast<C>(a[m * a_row + k * a_depth]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[m][v] += left * right[v];
    }
  }
}
#endif  // LLTM_MULTIPLIES_BY_SVE

#ifdef LLTM_MULTIPLIES_PAIRS
constexpr bool kMultipliesPairs = true;
// multiply() for pairs of bfloat16: k counts pairs, and a lane of b holds a pair.
template <int rows, int vectors>
LLTM_INLINE void multiply_pairs(int64_t depth, const bfloat16* a, int64_t a_row, const float* b,
                                Tile<float, rows, vectors>& sum) {
#pragma GCC unroll 1
  for (int64_t k = 0; k < depth; ++k) {
    __m512bh right[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      right[v] = reinterpret<__m512bh>(load(b + (k * vectors + v) * Lanes<float>::kCount));
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; ++m) {
      int pair;
      std::memcpy(&pair, a + m * a_row + 2 * k, sizeof(pair));
      const auto left = reinterpret<__m512bh>(_mm512_set1_epi32(pair));
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[m][v] = _mm512_dpbf16_ps(sum[m][v], left, right[v]);
    }
  }
}
#else
constexpr bool kMultipliesPairs = false;
#endif

// Calls `body` with min(count, kMost) as a compile-time constant. `count` must be at least 1.
template <int kMost, typename Body>
LLTM_INLINE void with_constant(int64_t count, const Body& body) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_constant<kMost - 1>(count, body);
  }
  body(std::integral_constant<int, kMost>{});
}

// A transpose exchanges lanes between pairs of registers that are `step` apart. Returns the new
// first register of a pair or, if `upper`, the new second register.
template <typename C, int step, bool upper, int... lane>
LLTM_INLINE Vector<C> exchanged(Vector<C> first, Vector<C> second,
                                std::integer_sequence<int, lane...>) {
  constexpr int kCount = Lanes<C>::kCount;
  // The lanes of `second` are numbered after those of `first`.
#define LLTM_SOURCE ((lane & ~step) + (upper ? step : 0) + ((lane & step) != 0 ? kCount : 0))
#if defined(__clang__)
  return __builtin_shufflevector(first, second, LLTM_SOURCE...);
#else
  return __builtin_shuffle(first, second, Mask<C>{LLTM_SOURCE...});
#endif
#undef LLTM_SOURCE
}

template <typename C, int step = 1>
LLTM_INLINE void transpose(Vector<C> (&square)[Lanes<C>::kCount]) {
  constexpr int kCount = Lanes<C>::kCount;
  using Order = std::make_integer_sequence<int, kCount>;
  if constexpr (step < kCount) {
#pragma GCC unroll 16
    for (int row = 0; row < kCount; ++row) {
      if ((row & step) != 0) continue;
      const Vector<C> first = square[row];
      const Vector<C> second = square[row + step];
      square[row] = exchanged<C, step, false>(first, second, Order{});
      square[row + step] = exchanged<C, step, true>(first, second, Order{});
    }
    transpose<C, 2 * step>(square);
  }
}

// to[k * to_stride + m] = from[m * from_stride + k] for k < count and m < kCount, or zero if
// m >= rows. With kPairs, k counts pairs of 16-bit elements, which keep their bits. `count` is at
// most one register of elements.
template <bool kPairs = false, typename T>
LLTM_INLINE void pack_square(const T* from, int64_t from_stride, int64_t rows, int64_t count,
                             compute_t<T>* to, int64_t to_stride) {
  using C = compute_t<T>;
  constexpr int kCount = Lanes<C>::kCount;
  constexpr int kInLane = kPairs ? 2 : 1;  // elements
  Vector<C> square[kCount];
#pragma GCC unroll 16
  for (int m = 0; m < kCount; ++m) {
    const T* const row = from + m * from_stride;
    square[m] = kPairs || m >= rows ? Vector<C>{} : load(row, count);
    if (kPairs && m < rows) std::memcpy(&square[m], row, static_cast<size_t>(count) * sizeof(T));
  }
  transpose<C>(square);
#pragma GCC unroll 16
  for (int m = 0; m < kCount; ++m) {
    if (kInLane * m < count) store(to + m * to_stride, square[m]);
  }
}

// The same for any number of `columns`.
template <bool kPairs = false, typename T>
LLTM_SHARED void pack_transposed(const T* from, int64_t from_stride, int64_t rows, int64_t columns,
                                 compute_t<T>* to, int64_t to_stride) {
  constexpr int kCount = Lanes<compute_t<T>>::kCount;
  constexpr int kInLane = kPairs ? 2 : 1;  // elements
  constexpr int kWidth = kInLane * kCount;
  int64_t k = 0;
  for (; rows >= kCount && k + kWidth <= columns; k += kWidth, to += kCount * to_stride) {
    pack_square<kPairs>(from + k, from_stride, kCount, kWidth, to, to_stride);
  }
  for (; k < columns; k += kWidth, to += kCount * to_stride) {
    pack_square<kPairs>(from + k, from_stride, rows, least(kWidth, columns - k), to, to_stride);
  }
}

// Copies `width` elements of a row, with zeros in place of elements past the first `count`. Stores
// whole registers: the last register may reach beyond `width`.
template <typename T, typename To>
LLTM_INLINE void load_row(const T* from, int64_t count, To* to, int64_t width) {
  using C = compute_t<T>;
  for (int64_t k = 0; k < width; k += Lanes<C>::kCount) {
    store(to + k, k < count ? load(from + k, count - k) : Vector<C>{});
  }
}

// Copies `rows` rows with load_row, to rows without gaps. The function is not inlined, so that the
// constants of a conversion stay in registers.
template <typename T>
__attribute__((noinline)) void pack_rows(const T* from, int64_t from_stride, int64_t rows,
                                         int64_t columns, compute_t<T>* to, int64_t width) {
  for (int64_t k = 0; k < rows; ++k)
    load_row(from + k * from_stride, columns, to + k * width, width);
}

// Copies the first `columns` elements of each row, but reads whole registers. If the function were
// inlined, the compiler would keep the sums of a tile in memory.
template <typename T>
__attribute__((noinline)) void store_rows(const compute_t<T>* from, int64_t from_stride, T* to,
                                          int64_t to_stride, int64_t rows, int64_t columns) {
  constexpr int64_t kCount = Lanes<compute_t<T>>::kCount;
  for (int64_t m = 0; m < rows; ++m, from += from_stride, to += to_stride) {
    int64_t k = 0;
    for (; k + kCount <= columns; k += kCount) store(to + k, load(from + k));
    if (k < columns) store(to + k, load(from + k), columns - k);
  }
}

// Returns a tile's width for `columns` columns, in elements: whole registers, at most kTileVectors.
template <typename C>
LLTM_INLINE int64_t tile_width(int64_t columns) {
  constexpr int64_t kLanes = Lanes<C>::kCount;
  return least(kTileVectors * kLanes, round_up(columns, kLanes));
}

template <typename C, int rows, int vectors>
LLTM_INLINE void add_tile(const C* from, int64_t stride, Tile<C, rows, vectors>& sum) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      sum[m][v] += load(from + m * stride + v * Lanes<C>::kCount);
    }
  }
}

template <typename T, int rows, int vectors>
LLTM_INLINE void store_whole_tile(const Tile<compute_t<T>, rows, vectors>& sum, T* to,
                                  int64_t stride) {
#pragma GCC unroll 8
  for (int m = 0; m < rows; ++m) {
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      store(to + m * stride + v * Lanes<compute_t<T>>::kCount, sum[m][v]);
    }
  }
}

// The operands of `multiply` for a row of tiles, whose panels follow one another in b.
template <typename C>
struct TileOperands {
  int64_t depth;
  const C* a;
  int64_t a_row;
  int64_t a_depth;
  const C* b;
  int64_t b_depth;    // 0: the width of each tile
  const C* kept;      // the sums of the terms before, of one tile, without gaps; or NULL
  bool adds = false;  // whether the old values are added, too
};

// Computes `columns` columns of `rows` rows. One copy of this function serves all storage types
// that compute in C; with a copy for each, it would be most of a compiler's work.
template <int rows, typename T>
LLTM_SHARED void make_tiles_of(const TileOperands<compute_t<T>>& operands, int64_t columns, T* to,
                               int64_t to_stride) {
  using C = compute_t<T>;
  constexpr int64_t kTileColumns = kTileVectors * Lanes<C>::kCount;
  TileOperands<C> tile = operands;  // a copy that no store below can change
  for (; columns > 0; columns -= kTileColumns, to += kTileColumns) {
    const int64_t width = tile_width<C>(columns);
    alignas(64) C values[rows * kTileColumns];                // of a tile that is not stored whole
    const bool is_whole = sizeof(T) > 2 && columns >= width;  // 16 bits are converted
    const auto make = [&](auto vectors) __attribute__((always_inline)) {
      Tile<C, rows, vectors> sum = {};
      if (tile.adds && !is_whole) pack_rows(to, to_stride, rows, columns, values, width);
      const int64_t b_depth = tile.b_depth > 0 ? tile.b_depth : width;
      multiply(tile.depth, tile.a, tile.a_row, tile.a_depth, tile.b, b_depth, sum);
      if (tile.kept != nullptr) add_tile(tile.kept, width, sum);
      if constexpr (sizeof(T) > 2) {
        C* const at = is_whole ? to : values;
        const int64_t stride = is_whole ? to_stride : width;
        if (tile.adds) add_tile(at, stride, sum);
        store_whole_tile(sum, at, stride);
        if (!is_whole) store_rows(values, width, to, to_stride, rows, columns);
      } else {
        if (tile.adds) add_tile(values, width, sum);
        if (columns >= width) return store_whole_tile(sum, to, to_stride);
        store_whole_tile(sum, values, width);
        store_rows(values, width, to, to_stride, rows, columns);
      }
    };
    with_constant<kTileVectors>(width / Lanes<C>::kCount, make);
    tile.b += tile.depth * width;
  }
}

// Makes a row of tiles.
template <typename C>
LLTM_INLINE void make_tiles(int64_t rows, const TileOperands<C>& operands, int64_t columns, C* to,
                            int64_t to_stride) {
  with_constant<kTileRows>(
      rows, [&](auto tile_rows) { make_tiles_of<tile_rows>(operands, columns, to, to_stride); });
}

}  // namespace lltm::LLTM_LEVEL
