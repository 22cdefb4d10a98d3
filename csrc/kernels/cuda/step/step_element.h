// Loads and stores N neighbouring elements of one LLTM step, and computes their gradients.
#pragma once

#include "torchship/kernels/vectors.h"

#include "../common/device_math.h"
#include "../common/unrolled.h"

namespace lltm {

// The new cell states and the gradients of h and of the cell states, for N elements.
template <typename T, int N>
struct Incoming {
  Pack<T, N> new_cell;
  Pack<T, N> grad_h;
  Pack<T, N> grad_cell;

  // Loads N elements of a row of tensors (B, S), starting at `column`. If N is 1, the gradients may
  // have any strides, which the arguments must give. Otherwise the gradients must be contiguous.
  LLTM_DEVICE static Incoming load(const lltm_step_backward_arguments& arguments, int64_t row,
                                   int64_t state_size, int64_t column) {
    const int64_t element = row * state_size + column;
    const auto at = [&](const int64_t (&strides)[2]) {
      return N == 1 ? row * strides[0] + column * strides[1] : element;
    };
    Incoming from{};
    from.new_cell = load_pack<N>(static_cast<const T*>(arguments.new_cell) + element);
    if (arguments.grad_h != nullptr) {
      from.grad_h =
          load_pack<N>(static_cast<const T*>(arguments.grad_h) + at(arguments.strides.grad_h));
    }
    if (arguments.grad_cell != nullptr) {
      from.grad_cell = load_pack<N>(static_cast<const T*>(arguments.grad_cell) +
                                    at(arguments.strides.grad_cell));
    }
    return from;
  }
};

template <typename T>
constexpr bool kSixteenBits = sizeof(T) == 2;

// Returns the arguments with the strides that Incoming::load reads. If the caller gave none, these
// are the strides of contiguous gradients.
inline lltm_step_backward_arguments with_strides(lltm_step_backward_arguments arguments) {
  const int64_t row = arguments.sizes.state_size;
  if (arguments.strides.given == 0) arguments.strides = {1, {row, 1}, {row, 1}};
  return arguments;
}

inline bool has_contiguous_gradients(const lltm_step_backward_arguments& arguments) {
  const auto contiguous = [&](const void* gradient, const int64_t (&strides)[2]) {
    const bool rows = strides[0] == arguments.sizes.state_size || arguments.sizes.batch_size == 1;
    return gradient == nullptr || (strides[1] == 1 && rows);
  };
  return contiguous(arguments.grad_h, arguments.strides.grad_h) &&
         contiguous(arguments.grad_cell, arguments.strides.grad_cell);
}

// Load and store N neighbouring pre-activations of a gate, or their gradients, in a tensor
// (B, 3, S), starting at [row][gate][column].
template <typename T, int N>
LLTM_DEVICE Pack<T, N> load_gate(const void* gates, int64_t row, int64_t state_size, int gate,
                                 int64_t column) {
  return load_pack<N>(static_cast<const T*>(gates) + (row * kGateCount + gate) * state_size +
                      column);
}

template <typename T, int N>
LLTM_DEVICE void store_gate(void* gates, int64_t row, int64_t state_size, int gate, int64_t column,
                            const Pack<T, N>& pack) {
  store_pack(static_cast<T*>(gates) + (row * kGateCount + gate) * state_size + column, pack);
}

template <typename T, int N>
LLTM_DEVICE Pack<T, N> narrow_pack(const Pack<compute_t<T>, N>& values) {
  Pack<T, N> pack;
  unrolled<N>([&](int e) { pack.element[e] = narrow<T>(values.element[e]); });
  return pack;
}

// Load N cell states before a forward step, and store N cell states after the step. `running` is
// NULL, or the float32 copy of the states.
template <typename T, int N>
LLTM_DEVICE Pack<compute_t<T>, N> load_cell(const void* old_cell, const void* running,
                                            int64_t element) {
  using C = compute_t<T>;
  if (kSixteenBits<T> && running != nullptr) {
    return load_pack<N>(static_cast<const C*>(running) + element);
  }
  const auto stored = load_pack<N>(static_cast<const T*>(old_cell) + element);
  Pack<C, N> cell;
  unrolled<N>([&](int e) { cell.element[e] = widen(stored.element[e]); });
  return cell;
}

template <typename T, int N>
LLTM_DEVICE void store_cell(void* new_cell, void* running, int64_t element,
                            const Pack<compute_t<T>, N>& cell) {
  store_pack(static_cast<T*>(new_cell) + element, narrow_pack<T>(cell));
  if (kSixteenBits<T> && running != nullptr) {
    store_pack(static_cast<compute_t<T>*>(running) + element, cell);
  }
}

// Stores one element's gates, which are `sums` rounded to T, and the new h and cell state.
template <typename T>
LLTM_DEVICE void finish_element(const lltm_step_forward_arguments& arguments, int64_t row,
                                int64_t state_size, int64_t column,
                                const compute_t<T> (&sums)[kGateCount], compute_t<T> old_cell) {
  compute_t<T> z[kGateCount];
  unrolled<kGateCount>([&](int gate) {
    const T stored = narrow<T>(sums[gate]);
    store_gate(arguments.gates, row, state_size, gate, column, Pack<T, 1>{stored});
    z[gate] = widen(stored);  // forward computes with the value that backward will read
  });
  const int64_t element = row * state_size + column;
  const auto state =
      CellFormulas<DeviceMath<T>>::forward(z[kInputGate], z[kOutputGate], z[kCandidate], old_cell);
  static_cast<T*>(arguments.new_h)[element] = narrow<T>(state.h);
  store_cell<T, 1>(arguments.new_cell, arguments.running.new_cell, element, {state.cell});
}

// Computes the gradients `d_z` of the N pre-activations `z`, grad_gates included. Writes d_old_cell
// if `writes` is true and d_old_cell is not NULL. Only in a sequence does more_grad_h come in
// several planes, and only with kFloat32 are gradients of cell states kept in float32.
template <typename T, int N, bool kFloat32, int kMostPlanes>
LLTM_DEVICE void backward_elements(const lltm_step_backward_arguments& arguments,
                                   const Incoming<T, N>& incoming, int64_t row, int64_t state_size,
                                   int64_t column, const compute_t<T> (&z)[kGateCount][N],
                                   bool writes, compute_t<T> (&d_z)[kGateCount][N]) {
  using C = compute_t<T>;
  const int64_t element = row * state_size + column;
  C grad_h[N];
  C grad_cell[N];
  unrolled<N>([&](int e) {
    grad_h[e] = widen(incoming.grad_h.element[e]);
    grad_cell[e] = widen(incoming.grad_cell.element[e]);
  });
  const auto add = [](C(&to)[N], const auto* from) {
    const auto more = load_pack<N>(from);
    unrolled<N>([&](int e) { to[e] += widen(more.element[e]); });
  };
  if (arguments.more_grad_h != nullptr) {
    const T* const more = static_cast<const T*>(arguments.more_grad_h) + element;
    unrolled<kMostPlanes>([&](int plane) {
      if (plane > 0 && plane >= arguments.more_grad_h_planes) return;
      add(grad_h, more + plane * arguments.sizes.batch_size * state_size);
    });
  }
  if (arguments.more_grad_cell != nullptr) {
    if (kSixteenBits<T> && kFloat32 && arguments.float32.more_grad_cell != 0) {
      add(grad_cell, static_cast<const C*>(arguments.more_grad_cell) + element);
    } else {
      add(grad_cell, static_cast<const T*>(arguments.more_grad_cell) + element);
    }
  }
  const bool has_grad_h = arguments.grad_h != nullptr || arguments.more_grad_h != nullptr;
  Pack<C, N> d_old_cell;
  unrolled<N>([&](int e) {
    const auto d = CellFormulas<DeviceMath<T>>::backward(
        has_grad_h, grad_h[e], grad_cell[e], z[kInputGate][e], z[kOutputGate][e], z[kCandidate][e],
        widen(incoming.new_cell.element[e]));
    unrolled<kGateCount>([&](int gate) { d_z[gate][e] = d.z[gate]; });
    d_old_cell.element[e] = d.old_cell;
  });
  if (arguments.grad_gates != nullptr) {
    unrolled<kGateCount>([&](int gate) {
      add(d_z[gate], static_cast<const T*>(arguments.grad_gates) +
                         (row * kGateCount + gate) * state_size + column);
    });
  }
  if (writes && arguments.d_old_cell != nullptr) {
    if (kSixteenBits<T> && kFloat32 && arguments.float32.d_old_cell != 0) {
      store_pack(static_cast<C*>(arguments.d_old_cell) + element, d_old_cell);
    } else {
      store_pack(static_cast<T*>(arguments.d_old_cell) + element, narrow_pack<T>(d_old_cell));
    }
  }
}

}  // namespace lltm
