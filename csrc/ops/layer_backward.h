// torch.ops.lltm.layer_backward: the gradients of a layer over a whole sequence, in one direction.
//
// Only the recurrence is serial. The gradients of input, weights and bias are one GEMM or sum each
// after it, or a few, of parts of the sequence.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "kernel_calls.h"
#include "layer_backward_loop.h"
#include "operands.h"

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

  // A missing grad_* counts as zero; cells without elements, which forward did not keep, are
  // computed again. `needs` is a mask of the wanted gradients: 1 input, 2 weights, 4 bias,
  // 8 initial_h, 16 initial_cell. The others come back without elements.
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> run(
      const OptionalTensor& grad_output, const OptionalTensor& grad_final_h,
      const OptionalTensor& grad_final_cell, const OptionalTensor& grad_cells, const Tensor& input,
      const Tensor& weights, const OptionalTensor& bias, const OptionalTensor& initial_h,
      const OptionalTensor& initial_cell, const Tensor& output, const Tensor& gates,
      const Tensor& cells, int64_t needs, bool reverse, bool allow_tf32) {
    const LayerSizes sizes =
        Check::layer(input, weights, bias, initial_h, initial_cell, reverse, allow_tf32);
    Check::sequence(output, "output", input, sizes);
    Check::gate_sequence(gates, "gates", input, sizes);
    if (!is_empty(cells)) Check::sequence(cells, "cells", input, sizes);
    Check::sequence(grad_output, "grad_output", input, sizes);
    Check::sequence(grad_cells, "grad_cells", input, sizes);
    Check::state(grad_final_h, "grad_final_h", input, sizes);
    Check::state(grad_final_cell, "grad_final_cell", input, sizes);
    Check::needs(needs, "8 initial_h, 16 initial_cell");

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = Calls::execution(input);
    const lltm_layer_plan plan =
        Calls::plan_layer(sizes.dtype, LLTM_BACKWARD, sizes.layer(), where);
    const Tensor all_cells =
        is_empty(cells) ? make_cells(sizes, initial_cell, gates, where) : cells;
    const Tensor d_gates = Torch::empty({sizes.steps, sizes.batch, 3, sizes.state}, input);
    const Gradients d(sizes, needs, input, bias, initial_h, initial_cell);
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
    layer.d_initial_h = d.data_if(d.needs_initial_h, d.initial_h);
    layer.d_initial_cell = d.data_if(d.needs_initial_cell, d.initial_cell);
    layer.input = Torch::data(input);
    layer.initial_h = Calls::data_or_null(initial_h);
    layer.output = Torch::data(output);
    layer.d_input = d.data_if(d.needs_input, d.input);
    layer.d_weights = d.data_if(d.needs_weights, d.weights);
    // The products that batch over time, of the steps [first, last); the last steps come first.
    const auto products = [&](int64_t first, int64_t last) {
      if (plan.makes_all_products != 0) return;
      if (d.needs_input) input_gradient(sizes, first, last, weights, d_gates, d.input);
      if (d.needs_weights) {
        weights_gradient(sizes, first, last, input, initial_h, output, d_gates, d.weights);
      }
    };
    if (plan.family != 0) {
      const OptionalTensor workspace = Calls::workspace(plan.workspace_bytes, input);
      layer.workspace = Calls::data_or_null(workspace);
      Calls::check(Calls::kernels().layer_backward(sizes.dtype, plan.family, &layer, &where));
      products(0, sizes.steps);
    } else {
      const LayerBackwardLoop<Torch, device> loop(sizes, weights, d_gates, where);
      loop.run(layer, plan, d.initial_h, products);
    }
    if (d.needs_bias) {
      Calls::sum_columns(sizes.dtype, sizes.rows(), 3 * sizes.state, d_gates, d.bias, where);
    }
    return {d.input, d.weights, d.bias, d.initial_h, d.initial_cell};
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using Check = Operands<Torch, device>;

  // Uninitialised; without elements where not needed. States have the shape of the initial ones.
  struct Gradients {
    bool needs_input;
    bool needs_weights;
    bool needs_bias;
    bool needs_initial_h;
    bool needs_initial_cell;
    Tensor input;
    Tensor weights;
    Tensor bias;
    Tensor initial_h;
    Tensor initial_cell;

    Gradients(const LayerSizes& sizes, int64_t needs, const Tensor& like,
              const OptionalTensor& given_bias, const OptionalTensor& given_h,
              const OptionalTensor& given_cell)
        : needs_input((needs & LLTM_NEEDS_INPUT) != 0),
          needs_weights((needs & LLTM_NEEDS_WEIGHTS) != 0),
          needs_bias((needs & LLTM_NEEDS_BIAS) != 0 && given_bias),
          needs_initial_h((needs & LLTM_NEEDS_OLD_H) != 0 && given_h),
          needs_initial_cell((needs & LLTM_NEEDS_OLD_CELL) != 0 && given_cell),
          input(needs_input ? Torch::empty({sizes.steps, sizes.batch, sizes.features}, like)
                            : Torch::empty({0}, like)),
          weights(needs_weights ? Torch::empty({3 * sizes.state, sizes.columns()}, like)
                                : Torch::empty({0}, like)),
          bias(needs_bias ? vector_like(*given_bias, 3 * sizes.state) : Torch::empty({0}, like)),
          initial_h(needs_initial_h ? state_like(*given_h, sizes) : Torch::empty({0}, like)),
          initial_cell(needs_initial_cell ? state_like(*given_cell, sizes)
                                          : Torch::empty({0}, like)) {}

    static Tensor vector_like(const Tensor& model, int64_t count) {
      return Torch::dim(model) == 2 ? Torch::empty({1, count}, model)
                                    : Torch::empty({count}, model);
    }
    static Tensor state_like(const Tensor& model, const LayerSizes& sizes) {
      return Torch::dim(model) == 3 ? Torch::empty({1, sizes.batch, sizes.state}, model)
                                    : Torch::empty({sizes.batch, sizes.state}, model);
    }
    static void* data_if(bool needed, const Tensor& tensor) {
      return needed ? Torch::data(tensor) : nullptr;
    }
  };

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

  // Rows of a sequence that are one matrix for all steps and the batch.
  static Tensor rows_of(const Tensor& tensor, int64_t rows, int64_t columns, int64_t first) {
    return Torch::strided(tensor, {rows, columns}, {columns, 1}, first * columns);
  }

  // d_input of the steps [first, last).
  static void input_gradient(const LayerSizes& sizes, int64_t first, int64_t last,
                             const Tensor& weights, const Tensor& d_gates, const Tensor& d_input) {
    const int64_t rows = (last - first) * sizes.batch;
    const int64_t row = sizes.earliest(first, last) * sizes.batch;
    const Tensor weights_x = Torch::strided(weights, {3 * sizes.state, sizes.features},
                                            {sizes.columns(), 1}, sizes.state);
    Torch::mm_out(rows_of(d_input, rows, sizes.features, row),
                  rows_of(d_gates, rows, 3 * sizes.state, row), weights_x);
  }

  // d_weights of the steps [first, last), added to those of the steps from `last` on.
  static void weights_gradient(const LayerSizes& sizes, int64_t first, int64_t last,
                               const Tensor& input, const OptionalTensor& initial_h,
                               const Tensor& output, const Tensor& d_gates,
                               const Tensor& d_weights) {
    const int64_t state = sizes.state;
    const auto d_z_transposed = [&](int64_t begin, int64_t end) {
      return Torch::strided(d_gates, {3 * state, (end - begin) * sizes.batch}, {1, 3 * state},
                            sizes.earliest(begin, end) * 3 * sizes.plane());
    };
    const auto add = [&](const Tensor& sum, const Tensor& left, const Tensor& right) {
      last == sizes.steps ? Torch::mm_out(sum, left, right)
                          : Torch::addmm_out(sum, sum, left, right);
    };
    const Tensor d_weights_h =
        Torch::strided(d_weights, {3 * state, state}, {sizes.columns(), 1}, 0);
    const Tensor d_weights_x =
        Torch::strided(d_weights, {3 * state, sizes.features}, {sizes.columns(), 1}, state);
    add(d_weights_x, d_z_transposed(first, last),
        rows_of(input, (last - first) * sizes.batch, sizes.features,
                sizes.earliest(first, last) * sizes.batch));
    // Every step but the first read the output of the step before it.
    const int64_t second = std::max<int64_t>(first, 1);
    add(d_weights_h, d_z_transposed(second, last),
        rows_of(output, (last - second) * sizes.batch, state,
                sizes.earliest(second - 1, last - 1) * sizes.batch));
    if (first == 0 && initial_h) {
      Torch::addmm_out(d_weights_h, d_weights_h, d_z_transposed(0, 1),
                       rows_of(*initial_h, sizes.batch, state, 0));
    }
  }
};

}  // namespace lltm
