// The family `grid` on the host: which kernel, on how many blocks, and whether all fit at once.
#include <type_traits>

#include "../dispatch.h"
#include "launch.h"
#include "layer_direction.h"
#include "layer_grid.h"
#include "layer_grid_kernels.h"

namespace lltm {
namespace {

template <int value>
using Constant = std::integral_constant<int, value>;

// Calls `use` with the pieces of K = S that a warp must hold: 2, 4 or 8.
template <typename Use>
bool with_pieces(int64_t needed, const Use& use) {
  if (needed <= 2) return use(Constant<2>{});
  if (needed <= 4) return use(Constant<4>{});
  if (needed <= 8) return use(Constant<8>{});
  return false;
}

// Calls `use` with a null pointer to the engine that serves the problem in slices of so many rows.
template <bool backward, typename Use>
bool with_engine(lltm_dtype dtype, const lltm_layer_sizes& sizes, int slice_rows, const Use& use) {
  constexpr int kTimes = backward ? kGateCount : 1;
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
           using T = decltype(zero);
           bool done = false;
           if constexpr (sizeof(T) <= 4) {
             const int64_t span = kWarps * 64 / static_cast<int64_t>(sizeof(T));
             done = with_pieces(divide_up(sizes.state_size, span), [&](auto pieces) {
               constexpr int kPieces = pieces() * kTimes;
               if constexpr (std::is_same<T, float>::value) {
                 if (sizes.allow_tf32 == 0) {
                   // Its lanes take two pieces of K = 3S at a time.
                   constexpr int kExact = backward ? (kPieces + 1) / 2 * 2 : kPieces;
                   return use(T{}, static_cast<ExactEngine<backward, kExact>*>(nullptr));
                 }
               }
               if (slice_rows <= kTileRows) {
                 return use(T{}, static_cast<TensorEngine<T, backward, kPieces, true>*>(nullptr));
               }
               return use(T{}, static_cast<TensorEngine<T, backward, kPieces, false>*>(nullptr));
             });
           }
           return done ? "" : nullptr;
         }) != nullptr;
}

struct Device {
  int index = -1;
  int major = 0;
  int multiprocessors = 0;
  int shared_bytes = 0;
  int cooperative = 0;
};

// Asks once for each thread and device: every call needs a plan.
const char* ask(int index, Device* device) {
  thread_local int known_index = -1;
  thread_local Device known;
  if (index == known_index) {
    *device = known;
    return nullptr;
  }
  const struct {
    cudaDeviceAttr attribute;
    int* value;
  } questions[] = {
      {cudaDevAttrComputeCapabilityMajor, &device->major},
      {cudaDevAttrMultiProcessorCount, &device->multiprocessors},
      {cudaDevAttrMaxSharedMemoryPerBlockOptin, &device->shared_bytes},
      {cudaDevAttrCooperativeLaunch, &device->cooperative},
  };
  for (const auto& question : questions) {
    const cudaError_t error = cudaDeviceGetAttribute(question.value, question.attribute, index);
    if (error != cudaSuccess) return error_text("layer_plan", error);
  }
  device->index = index;
  known = *device;
  known_index = index;
  return nullptr;
}

template <bool backward, typename T, typename Engine>
const void* kernel_of() {
  using Finish =
      std::conditional_t<backward, BackwardFinisher<T, Engine>, ForwardFinisher<T, Engine>>;
  return reinterpret_cast<const void*>(grid_kernel<T, Engine, backward, Finish>);
}

template <bool backward>
bool resident(lltm_dtype dtype, const lltm_layer_sizes& sizes, const Device& device,
              const GridShape& shape) {
  return with_engine<backward>(dtype, sizes, shape.slice_rows, [&](auto zero, auto* engine) {
    using Engine = std::remove_pointer_t<decltype(engine)>;
    const void* const kernel = kernel_of<backward, decltype(zero), Engine>();
    const int64_t bytes = GridShared<Engine>::bytes(shape.slice_rows);
    if (bytes > device.shared_bytes) return false;
    // The occupancy of the last kernel asked for: layers are called with the same sizes many times.
    thread_local struct {
      const void* kernel = nullptr;
      int64_t bytes = 0;
      int device = -1;
      int blocks = 0;
    } last;
    if (last.kernel != kernel || last.bytes != bytes || last.device != device.index) {
      int blocks = 0;
      // Code for older devices, which newer ones can run, is empty.
      cudaFuncAttributes attributes;
      cudaError_t error = cudaFuncGetAttributes(&attributes, kernel);
      if (error == cudaSuccess && attributes.ptxVersion < 80) return false;
      if (error == cudaSuccess) {
        error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                     static_cast<int>(bytes));
      }
      if (error == cudaSuccess) {
        error = cudaOccupancyMaxActiveBlocksPerMultiprocessor(&blocks, kernel, kGridThreads<Engine>,
                                                              static_cast<size_t>(bytes));
      }
      if (error != cudaSuccess) {
        cudaGetLastError();
        return false;
      }
      last.kernel = kernel;
      last.bytes = bytes;
      last.device = device.index;
      last.blocks = blocks;
    }
    return int64_t{last.blocks} * device.multiprocessors >=
           int64_t{shape.unit_blocks} * shape.slices;
  });
}

int64_t bytes_of(lltm_dtype dtype, int64_t elements) {
  return elements * (dtype == LLTM_FLOAT32 ? 4 : 2);
}

