// The pointwise part of a step and the cell states of a sequence, one register at a time, by the
// formulas of ../cell_math.h; and the sums of a matrix's columns.

namespace lltm::LLTM_LEVEL {

template <typename T>
struct Pointwise {
  using C = compute_t<T>;
  using V = Vector<C>;
  using Formulas = CellFormulas<VectorMath<C>>;
  static constexpr int64_t kLanes = Lanes<C>::kCount;

  // The fewest elements for which it pays to wake another thread.
  static constexpr int64_t kElementsPerThread = 16384;

  static const char* forward(const lltm_step_forward_arguments& arguments,
                             const lltm_execution& execution) {
    return for_each_register<forward_register>(arguments, execution);
  }
  static const char* backward(const lltm_step_backward_arguments& arguments,
                              const lltm_execution& execution) {
    return for_each_register<backward_register>(arguments, execution);
  }

  // Recomputes a sequence's cell states with the same additions as forward.
  static const char* cells(const lltm_layer_cells_arguments& arguments,
                           const lltm_execution& execution) {
    return for_each_register<cells_register>(arguments, execution, arguments.sizes.steps);
  }

  // Each thread sums whole columns, so the order of additions, and thus the result, does not depend
  // on the number of threads. The sums of kStrip columns at a time stay in cache.
  static const char* column_sum(const lltm_column_sum_arguments& arguments,
                                const lltm_execution& execution) {
    constexpr int64_t kStrip = 64;
    const int64_t grain_size = kElementsPerThread / at_least_one(arguments.rows) + 1;
    in_parallel(arguments.columns, grain_size, execution, [&](int64_t begin, int64_t end) {
      for (int64_t first = begin; first < end; first += kStrip) {
        const int64_t width = least(end - first, kStrip);
        const T* row = static_cast<const T*>(arguments.matrix) + first;
        T* const sums = static_cast<T*>(arguments.sums) + first;
        C partial[kStrip] = {};
        for (int64_t n = 0; n < arguments.rows; ++n, row += arguments.columns) {
          for (int64_t k = 0; k < width; ++k) partial[k] += widen(row[k]);
        }
        for (int64_t k = 0; k < width; ++k) sums[k] = narrow<T>(partial[k]);
      }
    });
    return nullptr;
  }

  // Computes `count` columns of the new state of batch entry n, starting at `column`. Adds `gates`
  // to the pre-activations z if `adds_gates`, and then writes z to `gates` if `stores_gates`.
  static LLTM_INLINE void finish_forward(const lltm_step_forward_arguments& a, int64_t n,
                                         int64_t column, int64_t count, bool adds_gates,
                                         bool stores_gates, V (&z)[kGateCount]) {
    const int64_t state = a.sizes.state_size;
#pragma GCC unroll 3
    for (int gate = 0; gate < kGateCount; ++gate) {
      T* const at = static_cast<T*>(a.gates) + (kGateCount * n + gate) * state + column;
      if (adds_gates) z[gate] += load(at, count);
      if (stores_gates) store(at, z[gate], count);
      // Forward computes with the rounded values that backward will read.
      if (stores_gates && sizeof(T) == 2) z[gate] = load(at, count);
    }
    const int64_t at = n * state + column;
    const V old_cell = a.running.old_cell == nullptr
                           ? load(static_cast<const T*>(a.old_cell) + at, count)
                           : load(static_cast<const C*>(a.running.old_cell) + at, count);
    const auto next = Formulas::forward(z[kInputGate], z[kOutputGate], z[kCandidate], old_cell);
    store(static_cast<T*>(a.new_cell) + at, next.cell, count);
    if (a.running.new_cell != nullptr) {
      store(static_cast<C*>(a.running.new_cell) + at, next.cell, count);
    }
    store(static_cast<T*>(a.new_h) + at, next.h, count);
  }

