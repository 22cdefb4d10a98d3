// RMSNorm on the CPU. Rows are shared among torch's threads; the weight's gradient is summed in the
// order of the rows, so it is the same with any number of threads.
#include <cmath>
#include <vector>

#include "torchship/kernels/parallel.h"
#include "torchship/kernels/types.h"

#include "../own_op_kernels.h"

namespace own_op {
namespace {

// How many rows are worth a thread.
int64_t grain(const own_op_arguments* given) { return 1 + 16384 / (given->columns + 1); }

template <typename T>
T rounded(double value) {
  return narrow<T>(static_cast<compute_t<T>>(value));
}

template <typename T>
double scale_of(const T* x, const own_op_arguments* given) {
  double squares = 0;
  for (int64_t k = 0; k < given->columns; ++k) squares += double(widen(x[k])) * widen(x[k]);
  return 1 / std::sqrt(squares / given->columns + given->eps);
}

const char* forward(const own_op_arguments* given, const own_op_execution* where) {
  return dispatch_floating(given->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const auto* const weight = static_cast<const T*>(given->weight);
    in_parallel(given->rows, grain(given), *where, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* const x = static_cast<const T*>(given->x) + row * given->columns;
        T* const y = static_cast<T*>(given->y) + row * given->columns;
        const double scale = scale_of(x, given);
        for (int64_t k = 0; k < given->columns; ++k) {
          y[k] = rounded<T>(scale * widen(x[k]) * widen(weight[k]));
        }
      }
    });
    return nullptr;
  });
}

int64_t workspace(const own_op_arguments* given, const own_op_execution*) {
  return given->rows * static_cast<int64_t>(sizeof(double));  // each row's scale
}

const char* backward(const own_op_arguments* given, const own_op_execution* where) {
  return dispatch_floating(given->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const int64_t rows = given->rows, columns = given->columns;
    const auto* const weight = static_cast<const T*>(given->weight);
    auto* const scales = static_cast<double*>(given->workspace);
    in_parallel(rows, grain(given), *where, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* const x = static_cast<const T*>(given->x) + row * columns;
        const T* const dy = static_cast<const T*>(given->dy) + row * columns;
        T* const dx = static_cast<T*>(given->dx) + row * columns;
        const double scale = scales[row] = scale_of(x, given);
        double dot = 0;
        for (int64_t k = 0; k < columns; ++k) dot += widen(dy[k]) * widen(weight[k]) * widen(x[k]);
        const double shrink = dot * scale * scale / columns;
        for (int64_t k = 0; k < columns; ++k) {
          dx[k] = rounded<T>(scale * (widen(dy[k]) * widen(weight[k]) - widen(x[k]) * shrink));
        }
      }
    });
    in_parallel(columns, 64, *where, [&](int64_t begin, int64_t end) {
      std::vector<double> sums(end - begin);
      for (int64_t row = 0; row < rows; ++row) {
        const T* const x = static_cast<const T*>(given->x) + row * columns + begin;
        const T* const dy = static_cast<const T*>(given->dy) + row * columns + begin;
        for (size_t k = 0; k < sums.size(); ++k)
          sums[k] += scales[row] * widen(dy[k]) * widen(x[k]);
      }
      T* const dweight = static_cast<T*>(given->dweight) + begin;
      for (size_t k = 0; k < sums.size(); ++k) dweight[k] = rounded<T>(sums[k]);
    });
    return nullptr;
  });
}

const own_op_kernel_functions table = {
    {OWN_OP_KERNEL_ABI, sizeof(table), "cpu"}, forward, workspace, backward};

}  // namespace
}  // namespace own_op

PROJECT_KERNEL_TABLE(cpu) { return &own_op::table; }
