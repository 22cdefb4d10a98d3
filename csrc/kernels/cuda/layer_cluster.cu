// The family `cluster` on the host: which kernel, on how many clusters of how many blocks.
#include "../dispatch.h"
#include "launch.h"
#include "layer_cluster.h"
#include "layer_cluster_kernels.h"

namespace lltm {
namespace {

constexpr int kPortableBlocks = 8;  // every device with clusters runs these; more must be allowed

struct ClusterKernel {
  const void* function = nullptr;
  int threads = 0;
  int max_rows = 0;
};

template <typename T, typename L, int kRows>
ClusterKernel forward_with() {
  return {reinterpret_cast<const void*>(cluster_forward_kernel<T, L, kRows>), L::kThreads, kRows};
}

template <typename T, typename L, int kRows>
ClusterKernel backward_with(int64_t blocks) {
  // Whole warps, which make the parts of dh of all units. Those that finish the block's own units
  // are among them or additional.
  const int64_t products = divide_up(blocks, L::kWidth);
  const int64_t warps = L::kFinishers == 0 && products < kRows ? kRows : products + L::kFinishers;
  return {reinterpret_cast<const void*>(cluster_backward_kernel<T, L, kRows>),
          static_cast<int>(warps * 32), kRows};
}

// The quickest shapes: few lanes a unit, since each doubling costs a shuffle, and two rows a
// cluster where the registers have room for their sums.
template <typename T>
ClusterKernel kernel_for(bool backward, int64_t blocks) {
  if (backward) {
    if (blocks <= 8) return backward_with<T, ClusterBackward<8, 1, 2>, 2>(blocks);
    if (blocks <= 16) return backward_with<T, ClusterBackward<16, 2, 0>, 1>(blocks);
  } else {
    if (blocks <= 4) return forward_with<T, ClusterForward<128, 8, 4, 2>, 1>();
    if (blocks <= 8) return forward_with<T, ClusterForward<256, 16, 4, 2>, 2>();
    if (blocks <= 16) return forward_with<T, ClusterForward<256, 16, 8, 2>, 1>();
  }
  return {};
}

ClusterKernel kernel_for(lltm_dtype dtype, bool backward, int64_t blocks) {
  ClusterKernel kernel;
  dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if constexpr (sizeof(T) <= 4) kernel = kernel_for<T>(backward, blocks);
    return nullptr;
  });
  return kernel;
}

// A launch's configuration, which refers to the attribute beside it.
struct ClusterLaunch {
  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t configuration = {};

  ClusterLaunch(const ClusterKernel& kernel, int64_t clusters, int blocks, void* stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    configuration.gridDim = dim3(static_cast<unsigned>(clusters * blocks));
    configuration.blockDim = dim3(static_cast<unsigned>(kernel.threads));
    configuration.stream = static_cast<cudaStream_t>(stream);
    configuration.attrs = &attribute;
    configuration.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
  ClusterLaunch& operator=(const ClusterLaunch&) = delete;
};

cudaError_t allow(const ClusterKernel& kernel, int blocks) {
  if (blocks <= kPortableBlocks) return cudaSuccess;
  return cudaFuncSetAttribute(kernel.function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1);
}

// How many clusters run at once, and how many of them do not share a multiprocessor.
struct Clusters {
  int active = 0;
  int apart = 0;
};

cudaError_t count_clusters(const ClusterKernel& kernel, int blocks, int device, Clusters* count) {
  *count = Clusters{};
  int can_launch = 0;
  int multiprocessors = 0;
  cudaError_t error = cudaDeviceGetAttribute(&can_launch, cudaDevAttrClusterLaunch, device);
  if (error == cudaSuccess) {
    error = cudaDeviceGetAttribute(&multiprocessors, cudaDevAttrMultiProcessorCount, device);
  }
  if (error != cudaSuccess || can_launch == 0) return error;
  // Code for older devices, which newer ones can run, has no clusters.
  cudaFuncAttributes attributes;
  error = cudaFuncGetAttributes(&attributes, kernel.function);
  if (error != cudaSuccess || attributes.ptxVersion < 90) return error;
  int active = 0;
  error = allow(kernel, blocks);
  if (error == cudaSuccess) {
    const ClusterLaunch launch(kernel, 1, blocks, nullptr);
    error = cudaOccupancyMaxActiveClusters(&active, kernel.function, &launch.configuration);
  }
  if (error != cudaSuccess) {
    cudaGetLastError();  // this device has no clusters of this size
    return cudaSuccess;
  }
  // On a small part of a device a cluster may fit whose blocks share multiprocessors.
  const int most = multiprocessors > blocks ? multiprocessors / blocks : 1;
  *count = {active, active < most ? active : most};
  return cudaSuccess;
}

template <typename Arguments>
const char* launch(const char* name, lltm_dtype dtype, bool backward, Arguments arguments,
                   const lltm_execution& execution, const ClusterShape& shape) {
  const DeviceScope scope(execution.device_index);
  if (scope.error() != cudaSuccess) return error_text(name, scope.error());
  const ClusterKernel kernel = kernel_for(dtype, backward, shape.blocks);
  cudaError_t error = allow(kernel, shape.blocks);
  if (error != cudaSuccess) return error_text(name, error);
  const ClusterLaunch launch(kernel, divide_up(arguments.sizes.batch_size, shape.rows),
                             shape.blocks, execution.stream);
  int rows = shape.rows;
  void* parameters[] = {&arguments, &rows};
  error = cudaLaunchKernelExC(&launch.configuration, kernel.function, parameters);
  return error_text(name, error != cudaSuccess ? error : cudaGetLastError());
}

}  // namespace

