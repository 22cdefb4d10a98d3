// The layer's functions in the CUDA kernel table, and the families among which a plan chooses.
#pragma once

#include <type_traits>

#include "../../lltm_kernels.h"

namespace lltm {

const char* cuda_layer_plan(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes* sizes,
                            const lltm_execution* execution, lltm_layer_plan* plan);
const char* cuda_layer_forward(lltm_dtype dtype, int32_t family,
                               const lltm_layer_forward_arguments* arguments,
                               const lltm_execution* execution);
const char* cuda_layer_backward(lltm_dtype dtype, int32_t family,
                                const lltm_layer_backward_arguments* arguments,
                                const lltm_execution* execution);
const char* cuda_layer_cells(lltm_dtype dtype, const lltm_layer_cells_arguments* arguments,
                             const lltm_execution* execution);

// One pass of a layer. From these facts, a family chooses its kernel, or refuses the problem.
struct LayerProblem {
  lltm_dtype dtype;
  bool backward;
  lltm_layer_sizes sizes;
  int32_t device_index;
};

// `Arguments`: lltm_layer_forward_arguments or lltm_layer_backward_arguments.
template <typename Arguments>
constexpr bool kIsBackward = std::is_same_v<Arguments, lltm_layer_backward_arguments>;
template <typename Arguments>
constexpr const char* kLayerName = kIsBackward<Arguments> ? "layer_backward" : "layer_forward";

// A way to run layers. The families declared below are not const, because clang would compile
// constants for the device too, where the functions are missing.
struct LayerFamily {
  const char* name;
  bool (*fits)(const LayerProblem& problem);
  // These two functions run a problem that fits; they are NULL for gemm, which the caller runs.
  const char* (*forward)(lltm_dtype, const lltm_layer_forward_arguments&, const lltm_execution&);
  const char* (*backward)(lltm_dtype, const lltm_layer_backward_arguments&, const lltm_execution&);
  const char* refusal;  // the error if a problem does not fit
};

// layer_registers.cu: one block runs a few rows of the batch through the whole sequence. The
// recurrent weights, as float32, must fit the registers of one multiprocessor.
extern LayerFamily registers_family;

// layer_cluster.cu: the recurrent weights are spread over the registers of a thread-block cluster.
// `kernel` is NULL if the problem does not fit.
struct ClusterShape {
  const void* kernel = nullptr;
  int threads = 0;
  int64_t clusters = 0;
  int64_t blocks = 0;  // per cluster; each block has its own units of the state
  int rows = 0;        // batch rows per cluster
  bool quick = false;  // no family is expected to be quicker, except for very small states
};
ClusterShape shape_cluster(const LayerProblem& problem);
extern LayerFamily cluster_family;

// layer_grid.cu: the recurrent weights are spread over the registers and shared memory of many
// multiprocessors, and what does not fit is in the workspace. `kernel` is NULL if no kernel fits or
// the device cannot hold all blocks at once.
struct GridShape {
  const void* kernel = nullptr;
  int threads = 0;
  int64_t shared_bytes = 0;
  int unit_blocks = 0;  // blocks that share a slice of the batch, each with its units of the state
  int slices = 0;       // slices of the batch
  int slice_rows = 0;   // batch rows per slice
  // Of StreamedEngine alone: how often a step reads the streamed weights, or 0 if all weights fit
  // on the chip, and whether L2 may be too small for them; then what the kernel needs to know (see
  // GridMemory) and, of the workspace, the bytes for weights.
  int chunks = 0;
  bool exceeds_l2 = false;
  int resident = 0;
  int kept = 0;
  int64_t stream_bytes = 0;
};
GridShape shape_grid(const LayerProblem& problem);
extern LayerFamily grid_family;

}  // namespace lltm
