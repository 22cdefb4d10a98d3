// What both doors to torch share: calls that are spelled alike, and large pages of memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>

#include "project.h"

namespace PROJECT_NAMESPACE {

template <typename AnyTensor>
struct TensorCalls {
  using Tensor = AnyTensor;

  static int64_t dim(const Tensor& tensor) { return tensor.dim(); }
  static const int64_t* sizes(const Tensor& tensor) { return tensor.sizes().data(); }
  static const int64_t* strides(const Tensor& tensor) { return tensor.strides().data(); }
  static bool is_cpu(const Tensor& tensor) { return tensor.is_cpu(); }
  static bool is_cuda(const Tensor& tensor) { return tensor.is_cuda(); }
  static bool is_contiguous(const Tensor& tensor) { return tensor.is_contiguous(); }
  static void* data(const Tensor& tensor) { return tensor.data_ptr(); }
  static int64_t element_size(const Tensor& tensor) { return tensor.element_size(); }
};

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
