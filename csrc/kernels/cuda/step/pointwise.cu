// The pointwise part of one LLTM step: after the GEMM in forward, before the GEMMs in backward.
// Memory bandwidth bounds it, so each thread moves up to 16 bytes at a time. This file also has
// the kernel that sums columns, as the part does that makes a bias gradient.
#include <algorithm>
#include <cstdint>
#include <type_traits>

#include "../common/copies_device.h"
#include "../common/launch.h"
#include "step.h"
#include "step_element.h"

namespace lltm {
inline namespace pointwise_cu {

constexpr int kThreads = 256;
static_assert(kThreads == kCopyThreads, "the blocks of backward also copy");

// Each thread makes N neighbouring elements of the state. It reads the pre-activations from `from`,
// and copies them to `gates` if `gates` is other memory. kRunning: the arguments have float32 cell
// states, which take more registers.
template <typename T, int N, bool kRunning>
__global__ void __launch_bounds__(kThreads)
    forward_plane(const lltm_step_forward_arguments arguments, const void* from,
                  int64_t from_stride) {
  wait_for_earlier();
  const int64_t state_size = arguments.sizes.state_size;
  const int64_t row = int64_t{blockIdx.x} * blockDim.y + threadIdx.y;
  const int64_t column = (int64_t{blockIdx.y} * blockDim.x + threadIdx.x) * N;
  if (row >= arguments.sizes.batch_size || column >= state_size) return;
  const int64_t element = row * state_size + column;
  const auto old_cell =
      load_cell<T, N>(arguments.old_cell, kRunning ? arguments.running.old_cell : nullptr, element);
  Pack<T, N> z[kGateCount];
  unrolled<kGateCount>([&](int gate) {
    z[gate] =
        load_pack<N>(static_cast<const T*>(from) + row * from_stride + gate * state_size + column);
    if (from != arguments.gates) {
      store_gate(arguments.gates, row, state_size, gate, column, z[gate]);
    }
  });
  Pack<T, N> new_h;
  Pack<compute_t<T>, N> new_cell;
  unrolled<N>([&](int e) {
    const auto state = CellFormulas<DeviceMath<T>>::forward(
        widen(z[kInputGate].element[e]), widen(z[kOutputGate].element[e]),
        widen(z[kCandidate].element[e]), old_cell.element[e]);
    new_h.element[e] = narrow<T>(state.h);
    new_cell.element[e] = state.cell;
  });
  store_pack(static_cast<T*>(arguments.new_h) + element, new_h);
  store_cell<T>(arguments.new_cell, kRunning ? arguments.running.new_cell : nullptr, element,
                new_cell);
}

// A block of backward computes one part of the rows of a strip of columns. With `sums`, the block
// also adds up the part's bias gradients. Then there are several parts only if one part would give
// too few blocks, and a second launch adds up the parts' sums. Without `sums`, parts are short.
struct StripGeometry {
  dim3 block;
  int64_t strips;
  int64_t parts;

  StripGeometry(int64_t rows, int64_t packs, int pack_bytes, bool sums) {
    constexpr int kStripBytes = 128;   // of a row at a time, for full memory speed
    constexpr int kSectorBytes = 32;   // the smallest memory access
    constexpr int64_t kBlocks = 1024;  // enough to fill a GPU several times over
    constexpr int64_t kFewBlocks = 128;
    constexpr int64_t kFewRows = 8;        // per thread; with `sums`, several parts need more rows
    constexpr int64_t kMostParts = 65535;  // CUDA's limit of a grid's y
    int width = kStripBytes / pack_bytes;
    const auto most_blocks = [&] {
      return divide_up(packs, width) * divide_up(rows, kFewRows * (kThreads / width));
    };
    while (width > kSectorBytes / pack_bytes && most_blocks() < kFewBlocks) width /= 2;
    block = dim3(width, kThreads / width);
    strips = divide_up(packs, width);
    const int64_t rounds = divide_up(rows, block.y);
    parts = std::min(rounds, kMostParts);
    if (sums) {
      const int64_t most = rounds <= kFewRows ? 1 : divide_up(rounds, 4);
      parts = std::min(divide_up(kBlocks, strips), most);
    }
  }
};

// Backward keeps more numbers per element than forward: eight elements would not fit the registers.
constexpr int backward_vector(int element_bytes) {
  return std::min(kVectorBytes / element_bytes, 4);
}

// How a backward launch divides its work.
struct Strips {
  int64_t rows_per_part;
  int64_t to_stride;  // of d_gates
  unsigned count;     // of strips; blocks from this x on copy
  Copies copies;
};

template <typename T, int N>
struct BackwardLoads {
  Pack<T, N> z[kGateCount];
  Incoming<T, N> incoming;

  LLTM_DEVICE static BackwardLoads load(const lltm_step_backward_arguments& arguments, int64_t row,
                                        int64_t column) {
    BackwardLoads loads;
    unrolled<kGateCount>([&](int gate) {
      loads.z[gate] =
          load_gate<T, N>(arguments.gates, row, arguments.sizes.state_size, gate, column);
    });
    loads.incoming = Incoming<T, N>::load(arguments, row, arguments.sizes.state_size, column);
    return loads;
  }
};

// Adds up the sums of threads with the same threadIdx.x, in a fixed order, for the thread with
// threadIdx.y == 0. All kBlockThreads threads of the block must call this function.
template <int kBlockThreads, int n, typename C>
LLTM_DEVICE void sum_over_rows(C (&sums)[n]) {
  __shared__ C partial[n][kBlockThreads];
  const unsigned thread = threadIdx.y * blockDim.x + threadIdx.x;
  unrolled<n>([&](int i) { partial[i][thread] = sums[i]; });
  for (unsigned half = blockDim.y / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) {
      unrolled<n>([&](int i) { partial[i][thread] += partial[i][thread + half * blockDim.x]; });
    }
  }
  unrolled<n>([&](int i) { sums[i] = partial[i][thread]; });
}

template <typename T, int N, bool kSums>
__global__ void __launch_bounds__(kThreads)
    backward_strips(const lltm_step_backward_arguments arguments, const Strips strips) {
  using C = compute_t<T>;
  // Whether a thread that makes bias gradients reads its next row before it computes the present
  // one. In bfloat16 this takes so many registers that a multiprocessor would hold fewer threads.
  constexpr bool kAhead = kSums && !std::is_same_v<T, bfloat16>;
  if (blockIdx.x >= strips.count) {
    return copy_part<T>(strips.copies, (blockIdx.x - strips.count) * gridDim.y + blockIdx.y);
  }
  const int64_t state_size = arguments.sizes.state_size;
  const int64_t column = (int64_t{blockIdx.x} * blockDim.x + threadIdx.x) * N;
  const int64_t begin = blockIdx.y * strips.rows_per_part;
  const int64_t end = min(begin + strips.rows_per_part, arguments.sizes.batch_size);
  C sums[kGateCount * N] = {};
  if (column < state_size) {
    int64_t row = begin + threadIdx.y;
    BackwardLoads<T, N> next;
    if (kAhead && row < end) next = BackwardLoads<T, N>::load(arguments, row, column);
    for (; row < end; row += blockDim.y) {
      const auto loads = kAhead ? next : BackwardLoads<T, N>::load(arguments, row, column);
      const int64_t next_row = row + blockDim.y;
      if (kAhead && next_row < end) next = BackwardLoads<T, N>::load(arguments, next_row, column);
      C z[kGateCount][N];
      C d_z[kGateCount][N];
      unrolled<kGateCount, N>(
          [&](int gate, int e) { z[gate][e] = widen(loads.z[gate].element[e]); });
      // In a sequence another kernel makes the bias gradient. This one would take too many
      // registers.
      backward_elements<T, N, !kSums, kSums ? 1 : LLTM_MOST_SPLIT_K>(
          arguments, loads.incoming, row, state_size, column, z, true, d_z);
      unrolled<kGateCount>([&](int gate) {
        Pack<T, N> stored;
        unrolled<N>([&](int e) {
          stored.element[e] = narrow<T>(d_z[gate][e]);
          if (kSums) sums[gate * N + e] += d_z[gate][e];
        });
        store_pack(static_cast<T*>(arguments.d_gates) + row * strips.to_stride + gate * state_size +
                       column,
                   stored);
      });
    }
  }
  if constexpr (kSums) {
    sum_over_rows<kThreads>(sums);
    if (threadIdx.y != 0 || column >= state_size) return;
    unrolled<kGateCount, N>([&](int gate, int e) {
      const int64_t to = gate * state_size + column + e;
      if (gridDim.y == 1) {
        static_cast<T*>(arguments.d_bias)[to] = narrow<T>(sums[gate * N + e]);
      } else {
        C* const parts = static_cast<C*>(arguments.workspace);  // (parts, 3S)
        parts[blockIdx.y * kGateCount * state_size + to] = sums[gate * N + e];
      }
    });
  }
}

// A block of `sum_columns` reads 32 bytes of a row at a time, the smallest memory access. With so
// few columns per block, many blocks share a narrow matrix.
constexpr int kSumThreads = 512;
template <typename T>
constexpr int kSumColumns = 32 / sizeof(T);
template <typename T>
constexpr int kSumRows = kSumThreads / kSumColumns<T>;

template <typename From, typename To>
__global__ void __launch_bounds__(kSumThreads)
    sum_columns(const From* matrix, To* sums, int64_t rows, int64_t columns) {
  const int64_t column = int64_t{blockIdx.x} * kSumColumns<From> + threadIdx.x;
  compute_t<From> sum[1] = {};
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < rows; row += kSumRows<From>) {
      sum[0] += widen(matrix[row * columns + column]);
    }
  }
  sum_over_rows<kSumThreads>(sum);
  if (threadIdx.y == 0 && column < columns) sums[column] = narrow<To>(sum[0]);
}

