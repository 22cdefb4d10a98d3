// A layer of LLTM cells over a whole sequence, in one direction, as an operator; written once, over
// the same doors as cell.h.
//
// Only the recurrence is serial. The inputs' product with the weights is one GEMM for all steps
// before it; the gradients of input, weights and bias are one GEMM or sum each behind it.
#pragma once

#include <algorithm>
#include <optional>
#include <tuple>

#include "../kernels/lltm_kernels.h"
#include "guards.h"
#include "kernel_calls.h"
#include "schema.h"

namespace lltm {

template <typename Torch, Device device>
class Layer : KernelCalls<Torch, device> {
  using Calls = KernelCalls<Torch, device>;
  using Calls::check_kernel, Calls::check_tensor, Calls::execution, Calls::kernels;

 public:
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;

  // input (T, B, I), weights (3S, S + I), bias (3S) or (1, 3S) or none, initial_h and initial_cell
  // (B, S) or (1, B, S) or none, which means zeros
  // -> output (T, B, S), final_h and final_cell in the form of the initial ones, else (B, S), gates
  // (T, B, 3, S), cells (T, B, S)
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> forward(
      const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
      const OptionalTensor& initial_h, const OptionalTensor& initial_cell, bool reverse,
      bool keep_cells, bool allow_tf32) {
    const Sizes sizes = check_operands(input, weights, bias, initial_h, initial_cell);

    const typename Torch::DeviceGuard device_guard(input);
    const Tensor gates = Torch::empty({sizes.steps, sizes.batch, 3, sizes.state}, input);
    const Tensor output = Torch::empty({sizes.steps, sizes.batch, sizes.state}, input);
    const Tensor cells = keep_cells ? Torch::empty({sizes.steps, sizes.batch, sizes.state}, input)
                                    : Torch::empty({0}, input);
    const Tensor final_h = state_like(initial_h, sizes, input);
    const Tensor final_cell = state_like(initial_cell, sizes, input);

    // As for the cell: a CUDA GEMM adds the bias for nothing, and on a CPU the kernel does.
    const bool gemm_adds_bias = device == Device::kCUDA && bias.has_value();
    const lltm_execution where = execution(input);
    lltm_layer_forward_arguments arguments = {};
    arguments.sizes = kernel_sizes(sizes, reverse, allow_tf32);
    arguments.weights = Torch::data(weights);
    arguments.bias = gemm_adds_bias ? nullptr : data_or_null(bias);
    arguments.input = Torch::data(input);
    arguments.initial_h = data_or_null(initial_h);
    arguments.initial_cell = data_or_null(initial_cell);
    arguments.gates = Torch::data(gates);
    arguments.output = Torch::data(output);
    arguments.cells = keep_cells ? Torch::data(cells) : nullptr;
    arguments.final_h = Torch::data(final_h);
    arguments.final_cell = Torch::data(final_cell);
    const lltm_layer_plan plan = make_plan(sizes, 0, arguments.sizes, where);
    if (plan.makes_all_products == 0) {
      const Tensor z = rows_of(gates, sizes.rows(), 3 * sizes.state);
      const Tensor x = rows_of(input, sizes.rows(), sizes.features);
      const Tensor weights_x = Torch::strided(weights, {sizes.features, 3 * sizes.state},
                                              {1, sizes.columns()}, sizes.state);
      if (gemm_adds_bias) {
        Torch::addmm_out(z, Torch::strided(*bias, {3 * sizes.state}, {1}, 0), x, weights_x);
      } else {
        Torch::mm_out(z, x, weights_x);
      }
    }
    if (plan.family != 0) {
      const OptionalTensor workspace = make_workspace(plan.workspace_bytes, input);
      arguments.workspace = data_or_null(workspace);
      check_kernel(kernels().layer_forward(sizes.dtype, plan.family, &arguments, &where));
    } else {
      const Steps steps{sizes, reverse, allow_tf32};
      forward_loop(steps, weights, arguments.bias, initial_h, initial_cell, gates, output,
                   keep_cells ? OptionalTensor(cells) : std::nullopt, final_h, final_cell, where);
    }
    return {output, final_h, final_cell, gates, cells};
  }

