// Runs the recurrence of a sequence. Forward and backward pack the weights into panels, in the
// order in which the products read them. Threads divide the rows of the batch and do not wait for
// one another. If rows are few or a step is long, threads divide the panels instead and wait after
// each step.

namespace lltm::LLTM_LEVEL {

template <typename T>
struct Sequence {
  using C = compute_t<T>;
  using V = Vector<C>;
  using Formulas = CellFormulas<VectorMath<C>>;
  static constexpr int64_t kLanes = Lanes<C>::kCount;
  static constexpr int64_t kTileColumns = kTileVectors * kLanes;
  static constexpr bool kHas16Bits = sizeof(T) == 2;
  // Whether forward multiplies pairs: then old h and the panels hold bfloat16.
  static constexpr bool kPairs = kMultipliesPairs && std::is_same_v<T, bfloat16>;
  using H = std::conditional_t<kPairs, T, C>;

  // The fewest multiply-adds for which it pays to wake another thread.
  static constexpr int64_t kProductsPerThread = 1 << 19;
  // The fewest per thread if threads divide each step, because the step before has woken them.
  static constexpr int64_t kProductsOfStep = 1 << 17;
  // From this many multiply-adds per step on, reading all weights costs a thread more than waiting.
  static constexpr int64_t kLongStep = 1 << 23;

  // Sets the plan's workspace_bytes.
  static void plan(lltm_pass pass, const lltm_layer_sizes& sizes, lltm_layer_plan* plan) {
    lltm_layer_forward_arguments forward = {};
    lltm_layer_backward_arguments backward = {};
    forward.sizes = backward.sizes = sizes;
    plan->workspace_bytes =
        pass == LLTM_BACKWARD ? Backward{backward}.parts.bytes() : Forward{forward}.parts.bytes();
  }

  static const char* forward(const lltm_layer_forward_arguments& arguments,
                             const lltm_execution& execution) {
    const Forward work{arguments};
    const int64_t panels = ceiling(work.state_size, kLanes);
    in_parallel(panels, panels_per_thread(work.sizes, panels), execution,
                [&](int64_t begin, int64_t end) { work.pack(begin, end); });
    load_state(arguments.initial_h, work.states[0], work.stride, work.sizes);
    load_state(arguments.initial_cell, work.cell, work.stride, work.sizes);
    share_steps(work.sizes, work.sizes.steps, panels, execution,
                [&](int64_t step, const Part& part) { work.run(step, part); });
    return nullptr;
  }

