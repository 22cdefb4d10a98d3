// Runs a whole sequence. Threads divide the rows of the batch and never wait for one another. If
// rows are few or a step is long, threads divide the columns of each step instead. The columns of
// the weights that multiply h are packed once per call, in the order in which the products read
// them.

namespace lltm::LLTM_LEVEL {

template <typename T>
struct Sequence {
  using C = compute_t<T>;
  using V = Vector<C>;
  using Formulas = CellFormulas<VectorMath<C>>;
  static constexpr int64_t kLanes = Lanes<C>::kCount;
  static constexpr int64_t kTileColumns = kTileVectors * kLanes;
  static constexpr bool kHas16Bits = sizeof(T) == 2;

  // The fewest multiply-adds that are worth waking another thread.
  static constexpr int64_t kProductsPerThread = 1 << 19;
  // The same within a step, when the other thread is already awake.
  static constexpr int64_t kProductsOfStep = 1 << 17;
  // From this many multiply-adds per step on, threads wait less for one another than for weights.
  static constexpr int64_t kLongStep = 1 << 23;

  // With few rows, torch's GEMM multiplies x: it reads the weights of x once for all steps. In
  // backward this pays only for a wide x. 16-bit operands would have to be converted first.
  static bool makes_all_products(lltm_pass pass, const lltm_layer_sizes& sizes) {
    constexpr int64_t kFewRows = 4;
    constexpr int64_t kCachedWeights = 1 << 18;
    const int64_t weights = kGateCount * sizes.state_size * sizes.weight_stride;
    if (kHas16Bits) return false;
    if (sizes.batch_size >= kFewRows || weights <= kCachedWeights) return true;
    return pass == LLTM_BACKWARD && input_size(sizes) <= sizes.state_size;
  }

  static int64_t workspace_bytes(lltm_pass pass, const lltm_layer_sizes& sizes) {
    return pass == LLTM_BACKWARD ? Backward(sizes, nullptr).bytes : Forward(sizes, nullptr).bytes;
  }

  static const char* forward(const lltm_layer_forward_arguments& arguments,
                             const lltm_execution& execution) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const Forward work(sizes, arguments.workspace);
    const int64_t panels = ceiling(sizes.state_size, kLanes);
    in_parallel(panels, panels_per_thread(sizes, panels), execution,
                [&](int64_t begin, int64_t end) { pack_forward(arguments, begin, end); });
    load_state(arguments.initial_h, sizes.state_size, work.states[0], work.stride,
               sizes.batch_size);
    load_state(arguments.initial_cell, sizes.state_size, work.cell, work.stride, sizes.batch_size);
    share_steps(sizes, sizes.steps, panels, execution,
                [&](int64_t step, const Part& part) { forward_step(arguments, work, step, part); });
    return nullptr;
  }

