// Products of matrices: to = left right or, with `adds`, to += left right.
//
// A unit is one tile of columns for a chunk of rows. A thread takes neighbouring units together and
// packs their part of `right` into panels of one tile's columns. Operands of 16 bits are converted.

namespace lltm::LLTM_LEVEL {

// The members are the product's arguments. Where a function has a parameter L, that is the type of
// `left`: T, or the type in which T computes.
template <typename T>
struct Product : lltm_product_arguments {
  using C = compute_t<T>;
  static constexpr int64_t kLanes = Lanes<C>::kCount;
  static constexpr int64_t kTileColumns = kTileVectors * kLanes;
  static constexpr int64_t kChunk = 256;
  static constexpr int64_t kDepth = 512;    // the most terms of a sum whose operands stay in cache
  static constexpr int64_t kGroup = 8;      // tiles whose sums are kept in cache together
  static constexpr int64_t kShallow = 128;  // terms
  // For few rows, `right` is packed only to convert or to pad it. Parts then have few terms, so
  // that memory is read in long runs.
  static constexpr int64_t kFewRows = 4 * kTileRows;
  static constexpr int64_t kCached = 1 << 20;  // elements of `right` that a cache may hold

  // Runs the first plane. Returns NULL or an error text.
  static const char* run(const lltm_product_arguments& arguments, const lltm_execution& execution) {
    return Product{arguments}.template run<T>(execution);
  }
  template <typename L = C>
  const char* run(const lltm_execution& execution) const {
    if (rows == 0 || columns == 0) return nullptr;
    const int64_t tiles = ceiling(columns, kTileColumns);
    const int64_t unit_cost = (least(kChunk, rows) + kCostOfElement) * kTileColumns * depth;
    return in_parallel_with_memory(
        ceiling(rows, kChunk) * tiles, grain_of(unit_cost), scratch_bytes<L>(), execution,
        [&](void* memory, int64_t begin, int64_t end) {
          for (int64_t unit = begin; unit < end;) {
            const int64_t first = unit / tiles * kChunk;
            const int64_t tile = unit % tiles;
            const int64_t together = least(least(end - unit, tiles - tile), most_tiles());
            make<L>(first, tile * kTileColumns, least((tile + together) * kTileColumns, columns),
                    static_cast<C*>(memory));
            unit += together;
          }
        });
  }

 private:
  bool is_few() const { return rows <= kFewRows && !right_transposed; }
  // With a small depth, a tile of rows meets all panels in turn, so that memory is written in long
  // runs; else a panel, which is large, meets all rows of the chunk.
  bool is_shallow() const { return !is_few() && depth <= kShallow; }
  int64_t most_terms() const {
    const int64_t few = depth * right_stride > kCached ? 16 : 32;
    return least(is_few() ? few : kDepth, depth);
  }
  int64_t most_tiles() const {
    if (is_shallow()) return kDepth / at_least_one(depth);
    return kGroup * (kChunk / least(kChunk, rows));
  }
  int64_t packed_elements() const {
    return kTileColumns * (is_shallow() ? kDepth : at_least_one(most_terms()));
  }
  template <typename L>
  static constexpr bool kConverts = !std::is_same_v<L, C>;
  template <typename L>
  int64_t converted_elements(int64_t count) const {  // of `count` rows of `left`
    return kConverts<L> ? round_up(count, kLanes) * round_up(most_terms(), kLanes) : 0;
  }
  template <typename L>
  int64_t scratch_bytes() const {
    const int64_t tiles = least(most_tiles(), ceiling(columns, kTileColumns));
    const int64_t count = least(kChunk, rows);
    const int64_t kept = depth > most_terms() ? tiles * kTileColumns * count : 0;
    const int64_t elements = packed_elements() + converted_elements<L>(count) + kept;
    return elements * static_cast<int64_t>(sizeof(C));
  }

  struct Part {  // terms of the sums
    int64_t first;
    int64_t last;
  };
  struct Left {  // element (row, term) is at[row * of_row + term * of_term]
    const C* at;
    int64_t of_row;
    int64_t of_term;
    Left row(int64_t index) const { return {at + index * of_row, of_row, of_term}; }
  };

  // Returns a part of rows [first, end) of `left`, in memory at `converted` if it has 16 bits.
  template <typename L>
  Left left_of(const Part& part, int64_t first, int64_t end, C* converted) const {
    const L* const at =
        static_cast<const L*>(left) +
        (left_transposed ? part.first * left_stride + first : first * left_stride + part.first);
    if constexpr (!kConverts<L>) {
      return {at, left_transposed ? 1 : left_stride, left_transposed ? left_stride : 1};
    } else {
      const int64_t terms = part.last - part.first;
      const int64_t lines = left_transposed ? terms : end - first;
      const int64_t width = left_transposed ? end - first : terms;
      const int64_t stride = round_up(width, kLanes);
      pack_rows(at, left_stride, lines, width, converted, stride);
      return {converted, left_transposed ? 1 : stride, left_transposed ? stride : 1};
    }
  }

