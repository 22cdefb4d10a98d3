// The operators as torch sees them; both doors register exactly this.
#pragma once

#define LLTM_FORWARD_SCHEMA                                                                       \
  "forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> (Tensor " \
  "new_h, Tensor new_cell, Tensor gates)"

// `needs` is a mask of the gradients wanted: 1 input, 2 weights, 4 bias, 8 old_h, 16 old_cell. What
// is not wanted comes back with no elements.
#define LLTM_BACKWARD_SCHEMA                                                                       \
  "backward(Tensor? grad_h, Tensor? grad_cell, Tensor? grad_gates, Tensor input, Tensor weights, " \
  "Tensor bias, Tensor old_h, Tensor new_cell, Tensor gates, int needs) -> (Tensor d_input, "      \
  "Tensor d_weights, Tensor d_bias, Tensor d_old_h, Tensor d_old_cell)"

namespace lltm {

enum Needs {
  kNeedsInput = 1,
  kNeedsWeights = 2,
  kNeedsBias = 4,
  kNeedsOldH = 8,
  kNeedsOldCell = 16,
  kNeedsAll = 31
};

}  // namespace lltm
