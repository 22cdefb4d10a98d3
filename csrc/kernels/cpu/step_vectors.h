// One whole LLTM step, its products included, in units that threads share. A unit is one block of
// the state's columns, all three gates of it. Included once per instruction set.
//
// Forward computes z transposed: rows of `weights` are read where they are, one number at a time,
// and a register holds as many batch entries, of [h, x] packed so. A few batch entries are
// multiplied the other way, along the rows. Backward computes dz of a block, and at once what
// depends on that block alone: the gradients of its rows of `weights` and `bias`.
#ifndef LLTM_LEVEL
#error "include this from a level_*.cpp"
#endif

namespace lltm {
namespace LLTM_LEVEL {

template <typename T>
struct Step {
  using M = Memory<T>;
  using C = compute_t<T>;
  using V = Vector<C>;
  using Cells = CellMemory<T>;
  using Formulas = CellFormulas<VectorMath<C>>;

  static constexpr int kLanes = Lanes<C>::kCount;
  static constexpr int kBlock = kLanes > kTileRows ? kLanes : kTileRows;
  static constexpr int kTileColumns = kTileVectors * kLanes;  // columns of a tile
  static constexpr int64_t kChunk = 128 / kTileColumns * kTileColumns;
  static constexpr int64_t kDepth = 512;  // of a product, so that its operands stay in cache
  static constexpr int64_t kGroup = 8;    // tiles' widths whose sums are kept side by side
  static constexpr bool kPlain = sizeof(T) == sizeof(C);  // nothing to convert

  static LLTM_INLINE int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
  static LLTM_INLINE int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
  static LLTM_INLINE int64_t bytes(int64_t count) {
    return count * static_cast<int64_t>(sizeof(C));
  }
  // Columns of a tile over `columns`, in whole registers.
  static LLTM_INLINE int64_t width_of(int64_t columns) {
    return least(kTileColumns, ceiling(columns, kLanes) * kLanes);
  }
  static LLTM_INLINE V load_sum(const C* from) { return Memory<C>::load(from); }
  static LLTM_INLINE void store_sum(C* to, V value) { Memory<C>::store(to, value); }

  // ---- forward ----

  static int64_t forward_units(const lltm_step_sizes& sizes) {
    return ceiling(sizes.batch_size, kChunk) * ceiling(sizes.state_size, kBlock);
  }

  static int64_t forward_scratch(const lltm_step_sizes& sizes) {
    const int64_t rows = ceiling(least(sizes.batch_size, kChunk), kLanes) * kLanes;
    const int64_t depth = sizes.state_size + sizes.input_size;
    const int64_t converted = kPlain ? 0 : 3 * kBlock * least(depth, kDepth);
    return bytes(rows * (ceiling(depth, kLanes) * kLanes) + 3 * kBlock * rows + converted);
  }

  static void forward(const lltm_step_forward_arguments& arguments, void* scratch, int64_t begin,
                      int64_t end) {
    const Forward work(arguments, static_cast<C*>(scratch));
    int64_t packed = -1;
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t chunk = unit / work.blocks;
      const int64_t first = chunk * kChunk;
      const int64_t rows = least(kChunk, work.batch - first);
      const int64_t column = unit % work.blocks * kBlock;
      // Lanes without a batch entry compute in vain.
      const bool few = 2 * rows < kLanes;
      if (chunk != packed) few ? work.pack_rows(first, rows) : work.pack_transposed(first, rows);
      packed = chunk;
      few ? work.along_rows(first, rows, column) : work.across_rows(first, rows, column);
    }
  }

  struct Forward {
    const int64_t batch, state, features, depth, stride, blocks;
    const T *input, *weights, *bias, *old_h;
    const void* old_cell;
    T *gates, *new_h, *new_cell;
    const lltm_running_cell running;
    const bool addend;
    C *packed, *sums, *converted;

