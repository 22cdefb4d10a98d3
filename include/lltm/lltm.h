// The LLTM cell for C++ programs, with torch's dispatcher and autograd, and without Python.
//
//   #include <lltm/lltm.h>
//   auto [new_h, new_cell] = lltm::cell(input, weights, bias, old_h, old_cell);
//
// Link lltm::lltm (CMake: find_package(lltm)). Your program compiles this header against its own
// torch. The compilation takes a third less time if you define AT_PER_OPERATOR_HEADERS and do not
// include <ATen/ATen.h>.
#pragma once

#include <ATen/TensorOperators.h>
#include <ATen/core/LegacyTypeDispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/ones_like.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/stack.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/where.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/autograd/custom_function.h>

#include <bitset>
#include <cstdint>
#include <optional>
#include <tuple>

// The version of the library that the process has loaded.
extern "C" const char* lltm_version(void);

namespace lltm {

// torch.ops.lltm.forward: (new_h, new_cell, gates), where gates (B, 3, S) are the pre-activations.
// This function does not record for autograd; `cell` does.
inline std::tuple<at::Tensor, at::Tensor, at::Tensor> forward(const at::Tensor& input,
                                                              const at::Tensor& weights,
                                                              const at::Tensor& bias,
                                                              const at::Tensor& old_h,
                                                              const at::Tensor& old_cell) {
  // The call of lltm_version makes the linker keep the library, which registers the op.
  static const auto op = (lltm_version(), c10::Dispatcher::singleton()
                                              .findSchemaOrThrow("lltm::forward", "")
                                              .typed<decltype(forward)>());
  const at::AutoDispatchBelowAutograd below;
  return op.call(input, weights, bias, old_h, old_cell);
}

// torch.ops.lltm.backward: the gradients of (input, weights, bias, old_h, old_cell). Bit k of
// `needs` asks for gradient k of this list, counted from 0. A gradient that was not asked for has
// no elements. If `gates` is missing, the op computes the gates again.
inline std::tuple<at::Tensor, at::Tensor, at::Tensor, at::Tensor, at::Tensor> backward(
    const std::optional<at::Tensor>& grad_h, const std::optional<at::Tensor>& grad_cell,
    const std::optional<at::Tensor>& grad_gates, const at::Tensor& input, const at::Tensor& weights,
    const at::Tensor& bias, const at::Tensor& old_h, const at::Tensor& new_cell,
    const std::optional<at::Tensor>& gates, int64_t needs) {
  static const auto op = (lltm_version(), c10::Dispatcher::singleton()
                                              .findSchemaOrThrow("lltm::backward", "")
                                              .typed<decltype(backward)>());
  const at::AutoDispatchBelowAutograd below;
  return op.call(grad_h, grad_cell, grad_gates, input, weights, bias, old_h, new_cell, gates,
                 needs);
}

// The cell as an autograd function, differentiable to any order. It returns (new_h, new_cell,
// gates). The gates are an output so that derivatives of backward, which reads the gates, reach the
// inputs.
class CellFunction : public torch::autograd::Function<CellFunction> {
 public:
  using Context = torch::autograd::AutogradContext;
  using Tensors = torch::autograd::variable_list;

  static Tensors forward(Context* context, const at::Tensor& input, const at::Tensor& weights,
                         const at::Tensor& bias, const at::Tensor& old_h,
                         const at::Tensor& old_cell) {
    auto [new_h, new_cell, gates] = lltm::forward(input, weights, bias, old_h, old_cell);
    context->save_for_backward({input, weights, bias, old_h, new_cell, gates});
    context->set_materialize_grads(false);
    return {new_h, new_cell, gates};
  }

