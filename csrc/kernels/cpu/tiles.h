// Products and transposes of small matrices in registers: what every CPU product is made of.
#ifndef LLTM_LEVEL
#error "include this from a level_*.cpp"
#endif

namespace lltm {
namespace LLTM_LEVEL {

// A tile is kTileRows rows times up to kTileVectors registers: as many sums as hide the latency of
// a multiply-add, and no more than the registers hold in addition to the operands.
#if LLTM_VECTOR_BYTES == 64 || defined(__aarch64__)  // those with 32 registers
constexpr int kTileRows = 8;
constexpr int kTileVectors = 2;
#elif LLTM_VECTOR_BYTES == 32
constexpr int kTileRows = 4;
constexpr int kTileVectors = 3;
#else
constexpr int kTileRows = 4;
constexpr int kTileVectors = 2;
#endif

template <typename C, int rows, int vectors>
using Tile = Vector<C>[rows][vectors];

// sum[m][v] += sum over k of a[m * a_row + k * a_depth] * (register v of b + k * b_depth)
template <typename C, int rows, int vectors>
LLTM_INLINE void multiply(int64_t depth, const C* a, int64_t a_row, int64_t a_depth, const C* b,
                          int64_t b_depth, Tile<C, rows, vectors>& sum) {
#pragma GCC unroll 1
  for (int64_t k = 0; k < depth; ++k) {
    Vector<C> right[vectors];
#pragma GCC unroll 8
    for (int v = 0; v < vectors; ++v) {
      right[v] = Memory<C>::load(b + k * b_depth + v * Lanes<C>::kCount);
    }
#pragma GCC unroll 16
    for (int m = 0; m < rows; ++m) {
      const Vector<C> left = broadcast<C>(a[m * a_row + k * a_depth]);
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) sum[m][v] += left * right[v];
    }
  }
}

// Calls `body` with `count` (1 to kMost) as a compile-time constant.
template <int kMost, typename Body>
LLTM_INLINE void with_constant(int64_t count, const Body& body) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_constant<kMost - 1>(count, body);
  }
  body(std::integral_constant<int, kMost>{});
}

// A transpose exchanges lanes between pairs of registers that are `step` apart. Gives the new first
// register of a pair or, if `upper`, the new second one.
template <typename C, int step, bool upper, size_t... lane>
LLTM_INLINE Vector<C> exchanged(Vector<C> first, Vector<C> second, std::index_sequence<lane...>) {
  constexpr int kCount = Lanes<C>::kCount;
  // Lane numbers of `first`, then of `second`.
#define LLTM_SOURCE(n)                                                                     \
  (upper ? (((n) & step) != 0 ? kCount + static_cast<int>(n) : static_cast<int>(n) + step) \
         : (((n) & step) != 0 ? kCount + static_cast<int>(n) - step : static_cast<int>(n)))
#if defined(__clang__)
  return __builtin_shufflevector(first, second, LLTM_SOURCE(lane)...);
#else
  return __builtin_shuffle(first, second, Mask<C>{LLTM_SOURCE(lane)...});
#endif
#undef LLTM_SOURCE
}

template <typename C, int step = 1>
LLTM_INLINE void transpose(Vector<C> (&square)[Lanes<C>::kCount]) {
  constexpr int kCount = Lanes<C>::kCount;
  using Order = std::make_index_sequence<kCount>;
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

// to[k * to_stride + m] = from[m * from_stride + k] for `rows` <= kCount values of m, zeros for the
// others; k up to `columns`.
template <typename T>
LLTM_INLINE void pack_transposed(const T* from, int64_t from_stride, int64_t rows, int64_t columns,
                                 compute_t<T>* to, int64_t to_stride) {
  using C = compute_t<T>;
  constexpr int kCount = Lanes<C>::kCount;
  for (int64_t k = 0; k < columns; k += kCount) {
    const int64_t count = least(kCount, columns - k);
    Vector<C> square[kCount];
#pragma GCC unroll 16
    for (int m = 0; m < kCount; ++m) {
      square[m] = m < rows ? load(from + m * from_stride + k, count) : Vector<C>{};
    }
    transpose<C>(square);
#pragma GCC unroll 16
    for (int m = 0; m < kCount; ++m) {
      if (m < count) Memory<C>::store(to + (k + m) * to_stride, square[m]);
    }
  }
}

// Copies `count` elements of a row, and zeros after them up to `width`, in whole registers.
template <typename T>
LLTM_INLINE void load_row(const T* from, int64_t count, compute_t<T>* to, int64_t width) {
  using C = compute_t<T>;
  for (int64_t k = 0; k < width; k += Lanes<C>::kCount) {
    Memory<C>::store(to + k, k < count ? load(from + k, count - k) : Vector<C>{});
  }
}

// Copies `count` elements out of whole registers.
template <typename T>
LLTM_INLINE void store_row(const compute_t<T>* from, T* to, int64_t count) {
  using C = compute_t<T>;
  for (int64_t k = 0; k < count; k += Lanes<C>::kCount) {
    store(to + k, Memory<C>::load(from + k), count - k);
  }
}

}  // namespace LLTM_LEVEL
}  // namespace lltm