    LLTM_INLINE Forward(const lltm_step_forward_arguments& a, C* scratch)
        : batch(a.sizes.batch_size),
          state(a.sizes.state_size),
          features(a.sizes.input_size),
          depth(state + features),
          stride(a.sizes.weight_stride),
          blocks(ceiling(state, kBlock)),
          input(static_cast<const T*>(a.input)),
          weights(static_cast<const T*>(a.weights)),
          bias(static_cast<const T*>(a.bias)),
          old_h(static_cast<const T*>(a.old_h)),
          old_cell(a.running.old_cell != nullptr ? a.running.old_cell : a.old_cell),
          gates(static_cast<T*>(a.gates)),
          new_h(static_cast<T*>(a.new_h)),
          new_cell(static_cast<T*>(a.new_cell)),
          running(a.running),
          addend(a.gates_hold_addend != 0),
          packed(scratch) {
      const int64_t rows = ceiling(least(batch, kChunk), kLanes) * kLanes;
      sums = packed + rows * (ceiling(depth, kLanes) * kLanes);
      converted = sums + 3 * kBlock * rows;
    }

    // The pointwise part of one batch entry and up to kLanes columns; `z` without bias.
    LLTM_INLINE void finish(int64_t n, int64_t column, int64_t count, V (&z)[kGateCount],
                            const V (&biases)[kGateCount]) const {
#pragma GCC unroll 3
      for (int gate = 0; gate < kGateCount; ++gate) {
        z[gate] += biases[gate];
        if (gates == nullptr) continue;
        T* const at = gates + (n * kGateCount + gate) * state + column;
        if (addend) z[gate] += load(at, count);
        store(at, z[gate], count);
        // What backward will read is what forward computes with.
        if (!kPlain) z[gate] = load(at, count);
      }
      const int64_t at = n * state + column;
      const auto next =
          Formulas::forward(z[kInputGate], z[kOutputGate], z[kCandidate],
                            Cells::load(old_cell, running.old_cell != nullptr, at, count));
      store(new_cell + at, next.cell, count);
      if (running.new_cell != nullptr) Cells::store(running.new_cell, true, at, next.cell, count);
      store(new_h + at, next.h, count);
    }

    LLTM_INLINE void load_bias(int64_t column, int64_t count, V (&biases)[kGateCount]) const {
#pragma GCC unroll 3
      for (int gate = 0; gate < kGateCount; ++gate) {
        biases[gate] = bias == nullptr ? V{} : load(bias + gate * state + column, count);
      }
    }

    // packed[n][k]: [h, x] of each batch entry, with zeros up to a whole register.
    void pack_rows(int64_t first, int64_t rows) const {
      const int64_t padded = ceiling(depth, kLanes) * kLanes;
      for (int64_t n = 0; n < rows; ++n) {
        C* const to = packed + n * padded;
        for (int64_t k = depth; k < padded; ++k) to[k] = C(0);
        for (int64_t k = 0; k < state; ++k) to[k] = widen(old_h[(first + n) * state + k]);
        for (int64_t k = 0; k < features; ++k) {
          to[state + k] = widen(input[(first + n) * features + k]);
        }
      }
    }

    void along_rows(int64_t first, int64_t rows, int64_t column) const {
      const int64_t padded = ceiling(depth, kLanes) * kLanes;
      const int64_t last = least(column + kBlock, state);
      for (int64_t at = column; at < last; at += kLanes) {
        const int64_t count = least(kLanes, last - at);
        V biases[kGateCount];
        load_bias(at, count, biases);
        for (int64_t n = 0; n < rows; ++n) {
          V z[kGateCount];
          for (int gate = 0; gate < kGateCount; ++gate) {
            z[gate] = dot(weights + (gate * state + at) * stride, count, packed + n * padded);
          }
          finish(first + n, at, count, z, biases);
        }
      }
    }

    // The products of `count` <= kLanes rows of `weights` with one packed [h, x].
    LLTM_INLINE V dot(const T* rows, int64_t count, const C* x) const {
      V sum[kLanes] = {};
      const int64_t whole = depth / kLanes * kLanes;
      // Rows that are not there are the first one again.
      const int64_t limit = count - 1;
      const T* row[kLanes];
#pragma GCC unroll 16
      for (int m = 0; m < kLanes; ++m) row[m] = rows + (m < limit ? m : limit) * stride;
#pragma GCC unroll 1
      for (int64_t k = 0; k < whole; k += kLanes) {
        const V right = load_sum(x + k);
#pragma GCC unroll 16
        for (int m = 0; m < kLanes; ++m) sum[m] += M::load(row[m] + k) * right;
      }
      if (whole < depth) {
        const V right = load_sum(x + whole);
        for (int m = 0; m < kLanes; ++m) sum[m] += M::load(row[m] + whole, depth - whole) * right;
      }
      transpose<C>(sum);
#pragma GCC unroll 8
      for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
        for (int m = 0; m < half; ++m) sum[m] += sum[m + half];
      }
      return sum[0];
    }

