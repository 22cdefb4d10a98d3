// The host side of the family `cluster`, which chooses a kernel and the number of clusters.
#include <algorithm>

#include "../common/launch.h"
#include "layer.h"
#include "layer_cluster_kernels.h"

namespace lltm {
namespace {

template <typename T, typename L, int kRows>
void take_forward(ClusterShape* shape) {
  shape->kernel = reinterpret_cast<const void*>(cluster_forward_kernel<T, L, kRows>);
  shape->threads = L::kThreads;
  shape->rows = kRows;
}

template <typename T, typename L, int kRows>
void take_backward(ClusterShape* shape) {
  // Whole warps make the parts of dh for all units. These or additional warps then turn dh of the
  // block's own units into dz.
  const int products = static_cast<int>(divide_up(shape->blocks, L::kWidth));
  const int warps = L::kFinishers == 0 && products < kRows ? kRows : products + L::kFinishers;
  shape->kernel = reinterpret_cast<const void*>(cluster_backward_kernel<T, L, kRows>);
  shape->threads = warps * 32;
  shape->rows = kRows;
}

// If there is a kernel for the shape's number of blocks, sets the quickest one, its threads, and
// the most rows that it takes. Few lanes per unit are quicker, since each doubling of lanes costs a
// shuffle. Two rows per cluster are quicker than one if registers can hold the sums of both.
template <typename T>
void find_kernel(bool backward, ClusterShape* shape) {
  const int64_t blocks = shape->blocks;
  if (blocks > 16) return;
  if (backward && blocks <= 8) return take_backward<T, ClusterBackward<8, 1, 2>, 2>(shape);
  if (backward) return take_backward<T, ClusterBackward<16, 2, 0>, 1>(shape);
  if (blocks <= 4) return take_forward<T, ClusterForward<128, 8, 4, 2>, 1>(shape);
  if (blocks <= 8) return take_forward<T, ClusterForward<256, 16, 4, 2>, 2>(shape);
  take_forward<T, ClusterForward<256, 16, 8, 2>, 1>(shape);
}

// The configuration of a launch, and the attribute to which the configuration points.
struct ClusterLaunch {
  cudaLaunchAttribute attribute = {};
  cudaLaunchConfig_t configuration = {};

  ClusterLaunch(const ClusterShape& shape, int64_t clusters, cudaStream_t stream) {
    attribute.id = cudaLaunchAttributeClusterDimension;
    attribute.val.clusterDim = {static_cast<unsigned>(shape.blocks), 1, 1};
    configuration.gridDim = grid_of(clusters * shape.blocks);
    configuration.blockDim = dim3(static_cast<unsigned>(shape.threads));
    configuration.stream = stream;
    configuration.attrs = &attribute;
    configuration.numAttrs = 1;
  }
  ClusterLaunch(const ClusterLaunch&) = delete;
};

// Allows the kernel clusters of shape.blocks blocks. Returns how many of them can run at once.
int count_active(const ClusterShape& shape, int32_t device_index) {
  constexpr int kPortableBlocks = 8;  // every device with clusters allows 8 blocks
  if (!compiled_for(shape.kernel, 90, device_index)) return 0;
  const DeviceScope scope(device_index);
  const ClusterLaunch launch(shape, 1, nullptr);
  const bool allowed =
      shape.blocks <= kPortableBlocks ||
      cudaFuncSetAttribute(shape.kernel, cudaFuncAttributeNonPortableClusterSizeAllowed, 1) ==
          cudaSuccess;
  int active = 0;
  const auto error = cudaOccupancyMaxActiveClusters(&active, shape.kernel, &launch.configuration);
  if (allowed && error == cudaSuccess) return active;
  cudaGetLastError();  // clear the error: this device has no clusters of this size
  return 0;
}

}  // namespace

ClusterShape shape_cluster(const LayerProblem& problem) {
  const lltm_layer_sizes& sizes = problem.sizes;
  const int32_t device_index = problem.device_index;
  const int64_t blocks = divide_up(sizes.state_size, kClusterUnits);
  if (blocks == 0 || sizes.batch_size == 0 || sizes.steps > 0x7fffffff ||
      sizes.batch_size > 0x7fffffff / blocks) {
    return {};
  }
  ClusterShape shape;
  shape.blocks = blocks;
  dispatch_floating(problem.dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if constexpr (sizeof(T) <= 4) find_kernel<T>(problem.backward, &shape);
    return nullptr;
  });
  if (shape.kernel == nullptr) return {};
  const int64_t active = remembered(shape.kernel, blocks, device_index,
                                    [&] { return count_active(shape, device_index); });
  if (active == 0) return {};
  // The number of clusters that can run without sharing a multiprocessor, but at least one: on a
  // small MIG part of a device, even the blocks of one cluster may share multiprocessors.
  const int64_t multiprocessors = device_fact(cudaDevAttrMultiProcessorCount, device_index);
  const int64_t apart = std::min(active, std::max(multiprocessors / blocks, int64_t{1}));
  // Each row makes a step longer, so clusters have as few rows as one wave allows. A second wave
  // doubles the time, but two forward blocks share a multiprocessor well. In 16 bits,
  // `registers` is quicker than clusters of up to four blocks if these clusters are `crowded`.
  shape.rows = static_cast<int>(std::min<int64_t>(divide_up(sizes.batch_size, apart), shape.rows));
  shape.clusters = divide_up(sizes.batch_size, shape.rows);
  const bool crowded = shape.rows > 1 || shape.clusters > apart;
  const bool outdone = crowded && blocks <= 4 && problem.dtype != LLTM_FLOAT32;
  shape.quick =
      !outdone && shape.clusters <= active && shape.clusters <= apart * (problem.backward ? 1 : 2);
  return shape;
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
    const ClusterLaunch launch(shape, shape.clusters, stream);
    cudaLaunchKernelExC(&launch.configuration, shape.kernel, parameters);
  });
}

LayerFamily cluster_family = {
    "cluster", [](const LayerProblem& problem) { return shape_cluster(problem).kernel != nullptr; },
    run_cluster<lltm_layer_forward_arguments>, run_cluster<lltm_layer_backward_arguments>,
    "lltm: LLTM_LAYER_KERNELS=cluster cannot run this problem on this device: it needs compute "
    "capability 9.0 or later and kernels built for it, float32, float16 or bfloat16, and a state "
    "of at most 512, or less where the device has no clusters of 16 blocks; unset it"};

}  // namespace lltm
