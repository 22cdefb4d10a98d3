// How the CPU kernels share work among threads, and their scratch memory. Every level includes this
// file before it sets its instruction set, so these functions run on every processor.
#pragma once

#include <cstdlib>

#include "../../engine/kernels/parallel.h"
#include "../lltm_kernels.h"

namespace lltm {

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

}  // namespace lltm
