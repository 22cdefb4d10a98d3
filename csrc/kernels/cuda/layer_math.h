// The cell's activations where latency counts: no branch, and no division. A step of a sequence
// waits for them, and everything else waits for the step.
#pragma once

#include "../cell_math.h"

namespace lltm {

// To about 2 ulp of float; exact at zero, at infinity and for what is not a number. Polynomials are
// taken in halves that do not wait for one another.
struct SwiftMath {
  using Scalar = float;
  using Value = float;

  // For who needs the value alone, and waits for no choice; see `gate`.
  __device__ static __forceinline__ Sigmoid<float> sigmoid(float z) {
    return {reciprocal(1.0f + exp2(z * -1.44269504f)), reciprocal(1.0f + exp2(z * 1.44269504f))};
  }

  // The same numbers, for who needs both: one exponential and one reciprocal serve them.
  __device__ static __forceinline__ Sigmoid<float> gate(float z) {
    const float decay = exp2(-fabsf(z) * 1.44269504f);
    const float larger = reciprocal(1.0f + decay);
    const float smaller = decay * larger;
    return z < 0.0f ? Sigmoid<float>{smaller, larger} : Sigmoid<float>{larger, smaller};
  }

  // A sum, one term of which is zero, where a choice would become a branch.
  __device__ static __forceinline__ float elu(float z) {
    return expm1(z > 0.0f ? 0.0f : z) + (z > 0.0f ? z : 0.0f);
  }

  __device__ static __forceinline__ float elu_slope(float g) { return g > 0.0f ? 1.0f : g + 1.0f; }

  __device__ static __forceinline__ float tanh(float x) {
    const float decay = exp2(fabsf(x) * -2.88539008f);
    const float far = copysignf((1.0f - decay) * reciprocal(1.0f + decay), x);
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
  __device__ static __forceinline__ float exp2(float x) {
    float result;
    asm("ex2.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  __device__ static __forceinline__ float reciprocal(float x) {
    float result;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(result) : "f"(x));
    return result;
  }

  // For x <= 0. exp(x) - 1 = 2^n (expm1(f) + 1) - 1 with x = n ln 2 + f and |f| <= ln 2 / 2.
  __device__ static __forceinline__ float expm1(float x) {
    x = x < -87.0f ? -87.0f : x;  // beyond, 2^n would not be a normal number; -1 in either case
    constexpr float kRound = 12582912.0f;  // 1.5 * 2^23: the sum's low bits are n
    const float shifted = fmaf(x, 1.44269504f, kRound);
    const float n = shifted - kRound;
    const float f = fmaf(n, -0.693147182f, x);  // 2^n makes what is off small against the one
    const float square = f * f;
    float p = fmaf(fmaf(f, 1.98412698e-4f, 1.38888889e-3f), square,
                   fmaf(f, 8.33333333e-3f, 4.16666667e-2f));
    p = fmaf(p, square, fmaf(f, 1.66666667e-1f, 0.5f));
    p = fmaf(p, square, f);
    const float power = __int_as_float((__float_as_int(shifted) << 23) + 0x3f800000);
    return fmaf(power, p, power - 1.0f);
  }
};

// What backward of one element needs once dh is known: five numbers that do not depend on it.
//   dc = carry + dh * d_cell;  dz_i = dc * input_gate;  dz_o = dh * output_gate;
//   dz_c = dc * candidate
struct StepSlopes {
  float d_cell;
  float input_gate;
  float output_gate;
  float candidate;

  __device__ static __forceinline__ StepSlopes of(float z_i, float z_o, float z_c, float cell) {
    const Sigmoid<float> i = SwiftMath::gate(z_i);
    const Sigmoid<float> o = SwiftMath::gate(z_o);
    const float g = SwiftMath::elu(z_c);
    const float t = SwiftMath::tanh(cell);
    return {o.value * (1.0f - t * t), g * i.value * i.complement, t * o.value * o.complement,
            i.value * SwiftMath::elu_slope(g)};
  }

  // Writes dz, rounded, and returns dc.
  template <typename T>
  __device__ __forceinline__ float gradients(float dh, float carry, T (&d_z)[kGateCount]) const {
    const float dc = fmaf(dh, d_cell, carry);
    d_z[kInputGate] = narrow<T>(dc * input_gate);
    d_z[kOutputGate] = narrow<T>(dh * output_gate);
    d_z[kCandidate] = narrow<T>(dc * candidate);
    return dc;
  }
};

}  // namespace lltm
