// The operators of torch.ops.lltm. Both doors register exactly these.
#pragma once

#include "cell_backward.h"
#include "cell_forward.h"
#include "layer_backward.h"
#include "layer_forward.h"

// One line for each operator: its name, the template that holds its schema and its function
// (kSchema and run), and the devices that it serves (kOnCPU, kOnCUDA).
#define LLTM_OPERATORS(OPERATOR)                          \
  OPERATOR(forward, CellForward, kOnCPU | kOnCUDA)        \
  OPERATOR(backward, CellBackward, kOnCPU | kOnCUDA)      \
  OPERATOR(layer_forward, LayerForward, kOnCPU | kOnCUDA) \
  OPERATOR(layer_backward, LayerBackward, kOnCPU | kOnCUDA)

namespace lltm {

enum Devices { kOnCPU = 1, kOnCUDA = 2 };

}  // namespace lltm
