// The operators as torch sees them; both doors register exactly this.
#pragma once

#define LLTM_FORWARD_SCHEMA                                                                       \
  "forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> (Tensor " \
  "new_h, Tensor new_cell, Tensor gates)"

// `needs` is a mask of the gradients wanted: 1 input, 2 weights, 4 bias, 8 old_h, 16 old_cell. What
// is not wanted comes back with no elements. Without `gates` they are made again.
#define LLTM_BACKWARD_SCHEMA                                                                       \
  "backward(Tensor? grad_h, Tensor? grad_cell, Tensor? grad_gates, Tensor input, Tensor weights, " \
  "Tensor bias, Tensor old_h, Tensor new_cell, Tensor? gates, int needs) -> (Tensor d_input, "     \
  "Tensor d_weights, Tensor d_bias, Tensor d_old_h, Tensor d_old_cell)"

// One direction of a layer over a whole sequence. Without `keep_cells`, `cells` comes back with no
// elements.
#define LLTM_LAYER_FORWARD_SCHEMA                                                            \
  "layer_forward(Tensor input, Tensor weights, Tensor? bias, Tensor? initial_h, Tensor? "    \
  "initial_cell, bool reverse, bool keep_cells, bool allow_tf32) -> (Tensor output, Tensor " \
  "final_h, Tensor final_cell, Tensor gates, Tensor cells)"

// `needs`: 1 input, 2 weights, 4 bias, 8 initial_h, 16 initial_cell.
#define LLTM_LAYER_BACKWARD_SCHEMA                                                               \
  "layer_backward(Tensor? grad_output, Tensor? grad_final_h, Tensor? grad_final_cell, Tensor? "  \
  "grad_cells, Tensor input, Tensor weights, Tensor? bias, Tensor? initial_h, Tensor? "          \
  "initial_cell, Tensor output, Tensor gates, Tensor cells, int needs, bool reverse, bool "      \
  "allow_tf32) -> (Tensor d_input, Tensor d_weights, Tensor d_bias, Tensor d_initial_h, Tensor " \
  "d_initial_cell)"

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
