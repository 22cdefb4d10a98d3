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
template <typename Torch>
typename Torch::Tensor with_large_pages(typename Torch::Tensor tensor) {
  constexpr int64_t kLeast = int64_t{4} << 20;  // bytes: two large pages of most machines
  if (!Torch::is_cpu(tensor)) return tensor;
  int64_t bytes = Torch::element_size(tensor);
  for (int64_t dim = 0; dim < Torch::dim(tensor); ++dim) bytes *= Torch::sizes(tensor)[dim];
  if (bytes < kLeast) return tensor;
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  const auto begin = reinterpret_cast<uintptr_t>(Torch::data(tensor));
  const uintptr_t first = (begin + page - 1) / page * page;
  madvise(reinterpret_cast<void*>(first), (begin + bytes) / page * page - first, MADV_HUGEPAGE);
  return tensor;
}

}  // namespace PROJECT_NAMESPACE
