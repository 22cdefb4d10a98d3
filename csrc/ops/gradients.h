// The results of a backward operator: the wanted gradients, each shaped like its operand.
#pragma once

#include <optional>
#include <tuple>
#include <utility>

#include "../kernels/lltm_kernels.h"

namespace lltm {

template <typename Torch>
struct Gradients {
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;

  OptionalTensor input;
  OptionalTensor weights;
  OptionalTensor bias;
  OptionalTensor h;
  OptionalTensor cell;

  // Makes uninitialised gradients; `needs` is the mask of the wanted ones. An operand is a tensor
  // or an optional one; a missing operand has no gradient.
  template <typename Bias, typename State>
  Gradients(int64_t needs, const Tensor& input, const Tensor& weights, const Bias& bias,
            const State& h, const State& cell)
      : input(like(input, needs & LLTM_NEEDS_INPUT)),
        weights(like(weights, needs & LLTM_NEEDS_WEIGHTS)),
        bias(like(bias, needs & LLTM_NEEDS_BIAS)),
        h(like(h, needs & LLTM_NEEDS_OLD_H)),
        cell(like(cell, needs & LLTM_NEEDS_OLD_CELL)) {}

  // Returns all gradients; those that are not wanted have no elements.
  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> take(const Tensor& model) {
    const auto or_nothing = [&](OptionalTensor& gradient) {
      return gradient ? std::move(*gradient) : Torch::empty({0}, model);
    };
    return {or_nothing(input), or_nothing(weights), or_nothing(bias), or_nothing(h),
            or_nothing(cell)};
  }

 private:
  static OptionalTensor like(const Tensor& operand, int64_t wanted) {
    return wanted != 0 ? OptionalTensor(Torch::empty_like(operand)) : std::nullopt;
  }
  static OptionalTensor like(const OptionalTensor& operand, int64_t wanted) {
    return operand ? like(*operand, wanted) : std::nullopt;
  }
};

}  // namespace lltm
