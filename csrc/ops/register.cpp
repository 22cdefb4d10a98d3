// Registers the operators of torch.ops.lltm, and names the table of the kernels that they call.
#include "../engine/register.h"

#include "../kernels/lltm_kernels.h"
#include "cell_backward.h"
#include "cell_forward.h"
#include "layer_backward.h"
#include "layer_forward.h"

// One line for each operator. PROJECT_OPERATORS in engine/register.h describes the arguments.
#define LLTM_OPERATORS(OPERATOR)                          \
  OPERATOR(forward, CellForward, kOnCPU | kOnCUDA)        \
  OPERATOR(backward, CellBackward, kOnCPU | kOnCUDA)      \
  OPERATOR(layer_forward, LayerForward, kOnCPU | kOnCUDA) \
  OPERATOR(layer_backward, LayerBackward, kOnCPU | kOnCUDA)

PROJECT_OPERATORS(LLTM_OPERATORS)

PROJECT_KERNELS(lltm_kernel_functions, LLTM_KERNEL_ABI)
