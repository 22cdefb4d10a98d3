// The host side of the family `grid`, which chooses a kernel and its blocks, and checks whether the
// device holds all blocks at once.
#include <algorithm>
#include <type_traits>

#include "../common/launch.h"
#include "../common/measured_bounds.h"
#include "layer.h"
#include "layer_grid_kernels.h"

namespace lltm {
namespace {

// Units of the state per block: kManyUnits if there are not enough multiprocessors for kFewUnits,
// or no kernel.
constexpr int kFewUnits = 16;
constexpr int kManyUnits = 24;
constexpr int kMostExact = 4;  // pieces of the state that ExactEngine takes

int64_t most_shared_bytes(const LayerProblem& problem) {
  return device_fact(cudaDevAttrMaxSharedMemoryPerBlockOptin, problem.device_index);
}

template <typename T, bool backward, typename Engine>
void take_kernel(GridShape* shape) {
  using Finish =
      std::conditional_t<backward, BackwardFinisher<T, Engine>, ForwardFinisher<T, Engine>>;
  shape->kernel = reinterpret_cast<const void*>(grid_kernel<T, Engine, backward, Finish>);
  shape->threads = kGridThreads<Engine>;
  shape->shared_bytes = GridShared<Engine>::bytes(shape->slice_rows);
}

template <typename T, bool backward, int kPiecesOfState>
void take_resident_kernel(bool exact, GridShape* shape) {
  constexpr int kPieces = kPiecesOfState * (backward ? kGateCount : 1);
  if constexpr (std::is_same_v<T, float> && kPiecesOfState <= kMostExact) {
    if (exact) return take_kernel<T, backward, ExactEngine<backward, kPieces>>(shape);
  }
  if (shape->slice_rows <= kTileRows) {
    return take_kernel<T, backward, TensorEngine<T, backward, kPieces, true>>(shape);
  }
  take_kernel<T, backward, TensorEngine<T, backward, kPieces, false>>(shape);
}

template <typename T, bool backward, bool exact, int kUnits, int kTiles>
void take_streamed_kernel(const LayerProblem& problem, GridShape* shape) {
  using Engine = StreamedEngine<T, backward, exact, kUnits, kTiles>;
  take_kernel<T, backward, Engine>(shape);
  const int64_t groups = Engine::count_groups(problem.sizes.state_size);
  const int64_t room = most_shared_bytes(problem) - shape->shared_bytes;
  // At least one group is streamed. If it is the only one, it stays in registers.
  const int64_t resident = std::min(groups - 1, std::max<int64_t>(room, 0) / Engine::kGroupBytes);
  shape->chunks = static_cast<int>(divide_up(shape->slice_rows, GridShared<Engine>::kRows));
  shape->resident = static_cast<int>(resident);
  shape->shared_bytes += resident * Engine::kGroupBytes;
  shape->stream_bytes =
      int64_t{shape->unit_blocks} * shape->slices * (groups - resident) * Engine::kGroupBytes;
  const int64_t l2_bytes = device_fact(cudaDevAttrL2CacheSize, problem.device_index);
  shape->exceeds_l2 = Engine::kExceedsL2 || shape->stream_bytes > l2_bytes;
  // If kExceedsL2, L2 keeps the first vectors of each group; the others come from memory.
  const double kept = bounds::kGridKeptShareOfL2 * l2_bytes / shape->stream_bytes;
  shape->kept = static_cast<int>(std::min(kept, 1.0) * Engine::kKeepable);
}

template <typename T, bool backward, int kUnits>
void choose_streamed_kernel(bool exact, const LayerProblem& problem, GridShape* shape) {
  if constexpr (std::is_same_v<T, float>) {
    if (exact) return take_streamed_kernel<T, backward, true, kUnits, 1>(problem, shape);
  }
  if (shape->slice_rows <= kTileRows) {
    return take_streamed_kernel<T, backward, false, kUnits, 1>(problem, shape);
  }
  take_streamed_kernel<T, backward, false, kUnits, 2>(problem, shape);
}

// Sets the shape's kernel, if there is one, and what depends on it. A block owns `units` units.
template <typename T, bool backward>
void find_kernel(const LayerProblem& problem, int64_t units, GridShape* shape) {
  const lltm_layer_sizes& sizes = problem.sizes;
  const bool exact = std::is_same_v<T, float> && sizes.allow_tf32 == 0;
  // The number of pieces per warp in forward, where K = S; layer_grid_pieces.h explains pieces.
  const int64_t pieces = divide_up(sizes.state_size, kWarps * 64 / static_cast<int>(sizeof(T)));
  if (units == kFewUnits && pieces <= (exact ? kMostExact : 8)) {
    const auto take = pieces <= 2   ? take_resident_kernel<T, backward, 2>
                      : pieces <= 4 ? take_resident_kernel<T, backward, 4>
                                    : take_resident_kernel<T, backward, 8>;
    take(exact, shape);
    if (shape->shared_bytes <= most_shared_bytes(problem)) return;
  }
  if (units == kManyUnits) {
    return choose_streamed_kernel<T, backward, kManyUnits>(exact, problem, shape);
  }
  // In 16 bits there are none: they would make a wheel larger for a few sizes around S 2100.
  if constexpr (std::is_same_v<T, float>) {
    choose_streamed_kernel<T, backward, kFewUnits>(exact, problem, shape);
  }
}

// Returns the number of blocks that a multiprocessor holds, or 0 if it cannot run the kernel. Lets
// the kernel take all shared memory of a block: what its launches take differs, and the bound is
// one for all threads of the process.
int count_blocks(const GridShape& shape, int32_t device_index) {
  if (!compiled_for(shape.kernel, 80, device_index)) return 0;
  const int most = device_fact(cudaDevAttrMaxSharedMemoryPerBlockOptin, device_index);
  const DeviceScope scope(device_index);
  cudaFuncAttributes facts = {};
  int blocks = 0;
  if (cudaFuncGetAttributes(&facts, shape.kernel) == cudaSuccess &&
      cudaFuncSetAttribute(shape.kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                           most - static_cast<int>(facts.sharedSizeBytes)) == cudaSuccess &&
      cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, shape.kernel, shape.threads,
                                                    static_cast<size_t>(shape.shared_bytes)) ==
          cudaSuccess) {
    return blocks;
  }
  cudaGetLastError();
  return 0;
}

// Like shape_grid, for blocks of `units` units.
GridShape shape_for(const LayerProblem& problem, int64_t units) {
  const int64_t multiprocessors = device_fact(cudaDevAttrMultiProcessorCount, problem.device_index);
  const int64_t unit_blocks = divide_up(problem.sizes.state_size, units);
  const int64_t room = multiprocessors / unit_blocks;
  if (room == 0) return {};
  // A slice smaller than a tile is not rounded up: rounding would add rows to read and to compute.
  const int64_t share = divide_up(problem.sizes.batch_size, room);
  const int64_t slice_rows = share <= kTileRows ? share : divide_up(share, kTileRows) * kTileRows;
  if (slice_rows > (1 << 19)) return {};
  GridShape shape;
  shape.unit_blocks = static_cast<int>(unit_blocks);
  shape.slice_rows = static_cast<int>(slice_rows);
  shape.slices = static_cast<int>(divide_up(problem.sizes.batch_size, slice_rows));
  dispatch_floating(problem.dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if constexpr (sizeof(T) <= 4) {
      const auto find = problem.backward ? find_kernel<T, true> : find_kernel<T, false>;
      find(problem, units, &shape);
    }
    return nullptr;
  });
  if (shape.kernel == nullptr || shape.shared_bytes > most_shared_bytes(problem)) return {};
  const int64_t blocks = remembered(shape.kernel, shape.shared_bytes, problem.device_index,
                                    [&] { return count_blocks(shape, problem.device_index); });
  return blocks * multiprocessors >= unit_blocks * shape.slices ? shape : GridShape{};
}

}  // namespace

