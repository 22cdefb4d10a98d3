// The operators of torch.ops.lltm.
#pragma once

#include "cell_backward.h"
#include "cell_forward.h"
#include "layer_backward.h"
#include "layer_forward.h"

// One line for each operator, as engine/register.h reads it.
#define LLTM_OPERATORS(OPERATOR)                          \
  OPERATOR(forward, CellForward, kOnCPU | kOnCUDA)        \
  OPERATOR(backward, CellBackward, kOnCPU | kOnCUDA)      \
  OPERATOR(layer_forward, LayerForward, kOnCPU | kOnCUDA) \
  OPERATOR(layer_backward, LayerBackward, kOnCPU | kOnCUDA)
