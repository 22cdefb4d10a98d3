// One LLTM step by cuBLAS. Forward launches copies, the product and the pointwise kernel. Backward
// launches pointwise kernels, which may also copy operands, then products and, if it pads or
// joins gradients, copies.
//
// cuBLAS is several times slower if rows are not aligned to vectors of 16 bytes. With at least
// `least_rows` rows, the step then pads: cuBLAS works on copies, in which zeros fill each row to a
// multiple of 32 bytes, since an odd number of vectors per row costs a few percent of the speed.
#include <algorithm>
#include <cmath>
#include <utility>

#include "step_launches.h"

namespace lltm {
namespace {

// A step: its sizes, the layout of its workspace, and its launches.
class CublasStep : public StepLaunches {
 public:
  int64_t gates;      // 3S
  bool pads = false;  // `depth` and `lines` are rounded up to 32 bytes
  bool joins;         // backward: one GEMM instead of two makes d_weights
  bool joins_data;    // likewise d_old_h and d_input, if both are needed or with `pads`
  // The workspace.
  void* joined = nullptr;     // (B, depth): [old_h, input]
  void* weights = nullptr;    // (lines, depth), with `pads`
  void* z = nullptr;          // (B, lines): products in forward, if lines > 3S; d_gates in backward
  void* d_joined = nullptr;   // (B, depth), if one GEMM makes d_old_h and d_input
  void* d_weights = nullptr;  // (lines, depth), with `pads`
  void* sums = nullptr;       // for cell_backward

  CublasStep(lltm_dtype dtype, const lltm_step_sizes& sizes, const lltm_execution& execution,
             void* workspace)
      : StepLaunches(dtype, sizes, execution, workspace), gates(lines) {
    const int64_t vector = 16 / bytes_;
    const auto whole = [&](int64_t size) { return divide_up(size, 2 * vector) * 2 * vector; };
    const bool aligned = state % vector == 0 && inputs % vector == 0;
    // One GEMM instead of two saves a launch, and multiprocessors are idle at one end, not two. But
    // its operand or its result is copied, which costs more with many more inputs than units.
    const bool balanced = inputs <= 4 * state && state <= 5 * inputs;
    const bool small = 1.0 * rows * lines * depth <= (bytes_ == 2 ? 6e9 : 1.2e9);
    joins = small || balanced;
    joins_data = joins && inputs <= 4 * state;
    if (aligned || rows < least_rows()) return;
    pads = joins = joins_data = true;
    depth = whole(depth);
    lines = whole(lines);
  }

  // Lay out the workspace for a pass, and return its size in bytes.
  int64_t lay_out_forward() {
    joined = take(rows * depth);
    if (pads) weights = take(lines * depth);
    if (lines != gates) z = take(rows * lines);
    return taken_;
  }
  int64_t lay_out_backward(bool of_weights, bool of_h, bool of_x, bool of_bias) {
    z = take(rows * lines);
    if (of_bias) sums = take_bytes(cell_backward_workspace(dtype_, rows, state));
    if (of_weights && joins) joined = take(rows * depth);
    if (pads && of_weights) d_weights = take(lines * depth);
    if (pads && (of_h || of_x)) weights = take(lines * depth);
    if (pads ? of_h || of_x : joins_data && of_h && of_x) d_joined = take(rows * depth);
    return taken_;
  }

  // Adds a copy of `from_rows` rows of `from`, which may be NULL if from_rows is 0. The copy fills
  // the rest of (to_rows, to_columns) with zeros. `copy` launches the copies that were added.
  void add(const void* from, int64_t from_stride, int64_t from_rows, int64_t columns, void* to,
           int64_t to_stride, int64_t to_rows, int64_t to_columns) {
    copies_.at[copies_.count++] = {from,    to,         1,           from_rows, to_rows,
                                   columns, to_columns, from_stride, to_stride};
  }
  void copy() {
    const Copies copies = take_copies();
    if (copies.count == 0) return;
    run([&] { return cuda_copy(dtype_, copies.count, copies.at, &execution_); });
  }
  // Returns the copies that were added, for a launch that makes them in addition to its own work.
  Copies take_copies() { return std::exchange(copies_, {}); }
  void add_joined(const void* old_h, const void* input) {
    add(old_h, state, rows, state, joined, depth, rows, state);
    add(input, inputs, rows, inputs, element(joined, state), depth, rows, depth - state);
  }
  void add_weights(const void* from, int64_t stride) {
    add(from, stride, gates, state + inputs, weights, depth, lines, depth);
  }
  void multiply(int64_t to_rows, int64_t columns, int64_t inner, const Matrix& left,
                const Matrix& right, void* to, int64_t to_stride, bool adds = false) {
    StepLaunches::multiply(to_rows, columns, inner, left, right, {to, to_stride}, dtype_, 1, adds);
  }