GridShape shape_grid(const LayerProblem& problem) {
  const lltm_layer_sizes& sizes = problem.sizes;
  if (sizes.state_size % 8 != 0 || sizes.state_size == 0 || sizes.batch_size == 0) return {};
  if (sizes.steps >= (1 << 30)) return {};
  if (device_fact(cudaDevAttrCooperativeLaunch, problem.device_index) == 0) return {};
  const GridShape shape = shape_for(problem, kFewUnits);
  return shape.kernel != nullptr ? shape : shape_for(problem, kManyUnits);
}

template <typename Arguments>
static const char* run_grid(lltm_dtype dtype, const Arguments& arguments,
                            const lltm_execution& execution) {
  constexpr bool kBackward = kIsBackward<Arguments>;
  return launch_on(execution, kLayerName<Arguments>, dtype, [&](auto, cudaStream_t stream) {
    const lltm_layer_sizes& sizes = arguments.sizes;
    GridShape shape = shape_grid({dtype, kBackward, sizes, execution.device_index});
    const auto plane_bytes =
        static_cast<size_t>(sizes.batch_size * sizes.state_size * lltm_dtype_bytes(dtype));
    const size_t all_bytes = plane_bytes * static_cast<size_t>(sizes.steps);
    Arguments copy = arguments;
    // At launch, all words of the tensor through which blocks exchange h or dz must be kUnwritten.
    if constexpr (kBackward) {
      cudaMemsetAsync(arguments.d_gates, 0xff, kGateCount * all_bytes, stream);
    } else {
      cudaMemsetAsync(arguments.output, 0xff, all_bytes, stream);
      if (reinterpret_cast<uintptr_t>(arguments.initial_h) % 16 != 0) {
        void* const initial_h = static_cast<char*>(arguments.workspace) + shape.stream_bytes;
        cudaMemcpyAsync(initial_h, arguments.initial_h, plane_bytes, cudaMemcpyDeviceToDevice,
                        stream);
        copy.initial_h = initial_h;
      }
    }
    if (cudaPeekAtLastError() != cudaSuccess) return;
    void* parameters[] = {&copy, &shape.slice_rows, &shape.resident, &shape.kept};
    cudaLaunchCooperativeKernel(shape.kernel, grid_of(shape.unit_blocks, shape.slices),
                                dim3(shape.threads), parameters,
                                static_cast<size_t>(shape.shared_bytes), stream);
  });
}

LayerFamily grid_family = {
    "grid", [](const LayerProblem& problem) { return shape_grid(problem).kernel != nullptr; },
    run_grid<lltm_layer_forward_arguments>, run_grid<lltm_layer_backward_arguments>,
    "lltm: LLTM_LAYER_KERNELS=grid cannot run this problem on this device: it needs compute "
    "capability 8.0 or later and kernels built for it, float32, float16 or bfloat16, at most 24 "
    "units of the state for each multiprocessor, and a batch whose cells fit in their shared "
    "memory; unset it"};

}  // namespace lltm
