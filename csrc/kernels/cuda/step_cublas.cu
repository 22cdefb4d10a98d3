// One LLTM step by cuBLAS. The work before the products takes one launch, and so does the work
// after them. In backward, the work before the products is part of the pointwise launch.
//
// cuBLAS is several times slower if rows are not aligned to vectors. Its operands and results are
// then copies, padded with zeros to whole vectors.
#include <algorithm>
#include <cmath>

#include "cell.h"
#include "launch.h"
#include "layer.h"

namespace lltm {
namespace {

// The layout of the workspace. `depth` is S + I and `lines` is 3S; if it pads, both are rounded up
// to whole vectors.
struct Layout {
  lltm_dtype dtype;
  bool allows_tf32;
  bool pads = false;
  bool joins;  // backward: one GEMM instead of two makes d_weights
  int64_t depth, lines;
  // Offsets in bytes.
  int64_t joined = 0;     // (B, depth): [old_h, input]
  int64_t weights = 0;    // (lines, depth), if it pads
  int64_t gates = 0;      // (B, lines): forward, if it pads: products; backward: d_gates
  int64_t d_joined = 0;   // (B, depth), if it pads
  int64_t d_weights = 0;  // (lines, depth), if it pads
  int64_t sums = 0;       // for cell_backward

  Layout(lltm_dtype type, const lltm_step_sizes& sizes, const lltm_execution& execution)
      : dtype(type),
        allows_tf32(type == LLTM_FLOAT32 && torch_allows_tf32(execution)),
        depth(sizes.state_size + sizes.input_size),
        lines(3 * sizes.state_size) {
    const int64_t vector = 16 / lltm_dtype_bytes(dtype);
    const auto whole = [&](int64_t size) { return divide_up(size, vector) * vector; };
    const bool aligned = sizes.state_size % vector == 0 && sizes.input_size % vector == 0;
    // One GEMM saves a launch; for large sizes the copy and cuBLAS's choice of kernels cost more.
    const double work = 1.0 * sizes.batch_size * lines * depth;  // multiplications
    joins = work <= (lltm_dtype_bytes(dtype) == 2 ? 6e9 : 1.2e9);
    if (aligned || sizes.batch_size < least_rows(sizes)) return;
    pads = joins = true;
    depth = whole(depth);
    lines = whole(lines);
  }

  void forward(const lltm_step_sizes& sizes) {
    joined = take(sizes.batch_size * depth);
    if (!pads) return;
    weights = take(lines * depth);
    if (lines != 3 * sizes.state_size) gates = take(sizes.batch_size * lines);
  }
  void backward(const lltm_step_sizes& sizes, bool of_weights, bool of_data, bool of_bias) {
    gates = take(sizes.batch_size * lines);
    if (of_bias) {
      sums = take_bytes(cell_backward_workspace(dtype, sizes.batch_size, sizes.state_size));
    }
    if (of_weights && joins) joined = take(sizes.batch_size * depth);
    if (!pads) return;
    if (of_weights) d_weights = take(lines * depth);
    if (of_data) {
      weights = take(lines * depth);
      d_joined = take(sizes.batch_size * depth);
    }
  }

  int64_t bytes() const { return bytes_; }

 private:
  // From this number of rows on, padding saves more time than the copy of the weights costs. It is
  // about the number of megabytes of the weights. benchmarks/NOTES.md has the measurements.
  double least_rows(const lltm_step_sizes& sizes) const {
    const int64_t bytes = lltm_dtype_bytes(dtype);
    const double megabytes = 1e-6 * static_cast<double>(lines * depth * bytes);
    if (bytes == 2) {
      // cuBLAS reads 4 bytes at a time, or a single element.
      const bool pairs = sizes.state_size % 2 == 0 && sizes.input_size % 2 == 0;
      return pairs ? std::clamp(megabytes, 2.0, 128.0) : 2;
    }
    return allows_tf32 ? std::clamp(2.4 * megabytes, 8.0, 192.0) : HUGE_VAL;  // no tensor cores
  }
  int64_t take(int64_t elements) { return take_bytes(elements * lltm_dtype_bytes(dtype)); }
  int64_t take_bytes(int64_t count) {
    // A product takes 1.5 times as long if its matrices are aligned to only 4 bytes.
    constexpr int64_t kAligned = 256;
    const int64_t offset = bytes_;
    bytes_ += divide_up(count, kAligned) * kAligned;
    return offset;
  }

