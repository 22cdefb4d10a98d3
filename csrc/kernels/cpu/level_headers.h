// Declarations for the table of the CPU kernels and for the kernels of every level. A level is an
// instruction set. level_*.cpp includes this file before it sets its instruction set, so functions
// of this file and of the headers below run on every processor of the platform.
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
#if defined(__x86_64__) && (defined(__clang__) || __GNUC__ >= 10)
#define LLTM_HAS_AVX512_BF16
#include <immintrin.h>
#endif
#if defined(LLTM_HAS_AVX512_BF16) && defined(__linux__) && \
    (defined(__clang__) ? __clang_major__ >= 12 : __GNUC__ >= 11)
#define LLTM_HAS_AMX
#endif

#include "torchship/kernels/parallel.h"

#include "../lltm_kernels.h"
#include "../types.h"

namespace lltm {

template <typename Arguments>
using CpuKernel = const char* (*)(const Arguments&, const lltm_execution&);

// The kernels of one dtype. ../lltm_kernels.h describes their arguments and results.
struct CpuKernels {
  CpuKernel<lltm_step_forward_arguments> pointwise_forward;
  CpuKernel<lltm_step_backward_arguments> pointwise_backward;
  CpuKernel<lltm_column_sum_arguments> column_sum;
  CpuKernel<lltm_layer_forward_arguments> layer_forward;
  CpuKernel<lltm_layer_backward_arguments> layer_backward;
  CpuKernel<lltm_layer_cells_arguments> layer_cells;
  CpuKernel<lltm_step_forward_arguments> step_forward;
  CpuKernel<lltm_step_backward_arguments> step_backward;
  CpuKernel<lltm_product_arguments> product;
  void (*layer_plan)(lltm_pass, const lltm_layer_sizes&, lltm_layer_plan*);
};

// SVE functions next to functions for other targets need GCC 10 or newer, or clang 16 or newer.
#if defined(__aarch64__) && (defined(__clang__) ? __clang_major__ >= 16 : __GNUC__ >= 10)
#define LLTM_HAS_SVE
#endif

// The kernels of each level, by lltm_dtype_index. Each level_*.cpp defines one member, if the
// platform and the compiler support the level. On Arm, the baseline is NEON. The three levels with
// instructions for bfloat16 have kernels of bfloat16 alone: those of the other dtypes would be the
// code of avx512 and of the baseline once more.
struct CpuLevels {
  static const CpuKernels baseline[4], avx2[4], avx512[4], sve[4];
  static const CpuKernels avx512_bf16, amx, neon_bf16;
};

inline int64_t least(int64_t a, int64_t b) { return a < b ? a : b; }
inline int64_t at_least_one(int64_t value) { return value > 0 ? value : 1; }
// Returns a / b, rounded up.
inline int64_t ceiling(int64_t a, int64_t b) { return (a + b - 1) / b; }
inline int64_t round_up(int64_t value, int64_t unit) { return ceiling(value, unit) * unit; }

// Reading or writing an element of a matrix takes as long as about this many multiplications.
constexpr int64_t kCostOfElement = 8;

// Returns the fewest units, each of `cost` multiplications, for which it pays to wake another
// thread: about 10 us of work.
inline int64_t grain_of(int64_t cost) {
  return at_least_one((int64_t{1} << 20) / at_least_one(cost));
}

// Returns the number of multiplications in a step's product with all of `weights`.
inline int64_t products_of(const lltm_step_sizes& sizes) {
  return sizes.batch_size * 3 * sizes.state_size * (sizes.state_size + sizes.input_size);
}

// Returns the first row of a step in a tensor of T * B rows.
inline int64_t first_row_of(const lltm_layer_sizes& sizes, int64_t step) {
  return (sizes.reverse != 0 ? sizes.steps - 1 - step : step) * sizes.batch_size;
}

// Memory for one call. A small amount is on the stack: malloc would take a tenth of a small step's
// time.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) {
    if (bytes <= static_cast<int64_t>(sizeof(here_))) return;
    // The size must be a multiple of the alignment.
    data_ = std::aligned_alloc(kLine, static_cast<size_t>(round_up(bytes, kLine)));
  }
  ~Scratch() {
    if (data_ != here_) std::free(data_);
  }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  void* data() { return data_; }  // NULL if the allocation failed

 private:
  static constexpr size_t kLine = 64;  // bytes of a cache line
  alignas(kLine) char here_[24 * 1024];
  void* data_ = here_;
};

inline constexpr const char* kNoMemory = "lltm: no memory for the CPU kernels' workspace";

// Calls `work(memory, begin, end)` on ranges, as in_parallel does. Each call gets `bytes` bytes of
// memory. If an allocation fails, leaves out its range and returns an error text; else NULL.
template <typename Work>
const char* in_parallel_with_memory(int64_t count, int64_t grain_size, int64_t bytes,
                                    const lltm_execution& execution, const Work& work) {
  std::atomic<bool> missing{false};
  in_parallel(count, grain_size, execution, [&](int64_t begin, int64_t end) {
    Scratch scratch(bytes);
    if (scratch.data() == nullptr) return missing.store(true);
    work(scratch.data(), begin, end);
  });
  return missing ? kNoMemory : nullptr;
}

}  // namespace lltm
