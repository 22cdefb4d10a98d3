// Door 1: the op's calls to torch, through LibTorch's stable ABI (torch >= 2.10).
#pragma once

#include <dlfcn.h>
#include <torch/csrc/stable/accelerator.h>
#include <torch/csrc/stable/library.h>
#include <torch/csrc/stable/ops.h>
#include <torch/csrc/stable/tensor.h>

#include <array>
#include <initializer_list>
#include <iterator>
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

struct StableTorch : TensorCalls<StableTorch, torch::stable::Tensor> {
  // The C++ types of `Device` and `ScalarType` in a schema.
  using DeviceArgument = torch::stable::Device;
  using DtypeArgument = torch::headeronly::ScalarType;

  static constexpr bool kIsStable = true;
  // Torch 2.13 has Generator, and a name for its version.
  static constexpr bool kHasGenerator = TORCH_FEATURE_VERSION >= ((2ULL << 56) | (13ULL << 48));

  static DeviceArgument cpu() { return {torch::headeronly::DeviceType::CPU, 0}; }
  static int32_t dtype_code(DtypeArgument dtype) { return static_cast<int32_t>(dtype); }

  static bool is_meta(const Tensor& tensor) {
    return tensor.device().type() == torch::headeronly::DeviceType::Meta;
  }
  static int32_t device_index(const Tensor& tensor) { return tensor.get_device_index(); }

  static int32_t scalar_type(const Tensor& tensor) {
    int32_t code = -1;
    check(aoti_torch_get_dtype(tensor.get(), &code), "dtype query");
    return code;
  }

  template <typename Sizes = std::initializer_list<int64_t>>
  static Tensor empty(const Sizes& sizes, const Tensor& like) {
    return empty(sizes, like, scalar_type(like));
  }
  template <typename Sizes = std::initializer_list<int64_t>>
  static Tensor empty(const Sizes& sizes, const Tensor& like, int32_t dtype) {
    int32_t device_type = 0;
    check(aoti_torch_get_device_type(like.get(), &device_type), "device query");
    return allocate(sizes, dtype, device_type, device_index(like));
  }
  template <typename Sizes = std::initializer_list<int64_t>>
  static Tensor empty_on(const Sizes& sizes, int32_t dtype, const DeviceArgument& device) {
    return allocate(sizes, dtype, static_cast<int32_t>(device.type()), device.index());
  }
  // The result is contiguous, even if dimensions of size 1 have unusual strides in `model`.
  static Tensor empty_like(const Tensor& model) { return empty(model.sizes(), model); }

  // Returns a view that starts `offset` elements after the start of `tensor`.
  template <typename Sizes = std::initializer_list<int64_t>>
  static Tensor strided(const Tensor& tensor, const Sizes& sizes, const Sizes& strides,
                        int64_t offset) {
    AtenTensorHandle handle = nullptr;
    check(aoti_torch__reinterpret_tensor(tensor.get(), static_cast<int64_t>(sizes.size()),
                                         std::data(sizes), std::data(strides), offset, &handle),
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

  // The rows of `tensor`, along `dim`, that a tensor of int32 or int64 names.
  static Tensor index_select(const Tensor& tensor, int64_t dim, const Tensor& indices) {
    return call("aten::index_select", without_gradient(tensor), dim, indices);
  }

  // Fill a tensor with random numbers of torch's default generator for its device, which
  // torch.manual_seed seeds.
  static void fill_uniform(const Tensor& tensor, double from, double to) {
    call("aten::uniform_", tensor, from, to, std::nullopt);
  }
  static void fill_normal(const Tensor& tensor, double mean, double deviation) {
    call("aten::normal_", tensor, mean, deviation, std::nullopt);
  }

  // Returns a number from 0 to 2^63 - 1 of torch's default generator for the CPU, with which a
  // kernel may seed a generator of its own.
  static int64_t draw_seed() {
    const Tensor seed = empty_on({1}, Dtype::kInt64, cpu());
    call("aten::random_", seed, std::nullopt);
    return item<int64_t>(seed);
  }

  // The same elements, of which autograd records nothing.
  static Tensor without_gradient(const Tensor& tensor) {
    return strided(tensor, size_list(tensor), stride_list(tensor), 0);
  }

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
    explicit DeviceGuard(const DeviceArgument& device) {
      if (device.is_cuda() && device.has_index()) guard_.emplace(device.index());
    }

   private:
    std::optional<torch::stable::accelerator::DeviceGuard> guard_;
  };

 private:
  template <typename Sizes>
  static Tensor allocate(const Sizes& sizes, int32_t dtype, int32_t device_type,
                         int32_t device_index) {
    std::array<int64_t, 64> strides;  // torch has no tensors of more dimensions
    int64_t stride = 1;
    for (size_t dim = sizes.size(); dim-- > 0;) {
      strides[dim] = stride;
      stride *= std::data(sizes)[dim];
    }
    AtenTensorHandle handle = nullptr;
    check(aoti_torch_empty_strided(static_cast<int64_t>(sizes.size()), std::data(sizes),
                                   strides.data(), dtype, device_type, device_index, &handle),
          "allocation");
    return with_large_pages(Tensor(handle));
  }

  // Calls an operator of torch through the dispatcher. `values` are all of its arguments; its one
  // result is a tensor. The operator must be without a Scalar, which the stable ABI cannot pass.
  template <typename... Values>
  static Tensor call(const char* name, const Values&... values) {
    std::array<StableIValue, sizeof...(values)> stack{torch::stable::detail::from(values)...};
    check(torch_call_dispatcher(name, "", stack.data(), TORCH_ABI_VERSION), name);
    return torch::stable::detail::to<Tensor>(stack[0]);
  }

  // Throws if `error` reports a failure. `what` names the call to torch.
  static void check(AOTITorchError error, const char* what) {
    if (error == AOTI_TORCH_SUCCESS) return;
    throw std::runtime_error(std::string(PROJECT_NAME ": torch's ") + what + " failed: " + cause());
  }

  // Returns the cause of torch's last failure, which torch tells from 2.13 on.
  static std::string cause() {
    const char* text = last_exception();
    if (text != nullptr && *text != 0) return text;
    return "out of memory, or a CUDA error of this or of an earlier operation; torch printed the "
           "cause to the standard error output";
  }

  // Returns the text of torch's last exception, or nullptr before torch 2.13. That function of
  // torch is newer than the target, so it is looked up by name: by torch's headers from 2.15 on.
  static const char* last_exception() {
#ifdef TORCH_DYNAMIC_VERSION_CALL_2_13_0
    return TORCH_DYNAMIC_VERSION_CALL_2_13_0(torch_exception_get_what_without_backtrace, no_text);
#else
    const auto what = reinterpret_cast<decltype(&no_text)>(
        dlsym(RTLD_DEFAULT, "torch_exception_get_what_without_backtrace"));
    return what != nullptr ? what() : nullptr;
#endif
  }
  static const char* no_text() { return nullptr; }
};

using Door = StableTorch;

}  // namespace PROJECT_NAMESPACE

#define PROJECT_LIBRARY(name, library) STABLE_TORCH_LIBRARY(name, library)
#define PROJECT_LIBRARY_IMPL(name, key, library) STABLE_TORCH_LIBRARY_IMPL(name, key, library)
#define PROJECT_BOX(function) TORCH_BOX(function)