template <typename From, typename To>
void launch_sum(const From* matrix, To* sums, int64_t rows, int64_t columns, cudaStream_t stream) {
  const dim3 block(kSumColumns<From>, kSumRows<From>);
  sum_columns<<<grid_of(divide_up(columns, block.x)), block, 0, stream>>>(matrix, sums, rows,
                                                                          columns);
}

template <typename T, int N>
void launch_backward(const lltm_step_backward_arguments& arguments, int64_t to_stride,
                     const Copies& copies, cudaStream_t stream) {
  const auto& sizes = arguments.sizes;
  const bool sums = arguments.d_bias != nullptr;
  const StripGeometry geometry(sizes.batch_size, sizes.state_size / N, N * sizeof(T), sums);
  const Strips strips = {divide_up(sizes.batch_size, geometry.parts), to_stride,
                         static_cast<unsigned>(geometry.strips), copies};
  const int64_t copying = divide_up(copy_blocks(copies), geometry.parts);
  const dim3 grid = grid_of(geometry.strips + copying, geometry.parts);
  const auto kernel = sums ? backward_strips<T, N, true> : backward_strips<T, N, false>;
  kernel<<<grid, geometry.block, 0, stream>>>(arguments, strips);
  if (!sums || geometry.parts == 1) return;
  launch_sum(static_cast<const compute_t<T>*>(arguments.workspace),
             static_cast<T*>(arguments.d_bias), geometry.parts, kGateCount * sizes.state_size,
             stream);
}

