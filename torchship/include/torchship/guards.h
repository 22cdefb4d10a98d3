// Argument checks of the raw operators. Every message names the argument, the value that it has and
// the value that it needs, and says what to do or where the needed value comes from.
#pragma once

#include <algorithm>
#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>

#include "kernel_registry.h"
#include "kernels/dtypes.h"

// The checks of PyTorch's C++ extension tutorial, and CHECK_CPU. `Torch` must be in scope. Messages
// name the argument by the text of `x`.
#define CHECK_CPU(x) \
  ::PROJECT_NAMESPACE::Guards<Torch>::on_device(x, #x, ::PROJECT_NAMESPACE::Device::kCPU)
#define CHECK_CUDA(x) \
  ::PROJECT_NAMESPACE::Guards<Torch>::on_device(x, #x, ::PROJECT_NAMESPACE::Device::kCUDA)
#define CHECK_CONTIGUOUS(x) ::PROJECT_NAMESPACE::Guards<Torch>::contiguous(x, #x)
#define CHECK_INPUT(x) \
  ::PROJECT_NAMESPACE::Guards<Torch>::input(x, #x, ::PROJECT_NAMESPACE::Device::kCUDA)

namespace PROJECT_NAMESPACE {

// The name of a dtype, by torch's code.
inline std::string dtype_name(int32_t scalar_type) {
  const char* const name = known_dtype_name(scalar_type);
  return name != nullptr ? name : "scalar type " + std::to_string(scalar_type);
}

// The text of a part of a message. Messages are joined from strings, because a stream would use
// locales, which crash if a process has both a statically linked libstdc++ and torch's libstdc++.
inline std::string text_of(const char* part) { return part; }
inline std::string text_of(const std::string& part) { return part; }
inline std::string text_of(int64_t part) { return std::to_string(part); }

inline std::string list_text(const int64_t* values, int64_t count) {
  std::string text = "(";
  for (int64_t k = 0; k < count; ++k) text += (k > 0 ? ", " : "") + std::to_string(values[k]);
  return text + (count == 1 ? ",)" : ")");
}

template <typename Torch>
struct Guards {
  using Tensor = typename Torch::Tensor;

  template <typename... Parts>
  [[noreturn]] static void fail(const Parts&... parts) {
    throw std::runtime_error(PROJECT_NAME ": " + (text_of(parts) + ...));
  }

  static std::string shape(const Tensor& tensor) {
    return list_text(Torch::sizes(tensor), Torch::dim(tensor));
  }

  static std::string device(const Tensor& tensor) {
    if (Torch::is_cpu(tensor)) return "cpu";
    if (Torch::is_meta(tensor)) return "meta";
    const std::string index = std::to_string(Torch::device_index(tensor));
    return (Torch::is_cuda(tensor) ? "cuda:" : "another device, index ") + index;
  }

  static void on_device(const Tensor& tensor, const char* name, Device wanted) {
    if (wanted == Device::kMeta && Torch::is_meta(tensor)) return;
    const bool cuda = wanted == Device::kCUDA;
    if (cuda ? Torch::is_cuda(tensor) : wanted == Device::kCPU && Torch::is_cpu(tensor)) return;
    if (wanted == Device::kMeta) {
      fail(name, " must be a tensor on meta like the other arguments, got one on ", device(tensor),
           "; move it with ", name, ".to(\"meta\")");
    }
    fail(name, " must be a ", cuda ? "CUDA" : "CPU",
         " tensor like the other arguments, got one on ", device(tensor), "; move it with ", name,
         cuda ? ".cuda()" : ".cpu()");
  }

  static void contiguous(const Tensor& tensor, const char* name) {
    if (Torch::is_contiguous(tensor)) return;
    const std::string strides = list_text(Torch::strides(tensor), Torch::dim(tensor));
    fail(name, " must be contiguous, got shape ", shape(tensor), " with strides ", strides,
         "; call ", name, ".contiguous()");
  }

  // Checks that the tensor is on the device and contiguous, so that a kernel can read it.
  static void input(const Tensor& tensor, const char* name, Device wanted) {
    on_device(tensor, name, wanted);
    contiguous(tensor, name);
  }

  // Checks that the tensor has the shape of `model`. Messages call the model `model_name`.
  static void same_shape(const Tensor& tensor, const char* name, const Tensor& model,
                         const char* model_name) {
    if (shape(tensor) != shape(model)) {
      fail(name, " must have the shape of ", model_name, ", ", shape(model), ", got ",
           shape(tensor), "; reshape it");
    }
  }

  // Checks that the tensor has the dtype and the device index of `model`.
  static void like(const Tensor& tensor, const char* name, const Tensor& model,
                   const char* model_name) {
    if (Torch::scalar_type(tensor) != Torch::scalar_type(model)) {
      const std::string wanted = dtype_name(Torch::scalar_type(model));
      fail(name, " must have the dtype of ", model_name, ", ", wanted, ", got ",
           dtype_name(Torch::scalar_type(tensor)), "; convert it with ", name, ".to(torch.", wanted,
           ")");
    }
    if (Torch::device_index(tensor) != Torch::device_index(model)) {
      fail(name, " must be on the device of ", model_name, ", ", device(model), ", got ",
           device(tensor), "; move it with ", name, ".to(", model_name, ".device)");
    }
  }

  // Checks that the dtype is one of `wanted`, which are codes of Dtype.
  static void has_dtype(const Tensor& tensor, const char* name,
                        std::initializer_list<int32_t> wanted) {
    const int32_t code = Torch::scalar_type(tensor);
    if (std::find(wanted.begin(), wanted.end(), code) != wanted.end()) return;
    std::string names;
    for (const int32_t* one = wanted.begin(); one != wanted.end(); ++one) {
      const bool is_last = one + 1 == wanted.end();
      names += (names.empty() ? "" : is_last ? " or " : ", ") + dtype_name(*one);
    }
    fail(name, " must be ", names, ", got ", dtype_name(code), "; convert it with ", name,
         ".to(torch.", dtype_name(*wanted.begin()), ")");
  }

  // Checks the number of dimensions. `meaning` writes the shape in letters.
  static void has_dim(const Tensor& tensor, const char* name, int64_t dim, const char* meaning) {
    if (Torch::dim(tensor) != dim) {
      fail(name, " must have shape ", meaning, ", got ", Torch::dim(tensor),
           " dimensions: ", shape(tensor), "; reshape it");
    }
  }

  // Checks that the tensor has the shape `wanted`, which `meaning` writes in letters. `origin` says
  // which arguments give the values of the letters.
  static void has_shape(const Tensor& tensor, const char* name,
                        std::initializer_list<int64_t> wanted, const char* meaning,
                        const char* origin) {
    const int64_t* const sizes = Torch::sizes(tensor);
    if (std::equal(wanted.begin(), wanted.end(), sizes, sizes + Torch::dim(tensor))) return;
    const auto count = static_cast<int64_t>(wanted.size());
    fail(name, " must have shape ", meaning, " = ", list_text(wanted.begin(), count), ", got ",
         shape(tensor), "; ", origin);
  }
};

}  // namespace PROJECT_NAMESPACE
