// Decides how a step runs on the CPU: by our products, or by torch's GEMM.
#include <cstdlib>
#include <cstring>

#include "levels.h"
#include "threads.h"

namespace lltm {
namespace {

enum Family : int32_t { kGemm = 0, kOwn = 1 };

constexpr const char* kUnknownProducts =
    "lltm: LLTM_CPU_PRODUCTS must be own or gemm: which matrix products a step on the CPU takes; "
    "set it to one of them, or unset it";

// Returns the family that LLTM_CPU_PRODUCTS names, kNone if it is not set, kUnknown if it names
// none.
constexpr int32_t kNone = -1, kUnknown = -2;
int32_t forced_family() {
  static const int32_t forced = [] {
    const char* const wanted = std::getenv("LLTM_CPU_PRODUCTS");
    if (wanted == nullptr || *wanted == '\0') return kNone;
    if (std::strcmp(wanted, "gemm") == 0) return int32_t{kGemm};
    return std::strcmp(wanted, "own") == 0 ? int32_t{kOwn} : kUnknown;
  }();
  return forced;
}

// Our kernels are quicker up to this many multiplications; benchmarks/NOTES.md has the
// measurements. A fixed rule, not a trial at run time, makes a machine compute the same every time.
double most_multiplications([[maybe_unused]] lltm_dtype dtype) {
  constexpr double kAny = 1e300;
#ifdef __x86_64__
  __builtin_cpu_init();
  if (dtype == LLTM_BFLOAT16) return __builtin_cpu_supports("avx512bf16") ? 4e6 : kAny;
  // Torch's library is tuned for Intel's processors; other processors reach half of their speed.
  if (dtype != LLTM_FLOAT16) return __builtin_cpu_is("intel") ? 64e6 : kAny;
#endif
  return kAny;
}

// For a larger batch, a single running sum would lose digits; torch's products sum in blocks.
constexpr int64_t kMostSummed = 32768;

}  // namespace

// For gemm, the plan's other fields stay 0: a CPU GEMM would write the bias to memory first, and
// there are no launches to save.
const char* cpu_step_plan(lltm_dtype dtype, lltm_pass pass, int32_t, const lltm_step_sizes* sizes,
                          const lltm_execution*, lltm_step_plan* plan) {
  *plan = {};
  if (cpu_level() == nullptr) return kUnknownLevel;
  const int32_t forced = forced_family();
  if (forced == kUnknown) return kUnknownProducts;
  if (sizes->batch_size == 0 || sizes->state_size == 0) return nullptr;
  if (forced != kNone) {
    plan->family = forced;
  } else {
    const bool too_long = pass == LLTM_BACKWARD && sizes->batch_size > kMostSummed;
    const bool quicker = static_cast<double>(products_of(*sizes)) <= most_multiplications(dtype);
    plan->family = quicker && !too_long ? kOwn : kGemm;
  }
  return nullptr;
}

}  // namespace lltm
