// Products of matrices that are parts of tensors, by the kernels or by torch.
#pragma once

#include "operands.h"
#include "parts.h"

namespace lltm {

// A matrix in a tensor. If there are several planes, the matrix is the first of them.
template <typename Torch>
struct Matrix {
  const typename Torch::Tensor& tensor;
  int64_t first = 0;  // the index of the first element
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t stride = 0;  // elements between rows or, if transposed, between columns
  bool is_transposed = false;
  int64_t plane = 0;  // elements between planes

  // An empty matrix; the caller names its place and size.
  explicit Matrix(const typename Torch::Tensor& of_tensor) : tensor(of_tensor) {}

  Matrix transposed() const {
    Matrix other = *this;
    other.rows = columns;
    other.columns = rows;
    other.is_transposed = !is_transposed;
    return other;
  }
  Matrix in_planes(int64_t elements) const {
    Matrix other = *this;
    other.plane = elements;
    return other;
  }
  // Only the first `count` columns. The rows stay as far apart.
  Matrix first_columns(int64_t count) const {
    Matrix other = *this;
    other.columns = count;
    return other;
  }
  typename Torch::Tensor view() const {
    return is_transposed ? Torch::strided(tensor, {rows, columns}, {1, stride}, first)
                         : Torch::strided(tensor, {rows, columns}, {stride, 1}, first);
  }

  // (count, columns): `count` rows of a contiguous tensor, from row `first_row` on.
  static Matrix rows_of(const typename Torch::Tensor& tensor, int64_t first_row, int64_t count,
                        int64_t columns) {
    Matrix matrix(tensor);
    matrix.first = first_row * columns;
    matrix.rows = count;
    matrix.columns = columns;
    matrix.stride = columns;
    return matrix;
  }
  // The columns of `weights` (3S, S + I) that multiply h: (3S, S).
  static Matrix h_columns(const typename Torch::Tensor& weights, const StepSizes& sizes) {
    Matrix matrix(weights);
    matrix.rows = 3 * sizes.state;
    matrix.columns = sizes.state;
    matrix.stride = sizes.columns();
    return matrix;
  }
  // The columns of `weights` that multiply the input: (3S, I).
  static Matrix input_columns(const typename Torch::Tensor& weights, const StepSizes& sizes) {
    Matrix matrix(weights);
    matrix.first = sizes.state;
    matrix.rows = 3 * sizes.state;
    matrix.columns = sizes.features;
    matrix.stride = sizes.columns();
    return matrix;
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

  // to = left right, for each of `planes` planes. Torch makes only one plane.
  void run(const Matrix<Torch>& to, const Matrix<Torch>& left, const Matrix<Torch>& right,
           int64_t planes = 1) const {
    if (by_kernels_) return multiply(to, left, right, planes, kAssigns);
    Torch::mm_out(to.view(), left.view(), right.view());
  }

  // to += left right
  void add(const Matrix<Torch>& to, const Matrix<Torch>& left, const Matrix<Torch>& right) const {
    if (by_kernels_) return multiply(to, left, right, 1, kAdds);
    const auto sum = to.view();
    Torch::addmm_out(sum, sum, left.view(), right.view());
  }

 private:
  using Calls = KernelCalls<Torch, device>;
  enum Result { kAssigns, kAdds };

  void multiply(const Matrix<Torch>& to, const Matrix<Torch>& left, const Matrix<Torch>& right,
                int64_t planes, Result result) const {
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
    product.adds = result == kAdds;
    product.allow_tf32 = sizes_.allow_tf32;
    product.blas_handle = handle_;
    Calls::check(Calls::kernels().product(sizes_.dtype, &product, &where_));
  }

  const LayerSizes& sizes_;
  const lltm_execution& where_;
  void* handle_ = nullptr;  // of cuBLAS
  bool by_kernels_ = false;
};

}  // namespace lltm
