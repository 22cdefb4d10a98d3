// Torch's dtypes by their codes. The codes are part of torch's serialisation format and do not
// change. Kernels include this file, so it does not include torch.
#pragma once

#include <cstdint>

#include "project.h"

namespace PROJECT_NAMESPACE {

struct Dtype {
  enum Code : int32_t {
    kUInt8 = 0,
    kInt8 = 1,
    kInt16 = 2,
    kInt32 = 3,
    kInt64 = 4,
    kFloat16 = 5,
    kFloat32 = 6,
    kFloat64 = 7,
    kComplex32 = 8,
    kComplex64 = 9,
    kComplex128 = 10,
    kBool = 11,
    kBFloat16 = 15,
    kFloat8E5M2 = 23,
    kFloat8E4M3FN = 24,
    kUInt16 = 27,
    kUInt32 = 28,
    kUInt64 = 29,
  };
};

// Returns torch's name of a dtype, or NULL for a code that is unknown here.
inline const char* known_dtype_name(int32_t code) {
  static const char* const names[] = {
      "uint8",     "int8",      "int16",      "int32", "int64", "float16", "float32", "float64",
      "complex32", "complex64", "complex128", "bool",  "qint8", "quint8",  "qint32",  "bfloat16"};
  if (code >= 0 && code < 16) return names[code];
  static const char* const newer[] = {"float8_e5m2",     "float8_e4m3fn", "float8_e5m2fnuz",
                                      "float8_e4m3fnuz", "uint16",        "uint32",
                                      "uint64"};
  return code >= 23 && code < 30 ? newer[code - 23] : nullptr;
}

// The code of the dtype whose elements are of the C++ type T; kernels/types.h adds those that C++
// itself lacks.
template <typename T>
struct DtypeOf;

#define PROJECT_DTYPE_OF(T, code)                 \
  template <>                                     \
  struct DtypeOf<T> {                             \
    static constexpr int32_t kCode = Dtype::code; \
  };

PROJECT_DTYPE_OF(uint8_t, kUInt8)
PROJECT_DTYPE_OF(int8_t, kInt8)
PROJECT_DTYPE_OF(int16_t, kInt16)
PROJECT_DTYPE_OF(int32_t, kInt32)
PROJECT_DTYPE_OF(int64_t, kInt64)
PROJECT_DTYPE_OF(uint16_t, kUInt16)
PROJECT_DTYPE_OF(uint32_t, kUInt32)
PROJECT_DTYPE_OF(uint64_t, kUInt64)
PROJECT_DTYPE_OF(bool, kBool)
PROJECT_DTYPE_OF(float, kFloat32)
PROJECT_DTYPE_OF(double, kFloat64)

}  // namespace PROJECT_NAMESPACE
