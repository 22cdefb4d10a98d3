// torch.ops.lltm.forward: one step of the cell, written once for both doors and both devices.
// `Torch` is a door: a struct of the few calls to torch that the op needs. The doors are in
// torchship/torch_stable/torch.h and torchship/torch_aten/torch.h.
#pragma once

#include <optional>
#include <tuple>

#include "operands.h"
#include "parts.h"
#include "products.h"

namespace lltm {

template <typename Torch, Device device>
class StepForward {
 public:
  using Tensor = typename Torch::Tensor;

  static constexpr const char* kSchema =
      "forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> "
      "(Tensor new_h, Tensor new_cell, Tensor gates)";

  // Arguments: input (B, I), weights (3S, S + I), bias (3S) or (1, 3S), old_h and old_cell (B, S).
  // Returns new_h (B, S), new_cell (B, S), and gates (B, 3, S), the pre-activations.
  static std::tuple<Tensor, Tensor, Tensor> run(const Tensor& input, const Tensor& weights,
                                                const Tensor& bias, const Tensor& old_h,
                                                const Tensor& old_cell) {
    const StepSizes sizes = Check::step(input, weights, bias, old_h);
    Check::like_input(old_cell, "old_cell", input, sizes, {sizes.batch, sizes.state}, "(B, S)");

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = Calls::execution(input);
    lltm_step_forward_arguments step = {};
    step.sizes = sizes.step();
    const lltm_step_plan plan = Calls::plan_step(sizes.dtype, LLTM_FORWARD, 0, step.sizes, where);
    const Tensor gates = Torch::empty({sizes.batch, 3, sizes.state}, input);
    const Tensor new_h = Torch::empty({sizes.batch, sizes.state}, input);
    const Tensor new_cell = Torch::empty({sizes.batch, sizes.state}, input);
    step.input = Torch::data(input);
    step.weights = Torch::data(weights);
    step.bias = Torch::data(bias);
    step.old_h = Torch::data(old_h);
    step.old_cell = Torch::data(old_cell);
    step.gates = Torch::data(gates);
    step.new_h = Torch::data(new_h);
    step.new_cell = Torch::data(new_cell);
    step.sizes.allow_tf32 = plan.allow_tf32;
    if (plan.family != 0) {
      const std::optional<Tensor> workspace = Calls::workspace(plan.workspace_bytes, input);
      step.workspace = Calls::data_or_null(workspace);
      Calls::check(Calls::kernels().step_forward(sizes.dtype, plan.family, &step, &where));
    } else {  // family 0: torch's GEMM, then a pointwise kernel
      if (kGemmAddsBias) step.bias = nullptr;
      multiply(sizes, input, weights, bias, old_h, gates);
      Calls::check(Calls::kernels().pointwise_forward(sizes.dtype, &step, &where));
    }
    return {new_h, new_cell, gates};
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using Check = OperandChecks<Torch, device>;
  using Part = Matrix<Torch>;

  // On the CPU, torch's GEMM would first copy the bias to each row of z, so pointwise_forward adds
  // it.
  static constexpr bool kGemmAddsBias = device == Device::kCUDA;

  // gates = [old_h, input] weights^T, plus the bias if kGemmAddsBias.
  static void multiply(const StepSizes& sizes, const Tensor& input, const Tensor& weights,
                       const Tensor& bias, const Tensor& old_h, const Tensor& gates) {
    const int64_t rows = 3 * sizes.state;
    const Tensor z = Part::rows_of(gates, 0, sizes.batch, rows).view();
    // On the CPU, two products cost less than a copy of a wide input. In 16 bits, two products
    // would round z twice, so one product is made.
    if (!kGemmAddsBias && sizes.features > 2 * rows && lltm_dtype_bytes(sizes.dtype) > 2) {
      Torch::mm_out(z, input, Part::input_columns(weights, sizes).transposed().view());
      Torch::addmm_out(z, z, old_h, Part::h_columns(weights, sizes).transposed().view());
      return;
    }
    const Tensor x = Torch::cat_columns(old_h, input);
    const Tensor transposed = Part::rows_of(weights, 0, rows, sizes.columns()).transposed().view();
    if (kGemmAddsBias) {
      Torch::addmm_out(z, Torch::strided(bias, {rows}, {1}, 0), x, transposed);
    } else {
      Torch::mm_out(z, x, transposed);
    }
  }
};

}  // namespace lltm
