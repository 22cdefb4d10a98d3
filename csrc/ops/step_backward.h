// torch.ops.lltm.backward: the gradients of one step of the cell.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "operands.h"
#include "parts.h"
#include "products.h"
#include "step_forward.h"

namespace lltm {

template <typename Torch, Device device>
class StepBackward {
 public:
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;

  static constexpr const char* kSchema =
      "backward(Tensor? grad_h, Tensor? grad_cell, Tensor? grad_gates, Tensor input, "
      "Tensor weights, Tensor bias, Tensor old_h, Tensor new_cell, Tensor? gates, int needs) -> "
      "(Tensor d_input, Tensor d_weights, Tensor d_bias, Tensor d_old_h, Tensor d_old_cell)";

  // A missing grad_* counts as zero. Backward computes missing gates again. `needs` is the mask of
  // the gradients to compute: 1 input, 2 weights, 4 bias, 8 old_h, 16 old_cell. The other
  // gradients have no elements.
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> run(
      const OptionalTensor& grad_h, const OptionalTensor& grad_cell,
      const OptionalTensor& grad_gates, const Tensor& input, const Tensor& weights,
      const Tensor& bias, const Tensor& old_h, const Tensor& new_cell,
      const OptionalTensor& given_gates, int64_t needs) {
    const StepSizes sizes = Check::step(input, weights, bias, old_h);
    const auto matrix = {sizes.batch, sizes.state};
    const auto gate_matrix = {sizes.batch, int64_t{3}, sizes.state};
    Check::like_input(new_cell, "new_cell", input, sizes, matrix, "(B, S)");
    Check::like_input(given_gates, "gates", input, sizes, gate_matrix, "(B, 3, S)");
    Check::like_input(grad_h, "grad_h", input, sizes, matrix, "(B, S)", kAnyStrides);
    Check::like_input(grad_cell, "grad_cell", input, sizes, matrix, "(B, S)", kAnyStrides);
    Check::like_input(grad_gates, "grad_gates", input, sizes, gate_matrix, "(B, 3, S)");
    Check::needs(needs, "8 old_h, 16 old_cell");

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = Calls::execution(input);
    lltm_step_backward_arguments step = {};
    step.sizes = sizes.step();
    const lltm_step_plan plan =
        Calls::plan_step(sizes.dtype, LLTM_BACKWARD, needs, step.sizes, where);
    OptionalTensor gates = given_gates;
    if (!gates && plan.makes_gates == 0) {
      // Gates do not depend on the old cell state, so new_cell, which has the same shape, takes its
      // place.
      gates = std::get<2>(StepForward<Torch, device>::run(input, weights, bias, old_h, new_cell));
    }
    Gradients<Torch> d(needs, {input, weights, bias, old_h, new_cell});
    step.grad_h = Calls::data_or_null(grad_h);
    step.grad_cell = Calls::data_or_null(grad_cell);
    step.grad_gates = Calls::data_or_null(grad_gates);
    step.input = Torch::data(input);
    step.weights = Torch::data(weights);
    step.bias = Torch::data(bias);
    step.old_h = Torch::data(old_h);
    step.new_cell = Torch::data(new_cell);
    step.gates = Calls::data_or_null(gates);
    step.d_input = Calls::data_or_null(d.input);
    step.d_weights = Calls::data_or_null(d.weights);
    step.d_bias = Calls::data_or_null(d.bias);
    step.d_old_h = Calls::data_or_null(d.h);
    step.d_old_cell = Calls::data_or_null(d.cell);
    step.strides.given = kAnyStrides;
    if (grad_h) std::copy_n(Torch::strides(*grad_h), 2, step.strides.grad_h);
    if (grad_cell) std::copy_n(Torch::strides(*grad_cell), 2, step.strides.grad_cell);
    const OptionalTensor workspace = Calls::workspace(plan.workspace_bytes, input);
    step.workspace = Calls::data_or_null(workspace);
    step.sizes.allow_tf32 = plan.allow_tf32;
    if (plan.family != 0) {
      Calls::check(Calls::kernels().step_backward(sizes.dtype, plan.family, &step, &where));
    } else {  // family 0: a pointwise kernel, then torch's GEMMs
      by_gemm(sizes, step, where, input, weights, old_h, d);
    }
    return d.take(input);
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using Check = OperandChecks<Torch, device>;
  using Part = Matrix<Torch>;
  // The cell's CUDA kernels read grad_h and grad_cell with any strides.
  static constexpr bool kAnyStrides = device == Device::kCUDA;

  // Computes the gradients for which `d` has tensors. Kernels make the pointwise part and d_bias,
  // and torch makes the products.
  static void by_gemm(const StepSizes& sizes, lltm_step_backward_arguments step,
                      const lltm_execution& where, const Tensor& input, const Tensor& weights,
                      const Tensor& old_h, const Gradients<Torch>& d) {
    const Tensor d_gates = Torch::empty({sizes.batch, 3, sizes.state}, input);
    step.d_gates = Torch::data(d_gates);
    step.d_bias = nullptr;
    Calls::check(Calls::kernels().pointwise_backward(sizes.dtype, &step, &where));

    const int64_t columns = 3 * sizes.state;
    const Part of_z = Part::rows_of(d_gates, 0, sizes.batch, columns);
    const Tensor d_z = of_z.view();
    const Tensor d_z_transposed = of_z.transposed().view();
    if (d.h) Torch::mm_out(*d.h, d_z, Part::h_columns(weights, sizes).view());
    if (d.input) Torch::mm_out(*d.input, d_z, Part::input_columns(weights, sizes).view());
    if (d.weights) {
      Torch::mm_out(Part::h_columns(*d.weights, sizes).view(), d_z_transposed, old_h);
      Torch::mm_out(Part::input_columns(*d.weights, sizes).view(), d_z_transposed, input);
    }
    if (d.bias) Calls::sum_columns(sizes.dtype, sizes.batch, columns, d_gates, *d.bias, where);
  }
};

}  // namespace lltm
