// Products of matrices that are parts of tensors, by the kernels or by torch.
#pragma once

#include "operands.h"
#include "parts.h"

namespace lltm {

// A matrix in a tensor. If there are several planes, the matrix is the first of them.
template <typename Torch>
struct Matrix {
  const typename Torch::Tensor& tensor;
  int64_t first;  // the index of the first element
  int64_t rows;
  int64_t columns;
  int64_t stride;  // elements between rows or, if transposed, between columns
  bool is_transposed = false;
  int64_t plane = 0;  // elements between planes

  Matrix transposed() const {
    return {tensor, first, columns, rows, stride, !is_transposed, plane};
  }
  Matrix in_planes(int64_t elements) const {
    return {tensor, first, rows, columns, stride, is_transposed, elements};
  }
  typename Torch::Tensor view() const {
    return is_transposed ? Torch::strided(tensor, {rows, columns}, {1, stride}, first)
                         : Torch::strided(tensor, {rows, columns}, {stride, 1}, first);
  }

  // (count, columns): `count` rows of a contiguous tensor, from row `first` on.
  static Matrix rows_of(const typename Torch::Tensor& tensor, int64_t first, int64_t count,
                        int64_t columns) {
    return {tensor, first * columns, count, columns, columns};
  }
  // The columns of `weights` (3S, S + I) that multiply h: (3S, S).
  static Matrix h_columns(const typename Torch::Tensor& weights, const CellSizes& sizes) {
    return {weights, 0, 3 * sizes.state, sizes.state, sizes.columns()};
  }
  // The columns of `weights` that multiply the input: (3S, I).
  static Matrix input_columns(const typename Torch::Tensor& weights, const CellSizes& sizes) {
    return {weights, sizes.state, 3 * sizes.state, sizes.features, sizes.columns()};
  }
};

// Makes the products of a layer by the kernels' `product`, if the plan of the step or of the layer
// says calls_product and, on CUDA, torch gives a cuBLAS handle; else by torch.
template <typename Torch, Device device>
class Products {
 public:
  Products(const LayerSizes& sizes, int32_t calls_product, const lltm_execution& where)
      : sizes_(sizes), where_(where) {
    if (calls_product == 0) return;
    if constexpr (device == Device::kCUDA) handle_ = where.blas_handle();
    by_kernels_ = device == Device::kCPU || handle_ != nullptr;
  }

  bool by_kernels() const { return by_kernels_; }

  // to = left right or, if `adds`, to += left right. Torch makes only one plane.
  void run(const Matrix<Torch>& to, const Matrix<Torch>& left, const Matrix<Torch>& right,
           bool adds = false, int64_t planes = 1) const {
    if (!by_kernels_) {
      const auto sum = to.view();
      return adds ? Torch::addmm_out(sum, sum, left.view(), right.view())
                  : Torch::mm_out(sum, left.view(), right.view());
    }
    const auto data = [&](const Matrix<Torch>& matrix) {
      return sizes_.at(Torch::data(matrix.tensor), matrix.first);
    };
    lltm_product_arguments product = {};
    product.planes = planes;
    product.rows = to.rows;
    product.columns = to.columns;
    product.depth = left.columns;
    product.left = data(left);
    product.left_stride = left.stride;
    product.left_plane = left.plane;
    product.left_transposed = left.is_transposed;
    product.right = data(right);
    product.right_stride = right.stride;
    product.right_plane = right.plane;
    product.right_transposed = right.is_transposed;
    product.to = data(to);
    product.to_stride = to.stride;
    product.to_plane = to.plane;
    product.adds = adds;
    product.allow_tf32 = sizes_.allow_tf32;
    product.blas_handle = handle_;
    Calls::check(Calls::kernels().product(sizes_.dtype, &product, &where_));
  }

 private:
  using Calls = KernelCalls<Torch, device>;

  const LayerSizes& sizes_;
  const lltm_execution& where_;
  void* handle_ = nullptr;  // of cuBLAS
  bool by_kernels_ = false;
};

}  // namespace lltm
