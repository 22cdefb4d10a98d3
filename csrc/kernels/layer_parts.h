// Divides a sequence into the same parts on CPU and CUDA, for the products that batch over time.
#pragma once

#include <algorithm>

#include "lltm_kernels.h"

namespace lltm {

// Fills in the plan's part_starts. A CUDA device works on the products of one part while the host
// launches the steps of the next part. There are few parts, since 16-bit sums are rounded once per
// part. Backward ends with the first quarter of the steps. If this quarter is long, it becomes two
// parts, since the host has no steps left to launch during the last products.
inline void set_part_starts(int64_t steps, lltm_layer_plan* plan) {
  constexpr int64_t kParts = 4;
  constexpr int64_t kLeast = 32;  // the fewest steps in a part, unless the sequence is shorter
  static_assert(kParts + 1 <= LLTM_MOST_PARTS);
  const int64_t quarter = (steps + kParts - 1) / kParts;
  int64_t left = steps;
  for (int part = 0; left > 0 && part < LLTM_MOST_PARTS; ++part) {
    left -= std::max(kLeast, left > quarter ? quarter : (quarter + 1) / 2);
    if (left < kLeast) left = 0;
    plan->part_starts[part] = left;
  }
}

}  // namespace lltm
