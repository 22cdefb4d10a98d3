// The host side of the family `cluster`: it chooses the kernel, the clusters and their blocks.
#include <algorithm>

#include "launch.h"
#include "layer.h"
#include "layer_cluster_kernels.h"

namespace lltm {
namespace {

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
  // Whole warps make the parts of dh for all units. The same warps, or additional ones, finish the
  // block's own units.
  const int64_t products = divide_up(blocks, L::kWidth);
  const int64_t warps = L::kFinishers == 0 && products < kRows ? kRows : products + L::kFinishers;
  return {reinterpret_cast<const void*>(cluster_backward_kernel<T, L, kRows>),
          static_cast<int>(warps * 32), kRows};
}

// The quickest shapes: few lanes per unit, since each doubling costs a shuffle, and two rows per
// cluster if the registers have room for their sums.
ClusterKernel kernel_for(lltm_dtype dtype, bool backward, int64_t blocks) {
  ClusterKernel kernel;
  dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if constexpr (sizeof(T) > 4) {
    } else if (backward) {
      if (blocks <= 8) {
        kernel = backward_with<T, ClusterBackward<8, 1, 2>, 2>(blocks);
      } else if (blocks <= 16) {
        kernel = backward_with<T, ClusterBackward<16, 2, 0>, 1>(blocks);
      }
    } else if (blocks <= 4) {
      kernel = forward_with<T, ClusterForward<128, 8, 4, 2>, 1>();
    } else if (blocks <= 8) {
      kernel = forward_with<T, ClusterForward<256, 16, 4, 2>, 2>();
    } else if (blocks <= 16) {
      kernel = forward_with<T, ClusterForward<256, 16, 8, 2>, 1>();
    }
    return nullptr;
  });
  return kernel;
}

// The configuration of a launch, with the attribute to which it points.
struct ClusterLaunch {
  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t configuration = {};

  ClusterLaunch(int threads, int64_t clusters, int64_t blocks, cudaStream_t stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim.x = static_cast<unsigned>(blocks);
    attribute.val.clusterDim.y = 1;
    attribute.val.clusterDim.z = 1;
    configuration.gridDim = dim3(static_cast<unsigned>(clusters * blocks));
    configuration.blockDim = dim3(static_cast<unsigned>(threads));
    configuration.stream = stream;
    configuration.attrs = &attribute;
    configuration.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
};

// The number of clusters that run at once. Lets the kernel have clusters of this size.
int count_active(const ClusterKernel& kernel, int64_t blocks, int32_t device_index) {
  constexpr int kPortableBlocks = 8;  // every device with clusters runs these
  if (!compiled_for(kernel.function, 90, device_index)) return 0;
  const DeviceScope scope(device_index);
  const ClusterLaunch launch(kernel.threads, 1, blocks, nullptr);
  const bool allowed =
      blocks <= kPortableBlocks ||
      cudaFuncSetAttribute(kernel.function, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) ==
          cudaSuccess;
  int active = 0;
  const auto error =
      cudaOccupancyMaxActiveClusters(&active, kernel.function, &launch.configuration);
  if (allowed && error == cudaSuccess) return active;
  cudaGetLastError();  // this device has no clusters of this size
  return 0;
}

}  // namespace

ClusterShape shape_cluster(const LayerProblem& problem) {
  const lltm_layer_sizes& sizes = problem.sizes;
  const int32_t device_index = problem.device_index;
  const int64_t blocks = divide_up(sizes.state_size, kClusterUnits);
  const ClusterKernel kernel = kernel_for(problem.dtype, problem.backward, blocks);
  if (blocks == 0 || sizes.batch_size == 0 || kernel.function == nullptr ||
      sizes.steps > 0x7fffffff || sizes.batch_size > 0x7fffffff / blocks) {
    return {};
  }
  const int64_t active = remembered(kernel.function, blocks, device_index,
                                    [&] { return count_active(kernel, blocks, device_index); });
  if (active == 0) return {};
  // The number of clusters that share no multiprocessor. It is at least one: on a small part of a
  // device, the blocks of one cluster may share multiprocessors.
  const int64_t multiprocessors = device_fact(cudaDevAttrMultiProcessorCount, device_index);
  const int64_t apart = std::min(active, std::max(multiprocessors / blocks, int64_t{1}));
  // Each row makes a step longer, and a second wave of clusters doubles the time. Two forward
  // blocks share a multiprocessor well. In 16 bits, `registers` is quicker once clusters have two
  // rows or share multiprocessors.
  const int64_t rows = std::min<int64_t>(divide_up(sizes.batch_size, apart), kernel.max_rows);
  const int64_t clusters = divide_up(sizes.batch_size, rows);
  const bool crowded = rows > 1 || clusters > apart;
  const bool outdone = crowded && blocks <= 4 && problem.dtype != LLTM_FLOAT32;
  const bool quick =
      !outdone && clusters <= active && clusters <= apart * (problem.backward ? 1 : 2);
  return {kernel.function, kernel.threads, clusters, blocks, static_cast<int>(rows), quick};
}

template <typename Arguments>
static const char* run_cluster(lltm_dtype dtype, const Arguments& arguments,
                               const lltm_execution& execution) {
  return launch_on(execution, kLayerName<Arguments>, dtype, [&](auto, cudaStream_t stream) {
    const ClusterShape shape =
        shape_cluster({dtype, kIsBackward<Arguments>, arguments.sizes, execution.device_index});
    Arguments copy = arguments;
    int rows = shape.rows;
    void* parameters[] = {&copy, &rows};
    const ClusterLaunch launch(shape.threads, shape.clusters, shape.blocks, stream);
    cudaLaunchKernelExC(&launch.configuration, shape.kernel, parameters);
  });
}

const LayerFamily cluster_family = {
    "cluster", [](const LayerProblem& problem) { return shape_cluster(problem).kernel != nullptr; },
    run_cluster<lltm_layer_forward_arguments>, run_cluster<lltm_layer_backward_arguments>,
    "lltm: LLTM_LAYER_KERNELS=cluster cannot run this problem on this device: it needs compute "
    "capability 9.0 and kernels built for it, float32, float16 or bfloat16, and a state of at "
    "most 512, or less where the device has no clusters of 16 blocks; unset it"};

}  // namespace lltm
