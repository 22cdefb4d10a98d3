// One whole LLTM step with its products, in units that are divided among threads.
//
// A unit of forward is one block of the state's columns with all three gates, for one chunk of the
// batch. Forward computes z transposed: it reads `weights` one number at a time, converted if it
// has 16 bits, and multiplies the number by a register of batch entries of a packed [h, x]. For few
// batch entries, forward computes dot products along the rows of `weights` instead. Backward
// computes dz and the bias's gradient, then the products of dz.

namespace lltm::LLTM_LEVEL {

// The columns of the state in a block.
template <typename C>
constexpr int kBlockColumns = Lanes<C>::kCount > kTileRows ? Lanes<C>::kCount : kTileRows;

// Multiplies `depth` terms of a block of `columns` rows of the weights of each gate with a tile of
// batch entries, `width` wide. Stores or, with `adds`, adds the products to z[gate][column][entry].
template <typename C>
LLTM_SHARED void multiply_gates(const C* const (&weights)[kGateCount], int64_t stride,
                                const C* entries, int64_t columns, int64_t depth, int64_t width,
                                bool adds, C* z) {
  with_constant<kTileVectors>(width / Lanes<C>::kCount, [&](auto vectors) {
    constexpr int kVectors = decltype(vectors)::value;
    // A tile one register wide has up to 2 * kTileRows rows, to hide latencies.
    constexpr int kRows = (kVectors == 1 && kBlockColumns<C> > kTileRows ? 2 : 1) * kTileRows;
    for (int gate = 0; gate < kGateCount; ++gate) {
      for (int64_t m = 0; m < columns; m += kRows) {
        with_constant<kRows>(columns - m, [&](auto rows) {
          Tile<C, rows, kVectors> sum = {};
          multiply(depth, weights[gate] + m * stride, stride, 1, entries, width, sum);
          C* const to = z + (gate * kBlockColumns<C> + m) * width;
          if (adds) add_tile(to, width, sum);
          store_whole_tile(sum, to, width);
        });
      }
    }
  });
}

template <typename T>
struct Step {
  using C = compute_t<T>;
  using V = Vector<C>;

  static constexpr int kLanes = Lanes<C>::kCount;
  static constexpr int kBlock = kBlockColumns<C>;
  static constexpr int kTileColumns = kTileVectors * kLanes;  // columns of a tile
  static constexpr int64_t kChunk = 128 / kTileColumns * kTileColumns;
  static constexpr int64_t kDepth = 512;  // the most terms of a sum whose operands stay in cache
  static constexpr int kEntries = 3;      // batch entries that share a read of the weights
  static constexpr bool kHas16Bits = sizeof(T) == 2;  // operands must be converted

  static const char* forward(const lltm_step_forward_arguments& arguments,
                             const lltm_execution& execution) {
    const lltm_step_sizes& sizes = arguments.sizes;
    const int64_t units = ceiling(sizes.batch_size, kChunk) * blocks_of(sizes);
    const int64_t products_of_entry = products_of(sizes) / sizes.batch_size;
    const int64_t cost = products_of_entry * (sizes.batch_size + kCostOfElement);
    return in_parallel_with_memory(units, grain_of(cost / units), Forward::scratch_bytes(sizes),
                                   execution, [&](void* memory, int64_t begin, int64_t end) {
                                     Forward{arguments, static_cast<C*>(memory)}.run(begin, end);
                                   });
  }

  static const char* backward(const lltm_step_backward_arguments& a,
                              const lltm_execution& execution) {
    const lltm_step_sizes& sizes = a.sizes;
    const int64_t batch = sizes.batch_size;
    const int64_t depth = kGateCount * sizes.state_size;
    Scratch shared(bytes(dz_stride(sizes) * batch));
    if (shared.data() == nullptr) return kNoMemory;
    C* const dz = static_cast<C*>(shared.data());  // (B, 3S) with rows dz_stride apart

    // An element of the pointwise part costs about as much as 16 multiplications.
    in_parallel(ceiling(sizes.state_size, kLanes), grain_of(16 * batch * kLanes), execution,
                [&](int64_t begin, int64_t end) { make_dz(a, dz, begin, end); });
    // A product of two views: `weights` and d_weights hold the columns of h first, then those of x.
    const T* const weights = static_cast<const T*>(a.weights);
    const int64_t columns = sizes.state_size + sizes.input_size;
    const auto products = [&](const void* right, void* d_right, int64_t first, int64_t count) {
      const char* error = nullptr;
      Product<T> product = {};
      product.columns = count;
      product.left = dz;
      product.left_stride = dz_stride(sizes);
      if (a.d_weights != nullptr) {
        product.rows = depth;
        product.depth = batch;
        product.left_transposed = 1;
        product.right = right;
        product.right_stride = count;
        product.to = static_cast<T*>(a.d_weights) + first;
        product.to_stride = columns;
        error = product.run(execution);
      }
      if (error != nullptr || d_right == nullptr) return error;
      product.rows = batch;
      product.depth = depth;
      product.left_transposed = 0;
      product.right = weights + first;
      product.right_stride = sizes.weight_stride;
      product.to = d_right;
      product.to_stride = count;
      return product.run(execution);
    };
    const char* const error = products(a.old_h, a.d_old_h, 0, sizes.state_size);
    if (error != nullptr) return error;
    return products(a.input, a.d_input, sizes.state_size, sizes.input_size);
  }