  // Computes and returns `count` columns of the gradients of batch entry n, starting at `column`.
  // Also stores the gradients in d_gates and in d_old_cell, each unless its pointer is NULL.
  static LLTM_INLINE typename Formulas::Gradients backward_register(
      const lltm_step_backward_arguments& a, int64_t n, int64_t column, int64_t count) {
    const int64_t state = a.sizes.state_size;
    const int64_t at = n * state + column;
    const int64_t gates_at = kGateCount * n * state + column;
    V grad_h = load_or_zero<T>(a.grad_h, at, count);
    V grad_cell = load_or_zero<T>(a.grad_cell, at, count);
    if (a.more_grad_h != nullptr) grad_h += load(static_cast<const T*>(a.more_grad_h) + at, count);
    if (a.more_grad_cell != nullptr) {
      grad_cell += a.float32.more_grad_cell == 0
                       ? load(static_cast<const T*>(a.more_grad_cell) + at, count)
                       : load(static_cast<const C*>(a.more_grad_cell) + at, count);
    }
    const T* const gates = static_cast<const T*>(a.gates) + gates_at;
    const bool has_grad_h = a.grad_h != nullptr || a.more_grad_h != nullptr;
    auto d = Formulas::backward(has_grad_h, grad_h, grad_cell, load(gates, count),
                                load(gates + state, count), load(gates + 2 * state, count),
                                load(static_cast<const T*>(a.new_cell) + at, count));
#pragma GCC unroll 3
    for (int gate = 0; gate < kGateCount; ++gate) {
      const int64_t gate_at = gates_at + gate * state;
      if (a.grad_gates != nullptr) {
        d.z[gate] += load(static_cast<const T*>(a.grad_gates) + gate_at, count);
      }
      if (a.d_gates != nullptr) store(static_cast<T*>(a.d_gates) + gate_at, d.z[gate], count);
    }
    if (a.d_old_cell == nullptr) return d;
    if (a.float32.d_old_cell == 0) {
      store(static_cast<T*>(a.d_old_cell) + at, d.old_cell, count);
    } else {
      store(static_cast<C*>(a.d_old_cell) + at, d.old_cell, count);
    }
    return d;
  }

 private:
  static LLTM_INLINE void forward_register(const lltm_step_forward_arguments& a, int64_t n,
                                           int64_t column, int64_t count) {
    const int64_t state = a.sizes.state_size;
    const T* const gates = static_cast<const T*>(a.gates) + kGateCount * n * state + column;
    const T* const bias = static_cast<const T*>(a.bias);
    V z[kGateCount];
#pragma GCC unroll 3
    for (int gate = 0; gate < kGateCount; ++gate) {
      z[gate] = load(gates + gate * state, count);
      if (bias != nullptr) z[gate] += load(bias + gate * state + column, count);
    }
    finish_forward(a, n, column, count, false, bias != nullptr, z);
  }

  static LLTM_INLINE void cells_register(const lltm_layer_cells_arguments& a, int64_t n,
                                         int64_t column, int64_t count) {
    const int64_t state = a.sizes.state_size;
    V cell = load_or_zero<T>(a.initial_cell, n * state + column, count);
    for (int64_t step = 0; step < a.sizes.steps; ++step) {
      const int64_t row = first_row_of(a.sizes, step) + n;
      const T* const z = static_cast<const T*>(a.gates) + kGateCount * row * state + column;
      cell = Formulas::forward(load(z, count), V{}, load(z + kCandidate * state, count), cell).cell;
      store(static_cast<T*>(a.cells) + row * state + column, cell, count);
    }
  }

  // Calls `body(arguments, n, column, count)` for every register of the state, possibly on several
  // threads. Two threads may divide one row of the state. A call of `body` computes `steps`
  // registers.
  template <auto body, typename Arguments>
  static const char* for_each_register(const Arguments& arguments, const lltm_execution& execution,
                                       int64_t steps = 1) {
    const int64_t state = arguments.sizes.state_size;
    const int64_t registers = ceiling(state, kLanes);  // of a row
    if (registers == 0) return nullptr;
    const int64_t grain = at_least_one(kElementsPerThread / kLanes / steps);
    in_parallel(arguments.sizes.batch_size * registers, grain, execution,
                [&](int64_t begin, int64_t end) {
                  const Arguments a = arguments;  // a copy that no store below can change
                  for (int64_t unit = begin; unit < end;) {
                    const int64_t n = unit / registers;
                    int64_t column = unit % registers * kLanes;
                    const int64_t last = least(column + (end - unit) * kLanes, a.sizes.state_size);
                    unit += ceiling(last - column, kLanes);
                    // A whole register has a constant count, which makes faster code.
                    for (; column + kLanes <= last; column += kLanes) body(a, n, column, kLanes);
                    if (column < last) body(a, n, column, last - column);
                  }
                });
    return nullptr;
  }
};

}  // namespace lltm::LLTM_LEVEL
