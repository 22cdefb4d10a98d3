// The recurrence of layer_backward, step by step, if no family of the kernels runs it whole.
#pragma once

#include <algorithm>
#include <optional>

#include "kernel_calls.h"
#include "operands.h"
#include "step_products.h"

namespace lltm {

// Calls `products(first, last)` for each part of the sequence in the plan, the last part first.
template <typename Torch, Device device, typename Products>
void run_backward_loop(const LayerSizes& sizes, const lltm_layer_backward_arguments& layer,
                       const lltm_layer_plan& layer_plan, const typename Torch::Tensor& weights,
                       const typename Torch::Tensor& d_gates,
                       const std::optional<typename Torch::Tensor>& d_initial_h,
                       const lltm_execution& where, const Products& products) {
  using Calls = KernelCalls<Torch, device>;
  using Tensor = typename Torch::Tensor;
  lltm_step_backward_arguments step = {};
  step.sizes = sizes.step();
  const lltm_step_plan plan = Calls::plan_step(
      sizes.dtype, LLTM_BACKWARD, LLTM_NEEDS_OLD_H | LLTM_NEEDS_OLD_CELL, step.sizes, where);
  const StepProducts<Torch, device> of_step(sizes, plan, where);
  const int64_t planes = std::max<int64_t>(plan.split_k, 1);  // of d_old_h
  // In 16 bits, the gradient of the cell state would lose small addends.
  const bool float32_cells = lltm_dtype_bytes(sizes.dtype) == 2;
  const auto empty_d_h = [&] {
    return planes > 1 ? Torch::empty({planes, sizes.batch, sizes.state}, d_gates)
                      : Torch::empty({sizes.batch, sizes.state}, d_gates);
  };
  // A float32 element takes the place of two 16-bit ones.
  const auto empty_d_cell = [&] {
    return Torch::empty({float32_cells ? 2 * sizes.batch : sizes.batch, sizes.state}, d_gates);
  };
  // Two of each: one is read while the other is written.
  const Tensor d_h[] = {empty_d_h(), empty_d_h()};
  const Tensor d_cells[] = {empty_d_cell(), empty_d_cell()};
  const std::optional<Tensor> workspace = Calls::workspace(plan.workspace_bytes, d_gates);
  const int64_t plane_bytes = sizes.plane() * lltm_dtype_bytes(sizes.dtype);
  const auto at = [&](const void* sequence, int64_t plane) -> const void* {
    return sequence != nullptr ? static_cast<const char*>(sequence) + plane * plane_bytes : nullptr;
  };
  step.weights = Torch::data(weights);
  step.workspace = Calls::data_or_null(workspace);
  step.more_grad_h = layer.grad_final_h;
  step.more_grad_cell = layer.grad_final_cell;
  int64_t last = sizes.steps;
  const int64_t* part_start = layer_plan.part_starts;
  for (int64_t n = sizes.steps - 1; n >= 0; --n) {
    const int64_t t = sizes.time(n);
    step.grad_h = at(layer.grad_output, t);
    step.grad_cell = at(layer.grad_cells, t);
    step.gates = at(layer.gates, 3 * t);
    step.new_cell = at(layer.cells, t);
    step.d_gates = static_cast<char*>(layer.d_gates) + 3 * t * plane_bytes;
    step.d_old_h = n > 0 ? Torch::data(d_h[n % 2]) : layer.d_initial_h;
    step.d_old_cell = n > 0 ? Torch::data(d_cells[n % 2]) : layer.d_initial_cell;
    step.float32.more_grad_cell = float32_cells && n + 1 < sizes.steps;
    step.float32.d_old_cell = float32_cells && n > 0;
    if (plan.family != 0 && step.d_old_h != nullptr && step.d_old_cell != nullptr) {
      Calls::check(Calls::kernels().step_backward(sizes.dtype, plan.family, &step, &where));
    } else {
      step.more_grad_h_planes = n + 1 < sizes.steps ? plan.split_k : 1;
      Calls::check(Calls::kernels().cell_backward(sizes.dtype, &step, &where));
      if (n > 0) {
        of_step.of_gates(d_h[n % 2], planes, d_gates, t, weights);
      } else if (d_initial_h) {
        of_step.of_gates(*d_initial_h, 1, d_gates, t, weights);
      }
    }
    step.more_grad_h = step.d_old_h;
    step.more_grad_cell = step.d_old_cell;
    if (n == *part_start) {
      products(n, last);
      last = n;
      ++part_start;
    }
  }
}

}  // namespace lltm
