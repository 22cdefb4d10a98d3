#include "cell.h"
#include "layer.h"

extern "C" const lltm_kernel_functions* lltm_cuda_kernels(void) {
  static const lltm_kernel_functions functions = {
      LLTM_KERNEL_ABI,         sizeof(lltm_kernel_functions),      "cuda",
      lltm::cuda_cell_forward, lltm::cuda_cell_backward,           lltm::cuda_column_sum,
      lltm::cuda_layer_plan,   lltm::cuda_layer_forward,           lltm::cuda_layer_backward,
      lltm::cuda_layer_cells,  lltm::cuda_cell_backward_workspace, lltm::cuda_step_plan,
      lltm::cuda_step_forward, lltm::cuda_step_backward,
  };
  return &functions;
}
