// The kernels for whole sequences of one instruction set and dtype.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

// Packing works on panels [begin, end) of the weights, all else on rows [begin, end) of the batch.
struct LayerKernels {
  int64_t (*forward_bytes)(const lltm_layer_sizes&);  // of the workspace
  int64_t (*backward_bytes)(const lltm_layer_sizes&);
  int64_t (*forward_panels)(const lltm_layer_sizes&);
  int64_t (*backward_panels)(const lltm_layer_sizes&);
  void (*pack_forward)(const lltm_layer_forward_arguments&, int64_t begin, int64_t end);
  void (*pack_backward)(const lltm_layer_backward_arguments&, int64_t begin, int64_t end);
  void (*forward)(const lltm_layer_forward_arguments&, int64_t begin, int64_t end);
  void (*backward)(const lltm_layer_backward_arguments&, int64_t begin, int64_t end);
  // Rows of d_weights, in units of tile_rows; nothing where not all products are made.
  void (*weights_gradient)(const lltm_layer_backward_arguments&, int64_t begin, int64_t end);
  void (*cells)(const lltm_layer_cells_arguments&, int64_t begin, int64_t end);
  int64_t tile_rows;        // rows that are multiplied together
  bool makes_all_products;  // as in a plan
};

}  // namespace lltm
