// Vectors of one instruction set, by the compiler's own vector types.
#ifndef LLTM_LEVEL
#error "include this from a level_*.cpp"
#endif

namespace lltm::LLTM_LEVEL {

#define LLTM_INLINE __attribute__((always_inline)) inline
// For a function of which one copy serves all callers.
#ifdef __clang__
#define LLTM_SHARED __attribute__((noinline))
#else
#define LLTM_SHARED __attribute__((noinline, noclone))
#endif

// The number of lanes of type C in a register, their vector, and integer vectors of the same size.
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

#include "torchship/kernels/conversions.h"

template <typename C>
LLTM_INLINE Vector<C> copy_sign(Vector<C> magnitude, Vector<C> sign_of) {
  using B = typename Lanes<C>::BitsVector;
  const auto sign = reinterpret<B>(broadcast<C>(C(-0.0)));
  return reinterpret<Vector<C>>((reinterpret<B>(magnitude) & ~sign) |
                                (reinterpret<B>(sign_of) & sign));
}

template <typename C>
LLTM_INLINE Vector<C> absolute(Vector<C> x) {
  return copy_sign<C>(x, Vector<C>{});
}

#ifdef __aarch64__
// Each of these conversions is one instruction. GCC 12 does not generate the instruction from
// __builtin_convertvector if one side is half a register, so the code uses intrinsics.
LLTM_INLINE Vector<float> widen_lanes(Halves halves, bfloat16) {
  return reinterpret<Vector<float>>(vshll_n_u16(reinterpret<uint16x4_t>(halves), 16));
}
LLTM_INLINE Vector<float> widen_lanes(Halves halves, float16) {
  return reinterpret<Vector<float>>(vcvt_f32_f16(reinterpret<float16x4_t>(halves)));
}
LLTM_INLINE Halves narrow_lanes(Vector<float> value, float16) {
  return reinterpret<Halves>(vcvt_f16_f32(reinterpret<float32x4_t>(value)));
}
#else   // on x86-64, not every level has instructions that convert float16
LLTM_INLINE Vector<float> widen_lanes(Halves halves, bfloat16) {
  return reinterpret<Vector<float>>(__builtin_convertvector(halves, Bits32) << 16);
}
LLTM_INLINE Vector<float> widen_lanes(Halves halves, float16) {
  return float_of_half<Vector<float>>(__builtin_convertvector(halves, Bits32));
}
LLTM_INLINE Halves narrow_lanes(Vector<float> value, float16) {
  return __builtin_convertvector(half_of_float<Bits32>(value), Halves);
}
#endif  // __aarch64__

LLTM_INLINE Halves narrow_lanes(Vector<float> value, bfloat16) {
#ifdef LLTM_HAS_BFCVTN
  return reinterpret<Halves>(vcvt_bf16_f32(reinterpret<float32x4_t>(value)));
#else
#ifdef LLTM_MULTIPLIES_PAIRS  // one instruction, which would make subnormal numbers zero
  if (_mm512_fpclass_ps_mask(value, 0x20) == 0) {  // 0x20: subnormal
    return reinterpret<Halves>(_mm512_cvtneps_pbh(value));
  }
#endif
  return __builtin_convertvector(bfloat_of_float<Bits32>(value), Halves);
#endif
}

// float32 and float64 need no conversion.
LLTM_INLINE Vector<float> widen_lanes(Vector<float> lanes, float) { return lanes; }
LLTM_INLINE Vector<double> widen_lanes(Vector<double> lanes, double) { return lanes; }
LLTM_INLINE Vector<float> narrow_lanes(Vector<float> lanes, float) { return lanes; }
LLTM_INLINE Vector<double> narrow_lanes(Vector<double> lanes, double) { return lanes; }

template <typename T>
using Stored = std::conditional_t<sizeof(T) == 2, Halves, Vector<compute_t<T>>>;

// With this type, store() writes to any address; GCC would split a memcpy of 16 bytes in two.
template <typename T>
struct __attribute__((packed, may_alias)) Unaligned {
  Stored<T> lanes;
};

// Loads a register of elements of storage type T. If `count` is less than the number of lanes, only
// `count` elements are read, and the other lanes are zero.
template <typename T>
LLTM_INLINE Vector<compute_t<T>> load(const T* from, int64_t count = Lanes<compute_t<T>>::kCount) {
  Stored<T> lanes;
  if (count < Lanes<compute_t<T>>::kCount) {
    Stored<T> part{};
    std::memcpy(&part, from, static_cast<size_t>(count) * sizeof(T));
    lanes = part;
  } else {
    std::memcpy(&lanes, from, sizeof(lanes));
  }
  return widen_lanes(lanes, T{});
}

// Stores a register or, if `count` is less than the number of lanes, its first `count` elements.
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

// Loads `count` elements of a tensor from index `at` on; returns zeros if the tensor is NULL.
template <typename T>
LLTM_INLINE Vector<compute_t<T>> load_or_zero(const void* from, int64_t at, int64_t count) {
  return from == nullptr ? Vector<compute_t<T>>{} : load(static_cast<const T*>(from) + at, count);
}

}  // namespace lltm::LLTM_LEVEL
