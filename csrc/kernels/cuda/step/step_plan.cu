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

// Whether tensor cores may round this step's products to tf32; false unless `dtype` is float32.
bool allows_tf32(lltm_dtype dtype, const lltm_step_sizes& sizes, const lltm_execution& execution) {
  const int major = device_fact(cudaDevAttrComputeCapabilityMajor, execution.device_index);
  if (dtype != LLTM_FLOAT32 || major < 8) return false;
  if (sizes.input_size != 0) return torch_allows_tf32(execution);
  constexpr int64_t kAligned = 4;  // elements; see is_worth_padding in layer/layer_plan.cu
  return sizes.allow_tf32 != 0 && sizes.state_size % kAligned == 0 &&
         sizes.weight_stride % kAligned == 0;
}

// The estimated times of a forward step.
struct ForwardTimes {
  double rows;    // the whole step without tensor cores, in tiles of `tile` rows
  double tensor;  // the whole step with tensor cores
  double cublas;

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
    cublas = costs.cublas + costs.more_launches + sizes.batch_size * millions * costs.cublas_work +
             bytes * millions * costs.cublas_megabyte;
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

int32_t forward_family(lltm_dtype dtype, const lltm_step_sizes& sizes, int64_t work,
                       const lltm_execution& execution) {
  const int64_t bytes = lltm_dtype_bytes(dtype);
  const bool vectors = sizes.state_size * bytes % 16 == 0 && sizes.weight_stride * bytes % 16 == 0;
  const bool tf32 = work > bounds::kTf32LeastWork && allows_tf32(dtype, sizes, execution);
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
  const double rows = vectors ? times.cublas : times.rows;
  // kTensor saves launches. In a sequence these cost no time, as the host is ahead of the device.
  const bool can_use_tensor = !exact && sizes.input_size != 0 && runs_tensor_step(dtype, execution);
  const double whole = can_use_tensor ? std::min(rows, times.tensor) : rows;
  if (whole >= times.cublas) return kGemm;
  if (whole < rows) return kTensor;
  return tile == 4 ? kRows4 : kRows16;
}

int32_t backward_family(lltm_dtype dtype, int32_t needs, const lltm_step_sizes& sizes, int64_t work,
                        const lltm_execution& execution) {
  const Arithmetic arithmetic = arithmetic_of(dtype, /*allows_tf32=*/false);
  const int64_t rows = sizes.batch_size;
  const bool in_loop = sizes.input_size == 0;
  // In a sequence the host is ahead of the device, so launches cost less than in a single step.
  if (in_loop) {
    if (rows == 1 && work > bounds::kBackwardWorkOfOneRow) return kGemm;
    if (work > bounds::kTf32LeastWork && allows_tf32(dtype, sizes, execution)) return kGemm;
    // For two to four rows of float32, cuBLAS reads the weights slowly.
    if (dtype == LLTM_FLOAT32 && rows <= bounds::kMostRowsOfRows4) return kRows16;
  }
  const bool makes_data_gradient = (needs & kNeedsDataGradient) != 0;
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
bool prefers_planes(lltm_dtype dtype, lltm_pass pass, const lltm_step_sizes& sizes,
                    const lltm_execution& execution) {
  const int64_t bytes = lltm_dtype_bytes(dtype);
  const int64_t vector = 16 / bytes;
  const bool aligned = sizes.state_size % vector == 0 && sizes.input_size % vector == 0;
  if (aligned || !can_take_planes(dtype, sizes, execution)) return false;
  const Arithmetic arithmetic = arithmetic_of(dtype, /*allows_tf32=*/true);
  const double megabytes = 3e-6 * sizes.state_size * sizes.weight_stride * bytes;
  return megabytes >= least_planes_megabytes(pass, sizes, arithmetic) &&
         sizes.batch_size <= bounds::kPlanesRowsPerMegabyte.of(arithmetic) * megabytes;
}

int32_t preferred_family(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                         const lltm_step_sizes& sizes, const lltm_execution& execution) {
  const int64_t depth = sizes.state_size + sizes.input_size;
  constexpr int64_t kLargest = 1 << 20;  // products of larger sizes may overflow
  if (sizes.batch_size > kLargest || depth > kLargest) return kGemm;
  if (prefers_planes(dtype, pass, sizes, execution)) return kPlanes;
  const int64_t work = 3 * sizes.batch_size * sizes.state_size * depth;  // multiplications
  const int32_t family = pass == LLTM_FORWARD
                             ? forward_family(dtype, sizes, work, execution)
                             : backward_family(dtype, needs, sizes, work, execution);
  // A step without an input counts as part of a sequence, whose caller calls `product` itself.
  const bool single = sizes.input_size != 0 && can_multiply(execution);
  return family == kGemm && single ? kCublas : family;
}

// Returns the plan's split_k. A product of few rows has few tiles and a great depth: cuBLAS divides
// the depth, and adds up the parts in a separate launch. If the caller divides the depth instead,
// the next kernel adds up the parts, the planes, at no cost, which saves this launch.
int32_t split_k(lltm_dtype dtype, const lltm_step_sizes& sizes, const lltm_execution& execution) {
  const int64_t rows = sizes.batch_size;
  const int64_t state = sizes.state_size;
  if (state < bounds::kSplitLeastState || rows > bounds::kSplitMostOutputs / state) return 1;
  const bool half = lltm_dtype_bytes(dtype) == 2;
  const bounds::Split& split = half ? bounds::kSplitHalf : bounds::kSplitTf32;
  const bool fits =
      rows >= split.least_rows && state <= split.most_state && state % split.aligned_state == 0;
  return fits && (half || allows_tf32(dtype, sizes, execution)) ? split.parts : 1;
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

// Sets the plan's fields except the family.
void describe(lltm_dtype dtype, lltm_pass pass, int32_t needs, const lltm_step_sizes& sizes,
              const lltm_execution& execution, lltm_step_plan* plan) {
  const int64_t elements = sizes.batch_size * sizes.state_size;
  if (plan->family == kCublas) {
    plan->workspace_bytes = cublas_step_workspace(dtype, pass, needs, sizes, execution);
  } else if (plan->family == kPlanes) {
    plan->workspace_bytes = planes_step_workspace(dtype, pass, needs, sizes, execution);
  } else if (plan->family == kGemm) {
    plan->calls_product = sizes.input_size == 0 && elements != 0 && can_multiply(execution);
    if (pass == LLTM_BACKWARD) plan->split_k = split_k(dtype, sizes, execution);
  } else if (pass == LLTM_BACKWARD) {
    plan->makes_gates = 1;
    // The workspace holds d_gates between the two launches.
    if ((needs & kNeedsDataGradient) != 0) {
      plan->workspace_bytes = 3 * elements * lltm_dtype_bytes(dtype);
    }
  }
}

}  // namespace

const char* cuda_step_plan(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                           const lltm_step_sizes* sizes, const lltm_execution* execution,
                           lltm_step_plan* plan) {
  *plan = {};
  const bool empty = sizes->batch_size == 0 || sizes->state_size == 0;
  const char* const forced = std::getenv("LLTM_CUDA_CELL");
  if (empty) {
    plan->family = kGemm;
  } else if (forced == nullptr || *forced == '\0') {
    plan->family = preferred_family(dtype, pass, needs, *sizes, *execution);
  } else {
    plan->family = named_family(forced);
    const bool sequence = sizes->input_size == 0;
    if (plan->family == kPlanes && !can_take_planes(dtype, *sizes, *execution)) {
      plan->family = kCublas;
    }
    if (plan->family == kCublas && (sequence || !can_multiply(*execution))) plan->family = kGemm;
    const bool exact = dtype == LLTM_FLOAT32 && !allows_tf32(dtype, *sizes, *execution);
    if (plan->family == kTensor &&
        (pass == LLTM_BACKWARD || exact || !runs_tensor_step(dtype, *execution))) {
      plan->family = kRows16;
    }
    if (plan->family < 0) {
      thread_local char message[200];
      std::snprintf(message, sizeof(message),
                    "lltm: LLTM_CUDA_CELL names no kernels, got '%.40s'; set it to gemm, rows4, "
                    "rows16, rows64, cublas, tensor or planes, or unset it",
                    forced);
      return message;
    }
  }
  describe(dtype, pass, needs, *sizes, *execution, plan);
  return nullptr;
}

}  // namespace lltm
