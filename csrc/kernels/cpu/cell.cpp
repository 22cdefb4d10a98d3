// One LLTM step on the CPU.
#include "../dispatch.h"
#include "../lltm_kernels.h"
#include "../view.h"
#include "layer.h"
#include "levels.h"
#include "step.h"

namespace lltm {
namespace {

// Elements a thread must have before another thread is worth waking.
constexpr int64_t kElementsPerThread = 16384;

// Columns of a row that are one unit of work, so that threads can share a batch of one, too.
constexpr int64_t kColumnsPerUnit = 512;

// Applies a level's kernel to every row, in units of columns that threads share.
template <typename Arguments>
void for_each_unit(const Arguments& arguments,
                   void (*kernel)(const Arguments&, int64_t, int64_t, int64_t),
                   const lltm_execution& execution) {
  if (arguments.batch_size == 0 || arguments.state_size == 0) return;
  const int64_t units_per_row = (arguments.state_size + kColumnsPerUnit - 1) / kColumnsPerUnit;
  struct Context {
    const Arguments* arguments;
    decltype(kernel) apply;
    int64_t units_per_row;
  } context{&arguments, kernel, units_per_row};
  const auto units = [](int64_t begin, int64_t end, void* opaque) {
    const Context& local = *static_cast<const Context*>(opaque);
    for (int64_t unit = begin; unit < end; ++unit) {
      const int64_t n = unit / local.units_per_row;
      const int64_t first = (unit % local.units_per_row) * kColumnsPerUnit;
      const int64_t state_size = local.arguments->state_size;
      const int64_t last = first + kColumnsPerUnit;
      local.apply(*local.arguments, n, first, last < state_size ? last : state_size);
    }
  };
  const int64_t columns =
      arguments.state_size < kColumnsPerUnit ? arguments.state_size : kColumnsPerUnit;
  const int64_t grain_size = (kElementsPerThread + columns - 1) / columns;
  execution.parallel_for(0, arguments.batch_size * units_per_row, grain_size, units, &context);
}

const char* forward(lltm_dtype dtype, const lltm_cell_forward_arguments* arguments,
                    const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    const Level* level = cpu_level();
    if (level == nullptr) return kUnknownLevel;
    for_each_unit(*arguments, level->cell(zero).forward, *execution);
    return nullptr;
  });
}

const char* backward(lltm_dtype dtype, const lltm_cell_backward_arguments* arguments,
                     const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    const Level* level = cpu_level();
    if (level == nullptr) return kUnknownLevel;
    for_each_unit(*arguments, level->cell(zero).backward, *execution);
    return nullptr;
  });
}

// Columns are shared out to threads, so the order of additions, and with it the result, does not
// depend on the number of threads. A strip of columns is summed at a time to stay in cache.
const char* column_sum(lltm_dtype dtype, const lltm_column_sum_arguments* arguments,
                       const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const auto strip = [](int64_t begin, int64_t end, void* opaque) {
      using C = compute_t<T>;
      const auto& local = *static_cast<const lltm_column_sum_arguments*>(opaque);
      const View<const T, 2> matrix(static_cast<const T*>(local.matrix), local.columns);
      T* const sums = static_cast<T*>(local.sums);
      constexpr int64_t kStrip = 64;
      for (int64_t first = begin; first < end; first += kStrip) {
        const int64_t width = end - first < kStrip ? end - first : kStrip;
        C partial[kStrip] = {};
        for (int64_t row = 0; row < local.rows; ++row) {
          for (int64_t k = 0; k < width; ++k) partial[k] += widen(matrix[row][first + k]);
        }
        for (int64_t k = 0; k < width; ++k) sums[first + k] = narrow<T>(partial[k]);
      }
    };
    if (arguments->columns == 0) return nullptr;
    const int64_t rows = arguments->rows > 0 ? arguments->rows : 1;
    const int64_t grain_size = (kElementsPerThread + rows - 1) / rows;
    lltm_column_sum_arguments context = *arguments;
    execution->parallel_for(0, arguments->columns, grain_size, strip, &context);
    return nullptr;
  });
}

}  // namespace
}  // namespace lltm

extern "C" const lltm_kernel_functions* lltm_cpu_kernels(void) {
  static const lltm_kernel_functions functions = {
      LLTM_KERNEL_ABI,
      sizeof(lltm_kernel_functions),
      "cpu",
      lltm::forward,
      lltm::backward,
      lltm::column_sum,
      lltm::cpu_layer_plan,
      lltm::cpu_layer_forward,
      lltm::cpu_layer_backward,
      lltm::cpu_layer_cells,
      nullptr,  // no workspace for a bias gradient: cell_backward makes none
      lltm::cpu_step_plan,
      lltm::cpu_step_forward,
      lltm::cpu_step_backward,
  };
  return &functions;
}
