// Activations on a CUDA device: a few instructions each, within the bounds of the accuracy tests.
#pragma once

#include "../cell_math.h"

namespace lltm {

// T is what the numbers are stored in. Double precision takes CUDA's own functions.
template <typename T>
struct DeviceMath : ScalarMath<compute_t<T>> {};

// 1/x to one ulp, for x >= 1: a division proper costs more than all the rest of a sigmoid.
__device__ __forceinline__ float quick_reciprocal(float x) {
  float result;
  asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
  return result;
}

template <>
struct DeviceMath<float> {
  using Scalar = float;
  using Value = float;

  static __device__ __forceinline__ Sigmoid<float> sigmoid(float z) {
    const float decay = expf(-fabsf(z));  // never overflows
    const float larger = quick_reciprocal(1.0f + decay);
    const float smaller = decay * larger;
    return z < 0.0f ? Sigmoid<float>{smaller, larger} : Sigmoid<float>{larger, smaller};
  }

  static __device__ __forceinline__ float elu(float z) { return z > 0.0f ? z : expm1_below(z); }

  static __device__ __forceinline__ float elu_slope(float g) { return g > 0.0f ? 1.0f : g + 1.0f; }

  static __device__ __forceinline__ float tanh(float x) { return ::tanhf(x); }

 private:
  // exp(z) - 1 for z <= 0: with z = n ln2 + r, 2^n (expm1(r) + 1) - 1. CUDA's expm1f takes twice
  // the instructions, since it serves all numbers.
  static __device__ __forceinline__ float expm1_below(float z) {
    const float near = z < -25.0f ? -25.0f : z;  // -1 from there on; keeps a NaN
    constexpr float kShift = 12582912.0f;        // 1.5 * 2^23: leaves the integer in the low bits
    const float shifted = fmaf(near, 1.44269504f, kShift);
    const float n = shifted - kShift;
    float r = fmaf(n, -0.693145752f, near);
    r = fmaf(n, -1.42860677e-6f, r);
    // Fitted on [-ln2 / 2, ln2 / 2]: the whole is within one ulp.
    float p = 1.39337487e-3f;
    p = fmaf(p, r, 8.36324133e-3f);
    p = fmaf(p, r, 4.16664630e-2f);
    p = fmaf(p, r, 1.66665763e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p * r, r, r);
    const float scale = __int_as_float((__float_as_int(shifted) << 23) + 0x3f800000);
    return fmaf(p, scale, scale - 1.0f);
  }
};

// For results of 11 bits or fewer: relative errors below 1e-5, in half the instructions.
struct SixteenBitMath {
  using Scalar = float;
  using Value = float;

  static __device__ __forceinline__ Sigmoid<float> sigmoid(float z) {
    const float decay = quick_exp(-fabsf(z));
    const float larger = quick_reciprocal(1.0f + decay);
    const float smaller = decay * larger;
    return z < 0.0f ? Sigmoid<float>{smaller, larger} : Sigmoid<float>{larger, smaller};
  }

  static __device__ __forceinline__ float elu(float z) {
    // Near zero, where exp(z) - 1 loses digits, four terms of its series.
    const float series = fmaf(fmaf(fmaf(z, 1.0f / 24, 1.0f / 6), z, 0.5f) * z, z, z);
    const float below = z > -0.125f ? series : quick_exp(z) - 1.0f;
    return z > 0.0f ? z : below;
  }

  static __device__ __forceinline__ float elu_slope(float g) { return g > 0.0f ? 1.0f : g + 1.0f; }

  static __device__ __forceinline__ float tanh(float x) {
    const float decay = quick_exp(-2.0f * fabsf(x));
    const float far = copysignf((1.0f - decay) * quick_reciprocal(1.0f + decay), x);
    const float square = x * x;
    const float near = fmaf(fmaf(square, 2.0f / 15, -1.0f / 3) * square, x, x);
    return fabsf(x) < 0.125f ? near : far;
  }

 private:
  static __device__ __forceinline__ float quick_exp(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x * 1.44269504f));
    return result;
  }
};

template <>
struct DeviceMath<float16> : SixteenBitMath {};
template <>
struct DeviceMath<bfloat16> : SixteenBitMath {};

}  // namespace lltm