 private:
  // ---- sizes ----

  static int64_t bytes(int64_t count) { return count * static_cast<int64_t>(sizeof(C)); }
  static int64_t blocks_of(const lltm_step_sizes& sizes) {
    return ceiling(sizes.state_size, kBlock);
  }

  // Returns the number of elements from one row of dz to the next. They fill an odd number of cache
  // lines, so that neighbouring rows do not compete for one part of a cache.
  static int64_t dz_stride(const lltm_step_sizes& sizes) {
    constexpr int64_t kLine = 64 / sizeof(C);
    return (ceiling(kGateCount * sizes.state_size, kLine) | 1) * kLine;
  }

  // ---- forward ----

  struct Forward {
    const lltm_step_forward_arguments a;
    C* const packed;
    const int64_t state = a.sizes.state_size;
    const int64_t features = a.sizes.input_size;
    const int64_t depth = state + features;
    const int64_t padded_depth = round_up(depth, kLanes);
    const int64_t stride = a.sizes.weight_stride;
    const int64_t blocks = blocks_of(a.sizes);
    const bool adds_gates = a.gates_hold_addend != 0;
    const T* const weights = static_cast<const T*>(a.weights);
    const T* const h = static_cast<const T*>(a.old_h);
    const T* const x = static_cast<const T*>(a.input);
    C* const sums = packed + packed_rows(a.sizes) * padded_depth;
    C* const converted = sums + 3 * kBlock * packed_rows(a.sizes);

    // Runs units [begin, end).
    void run(int64_t begin, int64_t end) const {
      int64_t packed_chunk = -1;
      for (int64_t unit = begin; unit < end; ++unit) {
        const int64_t chunk = unit / blocks;
        const int64_t first = chunk * kChunk;
        const int64_t rows = least(kChunk, a.sizes.batch_size - first);
        const int64_t column = unit % blocks * kBlock;
        // With few batch entries, most lanes of a register would be unused in across_rows.
        const bool few = 2 * rows < kLanes;
        if (chunk != packed_chunk) few ? pack_entries(first, rows) : pack_columns(first, rows);
        packed_chunk = chunk;
        few ? along_rows(first, rows, column) : across_rows(first, rows, column);
      }
    }

    static int64_t packed_rows(const lltm_step_sizes& sizes) {
      return round_up(least(sizes.batch_size, kChunk), kLanes);
    }
    static int64_t scratch_bytes(const lltm_step_sizes& sizes) {
      const int64_t depth = sizes.state_size + sizes.input_size;
      const int64_t per_row = round_up(depth, kLanes) + 3 * kBlock;
      const int64_t converted = kHas16Bits ? 3 * kBlock * least(depth, kDepth) + kLanes : 0;
      return bytes(packed_rows(sizes) * per_row + converted);
    }

    // packed[n][k]: [h, x] of each batch entry, with zeros up to a whole register
    void pack_entries(int64_t first, int64_t rows) const {
      C* to = packed;
      for (int64_t n = first; n < first + rows; ++n, to += padded_depth) {
        load_row(h + n * state, state, to, state);
        load_row(x + n * features, features, to + state, padded_depth - state);
      }
    }

    void along_rows(int64_t first, int64_t rows, int64_t column) const {
      const int64_t last = least(column + kBlock, state);
      for (int64_t at = column; at < last; at += kLanes) {
        const int64_t count = least(kLanes, last - at);
        for (int64_t n = 0; n < rows; n += kEntries) {
          with_constant<kEntries>(rows - n, [&](auto entries) {
            V z[entries][kGateCount];
            for (int gate = 0; gate < kGateCount; ++gate) {
              const V bias = load_or_zero<T>(a.bias, gate * state + at, count);
              dots<entries>(weights + (gate * state + at) * stride, count,
                            packed + n * padded_depth, bias, gate, z);
            }
            for (int m = 0; m < entries; ++m) {
              Pointwise<T>::finish_forward(a, first + n + m, at, count, adds_gates, true, z[m]);
            }
          });
        }
      }
    }

