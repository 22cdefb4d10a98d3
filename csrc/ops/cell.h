// The LLTM cell as an operator, written once. `Torch` is the door: a struct of the few calls to
// torch that the op needs (see torch_stable/torch.h and torch_aten/torch.h).
#pragma once

#include <optional>
#include <tuple>

#include "../kernels/lltm_kernels.h"
#include "guards.h"
#include "kernel_calls.h"
#include "schema.h"

namespace lltm {

template <typename Torch, Device device>
class Cell : KernelCalls<Torch, device> {
  using Calls = KernelCalls<Torch, device>;
  using Calls::check_kernel, Calls::check_tensor, Calls::execution, Calls::kernels;

 public:
  using Tensor = typename Torch::Tensor;

  // input (B, I), weights (3S, S + I), bias (3S) or (1, 3S), old_h and old_cell (B, S)
  // -> new_h (B, S), new_cell (B, S), gates (B, 3, S)
  static std::tuple<Tensor, Tensor, Tensor> forward(const Tensor& input, const Tensor& weights,
                                                    const Tensor& bias, const Tensor& old_h,
                                                    const Tensor& old_cell) {
    return step(input, weights, bias, old_h, old_cell, false);
  }

  // See schema.h for the lean pair.
  static std::tuple<Tensor, Tensor, Tensor> forward_lean(const Tensor& input, const Tensor& weights,
                                                         const Tensor& bias, const Tensor& old_h,
                                                         const Tensor& old_cell) {
    return step(input, weights, bias, old_h, old_cell, true);
  }

  // Gradients of forward; see schema.h for `needs`. A missing grad_* counts as zero; missing gates
  // are made again.
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward(
      const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
      const std::optional<Tensor>& grad_gates, const Tensor& input, const Tensor& weights,
      const Tensor& bias, const Tensor& old_h, const Tensor& new_cell,
      const std::optional<Tensor>& gates, int64_t needs) {
    return gradients(grad_h, grad_cell, grad_gates, input, weights, bias, old_h, new_cell, gates,
                     nullptr, needs);
  }

  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward_lean(
      const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
      const Tensor& input, const Tensor& weights, const Tensor& bias, const Tensor& old_h,
      const Tensor& new_cell, const Tensor& gates, const Tensor& new_h, int64_t needs) {
    return gradients(grad_h, grad_cell, std::nullopt, input, weights, bias, old_h, new_cell, gates,
                     &new_h, needs);
  }

 private:
  using Guard = Guards<Torch>;

  static std::tuple<Tensor, Tensor, Tensor> step(const Tensor& input, const Tensor& weights,
                                                 const Tensor& bias, const Tensor& old_h,
                                                 const Tensor& old_cell, bool lean) {
    const Sizes sizes = check_operands(input, weights, bias, old_h);
    check_tensor(old_cell, "old_cell", input);
    Guard::has_shape(old_cell, "old_cell", {sizes.batch, sizes.state}, "(B, S)");

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = execution(input);
    const lltm_step_plan plan = plan_step(sizes, -1, where);
    const bool drops_output_gate = lean && plan.family != 0 && is_leanable(sizes);
    const Tensor gates = Torch::empty({sizes.batch, drops_output_gate ? 2 : 3, sizes.state}, input);
    const Tensor new_h = Torch::empty({sizes.batch, sizes.state}, input);
    const Tensor new_cell = Torch::empty({sizes.batch, sizes.state}, input);
    if (plan.family != 0) {
      const std::optional<Tensor> workspace = make_workspace(plan.workspace_bytes, sizes, input);
      const lltm_step_forward_arguments step = {
          step_sizes(sizes),
          Torch::data(input),
          Torch::data(weights),
          Torch::data(bias),
          Torch::data(old_h),
          Torch::data(old_cell),
          0,
          Torch::data(gates),
          Torch::data(new_h),
          Torch::data(new_cell),
          data_or_null(workspace),
          drops_output_gate,
      };
      check_kernel(kernels().step_forward(sizes.dtype, plan.family, &step, &where));
      return {new_h, new_cell, gates};
    }

    const int64_t columns = sizes.state + sizes.features;
    const Tensor x = Torch::cat_columns(old_h, input);
    const Tensor z = Torch::strided(gates, {sizes.batch, 3 * sizes.state}, {3 * sizes.state, 1}, 0);
    const Tensor weights_transposed =
        Torch::strided(weights, {columns, 3 * sizes.state}, {1, columns}, 0);
    // A CUDA GEMM adds the bias for nothing; a CPU one would write it to memory first, so there the
    // kernel adds it.
    constexpr bool gemm_adds_bias = device == Device::kCUDA;
    if (gemm_adds_bias) {
      Torch::addmm_out(z, Torch::strided(bias, {3 * sizes.state}, {1}, 0), x, weights_transposed);
    } else {
      Torch::mm_out(z, x, weights_transposed);
    }

    const lltm_cell_forward_arguments arguments = {
        sizes.batch,           sizes.state,
        Torch::data(gates),    gemm_adds_bias ? nullptr : Torch::data(bias),
        Torch::data(old_cell), Torch::data(new_h),
        Torch::data(new_cell),
    };
    check_kernel(kernels().cell_forward(sizes.dtype, &arguments, &where));
    return {new_h, new_cell, gates};
  }