  static Tensors backward(Context* context, const Tensors& grads) {
    const Tensors saved = context->get_saved_variables();
    if (!grads[0].defined() && !grads[1].defined() && !grads[2].defined()) return Tensors(5);
    std::bitset<5> wanted;
    for (size_t k = 0; k < wanted.size(); ++k) wanted[k] = context->needs_input_grad(k);
    // With create_graph, the caller can differentiate these gradients again.
    if (at::GradMode::is_enabled()) return differentiable_backward(grads, saved, wanted);

    const auto optional = [](const at::Tensor& grad) {
      return grad.defined() ? std::optional<at::Tensor>(grad.contiguous()) : std::nullopt;
    };
    auto [d_input, d_weights, d_bias, d_old_h, d_old_cell] = lltm::backward(
        optional(grads[0]), optional(grads[1]), optional(grads[2]), saved[0], saved[1], saved[2],
        saved[3], saved[4], saved[5], static_cast<int64_t>(wanted.to_ulong()));
    Tensors result = {d_input, d_weights, d_bias, d_old_h, d_old_cell};
    for (size_t k = 0; k < wanted.size(); ++k) {
      if (!wanted[k]) result[k] = at::Tensor();
    }
    return result;
  }

 private:
  // Computes the same gradients as lltm::backward, by ATen's differentiable operations.
  static Tensors differentiable_backward(const Tensors& grads, const Tensors& saved,
                                         const std::bitset<5>& wanted) {
    const at::Tensor &input = saved[0], &weights = saved[1], &bias = saved[2], &old_h = saved[3];
    const at::ScalarType dtype = input.scalar_type();
    // Like the kernels, compute element-wise operations on 16-bit tensors in float32.
    const at::ScalarType compute =
        dtype == at::kHalf || dtype == at::kBFloat16 ? at::kFloat : dtype;
    const Tensors z = saved[5].to(compute).unbind(1);
    const at::Tensor i = at::sigmoid(z[0]), o = at::sigmoid(z[1]), g = at::elu(z[2]);
    // 1 - sigmoid(z) loses all digits for large z; sigmoid(-z) does not.
    const at::Tensor i_rest = at::sigmoid(-z[0]), o_rest = at::sigmoid(-z[1]);
    // At z[2] = 0, both this slope and its derivative equal those of at::elu.
    const at::Tensor slope = at::where(g >= 0, at::ones_like(g), g + 1);
    const at::Tensor t = at::tanh(saved[4].to(compute));
    const at::Tensor zero = at::zeros_like(t);
    const at::Tensor grad_h = grads[0].defined() ? grads[0].to(compute) : zero;
    const at::Tensor grad_cell = grads[1].defined() ? grads[1].to(compute) : zero;

    const at::Tensor d_cell = grad_cell + grad_h * o * (1 - t * t);
    at::Tensor d_gates =
        at::stack({d_cell * g * i * i_rest, grad_h * t * o * o_rest, d_cell * i * slope}, 1);
    if (grads[2].defined()) d_gates = d_gates + grads[2].to(compute);
    const at::Tensor d_z = d_gates.to(dtype).flatten(1);

    const int64_t state = old_h.size(1);
    Tensors result(5);
    if (wanted[0]) result[0] = d_z.mm(weights.slice(1, state));
    if (wanted[1]) result[1] = d_z.t().mm(at::cat({old_h, input}, 1));
    if (wanted[2]) result[2] = d_gates.sum(0).to(dtype).reshape(bias.sizes());
    if (wanted[3]) result[3] = d_z.mm(weights.slice(1, 0, state));
    if (wanted[4]) result[4] = d_cell.to(dtype);
    return result;
  }
};

// Makes one step of the LLTM cell and records it for autograd. Returns new_h and new_cell, both (B,
// S).
//
// input (B, I), weights (3S, S + I) with the columns of h first and the rows in the order i, o, c,
// bias (3S) or (1, 3S), old_h and old_cell (B, S); float32, float64, float16 or bfloat16, all on
// one CPU or CUDA device. A wrong shape or dtype, or a device other than that of input, throws a
// std::exception (mostly a c10::Error), whose text names the argument.
inline std::tuple<at::Tensor, at::Tensor> cell(const at::Tensor& input, const at::Tensor& weights,
                                               const at::Tensor& bias, const at::Tensor& old_h,
                                               const at::Tensor& old_cell) {
  const auto outputs =
      CellFunction::apply(input.contiguous(), weights.contiguous(), bias.contiguous(),
                          old_h.contiguous(), old_cell.contiguous());
  return {outputs[0], outputs[1]};
}

}  // namespace lltm
