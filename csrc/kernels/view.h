// A contiguous tensor as nested indices: `gates[n][gate][column]`. Indices are 64-bit.
#pragma once

#include "types.h"

namespace lltm {

template <typename T, int Rank>
class View {
 public:
  // `sizes` are those of all dimensions but the first, which indexing does not need.
  template <typename... Sizes>
  LLTM_HOST_DEVICE explicit View(T* data, Sizes... sizes) : data_(data), inner_{sizes...} {
    static_assert(sizeof...(Sizes) == Rank - 1, "give the size of every dimension but the first");
  }

  LLTM_HOST_DEVICE decltype(auto) operator[](int64_t index) const {
    return at(data_, inner_, index);
  }

  // Elements in the last dimension.
  LLTM_HOST_DEVICE int64_t inner_size() const { return inner_[Rank - 2]; }

 private:
  template <typename U, int R>
  friend class View;

  LLTM_HOST_DEVICE View(T* data, const int64_t* inner) : data_(data) {
    for (int dim = 0; dim < Rank - 1; ++dim) inner_[dim] = inner[dim];
  }

  LLTM_HOST_DEVICE static View<T, Rank - 1> at(T* data, const int64_t* inner, int64_t index) {
    int64_t stride = 1;
    for (int dim = 0; dim < Rank - 1; ++dim) stride *= inner[dim];
    return View<T, Rank - 1>(data + index * stride, inner + 1);
  }

  T* data_;
  int64_t inner_[Rank - 1];
};

template <typename T>
class View<T, 1> {
 public:
  LLTM_HOST_DEVICE explicit View(T* data) : data_(data) {}
  LLTM_HOST_DEVICE T& operator[](int64_t index) const { return data_[index]; }

 private:
  template <typename U, int R>
  friend class View;

  LLTM_HOST_DEVICE View(T* data, const int64_t*) : data_(data) {}

  T* data_;
};

}  // namespace lltm
