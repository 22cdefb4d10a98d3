// How CPU kernels share work among threads.
#pragma once

#include "../kernel_table.h"

namespace PROJECT_NAMESPACE {

// Calls `work(begin, end)` on disjoint ranges that cover [0, count), possibly on several threads if
// `count` is more than `grain_size`.
template <typename Work>
void in_parallel(int64_t count, int64_t grain_size, const PROJECT_SYMBOL(execution) & execution,
                 const Work& work) {
  if (count <= grain_size) return work(0, count);
  const auto range = [](int64_t begin, int64_t end, void* context) {
    (*static_cast<const Work*>(context))(begin, end);
  };
  execution.parallel_for(0, count, grain_size, range, const_cast<Work*>(&work));
}

}  // namespace PROJECT_NAMESPACE