  // `new_h` is backward_lean's, else NULL.
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> gradients(
      const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
      const std::optional<Tensor>& grad_gates, const Tensor& input, const Tensor& weights,
      const Tensor& bias, const Tensor& old_h, const Tensor& new_cell,
      const std::optional<Tensor>& given_gates, const Tensor* new_h, int64_t needs) {
    const Sizes sizes = check_operands(input, weights, bias, old_h);
    const int64_t batch = sizes.batch;
    const int64_t state = sizes.state;
    const int64_t features = sizes.features;
    check_tensor(new_cell, "new_cell", input);
    Guard::has_shape(new_cell, "new_cell", {batch, state}, "(B, S)");
    bool drops_output_gate = false;
    if (given_gates) {
      check_tensor(*given_gates, "gates", input);
      drops_output_gate = new_h != nullptr && Torch::dim(*given_gates) == 3 &&
                          Torch::sizes(*given_gates)[1] == 2 && is_wide(sizes);
      if (drops_output_gate) {
        Guard::has_shape(*given_gates, "gates", {batch, 2, state}, "(B, 2, S)");
      } else {
        Guard::has_shape(*given_gates, "gates", {batch, 3, state}, "(B, 3, S)");
      }
    }
    const bool has_new_h = drops_output_gate && !is_lost(*new_h);
    if (has_new_h) {
      check_tensor(*new_h, "new_h", input);
      Guard::has_shape(*new_h, "new_h", {batch, state}, "(B, S)");
    }
    if (grad_h) {
      check_gradient(*grad_h, "grad_h", input);
      Guard::has_shape(*grad_h, "grad_h", {batch, state}, "(B, S)");
    }
    if (grad_cell) {
      check_gradient(*grad_cell, "grad_cell", input);
      Guard::has_shape(*grad_cell, "grad_cell", {batch, state}, "(B, S)");
    }
    if (grad_gates) {
      check_tensor(*grad_gates, "grad_gates", input);
      Guard::has_shape(*grad_gates, "grad_gates", {batch, 3, state}, "(B, 3, S)");
    }

    if (needs < 0 || needs > kNeedsAll) {
      Guard::fail("needs must be a mask from 0 to ", static_cast<int64_t>(kNeedsAll), ", got ",
                  needs, "; add up 1 for input, 2 weights, 4 bias, 8 old_h, 16 old_cell");
    }

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = execution(input);
    const int64_t columns = state + features;
    const auto wanted = [&](Needs which) { return (needs & which) != 0; };
    const auto unwanted = [&] { return Torch::empty({0}, input); };
    const bool needs_old_cell = wanted(kNeedsOldCell);
    Tensor d_input = wanted(kNeedsInput) ? Torch::empty({batch, features}, input) : unwanted();
    Tensor d_weights =
        wanted(kNeedsWeights) ? Torch::empty({3 * state, columns}, input) : unwanted();
    Tensor d_bias = wanted(kNeedsBias) ? empty_like(bias) : unwanted();
    Tensor d_old_h = wanted(kNeedsOldH) ? Torch::empty({batch, state}, input) : unwanted();
    Tensor d_old_cell = needs_old_cell ? Torch::empty({batch, state}, input) : unwanted();
    const lltm_step_plan plan = plan_step(sizes, static_cast<int32_t>(needs), where);
    // Whole steps on CUDA make missing gates along the way. Elsewhere forward does, whose states
    // are not wanted: any cell will do.
    const bool makes_gates = device == Device::kCUDA && plan.family != 0;
    std::optional<Tensor> gates = given_gates;
    const bool takes_new_h = has_new_h && plan.family != 0;
    if (drops_output_gate && !takes_new_h) gates.reset();
    if (!gates && !makes_gates) {
      gates = std::get<2>(forward(input, weights, bias, old_h, new_cell));
    }
    if (plan.family != 0) {
      const std::optional<Tensor> workspace = make_workspace(plan.workspace_bytes, sizes, input);
      const auto data_if = [&](Needs which, const Tensor& tensor) -> void* {
        return wanted(which) ? Torch::data(tensor) : nullptr;
      };
      const lltm_step_backward_arguments step = {
          step_sizes(sizes),
          data_or_null(grad_h),
          data_or_null(grad_cell),
          data_or_null(grad_gates),
          nullptr,
          nullptr,
          Torch::data(input),
          Torch::data(weights),
          Torch::data(bias),
          Torch::data(old_h),
          Torch::data(new_cell),
          data_or_null(gates),
          nullptr,
          data_if(kNeedsInput, d_input),
          data_if(kNeedsWeights, d_weights),
          data_if(kNeedsBias, d_bias),
          data_if(kNeedsOldH, d_old_h),
          data_if(kNeedsOldCell, d_old_cell),
          data_or_null(workspace),
          gradient_strides(grad_h, grad_cell),
          takes_new_h ? Torch::data(*new_h) : nullptr,
      };
      check_kernel(kernels().step_backward(sizes.dtype, plan.family, &step, &where));
      return {d_input, d_weights, d_bias, d_old_h, d_old_cell};
    }

    const Tensor d_gates = Torch::empty({batch, 3, state}, input);
    const bool sums_bias = wanted(kNeedsBias) && kernels().cell_backward_workspace != nullptr;
    std::optional<Tensor> sums;
    if (sums_bias) {
      sums = make_workspace(kernels().cell_backward_workspace(sizes.dtype, batch, state, &where),
                            sizes, input);
    }
    std::optional<Tensor> joined;
    if (wanted(kNeedsWeights) && joins_operands(sizes)) {
      joined = Torch::empty({batch, columns}, input);
    }
    const lltm_cell_backward_arguments arguments = {
        batch,
        state,
        data_or_null(grad_h),
        data_or_null(grad_cell),
        data_or_null(grad_gates),
        nullptr,
        nullptr,
        data_or_null(gates),
        Torch::data(new_cell),
        Torch::data(d_gates),
        needs_old_cell ? Torch::data(d_old_cell) : nullptr,
        sums_bias ? Torch::data(d_bias) : nullptr,
        data_or_null(sums),
        gradient_strides(grad_h, grad_cell),
        features,
        Torch::data(old_h),
        Torch::data(input),
        data_or_null(joined),
    };
    check_kernel(kernels().cell_backward(sizes.dtype, &arguments, &where));

    // The halves of `weights` that belong to old_h and to input are taken apart by stride: nothing
    // is concatenated, and the gradients share no memory.
    const Tensor d_z = Torch::strided(d_gates, {batch, 3 * state}, {3 * state, 1}, 0);
    const Tensor d_z_transposed = Torch::strided(d_gates, {3 * state, batch}, {1, 3 * state}, 0);
    const auto h_half = [&](const Tensor& matrix) {
      return Torch::strided(matrix, {3 * state, state}, {columns, 1}, 0);
    };
    const auto input_half = [&](const Tensor& matrix) {
      return Torch::strided(matrix, {3 * state, features}, {columns, 1}, state);
    };

    if (wanted(kNeedsOldH)) Torch::mm_out(d_old_h, d_z, h_half(weights));
    if (wanted(kNeedsInput)) Torch::mm_out(d_input, d_z, input_half(weights));
    if (joined) {
      Torch::mm_out(d_weights, d_z_transposed, *joined);
    } else if (wanted(kNeedsWeights)) {
      Torch::mm_out(h_half(d_weights), d_z_transposed, old_h);
      Torch::mm_out(input_half(d_weights), d_z_transposed, input);
    }
    if (wanted(kNeedsBias) && !sums_bias) {
      const lltm_column_sum_arguments sum = {batch, 3 * state, Torch::data(d_gates),
                                             Torch::data(d_bias)};
      check_kernel(kernels().column_sum(sizes.dtype, &sum, &where));
    }
    return {d_input, d_weights, d_bias, d_old_h, d_old_cell};
  }

