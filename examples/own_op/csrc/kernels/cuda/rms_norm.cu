// RMSNorm on CUDA. A block takes one row at a time and reads it once. In the backward pass it also
// sums its part of the weight's gradient; a second kernel adds the parts in a fixed order.
#include "torchship/kernels/rows.h"
#include "torchship/kernels/types.h"

#include "../own_op_kernels.h"

namespace own_op {
namespace {

template <typename T, int kSize, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads) forward_rows(own_op_arguments given) {
  using Compute = compute_t<T>;
  const int64_t columns = given.columns, stride = gridDim.x * columns;
  Row<T, kSize, kPacks> row, weights;
  weights.open(static_cast<const T*>(given.weight), columns);
  for (int64_t start = blockIdx.x * columns; start < given.rows * columns; start += stride) {
    row.open(static_cast<const T*>(given.x) + start, columns);
    Compute squares = 0;
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      const auto x = row.at(k, column);
      for (int i = 0; i < kSize; ++i) squares += widen(x.element[i]) * widen(x.element[i]);
    });
    const Compute scale = rsqrt(block_sum(squares) / columns + static_cast<Compute>(given.eps));
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      const auto x = row.at(k, column), weight = weights.at(k, column);
      Pack<T, kSize> y;
      for (int i = 0; i < kSize; ++i) {
        y.element[i] = narrow<T>(widen(x.element[i]) * scale * widen(weight.element[i]));
      }
      store_pack(static_cast<T*>(given.y) + start + column, y);
    });
  }
}

template <typename T, int kSize, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads) backward_rows(own_op_arguments given) {
  using Compute = compute_t<T>;
  const int64_t columns = given.columns, stride = gridDim.x * columns;
  Compute* const part = static_cast<Compute*>(given.workspace) + blockIdx.x * columns;
  Compute kept[kPacks > 0 ? kPacks : 1][kSize] = {};
  if constexpr (kPacks == 0) {
    for_packs<1, 0>(columns, [&](int, int64_t column) { part[column] = 0; });
  }
  Row<T, kSize, kPacks> row, slopes, weights;
  weights.open(static_cast<const T*>(given.weight), columns);
  for (int64_t start = blockIdx.x * columns; start < given.rows * columns; start += stride) {
    row.open(static_cast<const T*>(given.x) + start, columns);
    slopes.open(static_cast<const T*>(given.dy) + start, columns);
    Compute squares = 0, dot = 0;
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      const auto x = row.at(k, column), dy = slopes.at(k, column), weight = weights.at(k, column);
      for (int i = 0; i < kSize; ++i) {
        squares += widen(x.element[i]) * widen(x.element[i]);
        dot += widen(x.element[i]) * widen(dy.element[i]) * widen(weight.element[i]);
      }
    });
    const Compute scale = rsqrt(block_sum(squares) / columns + static_cast<Compute>(given.eps));
    const Compute shrink = block_sum(dot) * scale * scale / columns;
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      const auto x = row.at(k, column), dy = slopes.at(k, column), weight = weights.at(k, column);
      Pack<T, kSize> dx;
      for (int i = 0; i < kSize; ++i) {
        const Compute value = widen(x.element[i]), slope = widen(dy.element[i]);
        dx.element[i] = narrow<T>(scale * (slope * widen(weight.element[i]) - value * shrink));
        (kPacks > 0 ? kept[k][i] : part[column + i]) += slope * value * scale;
      }
      store_pack(static_cast<T*>(given.dx) + start + column, dx);
    });
  }
  if constexpr (kPacks > 0) {
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      for (int i = 0; i < kSize; ++i) part[column + i] = kept[k][i];
    });
  }
}

// dweight = the sum of the parts. A block of (32, 32) threads takes 32 columns.
template <typename T>
__global__ void add_parts(own_op_arguments given, int64_t count) {
  __shared__ compute_t<T> sums[32][33];
  const int64_t column = blockIdx.x * 32 + threadIdx.x;
  const auto* const parts = static_cast<const compute_t<T>*>(given.workspace);
  compute_t<T> sum = 0;
  for (int64_t k = threadIdx.y; k < count && column < given.columns; k += 32) {
    sum += parts[k * given.columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= given.columns) return;
  for (int k = 1; k < 32; ++k) sum += sums[k][threadIdx.x];
  static_cast<T*>(given.dweight)[column] = narrow<T>(sum);
}

const char* forward(const own_op_arguments* given, const own_op_execution* where) {
  if (given->rows == 0 || given->columns == 0) return nullptr;
  const DeviceScope scope(where->device_index);
  const auto blocks = static_cast<unsigned>(given->rows < (1 << 30) ? given->rows : (1 << 30));
  const auto stream = static_cast<cudaStream_t>(where->stream);
  return dispatch_floating(given->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool aligned = aligned_for_vectors(given->x, given->weight, given->y);
    return launch_rows<T>("forward_rows", given->columns, aligned, [&](auto shape) {
      forward_rows<T, shape.kSize, shape.kPacks><<<blocks, shape.threads, 0, stream>>>(*given);
    });
  });
}

// How many blocks sum: enough to fill the device, more where rows are short.
int64_t parts_of(const own_op_arguments* given, const own_op_execution* where) {
  int processors = 1;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, where->device_index);
  const int64_t parts = 4 * processors * (1 + 1024 / (given->columns + 1));
  return given->rows < parts ? given->rows : parts;
}

int64_t workspace(const own_op_arguments* given, const own_op_execution* where) {
  return parts_of(given, where) * given->columns * static_cast<int64_t>(sizeof(double));
}

const char* backward(const own_op_arguments* given, const own_op_execution* where) {
  if (given->columns == 0) return nullptr;
  const DeviceScope scope(where->device_index);
  const auto parts = static_cast<unsigned>(parts_of(given, where));
  const auto stream = static_cast<cudaStream_t>(where->stream);
  return dispatch_floating(given->dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto shape) {
      backward_rows<T, shape.kSize, shape.kPacks><<<parts, shape.threads, 0, stream>>>(*given);
    };
    const bool aligned = aligned_for_vectors(given->x, given->weight, given->dy, given->dx);
    const char* error = nullptr;
    if (parts > 0) error = launch_rows<T>("backward_rows", given->columns, aligned, launch);
    const auto blocks = static_cast<unsigned>((given->columns + 31) / 32);
    add_parts<T><<<blocks, dim3(32, 32), 0, stream>>>(*given, parts);
    return error != nullptr ? error : error_text("add_parts", cudaGetLastError());
  });
}

const own_op_kernel_functions table = {
    {OWN_OP_KERNEL_ABI, sizeof(table), "cuda"}, forward, workspace, backward};

}  // namespace
}  // namespace own_op

PROJECT_KERNEL_TABLE(cuda) { return &own_op::table; }
