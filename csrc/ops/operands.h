// Checks the operands of the operators, and reads the sizes from them.
#pragma once

#include <initializer_list>
#include <optional>

#include "torchship/guards.h"

#include "../kernels/lltm_kernels.h"

namespace lltm {

struct StepSizes {
  // For messages: which operands give the sizes.
  const char* origin = "B, I and S are read from input (B, I) and old_h (B, S)";
  int64_t batch;
  int64_t features;
  int64_t state;
  lltm_dtype dtype;

  int64_t columns() const { return state + features; }

  // The address of an element in a tensor of this dtype. NULL, a missing tensor, stays NULL.
  void* at(const void* tensor, int64_t element) const {
    if (tensor == nullptr) return nullptr;
    return static_cast<char*>(const_cast<void*>(tensor)) + element * lltm_dtype_bytes(dtype);
  }

  lltm_step_sizes step() const {
    lltm_step_sizes sizes = {};
    sizes.batch_size = batch;
    sizes.input_size = features;
    sizes.state_size = state;
    sizes.weight_stride = columns();
    return sizes;
  }
};

struct LayerSizes : StepSizes {
  int64_t steps;
  bool reverse;
  bool allow_tf32;

  LayerSizes padded(const lltm_layer_plan& plan) const {
    LayerSizes larger = *this;
    larger.features = plan.padded_input;
    larger.state = plan.padded_state;
    return larger;
  }

  int64_t rows() const { return steps * batch; }
  int64_t plane() const { return batch * state; }  // elements of (B, S)

  void* plane_at(const void* sequence, int64_t index) const {
    return at(sequence, index * plane());
  }

  // The index in time of a step. With `reverse`, step 0 is the last in time.
  int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
  // The smallest index in time of the steps [first, last).
  int64_t earliest(int64_t first, int64_t last) const { return reverse ? steps - last : first; }

  lltm_layer_sizes layer() const {
    lltm_layer_sizes sizes = {};
    sizes.steps = steps;
    sizes.batch_size = batch;
    sizes.state_size = state;
    sizes.weight_stride = columns();
    sizes.reverse = reverse;
    sizes.allow_tf32 = allow_tf32;
    return sizes;
  }
  // The input size of one step of the loop is 0, since one GEMM multiplies the inputs of all steps.
  lltm_step_sizes step() const {
    lltm_step_sizes sizes = StepSizes::step();
    sizes.input_size = 0;
    sizes.allow_tf32 = allow_tf32;
    return sizes;
  }
};

template <typename Torch, Device device>
struct OperandChecks {
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;
  using Guard = Guards<Torch>;

  static StepSizes step(const Tensor& input, const Tensor& weights, const Tensor& bias,
                        const Tensor& old_h) {
    StepSizes sizes;
    sizes.dtype = model(input);
    Guard::has_dim(input, "input", 2, "(B, I)");
    Guard::has_dim(old_h, "old_h", 2, "(B, S)");
    sizes.batch = Torch::sizes(input)[0];
    sizes.features = Torch::sizes(input)[1];
    sizes.state = Torch::sizes(old_h)[1];
    like_input(weights, "weights", input, sizes, {3 * sizes.state, sizes.columns()}, "(3S, S + I)");
    one_of(bias, "bias", input, sizes, {3 * sizes.state}, {1, 3 * sizes.state}, "(3S) or (1, 3S)");
    like_input(old_h, "old_h", input, sizes, {sizes.batch, sizes.state}, "(B, S)");
    return sizes;
  }