// Launches the kernel. Before that, fills the tensor through which blocks exchange states, of so
// many elements, with kUnwritten.
template <typename Direction>
const char* launch(lltm_dtype dtype, typename Direction::Arguments arguments, void* exchanged,
                   int64_t elements, const GridShape& shape, void* stream) {
  const auto on = static_cast<cudaStream_t>(stream);
  const auto bytes = static_cast<size_t>(bytes_of(dtype, elements));
  cudaError_t error = cudaMemsetAsync(exchanged, 0xff, bytes, on);
  if (error != cudaSuccess) return error_text(Direction::kName, error);
  int slice = shape.slice_rows;
  const auto run = [&](auto zero, auto* engine) {
    using Engine = std::remove_pointer_t<decltype(engine)>;
    const void* const kernel = kernel_of<Direction::kBackward, decltype(zero), Engine>();
    const int64_t shared_bytes = GridShared<Engine>::bytes(slice);
    error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                 static_cast<int>(shared_bytes));
    if (error != cudaSuccess) return true;
    void* parameters[] = {&arguments, &slice};
    const dim3 blocks(static_cast<unsigned>(shape.unit_blocks),
                      static_cast<unsigned>(shape.slices));
    error = cudaLaunchCooperativeKernel(kernel, blocks, dim3(kGridThreads<Engine>), parameters,
                                        static_cast<size_t>(shared_bytes), on);
    if (error == cudaSuccess) error = cudaGetLastError();
    return true;
  };
  if (!with_engine<Direction::kBackward>(dtype, arguments.sizes, slice, run)) {
    return "lltm CUDA kernels of the family grid: no kernel for this size";
  }
  return error_text(Direction::kName, error);
}

}  // namespace

const char* shape_grid(lltm_dtype dtype, const lltm_layer_sizes& sizes, int32_t device_index,
                       GridShape* shape) {
  *shape = GridShape{};
  const int64_t state = sizes.state_size;
  const int64_t batch = sizes.batch_size;
  if (dtype == LLTM_FLOAT64 || state % 8 != 0 || state == 0 || batch == 0 ||
      sizes.steps >= (1 << 30)) {
    return nullptr;
  }
  Device device;
  if (const char* const error = ask(device_index, &device)) return error;
  if (device.major < 8 || device.cooperative == 0) return nullptr;
  const int64_t unit_blocks = divide_up(state, kUnits);
  const int64_t room = device.multiprocessors / unit_blocks;
  if (room == 0) return nullptr;
  // Less than a tile of rows saves reading and finishing, but no products.
  const int64_t share = divide_up(batch, room);
  const int64_t slice_rows = share <= kTileRows ? share : divide_up(share, kTileRows) * kTileRows;
  if (slice_rows > (1 << 19)) return nullptr;
  shape->unit_blocks = static_cast<int>(unit_blocks);
  shape->slice_rows = static_cast<int>(slice_rows);
  shape->slices = static_cast<int>(divide_up(batch, shape->slice_rows));
  return nullptr;
}

const char* check_grid(lltm_dtype dtype, bool backward, const lltm_layer_sizes& sizes,
                       int32_t device_index, const GridShape& shape, bool* fits) {
  *fits = false;
  if (shape.unit_blocks == 0) return nullptr;
  Device device;
  if (const char* const error = ask(device_index, &device)) return error;
  const DeviceScope scope(device_index);
  if (scope.error() != cudaSuccess) return error_text("layer_plan", scope.error());
  *fits = backward ? resident<true>(dtype, sizes, device, shape)
                   : resident<false>(dtype, sizes, device, shape);
  return nullptr;
}

int64_t grid_workspace(lltm_dtype dtype, bool backward, const lltm_layer_sizes& sizes) {
  // For an initial state at an address that is no multiple of 16.
  return backward ? 0 : bytes_of(dtype, sizes.batch_size * sizes.state_size);
}

const char* grid_forward(lltm_dtype dtype, const lltm_layer_forward_arguments& arguments,
                         const lltm_execution& execution, const GridShape& shape) {
  const DeviceScope scope(execution.device_index);
  if (scope.error() != cudaSuccess) return error_text(LayerForward::kName, scope.error());
  const int64_t plane = arguments.sizes.batch_size * arguments.sizes.state_size;
  lltm_layer_forward_arguments aligned = arguments;
  if (reinterpret_cast<uintptr_t>(arguments.initial_h) % 16 != 0) {
    const cudaError_t error = cudaMemcpyAsync(
        arguments.workspace, arguments.initial_h, static_cast<size_t>(bytes_of(dtype, plane)),
        cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(execution.stream));
    if (error != cudaSuccess) return error_text(LayerForward::kName, error);
    aligned.initial_h = arguments.workspace;
  }
  return launch<LayerForward>(dtype, aligned, arguments.output, arguments.sizes.steps * plane,
                              shape, execution.stream);
}

const char* grid_backward(lltm_dtype dtype, const lltm_layer_backward_arguments& arguments,
                          const lltm_execution& execution, const GridShape& shape) {
  const DeviceScope scope(execution.device_index);
  if (scope.error() != cudaSuccess) return error_text(LayerBackward::kName, scope.error());
  const int64_t plane = arguments.sizes.batch_size * arguments.sizes.state_size;
  return launch<LayerBackward>(dtype, arguments, arguments.d_gates,
                               kGateCount * arguments.sizes.steps * plane, shape, execution.stream);
}

}  // namespace lltm