  static const char* backward(const lltm_layer_backward_arguments& arguments,
                              const lltm_execution& execution) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const Backward work(sizes, arguments.workspace);
    const int64_t panels = backward_panels(sizes);
    in_parallel(panels, panels_per_thread(sizes, panels), execution,
                [&](int64_t begin, int64_t end) { pack_backward(arguments, begin, end); });
    load_state(arguments.grad_final_h, sizes.state_size, work.d_h, work.stride, sizes.batch_size);
    load_state(arguments.grad_final_cell, sizes.state_size, work.d_cell, work.stride,
               sizes.batch_size);
    // One round more than steps: the last one makes the products of the first step.
    share_steps(sizes, sizes.steps + 1, panels, execution, [&](int64_t n, const Part& part) {
      backward_step(arguments, work, sizes.steps - 1 - n, part);
    });
    store_state(work.d_h, work.stride, arguments.d_initial_h, sizes);
    store_state(work.d_cell, work.stride, arguments.d_initial_cell, sizes);
    if constexpr (!kHas16Bits) {
      if (arguments.d_weights == nullptr || !makes_all_products(LLTM_BACKWARD, sizes)) {
        return nullptr;
      }
      const WeightsGradient<T> gradient = weights_gradient(arguments);
      const int64_t products = sizes.steps * sizes.batch_size * kGateCount * sizes.state_size *
                               sizes.weight_stride / gradient.units();
      in_parallel(gradient.units(), kProductsPerThread / at_least_one(products) + 1, execution,
                  [&](int64_t begin, int64_t end) { gradient.make(begin, end); });
    }
    return nullptr;
  }

  // Recomputes the cell states of forward with the same additions.
  static const char* cells(const lltm_layer_cells_arguments& arguments,
                           const lltm_execution& execution) {
    // An element, with its activations, costs about as much as ten products.
    const int64_t products = 16 * arguments.sizes.steps * arguments.sizes.state_size;
    in_parallel(arguments.sizes.batch_size, kProductsPerThread / at_least_one(products) + 1,
                execution, [&](int64_t begin, int64_t end) { run_cells(arguments, begin, end); });
    return nullptr;
  }

 private:
  // ---- how threads share the work ----

  // A part of a step: rows [first_row, last_row) of the batch, and panels [first, last).
  struct Part {
    int64_t first_row;
    int64_t last_row;
    int64_t first;
    int64_t last;
  };

  // Calls run(step, part) for steps [0, steps), in order for each part.
  template <typename Run>
  static void share_steps(const lltm_layer_sizes& sizes, int64_t steps, int64_t panels,
                          const lltm_execution& execution, const Run& run) {
    const int64_t rows = sizes.batch_size;
    const int64_t columns = kHas16Bits ? sizes.state_size : sizes.weight_stride;
    const int64_t products = rows * kGateCount * sizes.state_size * columns;  // of a step
    if (rows < 2 * rows_per_thread(sizes) || products >= kLongStep) {
      const int64_t grain = at_least_one(kProductsOfStep * panels / products);
      for (int64_t step = 0; step < steps; ++step) {
        in_parallel(panels, grain, execution,
                    [&](int64_t first, int64_t last) { run(step, Part{0, rows, first, last}); });
      }
    } else {
      in_parallel(rows, rows_per_thread(sizes), execution, [&](int64_t first, int64_t last) {
        for (int64_t step = 0; step < steps; ++step) run(step, Part{first, last, 0, panels});
      });
    }
  }

  // The fewest rows of the batch per thread: half a tile, and enough work to be worth waking it.
  static int64_t rows_per_thread(const lltm_layer_sizes& sizes) {
    const int64_t products = sizes.steps * 3 * sizes.state_size * sizes.state_size;
    const int64_t worthwhile = ceiling(kProductsPerThread, products);
    return worthwhile > kTileRows / 2 ? worthwhile : kTileRows / 2;
  }

  static int64_t panels_per_thread(const lltm_layer_sizes& sizes, int64_t panels) {
    const int64_t elements = 3 * sizes.state_size * sizes.state_size;
    return at_least_one(kProductsPerThread * panels / elements);
  }

  // ---- the workspace ----

  static LLTM_INLINE int64_t time_of(const lltm_layer_sizes& sizes, int64_t step) {
    return sizes.reverse != 0 ? sizes.steps - 1 - step : step;
  }
  static int64_t input_size(const lltm_layer_sizes& sizes) {
    return sizes.weight_stride - sizes.state_size;
  }
  // The columns of the weights that forward packs.
  static int64_t packed_columns(const lltm_layer_sizes& sizes) {
    return makes_all_products(LLTM_FORWARD, sizes) ? sizes.weight_stride : sizes.state_size;
  }
  static int64_t backward_panels(const lltm_layer_sizes& sizes) {
    return ceiling(sizes.state_size, kTileColumns) + (makes_all_products(LLTM_BACKWARD, sizes)
                                                          ? ceiling(input_size(sizes), kTileColumns)
                                                          : 0);
  }

  // Divides the workspace into parts that start on cache lines; without a workspace, adds up their
  // sizes.
  class Parts {
   public:
    explicit Parts(void* workspace) : next_(on_line(reinterpret_cast<uintptr_t>(workspace))) {}
    C* take(int64_t count) {
      C* const part = reinterpret_cast<C*>(next_);
      next_ = on_line(next_ + static_cast<uintptr_t>(count) * sizeof(C));
      return part;
    }
    int64_t bytes() const { return static_cast<int64_t>(next_) + 64; }

   private:
    static uintptr_t on_line(uintptr_t address) { return (address + 63) / 64 * 64; }
    uintptr_t next_;
  };

  // Forward: a panel holds kLanes columns of every gate.
  struct Forward {
    int64_t stride;  // of a row of the states
    C* panels;       // (blocks, columns of the weights, 3, kLanes)
    C* states[2];    // (B, stride): h of even and odd steps
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
    C* panels;      // (blocks, 3S, kTileColumns): columns of h, then columns of x
    C* d_h;         // (B, stride)
    C* d_cell;      // (B, stride)
    C* d_gates[2];  // (B, 3S) of even and odd steps, if the stored ones have 16 bits
    int64_t bytes;

    Backward(const lltm_layer_sizes& sizes, void* workspace)
        : stride(round_up(sizes.state_size, kTileColumns)) {
      Parts parts(workspace);
      panels = parts.take(backward_panels(sizes) * kTileColumns * sizes.state_size * kGateCount);
      d_h = parts.take(sizes.batch_size * stride);
      d_cell = parts.take(sizes.batch_size * stride);
      for (C*& d : d_gates) {
        d = parts.take(kHas16Bits ? sizes.batch_size * kGateCount * sizes.state_size : 0);
      }
      bytes = parts.bytes();
    }
  };

  // Packs panels [begin, end) of the weights, transposed.
  static void pack_forward(const lltm_layer_forward_arguments& arguments, int64_t begin,
                           int64_t end) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t columns = packed_columns(sizes);
    C* const panels = Forward(sizes, arguments.workspace).panels;
    for (int64_t block = begin; block < end; ++block) {
      const int64_t first = block * kLanes;
      C* const panel = panels + first * columns * kGateCount;
      for (int64_t gate = 0; gate < kGateCount; ++gate) {
        const T* const rows = static_cast<const T*>(arguments.weights) +
                              (gate * sizes.state_size + first) * sizes.weight_stride;
        pack_transposed(rows, sizes.weight_stride, sizes.state_size - first, columns,
                        panel + gate * kLanes, kGateCount * kLanes);
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
    const int64_t panels_of_h = ceiling(state_size, kTileColumns);
    for (int64_t block = begin; block < end; ++block) {
      const bool is_h = block < panels_of_h;
      const T* const part = weights + (is_h ? 0 : state_size);
      const int64_t columns = is_h ? state_size : input_size(sizes);
      const int64_t column = (is_h ? block : block - panels_of_h) * kTileColumns;
      pack_rows(part + column, sizes.weight_stride, rows, columns - column,
                panels + block * rows * kTileColumns, kTileColumns);
    }
  }

  // Copies rows of a state into the workspace, or writes zeros if `from` is NULL. The lanes after a
  // row are zero.
  static void load_state(const void* from, int64_t state_size, C* to, int64_t stride,
                         int64_t batch_size) {
    const bool given = from != nullptr;
    for (int64_t n = 0; n < batch_size; ++n) {
      const T* const row = given ? static_cast<const T*>(from) + n * state_size : nullptr;
      load_row(row, given ? state_size : 0, to + n * stride, stride);
    }
  }
  static void store_state(const C* from, int64_t stride, void* to, const lltm_layer_sizes& sizes) {
    if (to == nullptr) return;
    for (int64_t n = 0; n < sizes.batch_size; ++n) {
      store_row(from + n * stride, static_cast<T*>(to) + n * sizes.state_size, sizes.state_size);
    }
  }

  static LLTM_INLINE V load_or_zero(const void* from, int64_t offset, int64_t count) {
    return from != nullptr ? load(static_cast<const T*>(from) + offset, count) : V{};
  }
  // The value after rounding to T, as stored.
  static LLTM_INLINE V rounded(V value) {
    if constexpr (!kHas16Bits) return value;
    T stored[kLanes];
    store(stored, value);
    return load(stored);
  }

  // ---- forward ----

  static void forward_step(const lltm_layer_forward_arguments& arguments, const Forward& work,
                           int64_t step, const Part& part) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const T* const input = static_cast<const T*>(arguments.input);
    const C* const old_h = work.states[step % 2];
    const int64_t depth_of_h = step > 0 || arguments.initial_h != nullptr ? state_size : 0;
    const int64_t time = time_of(sizes, step);
    for (int64_t column = part.first * kLanes; column < part.last * kLanes; column += kLanes) {
      const C* const panel = work.panels + column * packed_columns(sizes) * kGateCount;
      for (int64_t n = part.first_row; n < part.last_row; n += kTileRows) {
        const int64_t rows = least(kTileRows, part.last_row - n);
        alignas(64) C products[kTileRows][kGateCount][kLanes];
        with_constant<kTileRows>(rows, [&](auto constant) {
          Tile<C, constant, kGateCount> sum = {};
          multiply<C, constant, kGateCount>(depth_of_h, old_h + n * work.stride, work.stride, 1,
                                            panel, kGateCount * kLanes, sum);
          if constexpr (!kHas16Bits) {
            const int64_t depth = packed_columns(sizes) - state_size;  // none, or all of x
            multiply<C, constant, kGateCount>(depth, input + (time * sizes.batch_size + n) * depth,
                                              depth, 1, panel + state_size * kGateCount * kLanes,
                                              kGateCount * kLanes, sum);
          }
          std::memcpy(products, sum, sizeof(sum));
        });
        for (int64_t m = 0; m < rows; ++m) {
          forward_register(arguments, work, step, n + m, column, products[m]);
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
    const int64_t count = least(kLanes, state_size - column);
    const int64_t row = time_of(sizes, step) * sizes.batch_size + n;
    T* const gates = static_cast<T*>(arguments.gates) + row * kGateCount * state_size + column;
    const T* const bias = static_cast<const T*>(arguments.bias);
    const bool holds_products = !makes_all_products(LLTM_FORWARD, sizes);
    V z[kGateCount];
#pragma GCC unroll 3
    for (int gate = 0; gate < kGateCount; ++gate) {
      T* const at = gates + gate * state_size;
      z[gate] = load(products[gate]);
      if (holds_products) z[gate] += load(at, count);
      if (bias != nullptr) z[gate] += load(bias + gate * state_size + column, count);
      z[gate] = rounded(z[gate]);  // forward computes with what it stores for backward
      store(at, z[gate], count);
    }
    C* const cell = work.cell + n * work.stride + column;
    const auto state = Formulas::forward(z[kInputGate], z[kOutputGate], z[kCandidate], load(cell));
    const V h = rounded(state.h);  // the next step multiplies the value that is stored
    store(cell, state.cell);
    store(work.states[(step + 1) % 2] + n * work.stride + column, h);
    store(static_cast<T*>(arguments.output) + row * state_size + column, h, count);
    if (arguments.cells != nullptr) {
      store(static_cast<T*>(arguments.cells) + row * state_size + column, state.cell, count);
    }
    if (step == sizes.steps - 1) {
      store(static_cast<T*>(arguments.final_h) + n * state_size + column, h, count);
      store(static_cast<T*>(arguments.final_cell) + n * state_size + column, state.cell, count);
    }
  }

  static void run_cells(const lltm_layer_cells_arguments& arguments, int64_t begin, int64_t end) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t column = 0; column < state_size; column += kLanes) {
        const int64_t count = least(kLanes, state_size - column);
        V cell = load_or_zero(arguments.initial_cell, n * state_size + column, count);
        for (int64_t step = 0; step < sizes.steps; ++step) {
          const int64_t row = time_of(sizes, step) * sizes.batch_size + n;
          const T* const z =
              static_cast<const T*>(arguments.gates) + row * kGateCount * state_size + column;
          cell = Formulas::forward(load(z, count), V{}, load(z + 2 * state_size, count), cell).cell;
          store(static_cast<T*>(arguments.cells) + row * state_size + column, cell, count);
        }
      }
    }
  }

  // ---- backward ----

  // Makes the products of the step after this one, then this step's elements. Step -1 has no
  // elements.
  static void backward_step(const lltm_layer_backward_arguments& arguments, const Backward& work,
                            int64_t step, const Part& part) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const int64_t depth = kGateCount * state_size;
    const int64_t panels_of_h = ceiling(state_size, kTileColumns);
    const int64_t before = step + 1;  // the step that ran before this one
    const int64_t plane = before < sizes.steps ? time_of(sizes, before) * sizes.batch_size : 0;
    const C* d_gates;  // rows of 3S
    if constexpr (kHas16Bits) {
      d_gates = work.d_gates[before % 2];
    } else {
      d_gates = static_cast<const T*>(arguments.d_gates) + plane * depth;
    }
    const int64_t columns = input_size(sizes);
    const bool needs_h = step >= 0 || arguments.d_initial_h != nullptr;
    for (int64_t n = part.first; n < part.last; ++n) {
      const C* const panel = work.panels + n * kTileColumns * depth;
      const bool is_h = n < panels_of_h;
      const int64_t column = (is_h ? n : n - panels_of_h) * kTileColumns;
      const bool wanted = is_h ? needs_h : arguments.d_input != nullptr;
      for (int64_t row = part.first_row; row < part.last_row; row += kTileRows) {
        if (!wanted || before == sizes.steps) break;
        with_constant<kTileRows>(part.last_row - row, [&](auto rows) {
          Tile<C, rows, kTileVectors> sum = {};
          multiply<C, rows, kTileVectors>(depth, d_gates + row * depth, depth, 1, panel,
                                          kTileColumns, sum);
          if (is_h) {
            store_tile<C, rows, kTileVectors>(sum, work.d_h + row * work.stride + column,
                                              work.stride, kTileColumns);
          } else {
            T* const d_input = static_cast<T*>(arguments.d_input) + (plane + row) * columns;
            store_tile<T, rows, kTileVectors>(sum, d_input + column, columns, columns - column);
          }
        });
      }
      if (!is_h || step < 0) continue;
      const int64_t end = least((n + 1) * kTileColumns, state_size);
      for (int64_t row = part.first_row; row < part.last_row; ++row) {
        for (int64_t column = n * kTileColumns; column < end; column += kLanes) {
          backward_register(arguments, work, step, row, column);
        }
      }
    }
  }

  static LLTM_INLINE void backward_register(const lltm_layer_backward_arguments& arguments,
                                            const Backward& work, int64_t step, int64_t n,
                                            int64_t column) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t state_size = sizes.state_size;
    const int64_t count = least(kLanes, state_size - column);
    const int64_t row = time_of(sizes, step) * sizes.batch_size + n;
    const int64_t element = row * state_size + column;
    const int64_t gate_element = row * kGateCount * state_size + column;
    C* const d_h = work.d_h + n * work.stride + column;
    C* const d_cell = work.d_cell + n * work.stride + column;
    const T* const gates = static_cast<const T*>(arguments.gates) + gate_element;
    const auto d = Formulas::backward(
        load(d_h) + load_or_zero(arguments.grad_output, element, count),
        load(d_cell) + load_or_zero(arguments.grad_cells, element, count), load(gates, count),
        load(gates + state_size, count), load(gates + 2 * state_size, count),
        load(static_cast<const T*>(arguments.cells) + element, count));
    store(d_cell, d.old_cell);