template <typename T, int N>
void launch_forward(const lltm_step_forward_arguments& arguments, const void* from,
                    int64_t from_stride, const lltm_execution& execution) {
  // Neighbouring threads take neighbouring elements of a row.
  const int64_t packs = arguments.sizes.state_size / N;
  int width = 32;
  while (width < packs && width < kThreads) width *= 2;
  const dim3 block(width, kThreads / width);
  const dim3 grid =
      grid_of(divide_up(arguments.sizes.batch_size, block.y), divide_up(packs, width));
  auto kernel = forward_plane<T, N, false>;
  if constexpr (kSixteenBits<T>) {
    if (arguments.running.new_cell != nullptr) kernel = forward_plane<T, N, true>;
  }
  launch_early(kernel, grid, block, execution, arguments, from, from_stride);
}

}  // namespace pointwise_cu

const char* pointwise_forward_from(lltm_dtype dtype, const lltm_step_forward_arguments& a,
                                   const void* from, int64_t from_stride,
                                   const lltm_execution& execution) {
  return launch_on(execution, "pointwise_forward", dtype, [&](auto zero, cudaStream_t) {
    using T = decltype(zero);
    constexpr int kSize = kVectorSize<T>;
    if (a.sizes.batch_size == 0 || a.sizes.state_size == 0) return;  // CUDA refuses empty grids
    const bool vectors = a.sizes.state_size % kSize == 0 && from_stride % kSize == 0 &&
                         aligned_for_vectors(a.gates, from, a.old_cell, a.new_h, a.new_cell,
                                             a.running.old_cell, a.running.new_cell);
    const auto launch = vectors ? launch_forward<T, kSize> : launch_forward<T, 1>;
    launch(a, from, from_stride, execution);
  });
}

