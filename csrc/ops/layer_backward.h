// torch.ops.lltm.layer_backward: the gradients of a layer over a whole sequence, in one direction.
//
// Only the recurrence is serial. Products over all steps or over a few parts of the sequence make
// d_input and d_weights. A sum over all steps makes d_bias.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "layer_padding.h"
#include "operands.h"
#include "parts.h"
#include "products.h"

namespace lltm {

template <typename Torch, Device device>
class LayerBackward {
 public:
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;

  static constexpr const char* kSchema =
      "layer_backward(Tensor? grad_output, Tensor? grad_final_h, Tensor? grad_final_cell, "
      "Tensor? grad_cells, Tensor input, Tensor weights, Tensor? bias, Tensor? initial_h, "
      "Tensor? initial_cell, Tensor output, Tensor gates, Tensor cells, int needs, bool reverse, "
      "bool allow_tf32) -> (Tensor d_input, Tensor d_weights, Tensor d_bias, Tensor d_initial_h, "
      "Tensor d_initial_cell)";

  // A missing grad_* counts as zero. If `cells` has no elements, forward did not keep the cell
  // states, and backward computes them again. `needs` is the mask of the gradients to compute:
  // 1 input, 2 weights, 4 bias, 8 initial_h, 16 initial_cell. The other gradients, and those of
  // missing operands, have no elements.
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> run(
      const OptionalTensor& grad_output, const OptionalTensor& grad_final_h,
      const OptionalTensor& grad_final_cell, const OptionalTensor& grad_cells, const Tensor& input,
      const Tensor& weights, const OptionalTensor& bias, const OptionalTensor& initial_h,
      const OptionalTensor& initial_cell, const Tensor& output, const Tensor& gates,
      const Tensor& cells, int64_t needs, bool reverse, bool allow_tf32) {
    const LayerSizes sizes =
        Check::layer(input, weights, bias, initial_h, initial_cell, reverse, allow_tf32);
    const auto sequence = {sizes.steps, sizes.batch, sizes.state};
    const auto gate_sequence = {sizes.steps, sizes.batch, int64_t{3}, sizes.state};
    Check::like_input(output, "output", input, sizes, sequence, "(T, B, S)");
    Check::like_input(gates, "gates", input, sizes, gate_sequence, "(T, B, 3, S)");
    if (cells.numel() > 0) Check::like_input(cells, "cells", input, sizes, sequence, "(T, B, S)");
    Check::like_input(grad_output, "grad_output", input, sizes, sequence, "(T, B, S)");
    Check::like_input(grad_cells, "grad_cells", input, sizes, sequence, "(T, B, S)");
    Check::state(grad_final_h, "grad_final_h", input, sizes);
    Check::state(grad_final_cell, "grad_final_cell", input, sizes);
    Check::needs(needs, "8 initial_h, 16 initial_cell");

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = Calls::execution(input);
    const lltm_layer_plan plan = Calls::plan_layer(LLTM_BACKWARD, sizes, where);
    const Operands<Tensor> operands = {input, weights, bias, initial_h, initial_cell};
    Gradients<Torch> d(needs, operands);
    if (plan.padded_state == 0) {
      compute(sizes, plan, where, operands,
              {grad_output, grad_final_h, grad_final_cell, grad_cells, output, gates, cells}, d);
      return d.take(input);
    }
    const LayerSizes larger = sizes.padded(plan);
    LayerPadding<Torch, device> in(sizes, larger, where);
    const Operands<Tensor> padded = in.pad(operands);
    const Saved padded_saved = {in.states(grad_output),     in.states(grad_final_h),
                                in.states(grad_final_cell), in.states(grad_cells),
                                *in.states(output),         *in.states(gates),
                                *in.states(cells)};
    in.run();
    Gradients<Torch> padded_d(needs, padded);
    compute(larger, Calls::plan_layer(LLTM_BACKWARD, larger, where), where, padded, padded_saved,
            padded_d);
    LayerPadding<Torch, device> out(larger, sizes, where);
    out.input(padded_d.input, d.input);
    out.weights(padded_d.weights, d.weights);
    out.states(padded_d.bias, d.bias);
    out.states(padded_d.h, d.h);
    out.states(padded_d.cell, d.cell);
    out.run();
    return d.take(input);
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using Check = OperandChecks<Torch, device>;
  using Part = Matrix<Torch>;

  // The gradients of forward's results, and the results of forward that backward reads.
  struct Saved {
    OptionalTensor grad_output;
    OptionalTensor grad_final_h;
    OptionalTensor grad_final_cell;
    OptionalTensor grad_cells;
    Tensor output;
    Tensor gates;
    Tensor cells;
  };

  // Computes the gradients for which `d` has tensors.
  static void compute(const LayerSizes& sizes, const lltm_layer_plan& plan,
                      const lltm_execution& where, const Operands<Tensor>& operands,
                      const Saved& saved, const Gradients<Torch>& d) {
    Tensor cells = saved.cells;
    if (cells.numel() == 0) {  // forward did not keep them
      cells = Torch::empty({sizes.steps, sizes.batch, sizes.state}, saved.gates);
      lltm_layer_cells_arguments arguments = {};
      arguments.sizes = sizes.layer();
      arguments.initial_cell = Calls::data_or_null(operands.cell);
      arguments.gates = Torch::data(saved.gates);
      arguments.cells = Torch::data(cells);
      Calls::check(Calls::kernels().layer_cells(sizes.dtype, &arguments, &where));
    }
    const Tensor d_gates = Torch::empty({sizes.steps, sizes.batch, 3, sizes.state}, operands.input);
    lltm_layer_backward_arguments layer = {};
    layer.sizes = sizes.layer();
    layer.weights = Torch::data(operands.weights);
    layer.grad_output = Calls::data_or_null(saved.grad_output);
    layer.grad_cells = Calls::data_or_null(saved.grad_cells);
    layer.grad_final_h = Calls::data_or_null(saved.grad_final_h);
    layer.grad_final_cell = Calls::data_or_null(saved.grad_final_cell);
    layer.gates = Torch::data(saved.gates);
    layer.cells = Torch::data(cells);
    layer.d_gates = Torch::data(d_gates);
    layer.d_initial_h = Calls::data_or_null(d.h);
    layer.d_initial_cell = Calls::data_or_null(d.cell);
    if (plan.family != 0) {
      const OptionalTensor workspace = Calls::workspace(plan.workspace_bytes, operands.input);
      layer.workspace = Calls::data_or_null(workspace);
      Calls::check(Calls::kernels().layer_backward(sizes.dtype, plan.family, &layer, &where));
      multiply(sizes, plan, where, 0, sizes.steps, operands, saved.output, d_gates, d);
    } else {
      loop(sizes, layer, plan, where, operands, saved.output, d_gates, d);
    }
    if (d.bias) {
      Calls::sum_columns(sizes.dtype, sizes.rows(), 3 * sizes.state, d_gates, *d.bias, where);
    }
  }

  // Runs the recurrence step by step, if no family of the kernels runs the whole recurrence. The
  // loop starts at step T - 1. After each planned part of steps, it makes their products over time.
  static void loop(const LayerSizes& sizes, const lltm_layer_backward_arguments& layer,
                   const lltm_layer_plan& layer_plan, const lltm_execution& where,
                   const Operands<Tensor>& operands, const Tensor& output, const Tensor& d_gates,
                   const Gradients<Torch>& d) {
    lltm_step_backward_arguments step = {};
    step.sizes = sizes.step();
    const lltm_step_plan plan = Calls::plan_step(
        sizes.dtype, LLTM_BACKWARD, LLTM_NEEDS_OLD_H | LLTM_NEEDS_OLD_CELL, step.sizes, where);
    const Products<Torch, device> products(sizes, plan.calls_product, where);
    const int32_t planes = products.by_kernels() ? std::max(plan.split_k, 1) : 1;  // of d_old_h
    // to = d_z W_h, where d_z is plane `t` of d_gates. With several planes, each holds the product
    // over a part of the depth 3S, and their sum is d_z W_h.
    const auto multiply_by_h = [&](const Tensor& to, int64_t t, int64_t planes) {
      const int64_t depth = 3 * sizes.state / planes;
      const Part d_h = Part::rows_of(to, 0, sizes.batch, sizes.state);
      const Part d_z = Part::rows_of(d_gates, t * sizes.batch, sizes.batch, 3 * sizes.state);
      const Part weights_h = Part::h_columns(operands.weights, sizes);
      products.run(d_h.in_planes(sizes.plane()), d_z.first_columns(depth).in_planes(depth),
                   weights_h.in_planes(depth * sizes.columns()), planes);
    };
    // A 16-bit gradient of the cell state would lose small addends. So with a 16-bit dtype, steps
    // pass on this gradient in float32: each element takes the place of two 16-bit elements.
    const bool float32_cells = lltm_dtype_bytes(sizes.dtype) == 2;
    const auto empty = [&](int64_t count) {
      return Torch::empty({count, sizes.batch, sizes.state}, d_gates);
    };
    // Each gradient has two tensors: while step n reads one, it writes the other for step n - 1.
    const Tensor d_h[] = {empty(planes), empty(planes)};
    const int64_t cell_planes = float32_cells ? 2 : 1;
    const Tensor d_cells[] = {empty(cell_planes), empty(cell_planes)};
    const OptionalTensor workspace = Calls::workspace(plan.workspace_bytes, d_gates);
    step.weights = layer.weights;
    step.workspace = Calls::data_or_null(workspace);
    step.more_grad_h = layer.grad_final_h;
    step.more_grad_cell = layer.grad_final_cell;
    int64_t last = sizes.steps;
    const int64_t* part_start = layer_plan.part_starts;
    for (int64_t n = sizes.steps - 1; n >= 0; --n) {
      const int64_t t = sizes.time(n);
      step.grad_h = sizes.plane_at(layer.grad_output, t);
      step.grad_cell = sizes.plane_at(layer.grad_cells, t);
      step.gates = sizes.plane_at(layer.gates, 3 * t);
      step.new_cell = sizes.plane_at(layer.cells, t);
      step.d_gates = sizes.plane_at(layer.d_gates, 3 * t);
      step.d_old_h = n > 0 ? Torch::data(d_h[n % 2]) : layer.d_initial_h;
      step.d_old_cell = n > 0 ? Torch::data(d_cells[n % 2]) : layer.d_initial_cell;
      step.float32.more_grad_cell = float32_cells && n + 1 < sizes.steps;
      step.float32.d_old_cell = float32_cells && n > 0;
      if (plan.family != 0 && step.d_old_h != nullptr && step.d_old_cell != nullptr) {
        Calls::check(Calls::kernels().step_backward(sizes.dtype, plan.family, &step, &where));
      } else {
        step.more_grad_h_planes = n + 1 < sizes.steps ? planes : 1;
        Calls::check(Calls::kernels().pointwise_backward(sizes.dtype, &step, &where));
        if (n > 0) {
          multiply_by_h(d_h[n % 2], t, planes);
        } else if (d.h) {
          multiply_by_h(*d.h, t, 1);
        }
      }
      step.more_grad_h = step.d_old_h;
      step.more_grad_cell = step.d_old_cell;
      if (n == *part_start) {
        multiply(sizes, layer_plan, where, n, last, operands, output, d_gates, d);
        last = n;
        ++part_start;
      }
    }
  }

  // Computes d_input of the steps [first, last), and adds the share of these steps to d_weights. If
  // `last` is the number of steps, the call overwrites d_weights, so this call must come first.
  static void multiply(const LayerSizes& sizes, const lltm_layer_plan& plan,
                       const lltm_execution& where, int64_t first, int64_t last,
                       const Operands<Tensor>& operands, const Tensor& output,
                       const Tensor& d_gates, const Gradients<Torch>& d) {
    const Products<Torch, device> products(sizes, plan.calls_product, where);
    // Returns the steps [begin, end) of a sequence as one matrix.
    const auto steps = [&](const Tensor& tensor, int64_t begin, int64_t end, int64_t columns) {
      return Part::rows_of(tensor, sizes.earliest(begin, end) * sizes.batch,
                           (end - begin) * sizes.batch, columns);
    };
    const auto d_z = [&](int64_t begin, int64_t end) {
      return steps(d_gates, begin, end, 3 * sizes.state);
    };
    if (d.input) {
      products.run(steps(*d.input, first, last, sizes.features), d_z(first, last),
                   Part::input_columns(operands.weights, sizes));
    }
    if (!d.weights) return;
    const auto assign_or_add = [&](const Part& to, const Part& left, const Part& right) {
      if (last < sizes.steps) return products.add(to, left, right);
      products.run(to, left, right);
    };
    assign_or_add(Part::input_columns(*d.weights, sizes), d_z(first, last).transposed(),
                  steps(operands.input, first, last, sizes.features));
    // In forward, step n has read output n - 1 as h; step 0 has read initial_h.
    const int64_t second = std::max<int64_t>(first, 1);
    const Part of_h = Part::h_columns(*d.weights, sizes);
    assign_or_add(of_h, d_z(second, last).transposed(),
                  steps(output, second - 1, last - 1, sizes.state));
    if (first == 0 && operands.h) {
      products.add(of_h, d_z(0, 1).transposed(),
                   Part::rows_of(*operands.h, 0, sizes.batch, sizes.state));
    }
  }
};

}  // namespace lltm