  // Gradients of forward; see schema.h for `needs`. A missing grad_* counts as zero; cells without
  // elements, which forward did not keep, are computed again.
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward(
      const OptionalTensor& grad_output, const OptionalTensor& grad_final_h,
      const OptionalTensor& grad_final_cell, const OptionalTensor& grad_cells, const Tensor& input,
      const Tensor& weights, const OptionalTensor& bias, const OptionalTensor& initial_h,
      const OptionalTensor& initial_cell, const Tensor& output, const Tensor& gates,
      const Tensor& cells, int64_t needs, bool reverse, bool allow_tf32) {
    const Sizes sizes = check_operands(input, weights, bias, initial_h, initial_cell);
    check_sequence(output, "output", input, sizes);
    check_tensor(gates, "gates", input);
    Guard::has_shape(gates, "gates", {sizes.steps, sizes.batch, 3, sizes.state}, "(T, B, 3, S)",
                     kOrigin);
    const bool recompute_cells = is_empty(cells);
    if (!recompute_cells) check_sequence(cells, "cells", input, sizes);
    if (grad_output) check_sequence(*grad_output, "grad_output", input, sizes);
    if (grad_cells) check_sequence(*grad_cells, "grad_cells", input, sizes);
    if (grad_final_h) check_state(*grad_final_h, "grad_final_h", input, sizes);
    if (grad_final_cell) check_state(*grad_final_cell, "grad_final_cell", input, sizes);
    if (needs < 0 || needs > kNeedsAll) {
      Guard::fail("needs must be a mask from 0 to ", static_cast<int64_t>(kNeedsAll), ", got ",
                  needs, "; add up 1 for input, 2 weights, 4 bias, 8 initial_h, 16 initial_cell");
    }

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = execution(input);
    const auto unwanted = [&] { return Torch::empty({0}, input); };
    const auto wanted_state = [&](int bit, const OptionalTensor& state) {
      return (needs & bit) != 0 && state ? OptionalTensor(state_like(state, sizes, input))
                                         : std::nullopt;
    };
    const OptionalTensor d_initial_h = wanted_state(kNeedsOldH, initial_h);
    const OptionalTensor d_initial_cell = wanted_state(kNeedsOldCell, initial_cell);

    const lltm_layer_sizes shape = kernel_sizes(sizes, reverse, allow_tf32);
    Tensor all_cells = cells;
    if (recompute_cells) {
      all_cells = Torch::empty({sizes.steps, sizes.batch, sizes.state}, input);
      const lltm_layer_cells_arguments again = {shape, data_or_null(initial_cell),
                                                Torch::data(gates), Torch::data(all_cells)};
      check_kernel(kernels().layer_cells(sizes.dtype, &again, &where));
    }

    const Tensor d_gates = Torch::empty({sizes.steps, sizes.batch, 3, sizes.state}, input);
    const bool needs_input = (needs & kNeedsInput) != 0;
    const bool needs_weights = (needs & kNeedsWeights) != 0;
    const Tensor d_input =
        needs_input ? Torch::empty({sizes.steps, sizes.batch, sizes.features}, input) : unwanted();
    const Tensor d_weights =
        needs_weights ? Torch::empty({3 * sizes.state, sizes.columns()}, input) : unwanted();
    lltm_layer_backward_arguments arguments = {};
    arguments.sizes = shape;
    arguments.weights = Torch::data(weights);
    arguments.grad_output = data_or_null(grad_output);
    arguments.grad_cells = data_or_null(grad_cells);
    arguments.grad_final_h = data_or_null(grad_final_h);
    arguments.grad_final_cell = data_or_null(grad_final_cell);
    arguments.gates = Torch::data(gates);
    arguments.cells = Torch::data(all_cells);
    arguments.d_gates = Torch::data(d_gates);
    arguments.d_initial_h = data_or_null(d_initial_h);
    arguments.d_initial_cell = data_or_null(d_initial_cell);
    arguments.input = Torch::data(input);
    arguments.initial_h = data_or_null(initial_h);
    arguments.output = Torch::data(output);
    arguments.d_input = needs_input ? Torch::data(d_input) : nullptr;
    arguments.d_weights = needs_weights ? Torch::data(d_weights) : nullptr;
    const Steps steps{sizes, reverse, allow_tf32};
    const lltm_layer_plan plan = make_plan(sizes, 1, shape, where);
    // What batches over time, of steps `first` to `last`; the last steps come first.
    const auto products = [&](int64_t first, int64_t last) {
      if (plan.makes_all_products != 0) return;
      if (needs_input) input_gradient(steps, first, last, weights, d_gates, d_input);
      if (needs_weights) {
        weights_gradient(steps, first, last, input, initial_h, output, d_gates, d_weights);
      }
    };
    if (plan.family != 0) {
      const OptionalTensor workspace = make_workspace(plan.workspace_bytes, input);
      arguments.workspace = data_or_null(workspace);
      check_kernel(kernels().layer_backward(sizes.dtype, plan.family, &arguments, &where));
      products(0, sizes.steps);
    } else {
      backward_loop(steps, weights, arguments, d_gates, d_initial_h, where, products);
    }

    Tensor d_bias = unwanted();
    if ((needs & kNeedsBias) != 0 && bias) {
      const int64_t columns = 3 * sizes.state;
      d_bias = Torch::dim(*bias) == 2 ? Torch::empty({1, columns}, input)
                                      : Torch::empty({columns}, input);
      const lltm_column_sum_arguments sum = {sizes.rows(), columns, Torch::data(d_gates),
                                             Torch::data(d_bias)};
      check_kernel(kernels().column_sum(sizes.dtype, &sum, &where));
    }
    return {d_input, d_weights, d_bias, d_initial_h ? *d_initial_h : unwanted(),
            d_initial_cell ? *d_initial_cell : unwanted()};
  }