    // packed[tile of batch entries][k][entry]
    void pack_transposed(int64_t first, int64_t rows) const {
      C* to = packed;
      for (int64_t n = 0; n < rows; n += kTileColumns) {
        const int64_t width = width_of(rows - n);
        for (int64_t lane = 0; lane < width; lane += kLanes) {
          const int64_t entry = first + n + lane;
          const int64_t count = least(kLanes, rows - n - lane);
          pack_half(old_h + entry * state, state, count, to + lane, width);
          pack_half(input + entry * features, features, count, to + state * width + lane, width);
        }
        to += depth * width;
      }
    }

    LLTM_INLINE void pack_half(const T* from, int64_t columns, int64_t count, C* to,
                               int64_t width) const {
      for (int64_t k = 0; k < columns; k += kLanes) {
        const int64_t ahead = least(kLanes, columns - k);
        V square[kLanes];
#pragma GCC unroll 16
        for (int m = 0; m < kLanes; ++m) {
          square[m] = m < count ? load(from + m * columns + k, ahead) : V{};
        }
        transpose<C>(square);
#pragma GCC unroll 16
        for (int m = 0; m < kLanes; ++m) {
          if (m < ahead) store_sum(to + (k + m) * width, square[m]);
        }
      }
    }

    void across_rows(int64_t first, int64_t rows, int64_t column) const {
      const int64_t columns = least(kBlock, state - column);
      for (int64_t from = 0; from < depth; from += kDepth) {
        const int64_t part = least(kDepth, depth - from);
        const C* left[kGateCount];
        int64_t left_stride = stride;
        for (int gate = 0; gate < kGateCount; ++gate) {
          const T* const rows_at = weights + (gate * state + column) * stride + from;
          if constexpr (kPlain) {
            left[gate] = rows_at;
          } else {
            left_stride = part;
            left[gate] = converted + gate * kBlock * part;
            for (int64_t m = 0; m < columns; ++m) {
              convert(rows_at + m * stride, part, converted + (gate * kBlock + m) * part);
            }
          }
        }
        const C* right = packed;
        for (int64_t n = 0; n < rows; n += kTileColumns) {
          const int64_t width = width_of(rows - n);
          C* const z = sums + 3 * kBlock * n;
          with_constant<kTileVectors>(width / kLanes, [&](auto vectors) {
            for (int gate = 0; gate < kGateCount; ++gate) {
              // Narrow tiles are higher, to have as many sums.
              constexpr int kRows = decltype(vectors)::value == 1 && kBlock >= 2 * kTileRows
                                        ? 2 * kTileRows
                                        : kTileRows;
              for (int64_t m = 0; m < columns; m += kRows) {
                with_constant<kRows>(columns - m, [&](auto tile_rows) {
                  add_products<decltype(tile_rows)::value, decltype(vectors)::value>(
                      left[gate] + m * left_stride, left_stride, right + from * width, part,
                      from == 0, z + (gate * kBlock + m) * width);
                });
              }
            }
          });
          right += depth * width;
          if (from + part == depth) finish_tile(first + n, rows - n, width, column, columns, z);
        }
      }
    }

    static LLTM_INLINE void convert(const T* from, int64_t count, C* to) {
      int64_t k = 0;
      for (; k + kLanes <= count; k += kLanes) store_sum(to + k, M::load(from + k));
      for (; k < count; ++k) to[k] = widen(from[k]);
    }

