// One element (row n, column) of one LLTM step: loads, mathematics, stores. Shared by all devices.
#pragma once

#include "cell_math.h"
#include "lltm_kernels.h"
#include "view.h"

namespace lltm {

template <typename T>
struct CellForward {
  View<T, 3> gates;
  const T* bias;
  View<const T, 2> old_cell;
  View<T, 2> new_h;
  View<T, 2> new_cell;

  explicit CellForward(const lltm_cell_forward_arguments& arguments)
      : gates(static_cast<T*>(arguments.gates), int64_t{kGateCount}, arguments.state_size),
        bias(static_cast<const T*>(arguments.bias)),
        old_cell(static_cast<const T*>(arguments.old_cell), arguments.state_size),
        new_h(static_cast<T*>(arguments.new_h), arguments.state_size),
        new_cell(static_cast<T*>(arguments.new_cell), arguments.state_size) {}

  LLTM_HOST_DEVICE void operator()(int64_t n, int64_t column) const {
    const auto state = CellFormulas<ScalarMath<compute_t<T>>>::forward(
        gate(n, kInputGate, column), gate(n, kOutputGate, column), gate(n, kCandidate, column),
        widen(old_cell[n][column]));
    new_h[n][column] = narrow<T>(state.h);
    new_cell[n][column] = narrow<T>(state.cell);
  }

 private:
  LLTM_HOST_DEVICE compute_t<T> gate(int64_t n, int64_t which, int64_t column) const {
    T& z = gates[n][which][column];
    if (bias != nullptr) {
      const View<const T, 2> biases(bias, old_cell.inner_size());
      z = narrow<T>(widen(z) + widen(biases[which][column]));
    }
    return widen(z);  // what backward will read is what forward computes with
  }
};

template <typename T>
struct CellBackward {
  const T* grad_h;
  const T* grad_cell;
  const T* grad_gates;
  const T* more_grad_h;
  const T* more_grad_cell;
  T* d_old_cell_data;
  View<const T, 3> gates;
  View<const T, 2> new_cell;
  View<T, 3> d_gates;
  int64_t state_size;

  explicit CellBackward(const lltm_cell_backward_arguments& arguments)
      : grad_h(static_cast<const T*>(arguments.grad_h)),
        grad_cell(static_cast<const T*>(arguments.grad_cell)),
        grad_gates(static_cast<const T*>(arguments.grad_gates)),
        more_grad_h(static_cast<const T*>(arguments.more_grad_h)),
        more_grad_cell(static_cast<const T*>(arguments.more_grad_cell)),
        d_old_cell_data(static_cast<T*>(arguments.d_old_cell)),
        gates(static_cast<const T*>(arguments.gates), int64_t{kGateCount}, arguments.state_size),
        new_cell(static_cast<const T*>(arguments.new_cell), arguments.state_size),
        d_gates(static_cast<T*>(arguments.d_gates), int64_t{kGateCount}, arguments.state_size),
        state_size(arguments.state_size) {}

  LLTM_HOST_DEVICE void operator()(int64_t n, int64_t column) const {
    using C = compute_t<T>;
    const int64_t element = n * state_size + column;
    const auto sum = [element](const T* one, const T* more) {
      const C first = one != nullptr ? widen(one[element]) : C(0);
      return more != nullptr ? first + widen(more[element]) : first;
    };
    const C upstream_h = sum(grad_h, more_grad_h);
    const C upstream_cell = sum(grad_cell, more_grad_cell);
    auto d = CellFormulas<ScalarMath<C>>::backward(
        upstream_h, upstream_cell, widen(gates[n][kInputGate][column]),
        widen(gates[n][kOutputGate][column]), widen(gates[n][kCandidate][column]),
        widen(new_cell[n][column]));
    if (grad_gates != nullptr) {
      const View<const T, 3> upstream(grad_gates, int64_t{kGateCount}, state_size);
      d.z[kInputGate] += widen(upstream[n][kInputGate][column]);
      d.z[kOutputGate] += widen(upstream[n][kOutputGate][column]);
      d.z[kCandidate] += widen(upstream[n][kCandidate][column]);
    }
    d_gates[n][kInputGate][column] = narrow<T>(d.z[kInputGate]);
    d_gates[n][kOutputGate][column] = narrow<T>(d.z[kOutputGate]);
    d_gates[n][kCandidate][column] = narrow<T>(d.z[kCandidate]);
    if (d_old_cell_data != nullptr) d_old_cell_data[element] = narrow<T>(d.old_cell);
  }
};

}  // namespace lltm
