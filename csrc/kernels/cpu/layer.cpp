// Whole sequences on the CPU.
#include "layer.h"

#include <cstdlib>
#include <cstring>

#include "../cell_math.h"
#include "../dispatch.h"

namespace lltm {

const char* cpu_layer_plan(lltm_dtype, int32_t, const lltm_layer_sizes*, const lltm_execution*,
                           lltm_layer_plan* plan) {
  *plan = {0, 0};
  const char* const wanted = std::getenv("LLTM_LAYER_KERNELS");
  if (wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, "fallback") == 0) return nullptr;
  return "lltm: LLTM_LAYER_KERNELS names no family of CPU kernels; set it to fallback, or unset it";
}

const char* cpu_layer_forward(lltm_dtype, int32_t, const lltm_layer_forward_arguments*,
                              const lltm_execution*) {
  return "lltm CPU kernel layer_forward: no such family";
}

const char* cpu_layer_backward(lltm_dtype, int32_t, const lltm_layer_backward_arguments*,
                               const lltm_execution*) {
  return "lltm CPU kernel layer_backward: no such family";
}

const char* cpu_layer_cells(lltm_dtype dtype, const lltm_layer_cells_arguments* arguments,
                            const lltm_execution* execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    const auto rows = [](int64_t begin, int64_t end, void* opaque) {
      using C = compute_t<T>;
      using Math = ScalarMath<C>;
      const auto& local = *static_cast<const lltm_layer_cells_arguments*>(opaque);
      const lltm_layer_sizes& sizes = local.sizes;
      const auto* const initial = static_cast<const T*>(local.initial_cell);
      const auto* const gates = static_cast<const T*>(local.gates);
      auto* const cells = static_cast<T*>(local.cells);
      for (int64_t n = begin; n < end; ++n) {
        for (int64_t column = 0; column < sizes.state_size; ++column) {
          const int64_t element = n * sizes.state_size + column;
          C cell = initial != nullptr ? widen(initial[element]) : C(0);
          for (int64_t step = 0; step < sizes.steps; ++step) {
            const int64_t t = sizes.reverse != 0 ? sizes.steps - 1 - step : step;
            const int64_t row = t * sizes.batch_size + n;
            const T* const z = gates + row * kGateCount * sizes.state_size + column;
            cell += Math::elu(widen(z[kCandidate * sizes.state_size])) *
                    Math::sigmoid(widen(z[kInputGate * sizes.state_size])).value;
            cells[row * sizes.state_size + column] = narrow<T>(cell);
          }
        }
      }
    };
    lltm_layer_cells_arguments context = *arguments;
    execution->parallel_for(0, arguments->sizes.batch_size, 1, rows, &context);
    return nullptr;
  });
}

}  // namespace lltm
