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
    const Sizes sizes = check_operands(input, weights, bias, old_h);
    check_tensor(old_cell, "old_cell", input);
    Guard::has_shape(old_cell, "old_cell", {sizes.batch, sizes.state}, "(B, S)");

    const typename Torch::DeviceGuard device_guard(input);
    const lltm_execution where = execution(input);
    const int64_t columns = sizes.state + sizes.features;
    const Tensor x = Torch::cat_columns(old_h, input);
    const Tensor gates = Torch::empty({sizes.batch, 3, sizes.state}, input);
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
    const Tensor new_h = Torch::empty({sizes.batch, sizes.state}, input);
    const Tensor new_cell = Torch::empty({sizes.batch, sizes.state}, input);

    const lltm_cell_forward_arguments arguments = {
        sizes.batch,           sizes.state,
        Torch::data(gates),    gemm_adds_bias ? nullptr : Torch::data(bias),
        Torch::data(old_cell), Torch::data(new_h),
        Torch::data(new_cell),
    };
    check_kernel(kernels().cell_forward(sizes.dtype, &arguments, &where));
    return {new_h, new_cell, gates};
  }

  // Gradients of forward; see schema.h for `needs`. A missing grad_* counts as zero.
  static std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> backward(
      const std::optional<Tensor>& grad_h, const std::optional<Tensor>& grad_cell,
      const std::optional<Tensor>& grad_gates, const Tensor& input, const Tensor& weights,
      const Tensor& bias, const Tensor& old_h, const Tensor& new_cell, const Tensor& gates,
      int64_t needs) {
    const Sizes sizes = check_operands(input, weights, bias, old_h);
    const int64_t batch = sizes.batch;
    const int64_t state = sizes.state;
    const int64_t features = sizes.features;
    check_tensor(new_cell, "new_cell", input);
    Guard::has_shape(new_cell, "new_cell", {batch, state}, "(B, S)");
    check_tensor(gates, "gates", input);
    Guard::has_shape(gates, "gates", {batch, 3, state}, "(B, 3, S)");
    if (grad_h) {
      check_tensor(*grad_h, "grad_h", input);
      Guard::has_shape(*grad_h, "grad_h", {batch, state}, "(B, S)");
    }
    if (grad_cell) {
      check_tensor(*grad_cell, "grad_cell", input);
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
    const bool needs_old_cell = (needs & kNeedsOldCell) != 0;
    const auto unwanted = [&] { return Torch::empty({0}, input); };
    const Tensor d_gates = Torch::empty({batch, 3, state}, input);
    const Tensor d_old_cell = needs_old_cell ? Torch::empty({batch, state}, input) : unwanted();
    const auto data_or_null = [](const std::optional<Tensor>& tensor) -> const void* {
      return tensor ? Torch::data(*tensor) : nullptr;
    };
    const lltm_cell_backward_arguments arguments = {
        batch,
        state,
        data_or_null(grad_h),
        data_or_null(grad_cell),
        data_or_null(grad_gates),
        nullptr,
        nullptr,
        Torch::data(gates),
        Torch::data(new_cell),
        Torch::data(d_gates),
        needs_old_cell ? Torch::data(d_old_cell) : nullptr,
    };
    check_kernel(kernels().cell_backward(sizes.dtype, &arguments, &where));

    // The halves of `weights` that belong to old_h and to input are taken apart by stride: nothing
    // is concatenated, and the gradients share no memory.
    const int64_t columns = state + features;
    const Tensor d_z = Torch::strided(d_gates, {batch, 3 * state}, {3 * state, 1}, 0);
    const Tensor d_z_transposed = Torch::strided(d_gates, {3 * state, batch}, {1, 3 * state}, 0);
    const auto h_half = [&](const Tensor& matrix) {
      return Torch::strided(matrix, {3 * state, state}, {columns, 1}, 0);
    };
    const auto input_half = [&](const Tensor& matrix) {
      return Torch::strided(matrix, {3 * state, features}, {columns, 1}, state);
    };

    Tensor d_old_h = (needs & kNeedsOldH) != 0 ? Torch::empty({batch, state}, input) : unwanted();
    if ((needs & kNeedsOldH) != 0) Torch::mm_out(d_old_h, d_z, h_half(weights));

    Tensor d_input =
        (needs & kNeedsInput) != 0 ? Torch::empty({batch, features}, input) : unwanted();
    if ((needs & kNeedsInput) != 0) Torch::mm_out(d_input, d_z, input_half(weights));

    Tensor d_weights =
        (needs & kNeedsWeights) != 0 ? Torch::empty({3 * state, columns}, input) : unwanted();
    if ((needs & kNeedsWeights) != 0) {
      Torch::mm_out(h_half(d_weights), d_z_transposed, old_h);
      Torch::mm_out(input_half(d_weights), d_z_transposed, input);
    }

    Tensor d_bias = (needs & kNeedsBias) != 0 ? empty_like(bias) : unwanted();
    if ((needs & kNeedsBias) != 0) {
      const lltm_column_sum_arguments sum = {batch, 3 * state, Torch::data(d_gates),
                                             Torch::data(d_bias)};
      check_kernel(kernels().column_sum(sizes.dtype, &sum, &where));
    }
    return {d_input, d_weights, d_bias, d_old_h, d_old_cell};
  }

 private:
  using Guard = Guards<Torch>;

  struct Sizes {
    int64_t batch;
    int64_t features;
    int64_t state;
    lltm_dtype dtype;
  };

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