    // Sets z[entry][gate] to the bias plus the products of `count` <= kLanes rows of `weights` with
    // the packed [h, x] of `entries` batch entries.
    template <int entries>
    LLTM_INLINE void dots(const T* rows, int64_t count, const C* entry, V bias, int gate,
                          V (&z)[entries][kGateCount]) const {
      constexpr int kRows = entries > 1 && kTileRows < kLanes ? kTileRows : kLanes;
      const int64_t whole = depth / kLanes * kLanes;
      const int64_t limit = count - 1;
      V sums[entries][kLanes];
      for (int from = 0; from < kLanes; from += kRows) {
        V sum[entries][kRows] = {};
        const T* row[kRows];  // rows past the last row repeat the last row
#pragma GCC unroll 16
        for (int m = 0; m < kRows; ++m) row[m] = rows + least(from + m, limit) * stride;
        const auto add = [&](int64_t k, int64_t columns) {
          V right[entries];
#pragma GCC unroll 4
          for (int n = 0; n < entries; ++n) right[n] = load(entry + n * padded_depth + k);
#pragma GCC unroll 16
          for (int m = 0; m < kRows; ++m) {
            const V left = load(row[m] + k, columns);
#pragma GCC unroll 4
            for (int n = 0; n < entries; ++n) sum[n][m] += left * right[n];
          }
        };
#pragma GCC unroll 1
        for (int64_t k = 0; k < whole; k += kLanes) add(k, kLanes);
        if (whole < depth) add(whole, depth - whole);
#pragma GCC unroll 4
        for (int n = 0; n < entries; ++n) {
#pragma GCC unroll 16
          for (int m = 0; m < kRows; ++m) sums[n][from + m] = sum[n][m];
        }
      }
#pragma GCC unroll 4
      for (int n = 0; n < entries; ++n) {
        transpose<C>(sums[n]);
#pragma GCC unroll 8
        for (int half = kLanes / 2; half > 0; half /= 2) {
#pragma GCC unroll 16
          for (int m = 0; m < half; ++m) sums[n][m] += sums[n][m + half];
        }
        z[n][gate] = sums[n][0] + bias;
      }
    }

    // packed[tile of batch entries][k][entry]
    void pack_columns(int64_t first, int64_t rows) const {
      C* to = packed;
      for (int64_t n = 0; n < rows; n += kTileColumns) {
        const int64_t width = tile_width<C>(rows - n);
        for (int64_t lane = 0; lane < width; lane += kLanes) {
          const int64_t entry = first + n + lane;
          const int64_t count = rows - n - lane;
          pack_transposed(h + entry * state, state, count, state, to + lane, width);
          pack_transposed(x + entry * features, features, count, features,
                          to + state * width + lane, width);
        }
        to += depth * width;
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
          if constexpr (!kHas16Bits) {
            left[gate] = rows_at;
          } else {
            left_stride = part;
            left[gate] = converted + gate * kBlock * part;
            pack_rows(rows_at, stride, columns, part, converted + gate * kBlock * part, part);
          }
        }
        const C* right = packed;
        for (int64_t n = 0; n < rows; n += kTileColumns) {
          const int64_t width = tile_width<C>(rows - n);
          C* const z = sums + 3 * kBlock * n;
          multiply_gates(left, left_stride, right + from * width, columns, part, width, from > 0,
                         z);
          right += depth * width;
          if (from + part == depth) finish_tile(first + n, rows - n, width, column, columns, z);
        }
      }
    }

    // Runs the pointwise part of a tile of batch entries, from z[gate][column][entry].
    void finish_tile(int64_t first, int64_t rows, int64_t width, int64_t column, int64_t columns,
                     const C* z) const {
      for (int64_t lane = 0; lane < least(rows, width); lane += kLanes) {
        const int64_t entries = least(kLanes, rows - lane);
        for (int64_t from = 0; from < columns; from += kLanes) {
          const int64_t count = least(kLanes, columns - from);
          alignas(64) C turned[kGateCount][kLanes][kLanes];
          V bias[kGateCount];
          for (int gate = 0; gate < kGateCount; ++gate) {
            pack_square(z + (gate * kBlock + from) * width + lane, width, count, kLanes,
                        turned[gate][0], kLanes);
            bias[gate] = load_or_zero<T>(a.bias, gate * state + column + from, count);
          }
          for (int64_t n = 0; n < entries; ++n) {
            V values[kGateCount];
#pragma GCC unroll 3
            for (int gate = 0; gate < kGateCount; ++gate) {
              values[gate] = load(turned[gate][n]) + bias[gate];
            }
            Pointwise<T>::finish_forward(a, first + lane + n, column + from, count, adds_gates,
                                         true, values);
          }
        }
      }
    }
  };

  // ---- backward ----

  // Computes dz and d_bias of registers [begin, end) of the state, for the whole batch.
  static void make_dz(const lltm_step_backward_arguments& arguments, C* dz, int64_t begin,
                      int64_t end) {
    const lltm_step_backward_arguments a = arguments;  // a copy that no store below can change
    const int64_t state = a.sizes.state_size;
    for (int64_t first = begin * kLanes; first < least(end * kLanes, state); first += kLanes) {
      const int64_t count = least(kLanes, state - first);
      V sums[kGateCount] = {};
      C* to = dz + first;
      for (int64_t n = 0; n < a.sizes.batch_size; ++n, to += dz_stride(a.sizes)) {
        const auto d = Pointwise<T>::backward_register(a, n, first, count);
#pragma GCC unroll 3
        for (int gate = 0; gate < kGateCount; ++gate) {
          store(to + gate * state, d.z[gate], count);
          sums[gate] += d.z[gate];
        }
      }
      if (a.d_bias == nullptr) continue;
      for (int gate = 0; gate < kGateCount; ++gate) {
        store(static_cast<T*>(a.d_bias) + gate * state + first, sums[gate], count);
      }
    }
  }
};

}  // namespace lltm::LLTM_LEVEL
