// Pads a layer's operands with rows and columns of zeros, and removes them from its results. For
// unaligned rows, cuBLAS is slow, and families of the kernels are slow or do not exist.
#pragma once

#include <initializer_list>
#include <optional>

#include "kernel_calls.h"
#include "operands.h"

namespace lltm {

// Collects copies; `run` makes them all in one launch.
template <typename Torch, Device device>
class LayerPadding {
 public:
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;

  LayerPadding(const LayerSizes& from, const LayerSizes& to, const lltm_execution& where)
      : from_(from), to_(to), where_(where) {}

  // Copies into an existing tensor: the input (T, B, I), the weights, or states (..., S).
  void input(const Tensor& from, const Tensor& to) {
    copies_[count_++] = {at(from),     at(to),         1,
                         to_.rows(),   to_.rows(),     from_.features,
                         to_.features, from_.features, to_.features};
  }
  void weights(const Tensor& from, const Tensor& to) {
    copies_[count_++] = {at(from),    at(to),          3,
                         from_.state, to_.state,       from_.state,
                         to_.state,   from_.columns(), to_.columns()};
    copies_[count_++] = {at(from, from_.state), at(to, to_.state), 3,
                         from_.state,           to_.state,         from_.features,
                         to_.features,          from_.columns(),   to_.columns()};
  }
  void states(const Tensor& from, const Tensor& to, int64_t rows) {
    copies_[count_++] = {at(from),    at(to),    1,           rows,     rows,
                         from_.state, to_.state, from_.state, to_.state};
  }

  // Copies into a new tensor, if its shape differs.
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
  // bias (3S)
  Tensor bias(const Tensor& tensor) { return states(tensor, {3 * to_.state}, 3); }
  Tensor state(const Tensor& tensor) { return states(tensor, {to_.batch, to_.state}, to_.batch); }
  Tensor sequence(const Tensor& tensor) {
    return states(tensor, {to_.steps, to_.batch, to_.state}, to_.rows());
  }
  Tensor gates(const Tensor& tensor) {
    return states(tensor, {to_.steps, to_.batch, 3, to_.state}, 3 * to_.rows());
  }

  // The same for an optional tensor, such as `maybe(bias, &LayerPadding::bias)`.
  OptionalTensor maybe(const OptionalTensor& tensor, Tensor (LayerPadding::*pad)(const Tensor&)) {
    return tensor ? OptionalTensor((this->*pad)(*tensor)) : std::nullopt;
  }

  void run() const {
    if (count_ == 0) return;
    Calls::check(Calls::kernels().copy(from_.dtype, count_, copies_, &where_));
  }

 private:
  using Calls = KernelCalls<Torch, device>;

  Tensor states(const Tensor& tensor, std::initializer_list<int64_t> shape, int64_t rows) {
    if (from_.state == to_.state) return tensor;
    const Tensor copy = Torch::empty(shape, tensor);
    states(tensor, copy, rows);
    return copy;
  }

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
