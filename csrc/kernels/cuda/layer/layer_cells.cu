// Recomputes the cell states of a sequence from its gates.
#include "../common/launch.h"
#include "layer.h"
#include "layer_device.h"

namespace lltm {
inline namespace layer_cells_cu {

constexpr int kThreads = 128;

// Each thread sums one element's terms over time, and computes several terms at once.
template <typename T>
__global__ void __launch_bounds__(kThreads) sum_cells(const lltm_layer_cells_arguments arguments) {
  using C = compute_t<T>;
  using Math = ScalarMath<C>;
  const int64_t element = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const lltm_layer_sizes& sizes = arguments.sizes;
  if (element >= sizes.batch_size * sizes.state_size) return;
  const int64_t row = element / sizes.state_size;
  const T* const initial = static_cast<const T*>(arguments.initial_cell);
  const Walk walk(sizes, false);
  const T* gates = static_cast<const T*>(arguments.gates) + kGateCount * walk.first + element +
                   2 * row * sizes.state_size;
  T* cells = static_cast<T*>(arguments.cells) + walk.first + element;
  C cell = initial != nullptr ? widen(initial[element]) : C(0);
#pragma unroll 4
  for (int64_t step = 0; step < sizes.steps; ++step) {
    const C z_i = widen(gates[kInputGate * sizes.state_size]);
    const C z_c = widen(gates[kCandidate * sizes.state_size]);
    cell += Math::elu(z_c) * Math::sigmoid(z_i).value;
    *cells = narrow<T>(cell);
    gates += kGateCount * walk.stride;
    cells += walk.stride;
  }
}

}  // namespace layer_cells_cu

const char* cuda_layer_cells(lltm_dtype dtype, const lltm_layer_cells_arguments* arguments,
                             const lltm_execution* execution) {
  return launch_on(*execution, "layer_cells", dtype, [&](auto zero, cudaStream_t stream) {
    const int64_t plane = arguments->sizes.batch_size * arguments->sizes.state_size;
    if (plane == 0) return;  // CUDA refuses empty grids
    const auto blocks = static_cast<unsigned>(divide_up(plane, kThreads));
    sum_cells<decltype(zero)><<<blocks, kThreads, 0, stream>>>(*arguments);
  });
}

}  // namespace lltm