 private:
  using Guard = Guards<Torch>;
  static constexpr const char* kOrigin =
      "T, B and I are read from input (T, B, I), S from weights (3S, S + I)";

  struct Sizes {
    int64_t steps;
    int64_t batch;
    int64_t features;
    int64_t state;
    lltm_dtype dtype;

    int64_t rows() const { return steps * batch; }
    int64_t columns() const { return state + features; }
    int64_t plane() const { return batch * state; }
  };

  // The order in which the steps are taken, as indices of time.
  struct Steps {
    Sizes sizes;
    bool reverse;
    bool allow_tf32;

    int64_t time(int64_t step) const { return reverse ? sizes.steps - 1 - step : step; }
    // The first index of time among steps `first` to `last`, which lie beside each other.
    int64_t earliest(int64_t first, int64_t last) const {
      return reverse ? sizes.steps - last : first;
    }
    // Of one step, whose input has been multiplied already.
    lltm_step_sizes step_sizes() const {
      return {sizes.batch, 0, sizes.state, sizes.columns(), allow_tf32 ? 1 : 0};
    }
  };

  static Sizes check_operands(const Tensor& input, const Tensor& weights,
                              const OptionalTensor& bias, const OptionalTensor& initial_h,
                              const OptionalTensor& initial_cell) {
    if constexpr (device == Device::kCUDA) {
      CHECK_INPUT(input);
    } else {
      CHECK_CPU(input);
      CHECK_CONTIGUOUS(input);
    }
    Sizes sizes;
    sizes.dtype = Guard::supported_dtype(input, "input");
    check_tensor(weights, "weights", input);
    Guard::has_dim(input, "input", 3, "(T, B, I)");
    Guard::has_dim(weights, "weights", 2, "(3S, S + I)");
    sizes.steps = Torch::sizes(input)[0];
    sizes.batch = Torch::sizes(input)[1];
    sizes.features = Torch::sizes(input)[2];
    sizes.state = Torch::sizes(weights)[0] / 3;
    if (sizes.steps == 0) {
      Guard::fail("input must have shape (T, B, I) with at least one step, got ",
                  Guard::shape(input), "; leave out empty sequences");
    }
    Guard::has_shape(weights, "weights", {3 * sizes.state, sizes.columns()}, "(3S, S + I)",
                     "I is read from input (T, B, I), S from the rows of weights");
    if (bias) {
      check_tensor(*bias, "bias", input);
      if (Torch::dim(*bias) == 2) {
        Guard::has_shape(*bias, "bias", {1, 3 * sizes.state}, "(3S) or (1, 3S)", kOrigin);
      } else {
        Guard::has_shape(*bias, "bias", {3 * sizes.state}, "(3S) or (1, 3S)", kOrigin);
      }
    }
    if (initial_h) check_state(*initial_h, "initial_h", input, sizes);
    if (initial_cell) check_state(*initial_cell, "initial_cell", input, sizes);
    return sizes;
  }

