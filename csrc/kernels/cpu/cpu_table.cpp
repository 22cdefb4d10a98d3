#include "levels.h"

namespace lltm {
namespace {

// Runs `kernel` for the processor's level and the dtype.
template <auto kernel, typename Arguments>
const char* run(lltm_dtype dtype, const Arguments* arguments, const lltm_execution* execution) {
  const Level* const level = cpu_level();
  if (level == nullptr) return kUnknownLevel;
  return (level->kernels[dtype].*kernel)(*arguments, *execution);
}

// Ignores the family: steps and layers have only one each, besides gemm, which never gets here.
template <auto kernel, typename Arguments>
const char* run_family(lltm_dtype dtype, int32_t, const Arguments* arguments,
                       const lltm_execution* execution) {
  return run<kernel>(dtype, arguments, execution);
}

lltm_kernel_functions make_table() {
  lltm_kernel_functions table = {};
  table.head = {LLTM_KERNEL_ABI, sizeof(table), "cpu"};
  table.cell_forward = run<&CpuKernels::cell_forward>;
  table.cell_backward = run<&CpuKernels::cell_backward>;
  table.column_sum = run<&CpuKernels::column_sum>;
  table.layer_plan = cpu_layer_plan;
  table.layer_forward = run_family<&CpuKernels::layer_forward>;
  table.layer_backward = run_family<&CpuKernels::layer_backward>;
  table.layer_cells = run<&CpuKernels::layer_cells>;
  table.step_plan = cpu_step_plan;
  table.step_forward = run_family<&CpuKernels::step_forward>;
  table.step_backward = run_family<&CpuKernels::step_backward>;
  return table;
}

}  // namespace
}  // namespace lltm

PROJECT_KERNEL_TABLE(cpu) {
  static const lltm_kernel_functions table = lltm::make_table();
  return &table;
}

// The name of the instruction set in use, as in levels.h, or unknown.
extern "C" PROJECT_EXPORT const char* lltm_cpu_capability(void) {
  const lltm::Level* level = lltm::cpu_level();
  return level == nullptr ? "unknown" : level->name;
}
