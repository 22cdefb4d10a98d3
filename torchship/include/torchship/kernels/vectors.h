// Loads and stores of several neighbouring elements. One instruction moves up to 16 bytes.
#pragma once

#include <cstdint>

#include "types.h"

namespace PROJECT_NAMESPACE {

template <typename T, int N>
struct alignas(sizeof(T) * N) Pack {
  T element[N];
};

template <int N, typename T>
PROJECT_DEVICE Pack<T, N> load_pack(const T* from) {
  return *reinterpret_cast<const Pack<T, N>*>(from);
}

template <int N, typename T>
PROJECT_DEVICE void store_pack(T* to, const Pack<T, N>& pack) {
  *reinterpret_cast<Pack<T, N>*>(to) = pack;
}

constexpr int kVectorBytes = 16;
template <typename T>
constexpr int kVectorSize = kVectorBytes / static_cast<int>(sizeof(T));

// Returns whether all pointers are aligned to kVectorBytes. NULL counts as aligned. A view of a
// tensor may be unaligned.
template <typename... Pointers>
__host__ __device__ bool aligned_for_vectors(const Pointers*... pointers) {
  return ((reinterpret_cast<uintptr_t>(pointers) | ...) % kVectorBytes) == 0;
}

}  // namespace PROJECT_NAMESPACE
