// Door 1: the op's calls to torch, through LibTorch's stable ABI (torch >= 2.10).
#pragma once

#include <dlfcn.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <initializer_list>
#include <optional>
#include <stdexcept>
#include <string>

#include "../door.h"
#include "../kernel_table.h"

// Declared here, not included from torch/csrc/inductor/aoti_torch/generated/c_shim_cuda.h, because
// the CUDA functions must be weak: a CPU build of torch lacks them. These aoti_torch functions are
// part of the C interface that AOTInductor's packages link against; torch keeps it stable. They
// call ATen without the dispatcher, so autograd and autocast do not see the calls.
extern "C" {
AOTITorchError aoti_torch_cpu_cat(const AtenTensorHandle*, int64_t, int64_t, AtenTensorHandle*);
AOTITorchError aoti_torch_cpu_addmm_out(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle,
                                        AtenTensorHandle, double, double);
AOTITorchError aoti_torch_cpu_mm_out(AtenTensorHandle, AtenTensorHandle, AtenTensorHandle);
__attribute__((weak)) decltype(aoti_torch_cpu_cat) aoti_torch_cuda_cat;
__attribute__((weak)) decltype(aoti_torch_cpu_addmm_out) aoti_torch_cuda_addmm_out;
__attribute__((weak)) decltype(aoti_torch_cpu_mm_out) aoti_torch_cuda_mm_out;
__attribute__((weak)) AOTITorchError torch_get_current_cuda_blas_handle(void** handle);
}

namespace PROJECT_NAMESPACE {

struct StableTorch : TensorCalls<torch::stable::Tensor> {
  static int32_t device_index(const Tensor& tensor) { return tensor.get_device_index(); }

  static int32_t scalar_type(const Tensor& tensor) {
    int32_t code = -1;
    check(aoti_torch_get_dtype(tensor.get(), &code), "dtype query");
    return code;
  }

  template <typename Sizes = std::initializer_list<int64_t>>
  static Tensor empty(const Sizes& sizes, const Tensor& like) {
    std::array<int64_t, 64> strides;  // torch has no tensors of more dimensions
    int64_t stride = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      strides[dim] = stride;
      stride *= sizes.begin()[dim];
    }
    int32_t device_type = 0;
    check(aoti_torch_get_device_type(like.get(), &device_type), "device query");
    AtenTensorHandle handle = nullptr;
    check(
        aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), sizes.begin(), strides.data(),
                                 scalar_type(like), device_type, device_index(like), &handle),
        "allocation");
    return with_large_pages(Tensor(handle));
  }
  // The result is contiguous, even if dimensions of size 1 have unusual strides in `model`.
  static Tensor empty_like(const Tensor& model) { return empty(model.sizes(), model); }

  // Returns a view that starts `offset` elements after the start of `tensor`.
  static Tensor strided(const Tensor& tensor, std::initializer_list<int64_t> sizes,
                        std::initializer_list<int64_t> strides, int64_t offset) {
    AtenTensorHandle handle = nullptr;
    check(aoti_torch__reinterpret_tensor(tensor.get(), static_cast<int64_t>(sizes.size()),
                                         sizes.begin(), strides.begin(), offset, &handle),
          "view");
    return Tensor(handle);
  }

  static Tensor cat_columns(const Tensor& left, const Tensor& right) {
    const AtenTensorHandle parts[] = {left.get(), right.get()};
    AtenTensorHandle handle = nullptr;
    const auto cat = left.is_cuda() ? aoti_torch_cuda_cat : aoti_torch_cpu_cat;
    check(cat(parts, 2, 1, &handle), "cat");
    return Tensor(handle);
  }

  // out = bias + left right
  static void addmm_out(const Tensor& out, const Tensor& bias, const Tensor& left,
                        const Tensor& right) {
    const auto addmm = out.is_cuda() ? aoti_torch_cuda_addmm_out : aoti_torch_cpu_addmm_out;
    check(addmm(out.get(), bias.get(), left.get(), right.get(), 1.0, 1.0), "addmm");
  }

  // out = left right
  static void mm_out(const Tensor& out, const Tensor& left, const Tensor& right) {
    const auto mm = out.is_cuda() ? aoti_torch_cuda_mm_out : aoti_torch_cpu_mm_out;
    check(mm(out.get(), left.get(), right.get()), "mm");
  }

  static void copy(const Tensor& to, const Tensor& from) {
    check(aoti_torch_copy_(to.get(), from.get(), 0), "copy");
  }
  static void zero(const Tensor& tensor) { check(aoti_torch_zero_(tensor.get()), "zero"); }

  static void parallel_for(int64_t begin, int64_t end, int64_t grain_size,
                           PROJECT_SYMBOL(range_function) function, void* context) {
    check(torch_parallel_for(begin, end, grain_size, function, context), "parallel_for");
  }

  static PROJECT_SYMBOL(blas_handle) blas_handle() {
    if (torch_get_current_cuda_blas_handle == nullptr) return nullptr;
    return []() -> void* {
      void* handle = nullptr;
      return torch_get_current_cuda_blas_handle(&handle) == AOTI_TORCH_SUCCESS ? handle : nullptr;
    };
  }

  // Makes the tensor's device current; does nothing for CPU tensors.
  class DeviceGuard {
   public:
    explicit DeviceGuard(const Tensor& tensor) {
      if (tensor.is_cuda()) guard_.emplace(tensor.get_device_index());
    }

   private:
    std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  };

 private:
  // Throws if `error` reports a failure. `what` names the call to torch.
  static void check(AOTITorchError error, const char* what) {
    if (error == AOTI_TORCH_SUCCESS) return;
    throw std::runtime_error(std::string(PROJECT_NAME ": torch's ") + what + " failed: " + cause());
  }

  // Returns the cause of torch's last failure. From torch 2.13 on, a function of torch returns the
  // text of the last exception. This code looks up that function by name, so that the object also
  // loads into older torches.
  static std::string cause() {
    if (void* torch = dlopen("libtorch_cpu.so", RTLD_LAZY | RTLD_NOLOAD)) {
      using What = const char* (*)();
      const auto what =
          reinterpret_cast<What>(dlsym(torch, "torch_exception_get_what_without_backtrace"));
      const std::string text = what != nullptr ? what() : "";
      dlclose(torch);
      if (!text.empty()) return text;
    }
    return "out of memory, or a CUDA error of this or of an earlier operation; torch printed the "
           "cause to the standard error output";
  }
};

using Door = StableTorch;

}  // namespace PROJECT_NAMESPACE

#define PROJECT_LIBRARY(name, library) STABLE_TORCH_LIBRARY(name, library)
#define PROJECT_LIBRARY_IMPL(name, key, library) STABLE_TORCH_LIBRARY_IMPL(name, key, library)
#define PROJECT_BOX(function) TORCH_BOX(function)
