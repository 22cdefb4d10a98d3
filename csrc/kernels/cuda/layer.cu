// Whole sequences on a CUDA device: which persistent kernel serves a problem.
#include <cstdlib>
#include <cstring>

#include "layer.h"

namespace lltm {

const char* cuda_layer_plan(lltm_dtype, int32_t, const lltm_layer_sizes*, const lltm_execution*,
                            lltm_layer_plan* plan) {
  *plan = {0, 0};
  const char* const wanted = std::getenv("LLTM_LAYER_KERNELS");
  if (wanted == nullptr || *wanted == '\0' || std::strcmp(wanted, "fallback") == 0) return nullptr;
  return "lltm: LLTM_LAYER_KERNELS names no family of CUDA kernels; set it to fallback, or unset "
         "it";
}

const char* cuda_layer_forward(lltm_dtype, int32_t, const lltm_layer_forward_arguments*,
                               const lltm_execution*) {
  return "lltm CUDA kernel layer_forward: no such family";
}

const char* cuda_layer_backward(lltm_dtype, int32_t, const lltm_layer_backward_arguments*,
                                const lltm_execution*) {
  return "lltm CUDA kernel layer_backward: no such family";
}

}  // namespace lltm
