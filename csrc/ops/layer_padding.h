// Pads a layer's operands with rows and columns of zeros, and removes them from its results. For
// unaligned rows, cuBLAS is slow, and families of the kernels are slow or do not exist.
#pragma once

#include <initializer_list>
#include <optional>

#include "operands.h"
#include "parts.h"

namespace lltm {

// Collects copies; `run` makes them all in one launch. Missing tensors are left out.
template <typename Torch, Device device>
class LayerPadding {
 public:
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;

  LayerPadding(const LayerSizes& from, const LayerSizes& to, const lltm_execution& where)
      : from_(from), to_(to), where_(where) {}

  // Copies into an existing tensor: the input (T, B, I), the weights, or states (..., S).
  void input(const OptionalTensor& from, const OptionalTensor& to) {
    if (!from) return;
    copies_[count_++] = {at(*from),    at(*to),        1,
                         to_.rows(),   to_.rows(),     from_.features,
                         to_.features, from_.features, to_.features};
  }
  void weights(const OptionalTensor& from, const OptionalTensor& to) {
    if (!from) return;
    copies_[count_++] = {at(*from),   at(*to),         3,
                         from_.state, to_.state,       from_.state,
                         to_.state,   from_.columns(), to_.columns()};
    copies_[count_++] = {at(*from, from_.state),
                         at(*to, to_.state),
                         3,
                         from_.state,
                         to_.state,
                         from_.features,
                         to_.features,
                         from_.columns(),
                         to_.columns()};
  }
  void states(const OptionalTensor& from, const OptionalTensor& to) {
    if (!from) return;
    const int64_t rows = View::elements(*from) / from_.state;
    copies_[count_++] = {at(*from),   at(*to),   1,           rows,     rows,
                         from_.state, to_.state, from_.state, to_.state};
  }

  // Copies into a new tensor, if its size differs.
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
  // The same as one matrix, a state in a row.
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

  void* at(const Tensor& tensor, int64_t element = 0) const {
    return static_cast<char*>(Torch::data(tensor)) + element * lltm_dtype_bytes(from_.dtype);
  }

  const LayerSizes& from_;
  const LayerSizes& to_;
  const lltm_execution& where_;
  int32_t count_ = 0;
  lltm_copy copies_[LLTM_MOST_COPIES] = {};
};

}  // namespace lltm
