// The activations of a register, by polynomials. The errors of the activations are a few units in
// the last place; tests/op states and checks the bounds.

namespace lltm::LLTM_LEVEL {

// exp(x) = 2^n (1 + p) with n = round(x / ln 2) and p = expm1(x - n ln 2). ln 2 is split so that n
// times the upper part is exact (Cody and Waite). The polynomial is expm1's Taylor series. Its
// cut-off error for |x - n ln 2| <= ln(2) / 2 is less than a quarter unit in the last place.
template <typename C>
struct ExpConstants {
  static constexpr bool kSingle = sizeof(C) == 4;
  static constexpr C kLog2E = C(1.4426950408889634);
  static constexpr C kLn2Upper = C(kSingle ? 0.693359375 : 6.93145751953125e-1);
  static constexpr C kLn2Lower = C(kSingle ? -2.12194440e-4 : 1.42860682030941723212e-6);
  static constexpr C kRound = C(kSingle ? 0x1.8p23 : 0x1.8p52);  // adding kRound rounds
  static constexpr C kLowest = kSingle ? -104 : -746;            // exp is zero below this x
  static constexpr C kMinusOne = kSingle ? -20 : -40;            // expm1 is -1 below this x
  static constexpr C kLowestNormal = kSingle ? -87 : -708;       // exp is normal above this x
  static constexpr int kMantissa = kSingle ? 23 : 52;
  static constexpr int kBias = kSingle ? 127 : 1023;
  static constexpr int kTerms = kSingle ? 6 : 12;
};

// 1/2!, 1/3!, ..., 1/13!
constexpr double kInverseFactorials[] = {
    1.0 / 2,     1.0 / 6,      1.0 / 24,      1.0 / 120,      1.0 / 720,       1.0 / 5040,
    1.0 / 40320, 1.0 / 362880, 1.0 / 3628800, 1.0 / 39916800, 1.0 / 479001600, 1.0 / 6227020800.0};

template <typename C>
struct ExpParts {
  typename Lanes<C>::Mask exponent;  // n
  Vector<C> p;

  // Of `lowest` for an x below it; NaN stays NaN.
  LLTM_INLINE ExpParts(Vector<C> x, C lowest) {
    using K = ExpConstants<C>;
    x = x < broadcast<C>(lowest) ? broadcast<C>(lowest) : x;
    const Vector<C> shifted = x * K::kLog2E + K::kRound;
    const Vector<C> n = shifted - K::kRound;
    exponent = reinterpret<Mask<C>>(shifted) - reinterpret<Mask<C>>(broadcast<C>(K::kRound));
    const Vector<C> r = (x - n * K::kLn2Upper) - n * K::kLn2Lower;
    Vector<C> series = broadcast<C>(static_cast<C>(kInverseFactorials[K::kTerms - 1]));
#pragma GCC unroll 16
    for (int term = K::kTerms - 2; term >= 0; --term) {
      series = series * r + static_cast<C>(kInverseFactorials[term]);
    }
    p = series * (r * r) + r;
  }

  // Returns 2^power, which must be a normal number.
  static LLTM_INLINE Vector<C> power_of_two(typename Lanes<C>::Mask power) {
    using K = ExpConstants<C>;
    return reinterpret<Vector<C>>((power + K::kBias) << K::kMantissa);
  }
};

// Returns exp(x) for x <= 0. NaN stays NaN.
template <typename C>
LLTM_INLINE Vector<C> exp_nonpositive(Vector<C> x) {
  const ExpParts<C> parts(x, ExpConstants<C>::kLowest);
  // 2^n may be too small for a normal number; the two factors of about 2^(n / 2) are not.
  const auto half = parts.exponent >> 1;
  const Vector<C> first = ExpParts<C>::power_of_two(half);
  const Vector<C> second = ExpParts<C>::power_of_two(parts.exponent - half);
  return (first * parts.p + first) * second;
}

// expm1(x), to full relative precision near 0, and exp(x), for x <= 0. NaN stays NaN.
template <typename C>
struct Expm1AndExp {
  Vector<C> expm1;
  Vector<C> exp;

  explicit LLTM_INLINE Expm1AndExp(Vector<C> x) {
    const Vector<C> lowest = broadcast<C>(ExpConstants<C>::kLowestNormal);
    const ExpParts<C> parts(x, ExpConstants<C>::kLowestNormal);
    const Vector<C> scale = ExpParts<C>::power_of_two(parts.exponent);
    expm1 = scale * parts.p + (scale - C(1));
    exp = x < lowest ? Vector<C>{} : scale * parts.p + scale;
  }
};

// Activations of a register, in the form that CellFormulas needs.
template <typename C>
struct VectorMath {
  using Scalar = C;
  using Value = Vector<C>;

  static LLTM_INLINE Sigmoid<Value> sigmoid(Value z) {
    const Value decay = exp_nonpositive<C>(-absolute<C>(z));
    const Value one = broadcast<C>(C(1));
    const auto negative = z < Value{};
    // A product instead of the second division would add an error. If a caller ignores one of the
    // two values, the compiler drops the division for this value.
    return {(negative ? decay : one) / (one + decay), (negative ? one : decay) / (one + decay)};
  }

  static LLTM_INLINE Value elu(Value z) {
    const auto positive = z > Value{};
    return positive ? z : Expm1AndExp<C>(positive ? Value{} : z).expm1;
  }

  // The exp is that of elu, so the compiler computes it once for a caller of both functions.
  static LLTM_INLINE Value elu_slope(Value z) {
    const auto positive = z > Value{};
    return positive ? broadcast<C>(C(1)) : Expm1AndExp<C>(positive ? Value{} : z).exp;
  }

  // tanh(|x|) = (1 - d) / (1 + d) with d = exp(-2|x|). Near 0, -expm1(-2|x|) replaces 1 - d and
  // loses no digits; farther from 0, 1 - d is more precise.
  static LLTM_INLINE Value tanh(Value x) {
    const ExpParts<C> parts(C(-2) * absolute<C>(x), ExpConstants<C>::kMinusOne);
    const Value scale = ExpParts<C>::power_of_two(parts.exponent);
    const Value e = scale * parts.p + (scale - C(1));
    const Value d = scale * parts.p + scale;
    const Value numerator = e < broadcast<C>(C(-0.5)) ? C(1) - d : -e;
    return copy_sign<C>(numerator / (C(1) + d), x);
  }
};

}  // namespace lltm::LLTM_LEVEL
