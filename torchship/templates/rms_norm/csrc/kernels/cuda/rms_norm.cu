// RMSNorm on CUDA. A block takes one row at a time and reads it once. In the backward pass it also
// sums its part of the weight's gradient; a second kernel adds the parts in a fixed order.
#include "torchship/kernels/rows.h"
#include "torchship/kernels/types.h"

#include "../rms_norm.h"

namespace PROJECT_NAMESPACE {
namespace {

template <typename T, int kSize, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads) forward_rows(Arguments arguments) {
  using Compute = compute_t<T>;
  const int64_t columns = arguments.columns, stride = gridDim.x * columns;
  Row<T, kSize, kPacks> row, weights;
  weights.open(static_cast<const T*>(arguments.weight), columns);
  for (int64_t start = blockIdx.x * columns; start < arguments.rows * columns; start += stride) {
    row.open(static_cast<const T*>(arguments.x) + start, columns);
    Compute squares = 0;
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      const auto x = row.at(k, column);
      for (int i = 0; i < kSize; ++i) squares += widen(x.element[i]) * widen(x.element[i]);
    });
    const Compute scale = rsqrt(block_sum(squares) / columns + static_cast<Compute>(arguments.eps));
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      const auto x = row.at(k, column), weight = weights.at(k, column);
      Pack<T, kSize> y;
      for (int i = 0; i < kSize; ++i) {
        y.element[i] = narrow<T>(widen(x.element[i]) * scale * widen(weight.element[i]));
      }
      store_pack(static_cast<T*>(arguments.y) + start + column, y);
    });
  }
}

template <typename T, int kSize, int kPacks>
__global__ void __launch_bounds__(kMostRowThreads) backward_rows(Arguments arguments) {
  using Compute = compute_t<T>;
  const int64_t columns = arguments.columns, stride = gridDim.x * columns;
  Compute* const part = static_cast<Compute*>(arguments.workspace) + blockIdx.x * columns;
  Compute kept[kPacks > 0 ? kPacks : 1][kSize] = {};
  if constexpr (kPacks == 0) {
    for_packs<1, 0>(columns, [&](int, int64_t column) { part[column] = 0; });
  }
  Row<T, kSize, kPacks> row, slopes, weights;
  weights.open(static_cast<const T*>(arguments.weight), columns);
  for (int64_t start = blockIdx.x * columns; start < arguments.rows * columns; start += stride) {
    row.open(static_cast<const T*>(arguments.x) + start, columns);
    slopes.open(static_cast<const T*>(arguments.dy) + start, columns);
    Compute squares = 0, dot = 0;
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      const auto x = row.at(k, column), dy = slopes.at(k, column), weight = weights.at(k, column);
      for (int i = 0; i < kSize; ++i) {
        squares += widen(x.element[i]) * widen(x.element[i]);
        dot += widen(x.element[i]) * widen(dy.element[i]) * widen(weight.element[i]);
      }
    });
    const Compute scale = rsqrt(block_sum(squares) / columns + static_cast<Compute>(arguments.eps));
    const Compute shrink = block_sum(dot) * scale * scale / columns;
    for_packs<kSize, kPacks>(columns, [&](int k, int64_t column) {
      const auto x = row.at(k, column), dy = slopes.at(k, column), weight = weights.at(k, column);
      Pack<T, kSize> dx;
      for (int i = 0; i < kSize; ++i) {
        const Compute value = widen(x.element[i]), slope = widen(dy.element[i]);
        dx.element[i] = narrow<T>(scale * (slope * widen(weight.element[i]) - value * shrink));
        (kPacks > 0 ? kept[k][i] : part[column + i]) += slope * value * scale;
      }
      store_pack(static_cast<T*>(arguments.dx) + start + column, dx);
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
__global__ void add_parts(Arguments arguments, int64_t count) {
  __shared__ compute_t<T> sums[32][33];
  const int64_t column = blockIdx.x * 32 + threadIdx.x;
  const auto* const parts = static_cast<const compute_t<T>*>(arguments.workspace);
  compute_t<T> sum = 0;
  for (int64_t k = threadIdx.y; k < count && column < arguments.columns; k += 32) {
    sum += parts[k * arguments.columns + column];
  }
  sums[threadIdx.y][threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.y != 0 || column >= arguments.columns) return;
  for (int k = 1; k < 32; ++k) sum += sums[k][threadIdx.x];
  static_cast<T*>(arguments.dweight)[column] = narrow<T>(sum);
}

const char* forward(const Arguments* arguments, const Execution* execution) {
  if (arguments->rows == 0 || arguments->columns == 0) return nullptr;
  const DeviceScope scope(execution->device_index);
  const auto blocks =
      static_cast<unsigned>(arguments->rows < (1 << 30) ? arguments->rows : (1 << 30));
  const auto stream = static_cast<cudaStream_t>(execution->stream);
  return dispatch_floating(arguments->dtype, [&](auto zero) {
    using T = decltype(zero);
    const bool aligned = aligned_for_vectors(arguments->x, arguments->weight, arguments->y);
    return launch_rows<T>("forward_rows", arguments->columns, aligned, [&](auto shape) {
      forward_rows<T, shape.kSize, shape.kPacks><<<blocks, shape.threads, 0, stream>>>(*arguments);
    });
  });
}

// How many blocks sum: enough to fill the device, more execution rows are short.
int64_t parts_of(const Arguments* arguments, const Execution* execution) {
  int processors = 1;
  cudaDeviceGetAttribute(&processors, cudaDevAttrMultiProcessorCount, execution->device_index);
  const int64_t parts = 4 * processors * (1 + 1024 / (arguments->columns + 1));
  return arguments->rows < parts ? arguments->rows : parts;
}

int64_t workspace(const Arguments* arguments, const Execution* execution) {
  return parts_of(arguments, execution) * arguments->columns * static_cast<int64_t>(sizeof(double));
}

const char* backward(const Arguments* arguments, const Execution* execution) {
  if (arguments->columns == 0) return nullptr;
  const DeviceScope scope(execution->device_index);
  const auto parts = static_cast<unsigned>(parts_of(arguments, execution));
  const auto stream = static_cast<cudaStream_t>(execution->stream);
  return dispatch_floating(arguments->dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto launch = [&](auto shape) {
      backward_rows<T, shape.kSize, shape.kPacks><<<parts, shape.threads, 0, stream>>>(*arguments);
    };
    const bool aligned =
        aligned_for_vectors(arguments->x, arguments->weight, arguments->dy, arguments->dx);
    const char* error = nullptr;
    if (parts > 0) error = launch_rows<T>("backward_rows", arguments->columns, aligned, launch);
    const auto blocks = static_cast<unsigned>((arguments->columns + 31) / 32);
    add_parts<T><<<blocks, dim3(32, 32), 0, stream>>>(*arguments, parts);
    return error != nullptr ? error : error_text("add_parts", cudaGetLastError());
  });
}

const Kernels table = {{RMS_NORM_KERNEL_ABI, sizeof(table), "cuda"}, forward, workspace, backward};

}  // namespace
}  // namespace PROJECT_NAMESPACE

PROJECT_KERNEL_TABLE(cuda) { return &PROJECT_NAMESPACE::table; }
