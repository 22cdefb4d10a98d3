// The table of the CUDA kernels.
#include "common/copies.h"
#include "common/product.h"
#include "layer/layer.h"
#include "step/step.h"

namespace {

lltm_kernel_functions make_table() {
  lltm_kernel_functions table = {};
  table.head = {LLTM_KERNEL_ABI, sizeof(table), "cuda"};
  table.pointwise_forward = lltm::cuda_pointwise_forward;
  table.pointwise_backward = lltm::cuda_pointwise_backward;
  table.column_sum = lltm::cuda_column_sum;
  table.layer_plan = lltm::cuda_layer_plan;
  table.layer_forward = lltm::cuda_layer_forward;
  table.layer_backward = lltm::cuda_layer_backward;
  table.layer_cells = lltm::cuda_layer_cells;
  table.step_plan = lltm::cuda_step_plan;
  table.step_forward = lltm::cuda_step_forward;
  table.step_backward = lltm::cuda_step_backward;
  table.product = lltm::cuda_product;
  table.copy = lltm::cuda_copy;
  return table;
}

}  // namespace

PROJECT_KERNEL_TABLE(cuda) {
  static const lltm_kernel_functions table = make_table();
  return &table;
}
