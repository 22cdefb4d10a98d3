// Views of tensors, or of parts of them, as matrices by strides, without copies.
#pragma once

#include <cstdint>

namespace lltm {

template <typename Torch>
struct Views {
  using Tensor = typename Torch::Tensor;

  // (count, columns): rows of a contiguous tensor, from row `first` on.
  static Tensor rows(const Tensor& tensor, int64_t first, int64_t count, int64_t columns) {
    return Torch::strided(tensor, {count, columns}, {columns, 1}, first * columns);
  }
  // (columns, count): the same, transposed.
  static Tensor rows_transposed(const Tensor& tensor, int64_t first, int64_t count,
                                int64_t columns) {
    return Torch::strided(tensor, {columns, count}, {1, columns}, first * columns);
  }

  // The columns of `weights` (3S, S + I) that multiply old_h, then those that multiply the input.
  template <typename Sizes>
  static Tensor h_columns(const Tensor& weights, const Sizes& sizes) {
    return Torch::strided(weights, {3 * sizes.state, sizes.state}, {sizes.columns(), 1}, 0);
  }
  template <typename Sizes>
  static Tensor input_columns(const Tensor& weights, const Sizes& sizes) {
    return Torch::strided(weights, {3 * sizes.state, sizes.features}, {sizes.columns(), 1},
                          sizes.state);
  }
};

}  // namespace lltm
