// The types that store numbers and the types that compute with them, on host and device.
#pragma once

#include <cstdint>
#include <cstring>
#include <type_traits>

#include "dtypes.h"
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

// The types of 16 and 8 bits hold bits only; arithmetic is in float. Builds without CUDA lack
// CUDA's types, and with torch's types the kernels would depend on torch.
struct float16 {
  uint16_t bits;
};

struct bfloat16 {
  uint16_t bits;
};

struct float8_e4m3fn {
  uint8_t bits;
};

struct float8_e5m2 {
  uint8_t bits;
};

// A complex number as torch stores it.
template <typename T>
struct alignas(2 * sizeof(T)) Complex {
  T real, imag;
};
using complex64 = Complex<float>;
using complex128 = Complex<double>;

PROJECT_DTYPE_OF(float16, kFloat16)
PROJECT_DTYPE_OF(bfloat16, kBFloat16)
PROJECT_DTYPE_OF(float8_e4m3fn, kFloat8E4M3FN)
PROJECT_DTYPE_OF(float8_e5m2, kFloat8E5M2)
PROJECT_DTYPE_OF(complex64, kComplex64)
PROJECT_DTYPE_OF(complex128, kComplex128)

namespace detail {
#include "conversions.h"
}  // namespace detail

// Whether T holds the bits of a floating-point type that C++ lacks.
template <typename T>
constexpr bool kIsNarrowFloat = std::is_same_v<T, float16> || std::is_same_v<T, bfloat16> ||
                                std::is_same_v<T, float8_e4m3fn> || std::is_same_v<T, float8_e5m2>;

// compute_t<T> is the type of arithmetic on values that are stored as T.
template <typename T>
using compute_t = std::conditional_t<kIsNarrowFloat<T>, float, T>;

// widen(x) converts x to its compute_t, without rounding.
template <typename T, typename = std::enable_if_t<!kIsNarrowFloat<T>>>
PROJECT_HOST_DEVICE T widen(T value) {
  return value;
}

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

PROJECT_HOST_DEVICE float widen(float8_e4m3fn value) {
  return detail::float_of_e4m3<float>(uint32_t{value.bits});
}

PROJECT_HOST_DEVICE float widen(float8_e5m2 value) {
  return detail::float_of_half<float>(uint32_t{value.bits} << 8);
}

// narrow<T>(x) rounds x to the nearest T, and ties to even. As in torch, what is too large becomes
// infinity, or 448 in float8_e4m3fn, which has none (NaN in torches before that rule).
template <typename T>
PROJECT_HOST_DEVICE T narrow(compute_t<T> value) {
  if constexpr (!kIsNarrowFloat<T>) {
    return value;
  } else if constexpr (std::is_same_v<T, float8_e4m3fn>) {
    return float8_e4m3fn{static_cast<uint8_t>(detail::e4m3_of_float<uint32_t>(value))};
  } else if constexpr (std::is_same_v<T, float8_e5m2>) {
    return float8_e5m2{static_cast<uint8_t>(detail::e5m2_of_float<uint32_t>(value))};
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

// Arithmetic of complex numbers; the rest is the author's, or cuda::std::complex.
template <typename T>
PROJECT_HOST_DEVICE Complex<T> operator+(Complex<T> a, Complex<T> b) {
  return {a.real + b.real, a.imag + b.imag};
}
template <typename T>
PROJECT_HOST_DEVICE Complex<T> operator-(Complex<T> a, Complex<T> b) {
  return {a.real - b.real, a.imag - b.imag};
}
template <typename T>
PROJECT_HOST_DEVICE Complex<T> operator*(Complex<T> a, Complex<T> b) {
  return {a.real * b.real - a.imag * b.imag, a.real * b.imag + a.imag * b.real};
}
template <typename T>
PROJECT_HOST_DEVICE Complex<T> conj(Complex<T> a) {
  return {a.real, -a.imag};
}

}  // namespace PROJECT_NAMESPACE

#include "dispatch.h"