 private:
  // From this number of rows on, padding saves more time than the copy of the weights costs. The
  // number usually grows with the size of the weights. benchmarks/NOTES.md has the measurements.
  double least_rows() const {
    const double megabytes = 1e-6 * static_cast<double>(lines * depth * bytes_);
    if (bytes_ == 2) {
      // Without padding, cuBLAS reads pairs of elements or, if a size is odd, single elements.
      const bool pairs = state % 2 == 0 && inputs % 2 == 0;
      return pairs ? std::clamp(megabytes, 2.0, 128.0) : 2;
    }
    return allows_tf32_ ? std::clamp(2.4 * megabytes, 8.0, 192.0) : HUGE_VAL;  // never without tf32
  }

  Copies copies_ = {};
};

}  // namespace

int64_t cublas_step_workspace(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                              const lltm_step_sizes& sizes, const lltm_execution& execution) {
  return workspace_of(CublasStep(dtype, sizes, execution, nullptr), pass, needs);
}

const char* cublas_step_forward(lltm_dtype dtype, const lltm_step_forward_arguments& a,
                                const lltm_execution& execution) {
  CublasStep step(dtype, a.sizes, execution, a.workspace);
  step.lay_out_forward();
  const int64_t rows = step.rows;
  void* const z = step.z != nullptr ? step.z : a.gates;
  step.add_joined(a.old_h, a.input);
  step.add(a.bias, 0, rows, step.gates, z, step.lines, rows, step.lines);  // bias in each row
  if (step.pads) step.add_weights(a.weights, a.sizes.weight_stride);
  step.copy();
  const Matrix weights = step.pads ? Matrix{step.weights, step.depth, true}
                                   : Matrix{a.weights, a.sizes.weight_stride, true};
  step.multiply(rows, step.lines, step.depth, {step.joined, step.depth}, weights, z, step.lines,
                true);
  lltm_step_forward_arguments cell = a;
  cell.bias = nullptr;
  step.run([&] { return cell_forward_from(dtype, cell, z, step.lines, execution); });
  return step.error();
}

const char* cublas_step_backward(lltm_dtype dtype, const lltm_step_backward_arguments& a,
                                 const lltm_execution& execution) {
  CublasStep step(dtype, a.sizes, execution, a.workspace);
  step.lay_out_backward(a.d_weights != nullptr, a.d_old_h != nullptr, a.d_input != nullptr,
                        a.d_bias != nullptr);
  const int64_t rows = step.rows;
  const int64_t state = step.state;
  const int64_t inputs = step.inputs;
  const int64_t gates = step.gates;
  if (step.joins && a.d_weights != nullptr) step.add_joined(a.old_h, a.input);
  if (step.weights != nullptr) step.add_weights(a.weights, a.sizes.weight_stride);
  if (step.lines != gates) {
    step.add(nullptr, 0, 0, 0, step.element(step.z, gates), step.lines, rows, step.lines - gates);
  }
  lltm_step_backward_arguments cell = a;
  cell.d_gates = step.z;
  cell.workspace = step.sums;
  step.run(
      [&] { return cell_backward_to(dtype, cell, step.lines, step.take_copies(), execution); });
  const Matrix left{step.z, step.lines};
  const Matrix left_transposed{step.z, step.lines, true};
  const Matrix joined{step.joined, step.depth};
  const auto weights = [&](int64_t column) {
    return step.pads ? Matrix{step.element(step.weights, column), step.depth}
                     : Matrix{step.element(a.weights, column), a.sizes.weight_stride};
  };
  if (step.d_joined != nullptr) {
    const int64_t vector = 16 / lltm_dtype_bytes(dtype);
    const int64_t begin = a.d_old_h != nullptr ? 0 : state / vector * vector;
    const int64_t end = a.d_input != nullptr ? step.depth : divide_up(state, vector) * vector;
    step.multiply(rows, end - begin, step.lines, left, weights(begin),
                  step.element(step.d_joined, begin), step.depth);
    const auto take = [&](void* to, int64_t column, int64_t columns) {
      if (to == nullptr) return;
      step.add(step.element(step.d_joined, column), step.depth, rows, columns, to, columns, rows,
               columns);
    };
    take(a.d_old_h, 0, state);
    take(a.d_input, state, inputs);
  } else {
    if (a.d_old_h != nullptr) step.multiply(rows, state, gates, left, weights(0), a.d_old_h, state);
    if (a.d_input != nullptr) {
      step.multiply(rows, inputs, gates, left, weights(state), a.d_input, inputs);
    }
  }
  if (a.d_weights != nullptr && step.pads) {
    step.multiply(step.lines, step.depth, rows, left_transposed, joined, step.d_weights,
                  step.depth);
    step.add(step.d_weights, step.depth, gates, state + inputs, a.d_weights, state + inputs, gates,
             state + inputs);
  } else if (a.d_weights != nullptr && step.joins) {
    step.multiply(gates, step.depth, rows, left_transposed, joined, a.d_weights, step.depth);
  } else if (a.d_weights != nullptr) {
    step.multiply(gates, state, rows, left_transposed, {a.old_h, state}, a.d_weights, step.depth);
    step.multiply(gates, inputs, rows, left_transposed, {a.input, inputs},
                  step.element(a.d_weights, state), step.depth);
  }
  step.copy();
  return step.error();
}

}  // namespace lltm
