// In place of torch's header of this name, which includes Python's headers: no binary of a package
// refers to Python, so that one binary serves every Python.
//
// Code with PYBIND11_MODULE is compiled as it is: what `module.def(name, function)` binds becomes
// the operator torch.ops.NAMESPACE.name, whose schema follows from the function's arguments. They
// are of types that a schema has (at::Tensor, int64_t, double, bool, std::string, and optionals and
// vectors of these), or of other types of numbers, which python_types.h converts. `py::arg` gives
// an argument its name and default.
#pragma once

#include <ATen/core/function_schema.h>
#include <ATen/core/op_registration/infer_schema.h>
#include <torch/all.h>
#include <torch/library.h>

#include <cstddef>
#include <optional>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

#include "project.h"
#include "python_types.h"

namespace PROJECT_NAMESPACE {
namespace without_python {

// The name of an argument, and its default if it has one.
struct arg {
  explicit arg(const char* name) : name(name) {}

  template <typename Value>
  arg& operator=(Value value) {
    default_value = as_value(std::move(value));
    return *this;
  }
  arg& noconvert(bool = true) { return *this; }
  arg& none(bool = true) { return *this; }

  std::string name;
  std::optional<c10::IValue> default_value;

 private:
  // An IValue takes only int64_t, double and bool of the numbers.
  template <typename Value>
  static c10::IValue as_value(Value value) {
    if constexpr (std::is_same_v<Value, bool>) {
      return c10::IValue(value);
    } else if constexpr (std::is_integral_v<Value> || std::is_enum_v<Value>) {
      return c10::IValue(static_cast<int64_t>(value));
    } else if constexpr (std::is_floating_point_v<Value>) {
      return c10::IValue(static_cast<double>(value));
    } else if constexpr (std::is_convertible_v<Value, std::string>) {
      return c10::IValue(std::string(value));
    } else if constexpr (std::is_same_v<Value, std::nullopt_t>) {
      return c10::IValue();
    } else {
      return c10::IValue(std::move(value));
    }
  }
};

namespace literals {
inline arg operator""_a(const char* name, size_t) { return arg(name); }
}  // namespace literals

// Python's None, as the default of an optional argument.
inline std::nullopt_t none() { return std::nullopt; }

// A text for Python's help, or a value of its module: neither has a place in a library of
// operators.
struct Ignored {
  template <typename Value>
  const Ignored& operator=(const Value&) const {
    return *this;
  }
};

// What stands for a Python module.
class Module {
 public:
  explicit Module(torch::Library& library) : library_(library) {}

  Ignored doc() const { return {}; }
  Ignored attr(const char*) const { return {}; }

  template <typename Function, typename... More>
  Module& def(const char* name, Function&& function, const More&... more) {
    static_assert(
        (... && (std::is_same_v<More, arg> || std::is_convertible_v<More, const char*>)),
        "an operator takes py::arg and texts, and no policies of Python's bindings: leave these "
        "out, or write TORCH_LIBRARY with a schema, such as "
        "library.def(\"name(Tensor x, float scale=1.0) -> Tensor\", &function)");
    auto converted = convert_numbers(std::function{std::forward<Function>(function)});
    std::vector<arg> arguments;
    (add(arguments, more), ...);
    if (arguments.empty()) {
      library_.def(name, std::move(converted));
      return *this;
    }
    library_.def(named<decltype(converted)>(name, arguments));
    library_.impl(name, torch::CppFunction(std::move(converted)));
    return *this;
  }

 private:
  static void add(std::vector<arg>& arguments, const arg& argument) {
    arguments.push_back(argument);
  }
  static void add(std::vector<arg>&, const char*) {}

  // The schema that follows from the function, with these names and defaults.
  template <typename Function>
  static c10::FunctionSchema named(const char* name, const std::vector<arg>& arguments) {
    const auto inferred_schema = c10::detail::inferFunctionSchemaFromFunctor<Function>();
    const c10::FunctionSchema& schema = *inferred_schema;
    TORCH_CHECK(schema.arguments().size() == arguments.size(), "module.def(\"", name, "\") names ",
                arguments.size(),
                " arguments by py::arg, and the "
                "function has ",
                schema.arguments().size(), "; name each of them, or none");
    std::vector<c10::Argument> named_arguments;
    for (size_t i = 0; i < arguments.size(); ++i) {
      const c10::Argument& inferred = schema.arguments()[i];
      named_arguments.emplace_back(arguments[i].name, inferred.type(), inferred.real_type(),
                                   inferred.N(), arguments[i].default_value);
    }
    return c10::FunctionSchema(name, "", std::move(named_arguments),
                               std::vector<c10::Argument>(schema.returns()));
  }

  torch::Library& library_;
};

// The names that code gives to a module.
using module = Module;
using module_ = Module;

}  // namespace without_python
}  // namespace PROJECT_NAMESPACE

// torch's headers declare this namespace too, so it can be no alias.
namespace pybind11 {
using namespace ::PROJECT_NAMESPACE::without_python;  // NOLINT
}
namespace py = pybind11;

#define PYBIND11_MODULE(name, module)                                                   \
  static void without_python_bind(::PROJECT_NAMESPACE::without_python::Module& module); \
  TORCH_LIBRARY_FRAGMENT(PROJECT_NAMESPACE, library) {                                  \
    ::PROJECT_NAMESPACE::without_python::Module stand_in(library);                      \
    without_python_bind(stand_in);                                                      \
  }                                                                                     \
  static void without_python_bind(                                                      \
      [[maybe_unused]] ::PROJECT_NAMESPACE::without_python::Module& module)
