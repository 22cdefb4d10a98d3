// One LLTM step on part of a row, a register at a time: loads, the formulas of ../cell_math.h,
// stores.
#ifndef LLTM_LEVEL
#error "include this from a level_*.cpp"
#endif

namespace lltm {
namespace LLTM_LEVEL {

// Calls `body(column, count)` for whole registers, with a constant count, and once for the rest.
template <typename C, typename Body>
LLTM_INLINE void for_each_register(int64_t begin, int64_t end, const Body& body) {
  constexpr int64_t kCount = Lanes<C>::kCount;
  int64_t column = begin;
  for (; column + kCount <= end; column += kCount) body(column, kCount);
  if (column < end) body(column, end - column);
}

template <typename T>
struct Row {
  using C = compute_t<T>;
  using Cells = CellMemory<T>;
  using Formulas = CellFormulas<VectorMath<C>>;

  static void forward(const lltm_cell_forward_arguments& arguments, int64_t n, int64_t begin,
                      int64_t end) {
    const int64_t state_size = arguments.state_size;
    const int64_t row = n * state_size;
    T* const gates = static_cast<T*>(arguments.gates) + 3 * row;
    const T* const bias = static_cast<const T*>(arguments.bias);
    const lltm_running_cell& running = arguments.running;
    const bool runs = running.old_cell != nullptr;
    const void* const old_cell = runs ? running.old_cell : arguments.old_cell;
    T* const new_h = static_cast<T*>(arguments.new_h) + row;
    T* const new_cell = static_cast<T*>(arguments.new_cell) + row;
    for_each_register<C>(begin, end, [&](int64_t column, int64_t count) LLTM_INLINE_LAMBDA {
      Vector<C> z[kGateCount];
#pragma GCC unroll 3
      for (int gate = 0; gate < kGateCount; ++gate) {
        T* const at = gates + gate * state_size + column;
        z[gate] = load(at, count);
        if (bias != nullptr) {
          z[gate] += load(bias + gate * state_size + column, count);
          store(at, z[gate], count);
          // What backward will read is what forward computes with.
          if (sizeof(T) == 2) z[gate] = load(at, count);
        }
      }
      const auto state = Formulas::forward(z[kInputGate], z[kOutputGate], z[kCandidate],
                                           Cells::load(old_cell, runs, row + column, count));
      store(new_cell + column, state.cell, count);
      if (running.new_cell != nullptr) {
        Cells::store(running.new_cell, true, row + column, state.cell, count);
      }
      store(new_h + column, state.h, count);
    });
  }

  static void backward(const lltm_cell_backward_arguments& arguments, int64_t n, int64_t begin,
                       int64_t end) {
    const int64_t state_size = arguments.state_size;
    const int64_t row = n * state_size;
    const T* const gates = static_cast<const T*>(arguments.gates) + 3 * row;
    const T* const new_cell = static_cast<const T*>(arguments.new_cell) + row;
    const auto or_null = [](const void* data, int64_t offset) {
      return data == nullptr ? nullptr : static_cast<const T*>(data) + offset;
    };
    const T* const grad_h = or_null(arguments.grad_h, row);
    const T* const grad_cell = or_null(arguments.grad_cell, row);
    const T* const grad_gates = or_null(arguments.grad_gates, 3 * row);
    const T* const more_grad_h = or_null(arguments.more_grad_h, row);
    T* const d_gates = static_cast<T*>(arguments.d_gates) + 3 * row;
    for_each_register<C>(begin, end, [&](int64_t column, int64_t count) LLTM_INLINE_LAMBDA {
      const auto or_zero = [&](const T* from) {
        return from == nullptr ? Vector<C>{} : load(from + column, count);
      };
      Vector<C> upstream_h = or_zero(grad_h);
      Vector<C> upstream_cell = or_zero(grad_cell);
      if (more_grad_h != nullptr) upstream_h += load(more_grad_h + column, count);
      if (arguments.more_grad_cell != nullptr) {
        upstream_cell += Cells::load(arguments.more_grad_cell,
                                     arguments.float32.more_grad_cell != 0, row + column, count);
      }
      auto d = Formulas::backward(upstream_h, upstream_cell, load(gates + column, count),
                                  load(gates + state_size + column, count),
                                  load(gates + 2 * state_size + column, count),
                                  load(new_cell + column, count));
#pragma GCC unroll 3
      for (int gate = 0; gate < kGateCount; ++gate) {
        if (grad_gates != nullptr) {
          d.z[gate] += load(grad_gates + gate * state_size + column, count);
        }
        store(d_gates + gate * state_size + column, d.z[gate], count);
      }
      if (arguments.d_old_cell != nullptr) {
        Cells::store(arguments.d_old_cell, arguments.float32.d_old_cell != 0, row + column,
                     d.old_cell, count);
      }
    });
  }

  static constexpr CellKernels kernels() { return {forward, backward}; }
};

}  // namespace LLTM_LEVEL
}  // namespace lltm