    template <int tile_rows, int vectors>
    static LLTM_INLINE void add_products(const C* left, int64_t left_stride, const C* right,
                                         int64_t part, bool is_first, C* z) {
      Tile<C, tile_rows, vectors> sum = {};
      multiply<C, tile_rows, vectors>(part, left, left_stride, 1, right, vectors * kLanes, sum);
#pragma GCC unroll 16
      for (int m = 0; m < tile_rows; ++m) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) {
          C* const at = z + (m * vectors + v) * kLanes;
          store_sum(at, is_first ? sum[m][v] : sum[m][v] + load_sum(at));
        }
      }
    }

    // The pointwise part of a tile of batch entries, from z[gate][column][entry].
    void finish_tile(int64_t first, int64_t rows, int64_t width, int64_t column, int64_t columns,
                     const C* z) const {
      for (int64_t lane = 0; lane < least(rows, width); lane += kLanes) {
        const int64_t entries = least(kLanes, rows - lane);
        for (int64_t from = 0; from < columns; from += kLanes) {
          const int64_t count = least(kLanes, columns - from);
          V turned[kGateCount][kLanes];
          for (int gate = 0; gate < kGateCount; ++gate) {
            V square[kLanes];
#pragma GCC unroll 16
            for (int m = 0; m < kLanes; ++m) {
              square[m] = m < count ? load_sum(z + (gate * kBlock + from + m) * width + lane) : V{};
            }
            transpose<C>(square);
#pragma GCC unroll 16
            for (int m = 0; m < kLanes; ++m) turned[gate][m] = square[m];
          }
          V biases[kGateCount];
          load_bias(column + from, count, biases);
          for (int64_t n = 0; n < entries; ++n) {
            V values[kGateCount] = {turned[0][n], turned[1][n], turned[2][n]};
            finish(first + lane + n, column + from, count, values, biases);
          }
        }
      }
    }
  };

  // ---- backward ----

  // Threads share dz[gate][block][n][column of the block], and [h, x] as
  // [tile of columns][n][column of the tile], those of h first.

  static int64_t backward_units(const lltm_step_sizes& sizes) {
    return ceiling(sizes.state_size, kBlock);
  }
  static int64_t dz_size(const lltm_step_sizes& sizes) {
    return bytes(3 * backward_units(sizes) * kBlock * sizes.batch_size);
  }
  static int64_t right_size(const lltm_step_sizes& sizes) {
    const int64_t lanes = ceiling(sizes.state_size, kLanes) + ceiling(sizes.input_size, kLanes);
    return bytes(lanes * kLanes * sizes.batch_size);
  }
  static int64_t own_dz_size(const lltm_step_sizes& sizes) {
    return bytes(3 * kBlock * sizes.batch_size);
  }
  static int64_t right_units(const lltm_step_sizes& sizes) {
    return ceiling(sizes.state_size, kTileColumns) + ceiling(sizes.input_size, kTileColumns);
  }

  // Packs tiles [begin, end) of [h, x].
  static void pack_right(const lltm_step_backward_arguments& a, void* right, int64_t begin,
                         int64_t end) {
    const int64_t of_h = ceiling(a.sizes.state_size, kTileColumns);
    for (int64_t unit = begin; unit < end; ++unit) {
      const bool is_h = unit < of_h;
      const T* const from = static_cast<const T*>(is_h ? a.old_h : a.input);
      const int64_t columns = is_h ? a.sizes.state_size : a.sizes.input_size;
      const int64_t column = (is_h ? unit : unit - of_h) * kTileColumns;
      const int64_t width = width_of(columns - column);
      C* to = static_cast<C*>(right) + right_offset(a.sizes, is_h, column);
      for (int64_t n = 0; n < a.sizes.batch_size; ++n) {
        for (int64_t lane = 0; lane < width; lane += kLanes) {
          const int64_t at = column + lane;
          store_sum(to + lane, load(from + n * columns + at, columns - at));
        }
        to += width;
      }
    }
  }

  static LLTM_INLINE int64_t right_offset(const lltm_step_sizes& sizes, bool is_h, int64_t column) {
    const int64_t before = is_h ? 0 : ceiling(sizes.state_size, kLanes) * kLanes;
    return (before + column) * sizes.batch_size;
  }

  // dz of blocks [begin, end), and all that needs no other block.
  static void backward(const lltm_step_backward_arguments& a, const StepShared& shared,
                       void* own_dz, int64_t begin, int64_t end) {
    const int64_t batch = a.sizes.batch_size;
    const int64_t blocks = backward_units(a.sizes);
    for (int64_t block = begin; block < end; ++block) {
      C* const dz = shared.dz == nullptr ? static_cast<C*>(own_dz)
                                         : static_cast<C*>(shared.dz) + block * batch * kBlock;
      const int64_t between = shared.dz == nullptr ? batch * kBlock : blocks * batch * kBlock;
      make_dz(a, block * kBlock, dz, between);
      if (a.d_weights != nullptr) make_d_weights(a, shared, block * kBlock, dz, between);
    }
  }

  static void make_dz(const lltm_step_backward_arguments& a, int64_t column, C* dz,
                      int64_t between) {
    const int64_t state = a.sizes.state_size;
    for (int64_t from = 0; from < kBlock; from += kLanes) {
      const int64_t first = column + from;
      C* const to = dz + from;
      if (first >= state) {  // a block's columns beyond the state count as zero
        for (int64_t n = 0; n < a.sizes.batch_size; ++n) {
          for (int gate = 0; gate < kGateCount; ++gate) {
            store_sum(to + gate * between + n * kBlock, V{});
          }
        }
        continue;
      }
      make_dz_register(a, first, least(kLanes, state - first), to, between);
    }
  }

  // dz of up to kLanes columns, for the whole batch.
  static LLTM_INLINE void make_dz_register(const lltm_step_backward_arguments& a, int64_t first,
                                           int64_t count, C* to, int64_t between) {
    const int64_t state = a.sizes.state_size;
    const auto at_or_null = [&](const void* data, int64_t offset) {
      return data == nullptr ? nullptr : static_cast<const T*>(data) + offset;
    };
    V sums[kGateCount] = {};
    for (int64_t n = 0; n < a.sizes.batch_size; ++n) {
      const int64_t at = n * state + first;
      const int64_t gates_at = kGateCount * n * state + first;
      const auto or_zero = [&](const T* from_row) {
        return from_row == nullptr ? V{} : load(from_row, count);
      };
      V grad_h = or_zero(at_or_null(a.grad_h, at));
      if (a.more_grad_h != nullptr) grad_h += load(at_or_null(a.more_grad_h, at), count);
      V grad_cell = or_zero(at_or_null(a.grad_cell, at));
      if (a.more_grad_cell != nullptr) {
        grad_cell += Cells::load(a.more_grad_cell, a.float32.more_grad_cell != 0, at, count);
      }
      const T* const gates = static_cast<const T*>(a.gates) + gates_at;
      auto d = Formulas::backward(grad_h, grad_cell, load(gates, count), load(gates + state, count),
                                  load(gates + 2 * state, count),
                                  load(static_cast<const T*>(a.new_cell) + at, count));
#pragma GCC unroll 3
      for (int gate = 0; gate < kGateCount; ++gate) {
        if (a.grad_gates != nullptr) {
          d.z[gate] += load(at_or_null(a.grad_gates, gates_at + gate * state), count);
        }
        store_sum(to + gate * between + n * kBlock, d.z[gate]);
        sums[gate] += d.z[gate];
        if (a.d_gates != nullptr) {
          store(static_cast<T*>(a.d_gates) + gates_at + gate * state, d.z[gate], count);
        }
      }
      if (a.d_old_cell != nullptr) {
        Cells::store(a.d_old_cell, a.float32.d_old_cell != 0, at, d.old_cell, count);
      }
    }
    if (a.d_bias != nullptr) {
      for (int gate = 0; gate < kGateCount; ++gate) {
        store(static_cast<T*>(a.d_bias) + gate * state + first, sums[gate], count);
      }
    }
  }

  static void make_d_weights(const lltm_step_backward_arguments& a, const StepShared& shared,
                             int64_t column, const C* dz, int64_t between) {
    const int64_t state = a.sizes.state_size;
    const int64_t rows = least(kBlock, state - column);
    const int64_t stride = state + a.sizes.input_size;
    // Of the two operands, what stays in cache is the one that the inner loop goes through; where
    // both would, rows are written in long runs.
    constexpr int64_t kCache = 256 * 1024;
    const bool along = bytes(a.sizes.batch_size * stride) <= kCache;
    for (int half = 0; half < 2; ++half) {
      const int64_t columns = half == 0 ? state : a.sizes.input_size;
      const C* const right =
          static_cast<const C*>(shared.right) + right_offset(a.sizes, half == 0, 0);
      T* const to = static_cast<T*>(a.d_weights) + column * stride + (half == 0 ? 0 : state);
      const int64_t run = along ? columns : kTileColumns;  // columns of the inner loop
      for (int64_t first = 0; first < columns; first += run) {
        for (int gate = 0; gate < kGateCount; ++gate) {
          for (int64_t m = 0; m < rows; m += kTileRows) {
            const C* const left = dz + gate * between + m;
            T* const row = to + (gate * state + m) * stride;
            int64_t from = first;
            for (; from + kTileColumns <= least(first + run, columns); from += kTileColumns) {
              d_weights_tile<kTileVectors>(a, left, right, from, row, stride, rows - m, columns);
            }
            if (from < least(first + run, columns)) {
              with_constant<kTileVectors>(width_of(columns - from) / kLanes, [&](auto vectors) {
                d_weights_tile<decltype(vectors)::value>(a, left, right, from, row, stride,
                                                         rows - m, columns);
              });
            }
          }
        }
      }
    }
  }

  template <int vectors>
  static LLTM_INLINE void d_weights_tile(const lltm_step_backward_arguments& a, const C* left,
                                         const C* right, int64_t from, T* row, int64_t stride,
                                         int64_t rows, int64_t columns) {
    // Rows beyond the state are zeros of dz: computed, not stored.
    Tile<C, kTileRows, vectors> sum = {};
    multiply<C, kTileRows, vectors>(a.sizes.batch_size, left, 1, kBlock,
                                    right + from * a.sizes.batch_size, vectors * kLanes, sum);
    store_tile<kTileRows, vectors>(sum, row + from, stride, rows, columns - from);
  }

  template <int tile_rows, int vectors>
  static LLTM_INLINE void store_tile(const Tile<C, tile_rows, vectors>& sum, T* to, int64_t stride,
                                     int64_t rows, int64_t columns) {
    if (rows >= tile_rows && columns >= vectors * kLanes) {
#pragma GCC unroll 8
      for (int m = 0; m < tile_rows; ++m) {
#pragma GCC unroll 8
        for (int v = 0; v < vectors; ++v) M::store(to + m * stride + v * kLanes, sum[m][v]);
      }
      return;
    }
    // Through memory, so that the registers of the usual way need no address.
    alignas(sizeof(V)) C values[tile_rows * vectors * kLanes];
    put_tile<tile_rows, vectors>(sum, values, vectors * kLanes);
    for (int64_t m = 0; m < least(tile_rows, rows); ++m) {
      for (int64_t lane = 0; lane < least(vectors * kLanes, columns); lane += kLanes) {
        store(to + m * stride + lane, load_sum(values + m * vectors * kLanes + lane),
              columns - lane);
      }
    }
  }

  template <int tile_rows, int vectors>
  static LLTM_INLINE void put_tile(const Tile<C, tile_rows, vectors>& sum, C* to, int64_t stride) {
#pragma GCC unroll 8
    for (int m = 0; m < tile_rows; ++m) {
#pragma GCC unroll 8
      for (int v = 0; v < vectors; ++v) store_sum(to + m * stride + v * kLanes, sum[m][v]);
    }
  }

  // d_old_h and d_input: dz times `weights`, in units of kChunk batch entries by one tile of
  // columns. A thread takes neighbouring units together: it then reads long runs of `weights`.
  static int64_t tiles_of_h(const lltm_step_backward_arguments& a) {
    return a.d_old_h == nullptr ? 0 : ceiling(a.sizes.state_size, kTileColumns);
  }
  static int64_t tiles_of_input(const lltm_step_backward_arguments& a) {
    return a.d_input == nullptr ? 0 : ceiling(a.sizes.input_size, kTileColumns);
  }
  static int64_t left_units(const lltm_step_backward_arguments& a) {
    return ceiling(a.sizes.batch_size, kChunk) * (tiles_of_h(a) + tiles_of_input(a));
  }
  // Tiles whose sums are kept side by side in the cache.
  static int64_t tiles_together(int64_t rows) { return kGroup * (kChunk / rows); }
  static int64_t left_scratch(const lltm_step_sizes& sizes) {
    const int64_t rows = least(kChunk, sizes.batch_size);
    const int64_t tiles = least(tiles_together(rows), ceiling(sizes.state_size, kTileColumns) +
                                                          ceiling(sizes.input_size, kTileColumns));
    return bytes(kTileColumns * (tiles * rows + kDepth));
  }

  static void backward_left(const lltm_step_backward_arguments& a, const void* dz, void* scratch,
                            int64_t begin, int64_t end) {
    const int64_t of_h = tiles_of_h(a);
    const int64_t tiles = of_h + tiles_of_input(a);
    for (int64_t unit = begin; unit < end;) {
      const int64_t first = unit / tiles * kChunk;
      const int64_t rows = least(kChunk, a.sizes.batch_size - first);
      const int64_t tile = unit % tiles;
      const bool is_h = tile < of_h;
      const int64_t same = (is_h ? of_h : tiles) - tile;  // of this half and these batch entries
      const int64_t together = least(least(end - unit, same), tiles_together(rows));
      left_unit(a, static_cast<const C*>(dz), static_cast<C*>(scratch), first, rows, is_h,
                (is_h ? tile : tile - of_h) * kTileColumns, together * kTileColumns);
      unit += together;
    }
  }

  static void left_unit(const lltm_step_backward_arguments& a, const C* dz, C* scratch,
                        int64_t first, int64_t rows, bool is_h, int64_t column, int64_t reach) {
    const int64_t batch = a.sizes.batch_size;
    const int64_t state = a.sizes.state_size;
    const int64_t blocks = backward_units(a.sizes);
    const int64_t columns = is_h ? state : a.sizes.input_size;
    const int64_t stride = a.sizes.weight_stride;
    const int64_t last = least(column + reach, columns);
    T* const to = static_cast<T*>(is_h ? a.d_old_h : a.d_input);
    const T* const weights = static_cast<const T*>(a.weights) + (is_h ? 0 : state);
    C* const packed = scratch;
    C* const kept = scratch + kTileColumns * kDepth;
    // Few batch entries are not worth a copy of `weights`; its rows are then read in step, a few at
    // a time, so that what comes from memory comes in long runs.
    const bool pack = rows > 4 * kTileRows;
    const int64_t part = (pack ? kDepth : 32) / kBlock;  // blocks of dz, that is of rows of weights
    for (int64_t begin = 0; begin < 3 * blocks; begin += part) {
      const int64_t end = least(begin + part, 3 * blocks);
      for (int64_t from = column; from < last; from += kTileColumns) {
        const int64_t width = width_of(last - from);
        const bool direct = kPlain && !pack && last - from >= width;
        if (!direct) {
          C* row = packed;
          for (int64_t q = begin; q < end; ++q) {
            const int64_t in_gate = q % blocks * kBlock;
            const T* source = weights + (q / blocks * state + in_gate) * stride + from;
            for (int64_t k = 0; k < least(kBlock, state - in_gate); ++k, source += stride) {
              for (int64_t lane = 0; lane < width; lane += kLanes) {
                store_sum(row + lane, load(source + lane, last - from - lane));
              }
              row += width;
            }
          }
        }
        C* const kept_here = kept + (from - column) * rows;
        with_constant<kTileVectors>(width / kLanes, [&](auto vectors) {
          for (int64_t n = 0; n < rows; n += kTileRows) {
            with_constant<kTileRows>(rows - n, [&](auto tile_rows) {
              constexpr int kRows = decltype(tile_rows)::value;
              constexpr int kVectors = decltype(vectors)::value;
              Tile<C, kRows, kVectors> sum = {};
              if (begin > 0) {
#pragma GCC unroll 8
                for (int m = 0; m < kRows; ++m) {
#pragma GCC unroll 8
                  for (int v = 0; v < kVectors; ++v) {
                    sum[m][v] = load_sum(kept_here + (n + m) * width + v * kLanes);
                  }
                }
              }
              const C* row = packed;
              for (int64_t q = begin; q < end; ++q) {
                const int64_t in_gate = q % blocks * kBlock;
                const int64_t depth = least(kBlock, state - in_gate);
                const C* right = row;
                if constexpr (kPlain) {
                  if (direct) right = weights + (q / blocks * state + in_gate) * stride + from;
                }
                multiply<C, kRows, kVectors>(depth, dz + (q * batch + first + n) * kBlock, kBlock,
                                             1, right, direct ? stride : width, sum);
                row += depth * width;
              }
              if (end == 3 * blocks) {
                store_tile<kRows, kVectors>(sum, to + (first + n) * columns + from, columns, kRows,
                                            last - from);
              } else {
                put_tile<kRows, kVectors>(sum, kept_here + n * width, width);
              }
            });
          }
        });
      }
    }
  }

  static constexpr StepKernels kernels() {
    return {forward_units, forward_scratch, forward,      right_units, right_size,
            pack_right,    backward_units,  dz_size,      own_dz_size, backward,
            left_units,    left_scratch,    backward_left};
  }
};

}  // namespace LLTM_LEVEL
}  // namespace lltm
