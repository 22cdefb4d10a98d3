// A whole sequence for some rows of the batch: no thread waits for another, so the loop over time
// is inside. The columns of the weights that belong to h are packed once a call, in the order in
// which the products read them.
#ifndef LLTM_LEVEL
#error "include this from a level_*.cpp"
#endif

namespace lltm {
namespace LLTM_LEVEL {

template <typename T>
struct Sequence {
  using C = compute_t<T>;
  using M = Memory<T>;
  using Formulas = CellFormulas<VectorMath<C>>;
  static constexpr int64_t kLanes = Lanes<C>::kCount;
  static constexpr int64_t kTileColumns = kTileVectors * kLanes;
  static constexpr bool kNarrows = sizeof(T) != sizeof(C);

  // Narrow types would have to be widened first, and torch has GEMMs for them.
  static constexpr bool kMakesAllProducts = !kNarrows;

  static LLTM_INLINE int64_t time_of(const lltm_layer_sizes& sizes, int64_t step) {
    return sizes.reverse != 0 ? sizes.steps - 1 - step : step;
  }
  static int64_t input_size(const lltm_layer_sizes& sizes) {
    return sizes.weight_stride - sizes.state_size;
  }
  static int64_t packed_columns(const lltm_layer_sizes& sizes) {
    return kMakesAllProducts ? sizes.weight_stride : sizes.state_size;
  }

  static int64_t round_up(int64_t value, int64_t unit) { return (value + unit - 1) / unit * unit; }

  // The workspace in its parts, each on a cache line of its own; with no workspace, their size.
  class Parts {
   public:
    explicit Parts(void* workspace) : next_(reinterpret_cast<uintptr_t>(workspace)) {
      next_ = (next_ + 63) / 64 * 64;
    }
    C* take(int64_t count) {
      C* const part = reinterpret_cast<C*>(next_);
      next_ += static_cast<uintptr_t>(count) * sizeof(C);
      next_ = (next_ + 63) / 64 * 64;
      return part;
    }
    int64_t bytes() const { return static_cast<int64_t>(next_) + 64; }

   private:
    uintptr_t next_;
  };

  // Forward: a panel holds kLanes columns of every gate.
  struct Forward {
    int64_t stride;  // of a row of the states
    C* panels;       // (blocks, columns of the weights, 3, kLanes)
    C* states[2];    // (B, stride): h in turns
    C* cell;         // (B, stride)
    int64_t bytes;

    Forward(const lltm_layer_sizes& sizes, void* workspace)
        : stride(round_up(sizes.state_size, kLanes)) {
      Parts parts(workspace);
      panels = parts.take(stride * packed_columns(sizes) * kGateCount);
      states[0] = parts.take(sizes.batch_size * stride);
      states[1] = parts.take(sizes.batch_size * stride);
      cell = parts.take(sizes.batch_size * stride);
      bytes = parts.bytes();
    }
  };

  // Backward: a panel holds kTileColumns columns, for every row of the weights.
  struct Backward {
    int64_t stride;
    C* panels;   // (blocks, 3S, kTileColumns): columns of h, then columns of x
    C* d_h;      // (B, stride)
    C* d_cell;   // (B, stride)
    C* d_gates;  // (B, 3S), where those that are stored are too narrow to multiply with
    int64_t bytes;

    Backward(const lltm_layer_sizes& sizes, void* workspace)
        : stride(round_up(sizes.state_size, kTileColumns)) {
      Parts parts(workspace);
      panels = parts.take(backward_panels(sizes) * kTileColumns * sizes.state_size * kGateCount);
      d_h = parts.take(sizes.batch_size * stride);
      d_cell = parts.take(sizes.batch_size * stride);
      d_gates = parts.take(kNarrows ? sizes.batch_size * kGateCount * sizes.state_size : 0);
      bytes = parts.bytes();
    }
  };

  static int64_t forward_bytes(const lltm_layer_sizes& sizes) {
    return Forward(sizes, nullptr).bytes;
  }
  static int64_t backward_bytes(const lltm_layer_sizes& sizes) {
    return Backward(sizes, nullptr).bytes;
  }

  // Registers of a row; `count` is less than kLanes at its end only.
  static LLTM_INLINE Vector<C> load_or_zero(const T* from, int64_t offset, int64_t count) {
    return from != nullptr ? load(from + offset, count) : Vector<C>{};
  }
  static LLTM_INLINE Vector<C> rounded(Vector<C> value) {
    if constexpr (!kNarrows) return value;
    T narrowed[kLanes];
    M::store(narrowed, value);
    return M::load(narrowed);
  }

