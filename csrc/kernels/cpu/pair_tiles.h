// Products of pairs of bfloat16 in AMX's tiles, which are registers of up to 16 rows of 64 bytes.

namespace lltm::LLTM_LEVEL {

// AMX's tiles for products of up to kRows rows and kGates vectors, as multiply_pairs makes them.
// Tiles 0 to 2 hold sums; 3 holds pairs of `a`, and 4 and 5 pairs of b; 6 and 7 are for the last
// pairs, where those are fewer than a tile's.
class PairTiles {
 public:
  static constexpr int kRows = 16;
  static constexpr int kGates = 3;

  PairTiles(int64_t rows, int64_t pairs) : pairs_(pairs) {
    alignas(64) struct {
      uint8_t palette = 1;
      uint8_t start_row = 0;
      uint8_t reserved[14] = {};
      uint16_t row_bytes[16] = {};
      uint8_t rows[16] = {};
    } shapes;
    const auto shape = [&](int tile, int64_t tile_rows, int64_t bytes) {
      shapes.rows[tile] = static_cast<uint8_t>(tile_rows);
      shapes.row_bytes[tile] = static_cast<uint16_t>(bytes);
    };
    for (int tile = 0; tile < 4; ++tile) shape(tile, rows, kLine);
    for (int tile = 4; tile < 6; ++tile) shape(tile, kPairs, kLine);
    const int64_t rest = pairs % kPairs;
    if (rest > 0) shape(6, rows, rest * 4);
    if (rest > 0) shape(7, rest, kLine);
    finish_stores(&shapes);
    _tile_loadconfig(&shapes);
  }
  ~PairTiles() { _tile_release(); }
  PairTiles(const PairTiles&) = delete;
  PairTiles& operator=(const PairTiles&) = delete;

  // products[m][v] = the sum over k of pair k of row m of `a` by register v of pair k of b
  LLTM_INLINE void multiply(const bfloat16* a, int64_t a_row, const float* b,
                            float* products) const {
    const int64_t a_bytes = a_row * 2;
    constexpr int64_t kBytes = kGates * kLine;
    constexpr int64_t kLanes = kLine / 4;
    finish_stores(a);
    _tile_zero(0);
    _tile_zero(1);
    _tile_zero(2);
    int64_t k = 0;
    for (; k + kPairs <= pairs_; k += kPairs, a += 2 * kPairs, b += kPairs * kGates * kLanes) {
      _tile_loadd(3, a, a_bytes);
      _tile_loadd(4, b, kBytes);
      _tile_dpbf16ps(0, 3, 4);
      _tile_loadd(5, b + kLanes, kBytes);
      _tile_dpbf16ps(1, 3, 5);
      _tile_loadd(4, b + 2 * kLanes, kBytes);
      _tile_dpbf16ps(2, 3, 4);
    }
    if (k < pairs_) {
      _tile_loadd(6, a, a_bytes);
      _tile_loadd(7, b, kBytes);
      _tile_dpbf16ps(0, 6, 7);
      _tile_loadd(7, b + kLanes, kBytes);
      _tile_dpbf16ps(1, 6, 7);
      _tile_loadd(7, b + 2 * kLanes, kBytes);
      _tile_dpbf16ps(2, 6, 7);
    }
    _tile_stored(0, products, kBytes);
    _tile_stored(1, products + kLanes, kBytes);
    _tile_stored(2, products + 2 * kLanes, kBytes);
    finish_stores(products);
  }

 private:
  static constexpr int64_t kPairs = 16;  // in a row of a tile
  static constexpr int64_t kLine = 64;   // bytes of a row

  // The instructions above do not tell the compiler which memory they read or write.
  static LLTM_INLINE void finish_stores(const void* at) { asm volatile("" ::"r"(at) : "memory"); }

  int64_t pairs_;
};

}  // namespace lltm::LLTM_LEVEL
