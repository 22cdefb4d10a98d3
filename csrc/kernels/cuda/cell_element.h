// N neighbouring elements of one LLTM step: loads, mathematics, stores.
#pragma once

#include "device_math.h"
#include "vectors.h"

namespace lltm {

// What one element's gradients come from and go to. `Arguments` are those of the pointwise kernel
// or of a whole step: both name these tensors alike.
template <typename T, int N>
struct Upstream {
  using C = compute_t<T>;
  C h[N];
  C cell[N];

  // Of the elements from `column` on in one row of (B, S). The caller has set all strides.
  template <typename Arguments>
  static __device__ __forceinline__ Upstream load(const Arguments& arguments, int64_t row,
                                                  int64_t state_size, int64_t column) {
    const int64_t contiguous[2] = {state_size, 1};
    Upstream up;
#pragma unroll
    for (int e = 0; e < N; ++e) up.h[e] = up.cell[e] = C(0);
    add(up.h, arguments.grad_h, arguments.strides.grad_h, row, column);
    add(up.h, arguments.more_grad_h, contiguous, row, column);
    add(up.cell, arguments.grad_cell, arguments.strides.grad_cell, row, column);
    add(up.cell, arguments.more_grad_cell, contiguous, row, column);
    return up;
  }

 private:
  static __device__ __forceinline__ void add(C (&to)[N], const void* from,
                                             const int64_t (&strides)[2], int64_t row,
                                             int64_t column) {
    if (from == nullptr) return;
    const T* const start = static_cast<const T*>(from) + row * strides[0] + column * strides[1];
    if (N == 1 || strides[1] == 1) {
      const auto pack = load_pack<N>(start);
#pragma unroll
      for (int e = 0; e < N; ++e) to[e] += widen(pack.element[e]);
    } else {
#pragma unroll
      for (int e = 0; e < N; ++e) to[e] += widen(start[e * strides[1]]);
    }
  }
};

// Sets the strides that were not given: the kernels read them always.
template <typename Arguments>
Arguments with_strides(Arguments arguments, int64_t state_size) {
  lltm_gradient_strides& strides = arguments.strides;
  if (strides.given == 0) {
    strides = {1, {state_size, 1}, {state_size, 1}};
  }
  return arguments;
}

// Whether packs of N begin where they may in every row.
inline bool strides_fit(const lltm_gradient_strides& strides, int64_t n) {
  const auto fits = [n](const int64_t (&of)[2]) { return of[1] != 1 || of[0] % n == 0; };
  return fits(strides.grad_h) && fits(strides.grad_cell);
}

// A gate's N pre-activations or gradients at [gate][element] of one row (3, S).
template <typename T, int N>
__device__ __forceinline__ Pack<T, N> load_gate(const void* gates, int64_t row, int64_t state_size,
                                                int gate, int64_t column) {
  return load_pack<N>(static_cast<const T*>(gates) + (row * kGateCount + gate) * state_size +
                      column);
}

template <typename T, int N>
__device__ __forceinline__ void store_gate(void* gates, int64_t row, int64_t state_size, int gate,
                                           int64_t column, const Pack<T, N>& pack) {
  store_pack(static_cast<T*>(gates) + (row * kGateCount + gate) * state_size + column, pack);
}

// The gradients of the N pre-activations `z`, with the op's own incoming ones added; writes
// d_old_cell where it is wanted and `writes` says so.
template <typename T, int N, typename Arguments>
__device__ __forceinline__ void backward_elements(const Arguments& arguments, int64_t row,
                                                  int64_t state_size, int64_t column,
                                                  const compute_t<T> (&z)[kGateCount][N],
                                                  bool writes, compute_t<T> (&d_z)[kGateCount][N]) {
  const int64_t element = row * state_size + column;
  const auto upstream = Upstream<T, N>::load(arguments, row, state_size, column);
  const auto new_cell = load_pack<N>(static_cast<const T*>(arguments.new_cell) + element);
  Pack<T, N> d_old_cell;
#pragma unroll
  for (int e = 0; e < N; ++e) {
    const auto d = CellFormulas<DeviceMath<T>>::backward(
        upstream.h[e], upstream.cell[e], z[kInputGate][e], z[kOutputGate][e], z[kCandidate][e],
        widen(new_cell.element[e]));
#pragma unroll
    for (int gate = 0; gate < kGateCount; ++gate) d_z[gate][e] = d.z[gate];
    d_old_cell.element[e] = narrow<T>(d.old_cell);
  }
  if (arguments.grad_gates != nullptr) {
#pragma unroll
    for (int gate = 0; gate < kGateCount; ++gate) {
      const auto more = load_gate<T, N>(arguments.grad_gates, row, state_size, gate, column);
#pragma unroll
      for (int e = 0; e < N; ++e) d_z[gate][e] += widen(more.element[e]);
    }
  }
  if (writes && arguments.d_old_cell != nullptr) {
    store_pack(static_cast<T*>(arguments.d_old_cell) + element, d_old_cell);
  }
}

}  // namespace lltm
