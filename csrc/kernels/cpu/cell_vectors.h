// The pointwise part of one LLTM step, one register at a time, by the formulas of ../cell_math.h;
// and the sums of columns. Both follow a GEMM.

namespace lltm::LLTM_LEVEL {

template <typename T>
struct Cell {
  using C = compute_t<T>;
  using V = Vector<C>;
  using Formulas = CellFormulas<VectorMath<C>>;
  static constexpr int64_t kLanes = Lanes<C>::kCount;

  // The fewest elements that are worth waking another thread.
  static constexpr int64_t kElementsPerThread = 16384;

  static const char* forward(const lltm_step_forward_arguments& arguments,
                             const lltm_execution& execution) {
    for_each_register(
        arguments, execution,
        [](const lltm_step_forward_arguments& a, int64_t n, int64_t column, int64_t count)
            LLTM_INLINE_LAMBDA {
              const int64_t state = a.sizes.state_size;
              const T* const gates = static_cast<const T*>(a.gates) + kGateCount * n * state;
              const T* const bias = static_cast<const T*>(a.bias);
              V z[kGateCount];
#pragma GCC unroll 3
              for (int gate = 0; gate < kGateCount; ++gate) {
                z[gate] = load(gates + gate * state + column, count);
                if (bias != nullptr) z[gate] += load(bias + gate * state + column, count);
              }
              finish_forward(a, state, n, column, count, bias != nullptr, z);
            });
    return nullptr;
  }

  static const char* backward(const lltm_step_backward_arguments& arguments,
                              const lltm_execution& execution) {
    for_each_register(
        arguments, execution,
        [](const lltm_step_backward_arguments& a, int64_t n, int64_t column, int64_t count)
            LLTM_INLINE_LAMBDA { backward_register(a, a.sizes.state_size, n, column, count); });
    return nullptr;
  }

  // Each thread sums whole columns, so the order of additions, and thus the result, does not depend
  // on the number of threads. Columns are summed in strips that stay in cache.
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

  // Computes the new state of batch entry n from the pre-activations `z`: `count` columns from
  // `column` on.
  static LLTM_INLINE void finish_forward(const lltm_step_forward_arguments& a, int64_t state,
                                         int64_t n, int64_t column, int64_t count,
                                         bool stores_gates, V (&z)[kGateCount]) {
#pragma GCC unroll 3
    for (int gate = 0; gate < kGateCount; ++gate) {
      if (!stores_gates) continue;
      T* const to = static_cast<T*>(a.gates) + (kGateCount * n + gate) * state + column;
      store(to, z[gate], count);
      // Forward computes with the rounded values that backward will read.
      if (sizeof(T) == 2) z[gate] = load(to, count);
    }
    const int64_t at = n * state + column;
    const bool runs = a.running.old_cell != nullptr;
    const auto next =
        Formulas::forward(z[kInputGate], z[kOutputGate], z[kCandidate],
                          load_cells<T>(runs ? a.running.old_cell : a.old_cell, runs, at, count));
    store(static_cast<T*>(a.new_cell) + at, next.cell, count);
    if (a.running.new_cell != nullptr) {
      store(static_cast<C*>(a.running.new_cell) + at, next.cell, count);
    }
    store(static_cast<T*>(a.new_h) + at, next.h, count);
  }

  // Computes the gradients of batch entry n: `count` columns from `column` on. Stores the gradients
  // of the gates and of the old cell state if they are wanted.
  static LLTM_INLINE typename Formulas::Gradients backward_register(
      const lltm_step_backward_arguments& a, int64_t state, int64_t n, int64_t column,
      int64_t count) {
    const int64_t at = n * state + column;
    const int64_t gates_at = kGateCount * n * state + column;
    const auto or_zero = [&](const void* from) LLTM_INLINE_LAMBDA {
      return from == nullptr ? V{} : load(static_cast<const T*>(from) + at, count);
    };
    V grad_h = or_zero(a.grad_h);
    V grad_cell = or_zero(a.grad_cell);
    if (a.more_grad_h != nullptr) grad_h += or_zero(a.more_grad_h);
    if (a.more_grad_cell != nullptr) {
      grad_cell += load_cells<T>(a.more_grad_cell, a.float32.more_grad_cell != 0, at, count);
    }
    const T* const gates = static_cast<const T*>(a.gates) + gates_at;
    auto d = Formulas::backward(grad_h, grad_cell, load(gates, count), load(gates + state, count),
                                load(gates + 2 * state, count),
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
    if (sizeof(T) == 2 && a.float32.d_old_cell != 0) {
      store(static_cast<C*>(a.d_old_cell) + at, d.old_cell, count);
    } else {
      store(static_cast<T*>(a.d_old_cell) + at, d.old_cell, count);
    }
    return d;
  }

 private:
  // Calls `body(arguments, n, column, count)` for every register of the state, on several threads,
  // which may share a row. `count` is constant except at the end of a unit of columns.
  template <typename Arguments, typename Body>
  static LLTM_INLINE void for_each_register(const Arguments& arguments,
                                            const lltm_execution& execution, const Body& body) {
    constexpr int64_t kColumns = 512;  // per unit
    const int64_t state = arguments.sizes.state_size;
    if (arguments.sizes.batch_size == 0 || state == 0) return;
    const int64_t units_per_row = ceiling(state, kColumns);
    const int64_t grain_size = ceiling(kElementsPerThread, least(state, kColumns));
    in_parallel(arguments.sizes.batch_size * units_per_row, grain_size, execution,
                [&](int64_t begin, int64_t end) {
                  const Arguments a = arguments;  // a copy that no store below can change
                  for (int64_t unit = begin; unit < end; ++unit) {
                    const int64_t n = unit / units_per_row;
                    int64_t column = unit % units_per_row * kColumns;
                    const int64_t last = least(column + kColumns, a.sizes.state_size);
                    for (; column + kLanes <= last; column += kLanes) body(a, n, column, kLanes);
                    if (column < last) body(a, n, column, last - column);
                  }
                });
  }
};

}  // namespace lltm::LLTM_LEVEL
