// Whole sequences on a CUDA device: which family runs a problem quickest.
#include <cstdlib>
#include <cstring>

#include "../layer_parts.h"
#include "layer.h"
#include "layer_cluster.h"
#include "layer_grid.h"
#include "layer_registers.h"

namespace lltm {
namespace {

enum Family : int32_t { kGemm = 0, kRegisters = 1, kGrid = 2, kCluster = 3 };

struct Problem {
  lltm_dtype dtype;
  bool backward;
  const lltm_layer_sizes& sizes;
  int32_t device_index;
};

// Puts the family into the plan if it can run the problem.
const char* try_family(Family family, const Problem& problem, lltm_layer_plan* plan) {
  const auto& [dtype, backward, sizes, device_index] = problem;
  bool fits = false;
  const char* error = nullptr;
  if (family == kRegisters) fits = registers_fit(dtype, sizes);
  if (family == kCluster) {
    ClusterShape shape;
    error = shape_cluster(dtype, backward, sizes, device_index, &shape);
    fits = shape.blocks != 0;
  }
  if (family == kGrid) {
    GridShape shape;
    error = shape_grid(dtype, sizes, device_index, &shape);
    if (error == nullptr) error = check_grid(dtype, backward, sizes, device_index, shape, &fits);
  }
  if (error != nullptr || !fits) return error;
  plan->family = family;
  if (family == kGrid) plan->workspace_bytes = grid_workspace(dtype, backward, sizes);
  return nullptr;
}

// The quickest by measurement, on an H200; benchmarks/NOTES.md has the numbers. A cluster's step
// waits the least, but each row of the batch makes every block of the cluster repeat all of a
// step's work; small states need no exchange at all. A step of the grid takes longer, the more work
// a block has: its rows of the batch times the state that it reads for each. A step of gemm costs
// about the same over many sizes: a GEMM and a pointwise kernel, bound by their launches or, for
// large states, by reading the weights again.
const char* choose(const Problem& problem, Family* quickest) {
  const auto& [dtype, backward, sizes, device_index] = problem;
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
  *quickest = shape.slice_rows * sizes.state_size <= most ? kGrid : kGemm;
  return nullptr;
}

struct NamedFamily {
  const char* name;
  Family family;
  const char* refusal;
};

constexpr NamedFamily kFamilies[] = {
    {"gemm", kGemm, nullptr},
    {"registers", kRegisters,
     "lltm: LLTM_LAYER_KERNELS=registers cannot run this problem: it needs float32, float16 or "
     "bfloat16 and a state of at most 128; unset it"},
    {"grid", kGrid,
     "lltm: LLTM_LAYER_KERNELS=grid cannot run this problem on this device: it needs compute "
     "capability 8.0 and kernels built for it, float32, float16 or bfloat16, a state that is a "
     "multiple of 8, and weights that fit the registers of all multiprocessors; unset it"},
    {"cluster", kCluster,
     "lltm: LLTM_LAYER_KERNELS=cluster cannot run this problem on this device: it needs compute "
     "capability 9.0 and kernels built for it, float32, float16 or bfloat16, and a state of at "
     "most 512, or less where the device has no clusters of 16 blocks; unset it"},
};

const char* plan_forced(const char* name, bool empty, const Problem& problem,
                        lltm_layer_plan* plan) {
  for (const NamedFamily& known : kFamilies) {
    if (std::strcmp(name, known.name) != 0) continue;
    if (known.family == kGemm || empty) return nullptr;
    const char* const error = try_family(known.family, problem, plan);
    return error != nullptr || plan->family == known.family ? error : known.refusal;
  }
  return "lltm: LLTM_LAYER_KERNELS names no family of CUDA kernels; set it to gemm, registers, "
         "grid or cluster, or unset it";
}

// The same entry of every family, for forward or for backward.
template <typename Arguments>
struct Entries {
  const char* (*registers)(lltm_dtype, const Arguments&, const lltm_execution&);
  const char* (*cluster)(lltm_dtype, const Arguments&, const lltm_execution&, const ClusterShape&);
  const char* (*grid)(lltm_dtype, const Arguments&, const lltm_execution&, const GridShape&);
};

template <typename Arguments>
const char* run(int32_t family, const Problem& problem, const Arguments& arguments,
                const lltm_execution& execution, const Entries<Arguments>& entries) {
  const auto& [dtype, backward, sizes, device_index] = problem;
  if (family == kRegisters) return entries.registers(dtype, arguments, execution);
  if (family == kCluster) {
    ClusterShape shape;
    const char* const error = shape_cluster(dtype, backward, sizes, device_index, &shape);
    return error != nullptr ? error : entries.cluster(dtype, arguments, execution, shape);
  }
  if (family == kGrid) {
    GridShape shape;
    const char* const error = shape_grid(dtype, sizes, device_index, &shape);
    return error != nullptr ? error : entries.grid(dtype, arguments, execution, shape);
  }
  return "lltm CUDA kernels: no such family of layer kernels";
}

}  // namespace

const char* cuda_layer_plan(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes* sizes,
                            const lltm_execution* execution, lltm_layer_plan* plan) {
  *plan = {};
  const bool backward = pass == LLTM_BACKWARD;
  if (backward) {
    set_part_starts(sizes->steps, plan);
  } else {
    plan->product_adds_bias = 1;  // cuBLAS adds it for nothing
  }
  const Problem problem{dtype, backward, *sizes, execution->device_index};
  const bool empty = sizes->batch_size == 0 || sizes->state_size == 0 || sizes->steps == 0;
  const char* const forced = std::getenv("LLTM_LAYER_KERNELS");
  if (forced != nullptr && *forced != '\0') return plan_forced(forced, empty, problem, plan);
  if (empty) return nullptr;
  Family family;
  const char* const error = choose(problem, &family);
  return error != nullptr ? error : try_family(family, problem, plan);
}

const char* cuda_layer_forward(lltm_dtype dtype, int32_t family,
                               const lltm_layer_forward_arguments* arguments,
                               const lltm_execution* execution) {
  const Problem problem{dtype, false, arguments->sizes, execution->device_index};
  return run(family, problem, *arguments, *execution,
             {registers_forward, cluster_forward, grid_forward});
}

const char* cuda_layer_backward(lltm_dtype dtype, int32_t family,
                                const lltm_layer_backward_arguments* arguments,
                                const lltm_execution* execution) {
  const Problem problem{dtype, true, arguments->sizes, execution->device_index};
  return run(family, problem, *arguments, *execution,
             {registers_backward, cluster_backward, grid_backward});
}

}  // namespace lltm
