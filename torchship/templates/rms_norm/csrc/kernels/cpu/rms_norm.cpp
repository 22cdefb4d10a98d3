// RMSNorm on the CPU. Rows are shared among torch's threads; the weight's gradient is summed in the
// order of the rows, so it is the same with any number of threads.
#include "../rms_norm.h"

#include <cmath>
#include <vector>

#include "torchship/kernels/parallel.h"
#include "torchship/kernels/types.h"

namespace PROJECT_NAMESPACE {
namespace {

// How many rows are worth a thread.
int64_t grain(const Arguments* arguments) { return 1 + 16384 / (arguments->columns + 1); }

template <typename T>
T rounded(double value) {
  return narrow<T>(static_cast<compute_t<T>>(value));
}

template <typename T>
double scale_of(const T* x, const Arguments* arguments) {
  double squares = 0;
  for (int64_t k = 0; k < arguments->columns; ++k) squares += double(widen(x[k])) * widen(x[k]);
  return 1 / std::sqrt(squares / arguments->columns + arguments->eps);
}

const char* forward(const Arguments* arguments, const Execution* execution) {
  return dispatch_floating(arguments->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const auto* const weight = static_cast<const T*>(arguments->weight);
    in_parallel(arguments->rows, grain(arguments), *execution, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* const x = static_cast<const T*>(arguments->x) + row * arguments->columns;
        T* const y = static_cast<T*>(arguments->y) + row * arguments->columns;
        const double scale = scale_of(x, arguments);
        for (int64_t k = 0; k < arguments->columns; ++k) {
          y[k] = rounded<T>(scale * widen(x[k]) * widen(weight[k]));
        }
      }
    });
    return nullptr;
  });
}

int64_t workspace(const Arguments* arguments, const Execution*) {
  return arguments->rows * static_cast<int64_t>(sizeof(double));  // each row's scale
}

const char* backward(const Arguments* arguments, const Execution* execution) {
  return dispatch_floating(arguments->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const int64_t rows = arguments->rows, columns = arguments->columns;
    const auto* const weight = static_cast<const T*>(arguments->weight);
    auto* const scales = static_cast<double*>(arguments->workspace);
    in_parallel(rows, grain(arguments), *execution, [&](int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* const x = static_cast<const T*>(arguments->x) + row * columns;
        const T* const dy = static_cast<const T*>(arguments->dy) + row * columns;
        T* const dx = static_cast<T*>(arguments->dx) + row * columns;
        const double scale = scales[row] = scale_of(x, arguments);
        double dot = 0;
        for (int64_t k = 0; k < columns; ++k) dot += widen(dy[k]) * widen(weight[k]) * widen(x[k]);
        const double shrink = dot * scale * scale / columns;
        for (int64_t k = 0; k < columns; ++k) {
          dx[k] = rounded<T>(scale * (widen(dy[k]) * widen(weight[k]) - widen(x[k]) * shrink));
        }
      }
    });
    in_parallel(columns, 64, *execution, [&](int64_t begin, int64_t end) {
      std::vector<double> sums(end - begin);
      for (int64_t row = 0; row < rows; ++row) {
        const T* const x = static_cast<const T*>(arguments->x) + row * columns + begin;
        const T* const dy = static_cast<const T*>(arguments->dy) + row * columns + begin;
        for (size_t k = 0; k < sums.size(); ++k)
          sums[k] += scales[row] * widen(dy[k]) * widen(x[k]);
      }
      T* const dweight = static_cast<T*>(arguments->dweight) + begin;
      for (size_t k = 0; k < sums.size(); ++k) dweight[k] = rounded<T>(sums[k]);
    });
    return nullptr;
  });
}

const Kernels table = {{RMS_NORM_KERNEL_ABI, sizeof(table), "cpu"}, forward, workspace, backward};

}  // namespace
}  // namespace PROJECT_NAMESPACE

PROJECT_KERNEL_TABLE(cpu) { return &PROJECT_NAMESPACE::table; }