#pragma GCC unroll 3
    for (int gate = 0; gate < kGateCount; ++gate) {
      const V d_z = rounded(d.z[gate]);
      store(static_cast<T*>(arguments.d_gates) + gate_element + gate * state_size, d_z, count);
      if constexpr (kHas16Bits) {
        store(work.d_gates[step % 2] + (n * kGateCount + gate) * state_size + column, d_z, count);
      }
    }
  }

  static WeightsGradient<T> weights_gradient(const lltm_layer_backward_arguments& arguments) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t rows = sizes.batch_size;
    const int64_t later = (sizes.steps - 1) * rows;
    const bool reverse = sizes.reverse != 0;
    const T* const dz = static_cast<const T*>(arguments.d_gates);
    const T* const output = static_cast<const T*>(arguments.output);
    const T* const initial_h = static_cast<const T*>(arguments.initial_h);
    const int64_t step = kGateCount * sizes.state_size * rows;  // elements of dz
    // Each step after the first read the output of the step before it.
    return {sizes.state_size,
            input_size(sizes),
            {{dz + (reverse ? 0 : step), output + (reverse ? rows * sizes.state_size : 0), later},
             {dz + (reverse ? (sizes.steps - 1) * step : 0), initial_h,
              initial_h == nullptr ? 0 : rows}},
            {dz, static_cast<const T*>(arguments.input), sizes.steps * rows},
            kGateCount * sizes.state_size,
            static_cast<T*>(arguments.d_weights)};
  }
};

}  // namespace lltm::LLTM_LEVEL
