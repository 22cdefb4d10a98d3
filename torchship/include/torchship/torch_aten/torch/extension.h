// In place of torch's header of this name, which includes Python's headers: no binary of a package
// refers to Python, so that one binary serves every Python.
//
// Code with PYBIND11_MODULE is compiled as it is: what `module.def(name, function)` binds becomes
// the operator torch.ops.NAMESPACE.name, whose schema follows from the function's arguments. They
// are of types that a schema has (at::Tensor, int64_t, double, bool, std::string, and optionals and
// vectors of these), or of other types of numbers, which python_types.h converts.
#pragma once

#include <torch/all.h>
#include <torch/library.h>

#include <utility>

#include "project.h"
#include "python_types.h"

namespace PROJECT_NAMESPACE {
namespace without_python {

// What stands for a Python module.
class Module {
 public:
  explicit Module(torch::Library& library) : library_(library) {}

  // A text for Python's help has no place in an operator.
  template <typename Function>
  Module& def(const char* name, Function&& function, const char* = nullptr) {
    library_.def(name, convert_numbers(std::function{std::forward<Function>(function)}));
    return *this;
  }

  template <typename Function, typename... More>
  Module& def(const char*, Function&&, const char*, const More&...) {
    static_assert(
        sizeof...(More) == 0,
        "an operator takes no py::arg and no policies of Python's bindings: write TORCH_LIBRARY "
        "with a schema, such as library.def(\"name(Tensor x, float scale=1.0) -> "
        "Tensor\", &function)");
    return *this;
  }

 private:
  torch::Library& library_;
};

}  // namespace without_python
}  // namespace PROJECT_NAMESPACE

#define PYBIND11_MODULE(name, module)                                                   \
  static void without_python_bind(::PROJECT_NAMESPACE::without_python::Module& module); \
  TORCH_LIBRARY_FRAGMENT(PROJECT_NAMESPACE, library) {                                  \
    ::PROJECT_NAMESPACE::without_python::Module stand_in(library);                      \
    without_python_bind(stand_in);                                                      \
  }                                                                                     \
  static void without_python_bind(                                                      \
      [[maybe_unused]] ::PROJECT_NAMESPACE::without_python::Module& module)
