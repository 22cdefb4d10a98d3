// The types that store numbers and the types that compute with them, on host and device.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "project.h"

#ifdef __CUDACC__
#include <cuda_bf16.h>
#include <cuda_fp16.h>
#define PROJECT_HOST_DEVICE __host__ __device__ __forceinline__
#define PROJECT_DEVICE __device__ __forceinline__
#else
// Functions are always inlined. The CPU kernels are compiled once per instruction set, and the
// linker must not use a function of one instruction set for another.
#define PROJECT_HOST_DEVICE __attribute__((always_inline)) inline
#endif

namespace PROJECT_NAMESPACE {

// The 16-bit types hold bits only; arithmetic is in float. Builds without CUDA lack CUDA's 16-bit
// types, and with torch's types the kernels would depend on torch.
struct float16 {
  uint16_t bits;
};

struct bfloat16 {
  uint16_t bits;
};

namespace detail {
#include "conversions.h"
}  // namespace detail

// compute_t<T> is the type of arithmetic on values that are stored as T.
template <typename T>
using compute_t = std::conditional_t<sizeof(T) == 2, float, T>;

// widen(x) converts x to its compute_t, without rounding.
PROJECT_HOST_DEVICE float widen(float value) { return value; }
PROJECT_HOST_DEVICE double widen(double value) { return value; }

PROJECT_HOST_DEVICE float widen(float16 value) {
#ifdef __CUDA_ARCH__
  return __half2float(__ushort_as_half(value.bits));
#else
  return detail::float_of_half<float>(uint32_t{value.bits});
#endif
}

PROJECT_HOST_DEVICE float widen(bfloat16 value) {
#ifdef __CUDA_ARCH__
  return __uint_as_float(static_cast<uint32_t>(value.bits) << 16);
#else
  return detail::reinterpret<float>(static_cast<uint32_t>(value.bits) << 16);
#endif
}

// narrow<T>(x) rounds x to the nearest T, and ties to even.
template <typename T>
PROJECT_HOST_DEVICE T narrow(compute_t<T> value) {
  if constexpr (sizeof(T) > 2) {
    return value;
  } else if constexpr (std::is_same_v<T, float16>) {
#ifdef __CUDA_ARCH__
    return float16{__half_as_ushort(__float2half_rn(value))};
#else
    return float16{static_cast<uint16_t>(detail::half_of_float<uint32_t>(value))};
#endif
  } else {
#ifdef __CUDA_ARCH__
    return bfloat16{__bfloat16_as_ushort(__float2bfloat16_rn(value))};
#else
    return bfloat16{static_cast<uint16_t>(detail::bfloat_of_float<uint32_t>(value))};
#endif
  }
}

// Calls `function(T{})`, where T is the storage type of torch's dtype code `scalar_type`. The codes
// are part of torch's serialisation format and do not change. Returns the function's result, or an
// error text for the code of a type that kernels do not support.
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