  static void check_state(const Tensor& tensor, const char* name, const Tensor& input,
                          const Sizes& sizes) {
    check_tensor(tensor, name, input);
    if (Torch::dim(tensor) == 3) {
      Guard::has_shape(tensor, name, {1, sizes.batch, sizes.state}, "(B, S) or (1, B, S)", kOrigin);
    } else {
      Guard::has_shape(tensor, name, {sizes.batch, sizes.state}, "(B, S) or (1, B, S)", kOrigin);
    }
  }

  // In the form of `model`: (B, S), or (1, B, S) as nn.LSTM has it, which spares its caller views.
  static Tensor state_like(const OptionalTensor& model, const Sizes& sizes, const Tensor& input) {
    return model && Torch::dim(*model) == 3 ? Torch::empty({1, sizes.batch, sizes.state}, input)
                                            : Torch::empty({sizes.batch, sizes.state}, input);
  }

  // A state of either form as a matrix.
  static OptionalTensor state_matrix(const OptionalTensor& state, const Sizes& sizes) {
    if (!state || Torch::dim(*state) == 2) return state;
    return Torch::strided(*state, {sizes.batch, sizes.state}, {sizes.state, 1}, 0);
  }

  static void check_sequence(const Tensor& tensor, const char* name, const Tensor& input,
                             const Sizes& sizes) {
    check_tensor(tensor, name, input);
    Guard::has_shape(tensor, name, {sizes.steps, sizes.batch, sizes.state}, "(T, B, S)", kOrigin);
  }

  static bool is_empty(const Tensor& tensor) {
    for (int64_t dim = 0; dim < Torch::dim(tensor); ++dim) {
      if (Torch::sizes(tensor)[dim] == 0) return true;
    }
    return false;
  }

  static void* data_or_null(const OptionalTensor& tensor) {
    return tensor ? Torch::data(*tensor) : nullptr;
  }

  static Tensor rows_of(const Tensor& tensor, int64_t rows, int64_t columns, int64_t first = 0) {
    return Torch::strided(tensor, {rows, columns}, {columns, 1}, first * columns);
  }

  static lltm_layer_sizes kernel_sizes(const Sizes& sizes, bool reverse, bool allow_tf32) {
    return {sizes.steps,     sizes.batch,     sizes.state,
            sizes.columns(), reverse ? 1 : 0, allow_tf32 ? 1 : 0};
  }

  static lltm_layer_plan make_plan(const Sizes& sizes, int32_t is_backward,
                                   const lltm_layer_sizes& shape, const lltm_execution& where) {
    lltm_layer_plan plan = {0, 0, 0};
    check_kernel(kernels().layer_plan(sizes.dtype, is_backward, &shape, &where, &plan));
    return plan;
  }

  // Torch gives memory by elements of a dtype.
  static OptionalTensor make_workspace(int64_t bytes, const Tensor& like) {
    if (bytes == 0) return std::nullopt;
    const int64_t element = bytes_of(*kernel_dtype(Torch::scalar_type(like)));
    return Torch::empty({(bytes + element - 1) / element}, like);
  }

  static int64_t bytes_of(lltm_dtype dtype) {
    return dtype == LLTM_FLOAT64 ? 8 : dtype == LLTM_FLOAT32 ? 4 : 2;
  }

  // Whether the loop adds up cells and their gradients in float32 rather than in the dtype.
  static bool adds_in_float32(lltm_dtype dtype) { return bytes_of(dtype) == 2; }

