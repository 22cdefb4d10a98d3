// What both operators need to call a kernel: the table, where it runs, and what it answers.
#pragma once

#include <stdexcept>

#include "../kernels/lltm_kernels.h"
#include "cuda_stream.h"
#include "guards.h"
#include "kernel_registry.h"

namespace lltm {

template <typename Torch, Device device>
struct KernelCalls {
  using Tensor = typename Torch::Tensor;
  using Guard = Guards<Torch>;

  static const lltm_kernel_functions& kernels() {
    const lltm_kernel_functions* attached = attached_kernels(device);
    if (attached == nullptr) {
      Guard::fail("the ", device == Device::kCUDA ? "CUDA" : "CPU",
                  " kernels are not loaded; `python -m lltm_conda` says why and what to do");
    }
    return *attached;
  }

  static lltm_execution execution(const Tensor& input) {
    lltm_execution where = {};
    if constexpr (device == Device::kCUDA) {
      where.device_index = Torch::device_index(input);
      if (!current_cuda_stream(where.device_index, &where.stream)) {
        Guard::fail("torch gave no current CUDA stream for ", Guard::device(input),
                    "; check that torch.cuda.is_available()");
      }
    } else {
      where.parallel_for = Torch::parallel_for;
    }
    return where;
  }

  static void check_kernel(const char* error) {
    if (error != nullptr) throw std::runtime_error(error);
  }

  // A further argument of an operator, which must be as `input` is.
  static void check_tensor(const Tensor& tensor, const char* name, const Tensor& input) {
    Guard::on_device(tensor, name, device);
    Guard::like(tensor, name, input, "input");
    Guard::contiguous(tensor, name);
  }
};

}  // namespace lltm
