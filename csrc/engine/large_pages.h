// Large pages of memory under large tensors.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "../project.h"

namespace PROJECT_NAMESPACE {

// Asks Linux for large pages under a new tensor on a CPU, and returns the tensor. The first write
// to every page enters the kernel; with small pages, a large gradient then takes longer to write
// than to compute. This is a hint, so madvise may fail.
template <typename Tensor>
Tensor with_large_pages(Tensor tensor) {
  constexpr int64_t kLeast = int64_t{4} << 20;  // bytes: two large pages of most machines
  const auto bytes = static_cast<int64_t>(tensor.numel() * tensor.element_size());
  if (!tensor.is_cpu() || bytes < kLeast) return tensor;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(tensor.data_ptr());
  const uintptr_t first = (begin + page - 1) / page * page;
  madvise(reinterpret_cast<void*>(first), (begin + bytes) / page * page - first, MADV_HUGEPAGE);
  return tensor;
}

}  // namespace PROJECT_NAMESPACE