  // Step by step: the kernels' own whole step, or a GEMM onto the gates and the cell's kernel.
  // Serves every size and dtype.
  static void forward_loop(const Steps& steps, const Tensor& weights, const void* bias,
                           const OptionalTensor& initial_h, const OptionalTensor& initial_cell,
                           const Tensor& gates, const Tensor& output, const OptionalTensor& cells,
                           const Tensor& final_h, const Tensor& final_cell,
                           const lltm_execution& where) {
    const Sizes& sizes = steps.sizes;
    const Tensor weights_h =
        Torch::strided(weights, {sizes.state, 3 * sizes.state}, {1, sizes.columns()}, 0);
    const auto state_at = [&](const Tensor& sequence, int64_t index) {
      return Torch::strided(sequence, {sizes.batch, sizes.state}, {sizes.state, 1},
                            index * sizes.plane());
    };
    // Cells that are not kept take turns in two planes.
    const Tensor planes = cells ? *cells : Torch::empty({2, sizes.batch, sizes.state}, output);
    const auto cell_plane = [&](int64_t step) { return cells ? steps.time(step) : step % 2; };
    const int64_t plane_bytes = sizes.plane() * bytes_of(sizes.dtype);
    const lltm_step_sizes step_sizes = steps.step_sizes();
    const lltm_step_plan plan = plan_step(sizes.dtype, -1, step_sizes, where);
    const OptionalTensor workspace = make_workspace(plan.workspace_bytes, output);
    OptionalTensor old_h = state_matrix(initial_h, sizes);
    const Tensor first_cell = initial_cell ? *initial_cell : zeros(sizes, output);
    // Cells also in float32, in turn in two planes: those of 16 bits lose what is small beside
    // them.
    const int64_t running_bytes = adds_in_float32(sizes.dtype) ? 2 * plane_bytes : 0;
    const OptionalTensor running = make_workspace(2 * running_bytes, output);
    const auto running_cell = [&](int64_t step) -> void* {
      if (!running || step < 0) return nullptr;
      return static_cast<char*>(Torch::data(*running)) + step % 2 * running_bytes;
    };
    void* old_cell = Torch::data(first_cell);
    for (int64_t step = 0; step < sizes.steps; ++step) {
      const int64_t t = steps.time(step);
      const Tensor z = Torch::strided(gates, {sizes.batch, 3 * sizes.state}, {3 * sizes.state, 1},
                                      t * 3 * sizes.plane());
      const Tensor new_h = state_at(output, t);
      // No tensor where an address will do: the host's time bounds small steps.
      void* const new_cell =
          static_cast<char*>(Torch::data(planes)) + cell_plane(step) * plane_bytes;
      if (old_h && plan.family != 0) {
        const lltm_step_forward_arguments arguments = {
            step_sizes,
            nullptr,
            Torch::data(weights),
            bias,
            Torch::data(*old_h),
            old_cell,
            1,
            Torch::data(z),
            Torch::data(new_h),
            new_cell,
            data_or_null(workspace),
            0,
            {running_cell(step - 1), running_cell(step)},
        };
        check_kernel(kernels().step_forward(sizes.dtype, plan.family, &arguments, &where));
      } else {
        if (old_h) Torch::addmm_out(z, z, *old_h, weights_h);
        const lltm_cell_forward_arguments arguments = {
            sizes.batch,    sizes.state,
            Torch::data(z), bias,
            old_cell,       Torch::data(new_h),
            new_cell,       {running_cell(step - 1), running_cell(step)},
        };
        check_kernel(kernels().cell_forward(sizes.dtype, &arguments, &where));
      }
      old_h = new_h;
      old_cell = new_cell;
    }
    Torch::copy(final_h, *old_h);
    Torch::copy(final_cell, state_at(planes, cell_plane(sizes.steps - 1)));
  }

