// A contiguous matrix as nested indices: `matrix[row][column]`. Indices are 64-bit.
#pragma once

#include "types.h"

namespace lltm {

template <typename T, int Rank>
class View {
 public:
  static_assert(Rank == 2, "matrices alone");
  LLTM_HOST_DEVICE View(T* data, int64_t columns) : data_(data), columns_(columns) {}
  LLTM_HOST_DEVICE T* operator[](int64_t row) const { return data_ + row * columns_; }

 private:
  T* data_;
  int64_t columns_;
};

}  // namespace lltm
