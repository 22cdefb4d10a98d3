// What follows a GEMM on the CPU: the pointwise part of a step, and column sums.
#include <algorithm>

#include "../dispatch.h"
#include "cpu_kernels.h"
#include "levels.h"

namespace lltm {
namespace {

// Elements that are worth waking another thread for.
constexpr int64_t kElementsPerThread = 16384;

// Columns of a row that are one unit of work, so that threads can share a batch of one, too.
constexpr int64_t kColumnsPerUnit = 512;

// Applies a kernel to every row, in units of columns that threads share.
template <typename Arguments>
void for_each_unit(const Arguments& arguments,
                   void (*kernel)(const Arguments&, int64_t n, int64_t begin, int64_t end),
                   const lltm_execution& execution) {
  const int64_t state_size = arguments.state_size;
  if (arguments.batch_size == 0 || state_size == 0) return;
  const int64_t units_per_row = (state_size + kColumnsPerUnit - 1) / kColumnsPerUnit;
  const int64_t columns = std::min(state_size, kColumnsPerUnit);
  const int64_t grain_size = (kElementsPerThread + columns - 1) / columns;
  in_parallel(arguments.batch_size * units_per_row, grain_size, execution,
              [&](int64_t begin, int64_t end) {
                for (int64_t unit = begin; unit < end; ++unit) {
                  const int64_t first = unit % units_per_row * kColumnsPerUnit;
                  kernel(arguments, unit / units_per_row, first,
                         std::min(first + kColumnsPerUnit, state_size));
                }
              });
}

}  // namespace

const char* cpu_cell_forward(lltm_dtype dtype, const lltm_cell_forward_arguments* arguments,
                             const lltm_execution* execution) {
  const Level* const level = cpu_level();
  if (level == nullptr) return kUnknownLevel;
  for_each_unit(*arguments, level->cell[dtype].forward, *execution);
  return nullptr;
}

const char* cpu_cell_backward(lltm_dtype dtype, const lltm_cell_backward_arguments* arguments,
                              const lltm_execution* execution) {
  const Level* const level = cpu_level();
  if (level == nullptr) return kUnknownLevel;
  for_each_unit(*arguments, level->cell[dtype].backward, *execution);
  return nullptr;
}

// Threads share columns, so the order of additions, and with it the result, does not depend on the
// number of threads. A strip of columns is summed at a time to stay in cache.
const char* cpu_column_sum(lltm_dtype dtype, const lltm_column_sum_arguments* arguments,
                           const lltm_execution* execution) {
  const int64_t grain_size = kElementsPerThread / at_least_one(arguments->rows) + 1;
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const T* const matrix = static_cast<const T*>(arguments->matrix);
    T* const sums = static_cast<T*>(arguments->sums);
    in_parallel(arguments->columns, grain_size, *execution, [&](int64_t begin, int64_t end) {
      constexpr int64_t kStrip = 64;
      for (int64_t first = begin; first < end; first += kStrip) {
        const int64_t width = std::min(end - first, kStrip);
        compute_t<T> partial[kStrip] = {};
        for (int64_t row = 0; row < arguments->rows; ++row) {
          const T* const from = matrix + row * arguments->columns + first;
          for (int64_t k = 0; k < width; ++k) partial[k] += widen(from[k]);
        }
        for (int64_t k = 0; k < width; ++k) sums[first + k] = narrow<T>(partial[k]);
      }
    });
    return nullptr;
  });
}

}  // namespace lltm
