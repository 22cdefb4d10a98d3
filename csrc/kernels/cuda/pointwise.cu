// The pointwise part of one LLTM step, after the GEMM. Memory bandwidth bounds it, so each thread
// moves 16 bytes at a time.
#include <algorithm>
#include <type_traits>

#include "../dispatch.h"
#include "cell.h"
#include "cell_element.h"
#include "cell_strips.h"
#include "copy_rows.h"

namespace lltm {
inline namespace pointwise_cu {

constexpr int kThreads = PlaneGeometry::kThreads;

// kRunning: the kernel also has float32 cell states, which take registers. It reads the
// pre-activations from `from`, and writes them to gates if gates is other memory.
template <typename T, int N, bool kRunning>
__global__ void __launch_bounds__(kThreads)
    forward_plane(const lltm_step_forward_arguments arguments, int64_t packs, const void* from,
                  int64_t from_stride) {
  wait_for_earlier();
  const int64_t state_size = arguments.sizes.state_size;
  const int64_t first_row = int64_t{blockIdx.y} * blockDim.y + threadIdx.y;
  const int64_t first_pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t row_stride = int64_t{gridDim.y} * blockDim.y;
  const int64_t pack_stride = int64_t{gridDim.x} * blockDim.x;
  for (int64_t row = first_row; row < arguments.sizes.batch_size; row += row_stride) {
    for (int64_t pack = first_pack; pack < packs; pack += pack_stride) {
      const int64_t column = pack * N;
      const int64_t element = row * state_size + column;
      const auto old_cell = load_cell<T, N>(
          arguments.old_cell, kRunning ? arguments.running.old_cell : nullptr, element);
      Pack<T, N> z[kGateCount];
      unrolled<kGateCount>([&](int gate) {
        z[gate] = load_pack<N>(static_cast<const T*>(from) + row * from_stride + gate * state_size +
                               column);
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
  }
}

// Backward keeps more numbers per element: with eight elements per thread, registers run out.
template <typename T>
constexpr int kBackwardVector = kVectorSize<T> < 4 ? kVectorSize<T> : 4;

// Whether a thread that sums reads its next row before it computes the present one. In bfloat16
// this takes so many registers that a multiprocessor would hold fewer threads.
template <typename T>
constexpr bool kReadsAhead = !std::is_same_v<T, bfloat16>;

// See ArrivalRow.
__device__ unsigned arrivals[ArrivalRow::kRows][ArrivalRow::kStrips];

constexpr int kPartsBits = 5;
constexpr int kMostParts =
    1 << kPartsBits;  // one block adds them up as quickly as a launch of many

// The layout of a backward launch.
struct Strips {
  int64_t packs;  // per row
  int64_t rows_per_part;
  int arrival_row;    // or -1: a second launch adds up the parts
  int64_t to_stride;  // of d_gates
  unsigned count;     // of strips; the blocks after them copy
  CopiesBeside copies;
};

template <typename T, int N>
struct BackwardLoads {
  Pack<T, N> z[kGateCount];
  Incoming<T, N> incoming;

  LLTM_DEVICE BackwardLoads(const lltm_step_backward_arguments& arguments, int64_t row,
                            int64_t column) {
    unrolled<kGateCount>([&](int gate) {
      z[gate] = load_gate<T, N>(arguments.gates, row, arguments.sizes.state_size, gate, column);
    });
    incoming = Incoming<T, N>::load(arguments, row, arguments.sizes.state_size, column);
  }
};

// Adds up the threads' sums of the block's strip. Writes them to the bias gradient if the strip is
// one part, else to the workspace.
template <typename T, int N>
LLTM_DEVICE void sum_block(const lltm_step_backward_arguments& arguments,
                           const compute_t<T> (&sums)[kGateCount][N], int thread, int width,
                           int columns) {
  using C = compute_t<T>;
  const int64_t state_size = arguments.sizes.state_size;
  __shared__ C partial[kGateCount * N][kThreads];
  unrolled<kGateCount, N>([&](int gate, int e) { partial[gate * N + e][thread] = sums[gate][e]; });
  __syncthreads();
  // Neighbouring threads take neighbouring columns. Each thread adds up some rows in order, and a
  // few threads add up these sums.
  const int segments = kThreads / columns > 1 ? kThreads / columns : 1;
  const int rows = (static_cast<int>(blockDim.y) + segments - 1) / segments;
  __shared__ C segment_sums[kThreads];
  for (int first = 0; first < columns; first += kThreads) {
    const int k = first + thread % (columns < kThreads ? columns : kThreads);
    const int segment = columns < kThreads ? thread / columns : 0;
    const int gate = k / (width * N);
    const int inner = k % (width * N);
    C sum = C(0);
    if (k < columns && segment < segments) {
      const int y_end = min((segment + 1) * rows, static_cast<int>(blockDim.y));
      for (int y = segment * rows; y < y_end; ++y) {
        sum += partial[gate * N + inner % N][y * width + inner / N];
      }
    }
    segment_sums[thread] = sum;
    __syncthreads();
    const int64_t to = int64_t{blockIdx.x} * width * N + inner;
    if (segment == 0 && k < columns && to < state_size) {
      for (int s = 1; s < segments; ++s) sum += segment_sums[s * columns + k];
      if (gridDim.y == 1) {
        static_cast<T*>(arguments.d_bias)[gate * state_size + to] = narrow<T>(sum);
      } else {
        static_cast<C*>(
            arguments.workspace)[(int64_t{blockIdx.y} * kGateCount + gate) * state_size + to] = sum;
      }
    }
    __syncthreads();  // before the sums are written again
  }
}

// Whether this block is the last of its strip to arrive. If so, it may read the others' sums.
LLTM_DEVICE bool arrives_last(int arrival_row) {
  __threadfence();  // orders this thread's writes before the block's arrival
  __syncthreads();
  __shared__ bool last;
  if (threadIdx.x == 0 && threadIdx.y == 0) {
    const unsigned others = gridDim.y - 1;
    last = atomicInc(&arrivals[arrival_row][blockIdx.x], others) == others;
  }
  __syncthreads();
  if (!last) return false;
  __threadfence();  // orders the others' arrival before the reads of their sums
  return true;
}

// Adds up the sums of a strip's parts.
template <typename T, int N>
LLTM_DEVICE void sum_parts(const lltm_step_backward_arguments& arguments, int thread, int width,
                           int columns) {
  using C = compute_t<T>;
  const int64_t state_size = arguments.sizes.state_size;
  for (int k = thread; k < columns; k += kThreads) {
    const int gate = k / (width * N);
    const int64_t to = int64_t{blockIdx.x} * width * N + k % (width * N);
    if (to >= state_size) continue;
    const int64_t of_gate = gate * state_size + to;
    // Volatile: this multiprocessor's own cache may hold older values.
    const volatile C* const from = static_cast<const C*>(arguments.workspace) + of_gate;
    C part[kMostParts];
    unrolled<kMostParts>([&](int i) {
      const bool there = i < static_cast<int>(gridDim.y);
      part[i] = there ? from[i * kGateCount * state_size] : C(0);
    });
    // In the order of sum_columns, so that both give the same bits.
#pragma unroll
    for (int step = 1; step <= kPartsBits; ++step) {
      unrolled<kMostParts / 2>([&](int i) {
        const int half = kMostParts >> step;
        if (i < half) part[i] += part[i + half];
      });
    }
    static_cast<T*>(arguments.d_bias)[of_gate] = narrow<T>(part[0]);
  }
}

template <typename T, int N, bool kSums>
__global__ void __launch_bounds__(kThreads)
    backward_strips(const lltm_step_backward_arguments arguments, const Strips strips) {
  using C = compute_t<T>;
  constexpr bool kAhead = kSums && kReadsAhead<T>;
  static_assert(kThreads == kCopyThreads);
  if (blockIdx.x >= strips.count) {
    const unsigned block = (blockIdx.x - strips.count) * gridDim.y + blockIdx.y;
    const unsigned blocks = (gridDim.x - strips.count) * gridDim.y;
    const unsigned count = strips.copies.count;
    const int thread = static_cast<int>(threadIdx.y * blockDim.x + threadIdx.x);
    copy_rows<T>(strips.copies.at[block % count], thread, block / count,
                 (blocks - block % count + count - 1) / count);
    return;
  }
  const int64_t state_size = arguments.sizes.state_size;
  // In a sequence another kernel makes the bias gradient, so kernels with kSums leave out the later
  // step's gradients: both together need too many registers.
  const FromLater later =
      kSums ? FromLater{}
            : FromLater{arguments.more_grad_h_planes, arguments.sizes.batch_size * state_size,
                        arguments.float32};
  const int64_t pack = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  const int64_t column = pack * N;
  const int64_t begin = blockIdx.y * strips.rows_per_part;
  const int64_t end = begin + strips.rows_per_part < arguments.sizes.batch_size
                          ? begin + strips.rows_per_part
                          : arguments.sizes.batch_size;
  C sums[kGateCount][N] = {};
  int64_t row = begin + threadIdx.y;
  if (pack < strips.packs && row < end) {
    BackwardLoads<T, N> next(arguments, row, column);
    while (true) {
      const BackwardLoads<T, N> loads = next;
      const int64_t next_row = row + blockDim.y;
      if (kAhead && next_row < end) next = BackwardLoads<T, N>(arguments, next_row, column);
      C z[kGateCount][N];
      C d_z[kGateCount][N];
      unrolled<kGateCount, N>(
          [&](int gate, int e) { z[gate][e] = widen(loads.z[gate].element[e]); });
      backward_elements<T, N>(arguments, loads.incoming, row, state_size, column, z, true, d_z,
                              later);
      unrolled<kGateCount>([&](int gate) {
        Pack<T, N> stored;
        unrolled<N>([&](int e) {
          stored.element[e] = narrow<T>(d_z[gate][e]);
          if (kSums) sums[gate][e] += d_z[gate][e];
        });
        store_pack(static_cast<T*>(arguments.d_gates) + row * strips.to_stride + gate * state_size +
                       column,
                   stored);
      });
      row = next_row;
      if (row >= end) break;
      if (!kAhead) next = BackwardLoads<T, N>(arguments, row, column);
    }
  }
  if constexpr (kSums) {
    const int thread = threadIdx.y * blockDim.x + threadIdx.x;
    const int width = static_cast<int>(blockDim.x);
    const int columns = width * N * kGateCount;
    sum_block<T, N>(arguments, sums, thread, width, columns);
    if (gridDim.y == 1 || strips.arrival_row < 0) return;
    if (arrives_last(strips.arrival_row)) sum_parts<T, N>(arguments, thread, width, columns);
  }
}

// A block of `sum_columns` reads 32 bytes of a row at a time, the smallest memory access. Its few
// columns let many blocks divide a narrow matrix.
constexpr int kSumThreads = 512;
template <typename T>
constexpr int kSumColumns = 32 / sizeof(T);
template <typename T>
constexpr int kSumRows = kSumThreads / kSumColumns<T>;

// Each thread sums every kSumRows-th row of a column; the block adds these up in a tree, always in
// the same order.
template <typename From, typename To>
__global__ void __launch_bounds__(kSumThreads)
    sum_columns(const From* matrix, To* sums, int64_t rows, int64_t columns) {
  using C = compute_t<From>;
  __shared__ C partial[kSumRows<From>][kSumColumns<From>];
  const int64_t column = int64_t{blockIdx.x} * kSumColumns<From> + threadIdx.x;
  C sum = 0;
  if (column < columns) {
#pragma unroll 4
    for (int64_t row = threadIdx.y; row < rows; row += kSumRows<From>) {
      sum += widen(matrix[row * columns + column]);
    }
  }
  partial[threadIdx.y][threadIdx.x] = sum;
  for (int half = kSumRows<From> / 2; half > 0; half /= 2) {
    __syncthreads();
    if (threadIdx.y < half) {
      partial[threadIdx.y][threadIdx.x] += partial[threadIdx.y + half][threadIdx.x];
    }
  }
  if (threadIdx.y == 0 && column < columns) sums[column] = narrow<To>(partial[0][threadIdx.x]);
}

template <typename From, typename To>
const char* launch_sum(const From* matrix, To* sums, int64_t rows, int64_t columns,
                       const lltm_execution& execution) {
  const auto blocks = static_cast<unsigned>(divide_up(columns, kSumColumns<From>));
  sum_columns<From, To>
      <<<blocks, dim3(kSumColumns<From>, kSumRows<From>), 0,
         static_cast<cudaStream_t>(execution.stream)>>>(matrix, sums, rows, columns);
  return error_text("column_sum", cudaGetLastError());
}

template <typename T>
bool takes_vectors(const lltm_step_backward_arguments& a, int64_t to_stride) {
  return a.sizes.state_size % kBackwardVector<T> == 0 && to_stride % kBackwardVector<T> == 0 &&
         has_contiguous_gradients(a) &&
         aligned_for_vectors(a.grad_h, a.grad_cell, a.grad_gates, a.more_grad_h, a.more_grad_cell,
                             a.gates, a.new_cell, a.d_gates, a.d_old_cell);
}

// The workspace for accesses of N elements. The arguments decide whether a vector or one element is
// accessed, so the caller takes the larger workspace.
template <typename T, int N>
int64_t workspace_bytes(int64_t batch_size, int64_t state_size) {
  const StripGeometry geometry(batch_size, divide_up(state_size, N), N * sizeof(T), true);
  if (geometry.parts == 1) return 0;
  return geometry.parts * kGateCount * state_size * static_cast<int64_t>(sizeof(compute_t<T>));
}

template <typename T, int N>
const char* launch_backward(const lltm_step_backward_arguments& arguments, int64_t to_stride,
                            const CopiesBeside& copies, const lltm_execution& execution) {
  const int64_t packs = arguments.sizes.state_size / N;
  const bool sums = arguments.d_bias != nullptr;
  const StripGeometry geometry(arguments.sizes.batch_size, packs, N * sizeof(T), sums);
  const bool parted = sums && geometry.parts > 1;
  const bool few = geometry.parts <= kMostParts && geometry.strips <= ArrivalRow::kStrips;
  const Strips strips = {packs,
                         divide_up(arguments.sizes.batch_size, geometry.parts),
                         parted && few ? ArrivalRow::of(arguments.workspace) : -1,
                         to_stride,
                         static_cast<unsigned>(geometry.strips),
                         copies};
  int64_t blocks = 0;  // blocks that copy
  for (int i = 0; i < copies.count; ++i) {
    blocks = std::max(blocks, copies.count * copy_blocks(copies.at[i]));
  }
  const dim3 grid(static_cast<unsigned>(geometry.strips + divide_up(blocks, geometry.parts)),
                  static_cast<unsigned>(geometry.parts));
  const auto kernel = sums ? backward_strips<T, N, true> : backward_strips<T, N, false>;
  kernel<<<grid, geometry.block, 0, static_cast<cudaStream_t>(execution.stream)>>>(arguments,
                                                                                   strips);
  const char* error = error_text("cell_backward", cudaGetLastError());
  if (error != nullptr || !parted || strips.arrival_row >= 0) return error;
  return launch_sum(static_cast<const compute_t<T>*>(arguments.workspace),
                    static_cast<T*>(arguments.d_bias), geometry.parts,
                    kGateCount * arguments.sizes.state_size, execution);
}

template <typename T, int N>
const char* launch_forward(const lltm_step_forward_arguments& arguments, const void* from,
                           int64_t from_stride, const lltm_execution& execution) {
  const int64_t packs = arguments.sizes.state_size / N;
  const PlaneGeometry geometry(arguments.sizes.batch_size, packs);
  auto kernel = forward_plane<T, N, false>;
  if constexpr (kSixteenBits<T>) {
    if (arguments.running.new_cell != nullptr) kernel = forward_plane<T, N, true>;
  }
  return error_text("cell_forward", launch_early(kernel, geometry.grid, geometry.block, execution,
                                                 arguments, packs, from, from_stride));
}

}  // namespace pointwise_cu

const char* cell_forward_from(lltm_dtype dtype, const lltm_step_forward_arguments& a,
                              const void* from, int64_t from_stride,
                              const lltm_execution& execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if (a.bias != nullptr)
      return "lltm CUDA kernel cell_forward: bias must be NULL: the GEMM adds it";
    const DeviceScope device(execution.device_index);
    if (device.error() != cudaSuccess) return error_text("cell_forward", device.error());
    if (a.sizes.batch_size == 0 || a.sizes.state_size == 0)
      return nullptr;  // CUDA refuses empty grids
    constexpr int kSize = kVectorSize<T>;
    const bool vectors = a.sizes.state_size % kSize == 0 && from_stride % kSize == 0 &&
                         aligned_for_vectors(a.gates, from, a.old_cell, a.new_h, a.new_cell,
                                             a.running.old_cell, a.running.new_cell);
    return vectors ? launch_forward<T, kSize>(a, from, from_stride, execution)
                   : launch_forward<T, 1>(a, from, from_stride, execution);
  });
}

const char* cuda_cell_forward(lltm_dtype dtype, const lltm_step_forward_arguments* arguments,
                              const lltm_execution* execution) {
  return cell_forward_from(dtype, *arguments, arguments->gates,
                           kGateCount * arguments->sizes.state_size, *execution);
}

const char* cell_backward_to(lltm_dtype dtype, const lltm_step_backward_arguments& arguments,
                             int64_t to_stride, const CopiesBeside& copies,
                             const lltm_execution& execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    lltm_step_backward_arguments a = with_strides(arguments);
    if (a.more_grad_h_planes == 0) a.more_grad_h_planes = 1;
    const DeviceScope device(execution.device_index);
    if (device.error() != cudaSuccess) return error_text("cell_backward", device.error());
    if (a.sizes.batch_size == 0 || a.sizes.state_size == 0) return nullptr;
    return takes_vectors<T>(a, to_stride)
               ? launch_backward<T, kBackwardVector<T>>(a, to_stride, copies, execution)
               : launch_backward<T, 1>(a, to_stride, copies, execution);
  });
}

const char* cuda_cell_backward(lltm_dtype dtype, const lltm_step_backward_arguments* arguments,
                               const lltm_execution* execution) {
  return cell_backward_to(dtype, *arguments, kGateCount * arguments->sizes.state_size, {},
                          *execution);
}

int64_t cell_backward_workspace(lltm_dtype dtype, int64_t batch_size, int64_t state_size) {
  int64_t bytes = 0;
  dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const int64_t vectors = workspace_bytes<T, kBackwardVector<T>>(batch_size, state_size);
    const int64_t elements = workspace_bytes<T, 1>(batch_size, state_size);
    bytes = vectors > elements ? vectors : elements;
    return nullptr;
  });
  return bytes;
}

const char* cuda_column_sum(lltm_dtype dtype, const lltm_column_sum_arguments* arguments,
                            const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if (arguments->columns == 0) return nullptr;
    const DeviceScope device(execution->device_index);
    if (device.error() != cudaSuccess) return error_text("column_sum", device.error());
    return launch_sum(static_cast<const T*>(arguments->matrix), static_cast<T*>(arguments->sums),
                      arguments->rows, arguments->columns, *execution);
  });
}

}  // namespace lltm
