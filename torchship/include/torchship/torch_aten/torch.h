// Door 2: the op's calls to torch, through ATen. One build serves the torch minors that share one
// layout of torch's classes.
#pragma once

#include <ATen/Parallel.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/empty.h>
#include <ATen/ops/index_select.h>
#include <ATen/ops/mm.h>
#include <c10/core/DeviceGuard.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/library.h>

#include "../door.h"
#include "../kernel_table.h"

// Declared here because torch's header for this function includes CUDA's headers. The reference is
// weak because a CPU build of torch lacks the function.
struct cublasContext;
namespace at::cuda {
__attribute__((weak)) cublasContext* getCurrentCUDABlasHandle();
}

namespace PROJECT_NAMESPACE {

struct AtenTorch : TensorCalls<AtenTorch, at::Tensor> {
  // The C++ types of `Device` and `ScalarType` in a schema.
  using DeviceArgument = at::Device;
  using DtypeArgument = at::ScalarType;

  static constexpr bool kIsStable = false;
  static constexpr bool kHasGenerator = true;

  static DeviceArgument cpu() { return at::kCPU; }
  static int32_t dtype_code(DtypeArgument dtype) { return static_cast<int32_t>(dtype); }

  static bool is_meta(const Tensor& tensor) { return tensor.is_meta(); }
  static int32_t device_index(const Tensor& tensor) { return tensor.get_device(); }
  static int32_t scalar_type(const Tensor& tensor) {
    return static_cast<int32_t>(tensor.scalar_type());
  }

  static Tensor empty(at::IntArrayRef sizes, const Tensor& like) {
    return with_large_pages(at::empty(sizes, like.options()));
  }
  static Tensor empty(at::IntArrayRef sizes, const Tensor& like, int32_t dtype) {
    return with_large_pages(at::empty(sizes, like.options().dtype(DtypeArgument(dtype))));
  }
  static Tensor empty_on(at::IntArrayRef sizes, int32_t dtype, const DeviceArgument& device) {
    const auto options = at::TensorOptions(device).dtype(DtypeArgument(dtype));
    return with_large_pages(at::empty(sizes, options));
  }
  static Tensor empty_like(const Tensor& model) { return empty(model.sizes(), model); }

  // Returns a view that starts `offset` elements after the start of `tensor`.
  static Tensor strided(const Tensor& tensor, at::IntArrayRef sizes, at::IntArrayRef strides,
                        int64_t offset) {
    return tensor.as_strided(sizes, strides, tensor.storage_offset() + offset);
  }

  static Tensor cat_columns(const Tensor& left, const Tensor& right) {
    return at::cat({left, right}, 1);
  }

  // out = bias + left right
  static void addmm_out(Tensor out, const Tensor& bias, const Tensor& left, const Tensor& right) {
    at::addmm_out(out, bias, left, right);
  }

  // out = left right
  static void mm_out(Tensor out, const Tensor& left, const Tensor& right) {
    at::mm_out(out, left, right);
  }

  static void copy(Tensor to, const Tensor& from) { to.copy_(from); }
  static void zero(Tensor tensor) { tensor.zero_(); }

  // The rows of `tensor`, along `dim`, that a tensor of int32 or int64 names.
  static Tensor index_select(const Tensor& tensor, int64_t dim, const Tensor& indices) {
    return at::index_select(without_gradient(tensor), dim, indices);
  }

  // Fill a tensor with random numbers of torch's default generator for its device, which
  // torch.manual_seed seeds.
  static void fill_uniform(Tensor tensor, double from, double to) { tensor.uniform_(from, to); }
  static void fill_normal(Tensor tensor, double mean, double deviation) {
    tensor.normal_(mean, deviation);
  }

  // Returns a number from 0 to 2^63 - 1 of torch's default generator for the CPU, with which a
  // kernel may seed a generator of its own.
  static int64_t draw_seed() {
    return item<int64_t>(at::empty({1}, at::TensorOptions(at::kCPU).dtype(at::kLong)).random_());
  }

  // The same elements, of which autograd records nothing.
  static Tensor without_gradient(const Tensor& tensor) { return tensor.detach(); }

  static void parallel_for(int64_t begin, int64_t end, int64_t grain_size,
                           PROJECT_SYMBOL(range_function) function, void* context) {
    at::parallel_for(begin, end, grain_size,
                     [&](int64_t first, int64_t last) { function(first, last, context); });
  }

  static PROJECT_SYMBOL(blas_handle) blas_handle() {
    if (at::cuda::getCurrentCUDABlasHandle == nullptr) return nullptr;
    return []() -> void* { return at::cuda::getCurrentCUDABlasHandle(); };
  }

  // Makes the tensor's device current, and hides the op's calls to torch from autograd and
  // autocast, since both treat the op as one operator.
  class DeviceGuard {
   public:
    explicit DeviceGuard(const Tensor& tensor) : device_(tensor.device()) {}
    explicit DeviceGuard(const DeviceArgument& device) : device_(device) {}

   private:
    c10::OptionalDeviceGuard device_;
    c10::impl::ExcludeDispatchKeyGuard below_{c10::autograd_dispatch_keyset_with_ADInplaceOrView |
                                              c10::autocast_dispatch_keyset};
  };
};

using Door = AtenTorch;

}  // namespace PROJECT_NAMESPACE

#define PROJECT_LIBRARY(name, library) TORCH_LIBRARY(name, library)
#define PROJECT_LIBRARY_IMPL(name, key, library) TORCH_LIBRARY_IMPL(name, key, library)
#define PROJECT_BOX(function) function
