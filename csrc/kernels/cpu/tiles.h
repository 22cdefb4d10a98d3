// Products of small matrices in registers, for any operands: what every CPU product is made of.
#ifndef LLTM_LEVEL
#error "include this from a level_*.cpp"
#endif

namespace lltm {
namespace LLTM_LEVEL {

// A tile is kTileRows rows times up to kTileVectors registers: as many sums as hide the latency of
// a multiply-add, and no more than the registers hold beside the operands.
#if LLTM_VECTOR_BYTES == 64
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

// Calls `body` with `count`, 1 to kMost, as a constant of the compiler.
template <int kMost, typename Body>
LLTM_INLINE void with_constant(int64_t count, const Body& body) {
  if constexpr (kMost > 1) {
    if (count < kMost) return with_constant<kMost - 1>(count, body);
  }
  body(std::integral_constant<int, kMost>{});
}

// One of the two halves of a pair of registers that are to change places: lanes whose index has
// the bit `step` come from the other register.
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

}  // namespace LLTM_LEVEL
}  // namespace lltm
