// Chooses the family that runs a whole sequence quickest on a CUDA device.
#include <cstdlib>
#include <cstring>

#include "../../layer_parts.h"
#include "../common/launch.h"
#include "../common/measured_bounds.h"
#include "layer.h"

namespace lltm {
namespace {

enum Family : int32_t { kGemm = 0, kRegisters = 1, kGrid = 2, kCluster = 3 };

const LayerFamily gemm_family = {"gemm", [](const LayerProblem&) { return true; }, nullptr, nullptr,
                                 nullptr};
const LayerFamily* const kFamilies[] = {&gemm_family, &registers_family, &grid_family,
                                        &cluster_family};

// Returns the problem with S and I padded to multiples of 64 bytes, for cuBLAS and `grid`, which
// read vectors. In float64, or if S and I are multiples of 8 elements, returns it unchanged.
LayerProblem padded(LayerProblem problem) {
  constexpr int64_t kAligned = 8;
  lltm_layer_sizes& sizes = problem.sizes;
  const int64_t inputs = sizes.weight_stride - sizes.state_size;
  const bool aligned = sizes.state_size % kAligned == 0 && inputs % kAligned == 0;
  if (aligned || problem.dtype == LLTM_FLOAT64) return problem;
  const int64_t whole = 64 / lltm_dtype_bytes(problem.dtype);
  sizes.state_size = divide_up(sizes.state_size, whole) * whole;
  sizes.weight_stride = sizes.state_size + divide_up(inputs, whole) * whole;
  return problem;
}

bool has_few_steps(const LayerProblem& problem) { return problem.sizes.steps <= bounds::kFewSteps; }

// Whether padding saves more time than the copies take. `family` runs the padded problem. The
// families `registers` and `cluster` need no multiples of 8, so with them padding speeds up only
// the products over all steps. Unpadded rows of whole vectors cost the loop a few percent.
bool is_worth_padding(Family family, const LayerProblem& problem) {
  const lltm_layer_sizes& sizes = problem.sizes;
  const bool vectors =
      problem.dtype == LLTM_FLOAT32 && sizes.state_size % 4 == 0 && sizes.weight_stride % 4 == 0;
  if (family == kGemm && vectors && has_few_steps(problem)) return false;
  const lltm_layer_sizes larger = padded(problem).sizes;
  if (larger.state_size == sizes.state_size && larger.weight_stride == sizes.weight_stride) {
    return false;
  }
  if (family != kRegisters && family != kCluster) return true;
  return 3.0 * sizes.state_size * (sizes.weight_stride - sizes.state_size) * sizes.batch_size *
             sizes.steps >
         bounds::kPaddedWork;
}

// The most chunks of rows with which `grid` and streamed weights are quicker than the loop. Each
// chunk reads the streamed weights again, which a larger product need not. While the host is not
// late, three chunks take up to 1.4 times as long as a step of the loop, four 1.9 times.
int64_t most_chunks(const LayerProblem& problem, const GridShape& grid, Arithmetic arithmetic) {
  if (grid.exceeds_l2) return bounds::kGridChunksBeyondL2.of(arithmetic);
  const bool host_is_late = !problem.backward && has_few_steps(problem) &&
                            problem.sizes.state_size <= bounds::kGridSmallState;
  return (host_is_late ? bounds::kGridChunksOfFewSteps : bounds::kGridChunks).of(arithmetic);
}

// The quickest family; common/measured_bounds.h has the bounds. `cluster` waits least in a step,
// but a block repeats the work of a step for each of its batch rows. `registers` needs no exchange
// between blocks. The time of a step of `grid` grows with the batch rows of a block times the state
// and, if weights are streamed, with the number of chunks. The time of a step of `gemm` is that of
// launching a GEMM and a pointwise kernel or, for large states, that of reading the weights again.
Family choose(const LayerProblem& problem) {
  const lltm_layer_sizes& sizes = problem.sizes;
  if (sizes.state_size > bounds::kRegistersQuickerState && shape_cluster(problem).quick) {
    return kCluster;
  }
  if (registers_family.fits(problem)) return kRegisters;
  const GridShape grid = shape_grid(problem);
  if (grid.kernel == nullptr) return kGemm;
  const Arithmetic arithmetic = arithmetic_of(problem.dtype, sizes.allow_tf32 != 0);
  const auto& most_cells = problem.backward ? bounds::kGridBackward : bounds::kGridForward;
  const bool few_rows = grid.slice_rows * sizes.state_size <= most_cells.of(arithmetic);
  if (grid.chunks == 0) return few_rows ? kGrid : kGemm;
  // The streamed weights are copied first, which takes as long as some steps of the loop.
  if (sizes.steps < bounds::kGridLeastSteps) return kGemm;
  const bool few_chunks = grid.chunks <= most_chunks(problem, grid, arithmetic);
  return few_chunks || (arithmetic == Arithmetic::kExact && few_rows) ? kGrid : kGemm;
}

// Sets `family` to the family of this name, the value of LLTM_LAYER_KERNELS. Returns an error if no
// family has this name, or if the family cannot run the problem. For an `empty` problem, which
// needs no family, only checks the name.
const char* name_family(const char* name, bool empty, const LayerProblem& problem, Family* family) {
  for (int32_t number = kGemm; number <= kCluster; ++number) {
    const LayerFamily& candidate = *kFamilies[number];
    if (std::strcmp(name, candidate.name) != 0) continue;
    if (empty) return nullptr;
    *family = static_cast<Family>(number);
    return candidate.fits(problem) ? nullptr : candidate.refusal;
  }
  return "lltm: LLTM_LAYER_KERNELS names no family of CUDA kernels; set it to gemm, registers, "
         "grid or cluster, or unset it";
}

}  // namespace

const char* cuda_layer_plan(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes* sizes,
                            const lltm_execution* execution, lltm_layer_plan* plan) {
  *plan = {};
  const bool backward = pass == LLTM_BACKWARD;
  if (backward) {
    set_part_starts(sizes->steps, plan);
  } else {
    plan->product_adds_bias = 1;  // cuBLAS adds the bias at no cost
  }
  const LayerProblem problem{dtype, backward, *sizes, execution->device_index};
  const LayerProblem larger = padded(problem);
  const bool empty = sizes->batch_size == 0 || sizes->state_size == 0 || sizes->steps == 0;
  const char* const forced = std::getenv("LLTM_LAYER_KERNELS");
  Family family = kGemm;
  if (forced != nullptr && *forced != '\0') {
    const char* const error = name_family(forced, empty, larger, &family);
    if (error != nullptr) return error;
  } else if (!empty) {
    family = choose(larger);
  }
  if (!empty && is_worth_padding(family, problem)) {
    plan->padded_state = larger.sizes.state_size;
    plan->padded_input = larger.sizes.weight_stride - larger.sizes.state_size;
    return nullptr;
  }
  plan->family = family;
  if (family == kGrid) {
    plan->workspace_bytes = shape_grid(problem).stream_bytes;
    // There is also room for a copy of initial_h, if its address is not a multiple of 16.
    const int64_t state_bytes = sizes->batch_size * sizes->state_size * lltm_dtype_bytes(dtype);
    if (!backward) plan->workspace_bytes += state_bytes;
  }
  return nullptr;
}

const char* cuda_layer_forward(lltm_dtype dtype, int32_t family,
                               const lltm_layer_forward_arguments* arguments,
                               const lltm_execution* execution) {
  return kFamilies[family]->forward(dtype, *arguments, *execution);
}

const char* cuda_layer_backward(lltm_dtype dtype, int32_t family,
                                const lltm_layer_backward_arguments* arguments,
                                const lltm_execution* execution) {
  return kFamilies[family]->backward(dtype, *arguments, *execution);
}

}  // namespace lltm