const char* cuda_pointwise_forward(lltm_dtype dtype, const lltm_step_forward_arguments* arguments,
                                   const lltm_execution* execution) {
  return pointwise_forward_from(dtype, *arguments, arguments->gates,
                                kGateCount * arguments->sizes.state_size, *execution);
}

const char* pointwise_backward_to(lltm_dtype dtype, const lltm_step_backward_arguments& arguments,
                                  int64_t to_stride, const Copies& copies,
                                  const lltm_execution& execution) {
  return launch_on(execution, "pointwise_backward", dtype, [&](auto zero, cudaStream_t stream) {
    using T = decltype(zero);
    const lltm_step_backward_arguments a = with_strides(arguments);
    if (a.sizes.batch_size == 0 || a.sizes.state_size == 0) return;
    constexpr int kSize = backward_vector(sizeof(T));
    const bool vectors =
        a.sizes.state_size % kSize == 0 && to_stride % kSize == 0 && has_contiguous_gradients(a) &&
        aligned_for_vectors(a.grad_h, a.grad_cell, a.grad_gates, a.more_grad_h, a.more_grad_cell,
                            a.gates, a.new_cell, a.d_gates, a.d_old_cell);
    const auto launch = vectors ? launch_backward<T, kSize> : launch_backward<T, 1>;
    launch(a, to_stride, copies, stream);
  });
}

const char* cuda_pointwise_backward(lltm_dtype dtype, const lltm_step_backward_arguments* arguments,
                                    const lltm_execution* execution) {
  return pointwise_backward_to(dtype, *arguments, kGateCount * arguments->sizes.state_size, {},
                               *execution);
}

int64_t pointwise_backward_workspace(lltm_dtype dtype, int64_t batch_size, int64_t state_size) {
  const int bytes = static_cast<int>(lltm_dtype_bytes(dtype));
  const auto parts = [&](int n) {
    return StripGeometry(batch_size, divide_up(state_size, n), n * bytes, true).parts;
  };
  // The arguments will decide whether a thread takes one element or a vector, so allow for both.
  const int64_t most = std::max(parts(1), parts(backward_vector(bytes)));
  return most == 1 ? 0 : most * kGateCount * state_size * std::max(bytes, 4);
}

const char* cuda_column_sum(lltm_dtype dtype, const lltm_column_sum_arguments* arguments,
                            const lltm_execution* execution) {
  return launch_on(*execution, "column_sum", dtype, [&](auto zero, cudaStream_t stream) {
    using T = decltype(zero);
    if (arguments->columns == 0) return;
    launch_sum(static_cast<const T*>(arguments->matrix), static_cast<T*>(arguments->sums),
               arguments->rows, arguments->columns, stream);
  });
}

}  // namespace lltm
