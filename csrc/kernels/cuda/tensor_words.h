// Operands of tensor cores: words of float32 rounded to tf32, or of a 16-bit type.
#pragma once

#include <cstdint>

#include "../types.h"

namespace lltm {

// A word is a tf32 or two 16-bit elements.
template <typename T>
struct TensorWord;

// sum += a b by the instruction of `shape`, for elements of `type`.
#if __CUDA_ARCH__ >= 800
#define LLTM_MULTIPLY_TILES(shape, type)                       \
  asm("mma.sync.aligned." shape ".row.col.f32." type "." type  \
      ".f32 {%0, %1, %2, %3}, "                                \
      "{%4, %5, %6, %7}, {%8, %9}, {%0, %1, %2, %3};"          \
      : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3]) \
      : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1))
#else
#define LLTM_MULTIPLY_TILES(shape, type)
#endif

template <>
struct TensorWord<float> {
  static constexpr int kElements = 1;
  LLTM_DEVICE static uint32_t pack(const float* values) {
    return round(values[0] == values[0] ? __float_as_uint(values[0]) : 0x7fc00000u);
  }
  // Rounds to nearest, since tensor cores cut off the low 13 bits. The NaN 0x7fc00000 has zeros
  // there and stays a NaN.
  LLTM_DEVICE static uint32_t round(uint32_t value) { return value + 0x1000u; }
  LLTM_DEVICE static void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
    LLTM_MULTIPLY_TILES("m16n8k8", "tf32");
  }
};

template <typename T>
struct TensorWord16 {
  static constexpr int kElements = 2;
  LLTM_DEVICE static uint32_t pack(const T* values) {
    return values[0].bits | static_cast<uint32_t>(values[1].bits) << 16;
  }
  LLTM_DEVICE static uint32_t round(uint32_t value) { return value; }
};

template <>
struct TensorWord<bfloat16> : TensorWord16<bfloat16> {
  LLTM_DEVICE static void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
    LLTM_MULTIPLY_TILES("m16n8k16", "bf16");
  }
};

template <>
struct TensorWord<float16> : TensorWord16<float16> {
  LLTM_DEVICE static void multiply(float (&sum)[4], const uint32_t (&a)[4], uint32_t b0,
                                   uint32_t b1) {
    LLTM_MULTIPLY_TILES("m16n8k16", "f16");
  }
};

#undef LLTM_MULTIPLY_TILES

}  // namespace lltm
