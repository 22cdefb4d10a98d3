// One whole LLTM step backward, by cuBLAS or by our kernels in at most two launches.
//
// The weight gradients of a few columns of the state need only the incoming gradients of these
// columns. So a block of the first launch makes, for a few columns, the gradients of the gates, of
// the bias, and of all or some of their weights. The gradients of input and old_h need all columns,
// so a second launch makes them.
#include <type_traits>

#include "../common/launch.h"
#include "../common/measured_bounds.h"
#include "step.h"
#include "step_element.h"
#include "step_tile.h"

namespace lltm {
inline namespace step_backward_cu {

// kAgain: the pre-activations were not saved and are recomputed.
template <typename Tile, bool kAgain>
__global__ void __launch_bounds__(Tile::kThreads)
    backward_columns(const lltm_step_backward_arguments arguments, void* d_gates) {
  using T = typename Tile::T;
  using C = typename Tile::C;
  constexpr int kOutputs = Tile::kGates * Tile::kColumns;
  constexpr int kRows = kAgain ? Tile::kRows : 64;  // at a time
  union Nothing {};
  __shared__ std::conditional_t<kAgain, typename Tile::Shared, Nothing> shared;
  alignas(kVectorBytes) __shared__ C d_z[kRows][kOutputs];
  const StepOperands<T> operands(arguments);
  const int64_t batch_size = operands.batch_size;
  const int64_t state_size = operands.state_size;
  const int64_t depth = state_size + operands.input_size;
  const int64_t first_column = int64_t{blockIdx.x} * Tile::kColumns;
  const int64_t k = int64_t{blockIdx.y} * Tile::kThreads + threadIdx.x;
  const bool is_first = blockIdx.y == 0;  // other blocks repeat d_z for other weights
  const T* const bias = static_cast<const T*>(arguments.bias);

  C d_weights[kOutputs] = {};
  C d_bias = C(0);
  for (int64_t first_row = 0; first_row < batch_size; first_row += kRows) {
    if constexpr (kAgain) Tile::multiply(operands, first_row, first_column, shared);
    const int64_t rest = batch_size - first_row;
    const int rows = rest < kRows ? static_cast<int>(rest) : kRows;
    for (int index = threadIdx.x; index < rows * Tile::kColumns; index += Tile::kThreads) {
      const int tile_row = index / Tile::kColumns;
      const int tile_column = index % Tile::kColumns;
      const int64_t row = first_row + tile_row;
      const int64_t column = first_column + tile_column;
      C d[Tile::kGates][1] = {};
      if (column < state_size) {
        C z[Tile::kGates][1];
        unrolled<Tile::kGates>([&](int gate) {
          if constexpr (kAgain) {
            C sum = Tile::total(shared, gate, tile_row, tile_column);
            if (bias != nullptr) sum += widen(bias[gate * state_size + column]);
            z[gate][0] = widen(narrow<T>(sum));  // rounded as in forward
          } else {
            const auto stored = load_gate<T, 1>(arguments.gates, row, state_size, gate, column);
            z[gate][0] = widen(stored.element[0]);
          }
        });
        const auto incoming = Incoming<T, 1>::load(arguments, row, state_size, column);
        backward_elements<T, 1, true, 1>(arguments, incoming, row, state_size, column, z, is_first,
                                         d);
        if (is_first && d_gates != nullptr) {
          unrolled<Tile::kGates>([&](int gate) {
            store_gate(d_gates, row, state_size, gate, column, Pack<T, 1>{narrow<T>(d[gate][0])});
          });
        }
      }
      unrolled<Tile::kGates>(
          [&](int gate) { d_z[tile_row][gate * Tile::kColumns + tile_column] = d[gate][0]; });
    }
    __syncthreads();
    if (threadIdx.x < kOutputs) {
#pragma unroll 16
      for (int row = 0; row < rows; ++row) d_bias += d_z[row][threadIdx.x];
    }
    if (arguments.d_weights != nullptr && k < depth) {
      // Column k of [h, x] is a column of h or of x, so one stride leads from row to row.
      const T* from = operands.joined(first_row, k);
      const int64_t stride = k < state_size ? state_size : operands.input_size;
#pragma unroll 8
      for (int row = 0; row < rows; ++row) {
        const C a = widen(from[row * stride]);
        unrolled<kOutputs>([&](int n) { d_weights[n] += a * d_z[row][n]; });
      }
    }
    __syncthreads();  // before d_z is written again
  }

  if (arguments.d_weights != nullptr && k < depth) {
    unrolled<kOutputs>([&](int n) {
      const int64_t column = first_column + n % Tile::kColumns;
      if (column >= state_size) return;
      const int64_t line = n / Tile::kColumns * state_size + column;
      static_cast<T*>(arguments.d_weights)[line * depth + k] = narrow<T>(d_weights[n]);
    });
  }
  if (arguments.d_bias != nullptr && is_first && threadIdx.x < kOutputs) {
    const int n = threadIdx.x;
    const int64_t column = first_column + n % Tile::kColumns;
    if (column < state_size) {
      static_cast<T*>(arguments.d_bias)[n / Tile::kColumns * state_size + column] =
          narrow<T>(d_bias);
    }
  }
}

// d_old_h and d_input: d_gates (B, 3S) times W. A lane has one column of the result for kRows rows.
// The warps of a block divide the 3S terms, and read their weights before they wait for d_gates.
constexpr int kLanes = 32;
constexpr int kWarps = 16;
constexpr int kTermsPerWarp = 24;
constexpr int kTerms = kWarps * kTermsPerWarp;

template <typename T, int kRows>
__global__ void __launch_bounds__(kLanes* kWarps, sizeof(T) == 8 ? 1 : 2)
    backward_rows(const lltm_step_backward_arguments arguments, const void* d_gates,
                  int64_t begin_k, int64_t end_k) {
  using C = compute_t<T>;
  constexpr int kVector = kVectorSize<C>;
  __shared__ union {
    alignas(kVectorBytes) C d_z[kRows][kTerms];
    C sums[kWarps][kRows][kLanes];
  } shared;
  const StepOperands<T> operands(arguments);
  const int lane = threadIdx.x % kLanes;
  const int warp = threadIdx.x / kLanes;
  const int64_t k = begin_k + int64_t{blockIdx.x} * kLanes + lane;
  const int64_t first_row = int64_t{blockIdx.y} * kRows;
  const int64_t terms = 3 * operands.state_size;
  const T* const all_d_z = static_cast<const T*>(d_gates);

  C sum[kRows] = {};
  for (int64_t first = 0; first < terms; first += kTerms) {
    const int64_t begin = first + warp * kTermsPerWarp;
    const int64_t rest = k < end_k ? terms - begin : 0;
    const T* from = operands.weights + begin * operands.weight_stride + k;
    T w[kTermsPerWarp];
    unrolled<kTermsPerWarp>([&](int n) {
      w[n] = n < rest ? *from : T{};
      from += operands.weight_stride;
    });
    for (int index = threadIdx.x; index < kRows * kTerms; index += kLanes * kWarps) {
      const int64_t row = first_row + index / kTerms;
      const int64_t n = first + index % kTerms;
      const bool valid = row < operands.batch_size && n < terms;
      shared.d_z[index / kTerms][index % kTerms] = valid ? widen(all_d_z[row * terms + n]) : C(0);
    }
    __syncthreads();
    unrolled<kTermsPerWarp / kVector, kRows>([&](int v, int row) {
      const int n = v * kVector;
      const auto d = load_pack<kVector>(&shared.d_z[row][warp * kTermsPerWarp + n]);
      unrolled<kVector>([&](int e) { sum[row] += widen(w[n + e]) * d.element[e]; });
    });
    __syncthreads();  // before d_z is written again
  }
  unrolled<kRows>([&](int row) { shared.sums[warp][row][lane] = sum[row]; });
  __syncthreads();
  const int64_t row = first_row + warp;
  if (warp >= kRows || row >= operands.batch_size || k >= end_k) return;
  C total = C(0);
  unrolled<kWarps>([&](int w) { total += shared.sums[w][warp][lane]; });
  if (k < operands.state_size) {
    static_cast<T*>(arguments.d_old_h)[row * operands.state_size + k] = narrow<T>(total);
  } else {
    static_cast<T*>(arguments.d_input)[row * operands.input_size + (k - operands.state_size)] =
        narrow<T>(total);
  }
}

template <typename T, int kRows>
void launch_rows(const lltm_step_backward_arguments& arguments, const void* d_gates,
                 cudaStream_t stream) {
  const auto& sizes = arguments.sizes;
  const int64_t begin_k = arguments.d_old_h != nullptr ? 0 : sizes.state_size;
  const int64_t end_k = sizes.state_size + (arguments.d_input != nullptr ? sizes.input_size : 0);
  if (begin_k == end_k) return;  // CUDA refuses empty grids
  const dim3 grid = grid_of(divide_up(end_k - begin_k, kLanes), divide_up(sizes.batch_size, kRows));
  backward_rows<T, kRows><<<grid, kLanes * kWarps, 0, stream>>>(arguments, d_gates, begin_k, end_k);
}

template <typename Tile>
void launch_columns(const lltm_step_backward_arguments& arguments, void* d_gates,
                    cudaStream_t stream) {
  const int64_t depth = arguments.sizes.state_size + arguments.sizes.input_size;
  const int64_t parts = arguments.d_weights != nullptr ? divide_up(depth, Tile::kThreads) : 1;
  const dim3 grid = grid_of(divide_up(arguments.sizes.state_size, Tile::kColumns), parts);
  const auto kernel =
      arguments.gates == nullptr ? backward_columns<Tile, true> : backward_columns<Tile, false>;
  kernel<<<grid, Tile::kThreads, 0, stream>>>(arguments, d_gates);
}

}  // namespace step_backward_cu

const char* cuda_step_backward(lltm_dtype dtype, int32_t family,
                               const lltm_step_backward_arguments* arguments,
                               const lltm_execution* execution) {
  if (family == kCublas) return cublas_step_backward(dtype, *arguments, *execution);
  if (family == kPlanes) return planes_step_backward(dtype, *arguments, *execution);
  return launch_on(*execution, "step_backward", dtype, [&](auto zero, cudaStream_t stream) {
    using T = decltype(zero);
    const lltm_step_backward_arguments a = with_strides(*arguments);
    const bool products = a.d_input != nullptr || a.d_old_h != nullptr;
    void* const d_gates = a.d_gates != nullptr || !products ? a.d_gates : a.workspace;
    constexpr int n = kVectorSize<T>;
    const auto columns = StepOperands<T>(a).aligned_to(n) ? launch_columns<BackwardTile<T, n>>
                                                          : launch_columns<BackwardTile<T, 1>>;
    columns(a, d_gates, stream);
    if (!products) return;
    const bool few_rows = a.sizes.batch_size <= bounds::kMostRowsOfBackward4;
    const auto rows = few_rows ? launch_rows<T, 4> : launch_rows<T, 8>;
    rows(a, d_gates, stream);
  });
}

}  // namespace lltm
