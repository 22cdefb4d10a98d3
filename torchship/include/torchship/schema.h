// Checks an operator's schema at compile time, and tells operators without tensors from the rest.
#pragma once

#include <type_traits>

#include "project.h"

namespace PROJECT_NAMESPACE {

// Whether the schema names the type as a whole word: "Scalar" is not in "ScalarType dtype".
constexpr bool names_type(const char* schema, const char* type) {
  const auto is_letter = [](char c) {
    return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_';
  };
  bool is_start = true;
  for (const char* place = schema; *place != 0; ++place) {
    const char* letter = place;
    const char* expected = type;
    while (*expected != 0 && *letter == *expected) {
      ++letter;
      ++expected;
    }
    if (is_start && *expected == 0 && !is_letter(*letter)) return true;
    is_start = !is_letter(*place);
  }
  return false;
}

// Fails to compile where the stable ABI cannot pass what the schema names.
template <bool is_stable, bool has_generator, typename Operator>
constexpr void check_schema() {
  constexpr const char* kSchema = Operator::kSchema;
  static_assert(!is_stable || !names_type(kSchema, "Scalar"),
                "LibTorch's stable ABI cannot pass a Scalar: write `float` (or `int`) in kSchema, "
                "and let run take a double (or an int64_t)");
  static_assert(!is_stable || has_generator || !names_type(kSchema, "Generator"),
                "LibTorch's stable ABI cannot pass a Generator before torch 2.13: leave it out of "
                "kSchema, and draw with Torch::fill_uniform, Torch::fill_normal or "
                "Torch::draw_seed, which torch.manual_seed seeds; or take an `int seed`");
  static_assert(!is_stable || !(names_type(kSchema, "complex") || names_type(kSchema, "Dict") ||
                                names_type(kSchema, "Dimname") || names_type(kSchema, "Storage") ||
                                names_type(kSchema, "Stream") || names_type(kSchema, "QScheme")),
                "LibTorch's stable ABI cannot pass a complex, Dict, Dimname, Storage, Stream or "
                "QScheme: pass its parts as Tensor, float, int or str, from a Python function");
}

// Whether T is `Tensor`, or a template of it, such as an optional or a vector.
template <typename Tensor, typename T>
struct HoldsTensor : std::is_same<Tensor, T> {};
template <typename Tensor, template <typename...> class Template, typename... Parts>
struct HoldsTensor<Tensor, Template<Parts...>>
    : std::bool_constant<(HoldsTensor<Tensor, Parts>::value || ...)> {};

// Whether a function takes a tensor in any of its arguments.
template <typename Tensor, typename Function>
struct TakesTensor;
template <typename Tensor, typename Result, typename... Arguments>
struct TakesTensor<Tensor, Result (*)(Arguments...)>
    : std::bool_constant<(
          HoldsTensor<Tensor, std::remove_cv_t<std::remove_reference_t<Arguments>>>::value ||
          ...)> {};

}  // namespace PROJECT_NAMESPACE
