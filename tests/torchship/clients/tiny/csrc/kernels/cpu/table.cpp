// scaled = factor * values, and the entry point of kernels-cpu.so.
#include "../tiny_kernels.h"

namespace {

struct Work {
  const float* values;
  float factor;
  float* scaled;
};

void scale_range(int64_t begin, int64_t end, void* context) {
  const Work& work = *static_cast<const Work*>(context);
  for (int64_t k = begin; k < end; ++k) work.scaled[k] = work.factor * work.values[k];
}

const char* scale(const float* values, int64_t count, double factor, float* scaled,
                  const tiny_execution* where) {
  Work work = {values, static_cast<float>(factor), scaled};
  where->parallel_for(0, count, 1024, scale_range, &work);
  return nullptr;
}

const tiny_kernel_functions table = {{TINY_KERNEL_ABI, sizeof(table), "cpu"}, scale};

}  // namespace

PROJECT_KERNEL_TABLE(cpu) { return &table; }
