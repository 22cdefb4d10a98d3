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
    if (from) rows(*from, *to, to_.rows(), from_.features, to_.features);
  }
  void weights(const OptionalTensor& from, const OptionalTensor& to) {
    if (!from) return;
    const auto columns = [&](int64_t from_first, int64_t to_first, int64_t from_columns,
                             int64_t to_columns) {
      copies_[count_++] = {from_.at(Torch::data(*from), from_first),
                           to_.at(Torch::data(*to), to_first),
                           3,
                           from_.state,
                           to_.state,
                           from_columns,
                           to_columns,
                           from_.columns(),
                           to_.columns()};
    };
    columns(0, 0, from_.state, to_.state);
    columns(from_.state, to_.state, from_.features, to_.features);
  }
  void states(const OptionalTensor& from, const OptionalTensor& to) {
    if (from) rows(*from, *to, View::elements(*from) / from_.state, from_.state, to_.state);
  }

  // Return a new tensor, which `run` fills with the copy. An input or states whose rows keep their
  // length are returned without a copy.
  Tensor input(const Tensor& tensor) {
    if (from_.features == to_.features) return tensor;
    const Tensor copy = Torch::empty({to_.steps, to_.batch, to_.features}, tensor);
    input(tensor, copy);
    return copy;
  }
  Tensor weights(const Tensor& tensor) {
    const Tensor copy = Torch::empty({3 * to_.state, to_.columns()}, tensor);
    weights(tensor, copy);
    return copy;
  }
  Tensor states(const Tensor& tensor, std::initializer_list<int64_t> shape) {
    if (from_.state == to_.state) return tensor;
    const Tensor copy = Torch::empty(shape, tensor);
    states(tensor, copy);
    return copy;
  }
  // Without a shape, the new tensor is one matrix with rows of S elements.
  OptionalTensor states(const OptionalTensor& tensor) {
    if (!tensor) return tensor;
    return states(*tensor, {View::elements(*tensor) / from_.state, to_.state});
  }

  void run() const {
    if (count_ == 0) return;
    Calls::check(Calls::kernels().copy(from_.dtype, count_, copies_, &where_));
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  using View = Views<Torch>;

  void rows(const Tensor& from, const Tensor& to, int64_t rows, int64_t from_columns,
            int64_t to_columns) {
    copies_[count_++] = {Torch::data(from), Torch::data(to), 1,         rows, rows, from_columns,
                         to_columns,        from_columns,    to_columns};
  }

  const LayerSizes& from_;
  const LayerSizes& to_;
  const lltm_execution& where_;
  int32_t count_ = 0;
  lltm_copy copies_[LLTM_MOST_COPIES] = {};
};

}  // namespace lltm
