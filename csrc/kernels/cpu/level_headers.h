// What the kernels of every level and their table share, and the headers that the kernels include
// before level_*.cpp sets its instruction set. These functions are thus compiled for every
// processor.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <type_traits>
#include <utility>

#ifdef __aarch64__
#include <arm_neon.h>
#endif

#include "../../engine/kernels/parallel.h"
#include "../lltm_kernels.h"
#include "../types.h"

namespace lltm {

template <typename Arguments>
using CpuKernel = const char* (*)(const Arguments&, const lltm_execution&);

// The kernels of one dtype; ../lltm_kernels.h describes what they compute.
struct CpuKernels {
  CpuKernel<lltm_step_forward_arguments> cell_forward;
  CpuKernel<lltm_step_backward_arguments> cell_backward;
  CpuKernel<lltm_column_sum_arguments> column_sum;
  CpuKernel<lltm_layer_forward_arguments> layer_forward;
  CpuKernel<lltm_layer_backward_arguments> layer_backward;
  CpuKernel<lltm_layer_cells_arguments> layer_cells;
  CpuKernel<lltm_step_forward_arguments> step_forward;
  CpuKernel<lltm_step_backward_arguments> step_backward;
  int64_t (*layer_workspace)(lltm_pass, const lltm_layer_sizes&);        // in bytes
  bool (*layer_makes_all_products)(lltm_pass, const lltm_layer_sizes&);  // as in a plan
};

// The kernels of each level by lltm_dtype. Each level_*.cpp defines one.
namespace baseline {
extern const CpuKernels kKernels[4];
}
#ifdef __x86_64__
namespace avx2 {
extern const CpuKernels kKernels[4];
}
namespace avx512 {
extern const CpuKernels kKernels[4];
}
#elif defined(__aarch64__)
namespace neon_bf16 {  // the baseline is NEON
extern const CpuKernels kKernels[4];
}
// SVE functions next to functions for other targets need GCC 10 or clang 16.
#if defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 10
#define LLTM_HAS_SVE
namespace sve {
extern const CpuKernels kKernels[4];
}
#endif
#endif

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t at_least_one(int64_t value) { return value > 0 ? value : 1; }
// a / b, rounded up
inline int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t value, int64_t unit) { return ceiling(value, unit) * unit; }

// Multiplications of a step's product with all of `weights`.
inline int64_t products_of(const lltm_step_sizes& sizes) {
  return sizes.batch_size * 3 * sizes.state_size * (sizes.state_size + sizes.input_size);
}

// Takes small scratch from the stack: malloc would take a tenth of a small step's time.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    // The size is in whole cache lines: it must be a multiple of the alignment.
    if (!fits()) allocated_ = std::aligned_alloc(kLine, (bytes_ + kLine - 1) / kLine * kLine);
  }
  ~Scratch() { std::free(allocated_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() { return fits() ? here_ : allocated_; }
  bool missing() const { return !fits() && allocated_ == nullptr; }

 private:
  static constexpr size_t kLine = 64;
  bool fits() const { return bytes_ <= sizeof(here_); }

  const size_t bytes_;
  void* allocated_ = nullptr;
  alignas(kLine) char here_[24 * 1024];
};

inline constexpr const char* kNoMemory = "lltm: no memory for the CPU kernels' workspace";

// Calls `work(memory, begin, end)` as in_parallel calls its work, with memory of `bytes` bytes for
// each thread. Returns NULL or an error text.
template <typename Work>
const char* in_parallel_with_memory(int64_t count, int64_t grain_size, int64_t bytes,
                                    const lltm_execution& execution, const Work& work) {
  std::atomic<bool> missing{false};
  in_parallel(count, grain_size, execution, [&](int64_t begin, int64_t end) {
    Scratch scratch(bytes);
    if (scratch.missing()) return missing.store(true);
    work(scratch.data(), begin, end);
  });
  return missing ? kNoMemory : nullptr;
}

}  // namespace lltm