  // Panels [begin, end) of the packed weights: squares of the matrix, transposed.
  static void pack_forward(const lltm_layer_forward_arguments& arguments, int64_t begin,
                           int64_t end) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const T* const weights = static_cast<const T*>(arguments.weights);
    const int64_t columns = packed_columns(sizes);
    C* const panels = Forward(sizes, arguments.workspace).panels;
    for (int64_t block = begin; block < end; ++block) {
      C* const panel = panels + block * columns * kGateCount * kLanes;
      for (int64_t gate = 0; gate < kGateCount; ++gate) {
        for (int64_t first = 0; first < columns; first += kLanes) {
          const int64_t count = columns - first < kLanes ? columns - first : kLanes;
          Vector<C> square[kLanes];
          for (int64_t lane = 0; lane < kLanes; ++lane) {
            const int64_t row = block * kLanes + lane;
            square[lane] =
                row < state_size
                    ? load(weights + (gate * state_size + row) * sizes.weight_stride + first, count)
                    : Vector<C>{};
          }
          transpose<C>(square);
          for (int64_t k = 0; k < count; ++k) {
            Memory<C>::store(panel + ((first + k) * kGateCount + gate) * kLanes, square[k]);
          }
        }
      }
    }
  }

  static void pack_backward(const lltm_layer_backward_arguments& arguments, int64_t begin,
                            int64_t end) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const int64_t rows = kGateCount * state_size;
    const T* const weights = static_cast<const T*>(arguments.weights);
    C* const panels = Backward(sizes, arguments.workspace).panels;
    const int64_t panels_of_h = tile_panels(state_size);
    for (int64_t block = begin; block < end; ++block) {
      const bool is_h = block < panels_of_h;
      const T* const part = weights + (is_h ? 0 : state_size);
      const int64_t columns = is_h ? state_size : input_size(sizes);
      const int64_t column = (is_h ? block : block - panels_of_h) * kTileColumns;
      C* to = panels + block * rows * kTileColumns;
      for (int64_t row = 0; row < rows; ++row, to += kTileColumns) {
        load_tile_row(part + row * sizes.weight_stride + column, columns - column, to);
      }
    }
  }

  // kTileColumns elements of a row that has `rest` more; zeros after its end.
  static LLTM_INLINE void load_tile_row(const T* from, int64_t rest, C* to) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v, rest -= kLanes) {
      const T* const part = from + v * kLanes;
      Memory<C>::store(to + v * kLanes, rest >= kLanes ? M::load(part)
                                        : rest > 0     ? M::load(part, rest)
                                                       : Vector<C>{});
    }
  }

  static int64_t tile_panels(int64_t columns) {
    return (columns + kTileColumns - 1) / kTileColumns;
  }

  static int64_t forward_panels(const lltm_layer_sizes& sizes) {
    return round_up(sizes.state_size, kLanes) / kLanes;
  }
  static int64_t backward_panels(const lltm_layer_sizes& sizes) {
    return tile_panels(sizes.state_size) + (kMakesAllProducts ? tile_panels(input_size(sizes)) : 0);
  }

  // All steps for the batch's rows [begin, end).
  static void forward(const lltm_layer_forward_arguments& arguments, int64_t begin, int64_t end) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const Forward work(sizes, arguments.workspace);
    start(static_cast<const T*>(arguments.initial_h), state_size, work.states[0], work.stride,
          begin, end);
    start(static_cast<const T*>(arguments.initial_cell), state_size, work.cell, work.stride, begin,
          end);
    const T* const input = static_cast<const T*>(arguments.input);
    for (int64_t step = 0; step < sizes.steps; ++step) {
      const C* const old_h = work.states[step % 2];
      const int64_t depth_of_h = step > 0 || arguments.initial_h != nullptr ? state_size : 0;
      const int64_t time = time_of(sizes, step);
      for (int64_t column = 0; column < state_size; column += kLanes) {
        const C* const panel = work.panels + column * packed_columns(sizes) * kGateCount;
        for (int64_t n = begin; n < end; n += kTileRows) {
          const int64_t rows = end - n < kTileRows ? end - n : kTileRows;
          alignas(64) C products[kTileRows][kGateCount][kLanes];
          with_constant<kTileRows>(rows, [&](auto constant) {
            Tile<C, constant, kGateCount> sum = {};
            if (depth_of_h > 0) {
              multiply<C, constant, kGateCount>(depth_of_h, old_h + n * work.stride, work.stride, 1,
                                                panel, kGateCount * kLanes, sum);
            }
            if constexpr (kMakesAllProducts) {
              const int64_t depth = input_size(sizes);
              multiply<C, constant, kGateCount>(
                  depth, input + (time * sizes.batch_size + n) * depth, depth, 1,
                  panel + state_size * kGateCount * kLanes, kGateCount * kLanes, sum);
            }
            std::memcpy(products, sum, sizeof(sum));
          });
          for (int64_t m = 0; m < rows; ++m) {
            forward_register(arguments, work, step, n + m, column, products[m]);
          }
        }
      }
    }
  }

  static LLTM_INLINE void forward_register(const lltm_layer_forward_arguments& arguments,
                                           const Forward& work, int64_t step, int64_t n,
                                           int64_t column,
                                           const C (&products)[kGateCount][kLanes]) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const int64_t count = state_size - column < kLanes ? state_size - column : kLanes;
    const int64_t t = time_of(sizes, step);
    const int64_t row = t * sizes.batch_size + n;
    T* const gates = static_cast<T*>(arguments.gates) + row * kGateCount * state_size + column;
    const T* const bias = static_cast<const T*>(arguments.bias);
    Vector<C> z[kGateCount];
