// Registers the operators, and names the table of the kernels that they call.
#include "../engine/register.h"

#include "../kernels/lltm_kernels.h"
#include "operators.h"

PROJECT_OPERATORS(LLTM_OPERATORS)

PROJECT_KERNELS(lltm_kernel_functions, LLTM_KERNEL_ABI)
