// Registers the operators, and says what kernels they call.
#include "../engine/register.h"

#include "../kernels/lltm_kernels.h"
#include "operators.h"

PROJECT_OPERATORS(LLTM_OPERATORS)

PROJECT_KERNELS(lltm_kernel_functions, LLTM_KERNEL_ABI)

// Builds that link the kernels in (CMake, torch.utils.cpp_extension) say so with these macros.
#ifdef LLTM_LINKED_CPU_KERNELS
[[maybe_unused]] static const char* const cpu_linked = lltm_attach_kernels(lltm_cpu_kernels());
#endif
#ifdef LLTM_LINKED_CUDA_KERNELS
[[maybe_unused]] static const char* const cuda_linked = lltm_attach_kernels(lltm_cuda_kernels());
#endif
