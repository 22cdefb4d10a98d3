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

#include "../common/measured_bounds.h"
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
  void* sums = nullptr;       // for pointwise_backward

  CublasStep(lltm_dtype dtype, const lltm_step_sizes& sizes, const lltm_execution& execution,
             void* workspace)
      : StepLaunches(dtype, sizes, execution, workspace), gates(lines) {
    const int64_t vector = 16 / bytes_;
    const auto whole = [&](int64_t size) { return divide_up(size, 2 * vector) * 2 * vector; };
    const bool aligned = state % vector == 0 && inputs % vector == 0;
    // One GEMM instead of two saves a launch, and multiprocessors are idle at one end, not two. But
    // its operand or its result is copied, which costs more with many more inputs than units.
    const bool few_inputs = inputs <= bounds::kJoinedInputsPerState * state;
    const bool balanced = few_inputs && state <= bounds::kJoinedStatePerInputs * inputs;
    const Arithmetic arithmetic = arithmetic_of(dtype, allows_tf32_);
    const bool small = 1.0 * rows * lines * depth <= bounds::kJoinedWork.of(arithmetic);
    joins = small || balanced;
    joins_data = joins && few_inputs;
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
  int64_t lay_out_backward(const GradientSet& gradients) {
    const bool any_data = gradients.old_h || gradients.input;
    const bool all_data = gradients.old_h && gradients.input;
    z = take(rows * lines);
    if (gradients.bias) sums = take_bytes(pointwise_backward_workspace(dtype_, rows, state));
    if (gradients.weights && joins) joined = take(rows * depth);
    if (pads && gradients.weights) d_weights = take(lines * depth);
    if (pads && any_data) weights = take(lines * depth);
    if (pads ? any_data : joins_data && all_data) d_joined = take(rows * depth);
    return taken_;
  }

  // A copy of one matrix, whose other fields the caller names.
  static lltm_copy new_copy() {
    lltm_copy copy = {};
    copy.planes = 1;
    return copy;
  }
  // Adds a copy. `copy` launches the copies that were added.
  void add(const lltm_copy& copy) { copies_.at[copies_.count++] = copy; }
  void copy() {
    const Copies copies = take_copies();
    if (copies.count == 0) return;
    run([&] { return cuda_copy(dtype_, copies.count, copies.at, &execution_); });
  }
  int64_t vector() const { return 16 / bytes_; }  // elements
  // Returns the copies that were added, for a launch that makes them in addition to its own work.
  Copies take_copies() { return std::exchange(copies_, {}); }
  void add_joined(const void* old_h, const void* input) {
    lltm_copy h = new_copy();
    h.from = old_h;
    h.from_rows = rows;
    h.from_columns = state;
    h.from_stride = state;
    h.to = joined;
    h.to_rows = rows;
    h.to_columns = state;
    h.to_stride = depth;
    add(h);
    lltm_copy x = new_copy();
    x.from = input;
    x.from_rows = rows;
    x.from_columns = inputs;
    x.from_stride = inputs;
    x.to = element(joined, state);
    x.to_rows = rows;
    x.to_columns = depth - state;
    x.to_stride = depth;
    add(x);
  }
  void add_weights(const void* from, int64_t stride) {
    lltm_copy padded = new_copy();
    padded.from = from;
    padded.from_rows = gates;
    padded.from_columns = state + inputs;
    padded.from_stride = stride;
    padded.to = weights;
    padded.to_rows = lines;
    padded.to_columns = depth;
    padded.to_stride = depth;
    add(padded);
  }
  // A product of this step, whose other fields the caller names.
  Product new_product() const {
    Product product;
    product.to_dtype = dtype_;
    return product;
  }

 private:
  // From this number of rows on, padding saves more time than the copy of the weights costs. The
  // number usually grows with the size of the weights.
  double least_rows() const {
    const double megabytes = 1e-6 * static_cast<double>(lines * depth * bytes_);
    const bool half = bytes_ == 2;
    if (!half && !allows_tf32_) return bounds::kNever;
    const bool pairs = state % 2 == 0 && inputs % 2 == 0;
    const bounds::Padding& padding = !half   ? bounds::kPadsTf32
                                     : pairs ? bounds::kPadsPairs
                                             : bounds::kPadsSingle;
    return std::clamp(padding.rows_per_megabyte * megabytes, padding.least_rows, padding.most_rows);
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
  lltm_copy bias = CublasStep::new_copy();  // into each row
  bias.from = a.bias;
  bias.from_rows = rows;
  bias.from_columns = step.gates;
  bias.from_stride = 0;
  bias.to = z;
  bias.to_rows = rows;
  bias.to_columns = step.lines;
  bias.to_stride = step.lines;
  step.add(bias);
  if (step.pads) step.add_weights(a.weights, a.sizes.weight_stride);
  step.copy();
  const Matrix weights =
      step.pads ? Matrix{step.weights, step.depth} : Matrix{a.weights, a.sizes.weight_stride};
  Product product = step.new_product();
  product.rows = rows;
  product.columns = step.lines;
  product.depth = step.depth;
  product.left = {step.joined, step.depth};
  product.right = weights.transposed();
  product.to = {z, step.lines};
  product.adds = true;
  step.multiply(product);
  lltm_step_forward_arguments pointwise = a;
  pointwise.bias = nullptr;
  step.run([&] { return pointwise_forward_from(dtype, pointwise, z, step.lines, execution); });
  return step.error();
}

namespace {

// d_old_h and d_input: d_gates W, by one product or by two.
void multiply_for_data(CublasStep& step, const lltm_step_backward_arguments& a) {
  const Matrix d_z = {step.z, step.lines};
  const auto weights_from = [&](int64_t column) {
    return step.pads ? Matrix{step.element(step.weights, column), step.depth}
                     : Matrix{step.element(a.weights, column), a.sizes.weight_stride};
  };
  Product product = step.new_product();
  product.rows = step.rows;
  product.left = d_z;
  if (step.d_joined == nullptr) {
    product.depth = step.gates;
    if (a.d_old_h != nullptr) {
      product.columns = step.state;
      product.right = weights_from(0);
      product.to = {a.d_old_h, step.state};
      step.multiply(product);
    }
    if (a.d_input != nullptr) {
      product.columns = step.inputs;
      product.right = weights_from(step.state);
      product.to = {a.d_input, step.inputs};
      step.multiply(product);
    }
    return;
  }
  // The columns that are needed, from vector to vector.
  const int64_t vector = step.vector();
  const int64_t begin = a.d_old_h != nullptr ? 0 : step.state / vector * vector;
  const int64_t end = a.d_input != nullptr ? step.depth : divide_up(step.state, vector) * vector;
  product.columns = end - begin;
  product.depth = step.lines;
  product.right = weights_from(begin);
  product.to = {step.element(step.d_joined, begin), step.depth};
  step.multiply(product);
  const auto take = [&](void* to, int64_t column, int64_t columns) {
    if (to == nullptr) return;
    lltm_copy taken = CublasStep::new_copy();
    taken.from = step.element(step.d_joined, column);
    taken.from_rows = step.rows;
    taken.from_columns = columns;
    taken.from_stride = step.depth;
    taken.to = to;
    taken.to_rows = step.rows;
    taken.to_columns = columns;
    taken.to_stride = columns;
    step.add(taken);
  };
  take(a.d_old_h, 0, step.state);
  take(a.d_input, step.state, step.inputs);
}

// d_weights: d_gates^T [h, x], by one product or by two.
void multiply_for_weights(CublasStep& step, const lltm_step_backward_arguments& a) {
  Product product = step.new_product();
  product.depth = step.rows;
  product.left = Matrix{step.z, step.lines}.transposed();
  if (step.pads) {
    product.rows = step.lines;
    product.columns = step.depth;
    product.right = {step.joined, step.depth};
    product.to = {step.d_weights, step.depth};
    step.multiply(product);
    lltm_copy taken = CublasStep::new_copy();
    taken.from = step.d_weights;
    taken.from_rows = step.gates;
    taken.from_columns = step.state + step.inputs;
    taken.from_stride = step.depth;
    taken.to = a.d_weights;
    taken.to_rows = step.gates;
    taken.to_columns = step.state + step.inputs;
    taken.to_stride = step.state + step.inputs;
    step.add(taken);
    return;
  }
  product.rows = step.gates;
  product.to.stride = step.depth;
  if (step.joins) {
    product.columns = step.depth;
    product.right = {step.joined, step.depth};
    product.to.data = a.d_weights;
    step.multiply(product);
    return;
  }
  product.columns = step.state;
  product.right = {a.old_h, step.state};
  product.to.data = a.d_weights;
  step.multiply(product);
  product.columns = step.inputs;
  product.right = {a.input, step.inputs};
  product.to.data = step.element(a.d_weights, step.state);
  step.multiply(product);
}

}  // namespace

const char* cublas_step_backward(lltm_dtype dtype, const lltm_step_backward_arguments& a,
                                 const lltm_execution& execution) {
  CublasStep step(dtype, a.sizes, execution, a.workspace);
  step.lay_out_backward(GradientSet::of_arguments(a));
  if (step.joins && a.d_weights != nullptr) step.add_joined(a.old_h, a.input);
  if (step.weights != nullptr) step.add_weights(a.weights, a.sizes.weight_stride);
  if (step.lines != step.gates) {
    lltm_copy zeros = CublasStep::new_copy();  // behind the gates of each row
    zeros.to = step.element(step.z, step.gates);
    zeros.to_rows = step.rows;
    zeros.to_columns = step.lines - step.gates;
    zeros.to_stride = step.lines;
    step.add(zeros);
  }
  lltm_step_backward_arguments pointwise = a;
  pointwise.d_gates = step.z;
  pointwise.workspace = step.sums;
  step.run([&] {
    return pointwise_backward_to(dtype, pointwise, step.lines, step.take_copies(), execution);
  });
  multiply_for_data(step, a);
  if (a.d_weights != nullptr) multiply_for_weights(step, a);
  step.copy();
  return step.error();
}

}  // namespace lltm
