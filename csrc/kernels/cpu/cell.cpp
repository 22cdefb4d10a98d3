// One LLTM step on the CPU.
#include "../cell_element.h"
#include "../dispatch.h"
#include "../lltm_kernels.h"

namespace lltm {
namespace {

// Elements a thread must have before another thread is worth waking.
constexpr int64_t kElementsPerThread = 4096;

// Applies `cell` to every element; threads share the rows.
template <typename Cell>
void for_each_element(const Cell& cell, int64_t batch_size, int64_t state_size,
                      const lltm_execution& execution) {
  struct Context {
    const Cell* cell;
    int64_t state_size;
  } context{&cell, state_size};
  const auto rows = [](int64_t begin, int64_t end, void* opaque) {
    const Context& local = *static_cast<const Context*>(opaque);
    for (int64_t n = begin; n < end; ++n) {
      for (int64_t column = 0; column < local.state_size; ++column) (*local.cell)(n, column);
    }
  };
  if (batch_size == 0 || state_size == 0) return;
  const int64_t grain_size = (kElementsPerThread + state_size - 1) / state_size;
  execution.parallel_for(0, batch_size, grain_size, rows, &context);
}

const char* forward(lltm_dtype dtype, const lltm_cell_forward_arguments* arguments,
                    const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    const CellForward<decltype(zero)> cell(*arguments);
    for_each_element(cell, arguments->batch_size, arguments->state_size, *execution);
    return nullptr;
  });
}

const char* backward(lltm_dtype dtype, const lltm_cell_backward_arguments* arguments,
                     const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    const CellBackward<decltype(zero)> cell(*arguments);
    for_each_element(cell, arguments->batch_size, arguments->state_size, *execution);
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
    const int64_t grain_size = (4 * kElementsPerThread + rows - 1) / rows;
    lltm_column_sum_arguments context = *arguments;
    execution->parallel_for(0, arguments->columns, grain_size, strip, &context);
    return nullptr;
  });
}

}  // namespace
}  // namespace lltm

extern "C" const lltm_kernel_functions* lltm_cpu_kernels(void) {
  static const lltm_kernel_functions functions = {
      LLTM_KERNEL_ABI,  sizeof(lltm_kernel_functions), "cpu", lltm::forward, lltm::backward,
      lltm::column_sum,
  };
  return &functions;
}
