// Maps a run-time dtype to a storage type.
#pragma once

#include "lltm_kernels.h"
#include "types.h"

namespace lltm {

// Calls `function(T{})` with the storage type T of `dtype`. Returns the function's result, or
// another error text.
template <typename Function>
const char* dispatch_dtype(lltm_dtype dtype, const Function& function) {
  switch (dtype) {
    case LLTM_FLOAT32:
      return function(float{});
    case LLTM_FLOAT64:
      return function(double{});
    case LLTM_FLOAT16:
      return function(float16{});
    case LLTM_BFLOAT16:
      return function(bfloat16{});
  }
  return "lltm kernels: unknown dtype code; glue and kernels come from different versions of lltm";
}

}  // namespace lltm
