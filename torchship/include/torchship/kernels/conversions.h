// Conversions between float32 and the bits of 16-bit types. `Float` and `Bits` are float and
// uint32_t, or vectors of these types. The CPU kernels include this file once per instruction set,
// inside a namespace: the compiler translates a template for the instruction set in force where the
// template is defined.

// Returns the value of another type that has the same bits.
template <typename To, typename From>
PROJECT_HOST_DEVICE To reinterpret(From value) {
  static_assert(sizeof(To) == sizeof(From), "bits must neither be lost nor invented");
  To result;
  std::memcpy(&result, &value, sizeof(To));
  return result;
}

template <typename Float, typename Bits>
PROJECT_HOST_DEVICE Float float_of_half(Bits half) {
  const Bits magnitude = (half & 0x7fffu) << 13;
  // A multiplication corrects the exponent's bias and normalises subnormals.
  const Bits finite = reinterpret<Bits>(reinterpret<Float>(magnitude) * 0x1p112f);
  const Bits infinite = magnitude >= (0x7c00u << 13) ? Bits{} + 0x7f800000u : Bits{};  // and NaN
  return reinterpret<Float>(finite | infinite | ((half & 0x8000u) << 16));
}

// Rounds to nearest even.
template <typename Bits, typename Float>
PROJECT_HOST_DEVICE Bits half_of_float(Float value) {
  const Bits bits = reinterpret<Bits>(value);
  const Bits sign = (bits >> 16) & 0x8000u;
  const Bits magnitude = bits & 0x7fffffffu;
  const Bits normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  // For a subnormal half, an addition of 0.5 makes the hardware round at the right bit.
  const Bits subnormal = reinterpret<Bits>(reinterpret<Float>(magnitude) + 0.5f) - 0x3f000000u;
  Bits half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? Bits{} + 0x7c00u : half;  // 65520 and more become infinity
  half = magnitude > 0x7f800000u ? Bits{} + 0x7e00u : half;   // NaN
  return sign | half;
}

// Rounds to nearest even.
template <typename Bits, typename Float>
PROJECT_HOST_DEVICE Bits bfloat_of_float(Float value) {
  const Bits bits = reinterpret<Bits>(value);
  const Bits rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Bits nan = (bits >> 16) | 0x40u;
  return value != value ? nan : rounded;
}
