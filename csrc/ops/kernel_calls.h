// What an operator needs to call a kernel: the table, where it runs, a plan, memory, and errors.
#pragma once

#include <optional>
#include <stdexcept>

#include "../engine/cuda_stream.h"
#include "../engine/guards.h"
#include "../engine/kernel_registry.h"
#include "../kernels/lltm_kernels.h"

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

  static void check(const char* error) {
    if (error != nullptr) throw std::runtime_error(error);
  }

  static lltm_step_plan plan_step(lltm_dtype dtype, lltm_pass pass, int64_t needs,
                                  const lltm_step_sizes& sizes, const lltm_execution& where) {
    lltm_step_plan plan = {};
    check(kernels().step_plan(dtype, pass, static_cast<int32_t>(needs), &sizes, &where, &plan));
    return plan;
  }

  static lltm_layer_plan plan_layer(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes& sizes,
                                    const lltm_execution& where) {
    lltm_layer_plan plan = {};
    check(kernels().layer_plan(dtype, pass, &sizes, &where, &plan));
    return plan;
  }

  // At least `bytes` bytes, in elements of the dtype of `like`; none for 0.
  static std::optional<Tensor> workspace(int64_t bytes, const Tensor& like) {
    if (bytes == 0) return std::nullopt;
    const int64_t element = lltm_dtype_bytes(*kernel_dtype(Torch::scalar_type(like)));
    return Torch::empty({(bytes + element - 1) / element}, like);
  }

  static void* data_or_null(const std::optional<Tensor>& tensor) {
    return tensor ? Torch::data(*tensor) : nullptr;
  }

  // sums (columns) = the sums of the columns of `matrix` (rows, columns).
  static void sum_columns(lltm_dtype dtype, int64_t rows, int64_t columns, const Tensor& matrix,
                          const Tensor& sums, const lltm_execution& where) {
    lltm_column_sum_arguments arguments = {};
    arguments.rows = rows;
    arguments.columns = columns;
    arguments.matrix = Torch::data(matrix);
    arguments.sums = Torch::data(sums);
    check(kernels().column_sum(dtype, &arguments, &where));
  }
};

}  // namespace lltm
