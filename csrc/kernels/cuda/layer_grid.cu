// The host side of the family `grid`: it chooses the kernel and its blocks, and checks whether all
// blocks fit at once.
#include <type_traits>

#include "../dispatch.h"
#include "launch.h"
#include "layer.h"
#include "layer_grid_kernels.h"

namespace lltm {
namespace {

template <int value>
using Constant = std::integral_constant<int, value>;

// Calls `use` with the number of pieces of K = S that a warp must hold: 2, 4 or 8.
template <typename Use>
void with_pieces(int64_t needed, const Use& use) {
  if (needed <= 2) return use(Constant<2>{});
  if (needed <= 4) return use(Constant<4>{});
  if (needed <= 8) return use(Constant<8>{});
}

// A kernel, with the threads and the bytes of shared memory of its blocks.
struct GridKernel {
  const void* function;
  int threads;
  int64_t shared_bytes;

  cudaError_t allow_memory() const {
    return cudaFuncSetAttribute(function, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                static_cast<int>(shared_bytes));
  }
  // The number of blocks that a multiprocessor holds.
  int count_blocks() const {
    if (!compiled_for(function, 80)) return 0;
    int blocks = 0;
    cudaError_t error = allow_memory();
    if (error == cudaSuccess) {
      error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, function, threads,
                                                            static_cast<size_t>(shared_bytes));
    }
    if (error == cudaSuccess) return blocks;
    cudaGetLastError();
    return 0;
  }
};

template <typename T, bool backward, typename Engine>
GridKernel kernel_with(int slice_rows) {
  using Finish =
      std::conditional_t<backward, BackwardFinisher<T, Engine>, ForwardFinisher<T, Engine>>;
  return {reinterpret_cast<const void*>(grid_kernel<T, Engine, backward, Finish>),
          kGridThreads<Engine>, GridShared<Engine>::bytes(slice_rows)};
}

// The kernel for a problem in slices of `slice_rows` rows; its function is NULL if there is none.
template <bool backward>
GridKernel kernel_for(lltm_dtype dtype, const lltm_layer_sizes& sizes, int slice_rows) {
  GridKernel kernel = {};
  dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if constexpr (sizeof(T) <= 4) {
      const int64_t span = kWarps * 64 / static_cast<int64_t>(sizeof(T));
      with_pieces(divide_up(sizes.state_size, span), [&](auto pieces) {
        constexpr int kPieces = pieces() * (backward ? kGateCount : 1);
        if (slice_rows <= kTileRows) {
          kernel = kernel_with<T, backward, TensorEngine<T, backward, kPieces, true>>(slice_rows);
        } else {
          kernel = kernel_with<T, backward, TensorEngine<T, backward, kPieces, false>>(slice_rows);
        }
        if constexpr (std::is_same_v<T, float>) {
          // ExactEngine's lanes take two pieces of K = 3S at a time.
          constexpr int kExact = backward ? (kPieces + 1) / 2 * 2 : kPieces;
          if (sizes.allow_tf32 == 0) {
            kernel = kernel_with<T, backward, ExactEngine<backward, kExact>>(slice_rows);
          }
        }
      });
    }
    return nullptr;
  });
  return kernel;
}

}  // namespace

GridShape shape_grid(const LayerProblem& problem) {
  const int64_t state = problem.sizes.state_size;
  const int64_t batch = problem.sizes.batch_size;
  if (problem.dtype == LLTM_FLOAT64 || state % 8 != 0 || state == 0 || batch == 0 ||
      problem.sizes.steps >= (1 << 30)) {
    return {};
  }
  const DeviceFacts device = device_facts(problem.device_index);
  const int64_t unit_blocks = divide_up(state, kUnits);
  const int64_t room = device.multiprocessors / unit_blocks;
  if (device.major < 8 || !device.cooperative || room == 0) return {};
  // A slice of less than a tile saves reading and finishing, but no products.
  const int64_t share = divide_up(batch, room);
  const int64_t slice_rows = share <= kTileRows ? share : divide_up(share, kTileRows) * kTileRows;
  if (slice_rows > (1 << 19)) return {};
  GridShape shape;
  shape.unit_blocks = static_cast<int>(unit_blocks);
  shape.slice_rows = static_cast<int>(slice_rows);
  shape.slices = static_cast<int>(divide_up(batch, slice_rows));
  return shape;
}