  int64_t bytes_ = 0;
};

struct Matrix {
  const void* data;
  int64_t stride;
  bool transposed = false;
};

// A step's launches, in order. After a failed launch, it launches nothing more.
class Launches {
 public:
  Launches(const Layout& layout, const lltm_step_sizes& sizes, void* workspace,
           const lltm_execution& execution)
      : layout_(layout), sizes_(sizes), workspace_(workspace), execution_(execution) {}

  void* at(int64_t offset) const { return static_cast<char*>(workspace_) + offset; }
  void* element(const void* data, int64_t index) const {
    return static_cast<char*>(const_cast<void*>(data)) + index * lltm_dtype_bytes(layout_.dtype);
  }

  // Adds a copy of `rows` rows of `from`, which may be NULL for no rows. The rest of (to_rows,
  // to_columns) is filled with zeros. `copy` launches the copies that were added.
  void add(const void* from, int64_t from_stride, int64_t rows, int64_t columns, void* to,
           int64_t to_stride, int64_t to_rows, int64_t to_columns) {
    copies_.at[copies_.count++] = {from,    to,         1,           rows,     to_rows,
                                   columns, to_columns, from_stride, to_stride};
  }
  void add_joined(const void* old_h, const void* input) {
    const int64_t state = sizes_.state_size;
    void* const to = at(layout_.joined);
    add(old_h, state, sizes_.batch_size, state, to, layout_.depth, sizes_.batch_size, state);
    add(input, sizes_.input_size, sizes_.batch_size, sizes_.input_size, element(to, state),
        layout_.depth, sizes_.batch_size, layout_.depth - state);
  }
  void add_weights(const void* weights) {
    add(weights, sizes_.weight_stride, 3 * sizes_.state_size, sizes_.state_size + sizes_.input_size,
        at(layout_.weights), layout_.depth, layout_.lines, layout_.depth);
  }
  void copy() {
    if (error_ != nullptr || copies_.count == 0) return;
    error_ = cuda_copy(layout_.dtype, copies_.count, copies_.at, &execution_);
    copies_.count = 0;
  }
  // Returns the copies that were added, for a launch that makes them in addition to its own work.
  CopiesBeside take_copies() {
    const CopiesBeside copies = copies_;
    copies_.count = 0;
    return copies;
  }

  // to (rows, columns) = left right, or with `adds` to += left right
  void multiply(int64_t rows, int64_t columns, int64_t depth, const Matrix& left,
                const Matrix& right, void* to, int64_t to_stride, bool adds = false) {
    if (error_ != nullptr) return;
    if (handle_ == nullptr) handle_ = execution_.blas_handle();
    lltm_product_arguments product = {};
    product.planes = 1;
    product.rows = rows;
    product.columns = columns;
    product.depth = depth;
    product.left = left.data;
    product.left_stride = left.stride;
    product.left_transposed = left.transposed;
    product.right = right.data;
    product.right_stride = right.stride;
    product.right_transposed = right.transposed;
    product.to = to;
    product.to_stride = to_stride;
    product.adds = adds;
    product.allow_tf32 = layout_.allows_tf32;
    product.blas_handle = handle_;
    error_ = cuda_product(layout_.dtype, &product, &execution_);
  }

  template <typename Launch>
  void run(const Launch& launch) {
    if (error_ == nullptr) error_ = launch();
  }
  const char* error() const { return error_; }