  static LayerSizes layer(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                          const OptionalTensor& initial_h, const OptionalTensor& initial_cell,
                          bool reverse, bool allow_tf32) {
    LayerSizes sizes;
    sizes.origin = "T, B and I are read from input (T, B, I), S from weights (3S, S + I)";
    sizes.reverse = reverse;
    sizes.allow_tf32 = allow_tf32;
    sizes.dtype = model(input);
    like_input(weights, "weights", input);
    Guard::has_dim(input, "input", 3, "(T, B, I)");
    Guard::has_dim(weights, "weights", 2, "(3S, S + I)");
    sizes.steps = Torch::sizes(input)[0];
    sizes.batch = Torch::sizes(input)[1];
    sizes.features = Torch::sizes(input)[2];
    sizes.state = Torch::sizes(weights)[0] / 3;
    if (sizes.steps == 0) {
      Guard::fail("input must have shape (T, B, I) with at least one step, got ",
                  Guard::shape(input), "; leave out empty sequences");
    }
    Guard::has_shape(weights, "weights", {3 * sizes.state, sizes.columns()}, "(3S, S + I)",
                     "I is read from input (T, B, I), S from the rows of weights");
    one_of(bias, "bias", input, sizes, {3 * sizes.state}, {1, 3 * sizes.state}, "(3S) or (1, 3S)");
    state(initial_h, "initial_h", input, sizes);
    state(initial_cell, "initial_cell", input, sizes);
    return sizes;
  }

  // Checks that an operand has the device and the dtype of input, and this shape, which `letters`
  // describe. Unless it may have any strides, it must be contiguous. A missing operand passes.
  static void like_input(const OptionalTensor& tensor, const char* name, const Tensor& input,
                         const StepSizes& sizes, std::initializer_list<int64_t> shape,
                         const char* letters, bool any_strides = false) {
    if (!tensor) return;
    like_input(*tensor, name, input, any_strides);
    Guard::has_shape(*tensor, name, shape, letters, sizes.origin);
  }

  static void state(const OptionalTensor& tensor, const char* name, const Tensor& input,
                    const LayerSizes& sizes) {
    one_of(tensor, name, input, sizes, {sizes.batch, sizes.state}, {1, sizes.batch, sizes.state},
           "(B, S) or (1, B, S)");
  }

  // Checks the mask `needs`. `states` is the part of the message that names the bits of the two
  // states.
  static void needs(int64_t needs, const char* states) {
    if (needs < 0 || needs > LLTM_NEEDS_ALL) {
      Guard::fail("needs must be a mask from 0 to ", int64_t{LLTM_NEEDS_ALL}, ", got ", needs,
                  "; add up 1 for input, 2 weights, 4 bias, ", states);
    }
  }

 private:
  // By torch's codes, as in dtype_name.
  static bool is_complex(int32_t scalar_type) { return scalar_type >= 8 && scalar_type <= 10; }

  // Checks input, and returns its dtype. All other operands are compared with input.
  static lltm_dtype model(const Tensor& input) {
    Guard::input(input, "input", device);
    const int32_t code = Torch::scalar_type(input);
    if (code != LLTM_FLOAT16 && code != LLTM_FLOAT32 && code != LLTM_FLOAT64 &&
        code != LLTM_BFLOAT16) {
      Guard::fail("input must be float32, float64, float16 or bfloat16, got ", dtype_name(code),
                  is_complex(code) ? "; the cell is defined for real numbers: pass real and "
                                     "imaginary parts as features, "
                                     "torch.view_as_real(input).flatten(-2)"
                                   : "; convert it with input.float()");
    }
    return static_cast<lltm_dtype>(code);
  }

  static void like_input(const Tensor& tensor, const char* name, const Tensor& input,
                         bool any_strides = false) {
    Guard::on_device(tensor, name, device);
    Guard::like(tensor, name, input, "input");
    if (!any_strides) Guard::contiguous(tensor, name);
  }

  // Checks an operand that may have either of two shapes. `longer` has one dimension more than
  // `shape`.
  static void one_of(const OptionalTensor& tensor, const char* name, const Tensor& input,
                     const StepSizes& sizes, std::initializer_list<int64_t> shape,
                     std::initializer_list<int64_t> longer, const char* letters) {
    const bool is_longer = tensor && Torch::dim(*tensor) == static_cast<int64_t>(longer.size());
    like_input(tensor, name, input, sizes, is_longer ? longer : shape, letters);
  }
};

}  // namespace lltm
