// Code that several operators share: calls of kernels, operands and gradients.
#pragma once

#include <cstdint>
#include <optional>
#include <tuple>
#include <utility>

#include "torchship/kernel_calls.h"

#include "../kernels/lltm_kernels.h"
#include "operands.h"

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

  static lltm_layer_plan plan_layer(lltm_pass pass, const LayerSizes& sizes,
                                    const lltm_execution& where) {
    const lltm_layer_sizes layer = sizes.layer();
    lltm_layer_plan plan = {};
    check(kernels().layer_plan(sizes.dtype, pass, &layer, &where, &plan));
    return plan;
  }

  // Writes the sums of the columns of `matrix` (rows, columns) to `sums` (columns).
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

// The tensors that a step or a layer is called with.
template <typename Tensor>
struct Operands {
  Tensor input;
  Tensor weights;
  std::optional<Tensor> bias;
  std::optional<Tensor> h;     // before the first step
  std::optional<Tensor> cell;  // before the first step
};

// The gradients that a backward operator was asked for, each with the shape of its operand.
template <typename Torch>
struct Gradients {
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;

  OptionalTensor input;
  OptionalTensor weights;
  OptionalTensor bias;
  OptionalTensor h;
  OptionalTensor cell;

  // Allocates the gradients that the mask `needs` asks for. A missing operand has no gradient.
  Gradients(int64_t needs, const Operands<Tensor>& of)
      : input(like(of.input, needs & LLTM_NEEDS_INPUT)),
        weights(like(of.weights, needs & LLTM_NEEDS_WEIGHTS)),
        bias(like(of.bias, needs & LLTM_NEEDS_BIAS)),
        h(like(of.h, needs & LLTM_NEEDS_OLD_H)),
        cell(like(of.cell, needs & LLTM_NEEDS_OLD_CELL)) {}

  // Moves the gradients out, in the operator's order. A gradient that was not allocated becomes a
  // tensor without elements.
  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> take(const Tensor& model) {
    const auto or_nothing = [&](OptionalTensor& gradient) {
      return gradient ? std::move(*gradient) : Torch::empty({0}, model);
    };
    return {or_nothing(input), or_nothing(weights), or_nothing(bias), or_nothing(h),
            or_nothing(cell)};
  }

 private:
  static OptionalTensor like(const OptionalTensor& operand, int64_t bit) {
    return operand && bit != 0 ? OptionalTensor(Torch::empty_like(*operand)) : std::nullopt;
  }
};

}  // namespace lltm
