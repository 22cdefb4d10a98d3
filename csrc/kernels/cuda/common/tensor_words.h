// Operands of tensor cores: words of 4 bytes, which hold tf32 (rounded float32) or 16-bit elements.
#pragma once

#include <cstdint>
#include <type_traits>

#include "../../types.h"

namespace lltm {

// The elements in a word, the least that an asynchronous copy moves; 1 for larger elements.
template <typename T>
constexpr int kWordElements = sizeof(T) < 4 ? 4 / sizeof(T) : 1;

// Changes a float32 so that tensor cores, which cut off its low 13 bits, round it to the nearest
// tf32. A NaN must have zeros in these bits to stay a NaN. Words of other types stay unchanged.
template <typename T>
LLTM_DEVICE uint32_t round_word(uint32_t value) {
  return sizeof(T) == 4 ? value + 0x1000u : value;
}

template <typename T>
LLTM_DEVICE uint32_t tensor_word(const T* values) {
  if constexpr (sizeof(T) == 4) {
    return round_word<T>(values[0] == values[0] ? __float_as_uint(values[0]) : 0x7fc00000u);
  } else {
    return values[0].bits | static_cast<uint32_t>(values[1].bits) << 16;
  }
}

// sum += a b for a tile of 16 by 8 sums. The depth is 32 bytes: 8 tf32 or 16 elements of 16 bits.
template <typename T>
LLTM_DEVICE void multiply_tiles(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
#define LLTM_MULTIPLY_TILES(shape, type)                       \
  asm("mma.sync.aligned." shape ".row.col.f32." type "." type  \
      ".f32 {%0, %1, %2, %3}, "                                \
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"          \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
  if constexpr (std::is_same_v<T, float>) {
    LLTM_MULTIPLY_TILES("m16n8k8", "tf32");
  } else if constexpr (std::is_same_v<T, bfloat16>) {
    LLTM_MULTIPLY_TILES("m16n8k16", "bf16");
  } else {
    LLTM_MULTIPLY_TILES("m16n8k16", "f16");
  }
#undef LLTM_MULTIPLY_TILES
#endif
}

}  // namespace lltm