  // Computes columns [column, last) of the rows of a chunk that begins at `first`.
  template <typename L>
  void make(int64_t first, int64_t column, int64_t last, C* packed) const {
    const int64_t end = least(first + kChunk, rows);
    C* const converted = packed + packed_elements();
    C* const kept = converted + converted_elements<L>(end - first);
    Part part = {0, 0};
    do {
      part = {part.last, least(part.last + most_terms(), depth)};
      const Left a = left_of<L>(part, first, end, converted);
      C* panel = packed;
      for (int64_t from = column; from < last; from += kTileColumns) {
        const int64_t width = tile_width<C>(columns - from);
        const C* operand = panel;
        int64_t stride = width;
        ready(part, from, width, panel, operand, stride);
        if (is_shallow()) {
          panel += depth * width;
          continue;
        }
        C* sums = kept + (from - column) * (end - first);
        for (int64_t row = first; row < end; row += kTileRows, sums += kTileRows * width) {
          make_tiles(part, a.row(row - first), row, end, from, from + width, operand, stride, sums);
        }
      }
      for (int64_t row = first; is_shallow() && row < end; row += kTileRows) {
        make_tiles(part, a.row(row - first), row, end, column, last, packed, 0, nullptr);
      }
    } while (part.last < depth);
  }

  // Makes a tile's columns [from, from + width) of a part of `right` ready: packs them, or
  // prefetches those of the next part.
  void ready(const Part& part, int64_t from, int64_t width, C* panel, const C*& operand,
             int64_t& stride) const {
    const int64_t terms = part.last - part.first;
    const T* const at =
        static_cast<const T*>(right) +
        (right_transposed ? from * right_stride + part.first : part.first * right_stride + from);
    if constexpr (sizeof(T) > 2) {
      if (is_few() && columns - from >= width) {
        operand = at;
        stride = right_stride;
        for (int64_t k = terms; part.last + terms <= depth && k < 2 * terms; ++k) {
          __builtin_prefetch(at + k * right_stride, 0, 2);
          __builtin_prefetch(at + k * right_stride + width - 1, 0, 2);
        }
        return;
      }
    }
    if (!right_transposed) {
      return pack_rows(at, right_stride, terms, columns - from, panel, width);
    }
    for (int64_t lane = 0; lane < width; lane += kLanes) {
      pack_transposed(at + lane * right_stride, right_stride, columns - from - lane, terms,
                      panel + lane, width);
    }
  }

  // Adds a part's terms to one row of tiles, in columns [from, last). The panels, and the sums of
  // the parts before, follow one another.
  void make_tiles(const Part& part, const Left& a, int64_t row, int64_t end, int64_t from,
                  int64_t last, const C* panel, int64_t panel_stride, C* sums) const {
    const int64_t tile_rows = least(kTileRows, end - row);
    TileOperands<C> tiles = {
        part.last - part.first,         a.at, a.of_row, a.of_term, panel, panel_stride,
        part.first > 0 ? sums : nullptr};
    if (part.last < depth) {  // then the columns are those of one tile
      return LLTM_LEVEL::make_tiles(tile_rows, tiles, last - from, sums, last - from);
    }
    tiles.adds = adds != 0;
    T* const at = static_cast<T*>(to) + row * to_stride + from;
    const int64_t count = least(last, columns) - from;
    if constexpr (sizeof(T) > 2) {
      LLTM_LEVEL::make_tiles(tile_rows, tiles, count, at, to_stride);
    } else if (tile_rows == kTileRows) {
      make_tiles_of<kTileRows>(tiles, count, at, to_stride);
    } else {
      convert_tiles(tile_rows, tiles, count, at);
    }
  }

  // Makes a row of tiles in memory for C, and converts it.
  void convert_tiles(int64_t tile_rows, TileOperands<C> tiles, int64_t count, T* at) const {
    alignas(64) C values[kTileRows * kGroup * kTileColumns];
    for (int64_t column = 0; column < count; column += kGroup * kTileColumns) {
      const int64_t group = least(kGroup * kTileColumns, count - column);
      const int64_t width = round_up(group, kLanes);
      if (tiles.adds) pack_rows(at + column, to_stride, tile_rows, group, values, width);
      LLTM_LEVEL::make_tiles(tile_rows, tiles, width, values, width);
      store_rows(values, width, at + column, to_stride, tile_rows, group);
      tiles.b += width * tiles.depth;
    }
  }
};

}  // namespace lltm::LLTM_LEVEL
