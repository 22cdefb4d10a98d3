// torch.ops.lltm.layer_forward: a layer of LLTM cells over a whole sequence, in one direction.
//
// Only the recurrence is serial. Before the recurrence, one product multiplies the inputs of all
// steps by the weights.
#pragma once

#include <optional>
#include <tuple>

#include "layer_padding.h"
#include "operands.h"
#include "parts.h"
#include "products.h"

namespace lltm {

template <typename Torch, Device device>
class LayerForward {
 public:
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;
  using Results = std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor>;

  static constexpr const char* kSchema =
      "layer_forward(Tensor input, Tensor weights, Tensor? bias, Tensor? initial_h, "
      "Tensor? initial_cell, bool reverse, bool keep_cells, bool allow_tf32) -> "
      "(Tensor output, Tensor final_h, Tensor final_cell, Tensor gates, Tensor cells)";

  // Arguments: input (T, B, I), weights (3S, S + I), bias (3S) or (1, 3S), initial_h and
  // initial_cell (B, S) or (1, B, S). A missing bias or state counts as zero.
  //
  // Returns output (T, B, S), final_h and final_cell with the shapes of the initial states (default
  // (B, S)), gates (T, B, 3, S), and cells: (T, B, S), or no elements if not `keep_cells`.
  static Results run(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                     const OptionalTensor& initial_h, const OptionalTensor& initial_cell,
                     bool reverse, bool keep_cells, bool allow_tf32) {
    const LayerSizes sizes =
        Check::layer(input, weights, bias, initial_h, initial_cell, reverse, allow_tf32);

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = Calls::execution(input);
    const lltm_layer_plan plan = Calls::plan_layer(LLTM_FORWARD, sizes, where);
    const Operands<Tensor> operands = {input, weights, bias, initial_h, initial_cell};
    if (plan.padded_state == 0) return compute(sizes, plan, where, operands, keep_cells);

    const LayerSizes larger = sizes.padded(plan);
    LayerPadding<Torch, device> in(sizes, larger, where);
    const Operands<Tensor> padded = in.pad(operands);
    in.run();
    const auto [output, final_h, final_cell, gates, cells] =
        compute(larger, Calls::plan_layer(LLTM_FORWARD, larger, where), where, padded, keep_cells);
    LayerPadding<Torch, device> out(larger, sizes, where);
    const auto sequence = {sizes.steps, sizes.batch, sizes.state};
    const auto result =
        std::make_tuple(out.states(output, sequence), state_like(initial_h, sizes, input),
                        state_like(initial_cell, sizes, input),
                        out.states(gates, {sizes.steps, sizes.batch, 3, sizes.state}),
                        keep_cells ? out.states(cells, sequence) : cells);
    out.states(final_h, std::get<1>(result));
    out.states(final_cell, std::get<2>(result));
    out.run();
    return result;
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using Check = OperandChecks<Torch, device>;
  using Part = Matrix<Torch>;

  static Results compute(const LayerSizes& sizes, const lltm_layer_plan& plan,
                         const lltm_execution& where, const Operands<Tensor>& operands,
                         bool keep_cells) {
    const auto& [input, weights, bias, initial_h, initial_cell] = operands;
    const Tensor gates = Torch::empty({sizes.steps, sizes.batch, 3, sizes.state}, input);
    const Tensor output = Torch::empty({sizes.steps, sizes.batch, sizes.state}, input);
    const Tensor cells = keep_cells ? Torch::empty({sizes.steps, sizes.batch, sizes.state}, input)
                                    : Torch::empty({0}, input);
    const Tensor final_h = state_like(initial_h, sizes, input);
    const Tensor final_cell = state_like(initial_cell, sizes, input);
    lltm_layer_forward_arguments layer = {};
    layer.sizes = sizes.layer();
    layer.weights = Torch::data(weights);
    layer.bias = plan.product_adds_bias != 0 ? nullptr : Calls::data_or_null(bias);
    layer.initial_h = Calls::data_or_null(initial_h);
    layer.initial_cell = Calls::data_or_null(initial_cell);
    layer.gates = Torch::data(gates);
    layer.output = Torch::data(output);
    layer.cells = keep_cells ? Torch::data(cells) : nullptr;
    layer.final_h = Torch::data(final_h);
    layer.final_cell = Torch::data(final_cell);
    // gates = input W_x^T for all steps, plus the bias if the plan says product_adds_bias
    const Part z = Part::rows_of(gates, 0, sizes.rows(), 3 * sizes.state);
    const Part x = Part::rows_of(input, 0, sizes.rows(), sizes.features);
    const Part weights_x = Part::input_columns(weights, sizes).transposed();
    if (bias && plan.product_adds_bias != 0) {
      Torch::addmm_out(z.view(), Torch::strided(*bias, {z.columns}, {1}, 0), x.view(),
                       weights_x.view());
    } else {
      Products<Torch, device>(sizes, plan.calls_product, where).run(z, x, weights_x);
    }
    if (plan.family != 0) {
      const OptionalTensor workspace = Calls::workspace(plan.workspace_bytes, input);
      layer.workspace = Calls::data_or_null(workspace);
      Calls::check(Calls::kernels().layer_forward(sizes.dtype, plan.family, &layer, &where));
    } else {
      // Cell states that are not kept alternate between two planes.
      const Tensor planes = keep_cells ? cells : Torch::empty({2, sizes.batch, sizes.state}, input);
      loop(sizes, layer, where, operands, gates, output, planes);
      Torch::copy(final_h, plane(output, sizes.time(sizes.steps - 1), sizes));
      Torch::copy(final_cell, plane(planes, cell_plane(sizes, keep_cells, sizes.steps - 1), sizes));
    }
    return {output, final_h, final_cell, gates, cells};
  }

  // Returns an uninitialised state. Its shape is that of `model`, which may be (1, B, S) as in
  // nn.LSTM. Without a model, the shape is (B, S).
  static Tensor state_like(const OptionalTensor& model, const LayerSizes& sizes,
                           const Tensor& like) {
    return model ? Torch::empty_like(*model) : Torch::empty({sizes.batch, sizes.state}, like);
  }

  // The plane (B, S) at `index` of a sequence.
  static Tensor plane(const Tensor& sequence, int64_t index, const LayerSizes& sizes) {
    return Part::rows_of(sequence, index * sizes.batch, sizes.batch, sizes.state).view();
  }

  // The index of the plane that holds the cell state of a step.
  static int64_t cell_plane(const LayerSizes& sizes, bool keep_cells, int64_t step) {
    return keep_cells ? sizes.time(step) : step % 2;
  }

  // Runs one step at a time, for every size and dtype: by a family of the kernels, or by a GEMM and
  // then the pointwise kernel. A first step without initial_h needs the pointwise kernel alone.
  static void loop(const LayerSizes& sizes, const lltm_layer_forward_arguments& layer,
                   const lltm_execution& where, const Operands<Tensor>& operands,
                   const Tensor& gates, const Tensor& output, const Tensor& cells) {
    lltm_step_forward_arguments step = {};
    step.sizes = sizes.step();
    const lltm_step_plan plan = Calls::plan_step(sizes.dtype, LLTM_FORWARD, 0, step.sizes, where);
    const OptionalTensor workspace = Calls::workspace(plan.workspace_bytes, output);
    const Products<Torch, device> products(sizes, plan.calls_product, where);
    step.weights = layer.weights;
    step.bias = layer.bias;
    step.gates_hold_addend = 1;
    step.workspace = Calls::data_or_null(workspace);
    // A 16-bit cell state would lose small addends. So with a 16-bit dtype, float32 copies of the
    // states alternate between two planes, each as large as two 16-bit planes.
    const bool runs = lltm_dtype_bytes(sizes.dtype) == 2;
    const OptionalTensor running = Calls::workspace(runs ? 8 * sizes.plane() : 0, output);
    const auto running_cell = [&](int64_t n) {
      return n >= 0 ? sizes.plane_at(Calls::data_or_null(running), n % 2 * 2) : nullptr;
    };
    const Tensor first_cell =
        operands.cell ? *operands.cell : state_like(std::nullopt, sizes, output);
    if (!operands.cell) Torch::zero(first_cell);
    step.old_cell = Torch::data(first_cell);
    step.old_h = layer.initial_h;
    for (int64_t n = 0; n < sizes.steps; ++n) {
      const int64_t t = sizes.time(n);
      step.gates = sizes.plane_at(layer.gates, 3 * t);
      step.new_h = sizes.plane_at(layer.output, t);
      step.new_cell =
          sizes.plane_at(Torch::data(cells), cell_plane(sizes, layer.cells != nullptr, n));
      step.running.old_cell = running_cell(n - 1);
      step.running.new_cell = running_cell(n);
      if (step.old_h != nullptr && plan.family != 0) {
        Calls::check(Calls::kernels().step_forward(sizes.dtype, plan.family, &step, &where));
      } else {
        if (step.old_h != nullptr) {
          const bool first = n == 0;
          const int64_t row = first ? 0 : sizes.time(n - 1) * sizes.batch;
          products.add(Part::rows_of(gates, t * sizes.batch, sizes.batch, 3 * sizes.state),
                       Part::rows_of(first ? *operands.h : output, row, sizes.batch, sizes.state),
                       Part::h_columns(operands.weights, sizes).transposed());
        }
        Calls::check(Calls::kernels().pointwise_forward(sizes.dtype, &step, &where));
      }
      step.old_h = step.new_h;
      step.old_cell = step.new_cell;
    }
  }
};

}  // namespace lltm
