// Decides how a step runs on a CUDA device. Our kernels run the whole step if this is expected to
// be quicker than cuBLAS, which takes more launches and more of the host's time. Otherwise cuBLAS
// makes the products. The limits are those of common/measured_bounds.h.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "../common/launch.h"
#include "../common/measured_bounds.h"
#include "../common/product.h"
#include "step.h"

namespace lltm {
namespace {

constexpr int32_t kNeedsDataGradient = LLTM_NEEDS_INPUT | LLTM_NEEDS_OLD_H;  // d_gates W

// The step that a plan is for.
class StepProblem {
 public:
  const lltm_dtype dtype;
  const lltm_pass pass;
  const int32_t needs;
  const lltm_execution& execution;

  StepProblem(lltm_dtype of_dtype, lltm_pass of_pass, int32_t of_needs,
              const lltm_step_sizes& of_sizes, const lltm_execution& of_execution)
      : dtype(of_dtype),
        pass(of_pass),
        needs(of_needs),
        execution(of_execution),
        sizes_(of_sizes),
        work_(3 * sizes_.batch_size * sizes_.state_size * depth()) {
    if (is_single()) sizes_.allow_tf32 = 0;
  }

  // For a single step, `allow_tf32` is set once allows_tf32 was called.
  const lltm_step_sizes& sizes() const { return sizes_; }
  int64_t depth() const { return sizes_.state_size + sizes_.input_size; }
  int64_t work() const { return work_; }  // multiplications
  // A step without an input counts as part of a sequence, whose caller calls `product` itself.
  bool is_single() const { return sizes_.input_size != 0; }

  // Whether tensor cores may round the products to tf32; false unless `dtype` is float32. In a
  // single step this is what torch allows. Asking torch takes microseconds, so it is asked once.
  bool allows_tf32() {
    if (dtype != LLTM_FLOAT32) return false;
    const bool asks = is_single() && !has_asked_;
    has_asked_ = true;
    if (asks) sizes_.allow_tf32 = torch_allows_tf32(execution);
    if (device_fact(cudaDevAttrComputeCapabilityMajor, execution.device_index) < 8) return false;
    constexpr int64_t kAligned = 4;  // elements; see is_worth_padding in layer/layer_plan.cu
    const bool aligned = sizes_.state_size % kAligned == 0 && sizes_.weight_stride % kAligned == 0;
    return sizes_.allow_tf32 != 0 && (is_single() || aligned);
  }

 private:
  lltm_step_sizes sizes_;
  int64_t work_;
  bool has_asked_ = false;
};

// The estimated times of a forward step.
struct ForwardTimes {
  double rows;             // the whole step without tensor cores, in tiles of `tile` rows
  double tensor;           // the whole step with tensor cores
  double cublas;           // on the device
  double cublas_and_host;  // what a whole step must not take: `cublas`, and the host's launches

