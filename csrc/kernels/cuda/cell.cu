// One LLTM step on a CUDA device.
#include "../cell_element.h"
#include "../dispatch.h"
#include "../lltm_kernels.h"
#include "launch.h"
#include "layer.h"

namespace lltm {
namespace {

template <typename Cell>
__global__ void __launch_bounds__(PlaneGeometry::kThreads)
    for_each_element(const Cell cell, int64_t batch_size, int64_t state_size) {
  const int64_t first_row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const int64_t first_column = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t row_stride = int64_t{gridDim.y} * blockDim.y;
  const int64_t column_stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t n = first_row; n < batch_size; n += row_stride) {
    for (int64_t column = first_column; column < state_size; column += column_stride) {
      cell(n, column);
    }
  }
}

template <typename Cell>
const char* launch(const char* name, const Cell& cell, int64_t batch_size, int64_t state_size,
                   const lltm_execution& execution) {
  if (batch_size == 0 || state_size == 0) return nullptr;  // CUDA refuses empty grids
  const DeviceScope device(execution.device_index);
  if (device.error() != cudaSuccess) return error_text(name, device.error());
  const PlaneGeometry geometry(batch_size, state_size);
  for_each_element<<<geometry.grid, geometry.block, 0,
                     static_cast<cudaStream_t>(execution.stream)>>>(cell, batch_size, state_size);
  return error_text(name, cudaGetLastError());
}

// A block of `column_sum` reads 32 bytes of a row at a time, the least that memory delivers, and so
// few columns that many blocks share a narrow matrix.
constexpr int kSumThreads = 512;
template <typename T>
constexpr int kSumColumns = 32 / sizeof(T);
template <typename T>
constexpr int kSumRows = kSumThreads / kSumColumns<T>;

// Each thread sums every kSumRows-th row of a column; the block adds these up in a tree, always in
// the same order.
template <typename T>
__global__ void __launch_bounds__(kSumThreads)
    sum_columns(View<const T, 2> matrix, T* sums, int64_t rows, int64_t columns) {
  using C = compute_t<T>;
  __shared__ C partial[kSumRows<T>][kSumColumns<T>];
  const int64_t column = int64_t{blockIdx.x} * kSumColumns<T> + threadIdx.x;
  C sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < rows; row += kSumRows<T>) {
      sum += widen(matrix[row][column]);
    }
  }
  partial[threadIdx.y][threadIdx.x] = sum;
  for (int half = kSumRows<T> / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) {
      partial[threadIdx.y][threadIdx.x] += partial[threadIdx.y + half][threadIdx.x];
    }
  }
  if (threadIdx.y == 0 && column < columns) sums[column] = narrow<T>(partial[0][threadIdx.x]);
}

const char* column_sum(lltm_dtype dtype, const lltm_column_sum_arguments* arguments,
                       const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if (arguments->columns == 0) return nullptr;
    const DeviceScope device(execution->device_index);
    if (device.error() != cudaSuccess) return error_text("column_sum", device.error());
    const View<const T, 2> matrix(static_cast<const T*>(arguments->matrix), arguments->columns);
    const auto blocks = static_cast<unsigned>(divide_up(arguments->columns, kSumColumns<T>));
    sum_columns<T><<<blocks, dim3(kSumColumns<T>, kSumRows<T>), 0,
                     static_cast<cudaStream_t>(execution->stream)>>>(
        matrix, static_cast<T*>(arguments->sums), arguments->rows, arguments->columns);
    return error_text("column_sum", cudaGetLastError());
  });
}

const char* forward(lltm_dtype dtype, const lltm_cell_forward_arguments* arguments,
                    const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) {
    const CellForward<decltype(zero)> cell(*arguments);
    return launch("cell_forward", cell, arguments->batch_size, arguments->state_size, *execution);
  });
}

const char* backward(lltm_dtype dtype, const lltm_cell_backward_arguments* arguments,
                     const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) {
    const CellBackward<decltype(zero)> cell(*arguments);
    return launch("cell_backward", cell, arguments->batch_size, arguments->state_size, *execution);
  });
}

}  // namespace
}  // namespace lltm

extern "C" const lltm_kernel_functions* lltm_cuda_kernels(void) {
  static const lltm_kernel_functions functions = {
      LLTM_KERNEL_ABI,
      sizeof(lltm_kernel_functions),
      "cuda",
      lltm::forward,
      lltm::backward,
      lltm::column_sum,
      lltm::cuda_layer_plan,
      lltm::cuda_layer_forward,
      lltm::cuda_layer_backward,
      lltm::cuda_layer_cells,
  };
  return &functions;
}
