#include "../scale.h"

#include "torchship/kernels/dispatch.h"
#include "torchship/kernels/parallel.h"

namespace PROJECT_NAMESPACE {
namespace {

const char* scale(const Arguments* arguments, const Execution* execution) {
  return dispatch_floating(arguments->dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);  // double, float, float16 or bfloat16
    const auto* const x = static_cast<const T*>(arguments->x);
    auto* const y = static_cast<T*>(arguments->y);
    const auto factor = static_cast<compute_t<T>>(arguments->factor);
    in_parallel(arguments->count, 32768, *execution, [&](int64_t begin, int64_t end) {
      for (int64_t k = begin; k < end; ++k) y[k] = narrow<T>(widen(x[k]) * factor);
    });
    return nullptr;
  });
}

const Kernels table = {{SCALE_KERNEL_ABI, sizeof(table), "cpu"}, scale};

}  // namespace
}  // namespace PROJECT_NAMESPACE

PROJECT_KERNEL_TABLE(cpu) { return &PROJECT_NAMESPACE::table; }
