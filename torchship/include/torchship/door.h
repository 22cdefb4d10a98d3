// What both doors to torch share: calls that are spelled alike or follow from others, and large
// pages of memory.
#pragma once

#include <sys/mman.h>
#include <unistd.h>

#include <cstdint>
#include <initializer_list>
#include <stdexcept>
#include <string>
#include <vector>

#include "kernels/dtypes.h"
#include "project.h"

namespace PROJECT_NAMESPACE {

// `Door` is the door that has these calls.
template <typename Door, typename AnyTensor>
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
  static int64_t numel(const Tensor& tensor) { return tensor.numel(); }

  // `sizes` of a new tensor are an initializer_list, a vector or any array of int64_t, and `dtype`
  // is a code of Dtype; without it, the dtype is that of `like`, as is the device.
  template <typename Sizes = std::initializer_list<int64_t>>
  static Tensor zeros(const Sizes& sizes, const Tensor& like) {
    return zeros(sizes, like, Door::scalar_type(like));
  }
  template <typename Sizes = std::initializer_list<int64_t>>
  static Tensor zeros(const Sizes& sizes, const Tensor& like, int32_t dtype) {
    const Tensor tensor = Door::empty(sizes, like, dtype);
    Door::zero(tensor);
    return tensor;
  }

  // Returns the tensor itself if it is contiguous, otherwise a contiguous copy.
  static Tensor contiguous(const Tensor& tensor) {
    if (tensor.is_contiguous()) return tensor;
    return copied(tensor, Door::empty(size_list(tensor), tensor));
  }

  // Returns the tensor itself if it has the dtype, otherwise a contiguous copy.
  static Tensor to_dtype(const Tensor& tensor, int32_t dtype) {
    if (Door::scalar_type(tensor) == dtype) return tensor;
    return copied(tensor, Door::empty(size_list(tensor), tensor, dtype));
  }

  // Returns the tensor itself if it is on the device of `like`, otherwise a contiguous copy.
  static Tensor to_device_of(const Tensor& tensor, const Tensor& like) {
    return to_device(tensor, like.device());
  }
  template <typename DeviceArgument>
  static Tensor to_device(const Tensor& tensor, const DeviceArgument& device) {
    if (tensor.device() == device) return tensor;
    return copied(tensor, Door::empty_on(size_list(tensor), Door::scalar_type(tensor), device));
  }
  static Tensor to_cpu(const Tensor& tensor) {
    if (tensor.is_cpu()) return tensor;
    return copied(tensor,
                  Door::empty_on(size_list(tensor), Door::scalar_type(tensor), Door::cpu()));
  }

  // A view of the elements `start` to `start + length - 1` of a dimension.
  static Tensor narrow(const Tensor& tensor, int64_t dim, int64_t start, int64_t length) {
    const int64_t size = size_of(tensor, dim);
    if (start < 0 || length < 0 || start + length > size) {
      fail("narrow to " + std::to_string(start) + " and the " + std::to_string(length) + " after",
           size);
    }
    std::vector<int64_t> sizes = size_list(tensor);
    sizes[dim] = length;
    return Door::strided(tensor, sizes, stride_list(tensor), start * Door::strides(tensor)[dim]);
  }

  // A view without the dimension: tensor[index] along `dim`.
  static Tensor select(const Tensor& tensor, int64_t dim, int64_t index) {
    const int64_t size = size_of(tensor, dim);
    if (index < 0 || index >= size) fail("index " + std::to_string(index), size);
    std::vector<int64_t> sizes = size_list(tensor);
    std::vector<int64_t> strides = stride_list(tensor);
    sizes.erase(sizes.begin() + dim);
    strides.erase(strides.begin() + dim);
    return Door::strided(tensor, sizes, strides, index * Door::strides(tensor)[dim]);
  }

  // The value of a tensor with one element, as a C++ type that DtypeOf knows. For a tensor on a GPU
  // this waits for the GPU.
  template <typename T>
  static T item(const Tensor& tensor) {
    if (tensor.numel() != 1) fail("item", tensor.numel());
    const Tensor value = to_dtype(to_cpu(tensor), DtypeOf<T>::kCode);
    return *static_cast<const T*>(Door::data(value));
  }

  // The element tensor[indices[0], indices[1], ...], as `item` gives it.
  template <typename T>
  static T at(const Tensor& tensor, std::initializer_list<int64_t> indices) {
    if (static_cast<int64_t>(indices.size()) != tensor.dim()) {
      throw std::runtime_error(std::string(PROJECT_NAME ": at needs an index for each of ") +
                               std::to_string(tensor.dim()) + " dimensions, got " +
                               std::to_string(indices.size()));
    }
    Tensor element = tensor;
    for (const int64_t index : indices) element = select(element, 0, index);
    return item<T>(element);
  }

  static std::vector<int64_t> size_list(const Tensor& tensor) {
    const int64_t* const sizes = Door::sizes(tensor);
    return {sizes, sizes + tensor.dim()};
  }
  static std::vector<int64_t> stride_list(const Tensor& tensor) {
    const int64_t* const strides = Door::strides(tensor);
    return {strides, strides + tensor.dim()};
  }

 private:
  static Tensor copied(const Tensor& from, const Tensor& to) {
    Door::copy(to, Door::without_gradient(from));
    return to;
  }

  static int64_t size_of(const Tensor& tensor, int64_t dim) {
    if (dim < 0 || dim >= tensor.dim()) {
      throw std::runtime_error(std::string(PROJECT_NAME ": dimension ") + std::to_string(dim) +
                               " of a tensor with " + std::to_string(tensor.dim()) +
                               " dimensions; count them from 0");
    }
    return Door::sizes(tensor)[dim];
  }

  [[noreturn]] static void fail(const std::string& what, int64_t size) {
    throw std::runtime_error(PROJECT_NAME ": " + what + " of " + std::to_string(size) +
                             " elements is out of range");
  }
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
