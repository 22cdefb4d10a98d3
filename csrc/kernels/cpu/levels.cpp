#include "levels.h"

#ifdef __aarch64__
#include <sys/auxv.h>
#endif

#include <cstdlib>
#include <cstring>

namespace lltm {
namespace {

const Level* choose() {
  const char* wanted = std::getenv("LLTM_CPU_CAPABILITY");
  if (wanted != nullptr && *wanted == '\0') wanted = nullptr;
#ifdef __x86_64__
  __builtin_cpu_init();
  const bool has_avx2 = __builtin_cpu_supports("avx2") && __builtin_cpu_supports("fma");
  const bool has_avx512 = has_avx2 && __builtin_cpu_supports("avx512f") &&
                          __builtin_cpu_supports("avx512bw") &&
                          __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl");
  const bool any = wanted == nullptr || std::strcmp(wanted, "avx512") == 0;
  if (any && has_avx512) return &kAvx512Level;
  if ((any || std::strcmp(wanted, "avx2") == 0) && has_avx2) return &kAvx2Level;
#elif defined(__aarch64__)
  constexpr unsigned long kConvertsBfloat16 = 1ul << 14;  // HWCAP2_BF16, not in every asm/hwcap.h
  const bool has_bf16 = (getauxval(AT_HWCAP2) & kConvertsBfloat16) != 0;
#ifdef LLTM_HAS_SVE
  // With vectors of 16 bytes, NEON is as wide as SVE and keeps more sums in registers.
  const bool has_sve = has_bf16 && (getauxval(AT_HWCAP) & HWCAP_SVE) != 0;
  if (has_sve && (wanted == nullptr ? sve_bytes() > 16 : std::strcmp(wanted, "sve") == 0))
    return &kSveLevel;
#endif
  if (wanted == nullptr || std::strcmp(wanted, "bf16") == 0)
    return has_bf16 ? &kBf16Level : &kBaselineLevel;
  if (std::strcmp(wanted, "sve") == 0) return &kBaselineLevel;
#endif
  const bool known = wanted == nullptr || std::strcmp(wanted, "default") == 0 ||
                     std::strcmp(wanted, "avx2") == 0 || std::strcmp(wanted, "avx512") == 0;
  return known ? &kBaselineLevel : nullptr;
}

}  // namespace

const Level* cpu_level() {
  static const Level* const level = choose();
  return level;
}

}  // namespace lltm
