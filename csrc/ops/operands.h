// What the operators accept: the sizes they read from their operands, and the checks.
#pragma once

#include <optional>

#include "../kernels/lltm_kernels.h"
#include "guards.h"

namespace lltm {

struct CellSizes {
  int64_t batch;
  int64_t features;
  int64_t state;
  lltm_dtype dtype;

  int64_t columns() const { return state + features; }

  lltm_step_sizes step() const {
    lltm_step_sizes sizes = {};
    sizes.batch_size = batch;
    sizes.input_size = features;
    sizes.state_size = state;
    sizes.weight_stride = columns();
    return sizes;
  }
};

struct LayerSizes {
  int64_t steps;
  int64_t batch;
  int64_t features;
  int64_t state;
  lltm_dtype dtype;
  bool reverse;
  bool allow_tf32;

  int64_t rows() const { return steps * batch; }
  int64_t columns() const { return state + features; }
  int64_t plane() const { return batch * state; }

  // The index of time of a step.
  int64_t time(int64_t step) const { return reverse ? steps - 1 - step : step; }
  // The smallest index of time of the steps [first, last).
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

  // One step of the loop, which multiplies the state alone: the input is multiplied already.
  lltm_step_sizes step() const {
    lltm_step_sizes sizes = {};
    sizes.batch_size = batch;
    sizes.state_size = state;
    sizes.weight_stride = columns();
    sizes.allow_tf32 = allow_tf32;
    return sizes;
  }
};

template <typename Torch, Device device>
struct Operands {
  using Tensor = typename Torch::Tensor;
  using OptionalTensor = std::optional<Tensor>;
  using Guard = Guards<Torch>;

  static CellSizes cell(const Tensor& input, const Tensor& weights, const Tensor& bias,
                        const Tensor& old_h) {
    CellSizes sizes;
    sizes.dtype = model(input);
    like_input(weights, "weights", input);
    like_input(bias, "bias", input);
    like_input(old_h, "old_h", input);
    Guard::has_dim(input, "input", 2, "(B, I)");
    Guard::has_dim(old_h, "old_h", 2, "(B, S)");
    sizes.batch = Torch::sizes(input)[0];
    sizes.features = Torch::sizes(input)[1];
    sizes.state = Torch::sizes(old_h)[1];
    has_matrix_shape(old_h, "old_h", sizes);
    Guard::has_shape(weights, "weights", {3 * sizes.state, sizes.columns()}, "(3S, S + I)",
                     kCellOrigin);
    bias_shape(bias, sizes.state, kCellOrigin);
    return sizes;
  }

  static LayerSizes layer(const Tensor& input, const Tensor& weights, const OptionalTensor& bias,
                          const OptionalTensor& initial_h, const OptionalTensor& initial_cell,
                          bool reverse, bool allow_tf32) {
    LayerSizes sizes;
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
    if (bias) {
      like_input(*bias, "bias", input);
      bias_shape(*bias, sizes.state, kLayerOrigin);
    }
    state(initial_h, "initial_h", input, sizes);
    state(initial_cell, "initial_cell", input, sizes);
    return sizes;
  }

  // (B, S) of a cell.
  static void matrix(const Tensor& tensor, const char* name, const Tensor& input,
                     const CellSizes& sizes) {
    like_input(tensor, name, input);
    has_matrix_shape(tensor, name, sizes);
  }

  // The gradient of h or of the cell state, (B, S). CUDA kernels read it with any strides.
  static void gradient(const OptionalTensor& tensor, const char* name, const Tensor& input,
                       const CellSizes& sizes) {
    if (!tensor) return;
    Guard::on_device(*tensor, name, device);
    Guard::like(*tensor, name, input, "input");
    if (device == Device::kCPU) Guard::contiguous(*tensor, name);
    has_matrix_shape(*tensor, name, sizes);
  }

  // (B, 3, S) of a cell.
  static void gates(const OptionalTensor& tensor, const char* name, const Tensor& input,
                    const CellSizes& sizes) {
    if (!tensor) return;
    like_input(*tensor, name, input);
    Guard::has_shape(*tensor, name, {sizes.batch, 3, sizes.state}, "(B, 3, S)", kCellOrigin);
  }

  // (T, B, S) of a layer.
  static void sequence(const OptionalTensor& tensor, const char* name, const Tensor& input,
                       const LayerSizes& sizes) {
    if (!tensor) return;
    like_input(*tensor, name, input);
    Guard::has_shape(*tensor, name, {sizes.steps, sizes.batch, sizes.state}, "(T, B, S)",
                     kLayerOrigin);
  }

  // (T, B, 3, S) of a layer.
  static void gate_sequence(const Tensor& tensor, const char* name, const Tensor& input,
                            const LayerSizes& sizes) {
    like_input(tensor, name, input);
    Guard::has_shape(tensor, name, {sizes.steps, sizes.batch, 3, sizes.state}, "(T, B, 3, S)",
                     kLayerOrigin);
  }

  // (B, S) or (1, B, S) of a layer.
  static void state(const OptionalTensor& tensor, const char* name, const Tensor& input,
                    const LayerSizes& sizes) {
    if (!tensor) return;
    like_input(*tensor, name, input);
    if (Torch::dim(*tensor) == 3) {
      Guard::has_shape(*tensor, name, {1, sizes.batch, sizes.state}, "(B, S) or (1, B, S)",
                       kLayerOrigin);
    } else {
      Guard::has_shape(*tensor, name, {sizes.batch, sizes.state}, "(B, S) or (1, B, S)",
                       kLayerOrigin);
    }
  }

  // `states` names those two gradients' bits.
  static void needs(int64_t needs, const char* states) {
    if (needs < 0 || needs > LLTM_NEEDS_ALL) {
      Guard::fail("needs must be a mask from 0 to ", int64_t{LLTM_NEEDS_ALL}, ", got ", needs,
                  "; add up 1 for input, 2 weights, 4 bias, ", states);
    }
  }

 private:
  static constexpr const char* kCellOrigin =
      "B, I and S are read from input (B, I) and old_h (B, S)";
  static constexpr const char* kLayerOrigin =
      "T, B and I are read from input (T, B, I), S from weights (3S, S + I)";

  // The operand that all others must be like.
  static lltm_dtype model(const Tensor& input) {
    if constexpr (device == Device::kCUDA) {
      CHECK_INPUT(input);
    } else {
      CHECK_CPU(input);
      CHECK_CONTIGUOUS(input);
    }
    return Guard::supported_dtype(input, "input");
  }

  static void like_input(const Tensor& tensor, const char* name, const Tensor& input) {
    Guard::on_device(tensor, name, device);
    Guard::like(tensor, name, input, "input");
    Guard::contiguous(tensor, name);
  }

  static void has_matrix_shape(const Tensor& tensor, const char* name, const CellSizes& sizes) {
    Guard::has_shape(tensor, name, {sizes.batch, sizes.state}, "(B, S)", kCellOrigin);
  }

  static void bias_shape(const Tensor& bias, int64_t state, const char* origin) {
    if (Torch::dim(bias) == 2) {
      Guard::has_shape(bias, "bias", {1, 3 * state}, "(3S) or (1, 3S)", origin);
    } else {
      Guard::has_shape(bias, "bias", {3 * state}, "(3S) or (1, 3S)", origin);
    }
  }
};

}  // namespace lltm
