// What lltm_step_plan's `family` means here.
#pragma once

namespace lltm {

enum StepFamily {
  kNoFamily = 0,      // a GEMM of the caller's, and the kernels of pointwise.cu behind it
  kRowFamily = 1,     // a block takes 4 rows of the batch
  kNarrowFamily = 2,  // 16 rows
  kWideFamily = 3,    // 32 rows
  kTallFamily = 4,    // 64 rows
};

}  // namespace lltm
