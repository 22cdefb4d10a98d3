// Storage types and their compute types, the same on host and device.
#pragma once

#include <cstdint>
#include <cstring>

#include "../../project.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define PROJECT_HOST_DEVICE __host__ __device__ __forceinline__
#define PROJECT_DEVICE __device__ __forceinline__
#else
// Always inlined: the CPU kernels are compiled once per instruction set, and the linker must not
// merge a copy made for one with a copy made for another.
#define PROJECT_HOST_DEVICE __attribute__((always_inline)) inline
#endif

namespace PROJECT_NAMESPACE {

// These types hold bits only; arithmetic is in float. A host without CUDA lacks CUDA's 16-bit
// types, and torch's types would tie the kernels to torch.
struct float16 {
  uint16_t bits;
};

struct bfloat16 {
  uint16_t bits;
};

namespace detail {

PROJECT_HOST_DEVICE uint32_t bits_of(float value) {
  uint32_t bits;
  std::memcpy(&bits, &value, sizeof(bits));
  return bits;
}

PROJECT_HOST_DEVICE float float_of(uint32_t bits) {
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

PROJECT_HOST_DEVICE float half_bits_to_float(uint16_t half) {
  const uint32_t sign = static_cast<uint32_t>(half & 0x8000u) << 16;
  const uint32_t exponent = (half >> 10) & 0x1fu;
  const uint32_t mantissa = half & 0x3ffu;
  if (exponent == 0x1f) return float_of(sign | 0x7f800000u | (mantissa << 13));  // inf, NaN
  if (exponent != 0) return float_of(sign | ((exponent + 112) << 23) | (mantissa << 13));
  // Zero or subnormal: mantissa * 2^-24 is exact in float.
  const float magnitude = static_cast<float>(mantissa) * float_of(0x33800000u);
  return float_of(sign | bits_of(magnitude));
}

PROJECT_HOST_DEVICE uint16_t float_to_half_bits(float value) {
  const uint32_t bits = bits_of(value);
  const uint16_t sign = static_cast<uint16_t>((bits >> 16) & 0x8000u);
  const uint32_t magnitude = bits & 0x7fffffffu;
  if (magnitude > 0x7f800000u) return sign | 0x7e00u;   // NaN
  if (magnitude >= 0x477ff000u) return sign | 0x7c00u;  // 65520 and above round to infinity
  if (magnitude < 0x38800000u) {
    // Subnormal half: adding 0.5 makes the hardware round at the right bit, to nearest even.
    const float shifted = float_of(magnitude) + 0.5f;
    return static_cast<uint16_t>(sign | (bits_of(shifted) - bits_of(0.5f)));
  }
  const uint32_t odd = (magnitude >> 13) & 1u;
  const uint32_t rounded = magnitude - (112u << 23) + 0xfffu + odd;
  return static_cast<uint16_t>(sign | (rounded >> 13));
}

PROJECT_HOST_DEVICE uint16_t float_to_bfloat_bits(float value) {
  const uint32_t bits = bits_of(value);
  if ((bits & 0x7fffffffu) > 0x7f800000u)
    return static_cast<uint16_t>((bits >> 16) | 0x40u);  // NaN
  const uint32_t odd = (bits >> 16) & 1u;
  return static_cast<uint16_t>((bits + 0x7fffu + odd) >> 16);
}

}  // namespace detail

// compute_t<T>: the type of arithmetic on values that are stored as T.
template <typename T>
struct Compute {
  using type = T;
};
template <>
struct Compute<float16> {
  using type = float;
};
template <>
struct Compute<bfloat16> {
  using type = float;
};
template <typename T>
using compute_t = typename Compute<T>::type;

PROJECT_HOST_DEVICE float widen(float value) { return value; }
PROJECT_HOST_DEVICE double widen(double value) { return value; }

PROJECT_HOST_DEVICE float widen(float16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  return detail::half_bits_to_float(value.bits);
#endif
}

PROJECT_HOST_DEVICE float widen(bfloat16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
#else
  return detail::float_of(static_cast<uint32_t>(value.bits) << 16);
#endif
}

// narrow<T>(x): x rounded to nearest even in T.
template <typename T>
PROJECT_HOST_DEVICE T narrow(compute_t<T> value);

template <>
PROJECT_HOST_DEVICE float narrow<float>(float value) {
  return value;
}
template <>
PROJECT_HOST_DEVICE double narrow<double>(double value) {
  return value;
}
template <>
PROJECT_HOST_DEVICE float16 narrow<float16>(float value) {
#ifdef __CUDA_ARCH__
  return float16{__half_as_ushort(__float2half_rn(value))};
#else
  return float16{detail::float_to_half_bits(value)};
#endif
}
template <>
PROJECT_HOST_DEVICE bfloat16 narrow<bfloat16>(float value) {
#ifdef __CUDA_ARCH__
  return bfloat16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
  return bfloat16{detail::float_to_bfloat_bits(value)};
#endif
}

// Calls `function(T{})` with the storage type T of torch's dtype code, which torch's serialisation
// format fixes. Returns the function's result, or another error text.
template <typename Function>
const char* dispatch_floating(int32_t scalar_type, const Function& function) {
  switch (scalar_type) {
    case 5:
      return function(float16{});
    case 6:
      return function(float{});
    case 7:
      return function(double{});
    case 15:
      return function(bfloat16{});
  }
  return PROJECT_NAME ": tensors must be float16, bfloat16, float32 or float64; convert them";
}

}  // namespace PROJECT_NAMESPACE
