// What steps by cuBLAS share: their workspace, their products and the error of a launch.
#pragma once

#include "../common/launch.h"
#include "../common/product.h"
#include "step.h"

namespace lltm {

// A matrix, or several of one size, the planes, whose first elements are `plane` elements apart.
struct Matrix {
  const void* data = nullptr;
  int64_t stride = 0;  // elements between rows
  bool is_transposed = false;
  int64_t plane = 0;

  Matrix transposed() const {
    Matrix other = *this;
    other.is_transposed = !is_transposed;
    return other;
  }
  Matrix in_planes(int64_t elements) const {
    Matrix other = *this;
    other.plane = elements;
    return other;
  }
};

// to (rows, columns) = left right for each plane, or with `adds` to += left right.
struct Product {
  int64_t rows = 0;
  int64_t columns = 0;
  int64_t depth = 0;
  Matrix left;
  Matrix right;
  Matrix to;
  lltm_dtype to_dtype = LLTM_FLOAT32;  // of the result
  int64_t planes = 1;
  bool adds = false;
};

// After a failed launch, it launches nothing more.
class StepLaunches {
 public:
  int64_t rows, state, inputs;  // B, S, I
  int64_t depth, lines;         // S + I and 3S; CublasStep may round them up

  // `workspace` may be NULL, to learn only its size.
  StepLaunches(lltm_dtype dtype, const lltm_step_sizes& sizes, const lltm_execution& execution,
               void* workspace)
      : rows(sizes.batch_size),
        state(sizes.state_size),
        inputs(sizes.input_size),
        depth(state + inputs),
        lines(3 * state),
        dtype_(dtype),
        bytes_(lltm_dtype_bytes(dtype)),
        allows_tf32_(dtype == LLTM_FLOAT32 && sizes.allow_tf32 != 0),
        execution_(execution),
        workspace_(static_cast<char*>(workspace)) {}

  void* element(const void* data, int64_t index) const {
    return static_cast<char*>(const_cast<void*>(data)) + index * bytes_;
  }

  void multiply(const Product& product) {
    if (handle_ == nullptr) handle_ = execution_.blas_handle();
    lltm_product_arguments arguments = {};
    arguments.planes = product.planes;
    arguments.rows = product.rows;
    arguments.columns = product.columns;
    arguments.depth = product.depth;
    arguments.left = product.left.data;
    arguments.left_stride = product.left.stride;
    arguments.left_plane = product.left.plane;
    arguments.left_transposed = product.left.is_transposed;
    arguments.right = product.right.data;
    arguments.right_stride = product.right.stride;
    arguments.right_plane = product.right.plane;
    arguments.right_transposed = product.right.is_transposed;
    arguments.to = const_cast<void*>(product.to.data);
    arguments.to_stride = product.to.stride;
    arguments.to_plane = product.to.plane;
    arguments.adds = product.adds;
    arguments.allow_tf32 = allows_tf32_;
    arguments.blas_handle = handle_;
    run([&] { return product_to(dtype_, product.to_dtype, arguments); });
  }

  template <typename Launch>
  void run(const Launch& launch) {
    if (error_ == nullptr) error_ = launch();
  }
  const char* error() const { return error_; }

 protected:
  void* take(int64_t elements) { return take_bytes(elements * bytes_); }
  void* take_bytes(int64_t count) {
    // A product takes 1.5 times as long if its matrices are aligned to only 4 bytes.
    constexpr int64_t kAligned = 256;
    void* const place = workspace_ == nullptr ? nullptr : workspace_ + taken_;
    taken_ += divide_up(count, kAligned) * kAligned;
    return place;
  }

  lltm_dtype dtype_;
  int64_t bytes_;  // of an element
  bool allows_tf32_;
  const lltm_execution& execution_;
  int64_t taken_ = 0;

 private:
  char* workspace_;
  void* handle_ = nullptr;
  const char* error_ = nullptr;
};

// The gradients that a step backward makes.
struct GradientSet {
  bool weights;
  bool old_h;
  bool input;
  bool bias;

  static GradientSet of_mask(int32_t needs) {
    GradientSet gradients;
    gradients.weights = (needs & LLTM_NEEDS_WEIGHTS) != 0;
    gradients.old_h = (needs & LLTM_NEEDS_OLD_H) != 0;
    gradients.input = (needs & LLTM_NEEDS_INPUT) != 0;
    gradients.bias = (needs & LLTM_NEEDS_BIAS) != 0;
    return gradients;
  }
  static GradientSet of_arguments(const lltm_step_backward_arguments& arguments) {
    GradientSet gradients;
    gradients.weights = arguments.d_weights != nullptr;
    gradients.old_h = arguments.d_old_h != nullptr;
    gradients.input = arguments.d_input != nullptr;
    gradients.bias = arguments.d_bias != nullptr;
    return gradients;
  }
};

// The size of the workspace of a step, in bytes.
template <typename Step>
int64_t workspace_of(Step step, lltm_pass pass, int32_t needs) {
  if (pass == LLTM_FORWARD) return step.lay_out_forward();
  return step.lay_out_backward(GradientSet::of_mask(needs));
}

}  // namespace lltm
