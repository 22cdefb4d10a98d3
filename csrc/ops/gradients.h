// What a backward operator returns: the gradients that are wanted, each shaped like its operand.
#pragma once

#include <optional>
#include <tuple>
#include <utility>

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

  // Uninitialised; none where `needs`, the mask of wanted gradients, lacks the bit.
  static OptionalTensor like(const Tensor& operand, int64_t needs, int64_t bit) {
    if ((needs & bit) == 0) return std::nullopt;
    return Torch::empty_like(operand);
  }
  static OptionalTensor like(const OptionalTensor& operand, int64_t needs, int64_t bit) {
    if (!operand) return std::nullopt;
    return like(*operand, needs, bit);
  }

  // Moves them out; those that are not wanted come without elements.
  std::tuple<Tensor, Tensor, Tensor, Tensor, Tensor> take(const Tensor& model) {
    const auto or_nothing = [&](OptionalTensor& gradient) {
      return gradient ? std::move(*gradient) : Torch::empty({0}, model);
    };
    return {or_nothing(input), or_nothing(weights), or_nothing(bias), or_nothing(h),
            or_nothing(cell)};
  }
};

}  // namespace lltm
