// Calls a kernel's template with the C++ type of a tensor's dtype.
#pragma once

#include <cstdio>
#include <type_traits>

#include "dtypes.h"
#include "types.h"

namespace PROJECT_NAMESPACE {

template <typename... T>
struct Types {};

using FloatingTypes = Types<float16, bfloat16, float, double>;
using IntegerTypes = Types<uint8_t, int8_t, int16_t, int32_t, int64_t>;
using UnsignedTypes = Types<uint16_t, uint32_t, uint64_t>;  // torch itself has few kernels for them
using ComplexTypes = Types<complex64, complex128>;
using Float8Types = Types<float8_e4m3fn, float8_e5m2>;

namespace detail {

// Joins types and lists of types into one list.
template <typename... Parts>
struct Joined;
template <typename... T>
struct Joined<Types<T...>> {
  using List = Types<T...>;
};
template <typename... T, typename... Next, typename... Rest>
struct Joined<Types<T...>, Types<Next...>, Rest...> : Joined<Types<T..., Next...>, Rest...> {};
template <typename... T, typename Next, typename... Rest>
struct Joined<Types<T...>, Next, Rest...> : Joined<Types<T..., Next>, Rest...> {};

// The error for a dtype that is not in a list of `count` codes.
inline const char* other_dtype_text(const int32_t* codes, int count) {
  static thread_local char text[320];
  int length = std::snprintf(text, sizeof(text), PROJECT_NAME ": tensors must be ");
  for (int k = 0; k < count && length < static_cast<int>(sizeof(text)); ++k) {
    const char* const separator = k == 0 ? "" : k == count - 1 ? " or " : ", ";
    length += std::snprintf(text + length, sizeof(text) - length, "%s%s", separator,
                            known_dtype_name(codes[k]));
  }
  if (length < static_cast<int>(sizeof(text))) {
    std::snprintf(text + length, sizeof(text) - length, "; convert them");
  }
  return text;
}

template <typename Function, typename... T>
const char* dispatch(int32_t code, const Function& function, Types<T...>) {
  constexpr int32_t kCodes[] = {DtypeOf<T>::kCode...};
  const char* error = nullptr;
  const bool is_found =
      ((code == DtypeOf<T>::kCode ? (error = function(T{}), true) : false) || ...);
  return is_found ? error : other_dtype_text(kCodes, sizeof...(T));
}

}  // namespace detail

// Calls `function(T{})`, where T is the type among `Accepted`, which are types and lists of types,
// whose dtype has the code `scalar_type`:
//
//   dispatch<FloatingTypes, int32_t, bool>(arguments->dtype, [&](auto zero) -> const char* {
//     using T = decltype(zero);
//     ...
//   });
//
// Returns the function's result, or an error text that names the accepted dtypes.
template <typename... Accepted, typename Function>
const char* dispatch(int32_t scalar_type, const Function& function) {
  using List = typename detail::Joined<Types<>, Accepted...>::List;
  return detail::dispatch(scalar_type, function, List{});
}

template <typename Function>
const char* dispatch_floating(int32_t scalar_type, const Function& function) {
  return dispatch<FloatingTypes>(scalar_type, function);
}

template <typename Function>
const char* dispatch_integers(int32_t scalar_type, const Function& function) {
  return dispatch<IntegerTypes>(scalar_type, function);
}

}  // namespace PROJECT_NAMESPACE
