// Registers the operators of torch.ops.lltm, and exports the function that attaches their kernels.
#include "torchship/register.h"

#include "../kernels/lltm_kernels.h"
#include "layer_backward.h"
#include "layer_forward.h"
#include "step_backward.h"
#include "step_forward.h"

// One line for each operator. The comment on PROJECT_OPERATORS describes a line's arguments.
#define LLTM_OPERATORS(OPERATOR)                          \
  OPERATOR(forward, StepForward, kOnCPU | kOnCUDA)        \
  OPERATOR(backward, StepBackward, kOnCPU | kOnCUDA)      \
  OPERATOR(layer_forward, LayerForward, kOnCPU | kOnCUDA) \
  OPERATOR(layer_backward, LayerBackward, kOnCPU | kOnCUDA)

PROJECT_OPERATORS(LLTM_OPERATORS)

PROJECT_KERNELS(lltm_kernel_functions, LLTM_KERNEL_ABI)