  static const char* backward(const lltm_layer_backward_arguments& arguments,
                              const lltm_execution& execution) {
    const Backward work{arguments};
    const lltm_layer_sizes& sizes = arguments.sizes;
    const int64_t panels = ceiling(sizes.state_size, kTileColumns);
    in_parallel(panels, panels_per_thread(sizes, panels), execution,
                [&](int64_t begin, int64_t end) { work.pack(begin, end); });
    load_state(arguments.grad_final_h, work.d_h, work.stride, sizes);
    load_state(arguments.grad_final_cell, work.d_cell, work.stride, sizes);
    // There is one more round than steps: the last round only makes d_initial_h.
    share_steps(sizes, sizes.steps + 1, panels, execution,
                [&](int64_t round, const Part& part) { work.run(sizes.steps - 1 - round, part); });
    store_state(work.d_h, work.stride, arguments.d_initial_h, sizes);
    store_state(work.d_cell, work.stride, arguments.d_initial_cell, sizes);
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

  // Calls run(step, part) with parts that cover each step of [0, steps), in order for each row.
  template <typename Run>
  static void share_steps(const lltm_layer_sizes& sizes, int64_t steps, int64_t panels,
                          const lltm_execution& execution, const Run& run) {
    const int64_t rows = sizes.batch_size;
    const int64_t products = rows * kGateCount * sizes.state_size * sizes.state_size;  // of a step
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

  // The fewest rows of the batch per thread: at least half a tile, and enough work for a thread.
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

  // Divides the workspace into parts that start on cache lines. If the workspace is NULL, only
  // bytes(), the size that the parts need, is meaningful.
  struct Parts {
    int64_t next;  // address

    explicit Parts(void* workspace) : next(round_up(reinterpret_cast<int64_t>(workspace), 64)) {}
    C* take(int64_t count) {
      C* const part = reinterpret_cast<C*>(next);
      next = round_up(next + count * int64_t{sizeof(C)}, 64);
      return part;
    }
    int64_t bytes() const { return next + 64; }
  };

  // Copies a state (B, S) into rows of `stride` elements, or writes zeros if `from` is NULL. The
  // rest of each row becomes zero.
  template <typename To>
  static void load_state(const void* from, To* to, int64_t stride, const lltm_layer_sizes& sizes) {
    const int64_t count = from != nullptr ? sizes.state_size : 0;
    for (int64_t n = 0; n < sizes.batch_size; ++n) {
      load_row(static_cast<const T*>(from) + n * count, count, to + n * stride, stride);
    }
  }
  static void store_state(const C* from, int64_t stride, void* to, const lltm_layer_sizes& sizes) {
    if (to == nullptr) return;
    store_rows(from, stride, static_cast<T*>(to), sizes.state_size, sizes.batch_size,
               sizes.state_size);
  }

  static LLTM_INLINE V rounded(V value) {
    if constexpr (!kHas16Bits) return value;
    T stored[kLanes];
    store(stored, value);
    return load(stored);
  }

  // A panel holds the weights of kLanes columns of the state, for every gate.
  struct Forward {
    const lltm_layer_forward_arguments& a;
    const lltm_layer_sizes& sizes = a.sizes;
    const int64_t state_size = sizes.state_size;
    const int64_t stride = round_up(state_size, kLanes);  // of a row of the states
    Parts parts = Parts(a.workspace);
    C* const panels = parts.take(stride * state_size * kGateCount);  // (panels, S, 3, kLanes)
    // (B, stride): the old h of even and odd steps
    H* const states[2] = {reinterpret_cast<H*>(parts.take(sizes.batch_size * stride)),
                          reinterpret_cast<H*>(parts.take(sizes.batch_size * stride))};
    C* const cell = parts.take(sizes.batch_size * stride);  // (B, stride)

    // Packs panels [begin, end) of the weights, transposed.
    void pack(int64_t begin, int64_t end) const {
      for (int64_t first = begin * kLanes; first < end * kLanes; first += kLanes) {
        for (int64_t gate = 0; gate < kGateCount; ++gate) {
          const T* const rows =
              static_cast<const T*>(a.weights) + (gate * state_size + first) * sizes.weight_stride;
          pack_transposed<kPairs>(rows, sizes.weight_stride, state_size - first, state_size,
                                  panels + (first * state_size * kGateCount + gate * kLanes),
                                  kGateCount * kLanes);
        }
      }
    }

    void run(int64_t step, const Part& part) const {
      const H* const old_h = states[step % 2];
      const int64_t depth_of_h = step > 0 || a.initial_h != nullptr ? state_size : 0;
#ifdef LLTM_MULTIPLIES_TILES
      return run_tiles(step, part, old_h, depth_of_h);
#endif
      for (int64_t column = part.first * kLanes; column < part.last * kLanes; column += kLanes) {
        const C* const panel = panels + column * state_size * kGateCount;
        for (int64_t n = part.first_row; n < part.last_row; n += kTileRows) {
          const int64_t rows = least(kTileRows, part.last_row - n);
          alignas(64) C products[kTileRows][kGateCount][kLanes];
          with_constant<kTileRows>(rows, [&](auto constant) {
            Tile<C, constant, kGateCount> sum = {};
            if constexpr (kPairs) {
              multiply_pairs(ceiling(depth_of_h, 2), old_h + n * stride, stride, panel, sum);
            } else {
              multiply(depth_of_h, old_h + n * stride, stride, 1, panel, kGateCount * kLanes, sum);
            }
            std::memcpy(products, sum, sizeof(sum));
          });
          for (int64_t m = 0; m < rows; ++m) finish(step, n + m, column, products[m]);
        }
      }
    }

#ifdef LLTM_MULTIPLIES_TILES
    // The last tile of rows may begin among those of the one before, whose products it repeats.
    void run_tiles(int64_t step, const Part& part, const H* old_h, int64_t depth_of_h) const {
      const int64_t rows = least(PairTiles::kRows, part.last_row - part.first_row);
      const PairTiles tiles(rows, ceiling(depth_of_h, 2));
      for (int64_t column = part.first * kLanes; column < part.last * kLanes; column += kLanes) {
        const C* const panel = panels + column * state_size * kGateCount;
        for (int64_t n = part.first_row; n < part.last_row; n += rows) {
          const int64_t first = least(n, part.last_row - rows);
          alignas(64) C products[PairTiles::kRows][kGateCount][kLanes];
          tiles.multiply(old_h + first * stride, stride, panel, &products[0][0][0]);
          for (int64_t m = n - first; m < rows; ++m) {
            finish(step, first + m, column, products[m]);
          }
        }
      }
    }
#endif

    // Computes a register of the new state from `products`.
    LLTM_INLINE void finish(int64_t step, int64_t n, int64_t column,
                            const C (&products)[kGateCount][kLanes]) const {
      const int64_t count = least(kLanes, state_size - column);
      const int64_t row = first_row_of(sizes, step) + n;
      const int64_t element = row * state_size + column;
      T* const gates = static_cast<T*>(a.gates) + row * kGateCount * state_size + column;
      const T* const bias = static_cast<const T*>(a.bias);
      V z[kGateCount];
#pragma GCC unroll 3
      for (int gate = 0; gate < kGateCount; ++gate) {
        T* const at = gates + gate * state_size;
        z[gate] = load(products[gate]) + load(at, count);
        if (bias != nullptr) z[gate] += load(bias + gate * state_size + column, count);
        z[gate] = rounded(z[gate]);  // forward computes with the values that backward will read
        store(at, z[gate], count);
      }
      C* const cells = cell + n * stride + column;
      const auto state =
          Formulas::forward(z[kInputGate], z[kOutputGate], z[kCandidate], load(cells));
      const V h = rounded(state.h);  // the next step multiplies the value that is stored
      store(cells, state.cell);
      store(states[(step + 1) % 2] + n * stride + column, h);
      store(static_cast<T*>(a.output) + element, h, count);
      if (a.cells != nullptr) store(static_cast<T*>(a.cells) + element, state.cell, count);
      if (step == sizes.steps - 1) {
        store(static_cast<T*>(a.final_h) + n * state_size + column, h, count);
        store(static_cast<T*>(a.final_cell) + n * state_size + column, state.cell, count);
      }
    }
  };

  // A panel holds all rows of kTileColumns columns of the weights of h.
  struct Backward {
    const lltm_layer_backward_arguments& a;
    const lltm_layer_sizes& sizes = a.sizes;
    const int64_t state_size = sizes.state_size;
    const int64_t depth = kGateCount * state_size;
    const int64_t stride = round_up(state_size, kTileColumns);  // of a row of d_h and of d_cell
    Parts parts = Parts(a.workspace);
    C* const panels = parts.take(stride * depth);             // (panels, 3S, kTileColumns)
    C* const d_h = parts.take(sizes.batch_size * stride);     // (B, stride)
    C* const d_cell = parts.take(sizes.batch_size * stride);  // (B, stride)
    // (B, 3S): dz of even and odd steps, if the d_gates of the arguments have 16 bits
    C* const d_gates[2] = {parts.take(kHas16Bits ? sizes.batch_size * depth : 0),
                           parts.take(kHas16Bits ? sizes.batch_size * depth : 0)};

    void pack(int64_t begin, int64_t end) const {
      for (int64_t panel = begin; panel < end; ++panel) {
        const int64_t column = panel * kTileColumns;
        pack_rows(static_cast<const T*>(a.weights) + column, sizes.weight_stride, depth,
                  state_size - column, panels + column * depth, kTileColumns);
      }
    }

    // Makes d_h from dz of step + 1, if that step exists, then dz of `step` if step >= 0.
    void run(int64_t step, const Part& part) const {
      const int64_t before = step + 1;  // backward ran this step before `step`
      const C* dz = nullptr;            // (B, 3S) of step + 1
      if constexpr (kHas16Bits) {
        dz = d_gates[before % 2];
      } else if (before < sizes.steps) {
        dz = static_cast<const T*>(a.d_gates) + first_row_of(sizes, before) * depth;
      }
      const bool needs_h = before < sizes.steps && (step >= 0 || a.d_initial_h != nullptr);
      for (int64_t panel = part.first; panel < part.last; ++panel) {
        const int64_t first = panel * kTileColumns;
        if (needs_h) multiply_panel(first, dz, part);
        if (step < 0) continue;
        const int64_t end = least(first + kTileColumns, state_size);
        for (int64_t row = part.first_row; row < part.last_row; ++row) {
          for (int64_t column = first; column < end; column += kLanes) finish(step, row, column);
        }
      }
    }

    void multiply_panel(int64_t column, const C* dz, const Part& part) const {
      for (int64_t row = part.first_row; row < part.last_row; row += kTileRows) {
        with_constant<kTileRows>(part.last_row - row, [&](auto rows) {
          Tile<C, rows, kTileVectors> sum = {};
          multiply(depth, dz + row * depth, depth, 1, panels + column * depth, kTileColumns, sum);
          store_whole_tile(sum, d_h + row * stride + column, stride);
        });
      }
    }

    // Computes a register of d_cell, and of dz for each gate, at a step.
    LLTM_INLINE void finish(int64_t step, int64_t n, int64_t column) const {
      const int64_t count = least(kLanes, state_size - column);
      const int64_t row = first_row_of(sizes, step) + n;
      const int64_t element = row * state_size + column;
      const int64_t gate_element = row * depth + column;
      const T* const gates = static_cast<const T*>(a.gates) + gate_element;
      C* const grad_h = d_h + n * stride + column;
      C* const grad_cell = d_cell + n * stride + column;
      const bool has_grad_h =
          a.grad_output != nullptr || a.grad_final_h != nullptr || step + 1 < sizes.steps;
      const auto d = Formulas::backward(
          has_grad_h, load(grad_h) + load_or_zero<T>(a.grad_output, element, count),
          load(grad_cell) + load_or_zero<T>(a.grad_cells, element, count), load(gates, count),
          load(gates + state_size, count), load(gates + 2 * state_size, count),
          load(static_cast<const T*>(a.cells) + element, count));
      store(grad_cell, d.old_cell);
#pragma GCC unroll 3
      for (int gate = 0; gate < kGateCount; ++gate) {
        const V d_z = rounded(d.z[gate]);
        store(static_cast<T*>(a.d_gates) + gate_element + gate * state_size, d_z, count);
        if constexpr (kHas16Bits) {
          store(d_gates[step % 2] + n * depth + gate * state_size + column, d_z, count);
        }
      }
    }
  };
};

}  // namespace lltm::LLTM_LEVEL