  struct Sizes {
    int64_t batch;
    int64_t features;
    int64_t state;
    lltm_dtype dtype;
  };

  // In 16 bits new_h is too coarse to tell a gate.
  static bool is_wide(const Sizes& sizes) {
    return sizes.dtype == LLTM_FLOAT32 || sizes.dtype == LLTM_FLOAT64;
  }

  // Where forward_lean drops the output gate; lltm_conda/_fake.py says the same. Larger steps may
  // be torch's products on some machines, in either direction, which know three gates only.
  static bool is_leanable(const Sizes& sizes) {
    constexpr int64_t kMostProducts = 64'000'000;
    constexpr int64_t kMostBatch = 32768;
    const double products = 3.0 * static_cast<double>(sizes.batch) *
                            static_cast<double>(sizes.state) *
                            static_cast<double>(sizes.state + sizes.features);
    return is_wide(sizes) && sizes.batch <= kMostBatch && products <= kMostProducts;
  }

  static bool is_lost(const Tensor& new_h) {
    return Torch::dim(new_h) == 1 && Torch::sizes(new_h)[0] == 0;
  }

  // CUDA kernels read the gradients of h and of the cell wherever they lie.
  static void check_gradient(const Tensor& tensor, const char* name, const Tensor& input) {
    Guard::on_device(tensor, name, device);
    Guard::like(tensor, name, input, "input");
    if (device == Device::kCPU) Guard::contiguous(tensor, name);
  }

