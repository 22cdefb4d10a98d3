// The family `grid`: the recurrent weights spread over the registers of many multiprocessors.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

// How a problem is spread over the device; without blocks where it does not fit.
struct GridShape {
  int unit_blocks = 0;  // blocks that share a slice of the batch, each with its units of the state
  int slices = 0;       // of the batch
  int slice_rows = 0;   // rows of the batch a slice
};

// Fills in the shape for a problem; one without blocks where there is no kernel for it.
const char* shape_grid(lltm_dtype dtype, const lltm_layer_sizes& sizes, int32_t device_index,
                       GridShape* shape);
// Whether the device can hold all blocks of that shape at once.
const char* check_grid(lltm_dtype dtype, bool backward, const lltm_layer_sizes& sizes,
                       int32_t device_index, const GridShape& shape, bool* fits);
int64_t grid_workspace(lltm_dtype dtype, bool backward, const lltm_layer_sizes& sizes);
const char* grid_forward(lltm_dtype dtype, const lltm_layer_forward_arguments& arguments,
                         const lltm_execution& execution, const GridShape& shape);
const char* grid_backward(lltm_dtype dtype, const lltm_layer_backward_arguments& arguments,
                          const lltm_execution& execution, const GridShape& shape);

}  // namespace lltm
