// What steps by cuBLAS share: their workspace, their products and the error of a launch.
#pragma once

#include "cell.h"
#include "launch.h"

namespace lltm {

// A matrix, or several of one size, the planes, whose first elements are `plane` elements apart.
struct Matrix {
  const void* data;
  int64_t stride;  // elements between rows
  bool transposed = false;
  int64_t plane = 0;
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
        allows_tf32_(dtype == LLTM_FLOAT32 && torch_allows_tf32(execution)),
        execution_(execution),
        workspace_(static_cast<char*>(workspace)) {}

  void* element(const void* data, int64_t index) const {
    return static_cast<char*>(const_cast<void*>(data)) + index * bytes_;
  }

  // to (to_rows, columns) = left right for each plane, or with `adds` to += left right. The result
  // has the type `to_dtype`.
  void multiply(int64_t to_rows, int64_t columns, int64_t inner, const Matrix& left,
                const Matrix& right, const Matrix& to, lltm_dtype to_dtype, int64_t planes = 1,
                bool adds = false) {
    if (handle_ == nullptr) handle_ = execution_.blas_handle();
    lltm_product_arguments product = {};
    product.planes = planes;
    product.rows = to_rows;
    product.columns = columns;
    product.depth = inner;
    product.left = left.data;
    product.left_stride = left.stride;
    product.left_plane = left.plane;
    product.left_transposed = left.transposed;
    product.right = right.data;
    product.right_stride = right.stride;
    product.right_plane = right.plane;
    product.right_transposed = right.transposed;
    product.to = const_cast<void*>(to.data);
    product.to_stride = to.stride;
    product.to_plane = to.plane;
    product.adds = adds;
    product.allow_tf32 = allows_tf32_;
    product.blas_handle = handle_;
    run([&] { return product_to(dtype_, to_dtype, product); });
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

// The size of the workspace of a step, in bytes.
template <typename Step>
int64_t workspace_of(Step step, lltm_pass pass, int32_t needs) {
  if (pass == LLTM_FORWARD) return step.lay_out_forward();
  return step.lay_out_backward((needs & LLTM_NEEDS_WEIGHTS) != 0, (needs & LLTM_NEEDS_OLD_H) != 0,
                               (needs & LLTM_NEEDS_INPUT) != 0, (needs & LLTM_NEEDS_BIAS) != 0);
}

}  // namespace lltm
