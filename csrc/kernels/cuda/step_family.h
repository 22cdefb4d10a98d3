// What lltm_step_plan's `family` means here: the rows of the batch that a block takes.
#pragma once

namespace lltm {

enum StepFamily {
  kGemm = 0,  // the caller's GEMM, then the kernels of pointwise.cu
  kRows4 = 1,
  kRows16 = 2,
  kRows32 = 3,
  kRows64 = 4,
};

}  // namespace lltm
