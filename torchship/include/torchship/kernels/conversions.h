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

template <typename Float, typename Bits>
PROJECT_HOST_DEVICE Float float_of_e4m3(Bits e4m3) {
  const Bits magnitude = (e4m3 & 0x7fu) << 20;
  // As for half: the exponent's bias is 7, and float's is 127.
  const Bits finite = reinterpret<Bits>(reinterpret<Float>(magnitude) * 0x1p120f);
  const Bits nan = magnitude == (0x7fu << 20) ? Bits{} + 0x7fc00000u : Bits{};
  return reinterpret<Float>(finite | nan | ((e4m3 & 0x80u) << 24));
}

// Rounds to nearest even; what is too large, infinity too, becomes the largest number.
template <typename Bits, typename Float>
PROJECT_HOST_DEVICE Bits e4m3_of_float(Float value) {
  const Bits bits = reinterpret<Bits>(value);
  const Bits sign = (bits >> 24) & 0x80u;
  const Bits magnitude = bits & 0x7fffffffu;
  const Bits normal = (magnitude - (120u << 23) + 0x7ffffu + ((magnitude >> 20) & 1u)) >> 20;
  // As for half: the addition of 2^14 makes the hardware round at the right bit.
  const Bits subnormal = reinterpret<Bits>(reinterpret<Float>(magnitude) + 0x1p14f) - 0x46800000u;
  Bits e4m3 = magnitude < 0x3c800000u ? subnormal : normal;
  e4m3 = magnitude > 0x43e00000u ? Bits{} + 0x7eu : e4m3;  // more than 448
  e4m3 = magnitude > 0x7f800000u ? Bits{} + 0x7fu : e4m3;  // NaN
  return sign | e4m3;
}

// Rounds to nearest even.
template <typename Bits, typename Float>
PROJECT_HOST_DEVICE Bits e5m2_of_float(Float value) {
  const Bits bits = reinterpret<Bits>(value);
  const Bits sign = (bits >> 24) & 0x80u;
  const Bits magnitude = bits & 0x7fffffffu;
  const Bits normal = (magnitude - (112u << 23) + 0xfffffu + ((magnitude >> 21) & 1u)) >> 21;
  const Bits subnormal = reinterpret<Bits>(reinterpret<Float>(magnitude) + 0x1p7f) - 0x43000000u;
  Bits e5m2 = magnitude < 0x38800000u ? subnormal : normal;
  e5m2 = magnitude >= 0x47800000u ? Bits{} + 0x7cu : e5m2;  // 65536 and more become infinity
  e5m2 = magnitude > 0x7f800000u ? Bits{} + 0x7fu : e5m2;   // NaN
  return sign | e5m2;
}
