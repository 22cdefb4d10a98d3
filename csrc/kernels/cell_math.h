// The mathematics of one LLTM step for one element, shared by the CPU and CUDA kernels.
//
//   i = sigmoid(z_i), o = sigmoid(z_o), g = elu(z_c);  c' = c + g i;  h' = tanh(c') o
//
// The gates' pre-activations z are what is kept for backward, for every dtype: they are the GEMM's
// own output (nothing is written twice), and a 16-bit sigmoid would lose its derivative beyond
// |z| of 7 to 9.
#pragma once

#include <cmath>

#include "types.h"

namespace lltm {

// Order of the gates in `weights`, `bias` and `gates`.
enum Gate { kInputGate = 0, kOutputGate = 1, kCandidate = 2, kGateCount = 3 };

LLTM_HOST_DEVICE float exp_of(float x) { return ::expf(x); }
LLTM_HOST_DEVICE double exp_of(double x) { return ::exp(x); }
LLTM_HOST_DEVICE float expm1_of(float x) { return ::expm1f(x); }
LLTM_HOST_DEVICE double expm1_of(double x) { return ::expm1(x); }
LLTM_HOST_DEVICE float tanh_of(float x) { return ::tanhf(x); }
LLTM_HOST_DEVICE double tanh_of(double x) { return ::tanh(x); }

// sigmoid(z) and 1 - sigmoid(z), both to full relative precision from one exponential.
template <typename T>
struct Sigmoid {
  T value;
  T complement;

  LLTM_HOST_DEVICE explicit Sigmoid(T z) {
    const T decay = exp_of(z < T(0) ? z : -z);  // never overflows
    const T larger = T(1) / (T(1) + decay);
    const T smaller = decay * larger;
    value = z < T(0) ? smaller : larger;
    complement = z < T(0) ? larger : smaller;
  }
};

// elu(z) with alpha = 1.
template <typename T>
LLTM_HOST_DEVICE T elu(T z) {
  return z > T(0) ? z : expm1_of(z);
}

// elu'(z) from its value g = elu(z). A mask times exp(z) would give 0 * inf = NaN for large z, and
// 0 at z = 0.
template <typename T>
LLTM_HOST_DEVICE T elu_derivative(T g) {
  return g > T(0) ? T(1) : g + T(1);
}

template <typename T>
struct CellState {
  T h;
  T cell;
};

template <typename T>
LLTM_HOST_DEVICE CellState<T> cell_forward(T z_i, T z_o, T z_c, T old_cell) {
  const T cell = old_cell + elu(z_c) * Sigmoid<T>(z_i).value;
  return {tanh_of(cell) * Sigmoid<T>(z_o).value, cell};
}

template <typename T>
struct CellGradients {
  T z_i;
  T z_o;
  T z_c;
  T old_cell;
};

template <typename T>
LLTM_HOST_DEVICE CellGradients<T> cell_backward(T grad_h, T grad_cell, T z_i, T z_o, T z_c,
                                                T new_cell) {
  const Sigmoid<T> i(z_i);
  const Sigmoid<T> o(z_o);
  const T g = elu(z_c);
  const T t = tanh_of(new_cell);
  const T d_cell = grad_cell + grad_h * o.value * (T(1) - t * t);
  return {d_cell * g * i.value * i.complement, grad_h * t * o.value * o.complement,
          d_cell * i.value * elu_derivative(g), d_cell};
}

}  // namespace lltm