 private:
  const Layout& layout_;
  const lltm_step_sizes& sizes_;
  void* workspace_;
  const lltm_execution& execution_;
  void* handle_ = nullptr;
  CopiesBeside copies_ = {};
  const char* error_ = nullptr;
};

}  // namespace

int64_t cublas_step_workspace(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                              const lltm_step_sizes& sizes, const lltm_execution& execution) {
  Layout layout(dtype, sizes, execution);
  if (pass == LLTM_FORWARD) {
    layout.forward(sizes);
  } else {
    layout.backward(sizes, (needs & LLTM_NEEDS_WEIGHTS) != 0,
                    (needs & (LLTM_NEEDS_INPUT | LLTM_NEEDS_OLD_H)) != 0,
                    (needs & LLTM_NEEDS_BIAS) != 0);
  }
  return layout.bytes();
}

const char* cublas_step_forward(lltm_dtype dtype, const lltm_step_forward_arguments& a,
                                const lltm_execution& execution) {
  const lltm_step_sizes& sizes = a.sizes;
  Layout layout(dtype, sizes, execution);
  layout.forward(sizes);
  Launches launches(layout, sizes, a.workspace, execution);
  const int64_t rows = sizes.batch_size;
  const int64_t gates = 3 * sizes.state_size;
  void* const z = layout.lines != gates ? launches.at(layout.gates) : a.gates;
  launches.add_joined(a.old_h, a.input);
  launches.add(a.bias, 0, rows, gates, z, layout.lines, rows, layout.lines);  // bias in each row
  if (layout.pads) launches.add_weights(a.weights);
  launches.copy();
  const Matrix weights = layout.pads ? Matrix{launches.at(layout.weights), layout.depth, true}
                                     : Matrix{a.weights, sizes.weight_stride, true};
  launches.multiply(rows, layout.lines, layout.depth, {launches.at(layout.joined), layout.depth},
                    weights, z, layout.lines, true);
  lltm_step_forward_arguments cell = a;
  cell.bias = nullptr;
  launches.run([&] { return cell_forward_from(dtype, cell, z, layout.lines, execution); });
  return launches.error();
}

const char* cublas_step_backward(lltm_dtype dtype, const lltm_step_backward_arguments& a,
                                 const lltm_execution& execution) {
  const lltm_step_sizes& sizes = a.sizes;
  const int64_t rows = sizes.batch_size;
  const int64_t state = sizes.state_size;
  const int64_t inputs = sizes.input_size;
  const int64_t gates = 3 * state;
  const bool of_data = a.d_old_h != nullptr || a.d_input != nullptr;
  Layout layout(dtype, sizes, execution);
  layout.backward(sizes, a.d_weights != nullptr, of_data, a.d_bias != nullptr);
  Launches launches(layout, sizes, a.workspace, execution);
  void* const d_z = launches.at(layout.gates);
  if (layout.joins && a.d_weights != nullptr) launches.add_joined(a.old_h, a.input);
  if (layout.pads && of_data) launches.add_weights(a.weights);
  if (layout.lines != gates) {
    launches.add(nullptr, 0, 0, 0, launches.element(d_z, gates), layout.lines, rows,
                 layout.lines - gates);
  }
  lltm_step_backward_arguments cell = a;
  cell.d_gates = d_z;
  cell.workspace = launches.at(layout.sums);
  launches.run([&] {
    return cell_backward_to(dtype, cell, layout.lines, launches.take_copies(), execution);
  });
  const Matrix left{d_z, layout.lines};
  const Matrix left_transposed{d_z, layout.lines, true};
  const Matrix joined{launches.at(layout.joined), layout.depth};
  if (!layout.pads) {
    const auto weights = [&](int64_t column) {
      return Matrix{launches.element(a.weights, column), sizes.weight_stride};
    };
    if (a.d_old_h != nullptr) {
      launches.multiply(rows, state, gates, left, weights(0), a.d_old_h, state);
    }
    if (a.d_input != nullptr) {
      launches.multiply(rows, inputs, gates, left, weights(state), a.d_input, inputs);
    }
    if (a.d_weights != nullptr && layout.joins) {
      launches.multiply(gates, layout.depth, rows, left_transposed, joined, a.d_weights,
                        layout.depth);
    } else if (a.d_weights != nullptr) {
      launches.multiply(gates, state, rows, left_transposed, {a.old_h, state}, a.d_weights,
                        layout.depth);
      launches.multiply(gates, inputs, rows, left_transposed, {a.input, inputs},
                        launches.element(a.d_weights, state), layout.depth);
    }
    return launches.error();
  }
  if (of_data) {
    const int64_t vector = 16 / lltm_dtype_bytes(dtype);
    const int64_t begin = a.d_old_h != nullptr ? 0 : state / vector * vector;
    const int64_t end = a.d_input != nullptr ? layout.depth : divide_up(state, vector) * vector;
    void* const d_joined = launches.at(layout.d_joined);
    launches.multiply(rows, end - begin, layout.lines, left,
                      {launches.element(launches.at(layout.weights), begin), layout.depth},
                      launches.element(d_joined, begin), layout.depth);
    const auto take = [&](void* to, int64_t column, int64_t columns) {
      if (to == nullptr) return;
      launches.add(launches.element(d_joined, column), layout.depth, rows, columns, to, columns,
                   rows, columns);
    };
    take(a.d_old_h, 0, state);
    take(a.d_input, state, inputs);
  }
  if (a.d_weights != nullptr) {
    void* const d_weights = launches.at(layout.d_weights);
    launches.multiply(layout.lines, layout.depth, rows, left_transposed, joined, d_weights,
                      layout.depth);
    launches.add(d_weights, layout.depth, gates, state + inputs, a.d_weights, state + inputs, gates,
                 state + inputs);
  }
  launches.copy();
  return launches.error();
}

}  // namespace lltm
