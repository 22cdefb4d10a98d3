// The cell's activations on a CUDA device.
#pragma once

#include "../../cell_math.h"

namespace lltm {

// The activations in float32, without branches and divisions. elu and tanh are within about 2 ulp,
// exact at zero and infinity, and NaN for NaN. The two halves of a polynomial do not depend on each
// other, so the device computes both at once.
struct FloatMath {
  using Scalar = float;
  using Value = float;

  // The relative error is 2 ulp near zero and 1e-5 at z = -80.
  LLTM_DEVICE static Sigmoid<float> sigmoid(float z) {
    return sigmoid_of(z, exp2(-fabsf(z) * kLog2OfE));
  }

  // Adds two terms, of which one is zero, because a choice between them would become a branch.
  LLTM_DEVICE static float elu(float z) {
    const ExpParts parts(z > 0.0f ? 0.0f : z);
    return fmaf(parts.p, parts.power, parts.power - 1.0f) + (z > 0.0f ? z : 0.0f);
  }

  // exp(z) for z <= 0, and 0 below -87. The parts are those of elu, so a caller of both functions
  // computes them once.
  LLTM_DEVICE static float elu_slope(float z) {
    const ExpParts parts(z > 0.0f ? 0.0f : z);
    return z < ExpParts::kLowest ? 0.0f : fmaf(parts.p, parts.power, parts.power);
  }

  LLTM_DEVICE static float tanh(float x) {
    const float large = large_tanh(x);  // computed early, so that it does not wait for a comparison
    // The polynomial was fitted on [-0.6, 0.6], where `large` loses digits.
    const float s = x * x;
    const float high = fmaf(s, 2.07946189e-2f, -5.37832938e-2f);
    const float low = fmaf(s, 1.33319154e-1f, -3.33332986e-1f);
    const float quartic = s * s;
    const float p = fmaf(quartic, fmaf(quartic, -5.89394569e-3f, high), low);
    const float near = fmaf(x * s, p, x);
    return fabsf(x) < 0.6f ? near : large;
  }

 protected:
  static constexpr float kLog2OfE = 1.44269504f;

  LLTM_DEVICE static float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  // 1/x to one ulp, for x >= 1. A division would cost more than the rest of a sigmoid.
  LLTM_DEVICE static float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  // The sigmoid from decay = exp(-|z|), which never overflows.
  LLTM_DEVICE static Sigmoid<float> sigmoid_of(float z, float decay) {
    const float larger = reciprocal(1.0f + decay);
    const float smaller = decay * larger;
    return z < 0.0f ? Sigmoid<float>{smaller, larger} : Sigmoid<float>{larger, smaller};
  }

  // tanh(x). The result loses digits near zero.
  LLTM_DEVICE static float large_tanh(float x) {
    const float decay = exp2(fabsf(x) * (-2.0f * kLog2OfE));
    return copysignf((1.0f - decay) * reciprocal(1.0f + decay), x);
  }

 private:
  // exp(x) = power (1 + p) for x <= 0: `power` is 2^n, and p is expm1(r). Here x = n ln2 + r, n is
  // an integer, and |r| <= ln2 / 2. CUDA's expm1f takes any x, but needs twice the instructions.
  struct ExpParts {
    static constexpr float kLowest = -87.0f;  // 2^n is a normal number from here on
    float power;
    float p;

    LLTM_DEVICE explicit ExpParts(float x) {
      x = x < kLowest ? kLowest : x;
      constexpr float kRound =
          12582912.0f;  // 1.5 * 2^23: this addend leaves an integer in the low bits
      const float shifted = fmaf(x, kLog2OfE, kRound);
      const float n = shifted - kRound;
      power = __int_as_float((__float_as_int(shifted) << 23) + 0x3f800000);
      const float r = fmaf(n, -0.693147182f, x);
      const float square = r * r;
      p = fmaf(fmaf(r, 1.98412698e-4f, 1.38888889e-3f), square,
               fmaf(r, 8.33333333e-3f, 4.16666667e-2f));
      p = fmaf(p, square, fmaf(r, 1.66666667e-1f, 0.5f));
      p = fmaf(p, square, r);
    }
  };
};

// Activations of low latency, for forward in layer_element.h, where each step waits for the
// activations of the step before it. The sigmoid computes each of its two numbers directly, so that
// no caller waits for a selection.
struct SwiftMath : FloatMath {
  LLTM_DEVICE static Sigmoid<float> sigmoid(float z) {
    return {reciprocal(1.0f + exp2(z * -kLog2OfE)), reciprocal(1.0f + exp2(z * kLog2OfE))};
  }
};

// Activations in fewer instructions, for results of at most 11 significant bits. Relative errors
// are at most about 1e-5.
struct SixteenBitMath : FloatMath {
  LLTM_DEVICE static float elu(float z) {
    // Near zero, exp(z) - 1 loses digits, so four terms of its series replace it.
    const float series = fmaf(fmaf(fmaf(z, 1.0f / 24, 1.0f / 6), z, 0.5f) * z, z, z);
    const float below = z > -0.125f ? series : exp2(z * kLog2OfE) - 1.0f;
    return z > 0.0f ? z : below;
  }

  LLTM_DEVICE static float elu_slope(float z) { return z > 0.0f ? 1.0f : exp2(z * kLog2OfE); }

  LLTM_DEVICE static float tanh(float x) {
    const float square = x * x;
    const float near = fmaf(fmaf(square, 2.0f / 15, -1.0f / 3) * square, x, x);
    return fabsf(x) < 0.125f ? near : large_tanh(x);
  }
};

// T is the type in which the numbers are stored.
template <typename T>
struct DeviceMath : SixteenBitMath {};

template <>
struct DeviceMath<double> : ScalarMath<double> {};

// This sigmoid is within 4 ulp for very negative numbers too.
template <>
struct DeviceMath<float> : FloatMath {
  LLTM_DEVICE static Sigmoid<float> sigmoid(float z) { return sigmoid_of(z, expf(-fabsf(z))); }
};

}  // namespace lltm
