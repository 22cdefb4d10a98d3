// Helpers for calling a kernel: its table, its device and stream, its memory, and its errors.
#pragma once

#include <optional>
#include <stdexcept>

#include "guards.h"
#include "kernel_registry.h"

// A function of libtorch_cuda, from torch 2.4 on. The reference is weak, so one glue loads into CPU
// and CUDA builds of torch. The declaration is here, so the glue needs no CUDA header.
extern "C" __attribute__((weak)) int32_t aoti_torch_get_current_cuda_stream(int32_t device_index,
                                                                            void** stream);

namespace PROJECT_NAMESPACE {

// `Table` is the client's table of functions. Its first member is the table_head.
template <typename Torch, Device device, typename Table>
struct AttachedKernels {
  using Tensor = typename Torch::Tensor;
  using Guard = Guards<Torch>;
  static_assert(device != Device::kMeta, "a tensor on `meta` has no elements for a kernel");

  static const Table& kernels() {
    const TableHead* attached = attached_kernels(device);
    if (attached == nullptr) {
      Guard::fail("the ", device == Device::kCUDA ? "CUDA" : "CPU",
                  " kernels are not loaded; `python -m " PROJECT_PACKAGE
                  "` says why and what to do");
    }
    return *reinterpret_cast<const Table*>(attached);
  }

  static PROJECT_SYMBOL(execution) execution(const Tensor& input) {
    PROJECT_SYMBOL(execution) where = {};
    if constexpr (device == Device::kCUDA) {
      where.device_index = Torch::device_index(input);
      if (aoti_torch_get_current_cuda_stream == nullptr ||
          aoti_torch_get_current_cuda_stream(where.device_index, &where.stream) != 0) {
        Guard::fail("torch gave no current CUDA stream for ", Guard::device(input),
                    "; check that torch.cuda.is_available()");
      }
      where.blas_handle = Torch::blas_handle();
    } else {
      where.parallel_for = Torch::parallel_for;
    }
    return where;
  }

  static void check(const char* error) {
    if (error != nullptr) throw std::runtime_error(error);
  }

  // Returns a tensor of at least `bytes` bytes, with the dtype and the device of `like`; or no
  // tensor if `bytes` is 0.
  static std::optional<Tensor> workspace(int64_t bytes, const Tensor& like) {
    if (bytes == 0) return std::nullopt;
    const int64_t element = Torch::element_size(like);
    return Torch::empty({(bytes + element - 1) / element}, like);
  }

  static void* data_or_null(const std::optional<Tensor>& tensor) {
    return tensor ? Torch::data(*tensor) : nullptr;
  }
};

}  // namespace PROJECT_NAMESPACE
