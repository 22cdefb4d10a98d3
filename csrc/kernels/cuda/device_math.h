// The cell's activations on a CUDA device, in float32 to three precisions and latencies. All are
// within the bounds of the accuracy tests.
#pragma once

#include "../cell_math.h"

namespace lltm {

// What the variants share.
struct FloatMath {
  using Scalar = float;
  using Value = float;

  LLTM_DEVICE static float elu_slope(float g) { return g > 0.0f ? 1.0f : g + 1.0f; }

 protected:
  LLTM_DEVICE static float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  // 1/x to one ulp, for x >= 1: a division costs more than all the rest of a sigmoid.
  LLTM_DEVICE static float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  // From decay = exp(-|z|), which never overflows.
  LLTM_DEVICE static Sigmoid<float> sigmoid_of(float z, float decay) {
    const float larger = reciprocal(1.0f + decay);
    const float smaller = decay * larger;
    return z < 0.0f ? Sigmoid<float>{smaller, larger} : Sigmoid<float>{larger, smaller};
  }

  // |tanh(x)| from decay = exp(-2 |x|), with the sign of x. Loses digits near zero.
  LLTM_DEVICE static float tanh_of(float x, float decay) {
    return copysignf((1.0f - decay) * reciprocal(1.0f + decay), x);
  }

  // x = n ln2 + r with an integer n and |r| <= ln2 / 2, for exp(x) - 1 = 2^n (expm1(r) + 1) - 1.
  // CUDA's expm1f takes twice the instructions, since it serves all numbers.
  struct Split {
    float n;
    float power;  // 2^n

    LLTM_DEVICE static Split of(float x) {
      constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: leaves the integer in the low bits
      const float shifted = fmaf(x, 1.44269504f, kRound);
      return {shifted - kRound, __int_as_float((__float_as_int(shifted) << 23) + 0x3f800000)};
    }
    // From p = expm1(r).
    LLTM_DEVICE float expm1(float p) const { return fmaf(p, power, power - 1.0f); }
  };
};

// T is the type in which the numbers are stored. Double precision takes CUDA's own functions.
template <typename T>
struct DeviceMath : ScalarMath<compute_t<T>> {};

template <>
struct DeviceMath<float> : FloatMath {
  LLTM_DEVICE static Sigmoid<float> sigmoid(float z) { return sigmoid_of(z, expf(-fabsf(z))); }

  LLTM_DEVICE static float elu(float z) { return z > 0.0f ? z : expm1_below(z); }

  LLTM_DEVICE static float tanh(float x) { return ::tanhf(x); }

 private:
  // exp(z) - 1 for z <= 0.
  LLTM_DEVICE static float expm1_below(float z) {
    const float near = z < -25.0f ? -25.0f : z;  // -1 from there on; keeps a NaN
    const Split split = Split::of(near);
    float r = fmaf(split.n, -0.693145752f, near);
    r = fmaf(split.n, -1.42860677e-6f, r);
    // Fitted on [-ln2 / 2, ln2 / 2]: the whole is within one ulp.
    float p = 1.39337487e-3f;
    p = fmaf(p, r, 8.36324133e-3f);
    p = fmaf(p, r, 4.16664630e-2f);
    p = fmaf(p, r, 1.66665763e-1f);
    p = fmaf(p, r, 0.5f);
    p = fmaf(p * r, r, r);
    return split.expm1(p);
  }
};

// For results of 11 bits or fewer: relative errors below 1e-5, in half the instructions.
struct SixteenBitMath : FloatMath {
  LLTM_DEVICE static Sigmoid<float> sigmoid(float z) {
    return sigmoid_of(z, exp2(-fabsf(z) * kLog2OfE));
  }

  LLTM_DEVICE static float elu(float z) {
    // Near zero, where exp(z) - 1 loses digits, four terms of its series.
    const float series = fmaf(fmaf(fmaf(z, 1.0f / 24, 1.0f / 6), z, 0.5f) * z, z, z);
    const float below = z > -0.125f ? series : exp2(z * kLog2OfE) - 1.0f;
    return z > 0.0f ? z : below;
  }

  LLTM_DEVICE static float tanh(float x) {
    const float far = tanh_of(x, exp2(-2.0f * fabsf(x) * kLog2OfE));
    const float square = x * x;
    const float near = fmaf(fmaf(square, 2.0f / 15, -1.0f / 3) * square, x, x);
    return fabsf(x) < 0.125f ? near : far;
  }

 private:
  static constexpr float kLog2OfE = 1.44269504f;
};

template <>
struct DeviceMath<float16> : SixteenBitMath {};
template <>
struct DeviceMath<bfloat16> : SixteenBitMath {};

// For latency, without branches and divisions: a step of a sequence waits for these, and all other
// work waits for the step. To about 2 ulp of float; exact at zero, at infinity and for NaN. Halves
// of a polynomial do not wait for each other.
struct SwiftMath : FloatMath {
  // For callers that need the value alone. It waits for no choice; see `gate`.
  LLTM_DEVICE static Sigmoid<float> sigmoid(float z) {
    return {reciprocal(1.0f + exp2(z * -1.44269504f)), reciprocal(1.0f + exp2(z * 1.44269504f))};
  }

  // The same numbers for callers that need both: one exponential and one reciprocal serve them.
  LLTM_DEVICE static Sigmoid<float> gate(float z) {
    return sigmoid_of(z, exp2(-fabsf(z) * 1.44269504f));
  }

  // A sum with one term that is zero, where a choice would become a branch.
  LLTM_DEVICE static float elu(float z) {
    return expm1_below(z > 0.0f ? 0.0f : z) + (z > 0.0f ? z : 0.0f);
  }

  LLTM_DEVICE static float tanh(float x) {
    const float far = tanh_of(x, exp2(fabsf(x) * -2.88539008f));
    // Fitted on [-0.6, 0.6], where 1 - decay loses digits.
    const float s = x * x;
    const float high = fmaf(s, 2.07946189e-2f, -5.37832938e-2f);
    const float low = fmaf(s, 1.33319154e-1f, -3.33332986e-1f);
    const float quartic = s * s;
    const float p = fmaf(quartic, fmaf(quartic, -5.89394569e-3f, high), low);
    const float near = fmaf(x * s, p, x);
    return fabsf(x) < 0.6f ? near : far;
  }

 private:
  // exp(x) - 1 for x <= 0.
  LLTM_DEVICE static float expm1_below(float x) {
    x = x < -87.0f ? -87.0f : x;  // -1 from there on, where 2^n would not be a normal number
    const Split split = Split::of(x);
    const float r = fmaf(split.n, -0.693147182f, x);  // 2^n makes the error small beside 1
    const float square = r * r;
    float p = fmaf(fmaf(r, 1.98412698e-4f, 1.38888889e-3f), square,
                   fmaf(r, 8.33333333e-3f, 4.16666667e-2f));
    p = fmaf(p, square, fmaf(r, 1.66666667e-1f, 0.5f));
    p = fmaf(p, square, r);
    return split.expm1(p);
  }
};

}  // namespace lltm