#pragma GCC unroll 3
    for (int gate = 0; gate < kGateCount; ++gate) {
      T* const at = gates + gate * state_size;
      z[gate] = Memory<C>::load(products[gate]);
      if constexpr (!kMakesAllProducts) z[gate] += load(at, count);
      if (bias != nullptr) z[gate] += load(bias + gate * state_size + column, count);
      z[gate] = rounded(z[gate]);  // what backward will read is what forward computes with
      store(at, z[gate], count);
    }
    C* const cell = work.cell + n * work.stride + column;
    const auto state =
        Formulas::forward(z[kInputGate], z[kOutputGate], z[kCandidate], Memory<C>::load(cell));
    const Vector<C> h = rounded(state.h);  // and what the next step multiplies is what is stored
    Memory<C>::store(cell, state.cell);
    Memory<C>::store(work.states[(step + 1) % 2] + n * work.stride + column, h);
    store(static_cast<T*>(arguments.output) + row * state_size + column, h, count);
    if (arguments.cells != nullptr) {
      store(static_cast<T*>(arguments.cells) + row * state_size + column, state.cell, count);
    }
    if (step == sizes.steps - 1) {
      store(static_cast<T*>(arguments.final_h) + n * state_size + column, h, count);
      store(static_cast<T*>(arguments.final_cell) + n * state_size + column, state.cell, count);
    }
  }

  static void backward(const lltm_layer_backward_arguments& arguments, int64_t begin, int64_t end) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const int64_t rows_of_weights = kGateCount * state_size;
    const Backward work(sizes, arguments.workspace);
    start(static_cast<const T*>(arguments.grad_final_h), state_size, work.d_h, work.stride, begin,
          end);
    start(static_cast<const T*>(arguments.grad_final_cell), state_size, work.d_cell, work.stride,
          begin, end);
    for (int64_t step = sizes.steps - 1; step >= 0; --step) {
      const int64_t t = time_of(sizes, step);
      const C* d_gates;  // those of this step, as rows of 3S
      if constexpr (kNarrows) {
        d_gates = work.d_gates;
      } else {
        d_gates = static_cast<const T*>(arguments.d_gates) + t * sizes.batch_size * rows_of_weights;
      }
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t column = 0; column < state_size; column += kLanes) {
          backward_register(arguments, work, step, t, n, column);
        }
      }
      if (step > 0 || arguments.d_initial_h != nullptr) {
        multiply_rows(d_gates, rows_of_weights, work.panels, state_size, begin, end,
                      [&](int64_t n, int64_t column, const C* product) {
                        std::memcpy(work.d_h + n * work.stride + column, product,
                                    kTileColumns * sizeof(C));
                      });
      }
      if constexpr (kMakesAllProducts) {
        if (arguments.d_input == nullptr) continue;
        const int64_t columns = input_size(sizes);
        T* const d_input = static_cast<T*>(arguments.d_input) + t * sizes.batch_size * columns;
        multiply_rows(d_gates, rows_of_weights,
                      work.panels + tile_panels(state_size) * rows_of_weights * kTileColumns,
                      columns, begin, end, [&](int64_t n, int64_t column, const C* product) {
                        store_tile_row(d_input + n * columns + column, columns - column, product);
                      });
      }
    }
    finish(work.d_h, work.stride, static_cast<T*>(arguments.d_initial_h), state_size, begin, end);
    finish(work.d_cell, work.stride, static_cast<T*>(arguments.d_initial_cell), state_size, begin,
           end);
  }

  // Calls `put(n, column, product)` with kTileColumns elements of each row of d_gates times the
  // panels.
  template <typename Put>
  static LLTM_INLINE void multiply_rows(const C* d_gates, int64_t depth, const C* panels,
                                        int64_t columns, int64_t begin, int64_t end,
                                        const Put& put) {
    for (int64_t column = 0; column < columns; column += kTileColumns) {
      const C* const panel = panels + column * depth;
      for (int64_t n = begin; n < end; n += kTileRows) {
        const int64_t rows = end - n < kTileRows ? end - n : kTileRows;
        alignas(64) C products[kTileRows][kTileColumns];
        with_constant<kTileRows>(rows, [&](auto constant) {
          Tile<C, constant, kTileVectors> sum = {};
          multiply<C, constant, kTileVectors>(depth, d_gates + n * depth, depth, 1, panel,
                                              kTileColumns, sum);
          std::memcpy(products, sum, sizeof(sum));
        });
        for (int64_t m = 0; m < rows; ++m) put(n + m, column, products[m]);
      }
    }
  }

  static LLTM_INLINE void store_tile_row(T* to, int64_t rest, const C* from) {
#pragma GCC unroll 4
    for (int v = 0; v < kTileVectors; ++v, rest -= kLanes) {
      const Vector<C> value = Memory<C>::load(from + v * kLanes);
      if (rest >= kLanes) {
        M::store(to + v * kLanes, value);
      } else if (rest > 0) {
        M::store(to + v * kLanes, value, rest);
      }
    }
  }

  // Rows [begin, end) of d_weights, in units of kTileRows: d_gates^T times what the gates read.
  static void weights_gradient(const lltm_layer_backward_arguments& arguments, int64_t begin,
                               int64_t end) {
    if constexpr (kMakesAllProducts) {
      const lltm_layer_sizes& sizes = arguments.sizes;
      const int64_t state_size = sizes.state_size;
      const int64_t plane = sizes.batch_size * state_size;
      const int64_t later_rows = (sizes.steps - 1) * sizes.batch_size;
      const bool reverse = sizes.reverse != 0;
      const T* const d_gates = static_cast<const T*>(arguments.d_gates);
      const T* const output = static_cast<const T*>(arguments.output);
      T* const d_weights = static_cast<T*>(arguments.d_weights);
      // Every step but the first read the output of the one before it.
      const T* const later = d_gates + (reverse ? 0 : kGateCount * plane);
      const T* const first = d_gates + (reverse ? (sizes.steps - 1) * kGateCount * plane : 0);
      add_products(sizes, begin, end, later_rows, later, output + (reverse ? plane : 0), state_size,
                   d_weights, true);
      if (arguments.initial_h != nullptr) {
        add_products(sizes, begin, end, sizes.batch_size, first,
                     static_cast<const T*>(arguments.initial_h), state_size, d_weights, false);
      }
      add_products(sizes, begin, end, sizes.steps * sizes.batch_size, d_gates,
                   static_cast<const T*>(arguments.input), input_size(sizes),
                   d_weights + state_size, true);
    }
  }

  // d[row][column] (+)= sum over k of left[k][row] right[k][column], for some rows.
  static void add_products(const lltm_layer_sizes& sizes, int64_t begin, int64_t end, int64_t depth,
                           const C* left, const C* right, int64_t columns, C* d, bool starts) {
    constexpr int64_t kDepth = 128;  // so that what is read again and again stays in cache
    const int64_t rows = kGateCount * sizes.state_size;
    const int64_t last = end * kTileRows < rows ? end * kTileRows : rows;
    int64_t from = 0;
    do {
      const int64_t chunk = depth - from < kDepth ? depth - from : kDepth;
      for (int64_t column = 0; column < columns; column += kTileColumns) {
        const C* operand = right + from * columns + column;
        int64_t operand_stride = columns;
        alignas(64) C padded[kDepth][kTileColumns];
        if (columns - column < kTileColumns) {
          for (int64_t k = 0; k < chunk; ++k) {
            load_tile_row(operand + k * columns, columns - column, padded[k]);
          }
          operand = padded[0];
          operand_stride = kTileColumns;
        }
        for (int64_t row = begin * kTileRows; row < last; row += kTileRows) {
          const int64_t count = last - row < kTileRows ? last - row : kTileRows;
          alignas(64) C products[kTileRows][kTileColumns];
          C* const to = d + row * sizes.weight_stride + column;
          const bool adds = from > 0 || !starts;
          with_constant<kTileRows>(count, [&](auto constant) {
            Tile<C, constant, kTileVectors> sum = {};
            multiply<C, constant, kTileVectors>(chunk, left + from * rows + row, 1, rows, operand,
                                                operand_stride, sum);
            std::memcpy(products, sum, sizeof(sum));
          });
          for (int64_t m = 0; m < count; ++m) {
            C* const at = to + m * sizes.weight_stride;
            if (adds) {
              alignas(64) C sum[kTileColumns];
              load_tile_row(at, columns - column, sum);
              for (int64_t k = 0; k < kTileColumns; ++k) products[m][k] += sum[k];
            }
            store_tile_row(at, columns - column, products[m]);
          }
        }
      }
      from += chunk;
    } while (from < depth);
  }

  static LLTM_INLINE void backward_register(const lltm_layer_backward_arguments& arguments,
                                            const Backward& work, int64_t step, int64_t t,
                                            int64_t n, int64_t column) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const int64_t count = state_size - column < kLanes ? state_size - column : kLanes;
    const int64_t row = t * sizes.batch_size + n;
    const int64_t element = row * state_size + column;
    const int64_t gate_element = row * kGateCount * state_size + column;
    C* const d_h = work.d_h + n * work.stride + column;
    C* const d_cell = work.d_cell + n * work.stride + column;
    const T* const gates = static_cast<const T*>(arguments.gates) + gate_element;
    const auto d = Formulas::backward(
        Memory<C>::load(d_h) +
            load_or_zero(static_cast<const T*>(arguments.grad_output), element, count),
        Memory<C>::load(d_cell) +
            load_or_zero(static_cast<const T*>(arguments.grad_cells), element, count),
        load(gates, count), load(gates + state_size, count), load(gates + 2 * state_size, count),
        load(static_cast<const T*>(arguments.cells) + element, count));
    Memory<C>::store(d_cell, d.old_cell);