  ForwardTimes(lltm_dtype dtype, const lltm_step_sizes& sizes, bool tf32, int64_t tile) {
    const int64_t bytes = lltm_dtype_bytes(dtype);
    const ForwardCosts costs(bytes, bytes > 2 && !tf32);
    const auto tiles = [](int64_t size, int64_t each) {
      return static_cast<double>(divide_up(size, each));
    };
    const double depth = static_cast<double>(sizes.state_size + sizes.input_size);
    const double millions = 3e-6 * sizes.state_size * depth;  // multiplications for a row
    // The time `rows` is for operands that are not aligned to vectors: single elements are read.
    const double work = tiles(sizes.batch_size, tile) * tile * millions;
    rows = costs.launch + (tile == 4 ? std::max(depth * costs.rows4_depth, work * costs.rows4_work)
                                     : std::max(depth * costs.rows_depth, work * costs.rows_work));
    // A block reads the depth in slices of 128 bytes, and waits for each slice.
    const double blocks = tiles(sizes.state_size, 16) * tiles(sizes.batch_size, 64);
    const double slice = costs.tensor_slice + costs.tensor_block * blocks;
    tensor = costs.launch + std::ceil(depth * bytes / 128) * slice;
    cublas = costs.cublas + sizes.batch_size * millions * costs.cublas_work +
             bytes * millions * costs.cublas_megabyte;
    cublas_and_host = sizes.input_size == 0
                          ? cublas + costs.more_launches_in_loop
                          : (cublas + costs.more_launches) / costs.whole_step_error;
  }
};

int32_t rows_family(const lltm_step_sizes& sizes) {
  const int64_t rows = sizes.batch_size;
  const bool few =
      rows <= bounds::kMostRowsOfRows16 || rows * sizes.state_size <= bounds::kMostOutputsOfRows16;
  return few ? kRows16 : kRows64;
}

// The most multiplications at which our kernels without tensor cores are quicker than cuBLAS.
int64_t most_forward_work(const lltm_step_sizes& sizes, Arithmetic arithmetic) {
  const bool in_loop = sizes.input_size == 0;
  if (in_loop && arithmetic == Arithmetic::kTf32) return bounds::kTf32LeastWork;
  const bool few_rows = sizes.batch_size <= bounds::kFewForwardRows;
  return (few_rows ? bounds::kForwardWorkOfFewRows : bounds::kForwardWork).of(arithmetic);
}

// Whether the launches are recorded into a CUDA graph.
bool is_captured(const lltm_execution& execution) {
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  if (cudaStreamIsCapturing(static_cast<cudaStream_t>(execution.stream), &status) != cudaSuccess) {
    cudaGetLastError();  // torch must not take this failure for one of its own calls
    return false;
  }
  return status != cudaStreamCaptureStatusNone;
}

int32_t forward_family(StepProblem& problem) {
  const lltm_dtype dtype = problem.dtype;
  const lltm_step_sizes& sizes = problem.sizes();
  const int64_t work = problem.work();
  const int64_t bytes = lltm_dtype_bytes(dtype);
  const bool vectors = sizes.state_size * bytes % 16 == 0 && sizes.weight_stride * bytes % 16 == 0;
  const bool tf32 = work > bounds::kTf32LeastWork && problem.allows_tf32();
  const bool exact = bytes > 2 && !tf32;
  // For up to 4 rows, the time of any kernel is that of reading the weights. A GEMM by tensor cores
  // reads them quickest, but needs a second launch, which is free only in a loop over large steps.
  if (sizes.batch_size <= bounds::kMostRowsOfRows4) {
    const bool tensor_loop =
        sizes.input_size == 0 && !exact && sizes.state_size > bounds::kRows4MostStateInLoop;
    return tensor_loop && sizes.batch_size > 1 ? kGemm : kRows4;
  }
  if (vectors && work <= most_forward_work(sizes, arithmetic_of(dtype, tf32))) {
    return rows_family(sizes);
  }
  const int64_t tile = sizes.batch_size <= bounds::kMostRowsOfRows4Tile ? 4 : 16;
  const ForwardTimes times(dtype, sizes, tf32, tile);
  const double rows = vectors ? HUGE_VAL : times.rows;
  // kTensor saves launches. In a sequence these cost no time, as the host is ahead of the device.
  const bool can_use_tensor =
      !exact && problem.is_single() && runs_tensor_step(dtype, problem.execution);
  const double whole = can_use_tensor ? std::min(rows, times.tensor) : rows;
  if (whole >= times.cublas_and_host) return kGemm;
  // A replayed graph costs the host nothing for each of its launches.
  if (whole >= times.cublas && is_captured(problem.execution)) return kGemm;
  if (whole < rows) return kTensor;
  return tile == 4 ? kRows4 : kRows16;
}

int32_t backward_family(StepProblem& problem) {
  const lltm_dtype dtype = problem.dtype;
  const int64_t work = problem.work();
  const Arithmetic arithmetic = arithmetic_of(dtype, /*allows_tf32=*/false);
  const int64_t rows = problem.sizes().batch_size;
  const bool in_loop = !problem.is_single();
  // In a sequence the host is ahead of the device, so launches cost less than in a single step.
  if (in_loop) {
    if (rows == 1 && work > bounds::kBackwardWorkOfOneRow) return kGemm;
    if (work > bounds::kTf32LeastWork && problem.allows_tf32()) return kGemm;
    // For two to four rows of float32, cuBLAS reads the weights slowly.
    if (dtype == LLTM_FLOAT32 && rows <= bounds::kMostRowsOfRows4) return kRows16;
  }
  const bool makes_data_gradient = (problem.needs & kNeedsDataGradient) != 0;
  const auto& most_work = !makes_data_gradient ? bounds::kBackwardWork
                          : in_loop            ? bounds::kBackwardWorkInLoop
                                               : bounds::kBackwardWorkOfStep;
  return work > most_work.of(arithmetic) || rows > bounds::kMostBackwardRows ? kGemm : kRows16;
}

// The megabytes of weights from which on planes are quicker than a padded copy.
double least_planes_megabytes(lltm_pass pass, const lltm_step_sizes& sizes, Arithmetic arithmetic) {
  const bool few_rows = sizes.batch_size <= bounds::kMostRowsOfRows4;
  const bool odd = sizes.weight_stride % 2 != 0;
  const auto& row = pass == LLTM_BACKWARD ? bounds::kPlanesBackwardMegabytes
                    : few_rows            ? bounds::kPlanesForwardMegabytesOfFewRows
                    : odd                 ? bounds::kPlanesForwardMegabytesOfOdd
                                          : bounds::kPlanesForwardMegabytes;
  return row.of(arithmetic);
}

// Whether a step in planes is quicker than one on a padded copy of the weights. The larger the
// weights, the more the copy costs; the more rows, the more the planes' other kernels cost.
//
// Measured without planes on an H100 (86 draws that take them, measurements/results): the median
// step is 4 to 5 % quicker, but two steps fall behind torch's (tf32 B187 I154 S3988: 271 us forward
// become 398), and float16 B33 I872 S1812 takes 2.2 times as long.
bool prefers_planes(StepProblem& problem) {
  const lltm_dtype dtype = problem.dtype;
  const lltm_step_sizes& sizes = problem.sizes();
  const int64_t bytes = lltm_dtype_bytes(dtype);
  const int64_t vector = 16 / bytes;
  const bool aligned = sizes.state_size % vector == 0 && sizes.input_size % vector == 0;
  if (aligned) return false;
  const Arithmetic arithmetic = arithmetic_of(dtype, /*allows_tf32=*/true);
  const double megabytes = 3e-6 * sizes.state_size * sizes.weight_stride * bytes;
  if (megabytes < least_planes_megabytes(problem.pass, sizes, arithmetic) ||
      sizes.batch_size > bounds::kPlanesRowsPerMegabyte.of(arithmetic) * megabytes) {
    return false;
  }
  problem.allows_tf32();
  return can_take_planes(dtype, sizes, problem.execution);
}

int32_t preferred_family(StepProblem& problem) {
  constexpr int64_t kLargest = 1 << 20;  // products of larger sizes may overflow
  if (problem.sizes().batch_size > kLargest || problem.depth() > kLargest) return kGemm;
  if (prefers_planes(problem)) return kPlanes;
  const int32_t family =
      problem.pass == LLTM_FORWARD ? forward_family(problem) : backward_family(problem);
  const bool can_take_cublas = problem.is_single() && can_multiply(problem.execution);
  return family == kGemm && can_take_cublas ? kCublas : family;
}

// Returns the plan's split_k. A product of few rows has few tiles and a great depth: cuBLAS divides
// the depth, and adds up the parts in a separate launch. If the caller divides the depth instead,
// the next kernel adds up the parts, the planes, at no cost, which saves this launch.
int32_t split_k(StepProblem& problem) {
  const int64_t rows = problem.sizes().batch_size;
  const int64_t state = problem.sizes().state_size;
  if (state < bounds::kSplitLeastState || rows > bounds::kSplitMostOutputs / state) return 1;
  const bool half = lltm_dtype_bytes(problem.dtype) == 2;
  const bounds::Split& split = half ? bounds::kSplitHalf : bounds::kSplitTf32;
  const bool fits =
      rows >= split.least_rows && state <= split.most_state && state % split.aligned_state == 0;
  return fits && (half || problem.allows_tf32()) ? split.parts : 1;
}

// The family that LLTM_CUDA_CELL names, or -1.
int32_t named_family(const char* name) {
  static const char* const names[] = {"gemm",   "rows4",  "rows16", "rows64",
                                      "cublas", "tensor", "planes"};
  for (int32_t family = kGemm; family <= kPlanes; ++family) {
    if (std::strcmp(name, names[family]) == 0) return family;
  }
  return -1;
}

// The family that LLTM_CUDA_CELL forces, or one beside it where that cannot run this step; -1 if it
// names no family.
int32_t forced_family(StepProblem& problem, const char* name) {
  int32_t family = named_family(name);
  problem.allows_tf32();
  const lltm_step_sizes& sizes = problem.sizes();
  if (family == kPlanes && !can_take_planes(problem.dtype, sizes, problem.execution)) {
    family = kCublas;
  }
  if (family == kCublas && (!problem.is_single() || !can_multiply(problem.execution))) {
    family = kGemm;
  }
  const bool exact = problem.dtype == LLTM_FLOAT32 && !problem.allows_tf32();
  if (family == kTensor && (problem.pass == LLTM_BACKWARD || exact ||
                            !runs_tensor_step(problem.dtype, problem.execution))) {
    family = kRows16;
  }
  return family;
}

// Sets the plan's fields except the family.
void describe(StepProblem& problem, lltm_step_plan* plan) {
  const lltm_step_sizes& sizes = problem.sizes();
  const int64_t elements = sizes.batch_size * sizes.state_size;
  const bool by_cublas = plan->family == kCublas || plan->family == kPlanes;
  if (by_cublas) {
    problem.allows_tf32();
    const auto workspace = plan->family == kCublas ? cublas_step_workspace : planes_step_workspace;
    plan->workspace_bytes =
        workspace(problem.dtype, problem.pass, problem.needs, sizes, problem.execution);
    plan->allow_tf32 = sizes.allow_tf32;
  } else if (plan->family == kGemm) {
    plan->calls_product = !problem.is_single() && elements != 0 && can_multiply(problem.execution);
    if (problem.pass == LLTM_BACKWARD) plan->split_k = split_k(problem);
  } else if (problem.pass == LLTM_BACKWARD) {
    plan->makes_gates = 1;
    // The workspace holds d_gates between the two launches.
    if ((problem.needs & kNeedsDataGradient) != 0) {
      plan->workspace_bytes = 3 * elements * lltm_dtype_bytes(problem.dtype);
    }
  }
}

}  // namespace

const char* cuda_step_plan(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                           const lltm_step_sizes* sizes, const lltm_execution* execution,
                           lltm_step_plan* plan) {
  *plan = {};
  StepProblem problem(dtype, pass, needs, *sizes, *execution);
  const bool empty = sizes->batch_size == 0 || sizes->state_size == 0;
  const char* const forced = std::getenv("LLTM_CUDA_CELL");
  if (empty) {
    plan->family = kGemm;
  } else if (forced == nullptr || *forced == '\0') {
    plan->family = preferred_family(problem);
  } else {
    plan->family = forced_family(problem, forced);
    if (plan->family < 0) {
      thread_local char message[200];
      std::snprintf(message, sizeof(message),
                    "lltm: LLTM_CUDA_CELL names no kernels, got '%.40s'; set it to gemm, rows4, "
                    "rows16, rows64, cublas, tensor or planes, or unset it",
                    forced);
      return message;
    }
  }
  describe(problem, plan);
  return nullptr;
}

}  // namespace lltm
