#include "cpu_kernels.h"

namespace {

lltm_kernel_functions make_table() {
  lltm_kernel_functions table = {};
  table.abi = LLTM_KERNEL_ABI;
  table.byte_size = sizeof(table);
  table.device = "cpu";
  table.cell_forward = lltm::cpu_cell_forward;
  table.cell_backward = lltm::cpu_cell_backward;
  table.column_sum = lltm::cpu_column_sum;
  table.layer_plan = lltm::cpu_layer_plan;
  table.layer_forward = lltm::cpu_layer_forward;
  table.layer_backward = lltm::cpu_layer_backward;
  table.layer_cells = lltm::cpu_layer_cells;
  table.step_plan = lltm::cpu_step_plan;
  table.step_forward = lltm::cpu_step_forward;
  table.step_backward = lltm::cpu_step_backward;
  return table;
}

}  // namespace

extern "C" const lltm_kernel_functions* lltm_cpu_kernels(void) {
  static const lltm_kernel_functions table = make_table();
  return &table;
}
