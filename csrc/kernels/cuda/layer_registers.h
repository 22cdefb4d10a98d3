// The family `registers`: one block runs a few rows of the batch through the whole sequence.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

// Whether there is a kernel: for states whose recurrent weights, as float32, fit the registers of
// one multiprocessor.
bool registers_fit(lltm_dtype dtype, const lltm_layer_sizes& sizes);

const char* registers_forward(lltm_dtype dtype, const lltm_layer_forward_arguments& arguments,
                              const lltm_execution& execution);
const char* registers_backward(lltm_dtype dtype, const lltm_layer_backward_arguments& arguments,
                               const lltm_execution& execution);

}  // namespace lltm
