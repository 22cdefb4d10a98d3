// The calls of kernels that several operators make: the plans, and the sum of columns.
#pragma once

#include "../engine/kernel_calls.h"
#include "../kernels/lltm_kernels.h"

namespace lltm {

template <typename Torch, Device device>
struct KernelCalls : AttachedKernels<Torch, device, lltm_kernel_functions> {
  using Base = AttachedKernels<Torch, device, lltm_kernel_functions>;
  using Tensor = typename Torch::Tensor;
  using Base::check;
  using Base::kernels;

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
