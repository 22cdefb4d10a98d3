// The entries of the CPU kernel table, which ../lltm_kernels.h describes, and how they use threads.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

// cell.cpp: what follows a GEMM.
const char* cpu_cell_forward(lltm_dtype, const lltm_cell_forward_arguments*, const lltm_execution*);
const char* cpu_cell_backward(lltm_dtype, const lltm_cell_backward_arguments*,
                              const lltm_execution*);
const char* cpu_column_sum(lltm_dtype, const lltm_column_sum_arguments*, const lltm_execution*);

// step.cpp: whole steps.
const char* cpu_step_plan(lltm_dtype, lltm_pass, int32_t needs, const lltm_step_sizes*,
                          const lltm_execution*, lltm_step_plan*);
const char* cpu_step_forward(lltm_dtype, int32_t family, const lltm_step_forward_arguments*,
                             const lltm_execution*);
const char* cpu_step_backward(lltm_dtype, int32_t family, const lltm_step_backward_arguments*,
                              const lltm_execution*);

// layer.cpp: whole sequences.
const char* cpu_layer_plan(lltm_dtype, lltm_pass, const lltm_layer_sizes*, const lltm_execution*,
                           lltm_layer_plan*);
const char* cpu_layer_forward(lltm_dtype, int32_t family, const lltm_layer_forward_arguments*,
                              const lltm_execution*);
const char* cpu_layer_backward(lltm_dtype, int32_t family, const lltm_layer_backward_arguments*,
                               const lltm_execution*);
const char* cpu_layer_cells(lltm_dtype, const lltm_layer_cells_arguments*, const lltm_execution*);

inline int64_t at_least_one(int64_t value) { return value > 0 ? value : 1; }

// Calls `work(begin, end)` on disjoint ranges that cover [0, count), on several threads if there is
// more than one grain of work.
template <typename Work>
void in_parallel(int64_t count, int64_t grain_size, const lltm_execution& execution,
                 const Work& work) {
  if (count <= grain_size) return work(0, count);
  const auto range = [](int64_t begin, int64_t end, void* context) {
    (*static_cast<const Work*>(context))(begin, end);
  };
  execution.parallel_for(0, count, grain_size, range, const_cast<Work*>(&work));
}

}  // namespace lltm
