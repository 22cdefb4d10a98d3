// The table of the CPU kernels. Here lltm chooses the instruction set, and whether our kernels or
// torch's GEMM make the products of a step or of a sequence.
#ifdef __aarch64__
#include <sys/auxv.h>
#include <sys/prctl.h>
#elif defined(__x86_64__)
#include <cpuid.h>
#include <sys/syscall.h>
#include <unistd.h>
#endif

#include <cstdlib>
#include <cstring>

#include "../layer_parts.h"
#include "level_headers.h"

namespace lltm {
namespace {

// Returns the value of an environment variable, or NULL if the variable is unset or empty.
const char* variable(const char* name) {
  const char* const value = std::getenv(name);
  return value == nullptr || *value == '\0' ? nullptr : value;
}

// ---- the instruction set ----

struct Level {
  const char* name;           // in LLTM_CPU_CAPABILITY
  const CpuKernels* kernels;  // by dtype; NULL if the level cannot run here or is no gain
  const CpuKernels* of_bfloat16 = nullptr;  // instead of those in `kernels`; or NULL

  const CpuKernels& of(lltm_dtype dtype) const {
    return dtype == LLTM_BFLOAT16 && of_bfloat16 != nullptr ? *of_bfloat16
                                                            : kernels[lltm_dtype_index(dtype)];
  }
};

constexpr const char* kUnknownLevel =
    "lltm: LLTM_CPU_CAPABILITY names no instruction set; set it to default, "
#ifdef __aarch64__
    "bf16 or sve, or unset it";
#else
    "avx2, avx512, avx512_bf16 or amx, or unset it";
#endif

#ifdef LLTM_HAS_AMX
// Returns whether the processor has tiles of bfloat16 and Linux lets this process use them, which
// it does from 5.16 on, once it was asked.
bool may_use_amx() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  constexpr unsigned kTilesOfBfloat16 = 1u << 24 | 1u << 22;
  if (__get_cpuid_count(7, 0, &a, &b, &c, &d) == 0) return false;
  if ((d & kTilesOfBfloat16) != kTilesOfBfloat16) return false;
  constexpr long kRequestPermission = 0x1023, kTileData = 18;
  return syscall(SYS_arch_prctl, kRequestPermission, kTileData) == 0;
}
#endif

// Returns the best level of this processor or, if `wanted` is not NULL, the best up to the level of
// that name. If there is no level of that name, the result has no kernels.
Level choose_level(const char* wanted) {
  Level levels[] = {
      {"default", CpuLevels::baseline},
      {"avx2", nullptr},
      {"avx512", nullptr},
      {"avx512_bf16", nullptr},
#ifndef __aarch64__
      {"amx", nullptr},
#else
      {"bf16", nullptr},
      {"sve", nullptr}
#endif
  };
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  if (has_avx2) levels[1].kernels = CpuLevels::avx2;
  if (has_avx2 && __builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
      __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
    levels[2].kernels = CpuLevels::avx512;
#ifdef LLTM_HAS_AVX512_BF16
    if (__builtin_cpu_supports("avx512bf16")) {
      levels[3].kernels = CpuLevels::avx512;
      levels[3].of_bfloat16 = &CpuLevels::avx512_bf16;
#ifdef LLTM_HAS_AMX
      const bool is_lower = wanted != nullptr && std::strcmp(wanted, "amx") != 0;
      if (!is_lower && may_use_amx()) {
        levels[4].kernels = CpuLevels::avx512;
        levels[4].of_bfloat16 = &CpuLevels::amx;
      }
#endif
    }
#endif
  }
#elif defined(__aarch64__)
  constexpr unsigned long kConvertsBfloat16 = 1ul << 14;  // HWCAP2_BF16, not in every asm/hwcap.h
  const bool has_bf16 = (getauxval(AT_HWCAP2) & kConvertsBfloat16) != 0;
  if (has_bf16) {
    levels[4].kernels = CpuLevels::baseline;
    levels[4].of_bfloat16 = &CpuLevels::neon_bf16;
  }
#ifdef LLTM_HAS_SVE
  // SVE with vectors of 16 bytes is no wider than NEON, so lltm then uses SVE only on request.
  constexpr int kGetVectorBytes = 51;  // PR_SVE_GET_VL, not in every sys/prctl.h
  if (has_bf16 && (getauxval(AT_HWCAP) & HWCAP_SVE) != 0 &&
      (wanted != nullptr || (prctl(kGetVectorBytes) & 0xffff) > 16)) {
    levels[5].kernels = CpuLevels::sve;
  }
#endif
#endif
  Level best = {};
  for (const Level& level : levels) {
    if (level.kernels != nullptr) best = level;
    if (wanted != nullptr && std::strcmp(wanted, level.name) == 0) return best;
  }
  return wanted == nullptr ? best : Level{"unknown", nullptr};
}

// Returns the level of this process. The level is chosen once, so a later change of
// LLTM_CPU_CAPABILITY does not change any results.
const Level& cpu_level() {
  static const Level level = choose_level(variable("LLTM_CPU_CAPABILITY"));
  return level;
}

// ---- our kernels or torch's GEMM ----

enum Family : int32_t { kGemm = 0, kOwn = 1, kNotForced = -1, kUnknown = -2 };

// Returns the family that the environment variable `name` forces: kOwn for the value `own`, kGemm
// for "gemm", kUnknown for other values, and kNotForced if the variable is unset or empty.
Family forced_family(const char* name, const char* own) {
  const char* const wanted = variable(name);
  if (wanted == nullptr) return kNotForced;
  if (std::strcmp(wanted, "gemm") == 0) return kGemm;
  return std::strcmp(wanted, own) == 0 ? kOwn : kUnknown;
}

// Returns the largest number of multiplications at which our products of a step are quicker than
// torch's GEMM. With one thread of a Xeon, ours were quicker up to 3e8, and MKL from 1e9 on. Where
// the processor has bfloat16 instructions, oneDNN is 1.6 times as fast at B16 S512. The rule is
// fixed, because a trial at run time could choose differently from run to run, and so change the
// results.
double most_multiplications([[maybe_unused]] lltm_dtype dtype) {
  constexpr double kAny = 1e300;
#ifdef __x86_64__
  __builtin_cpu_init();
  if (dtype == LLTM_BFLOAT16) return __builtin_cpu_supports("avx512bf16") ? 4e6 : kAny;
  // MKL, torch's usual GEMM, is tuned for Intel's processors; on others, it reaches half our speed.
  if (dtype != LLTM_FLOAT16) return __builtin_cpu_is("intel") ? 64e6 : kAny;
#endif
  return kAny;
}

// Sets `family` to the one that makes the products of a step: kOwn only if `allowed` or forced.
// Returns NULL or an error text.
const char* choose_products(lltm_dtype dtype, const lltm_step_sizes& sizes, bool allowed,
                            int32_t* family) {
  static const Family forced = forced_family("LLTM_CPU_PRODUCTS", "own");
  if (forced == kUnknown) {
    return "lltm: LLTM_CPU_PRODUCTS must be own or gemm (lltm's or torch's matrix products); set "
           "the variable to own or gemm, or unset it";
  }
  const bool quicker = static_cast<double>(products_of(sizes)) <= most_multiplications(dtype);
  *family = forced != kNotForced ? forced : quicker && allowed ? kOwn : kGemm;
  return nullptr;
}

// Sets only the plan's family; the other fields are for CUDA kernels and stay zero.
const char* step_plan(lltm_dtype dtype, lltm_pass pass, int32_t, const lltm_step_sizes* sizes,
                      const lltm_execution*, lltm_step_plan* plan) {
  // With more rows, backward takes torch's GEMM: our sum over chunks of rows would lose digits.
  constexpr int64_t kMostSummed = 32768;
  *plan = {};
  if (cpu_level().kernels == nullptr) return kUnknownLevel;
  if (sizes->batch_size == 0 || sizes->state_size == 0) return nullptr;
  const bool too_long = pass == LLTM_BACKWARD && sizes->batch_size > kMostSummed;
  return choose_products(dtype, *sizes, !too_long, &plan->family);
}

// Returns whether our kernels run a sequence faster than steps with torch's GEMM. Our kernels pack
// the weights; with few steps, packing takes more time than it saves. On some processors,
// torch multiplies bfloat16 with special instructions, which are faster if products are most of the
// work.
bool is_quicker_fused(lltm_dtype dtype, const lltm_layer_sizes& sizes) {
  const int64_t rows = sizes.batch_size;
  const int64_t state_size = sizes.state_size;
  const bool is_bfloat16 = dtype == LLTM_BFLOAT16;
  if (is_bfloat16 && rows * state_size > 8192) return false;
  const int64_t size = dtype == LLTM_FLOAT64 ? 2 * state_size : state_size;
  // However large the weights are, packing them takes no longer than these steps save.
  const int64_t enough_steps = is_bfloat16 || rows >= 4 ? 16 : 32;
  return state_size <= 128 || size <= (is_bfloat16 ? 16 : 8) * rows * sizes.steps ||
         sizes.steps >= enough_steps;
}

const char* layer_plan(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes* sizes,
                       const lltm_execution*, lltm_layer_plan* plan) {
  *plan = {};
  if (pass == LLTM_BACKWARD) set_part_starts(sizes->steps, plan);
  if (sizes->batch_size == 0 || sizes->state_size == 0) return nullptr;
  const int64_t features = sizes->weight_stride - sizes->state_size;
  lltm_step_sizes all = {};
  all.batch_size = sizes->steps * sizes->batch_size;
  all.input_size = features;
  all.state_size = sizes->state_size;
  all.weight_stride = sizes->weight_stride;
  const char* const error = choose_products(dtype, all, true, &plan->calls_product);
  if (error != nullptr) return error;
  Family family = forced_family("LLTM_LAYER_KERNELS", "fused");
  if (family == kUnknown) {
    return "lltm: LLTM_LAYER_KERNELS names no family of CPU kernels; set it to fused or gemm, or "
           "unset it";
  }
  if (family == kNotForced) family = is_quicker_fused(dtype, *sizes) ? kOwn : kGemm;
  if (cpu_level().kernels == nullptr) return kUnknownLevel;
  if (family == kGemm) return nullptr;
  plan->family = kOwn;
  cpu_level().of(dtype).layer_plan(pass, *sizes, plan);
  return nullptr;
}

// ---- the table ----

// Runs `kernel` of the process's level for the dtype.
template <auto kernel, typename Arguments>
const char* run(lltm_dtype dtype, const Arguments* arguments, const lltm_execution* execution) {
  if (cpu_level().kernels == nullptr) return kUnknownLevel;
  return (cpu_level().of(dtype).*kernel)(*arguments, *execution);
}

// Ignores the family: besides gemm, which the caller runs, steps and layers have one family each.
template <auto kernel, typename Arguments>
const char* run_family(lltm_dtype dtype, int32_t, const Arguments* arguments,
                       const lltm_execution* execution) {
  return run<kernel>(dtype, arguments, execution);
}

lltm_kernel_functions make_table() {
  lltm_kernel_functions table = {};
  table.head = {LLTM_KERNEL_ABI, sizeof(table), "cpu"};
  table.pointwise_forward = run<&CpuKernels::pointwise_forward>;
  table.pointwise_backward = run<&CpuKernels::pointwise_backward>;
  table.column_sum = run<&CpuKernels::column_sum>;
  table.layer_plan = layer_plan;
  table.layer_forward = run_family<&CpuKernels::layer_forward>;
  table.layer_backward = run_family<&CpuKernels::layer_backward>;
  table.layer_cells = run<&CpuKernels::layer_cells>;
  table.step_plan = step_plan;
  table.step_forward = run_family<&CpuKernels::step_forward>;
  table.step_backward = run_family<&CpuKernels::step_backward>;
  table.product = run<&CpuKernels::product>;
  return table;
}

}  // namespace
}  // namespace lltm

PROJECT_KERNEL_TABLE(cpu) {
  static const lltm_kernel_functions table = lltm::make_table();
  return &table;
}

// Returns the name of the instruction set in use, or "unknown" if LLTM_CPU_CAPABILITY names none.
extern "C" PROJECT_EXPORT const char* lltm_cpu_capability(void) { return lltm::cpu_level().name; }