  static lltm_gradient_strides gradient_strides(const std::optional<Tensor>& grad_h,
                                                const std::optional<Tensor>& grad_cell) {
    lltm_gradient_strides found = {device == Device::kCUDA, {0, 0}, {0, 0}};
    const auto copy = [](const std::optional<Tensor>& from, int64_t* to) {
      if (!from) return;
      to[0] = Torch::strides(*from)[0];
      to[1] = Torch::strides(*from)[1];
    };
    copy(grad_h, found.grad_h);
    copy(grad_cell, found.grad_cell);
    return found;
  }

  static lltm_step_sizes step_sizes(const Sizes& sizes) {
    return {sizes.batch, sizes.features, sizes.state, sizes.state + sizes.features, 0};
  }

  // Whether d_weights is quicker as one product with [h, x], which the kernel then puts side by
  // side on its way, than as two: a launch less, until the bytes and cuBLAS's choice of kernels
  // weigh more (benchmarks/NOTES.md has the times). A GEMM is slow where rows do not begin as
  // vectors do.
  static bool joins_operands(const Sizes& sizes) {
    if (device == Device::kCPU || sizes.features == 0) return false;
    const int64_t columns = sizes.state + sizes.features;
    const int64_t bytes = element_bytes(sizes.dtype);
    const double work = 3.0 * sizes.batch * sizes.state * columns;  // multiplications
    return columns * bytes % 16 == 0 && work <= (bytes == 2 ? 6e9 : 1.2e9);
  }

  static int64_t element_bytes(lltm_dtype dtype) {
    return dtype == LLTM_FLOAT64 ? 8 : dtype == LLTM_FLOAT32 ? 4 : 2;
  }

  static std::optional<Tensor> make_workspace(int64_t bytes, const Sizes& sizes,
                                              const Tensor& input) {
    if (bytes == 0) return std::nullopt;
    const int64_t element = element_bytes(sizes.dtype);
    return Torch::empty({(bytes + element - 1) / element}, input);
  }

  static void* data_or_null(const std::optional<Tensor>& tensor) {
    return tensor ? Torch::data(*tensor) : nullptr;
  }

  // How the kernels would run the whole step; see step_plan in lltm_kernels.h for `needs`.
  static lltm_step_plan plan_step(const Sizes& sizes, int32_t needs, const lltm_execution& where) {
    lltm_step_plan plan = {};
    if (kernels().step_plan == nullptr) return plan;
    const lltm_step_sizes step = step_sizes(sizes);
    check_kernel(kernels().step_plan(sizes.dtype, needs, &step, &where, &plan));
    return plan;
  }

  static Sizes check_operands(const Tensor& input, const Tensor& weights, const Tensor& bias,
                              const Tensor& old_h) {
    if constexpr (device == Device::kCUDA) {
      CHECK_INPUT(input);
      CHECK_INPUT(weights);
      CHECK_INPUT(bias);
      CHECK_INPUT(old_h);
    } else {
      CHECK_CPU(input);
      CHECK_CONTIGUOUS(input);
    }
    Sizes sizes;
    sizes.dtype = Guard::supported_dtype(input, "input");
    check_tensor(weights, "weights", input);
    check_tensor(bias, "bias", input);
    check_tensor(old_h, "old_h", input);
    Guard::has_dim(input, "input", 2, "(B, I)");
    Guard::has_dim(old_h, "old_h", 2, "(B, S)");
    sizes.batch = Torch::sizes(input)[0];
    sizes.features = Torch::sizes(input)[1];
    sizes.state = Torch::sizes(old_h)[1];
    Guard::has_shape(old_h, "old_h", {sizes.batch, sizes.state}, "(B, S)");
    Guard::has_shape(weights, "weights", {3 * sizes.state, sizes.state + sizes.features},
                     "(3S, S + I)");
    if (Torch::dim(bias) == 2) {
      Guard::has_shape(bias, "bias", {1, 3 * sizes.state}, "(3S) or (1, 3S)");
    } else {
      Guard::has_shape(bias, "bias", {3 * sizes.state}, "(3S) or (1, 3S)");
    }
    return sizes;
  }

  static Tensor empty_like(const Tensor& bias) {
    return Torch::dim(bias) == 2 ? Torch::empty({1, Torch::sizes(bias)[1]}, bias)
                                 : Torch::empty({Torch::sizes(bias)[0]}, bias);
  }
};

}  // namespace lltm
