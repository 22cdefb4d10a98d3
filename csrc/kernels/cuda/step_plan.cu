// How a step runs quickest on a CUDA device: whole, by a family of our own, where launches, the
// host's time, and a GEMM that is not made for such sizes cost more than a tuned GEMM gains;
// otherwise by the caller's GEMMs. The limits are measured; benchmarks/NOTES.md has the times.
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cell.h"
#include "launch.h"

namespace lltm {
namespace {

constexpr int32_t kNeedsDataGradient = LLTM_NEEDS_INPUT | LLTM_NEEDS_OLD_H;  // d_gates W

int32_t forward_family(lltm_dtype dtype, const lltm_step_sizes& sizes, int64_t work) {
  const int64_t rows = sizes.batch_size;
  int64_t limit = 64'000'000;
  // float32 has no tensor cores either way, so a GEMM gains less, and nothing for few rows.
  if (dtype == LLTM_FLOAT32) limit = rows <= 16 ? 1'100'000'000 : 320'000'000;
  // Elements of rows that do not begin as vectors do are read one by one, and the block waits.
  const int64_t depth = sizes.state_size + sizes.input_size;
  const bool vectors = depth * lltm_dtype_bytes(dtype) % 16 == 0 &&
                       sizes.state_size * lltm_dtype_bytes(dtype) % 16 == 0;
  constexpr int64_t kDeepest = 1000;
  if (work > limit || (!vectors && depth > kDeepest)) return kGemm;
  const int64_t outputs = rows * sizes.state_size;
  if (rows <= 4) return kRows4;
  if (rows <= 32 || outputs <= 16384) return kRows16;
  return outputs <= 65536 ? kRows32 : kRows64;
}

int32_t backward_family(lltm_dtype dtype, int32_t needs, const lltm_step_sizes& sizes,
                        int64_t work) {
  const bool exact = dtype == LLTM_FLOAT32;
  int64_t limit = exact ? 80'000'000 : 64'000'000;
  if ((needs & kNeedsDataGradient) != 0) limit = exact ? 32'000'000 : 16'000'000;
  return work > limit || sizes.batch_size > 256 ? kGemm : kRows16;
}

// Whether a GEMM of this step would use tensor cores for float32 operands; our kernels do not.
bool has_tf32_gemm(lltm_dtype dtype, const lltm_step_sizes& sizes, int32_t device_index) {
  constexpr int64_t kAligned = 8;  // cuBLAS has such kernels only for aligned rows
  if (dtype != LLTM_FLOAT32 || sizes.allow_tf32 == 0) return false;
  if (sizes.state_size % kAligned != 0 || sizes.weight_stride % kAligned != 0) return false;
  return device_facts(device_index).major >= 8;
}

int32_t preferred_family(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                         const lltm_step_sizes& sizes, int32_t device_index) {
  const int64_t depth = sizes.state_size + sizes.input_size;
  constexpr int64_t kLargest = 1 << 20;  // a product of larger sizes may not fit its type
  if (sizes.batch_size > kLargest || depth > kLargest) return kGemm;
  const int64_t work = 3 * sizes.batch_size * sizes.state_size * depth;  // multiplications
  // Reading the weights bounds forward of a few rows, by any kernel.
  const bool few = pass == LLTM_FORWARD && sizes.batch_size <= 4;
  constexpr int64_t kMostWithoutTensorCores = 8'000'000;
  if (work > kMostWithoutTensorCores && !few && has_tf32_gemm(dtype, sizes, device_index)) {
    return kGemm;
  }
  return pass == LLTM_FORWARD ? forward_family(dtype, sizes, work)
                              : backward_family(dtype, needs, sizes, work);
}

// Whether d_weights is quicker as one GEMM with [h, x] than as two. One saves a launch, but for
// large sizes the copy and cuBLAS's choice of kernels cost more. A GEMM is slow if its rows are not
// aligned like vectors.
bool joins_operands(lltm_dtype dtype, const lltm_step_sizes& sizes) {
  if (sizes.input_size == 0) return false;
  const int64_t columns = sizes.state_size + sizes.input_size;
  const int64_t bytes = lltm_dtype_bytes(dtype);
  const double work = 3.0 * sizes.batch_size * sizes.state_size * columns;  // multiplications
  return columns * bytes % 16 == 0 && work <= (bytes == 2 ? 6e9 : 1.2e9);
}

// A product of few rows has few tiles and great depth: cuBLAS splits it, and adds up the parts in a
// launch of its own. The next kernel adds up planes at no cost, which saves the launch.
int32_t split_k(lltm_dtype dtype, const lltm_step_sizes& sizes, int32_t device_index) {
  constexpr int64_t kLeastState = 512;
  constexpr int64_t kMostOutputs = 1 << 19;  // beyond it planes cost more than they save
  const int64_t rows = sizes.batch_size;
  const int64_t state = sizes.state_size;
  if (state < kLeastState || rows > kMostOutputs / state) return 1;
  if (lltm_dtype_bytes(dtype) == 2) {
    constexpr int32_t kParts = 4;
    static_assert(kParts <= LLTM_MOST_SPLIT_K);
    constexpr int64_t kAligned = 32;  // a quarter of 3S is then a multiple of 16 bytes
    return rows >= 16 && state % kAligned == 0 ? kParts : 1;
  }
  constexpr int32_t kParts = 3;  // one for each gate
  static_assert(kParts <= LLTM_MOST_SPLIT_K);
  constexpr int64_t kLeastRows = 192;
  constexpr int64_t kMostState = 2048;
  return rows >= kLeastRows && state <= kMostState && has_tf32_gemm(dtype, sizes, device_index)
             ? kParts
             : 1;
}

// The family that LLTM_CUDA_CELL names, or -1.
int32_t named_family(const char* name) {
  static const char* const names[] = {"gemm", "rows4", "rows16", "rows32", "rows64"};
  for (int32_t family = kGemm; family <= kRows64; ++family) {
    if (std::strcmp(name, names[family]) == 0) return family;
  }
  return -1;
}

// What the plan says beyond the family.
void describe(lltm_dtype dtype, lltm_pass pass, int32_t needs, const lltm_step_sizes& sizes,
              const lltm_execution& execution, lltm_step_plan* plan) {
  // A sequence multiplies the state alone.
  if (plan->family == kGemm && sizes.input_size == 0 && sizes.batch_size * sizes.state_size != 0) {
    plan->product_workspace_bytes = cuda_product_workspace(&execution);
  }
  if (pass == LLTM_FORWARD) {
    plan->gemm_adds_bias = plan->family == kGemm;  // cuBLAS adds it for nothing
    return;
  }
  if (plan->family != kGemm) {
    plan->makes_gates = 1;
    if ((needs & kNeedsDataGradient) != 0) {  // kept between two launches: d_gates
      plan->workspace_bytes = 3 * sizes.batch_size * sizes.state_size * lltm_dtype_bytes(dtype);
    }
    return;
  }
  plan->split_k = split_k(dtype, sizes, execution.device_index);
  plan->joins_operands = (needs & LLTM_NEEDS_WEIGHTS) != 0 && joins_operands(dtype, sizes);
  if ((needs & LLTM_NEEDS_BIAS) != 0) {
    plan->cell_sums_bias = 1;
    plan->workspace_bytes =
        cuda_cell_backward_workspace(dtype, sizes.batch_size, sizes.state_size, &execution);
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
    plan->family = preferred_family(dtype, pass, needs, *sizes, execution->device_index);
  } else {
    plan->family = named_family(forced);
    if (plan->family < 0) {
      thread_local char text[160];
      std::snprintf(text, sizeof(text),
                    "lltm: LLTM_CUDA_CELL names no kernels, got '%.40s'; set it to gemm, rows4, "
                    "rows16, rows32 or rows64, or unset it",
                    forced);
      return text;
    }
  }
  describe(dtype, pass, needs, *sizes, *execution, plan);
  return nullptr;
}

}  // namespace lltm
