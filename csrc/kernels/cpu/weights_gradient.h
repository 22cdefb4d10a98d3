// The gradient of the weights, for one step or for all steps of a sequence: the sum over rows n of
// dz[n]^T [h[n], x[n]]. Each level_*.cpp includes this file once.

namespace lltm::LLTM_LEVEL {

template <typename T>
struct WeightsGradient {
  using C = compute_t<T>;
  static constexpr int64_t kTileColumns = kTileVectors * Lanes<C>::kCount;
  // The most rows n of a chunk. Registers add up the products of one chunk, because a single
  // running sum over all rows would lose more digits.
  static constexpr int64_t kDepth = 128;
  static constexpr int64_t kStrip = 256;   // rows of d_weights that share a packed part of [h, x]
  static constexpr int64_t kPacked = 512;  // the most rows n times tiles in the packed part

  struct Rows {
    const C* dz;     // (count, 3S) with rows `dz_stride` apart
    const T* right;  // (count, S) or (count, I)
    int64_t count;
  };

  int64_t state;
  int64_t features;
  Rows h[2];  // the first step of a sequence reads another tensor than the later steps
  Rows x;
  int64_t dz_stride;
  T* d_weights;  // (3S, S + I)

  // Returns the number of units. A unit is a strip of rows of d_weights by a group of columns of h
  // or of x. For few rows n, a group has many columns, so that memory is written in long runs.
  int64_t units() const { return ceiling(kGateCount * state, kStrip) * groups(); }

  void make(int64_t begin, int64_t end) const {
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t group = unit % groups();
      const bool is_h = group < groups_of(state);
      make_unit(unit / groups() * kStrip, is_h,
                (is_h ? group : group - groups_of(state)) * group_columns());
    }
  }

 private:
  int64_t group_columns() const {
    const bool one_chunk = h[1].count == 0 && x.count <= kDepth;
    return one_chunk ? kPacked / at_least_one(x.count) * kTileColumns : kTileColumns;
  }
  int64_t groups_of(int64_t columns) const { return ceiling(columns, group_columns()); }
  int64_t groups() const { return groups_of(state) + groups_of(features); }

  void make_unit(int64_t first_row, bool is_h, int64_t first) const {
    const Rows parts[2] = {is_h ? h[0] : x, is_h ? h[1] : Rows{}};
    const int64_t columns = is_h ? state : features;
    const int64_t last = least(first + group_columns(), columns);
    const int64_t count = parts[0].count + parts[1].count;
    T* const to = d_weights + first_row * (state + features) + (is_h ? 0 : state);
    alignas(64) C packed[kPacked * kTileColumns];
    alignas(64) C kept[kStrip * kTileColumns];  // sums of the chunks so far
    int64_t done = 0;
    do {
      const bool second = parts[1].count > 0 && done >= parts[0].count;
      const Rows& part = parts[second ? 1 : 0];
      const int64_t from = second ? done - parts[0].count : done;
      const int64_t depth = least(kDepth, part.count - from);
      C* panel = packed;
      for (int64_t column = first; column < last; column += kTileColumns) {
        const int64_t width = tile_width<C>(last - column);
        pack_rows(part.right + from * columns + column, columns, depth, last - column, panel,
                  width);
        panel += depth * width;
      }
      add_chunk(part.dz + from * dz_stride + first_row, packed, depth, first_row, first, last, to,
                kept, done > 0, done + depth == count);
      done += depth;
    } while (done < count);
  }

  void add_chunk(const C* dz, const C* packed, int64_t depth, int64_t first_row, int64_t first,
                 int64_t last, T* to, C* kept, bool adds, bool is_last) const {
    const int64_t stride = state + features;
    const int64_t rows = least(kStrip, kGateCount * state - first_row);
    for (int64_t row = 0; row < rows; row += kTileRows) {
      const C* panel = packed;
      for (int64_t column = first; column < last; column += kTileColumns) {
        const int64_t width = tile_width<C>(last - column);
        with_tile<C>(rows - row, width, [&](auto tile_rows, auto vectors) {
          Tile<C, tile_rows, vectors> sum = {};
          multiply(depth, dz + row, 1, dz_stride, panel, width, sum);
          C* const sums = kept + row * kTileColumns;
          if (adds) add_tile(sums, kTileColumns, sum);
          if (is_last) {
            store_tile(sum, to + row * stride + column, stride, last - column);
          } else {
            store_whole_tile(sum, sums, kTileColumns);
          }
        });
        panel += depth * width;
      }
    }
  }
};

}  // namespace lltm::LLTM_LEVEL
