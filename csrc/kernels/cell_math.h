// The mathematics of one LLTM step for one element, shared by the CPU and CUDA kernels.
//
//   i = sigmoid(z_i), o = sigmoid(z_o), g = elu(z_c);  c' = c + g i;  h' = tanh(c') o
//
// Backward starts from the gates' pre-activations z, not from the activations: a sigmoid in 16 bits
// is 1, and its derivative would be 0, where z is above 6.3 in bfloat16 or above 8.4 in float16.
// The derivative of elu, exp(z), cannot come from g = elu(z) either: g + 1 loses its digits.
#pragma once

#include <cmath>

#include "types.h"

namespace lltm {

// Order of the gates in `weights`, `bias` and `gates`.
enum Gate { kInputGate = 0, kOutputGate = 1, kCandidate = 2, kGateCount = 3 };

// sigmoid(z) and 1 - sigmoid(z), both to full relative precision.
template <typename Value>
struct Sigmoid {
  Value value;
  Value complement;
};

// The formulas, for any `Math` that has the types Value and Scalar and the functions sigmoid, elu,
// elu_slope and tanh. A Value is one number on a CUDA device and a register of numbers on a CPU.
template <typename Math>
struct CellFormulas {
  using Value = typename Math::Value;

  struct State {
    Value h;
    Value cell;
  };

  static LLTM_HOST_DEVICE State forward(Value z_i, Value z_o, Value z_c, Value old_cell) {
    const Value cell = old_cell + Math::elu(z_c) * Math::sigmoid(z_i).value;
    return {Math::tanh(cell) * Math::sigmoid(z_o).value, cell};
  }

  struct Gradients {
    Value z[kGateCount];
    Value old_cell;
  };

  // Without `has_grad_h`, h has no gradient, and grad_h is zero: then a NaN in z_o or in new_cell
  // reaches no gradient through h.
  static LLTM_HOST_DEVICE Gradients backward(bool has_grad_h, Value grad_h, Value grad_cell,
                                             Value z_i, Value z_o, Value z_c, Value new_cell) {
    const Sigmoid<Value> i = Math::sigmoid(z_i);
    const Sigmoid<Value> o = Math::sigmoid(z_o);
    const Value g = Math::elu(z_c);
    const Value t = Math::tanh(new_cell);
    const Value through_h = grad_h * o.value * (typename Math::Scalar(1) - t * t);
    const Value d_cell = has_grad_h ? grad_cell + through_h : grad_cell;
    const Value d_z_o = grad_h * t * o.value * o.complement;
    return {{d_cell * g * i.value * i.complement, has_grad_h ? d_z_o : grad_h,
             d_cell * i.value * Math::elu_slope(z_c)},
            d_cell};
  }
};

// Activations of one number.
template <typename T>
struct ScalarMath {
  using Scalar = T;
  using Value = T;

  static LLTM_HOST_DEVICE Sigmoid<T> sigmoid(T z) {
    const T decay = std::exp(z < T(0) ? z : -z);  // never overflows
    const T larger = T(1) / (T(1) + decay);
    const T smaller = decay * larger;
    return z < T(0) ? Sigmoid<T>{smaller, larger} : Sigmoid<T>{larger, smaller};
  }

  static LLTM_HOST_DEVICE T elu(T z) { return z > T(0) ? z : std::expm1(z); }

  // Returns elu'(z). The product of a mask and exp(z) would be 0 * inf = NaN for large z, and 0
  // instead of 1 at z = 0.
  static LLTM_HOST_DEVICE T elu_slope(T z) { return z > T(0) ? T(1) : std::exp(z); }

  static LLTM_HOST_DEVICE T tanh(T x) { return std::tanh(x); }
};

}  // namespace lltm
