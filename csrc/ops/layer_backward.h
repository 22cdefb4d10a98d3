// torch.ops.lltm.layer_backward: the gradients of a layer over a whole sequence, in one direction.
//
// Only the recurrence is serial. After it, the gradients of input, weights and bias take one GEMM
// or sum each, or a few over parts of the sequence.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "gradients.h"
#include "kernel_calls.h"
#include "layer_backward_loop.h"
#include "layer_padding.h"
#include "operands.h"
#include "views.h"

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

  // A missing grad_* counts as zero. Cells without elements were not kept by forward and are
  // computed again. `needs` is a mask of the wanted gradients: 1 input, 2 weights, 4 bias,
  // 8 initial_h, 16 initial_cell. The other gradients are returned without elements.
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
    if (!is_empty(cells)) Check::like_input(cells, "cells", input, sizes, sequence, "(T, B, S)");
    Check::like_input(grad_output, "grad_output", input, sizes, sequence, "(T, B, S)");
    Check::like_input(grad_cells, "grad_cells", input, sizes, sequence, "(T, B, S)");
    Check::state(grad_final_h, "grad_final_h", input, sizes);
    Check::state(grad_final_cell, "grad_final_cell", input, sizes);
    Check::needs(needs, "8 initial_h, 16 initial_cell");

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = Calls::execution(input);
    const lltm_layer_plan plan =
        Calls::plan_layer(sizes.dtype, LLTM_BACKWARD, sizes.layer(), where);
    if (plan.padded_state != 0) {
      const OptionalTensor grads[] = {grad_output, grad_final_h, grad_final_cell, grad_cells};
      return run_padded(sizes, sizes.padded(plan), where, grads, input, weights, bias, initial_h,
                        initial_cell, output, gates, cells, needs);
    }
    const Tensor all_cells =
        is_empty(cells) ? make_cells(sizes, initial_cell, gates, where) : cells;
    const Tensor d_gates = Torch::empty({sizes.steps, sizes.batch, 3, sizes.state}, input);
    Gradients<Torch> d(needs, input, weights, bias, initial_h, initial_cell);
    lltm_layer_backward_arguments layer = {};
    layer.sizes = sizes.layer();
    layer.weights = Torch::data(weights);
    layer.grad_output = Calls::data_or_null(grad_output);
    layer.grad_cells = Calls::data_or_null(grad_cells);
    layer.grad_final_h = Calls::data_or_null(grad_final_h);
    layer.grad_final_cell = Calls::data_or_null(grad_final_cell);
    layer.gates = Torch::data(gates);
    layer.cells = Torch::data(all_cells);
    layer.d_gates = Torch::data(d_gates);
    layer.d_initial_h = Calls::data_or_null(d.h);
    layer.d_initial_cell = Calls::data_or_null(d.cell);
    layer.input = Torch::data(input);
    layer.initial_h = Calls::data_or_null(initial_h);
    layer.output = Torch::data(output);
    layer.d_input = Calls::data_or_null(d.input);
    layer.d_weights = Calls::data_or_null(d.weights);
    // The products over time for the steps [first, last); it is called for the last steps first.
    const auto products = [&](int64_t first, int64_t last) {
      if (plan.makes_all_products != 0) return;
      if (d.input) input_gradient(sizes, first, last, weights, d_gates, *d.input);
      if (d.weights) {
        weights_gradient(sizes, first, last, input, initial_h, output, d_gates, *d.weights);
      }
    };
    if (plan.family != 0) {
      const OptionalTensor workspace = Calls::workspace(plan.workspace_bytes, input);
      layer.workspace = Calls::data_or_null(workspace);
      Calls::check(Calls::kernels().layer_backward(sizes.dtype, plan.family, &layer, &where));
      products(0, sizes.steps);
    } else {
      run_backward_loop<Torch, device>(sizes, layer, plan, weights, d_gates, d.h, where, products);
    }
    if (d.bias) {
      Calls::sum_columns(sizes.dtype, sizes.rows(), 3 * sizes.state, d_gates, *d.bias, where);
    }
    return d.take(input);
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using Check = Operands<Torch, device>;
  using View = Views<Torch>;

  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> run_padded(
      const LayerSizes& sizes, const LayerSizes& larger, const lltm_execution& where,
      const OptionalTensor (&grads)[4], const Tensor& input, const Tensor& weights,
      const OptionalTensor& bias, const OptionalTensor& initial_h,
      const OptionalTensor& initial_cell, const Tensor& output, const Tensor& gates,
      const Tensor& cells, int64_t needs) {
    using Padding = LayerPadding<Torch, device>;
    Padding in(sizes, larger, where);
    const OptionalTensor grad_output = in.maybe(grads[0], &Padding::sequence);
    const OptionalTensor grad_final_h = in.maybe(grads[1], &Padding::state);
    const OptionalTensor grad_final_cell = in.maybe(grads[2], &Padding::state);
    const OptionalTensor grad_cells = in.maybe(grads[3], &Padding::sequence);
    const Tensor x = in.input(input);
    const Tensor w = in.weights(weights);
    const OptionalTensor b = in.maybe(bias, &Padding::bias);
    const OptionalTensor h = in.maybe(initial_h, &Padding::state);
    const OptionalTensor c = in.maybe(initial_cell, &Padding::state);
    const Tensor outputs = in.sequence(output);
    const Tensor z = in.gates(gates);
    const Tensor all_cells = is_empty(cells) ? cells : in.sequence(cells);
    in.run();
    const auto [d_input, d_weights, d_bias, d_h, d_cell] =
        run(grad_output, grad_final_h, grad_final_cell, grad_cells, x, w, b, h, c, outputs, z,
            all_cells, needs, sizes.reverse, sizes.allow_tf32);
    Gradients<Torch> d(needs, input, weights, bias, initial_h, initial_cell);
    Padding out(larger, sizes, where);
    if (d.input) out.input(d_input, *d.input);
    if (d.weights) out.weights(d_weights, *d.weights);
    if (d.bias) out.states(d_bias, *d.bias, 3);
    if (d.h) out.states(d_h, *d.h, sizes.batch);
    if (d.cell) out.states(d_cell, *d.cell, sizes.batch);
    out.run();
    return d.take(input);
  }

  static bool is_empty(const Tensor& tensor) {
    const int64_t* const sizes = Torch::sizes(tensor);
    return std::count(sizes, sizes + Torch::dim(tensor), 0) > 0;
  }

  static Tensor make_cells(const LayerSizes& sizes, const OptionalTensor& initial_cell,
                           const Tensor& gates, const lltm_execution& where) {
    const Tensor cells = Torch::empty({sizes.steps, sizes.batch, sizes.state}, gates);
    lltm_layer_cells_arguments arguments = {};
    arguments.sizes = sizes.layer();
    arguments.initial_cell = Calls::data_or_null(initial_cell);
    arguments.gates = Torch::data(gates);
    arguments.cells = Torch::data(cells);
    Calls::check(Calls::kernels().layer_cells(sizes.dtype, &arguments, &where));
    return cells;
  }

  // d_input of the steps [first, last).
  static void input_gradient(const LayerSizes& sizes, int64_t first, int64_t last,
                             const Tensor& weights, const Tensor& d_gates, const Tensor& d_input) {
    const int64_t row = sizes.earliest(first, last) * sizes.batch;
    const int64_t rows = (last - first) * sizes.batch;
    Torch::mm_out(View::rows(d_input, row, rows, sizes.features),
                  View::rows(d_gates, row, rows, 3 * sizes.state),
                  View::input_columns(weights, sizes));
  }

  // d_weights of the steps [first, last), added to those of the steps from `last` on.
  static void weights_gradient(const LayerSizes& sizes, int64_t first, int64_t last,
                               const Tensor& input, const OptionalTensor& initial_h,
                               const Tensor& output, const Tensor& d_gates,
                               const Tensor& d_weights) {
    // A view of the steps [begin, end) of a sequence as one matrix, with a row per batch entry.
    const auto steps = [&](const auto& view, const Tensor& tensor, int64_t begin, int64_t end,
                           int64_t columns) {
      return view(tensor, sizes.earliest(begin, end) * sizes.batch, (end - begin) * sizes.batch,
                  columns);
    };
    const auto d_z_transposed = [&](int64_t begin, int64_t end) {
      return steps(View::rows_transposed, d_gates, begin, end, 3 * sizes.state);
    };
    const auto add = [&](const Tensor& sum, const Tensor& left, const Tensor& right) {
      last == sizes.steps ? Torch::mm_out(sum, left, right)
                          : Torch::addmm_out(sum, sum, left, right);
    };
    add(View::input_columns(d_weights, sizes), d_z_transposed(first, last),
        steps(View::rows, input, first, last, sizes.features));
    // In forward, each step after the first has read the output of the step before it.
    const int64_t second = std::max<int64_t>(first, 1);
    const Tensor of_h = View::h_columns(d_weights, sizes);
    add(of_h, d_z_transposed(second, last),
        steps(View::rows, output, second - 1, last - 1, sizes.state));
    if (first == 0 && initial_h) {
      Torch::addmm_out(of_h, of_h, d_z_transposed(0, 1),
                       View::rows(*initial_h, 0, sizes.batch, sizes.state));
    }
  }
};

}  // namespace lltm
