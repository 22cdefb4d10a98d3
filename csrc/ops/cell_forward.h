// torch.ops.lltm.forward: one step of the cell, written once for both doors and both devices.
// `Torch` is the door: a struct of the few calls to torch that the op needs, see
// engine/torch_stable/torch.h and engine/torch_aten/torch.h.
#pragma once

#include <optional>
#include <tuple>

#include "kernel_calls.h"
#include "operands.h"

namespace lltm {

template <typename Torch, Device device>
class CellForward {
 public:
  using Tensor = typename Torch::Tensor;

  static constexpr const char* kSchema =
      "forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> "
      "(Tensor new_h, Tensor new_cell, Tensor gates)";

  // input (B, I), weights (3S, S + I), bias (3S) or (1, 3S), old_h and old_cell (B, S)
  // -> new_h (B, S), new_cell (B, S), gates (B, 3, S), the pre-activations
  static std::tuple<Tensor, Tensor, Tensor> run(const Tensor& input, const Tensor& weights,
                                                const Tensor& bias, const Tensor& old_h,
                                                const Tensor& old_cell) {
    const CellSizes sizes = Check::cell(input, weights, bias, old_h);
    Check::like_input(old_cell, "old_cell", input, sizes, {sizes.batch, sizes.state}, "(B, S)");

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = Calls::execution(input);
    const lltm_step_sizes step_sizes = sizes.step();
    const lltm_step_plan plan = Calls::plan_step(sizes.dtype, LLTM_FORWARD, 0, step_sizes, where);
    const Tensor gates = Torch::empty({sizes.batch, 3, sizes.state}, input);
    const Tensor new_h = Torch::empty({sizes.batch, sizes.state}, input);
    const Tensor new_cell = Torch::empty({sizes.batch, sizes.state}, input);
    if (plan.family != 0) {
      const std::optional<Tensor> workspace = Calls::workspace(plan.workspace_bytes, input);
      lltm_step_forward_arguments step = {};
      step.sizes = step_sizes;
      step.input = Torch::data(input);
      step.weights = Torch::data(weights);
      step.bias = Torch::data(bias);
      step.old_h = Torch::data(old_h);
      step.old_cell = Torch::data(old_cell);
      step.gates = Torch::data(gates);
      step.new_h = Torch::data(new_h);
      step.new_cell = Torch::data(new_cell);
      step.workspace = Calls::data_or_null(workspace);
      Calls::check(Calls::kernels().step_forward(sizes.dtype, plan.family, &step, &where));
    } else {
      multiply(sizes, plan, input, weights, bias, old_h, gates);
      lltm_cell_forward_arguments cell = {};
      cell.batch_size = sizes.batch;
      cell.state_size = sizes.state;
      cell.gates = Torch::data(gates);
      cell.bias = plan.gemm_adds_bias != 0 ? nullptr : Torch::data(bias);
      cell.old_cell = Torch::data(old_cell);
      cell.new_h = Torch::data(new_h);
      cell.new_cell = Torch::data(new_cell);
      Calls::check(Calls::kernels().cell_forward(sizes.dtype, &cell, &where));
    }
    return {new_h, new_cell, gates};
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using Check = Operands<Torch, device>;

  // gates = [old_h, input] weights^T, with the bias where the plan says so
  static void multiply(const CellSizes& sizes, const lltm_step_plan& plan, const Tensor& input,
                       const Tensor& weights, const Tensor& bias, const Tensor& old_h,
                       const Tensor& gates) {
    const int64_t rows = 3 * sizes.state;
    const Tensor x = Torch::cat_columns(old_h, input);
    const Tensor z = Torch::strided(gates, {sizes.batch, rows}, {rows, 1}, 0);
    const Tensor transposed =
        Torch::strided(weights, {sizes.columns(), rows}, {1, sizes.columns()}, 0);
    if (plan.gemm_adds_bias != 0) {
      Torch::addmm_out(z, Torch::strided(bias, {rows}, {1}, 0), x, transposed);
    } else {
      Torch::mm_out(z, x, transposed);
    }
  }
};

}  // namespace lltm
