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

// The same two for who keeps as little as can be between them, on the CPU; beneath autograd, with
// no derivatives of their own. What forward_lean makes of small steps of float32 and float64 (see
// cell.h) are gates of (B, 2, S), without the output gate's: backward_lean takes that from new_h,
// and makes all gates again where new_h was lost and came with no elements. Other gates are
// (B, 3, S), and new_h is then not read.
#define LLTM_FORWARD_LEAN_SCHEMA                                                               \
  "forward_lean(Tensor input, Tensor weights, Tensor bias, Tensor old_h, Tensor old_cell) -> " \
  "(Tensor new_h, Tensor new_cell, Tensor gates)"
#define LLTM_BACKWARD_LEAN_SCHEMA                                                                \
  "backward_lean(Tensor? grad_h, Tensor? grad_cell, Tensor input, Tensor weights, Tensor bias, " \
  "Tensor old_h, Tensor new_cell, Tensor gates, Tensor new_h, int needs) -> (Tensor d_input, "   \
  "Tensor d_weights, Tensor d_bias, Tensor d_old_h, Tensor d_old_cell)"

// One direction of a layer over a whole sequence. Without `keep_cells`, `cells` comes back with no
// elements. States are (B, S) or (1, B, S), and final ones have the form of the initial ones.
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