bool grid_fits(const LayerProblem& problem) {
  const GridShape shape = shape_grid(problem);
  if (shape.unit_blocks == 0) return false;
  const auto kernel =
      (problem.backward ? kernel_for<true> : kernel_for<false>)(problem.dtype, problem.sizes,
                                                                shape.slice_rows);
  const DeviceFacts device = device_facts(problem.device_index);
  if (kernel.function == nullptr || kernel.shared_bytes > device.shared_bytes) return false;
  const DeviceScope scope(problem.device_index);
  const int64_t blocks = remembered(kernel.function, kernel.shared_bytes, problem.device_index,
                                    [&] { return kernel.count_blocks(); });
  return blocks * device.multiprocessors >= int64_t{shape.unit_blocks} * shape.slices;
}

int64_t grid_workspace(const LayerProblem& problem) {
  // Holds a copy of an initial state whose address is not a multiple of 16.
  const lltm_layer_sizes& sizes = problem.sizes;
  return problem.backward ? 0
                          : sizes.batch_size * sizes.state_size * lltm_dtype_bytes(problem.dtype);
}

template <typename Arguments>
const char* run_grid(lltm_dtype dtype, const Arguments& arguments,
                     const lltm_execution& execution) {
  constexpr bool kBackward = kIsBackward<Arguments>;
  const auto failed = [](cudaError_t error) { return error_text(kLayerName<Arguments>, error); };
  const DeviceScope scope(execution.device_index);
  if (scope.error() != cudaSuccess) return failed(scope.error());
  const lltm_layer_sizes& sizes = arguments.sizes;
  const GridShape shape = shape_grid({dtype, kBackward, sizes, execution.device_index});
  const GridKernel kernel = kernel_for<kBackward>(dtype, sizes, shape.slice_rows);
  if (shape.unit_blocks == 0 || kernel.function == nullptr) {
    return "lltm CUDA kernels of the family grid: no kernel for this size";
  }
  const auto stream = static_cast<cudaStream_t>(execution.stream);
  const int64_t plane_bytes = sizes.batch_size * sizes.state_size * lltm_dtype_bytes(dtype);
  Arguments copy = arguments;
  cudaError_t error = cudaSuccess;
  void* exchanged;  // the tensor through which blocks exchange states
  int64_t exchanged_planes = sizes.steps;
  if constexpr (kBackward) {
    exchanged = arguments.d_gates;
    exchanged_planes *= kGateCount;
  } else {
    exchanged = arguments.output;
    if (reinterpret_cast<uintptr_t>(arguments.initial_h) % 16 != 0) {
      error = cudaMemcpyAsync(arguments.workspace, arguments.initial_h,
                              static_cast<size_t>(plane_bytes), cudaMemcpyDeviceToDevice, stream);
      copy.initial_h = arguments.workspace;
    }
  }
  if (error != cudaSuccess) return failed(error);
  // Fills the tensor with kUnwritten.
  error =
      cudaMemsetAsync(exchanged, 0xff, static_cast<size_t>(exchanged_planes * plane_bytes), stream);
  if (error == cudaSuccess) error = kernel.allow_memory();
  if (error != cudaSuccess) return failed(error);
  int slice = shape.slice_rows;
  void* parameters[] = {&copy, &slice};
  const dim3 blocks(static_cast<unsigned>(shape.unit_blocks), static_cast<unsigned>(shape.slices));
  error = cudaLaunchCooperativeKernel(kernel.function, blocks, dim3(kernel.threads), parameters,
                                      static_cast<size_t>(kernel.shared_bytes), stream);
  return failed(error != cudaSuccess ? error : cudaGetLastError());
}

template const char* run_grid(lltm_dtype, const lltm_layer_forward_arguments&,
                              const lltm_execution&);
template const char* run_grid(lltm_dtype, const lltm_layer_backward_arguments&,
                              const lltm_execution&);

}  // namespace lltm
