// The family `grid` on the host: which kernel, on how many blocks, and whether all fit at once.
#include <type_traits>

#include "../dispatch.h"
#include "launch.h"
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
  constexpr int kTimes = backward ? 3 : 1;
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

// Asks once a thread and device: a plan is wanted at every call.
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

template <typename Arguments>
const char* launch(const char* name, const void* kernel, int threads, Arguments arguments,
                   int64_t shared_bytes, const GridShape& shape, void* stream) {
  cudaError_t error = cudaFuncSetAttribute(kernel, cudaFuncAttributeMaxDynamicSharedMemorySize,
                                           static_cast<int>(shared_bytes));
  if (error != cudaSuccess) return error_text(name, error);
  int slice = shape.slice_rows;
  void* parameters[] = {&arguments, &slice};
  const dim3 blocks(static_cast<unsigned>(shape.unit_blocks), static_cast<unsigned>(shape.slices));
  error = cudaLaunchCooperativeKernel(kernel, blocks, dim3(static_cast<unsigned>(threads)),
                                      parameters, static_cast<size_t>(shared_bytes),
                                      static_cast<cudaStream_t>(stream));
  return error_text(name, error != cudaSuccess ? error : cudaGetLastError());
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
      // Code made for older devices, which a newer one can be given, is empty.
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

// Fills the tensor that blocks exchange states through with words that say "not yet".
cudaError_t mark_unwritten(void* tensor, int64_t elements, lltm_dtype dtype, void* stream) {
  const int64_t bytes = elements * (dtype == LLTM_FLOAT32 ? 4 : 2);
  return cudaMemsetAsync(tensor, 0xff, static_cast<size_t>(bytes),
                         static_cast<cudaStream_t>(stream));
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
  // Rows of less than a tile save no products, but reading and finishing.
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
  return backward ? 0 : sizes.batch_size * sizes.state_size * (dtype == LLTM_FLOAT32 ? 4 : 2);
}

const char* grid_forward(lltm_dtype dtype, const lltm_layer_forward_arguments& arguments,
                         const lltm_execution& execution, const GridShape& shape) {
  constexpr const char* kName = "layer_forward";
  const DeviceScope scope(execution.device_index);
  if (scope.error() != cudaSuccess) return error_text(kName, scope.error());
  const int64_t plane = arguments.sizes.batch_size * arguments.sizes.state_size;
  cudaError_t error =
      mark_unwritten(arguments.output, arguments.sizes.steps * plane, dtype, execution.stream);
  lltm_layer_forward_arguments aligned = arguments;
  if (error == cudaSuccess && reinterpret_cast<uintptr_t>(arguments.initial_h) % 16 != 0) {
    error = cudaMemcpyAsync(arguments.workspace, arguments.initial_h,
                            static_cast<size_t>(plane) * (dtype == LLTM_FLOAT32 ? 4 : 2),
                            cudaMemcpyDeviceToDevice, static_cast<cudaStream_t>(execution.stream));
    aligned.initial_h = arguments.workspace;
  }
  if (error != cudaSuccess) return error_text(kName, error);
  const char* failure = "lltm CUDA kernel layer_forward: no kernel for this size";
  with_engine<false>(dtype, arguments.sizes, shape.slice_rows, [&](auto zero, auto* engine) {
    using Engine = std::remove_pointer_t<decltype(engine)>;
    failure = launch(kName, kernel_of<false, decltype(zero), Engine>(), kGridThreads<Engine>,
                     aligned, GridShared<Engine>::bytes(shape.slice_rows), shape, execution.stream);
    return true;
  });
  return failure;
}

const char* grid_backward(lltm_dtype dtype, const lltm_layer_backward_arguments& arguments,
                          const lltm_execution& execution, const GridShape& shape) {
  constexpr const char* kName = "layer_backward";
  const DeviceScope scope(execution.device_index);
  if (scope.error() != cudaSuccess) return error_text(kName, scope.error());
  const int64_t plane = arguments.sizes.batch_size * arguments.sizes.state_size;
  const cudaError_t error =
      mark_unwritten(arguments.d_gates, 3 * arguments.sizes.steps * plane, dtype, execution.stream);
  if (error != cudaSuccess) return error_text(kName, error);
  const char* failure = "lltm CUDA kernel layer_backward: no kernel for this size";
  with_engine<true>(dtype, arguments.sizes, shape.slice_rows, [&](auto zero, auto* engine) {
    using Engine = std::remove_pointer_t<decltype(engine)>;
    failure =
        launch(kName, kernel_of<true, decltype(zero), Engine>(), kGridThreads<Engine>, arguments,
               GridShared<Engine>::bytes(shape.slice_rows), shape, execution.stream);
    return true;
  });
  return failure;
}

}  // namespace lltm
