// Functions as Python's bindings take them, made ones that an operator can have.
//
// A schema has one type for integers, int64_t, and one for floating-point numbers, double. Bindings
// also take `int`, `unsigned`, `float` and the like, and references to arguments.
#pragma once

#include <c10/util/Exception.h>

#include <cstdint>
#include <functional>
#include <optional>
#include <tuple>
#include <type_traits>
#include <utility>
#include <vector>

#include "project.h"

namespace PROJECT_NAMESPACE {
namespace without_python {

// The schema's type for a type of C++, and the conversions between both. Types that are not named
// below stay as they are.
template <typename T, typename = void>
struct InSchema {
  using Type = T;
  static T&& from(T& value) { return std::move(value); }
  static T&& to(T&& value) { return std::move(value); }
};

template <>
struct InSchema<void> {
  using Type = void;
};

template <typename T>
struct InSchema<T, std::enable_if_t<std::is_integral_v<T> && !std::is_same_v<T, bool>>> {
  using Type = int64_t;
  static T from(int64_t value) {
    const T converted = static_cast<T>(value);
    TORCH_CHECK(static_cast<int64_t>(converted) == value && (converted < T{0}) == (value < 0),
                "the argument ", value, " is outside the range of the C++ function's type");
    return converted;
  }
  static int64_t to(T value) { return static_cast<int64_t>(value); }
};

template <typename T>
struct InSchema<T, std::enable_if_t<std::is_floating_point_v<T>>> {
  using Type = double;
  static T from(double value) { return static_cast<T>(value); }
  static double to(T value) { return static_cast<double>(value); }
};

template <typename T>
struct InSchema<std::optional<T>> {
  using Type = std::optional<typename InSchema<T>::Type>;
  static std::optional<T> from(Type& value) {
    if (!value) return std::nullopt;
    return InSchema<T>::from(*value);
  }
  static Type to(std::optional<T>&& value) {
    if (!value) return std::nullopt;
    return InSchema<T>::to(std::move(*value));
  }
};

template <typename T>
struct InSchema<std::vector<T>> {
  using Type = std::vector<typename InSchema<T>::Type>;
  static std::vector<T> from(Type& values) {
    std::vector<T> converted;
    converted.reserve(values.size());
    for (auto& value : values) converted.push_back(InSchema<T>::from(value));
    return converted;
  }
  static Type to(std::vector<T>&& values) {
    Type converted;
    converted.reserve(values.size());
    for (T& value : values) converted.push_back(InSchema<T>::to(std::move(value)));
    return converted;
  }
};

// Several results.
template <typename... Parts>
struct InSchema<std::tuple<Parts...>> {
  using Type = std::tuple<typename InSchema<Parts>::Type...>;
  static Type to(std::tuple<Parts...>&& values) {
    return std::apply(
        [](Parts&... parts) { return Type(InSchema<Parts>::to(std::move(parts))...); }, values);
  }
};

template <typename First, typename Second>
struct InSchema<std::pair<First, Second>> {
  using Type = std::tuple<typename InSchema<First>::Type, typename InSchema<Second>::Type>;
  static Type to(std::pair<First, Second>&& values) {
    return Type(InSchema<First>::to(std::move(values.first)),
                InSchema<Second>::to(std::move(values.second)));
  }
};

// A function whose arguments and results have types of a schema. It holds its arguments, so that
// the function may take references to them.
template <typename Result, typename... Arguments>
class Converted {
  template <typename T>
  using In = InSchema<std::decay_t<T>>;

 public:
  explicit Converted(std::function<Result(Arguments...)> function)
      : function_(std::move(function)) {}

  typename In<Result>::Type operator()(typename In<Arguments>::Type... values) const {
    std::tuple<std::decay_t<Arguments>...> arguments{In<Arguments>::from(values)...};
    return call(arguments, std::index_sequence_for<Arguments...>{});
  }

 private:
  template <size_t... kIndices>
  typename In<Result>::Type call(std::tuple<std::decay_t<Arguments>...>& arguments,
                                 std::index_sequence<kIndices...>) const {
    if constexpr (std::is_void_v<Result>) {
      function_(static_cast<Arguments&&>(std::get<kIndices>(arguments))...);
    } else {
      std::decay_t<Result> result =
          function_(static_cast<Arguments&&>(std::get<kIndices>(arguments))...);
      return In<Result>::to(std::move(result));
    }
  }

  std::function<Result(Arguments...)> function_;
};

template <typename Result, typename... Arguments>
Converted<Result, Arguments...> convert_numbers(std::function<Result(Arguments...)> function) {
  return Converted<Result, Arguments...>(std::move(function));
}

}  // namespace without_python
}  // namespace PROJECT_NAMESPACE
