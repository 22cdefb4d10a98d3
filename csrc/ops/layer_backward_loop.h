// The recurrence of layer_backward step by step, where no family of the kernels runs it whole.
#pragma once

#include <algorithm>
#include <optional>

#include "kernel_calls.h"
#include "operands.h"
#include "step_products.h"

namespace lltm {

template <typename Torch, Device device>
class LayerBackwardLoop {
 public:
  using Tensor = typename Torch::Tensor;

  LayerBackwardLoop(const LayerSizes& sizes, const Tensor& weights, const Tensor& d_gates,
                    const lltm_execution& where)
      : sizes_(sizes),
        weights_(weights),
        d_gates_(d_gates),
        where_(where),
        plan_(Calls::plan_step(sizes.dtype, LLTM_BACKWARD, LLTM_NEEDS_OLD_H | LLTM_NEEDS_OLD_CELL,
                               sizes.step(), where)),
        planes_(std::max<int64_t>(plan_.split_k, 1)),
        products_(sizes, plan_, where) {}

  // Calls `products(first, last)` for the parts of the sequence that the plan names, the last
  // first.
  template <typename Products>
  void run(const lltm_layer_backward_arguments& layer, const lltm_layer_plan& layer_plan,
           const std::optional<Tensor>& d_initial_h, const Products& products) const {
    // Two of each: one is read while the other is written.
    const Tensor d_h[] = {empty_d_h(), empty_d_h()};
    const Tensor d_cells[] = {empty_d_cell(), empty_d_cell()};
    const std::optional<Tensor> workspace = Calls::workspace(plan_.workspace_bytes, d_gates_);
    const int64_t plane_bytes = sizes_.plane() * lltm_dtype_bytes(sizes_.dtype);
    const auto at = [&](const void* sequence, int64_t planes) -> const void* {
      return sequence != nullptr ? static_cast<const char*>(sequence) + planes * plane_bytes
                                 : nullptr;
    };
    lltm_step_backward_arguments step = {};
    step.sizes = sizes_.step();
    step.weights = Torch::data(weights_);
    step.workspace = Calls::data_or_null(workspace);
    step.more_grad_h = layer.grad_final_h;
    step.more_grad_cell = layer.grad_final_cell;
    int64_t last = sizes_.steps;
    const int64_t* part_start = layer_plan.part_starts;
    for (int64_t n = sizes_.steps - 1; n >= 0; --n) {
      const int64_t t = sizes_.time(n);
      step.grad_h = at(layer.grad_output, t);
      step.grad_cell = at(layer.grad_cells, t);
      step.gates = at(layer.gates, 3 * t);
      step.new_cell = at(layer.cells, t);
      step.d_gates = static_cast<char*>(layer.d_gates) + 3 * t * plane_bytes;
      step.d_old_h = n > 0 ? Torch::data(d_h[n % 2]) : layer.d_initial_h;
      step.d_old_cell = n > 0 ? Torch::data(d_cells[n % 2]) : layer.d_initial_cell;
      step.float32.more_grad_cell = has_float32_cells() && n + 1 < sizes_.steps;
      step.float32.d_old_cell = has_float32_cells() && n > 0;
      if (plan_.family != 0 && step.d_old_h != nullptr && step.d_old_cell != nullptr) {
        Calls::check(Calls::kernels().step_backward(sizes_.dtype, plan_.family, &step, &where_));
      } else {
        step.more_grad_h_planes = n + 1 < sizes_.steps ? plan_.split_k : 1;
        Calls::check(Calls::kernels().cell_backward(sizes_.dtype, &step, &where_));
        if (n > 0) {
          products_.of_gates(d_h[n % 2], planes_, d_gates_, t, weights_);
        } else if (d_initial_h) {
          products_.of_gates(*d_initial_h, 1, d_gates_, t, weights_);
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

 private:
  using Calls = KernelCalls<Torch, device>;

  // In 16 bits, small addends of a cell state's gradient would be lost.
  bool has_float32_cells() const { return lltm_dtype_bytes(sizes_.dtype) == 2; }

  Tensor empty_d_h() const {
    return planes_ > 1 ? Torch::empty({planes_, sizes_.batch, sizes_.state}, d_gates_)
                       : Torch::empty({sizes_.batch, sizes_.state}, d_gates_);
  }
  // A float32 one takes two 16-bit elements for each.
  Tensor empty_d_cell() const {
    return Torch::empty({has_float32_cells() ? 2 * sizes_.batch : sizes_.batch, sizes_.state},
                        d_gates_);
  }

  const LayerSizes& sizes_;
  const Tensor& weights_;
  const Tensor& d_gates_;
  const lltm_execution& where_;
  const lltm_step_plan plan_;
  const int64_t planes_;  // of d_old_h
  const StepProducts<Torch, device> products_;
};

}  // namespace lltm
