// Pads a layer's operands with rows and columns of zeros, and removes the padding from the results.
// Plans ask for padding if unaligned rows would slow down cuBLAS or rule out the family `grid`.
#pragma once

#include <initializer_list>
#include <optional>

#include "operands.h"
#include "parts.h"

namespace lltm {

// Collects copies from tensors of the sizes `from` to tensors of the sizes `to`. `run` makes all
// collected copies in one launch. A missing tensor is not copied.
template <typename Torch, Device device>
class LayerPadding {
 public:
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;

  LayerPadding(const LayerSizes& from, const LayerSizes& to, const lltm_execution& where)
      : from_(from), to_(to), where_(where) {}

  // Collect a copy into an existing tensor. `states` copies any tensor with rows of S elements.
  void input(const OptionalTensor& from, const OptionalTensor& to) {
    if (from) add_rows({*from, from_.features}, {*to, to_.features}, to_.rows());
  }
  void weights(const OptionalTensor& from, const OptionalTensor& to) {
    if (!from) return;
    lltm_copy of_h = {};
    of_h.from = Torch::data(*from);
    of_h.to = Torch::data(*to);
    of_h.planes = 3;  // one per gate
    of_h.from_rows = from_.state;
    of_h.to_rows = to_.state;
    of_h.from_columns = from_.state;
    of_h.to_columns = to_.state;
    of_h.from_stride = from_.columns();
    of_h.to_stride = to_.columns();
    copies_[count_++] = of_h;
    lltm_copy of_input = of_h;
    of_input.from = from_.at(of_h.from, from_.state);
    of_input.to = to_.at(of_h.to, to_.state);
    of_input.from_columns = from_.features;
    of_input.to_columns = to_.features;
    copies_[count_++] = of_input;
  }
  void states(const OptionalTensor& from, const OptionalTensor& to) {
    if (!from) return;
    add_rows({*from, from_.state}, {*to, to_.state}, from->numel() / from_.state);
  }

  // Return new tensors, which `run` fills with the copies. An input or states whose rows keep their
  // length are returned without a copy.
  Tensor states(const Tensor& tensor, std::initializer_list<int64_t> shape) {
    if (from_.state == to_.state) return tensor;
    const Tensor copy = Torch::empty(shape, tensor);
    states(tensor, copy);
    return copy;
  }
  // Without a shape, the new tensor is one matrix with rows of S elements.
  OptionalTensor states(const OptionalTensor& tensor) {
    if (!tensor) return tensor;
    return states(*tensor, {tensor->numel() / from_.state, to_.state});
  }

  Operands<Tensor> pad(const Operands<Tensor>& operands) {
    const Tensor weights_copy = Torch::empty({3 * to_.state, to_.columns()}, operands.weights);
    weights(operands.weights, weights_copy);
    Operands<Tensor> padded = {operands.input, weights_copy, states(operands.bias),
                               states(operands.h), states(operands.cell)};
    if (from_.features != to_.features) {
      padded.input = Torch::empty({to_.steps, to_.batch, to_.features}, operands.input);
      input(operands.input, padded.input);
    }
    return padded;
  }

  void run() const {
    if (count_ == 0) return;
    Calls::check(Calls::kernels().copy(from_.dtype, count_, copies_, &where_));
  }

 private:
  using Calls = KernelCalls<Torch, device>;

  // A tensor as rows without gaps between them.
  struct Rows {
    const Tensor& tensor;
    int64_t columns;
  };

  // Adds a copy of `count` rows.
  void add_rows(const Rows& from, const Rows& to, int64_t count) {
    lltm_copy copy = {};
    copy.from = Torch::data(from.tensor);
    copy.to = Torch::data(to.tensor);
    copy.planes = 1;
    copy.from_rows = count;
    copy.to_rows = count;
    copy.from_columns = from.columns;
    copy.to_columns = to.columns;
    copy.from_stride = from.columns;
    copy.to_stride = to.columns;
    copies_[count_++] = copy;
  }

  const LayerSizes& from_;
  const LayerSizes& to_;
  const lltm_execution& where_;
  int32_t count_ = 0;
  lltm_copy copies_[LLTM_MOST_COPIES] = {};
};

}  // namespace lltm