const char* shape_cluster(lltm_dtype dtype, bool backward, const lltm_layer_sizes& sizes,
                          int32_t device_index, ClusterShape* shape) {
  *shape = ClusterShape{};
  const int64_t blocks = divide_up(sizes.state_size, kClusterUnits);
  const ClusterKernel kernel = kernel_for(dtype, backward, blocks);
  if (blocks == 0 || sizes.batch_size == 0 || kernel.function == nullptr ||
      sizes.steps > 0x7fffffff || sizes.batch_size > 0x7fffffff / blocks) {
    return nullptr;
  }
  // The last answer: layers are called with the same sizes many times.
  thread_local struct {
    const void* function = nullptr;
    int64_t blocks = 0;
    int device = -1;
    Clusters clusters;
  } known[2];
  auto& last = known[backward ? 1 : 0];
  if (last.function != kernel.function || last.blocks != blocks || last.device != device_index) {
    const DeviceScope scope(device_index);
    if (scope.error() != cudaSuccess) return error_text("layer_plan", scope.error());
    Clusters clusters;
    const cudaError_t error =
        count_clusters(kernel, static_cast<int>(blocks), device_index, &clusters);
    if (error != cudaSuccess) return error_text("layer_plan", error);
    last.function = kernel.function;
    last.blocks = blocks;
    last.device = device_index;
    last.clusters = clusters;
  }
  if (last.clusters.active == 0) return nullptr;
  // Each row makes a step longer, and a second wave of clusters doubles the time. Two forward
  // blocks share a multiprocessor well; in 16 bits, `registers` is quicker than two of anything.
  const int64_t wanted = divide_up(sizes.batch_size, last.clusters.apart);
  const int64_t rows = wanted < kernel.max_rows ? wanted : kernel.max_rows;
  const int64_t clusters = divide_up(sizes.batch_size, rows);
  shape->blocks = static_cast<int>(blocks);
  shape->rows = static_cast<int>(rows);
  const bool crowded = rows > 1 || clusters > last.clusters.apart;
  const bool outdone = crowded && blocks <= 4 && dtype != LLTM_FLOAT32;
  shape->quick = !outdone && clusters <= last.clusters.active &&
                 clusters <= int64_t{last.clusters.apart} * (backward ? 1 : 2);
  return nullptr;
}

const char* cluster_forward(lltm_dtype dtype, const lltm_layer_forward_arguments& arguments,
                            const lltm_execution& execution, const ClusterShape& shape) {
  return launch("layer_forward", dtype, false, arguments, execution, shape);
}

const char* cluster_backward(lltm_dtype dtype, const lltm_layer_backward_arguments& arguments,
                             const lltm_execution& execution, const ClusterShape& shape) {
  return launch("layer_backward", dtype, true, arguments, execution, shape);
}

}  // namespace lltm
