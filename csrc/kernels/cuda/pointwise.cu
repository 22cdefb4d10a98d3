// The pointwise part of one LLTM step, after the GEMM. Memory bandwidth bounds it, so each thread
// moves 16 bytes at a time.
#include <algorithm>
#include <atomic>
#include <cstdint>
#include <type_traits>

#include "cell.h"
#include "cell_element.h"
#include "launch.h"

namespace lltm {
inline namespace pointwise_cu {

constexpr int kThreads = 256;
constexpr int64_t kMostGridY = 65535;

// Waits until earlier kernels in the stream have ended and their results can be read. A kernel that
// starts early calls this first.
LLTM_DEVICE void wait_for_earlier() {
#if __CUDA_ARCH__ >= 900
  asm volatile("griddepcontrol.wait;" ::: "memory");
#endif
}

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

constexpr int kCopyWarp = 32;
constexpr int64_t kCopyRows = kThreads / kCopyWarp;  // rows per block at a time

// Makes part `block` of `blocks` parts of a copy. Each warp takes whole rows.
template <typename T>
LLTM_DEVICE void copy_rows(const lltm_copy& copy, int thread, int64_t block, int64_t blocks) {
  constexpr int kAtOnce = 8;  // per lane in flight
  const int lane = thread % kCopyWarp;
  const int64_t rows = copy.planes * copy.to_rows;
  for (int64_t to_row = block * kCopyRows + thread / kCopyWarp; to_row < rows;
       to_row += blocks * kCopyRows) {
    const int64_t row = to_row % copy.to_rows;
    const int64_t from_row = to_row / copy.to_rows * copy.from_rows + row;
    const T* const from = static_cast<const T*>(copy.from) + from_row * copy.from_stride;
    T* const to = static_cast<T*>(copy.to) + to_row * copy.to_stride;
    const int64_t columns = row < copy.from_rows ? copy.from_columns : 0;
    for (int64_t first = lane; first < copy.to_columns; first += kAtOnce * kCopyWarp) {
      T values[kAtOnce];
      unrolled<kAtOnce>([&](int i) {
        const int64_t column = first + i * kCopyWarp;
        values[i] = column < columns ? from[column] : T{};
      });
      unrolled<kAtOnce>([&](int i) {
        const int64_t column = first + i * kCopyWarp;
        if (column < copy.to_columns) to[column] = values[i];
      });
    }
  }
}

// The number of blocks for a copy; warps stride over further rows.
inline int64_t copy_blocks(const lltm_copy& copy) {
  constexpr int64_t kMostBlocks = 1024;
  const int64_t blocks = divide_up(copy.planes * copy.to_rows, kCopyRows);
  return blocks < kMostBlocks ? blocks : kMostBlocks;
}

struct Copies {
  lltm_copy at[LLTM_MOST_COPIES];
};

template <typename T>
__global__ void __launch_bounds__(kThreads) copy_all(const Copies copies) {
  copy_rows<T>(copies.at[blockIdx.y], static_cast<int>(threadIdx.x), blockIdx.x, gridDim.x);
}

// A backward block owns a strip of columns and goes down its rows, so that it can sum them for the
// bias. If this gives too few blocks, the rows are divided into parts too, and the parts' sums are
// added up.
struct StripGeometry {
  dim3 block;
  int64_t strips;
  int64_t parts;

  StripGeometry(int64_t rows, int64_t packs, int pack_bytes, bool sums) {
    constexpr int kStripBytes = 128;   // of a row at a time, for full memory speed
    constexpr int kSectorBytes = 32;   // the smallest memory access
    constexpr int64_t kBlocks = 1024;  // fills any GPU several times over
    constexpr int64_t kFewBlocks = 128;
    constexpr int64_t kFewRows = 8;  // per thread; more rows are divided into parts
    int width = kStripBytes / pack_bytes;
    const auto most_blocks = [&] {
      return divide_up(packs, width) * divide_up(rows, kFewRows * (kThreads / width));
    };
    while (width > kSectorBytes / pack_bytes && most_blocks() < kFewBlocks) width /= 2;
    block = dim3(width, kThreads / width);
    strips = divide_up(packs, width);
    const int64_t rounds = divide_up(rows, block.y);
    parts = rounds;
    if (sums) {
      const int64_t wanted = divide_up(kBlocks, strips);
      const int64_t most = rounds <= kFewRows ? 1 : divide_up(rounds, 4);
      parts = wanted < most ? wanted : most;
    }
    parts = std::clamp(parts, int64_t{1}, kMostGridY);
  }
};

// The arrival counters of launches. The blocks of a strip write their sums to the workspace, and
// the last block to arrive adds them up. So a counter must be zero before a launch, and no other
// launch may use it at the same time. This needs no fill: the counters are variables of the module,
// which are zero when it is loaded. They are zero again after each launch, since the last arrival
// wraps to zero (unless the launch destroys its CUDA context). Each row of counters belongs to one
// workspace address. Launches that share a workspace never run at the same time, whatever their
// streams or graphs.
constexpr int kArrivalRows = 512;
constexpr int kArrivalStrips = 256;
__device__ unsigned arrivals[kArrivalRows][kArrivalStrips];

// The row of a workspace, or -1 if too many other addresses came first.
int arrival_row(const void* workspace) {
  static std::atomic<uintptr_t> owners[kArrivalRows];
  constexpr int kTries = 16;
  const auto key = reinterpret_cast<uintptr_t>(workspace);
  const uint64_t mixed = (uint64_t{key} >> 4) * 0x9E3779B97F4A7C15u;  // spreads neighbours
  for (int attempt = 0; attempt < kTries; ++attempt) {
    const int row = static_cast<int>(((mixed >> 32) + attempt) % kArrivalRows);
    uintptr_t owner = 0;
    if (owners[row].compare_exchange_strong(owner, key) || owner == key) return row;
  }
  return -1;
}

// Backward keeps more numbers per element: with eight elements per thread, registers run out.
constexpr int backward_vector(int element_bytes) {
  return std::min(kVectorBytes / element_bytes, 4);
}
template <typename T>
constexpr int kBackwardVector = backward_vector(sizeof(T));

// Whether a thread that sums reads its next row before it computes the present one. In bfloat16
// this takes so many registers that a multiprocessor would hold fewer threads.
template <typename T>
constexpr bool kReadsAhead = !std::is_same_v<T, bfloat16>;

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
void launch_sum(const From* matrix, To* sums, int64_t rows, int64_t columns, cudaStream_t stream) {
  const auto blocks = static_cast<unsigned>(divide_up(columns, kSumColumns<From>));
  sum_columns<From, To>
      <<<blocks, dim3(kSumColumns<From>, kSumRows<From>), 0, stream>>>(matrix, sums, rows, columns);
}

template <typename T>
bool takes_vectors(const lltm_step_backward_arguments& a, int64_t to_stride) {
  return a.sizes.state_size % kBackwardVector<T> == 0 && to_stride % kBackwardVector<T> == 0 &&
         has_contiguous_gradients(a) &&
         aligned_for_vectors(a.grad_h, a.grad_cell, a.grad_gates, a.more_grad_h, a.more_grad_cell,
                             a.gates, a.new_cell, a.d_gates, a.d_old_cell);
}

template <typename T, int N>
void launch_backward(const lltm_step_backward_arguments& arguments, int64_t to_stride,
                     const CopiesBeside& copies, cudaStream_t stream) {
  const int64_t packs = arguments.sizes.state_size / N;
  const bool sums = arguments.d_bias != nullptr;
  const StripGeometry geometry(arguments.sizes.batch_size, packs, N * sizeof(T), sums);
  const bool parted = sums && geometry.parts > 1;
  const bool few = geometry.parts <= kMostParts && geometry.strips <= kArrivalStrips;
  const Strips strips = {packs,
                         divide_up(arguments.sizes.batch_size, geometry.parts),
                         parted && few ? arrival_row(arguments.workspace) : -1,
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
  kernel<<<grid, geometry.block, 0, stream>>>(arguments, strips);
  if (!parted || strips.arrival_row >= 0) return;
  launch_sum(static_cast<const compute_t<T>*>(arguments.workspace),
             static_cast<T*>(arguments.d_bias), geometry.parts,
             kGateCount * arguments.sizes.state_size, stream);
}

// Whether `kernel` may start early. It may not during the capture of a graph: a graph's launches
// never overlap, and older runtimes refuse to capture early launches.
bool may_start_early(const void* kernel, const lltm_execution& execution) {
  cudaStreamCaptureStatus capture = cudaStreamCaptureStatusNone;
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  if (cudaStreamIsCapturing(stream, &capture) != cudaSuccess) {
    cudaGetLastError();
    return false;
  }
  return capture == cudaStreamCaptureStatusNone && compiled_for(kernel, 90, execution.device_index);
}

template <typename T, int N>
void launch_forward(const lltm_step_forward_arguments& arguments, const void* from,
                    int64_t from_stride, const lltm_execution& execution) {
  const int64_t packs = arguments.sizes.state_size / N;
  // x runs along the columns, so that neighbouring threads touch neighbouring elements; y along the
  // rows. The kernel strides over planes that are larger than the grid.
  int width = 32;
  while (width < packs && width < kThreads) width *= 2;
  const dim3 block(width, kThreads / width);
  const int64_t grid_x = divide_up(packs, width);
  const int64_t grid_y = divide_up(arguments.sizes.batch_size, block.y);
  auto kernel = forward_plane<T, N, false>;
  if constexpr (kSixteenBits<T>) {
    if (arguments.running.new_cell != nullptr) kernel = forward_plane<T, N, true>;
  }
  // The launch overlaps the end of the previous kernel in the stream (compute capability 9.0): a
  // short kernel after a GEMM then starts more than a microsecond earlier.
  cudaLaunchAttribute early = {};
  early.id = cudaLaunchAttributeProgrammaticStreamSerialization;
  early.val.programmaticStreamSerializationAllowed = 1;
  cudaLaunchConfig_t config = {};
  config.gridDim = dim3(static_cast<unsigned>(std::min(grid_x, int64_t{1} << 20)),
                        static_cast<unsigned>(std::min(grid_y, kMostGridY)));
  config.blockDim = block;
  config.stream = static_cast<cudaStream_t>(execution.stream);
  config.attrs = &early;
  config.numAttrs = may_start_early(reinterpret_cast<const void*>(kernel), execution) ? 1 : 0;
  cudaLaunchKernelEx(&config, kernel, arguments, packs, from, from_stride);
}

}  // namespace pointwise_cu

const char* cell_forward_from(lltm_dtype dtype, const lltm_step_forward_arguments& a,
                              const void* from, int64_t from_stride,
                              const lltm_execution& execution) {
  return launch_on(execution, "cell_forward", dtype, [&](auto zero, cudaStream_t) {
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

const char* cuda_cell_forward(lltm_dtype dtype, const lltm_step_forward_arguments* arguments,
                              const lltm_execution* execution) {
  return cell_forward_from(dtype, *arguments, arguments->gates,
                           kGateCount * arguments->sizes.state_size, *execution);
}

const char* cell_backward_to(lltm_dtype dtype, const lltm_step_backward_arguments& arguments,
                             int64_t to_stride, const CopiesBeside& copies,
                             const lltm_execution& execution) {
  return launch_on(execution, "cell_backward", dtype, [&](auto zero, cudaStream_t stream) {
    using T = decltype(zero);
    lltm_step_backward_arguments a = with_strides(arguments);
    if (a.more_grad_h_planes == 0) a.more_grad_h_planes = 1;
    if (a.sizes.batch_size == 0 || a.sizes.state_size == 0) return;
    const auto launch = takes_vectors<T>(a, to_stride) ? launch_backward<T, kBackwardVector<T>>
                                                       : launch_backward<T, 1>;
    launch(a, to_stride, copies, stream);
  });
}

const char* cuda_cell_backward(lltm_dtype dtype, const lltm_step_backward_arguments* arguments,
                               const lltm_execution* execution) {
  return cell_backward_to(dtype, *arguments, kGateCount * arguments->sizes.state_size, {},
                          *execution);
}

int64_t cell_backward_workspace(lltm_dtype dtype, int64_t batch_size, int64_t state_size) {
  const int bytes = static_cast<int>(lltm_dtype_bytes(dtype));
  const auto parts = [&](int n) {
    return StripGeometry(batch_size, divide_up(state_size, n), n * bytes, true).parts;
  };
  // The arguments decide whether a vector or one element is accessed.
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

const char* cuda_copy(lltm_dtype dtype, int32_t count, const lltm_copy* copies,
                      const lltm_execution* execution) {
  return launch_on(*execution, "copy", dtype, [&](auto zero, cudaStream_t stream) {
    Copies all = {};
    std::copy_n(copies, count, all.at);
    int64_t blocks = 1;
    for (int32_t i = 0; i < count; ++i) blocks = std::max(blocks, copy_blocks(copies[i]));
    const dim3 grid(static_cast<unsigned>(blocks), static_cast<unsigned>(count));
    copy_all<decltype(zero)><<<grid, kThreads, 0, stream>>>(all);
  });
}

}  // namespace lltm
