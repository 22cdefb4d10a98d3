// Whole sequences on a CUDA device: which persistent kernels serve a problem.
#include <cstdlib>
#include <cstring>

#include "layer.h"
#include "layer_cluster.h"
#include "layer_grid.h"
#include "layer_registers.h"

namespace lltm {
namespace {

enum Family : int32_t { kFallback = 0, kRegisters = 1, kGrid = 2, kCluster = 3 };

void plan_for(Family family, int64_t workspace_bytes, lltm_layer_plan* plan) {
  *plan = lltm_layer_plan{};
  plan->family = family;
  plan->workspace_bytes = workspace_bytes;
}

const char* plan_of(Family family, lltm_dtype dtype, bool backward, const lltm_layer_sizes& sizes,
                    int32_t device_index, lltm_layer_plan* plan) {
  plan_for(kFallback, 0, plan);
  if (family == kRegisters && registers_fit(dtype, sizes)) plan_for(kRegisters, 0, plan);
  if (family == kCluster) {
    ClusterShape shape;
    const char* const error = shape_cluster(dtype, backward, sizes, device_index, &shape);
    if (error != nullptr) return error;
    if (shape.blocks != 0) plan_for(kCluster, 0, plan);
  }
  if (family == kGrid) {
    GridShape shape;
    bool fits = false;
    const char* error = shape_grid(dtype, sizes, device_index, &shape);
    if (error == nullptr) {
      error = check_grid(dtype, backward, sizes, device_index, shape, &fits);
    }
    if (error != nullptr) return error;
    if (fits) plan_for(kGrid, grid_workspace(dtype, backward, sizes), plan);
  }
  return nullptr;
}

// The quickest by measurement, on an H200; benchmarks/NOTES.md has the numbers. A cluster's step
// waits the least, but every row of the batch costs each of its blocks all of a step's work again,
// and small states need no exchange at all. A step of the grid takes the longer, the more a block
// has to do for it: its rows of the batch times the state that it reads for each. The loop's steps
// cost the same over a wide range: a GEMM and a pointwise kernel, bound by their launches or, for
// large states, by reading the weights again.
const char* choose(lltm_dtype dtype, bool backward, const lltm_layer_sizes& sizes,
                   int32_t device_index, Family* quickest) {
  constexpr int64_t kAlone = 64;  // states up to here are quicker on one multiprocessor
  if (sizes.state_size > kAlone) {
    ClusterShape shape;
    const char* const error = shape_cluster(dtype, backward, sizes, device_index, &shape);
    if (error != nullptr) return error;
    *quickest = kCluster;
    if (shape.quick) return nullptr;
  }
  *quickest = kRegisters;
  if (registers_fit(dtype, sizes)) return nullptr;
  GridShape shape;
  if (const char* const error = shape_grid(dtype, sizes, device_index, &shape)) return error;
  const bool exact = dtype == LLTM_FLOAT32 && sizes.allow_tf32 == 0;
  const bool half = dtype != LLTM_FLOAT32;
  const int64_t most = exact      ? (backward ? 24576 : 32768)
                       : backward ? 65536
                       : half     ? 131072
                                  : 98304;
  *quickest = shape.slice_rows * sizes.state_size <= most ? kGrid : kFallback;
  return nullptr;
}

}  // namespace

const char* cuda_layer_plan(lltm_dtype dtype, int32_t backward, const lltm_layer_sizes* sizes,
                            const lltm_execution* execution, lltm_layer_plan* plan) {
  plan_for(kFallback, 0, plan);
  const struct {
    const char* name;
    Family family;
  } families[] = {
      {"fallback", kFallback}, {"registers", kRegisters}, {"grid", kGrid}, {"cluster", kCluster}};
  const char* const wanted = std::getenv("LLTM_LAYER_KERNELS");
  const bool empty = sizes->batch_size == 0 || sizes->state_size == 0 || sizes->steps == 0;
  if (wanted == nullptr || *wanted == '\0') {
    if (empty) return nullptr;
    Family family;
    const char* const error =
        choose(dtype, backward != 0, *sizes, execution->device_index, &family);
    if (error != nullptr) return error;
    return plan_of(family, dtype, backward != 0, *sizes, execution->device_index, plan);
  }
  for (const auto& known : families) {
    if (std::strcmp(wanted, known.name) != 0) continue;
    if (known.family == kFallback || empty) return nullptr;
    const char* const error =
        plan_of(known.family, dtype, backward != 0, *sizes, execution->device_index, plan);
    if (error != nullptr || plan->family != kFallback) return error;
    switch (known.family) {
      case kRegisters:
        return "lltm: LLTM_LAYER_KERNELS=registers cannot run this problem: it "
               "needs float32, "
               "float16 or bfloat16 and a state of at most 128; unset it";
      case kCluster:
        return "lltm: LLTM_LAYER_KERNELS=cluster cannot run this problem on this "
               "device: it needs "
               "compute capability 9.0 and kernels built for it, float32, "
               "float16 or bfloat16, and "
               "a state of at most 512, or less where the device has no clusters "
               "of 16 blocks; "
               "unset it";
      default:
        return "lltm: LLTM_LAYER_KERNELS=grid cannot run this problem on this "
               "device: it needs "
               "compute capability 8.0 and kernels built for it, float32, "
               "float16 or bfloat16, a state that is a multiple "
               "of 8, and weights that fit the registers of all multiprocessors; "
               "unset it";
    }
  }
  return "lltm: LLTM_LAYER_KERNELS names no family of CUDA kernels; set it to "
         "fallback, registers, "
         "grid or cluster, or unset it";
}

const char* cuda_layer_forward(lltm_dtype dtype, int32_t family,
                               const lltm_layer_forward_arguments* arguments,
                               const lltm_execution* execution) {
  if (family == kRegisters) return registers_forward(dtype, *arguments, *execution);
  if (family == kCluster) {
    ClusterShape shape;
    const char* const error =
        shape_cluster(dtype, false, arguments->sizes, execution->device_index, &shape);
    return error != nullptr ? error : cluster_forward(dtype, *arguments, *execution, shape);
  }
  if (family == kGrid) {
    GridShape shape;
    const char* const error = shape_grid(dtype, arguments->sizes, execution->device_index, &shape);
    return error != nullptr ? error : grid_forward(dtype, *arguments, *execution, shape);
  }
  return "lltm CUDA kernel layer_forward: no such family";
}

const char* cuda_layer_backward(lltm_dtype dtype, int32_t family,
                                const lltm_layer_backward_arguments* arguments,
                                const lltm_execution* execution) {
  if (family == kRegisters) return registers_backward(dtype, *arguments, *execution);
  if (family == kCluster) {
    ClusterShape shape;
    const char* const error =
        shape_cluster(dtype, true, arguments->sizes, execution->device_index, &shape);
    return error != nullptr ? error : cluster_backward(dtype, *arguments, *execution, shape);
  }
  if (family == kGrid) {
    GridShape shape;
    const char* const error = shape_grid(dtype, arguments->sizes, execution->device_index, &shape);
    return error != nullptr ? error : grid_backward(dtype, *arguments, *execution, shape);
  }
  return "lltm CUDA kernel layer_backward: no such family";
}

}  // namespace lltm