  // Calls `products` for a few parts of the sequence: where the host is slower than the device, the
  // device works on a part while the host asks for the steps of the next.
  template <typename Products>
  static void backward_loop(const Steps& steps, const Tensor& weights,
                            const lltm_layer_backward_arguments& all, const Tensor& d_gates,
                            const OptionalTensor& d_initial_h, const lltm_execution& where,
                            const Products& products) {
    const Sizes& sizes = steps.sizes;
    const lltm_step_sizes step_sizes = steps.step_sizes();
    const lltm_step_plan plan =
        plan_step(sizes.dtype, kNeedsOldH | kNeedsOldCell, step_sizes, where);
    // d_z W_h in one product, or in planes that the kernel of the step before adds up.
    const int64_t splits = std::max<int64_t>(plan.split_k, 1);
    const int64_t depth = 3 * sizes.state / splits;
    const Tensor weights_h =
        Torch::strided(weights, {3 * sizes.state, sizes.state}, {sizes.columns(), 1}, 0);
    const Tensor weight_parts = Torch::strided(weights, {splits, depth, sizes.state},
                                               {depth * sizes.columns(), sizes.columns(), 1}, 0);
    const auto multiply = [&](const Tensor& d_old_h, int64_t t) {
      Torch::mm_out(d_old_h, rows_of(d_gates, sizes.batch, 3 * sizes.state, t * sizes.batch),
                    weights_h);
    };
    const auto multiply_in_parts = [&](const Tensor& planes, int64_t t) {
      const Tensor d_z_parts = Torch::strided(d_gates, {splits, sizes.batch, depth},
                                              {depth, 3 * sizes.state, 1}, t * 3 * sizes.plane());
      Torch::bmm_out(planes, d_z_parts, weight_parts);
    };
    // Each is read while the next is written.
    const auto d_h_planes = [&] {
      return splits > 1 ? Torch::empty({splits, sizes.batch, sizes.state}, d_gates)
                        : Torch::empty({sizes.batch, sizes.state}, d_gates);
    };
    // Of float32 also for 16 bits, and then twice as many elements.
    const bool wide = adds_in_float32(sizes.dtype);
    const auto d_cell_plane = [&] {
      return Torch::empty({wide ? 2 * sizes.batch : sizes.batch, sizes.state}, d_gates);
    };
    const Tensor d_h[] = {d_h_planes(), d_h_planes()};
    const Tensor d_cells[] = {d_cell_plane(), d_cell_plane()};
    const OptionalTensor workspace = make_workspace(plan.workspace_bytes, d_gates);
    const int64_t plane_bytes = sizes.plane() * bytes_of(sizes.dtype);
    const auto at = [&](const void* sequence, int64_t planes) -> const void* {
      return sequence != nullptr ? static_cast<const char*>(sequence) + planes * plane_bytes
                                 : nullptr;
    };
    // Few parts, since 16-bit sums are rounded once for each; the first steps in two halves, since
    // nothing hides the work on the last part.
    constexpr int64_t kParts = 4;
    constexpr int64_t kLeast = 32;
    const int64_t whole = (sizes.steps + kParts - 1) / kParts;
    const auto part = [&](int64_t steps_left) {
      return std::max(kLeast, steps_left > whole ? whole : (whole + 1) / 2);
    };
    int64_t last = sizes.steps;
    const void* later_d_h = all.grad_final_h;
    const void* later_d_cell = all.grad_final_cell;
    for (int64_t step = sizes.steps - 1; step >= 0; --step) {
      const int64_t t = steps.time(step);
      void* const d_z = static_cast<char*>(all.d_gates) + 3 * t * plane_bytes;
      void* const d_cell = step > 0 ? Torch::data(d_cells[step % 2]) : all.d_initial_cell;
      void* const d_old_h = step > 0 ? Torch::data(d_h[step % 2]) : all.d_initial_h;
      const lltm_wide_cells wide_cells = {wide && step + 1 < sizes.steps, wide && step > 0};
      if (plan.family != 0 && d_old_h != nullptr && d_cell != nullptr) {
        lltm_step_backward_arguments arguments = {};
        arguments.sizes = step_sizes;
        arguments.grad_h = at(all.grad_output, t);
        arguments.grad_cell = at(all.grad_cells, t);
        arguments.more_grad_h = later_d_h;
        arguments.more_grad_cell = later_d_cell;
        arguments.weights = Torch::data(weights);
        arguments.new_cell = at(all.cells, t);
        arguments.gates = at(all.gates, 3 * t);
        arguments.d_gates = d_z;
        arguments.d_old_h = d_old_h;
        arguments.d_old_cell = d_cell;
        arguments.wide = wide_cells;
        arguments.workspace = data_or_null(workspace);
        check_kernel(kernels().step_backward(sizes.dtype, plan.family, &arguments, &where));
      } else {
        lltm_cell_backward_arguments arguments = {};
        arguments.batch_size = sizes.batch;
        arguments.state_size = sizes.state;
        arguments.grad_h = at(all.grad_output, t);
        arguments.grad_cell = at(all.grad_cells, t);
        arguments.more_grad_h = later_d_h;
        arguments.more_grad_cell = later_d_cell;
        arguments.more_grad_h_planes = step + 1 < sizes.steps ? plan.split_k : 1;
        arguments.gates = at(all.gates, 3 * t);
        arguments.new_cell = at(all.cells, t);
        arguments.d_gates = d_z;
        arguments.d_old_cell = d_cell;
        arguments.wide = wide_cells;
        check_kernel(kernels().cell_backward(sizes.dtype, &arguments, &where));
        if (step > 0) {
          splits > 1 ? multiply_in_parts(d_h[step % 2], t) : multiply(d_h[step % 2], t);
        } else if (d_initial_h) {
          multiply(*state_matrix(d_initial_h, sizes), t);
        }
      }
      later_d_h = d_old_h;
      later_d_cell = d_cell;
      if (step == 0 || (last - step == part(last) && step >= kLeast)) {
        products(step, last);
        last = step;
      }
    }
  }

