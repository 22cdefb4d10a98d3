// Which steps the CUDA kernels run whole: those where launches, the caller's own overhead, and a
// GEMM that is not made for such sizes cost more than a tuned GEMM gains. The limits are measured;
// benchmarks/NOTES.md has the times.
#include <cuda_runtime.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cell.h"
#include "step_family.h"

namespace lltm {
namespace {

constexpr int32_t kNeedsInput = 1;
constexpr int32_t kNeedsOldH = 8;
constexpr int32_t kNeedsProducts = kNeedsInput | kNeedsOldH;  // of d_gates with the weights

int32_t forward_family(lltm_dtype dtype, const lltm_step_sizes& sizes, int64_t work) {
  const int64_t rows = sizes.batch_size;
  int64_t limit = 64'000'000;
  // Without tensor cores either way, a GEMM has less to gain; with few rows, nothing.
  if (dtype == LLTM_FLOAT32) limit = rows <= 64 ? 1'100'000'000 : 320'000'000;
  if (work > limit) return kNoFamily;
  const int64_t outputs = rows * sizes.state_size;
  if (rows <= 4) return kRowFamily;
  if (rows <= 32 || outputs <= 16384) return kNarrowFamily;
  return outputs <= 65536 ? kWideFamily : kTallFamily;
}

int32_t backward_family(lltm_dtype dtype, int32_t needs, const lltm_step_sizes& sizes,
                        int64_t work) {
  const bool exact = dtype == LLTM_FLOAT32;
  int64_t limit = exact ? 80'000'000 : 64'000'000;
  if ((needs & kNeedsProducts) != 0) limit = exact ? 32'000'000 : 16'000'000;
  return work > limit || sizes.batch_size > 256 ? kNoFamily : kNarrowFamily;
}

// Whether a GEMM of this step would have tensor cores for its float32 operands: ours has none.
bool has_tf32_gemm(lltm_dtype dtype, const lltm_step_sizes& sizes, int32_t device_index) {
  constexpr int64_t kAligned = 8;  // cuBLAS has such kernels for aligned rows alone
  if (dtype != LLTM_FLOAT32 || sizes.allow_tf32 == 0) return false;
  if (sizes.state_size % kAligned != 0 || sizes.weight_stride % kAligned != 0) return false;
  int major = 0;
  const cudaError_t error =
      cudaDeviceGetAttribute(&major, cudaDevAttrComputeCapabilityMajor, device_index);
  return error == cudaSuccess && major >= 8;
}

int32_t preferred_family(lltm_dtype dtype, int32_t needs, const lltm_step_sizes& sizes,
                         int32_t device_index) {
  const int64_t depth = sizes.state_size + sizes.input_size;
  constexpr int64_t kLargest = 1 << 20;  // a product of larger sizes may not fit its type
  if (sizes.batch_size > kLargest || depth > kLargest) return kNoFamily;
  const int64_t work = 3 * sizes.batch_size * sizes.state_size * depth;  // multiplications
  // Forward of a few rows is bound by reading the weights, whatever multiplies them.
  const bool few = needs < 0 && sizes.batch_size <= 4;
  constexpr int64_t kMostWithoutTensorCores = 8'000'000;
  if (work > kMostWithoutTensorCores && !few && has_tf32_gemm(dtype, sizes, device_index)) {
    return kNoFamily;
  }
  return needs < 0 ? forward_family(dtype, sizes, work)
                   : backward_family(dtype, needs, sizes, work);
}

// A product of few rows has few tiles, and great depth: cuBLAS splits it, and adds up with a launch
// of its own. Planes that the next kernel adds up are as quick as one part, and spare the launch.
int32_t split_k(lltm_dtype dtype, const lltm_step_sizes& sizes, int32_t device_index) {
  constexpr int64_t kLeastState = 512;
  constexpr int64_t kMostOutputs = 1 << 19;  // from where planes cost more than they spare
  const int64_t rows = sizes.batch_size;
  const int64_t state = sizes.state_size;
  if (state < kLeastState || rows > kMostOutputs / state) return 1;
  const bool sixteen_bits = dtype == LLTM_FLOAT16 || dtype == LLTM_BFLOAT16;
  if (sixteen_bits) {
    constexpr int32_t kParts = 4;
    static_assert(kParts <= LLTM_MOST_SPLIT_K);
    constexpr int64_t kAligned = 32;  // a quarter of 3S is then a multiple of 16 bytes
    return rows >= 16 && state % kAligned == 0 ? kParts : 1;
  }
  constexpr int32_t kParts = 3;  // one a gate
  static_assert(kParts <= LLTM_MOST_SPLIT_K);
  return rows >= 64 && has_tf32_gemm(dtype, sizes, device_index) ? kParts : 1;
}

// The family that LLTM_CUDA_CELL names, or -1.
int32_t named_family(const char* name) {
  static const char* const names[] = {"gemm", "row", "narrow", "wide", "tall"};
  for (int32_t family = kNoFamily; family <= kTallFamily; ++family) {
    if (std::strcmp(name, names[family]) == 0) return family;
  }
  return -1;
}

}  // namespace

const char* cuda_step_plan(lltm_dtype dtype, int32_t needs, const lltm_step_sizes* sizes,
                           const lltm_execution* execution, lltm_step_plan* plan) {
  *plan = {};
  if (sizes->batch_size == 0 || sizes->state_size == 0) return nullptr;
  const char* const forced = std::getenv("LLTM_CUDA_CELL");
  if (forced == nullptr || *forced == '\0') {
    plan->family = preferred_family(dtype, needs, *sizes, execution->device_index);
  } else {
    plan->family = named_family(forced);
    if (plan->family < 0) {
      thread_local char text[160];
      std::snprintf(text, sizeof(text),
                    "lltm: LLTM_CUDA_CELL names no kernels, got '%.40s'; set it to gemm, row, "
                    "narrow, wide or tall, or unset it",
                    forced);
      return text;
    }
  }
  if (plan->family == kNoFamily) {
    plan->split_k = split_k(dtype, *sizes, execution->device_index);
  } else if (needs >= 0 && (needs & kNeedsProducts) != 0) {
    const int64_t bytes = dtype == LLTM_FLOAT64 ? 8 : dtype == LLTM_FLOAT32 ? 4 : 2;
    plan->workspace_bytes = 3 * sizes->batch_size * sizes->state_size * bytes;  // d_gates
  }
  return nullptr;
}

}  // namespace lltm
