// Decides how a sequence runs on the CPU: by our kernels, or by torch's GEMM step by step.
#include <cstdlib>
#include <cstring>

#include "../layer_parts.h"
#include "levels.h"

namespace lltm {
namespace {

enum Family : int32_t { kGemm = 0, kFused = 1 };

constexpr const char* kUnknownFamily =
    "lltm: LLTM_LAYER_KERNELS names no family of CPU kernels; set it to fused or gemm, or unset it";

// Compares our kernels with torch's GEMM step by step, which packs no weights. With few rows and
// steps, packing costs more than it saves. Torch multiplies bfloat16 with special instructions,
// which win if products are most of the work. benchmarks/NOTES.md has the measurements.
bool is_quicker_fused(lltm_dtype dtype, const lltm_layer_sizes& sizes) {
  const int64_t rows = sizes.batch_size;
  const int64_t state_size = sizes.state_size;
  const bool is_bfloat16 = dtype == LLTM_BFLOAT16;
  if (is_bfloat16 && rows * state_size > 8192) return false;
  const int64_t size = dtype == LLTM_FLOAT64 ? 2 * state_size : state_size;
  return state_size <= 128 || size <= (is_bfloat16 ? 16 : 8) * rows * sizes.steps;
}

}  // namespace

const char* cpu_layer_plan(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes* sizes,
                           const lltm_execution*, lltm_layer_plan* plan) {
  *plan = {};
  if (pass == LLTM_BACKWARD) set_part_starts(sizes->steps, plan);
  if (sizes->batch_size == 0 || sizes->state_size == 0) return nullptr;
  const char* const forced = std::getenv("LLTM_LAYER_KERNELS");
  if (forced == nullptr || *forced == '\0') {
    if (!is_quicker_fused(dtype, *sizes)) return nullptr;
  } else {
    if (std::strcmp(forced, "gemm") == 0) return nullptr;
    if (std::strcmp(forced, "fused") != 0) return kUnknownFamily;
  }
  const Level* const level = cpu_level();
  if (level == nullptr) return kUnknownLevel;
  plan->family = kFused;
  plan->workspace_bytes = level->kernels[dtype].layer_workspace(pass, *sizes);
  plan->makes_all_products = level->kernels[dtype].layer_makes_all_products(pass, *sizes) ? 1 : 0;
  return nullptr;
}

}  // namespace lltm
