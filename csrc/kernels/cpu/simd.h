// Vectors of one instruction set, as the compiler's own vector types. Included once per instruction
// set, inside namespace LLTM_LEVEL, with LLTM_VECTOR_BYTES set to the width of its registers.
#ifndef LLTM_LEVEL
#error "include this from a level_*.cpp"
#endif

namespace lltm::LLTM_LEVEL {

#define LLTM_INLINE __attribute__((always_inline)) inline
#define LLTM_INLINE_LAMBDA __attribute__((always_inline))

// The number of lanes of type C in a register, and integer vectors with as many lanes.
template <typename C>
struct Lanes {
  using Signed = std::conditional_t<sizeof(C) == 4, int32_t, int64_t>;
  using Unsigned = std::make_unsigned_t<Signed>;
  static constexpr int kCount = LLTM_VECTOR_BYTES / static_cast<int>(sizeof(C));
  typedef C Vector __attribute__((vector_size(LLTM_VECTOR_BYTES)));
  typedef Signed Mask __attribute__((vector_size(LLTM_VECTOR_BYTES)));
  typedef Unsigned BitsVector __attribute__((vector_size(LLTM_VECTOR_BYTES)));
};

template <typename C>
using Vector = typename Lanes<C>::Vector;
template <typename C>
using Mask = typename Lanes<C>::Mask;
using Bits32 = Lanes<float>::BitsVector;
typedef uint16_t Halves __attribute__((vector_size(LLTM_VECTOR_BYTES / 2)));

template <typename C>
LLTM_INLINE Vector<C> broadcast(C value) {
  return value - Vector<C>{};
}

// Vector types of one size convert bit by bit.
template <typename To, typename From>
LLTM_INLINE To reinterpret(From value) {
  static_assert(sizeof(To) == sizeof(From), "bits must neither be lost nor invented");
  return reinterpret_cast<To>(value);
}

template <typename C>
LLTM_INLINE Vector<C> absolute(Vector<C> x) {
  using B = typename Lanes<C>::BitsVector;
  const auto sign = reinterpret<B>(broadcast<C>(C(-0.0)));
  return reinterpret<Vector<C>>(reinterpret<B>(x) & ~sign);
}

template <typename C>
LLTM_INLINE Vector<C> copy_sign(Vector<C> magnitude, Vector<C> sign_of) {
  using B = typename Lanes<C>::BitsVector;
  const auto sign = reinterpret<B>(broadcast<C>(C(-0.0)));
  return reinterpret<Vector<C>>((reinterpret<B>(magnitude) & ~sign) |
                                (reinterpret<B>(sign_of) & sign));
}

#ifdef __aarch64__
// Each is one instruction; GCC 12 does not find it for conversions of half a register. Every NEON
// has fcvtl and fcvtn; x86-64 has such instructions only with F16C.
LLTM_INLINE Vector<float> widen_lanes(Halves halves, bfloat16) {
  return reinterpret<Vector<float>>(vshll_n_u16(reinterpret<uint16x4_t>(halves), 16));
}

LLTM_INLINE Vector<float> widen_lanes(Halves halves, float16) {
  return reinterpret<Vector<float>>(vcvt_f32_f16(reinterpret<float16x4_t>(halves)));
}
#else
LLTM_INLINE Vector<float> widen_lanes(Halves halves, bfloat16) {
  return reinterpret<Vector<float>>(__builtin_convertvector(halves, Bits32) << 16);
}

LLTM_INLINE Vector<float> widen_lanes(Halves halves, float16) {
  const Bits32 bits = __builtin_convertvector(halves, Bits32);
  const Bits32 magnitude = (bits & 0x7fffu) << 13;
  // A multiplication corrects the exponent's bias; it also normalises subnormals.
  Vector<float> value = reinterpret<Vector<float>>(magnitude) * 0x1p112f;
  const Bits32 special = reinterpret<Bits32>(magnitude >= (0x7c00u << 13));
  value = reinterpret<Vector<float>>(reinterpret<Bits32>(value) | (special & 0x7f800000u));
  return reinterpret<Vector<float>>(reinterpret<Bits32>(value) | ((bits & 0x8000u) << 16));
}
#endif  // __aarch64__

LLTM_INLINE Halves narrow_lanes(Vector<float> value, bfloat16) {
#ifdef LLTM_HAS_BFCVTN
  return reinterpret<Halves>(vcvt_bf16_f32(reinterpret<float32x4_t>(value)));
#else
  const Bits32 bits = reinterpret<Bits32>(value);
  const Bits32 rounded = (bits + 0x7fffu + ((bits >> 16) & 1u)) >> 16;
  const Bits32 nan = (bits >> 16) | 0x40u;
  return __builtin_convertvector(value != value ? nan : rounded, Halves);
#endif
}

#ifdef __aarch64__
LLTM_INLINE Halves narrow_lanes(Vector<float> value, float16) {
  return reinterpret<Halves>(vcvt_f16_f32(reinterpret<float32x4_t>(value)));
}
#else
LLTM_INLINE Halves narrow_lanes(Vector<float> value, float16) {
  const Bits32 bits = reinterpret<Bits32>(value);
  const Bits32 sign = (bits >> 16) & 0x8000u;
  const Bits32 magnitude = bits & 0x7fffffffu;
  const Bits32 normal = (magnitude - (112u << 23) + 0xfffu + ((magnitude >> 13) & 1u)) >> 13;
  const Bits32 subnormal =
      reinterpret<Bits32>(reinterpret<Vector<float>>(magnitude) + 0.5f) - 0x3f000000u;
  Bits32 half = magnitude < 0x38800000u ? subnormal : normal;
  half = magnitude >= 0x477ff000u ? Bits32{} + 0x7c00u : half;
  half = magnitude > 0x7f800000u ? Bits32{} + 0x7e00u : half;
  return __builtin_convertvector(sign | half, Halves);
}
#endif  // __aarch64__

// float32 and float64 are stored as they are computed.
template <typename C>
LLTM_INLINE Vector<C> widen_lanes(Vector<C> lanes, C) {
  return lanes;
}
template <typename C>
LLTM_INLINE Vector<C> narrow_lanes(Vector<C> lanes, C) {
  return lanes;
}

template <typename T>
using Stored = std::conditional_t<sizeof(T) == 2, Halves, Vector<compute_t<T>>>;

// A register at any address. GCC would split a memcpy of 16 bytes into halves.
template <typename T>
struct __attribute__((packed, may_alias)) Unaligned {
  Stored<T> lanes;
};

// Loads a register of elements of storage type T. With a `count` that is less, the other lanes are
// zero.
template <typename T>
LLTM_INLINE Vector<compute_t<T>> load(const T* from, int64_t count = Lanes<compute_t<T>>::kCount) {
  if (count < Lanes<compute_t<T>>::kCount) {
    Stored<T> part{};
    std::memcpy(&part, from, static_cast<size_t>(count) * sizeof(T));
    return widen_lanes(part, T{});
  }
  Stored<T> lanes;
  std::memcpy(&lanes, from, sizeof(lanes));
  return widen_lanes(lanes, T{});
}

// Stores a register, or its first `count` elements.
template <typename T>
LLTM_INLINE void store(T* to, Vector<compute_t<T>> value,
                       int64_t count = Lanes<compute_t<T>>::kCount) {
  const Stored<T> lanes = narrow_lanes(value, T{});
  if (count < Lanes<compute_t<T>>::kCount) {
    std::memcpy(to, &lanes, static_cast<size_t>(count) * sizeof(T));
  } else {
    reinterpret_cast<Unaligned<T>*>(to)->lanes = lanes;
  }
}

// Loads cell states or their gradients. Their type is T, or float32 if T has 16 bits and
// `is_float32` is set.
template <typename T>
LLTM_INLINE Vector<compute_t<T>> load_cells(const void* cells, bool is_float32, int64_t at,
                                            int64_t count) {
  if (sizeof(T) == 2 && is_float32)
    return load(static_cast<const compute_t<T>*>(cells) + at, count);
  return load(static_cast<const T*>(cells) + at, count);
}

}  // namespace lltm::LLTM_LEVEL
