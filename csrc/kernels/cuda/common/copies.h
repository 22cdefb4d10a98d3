// Copies of matrices, several in one launch. Their shapes may differ; lltm_copy describes one.
#pragma once

#include "../../lltm_kernels.h"

namespace lltm {

struct Copies {
  int32_t count = 0;
  lltm_copy at[LLTM_MOST_COPIES];
};

// Makes all copies in one launch. Rows and columns that only the target has become zeros.
const char* cuda_copy(lltm_dtype, int32_t count, const lltm_copy*, const lltm_execution*);

}  // namespace lltm