#pragma GCC unroll 3
    for (int gate = 0; gate < kGateCount; ++gate) {
      const Vector<C> d_z = rounded(d.z[gate]);
      store(static_cast<T*>(arguments.d_gates) + gate_element + gate * state_size, d_z, count);
      if constexpr (kNarrows) {
        C* const to = work.d_gates + (n * kGateCount + gate) * state_size + column;
        std::memcpy(to, &d_z, static_cast<size_t>(count) * sizeof(C));
      }
    }
  }

  // Forward's cells again, by its own additions.
  static void cells(const lltm_layer_cells_arguments& arguments, int64_t begin, int64_t end) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const T* const initial = static_cast<const T*>(arguments.initial_cell);
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t column = 0; column < state_size; column += kLanes) {
        const int64_t count = state_size - column < kLanes ? state_size - column : kLanes;
        Vector<C> cell = load_or_zero(initial, n * state_size + column, count);
        for (int64_t step = 0; step < sizes.steps; ++step) {
          const int64_t t = time_of(sizes, step);
          const int64_t row = t * sizes.batch_size + n;
          const T* const z =
              static_cast<const T*>(arguments.gates) + row * kGateCount * state_size + column;
          cell =
              Formulas::forward(load(z, count), Vector<C>{}, load(z + 2 * state_size, count), cell)
                  .cell;
          store(static_cast<T*>(arguments.cells) + row * state_size + column, cell, count);
        }
      }
    }
  }

  static constexpr LayerKernels kernels() {
    return {forward_bytes,    backward_bytes, forward_panels, backward_panels,
            pack_forward,     pack_backward,  forward,        backward,
            weights_gradient, cells,          kTileRows,      kMakesAllProducts};
  }

 private:
  // Rows of a state into the workspace, zeros where there is none; lanes after a row are zero.
  static void start(const T* from, int64_t state_size, C* to, int64_t stride, int64_t begin,
                    int64_t end) {
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t column = 0; column < stride; column += kLanes) {
        const int64_t rest = state_size - column;
        const int64_t count = rest < 0 ? 0 : rest < kLanes ? rest : kLanes;
        Memory<C>::store(to + n * stride + column,
                         load_or_zero(from, n * state_size + column, count));
      }
    }
  }

  // And out of it again, where they are wanted.
  static void finish(const C* from, int64_t stride, T* to, int64_t state_size, int64_t begin,
                     int64_t end) {
    if (to == nullptr) return;
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t column = 0; column < state_size; column += kLanes) {
        const int64_t count = state_size - column < kLanes ? state_size - column : kLanes;
        store(to + n * state_size + column, Memory<C>::load(from + n * stride + column), count);
      }
    }
  }
};

}  // namespace LLTM_LEVEL
}  // namespace lltm