  // How the kernels would run a whole step; see step_plan in lltm_kernels.h for `needs`.
  static lltm_step_plan plan_step(lltm_dtype dtype, int32_t needs, const lltm_step_sizes& sizes,
                                  const lltm_execution& where) {
    lltm_step_plan plan = {};
    if (kernels().step_plan == nullptr || sizes.batch_size == 0) return plan;
    check_kernel(kernels().step_plan(dtype, needs, &sizes, &where, &plan));
    return plan;
  }

  // d_input of steps `first` to `last`.
  static void input_gradient(const Steps& steps, int64_t first, int64_t last, const Tensor& weights,
                             const Tensor& d_gates, const Tensor& d_input) {
    const Sizes& sizes = steps.sizes;
    const int64_t rows = (last - first) * sizes.batch;
    const int64_t row = steps.earliest(first, last) * sizes.batch;
    const Tensor weights_x = Torch::strided(weights, {3 * sizes.state, sizes.features},
                                            {sizes.columns(), 1}, sizes.state);
    Torch::mm_out(rows_of(d_input, rows, sizes.features, row),
                  rows_of(d_gates, rows, 3 * sizes.state, row), weights_x);
  }

  // d_weights of steps `first` to `last`, added to those of the steps behind `last`.
  static void weights_gradient(const Steps& steps, int64_t first, int64_t last, const Tensor& input,
                               const OptionalTensor& initial_h, const Tensor& output,
                               const Tensor& d_gates, const Tensor& d_weights) {
    const Sizes& sizes = steps.sizes;
    const int64_t state = sizes.state;
    const auto d_z_transposed = [&](int64_t begin, int64_t end) {
      return Torch::strided(d_gates, {3 * state, (end - begin) * sizes.batch}, {1, 3 * state},
                            steps.earliest(begin, end) * 3 * sizes.plane());
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
                steps.earliest(first, last) * sizes.batch));
    // Every step but the first read the output of the one before it.
    const int64_t second = std::max<int64_t>(first, 1);
    add(d_weights_h, d_z_transposed(second, last),
        rows_of(output, (last - second) * sizes.batch, state,
                steps.earliest(second - 1, last - 1) * sizes.batch));
    if (first == 0 && initial_h) {
      Torch::addmm_out(d_weights_h, d_weights_h, d_z_transposed(0, 1),
                       *state_matrix(initial_h, sizes));
    }
  }

  static Tensor zeros(const Sizes& sizes, const Tensor& like) {
    const Tensor tensor = Torch::empty({sizes.batch, sizes.state}, like);
    Torch::zero(tensor);
    return tensor;
  }
};

}  // namespace lltm
