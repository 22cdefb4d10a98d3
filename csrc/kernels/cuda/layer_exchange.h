// How blocks hand states to one another in the middle of a kernel: through the tensors that they
// write anyway, without flags, fences or barriers.
//
// The host fills the tensor with kUnwritten words ahead of the launch. Whoever needs a word reads
// it, at the point where all multiprocessors agree on memory, until it holds something else. Every
// word carries its own proof of arrival, so no order among words matters. Writers never store a
// word of that value: as numbers it is a NaN (or two), and `shared_word` makes another NaN of it.
#pragma once

#include <cstdint>

#include "../types.h"

namespace lltm {

constexpr uint32_t kUnwritten = 0xffffffffu;

// A float32, or two 16-bit numbers, as others may see it.
__device__ __forceinline__ uint32_t shared_word(float value) {
  return value == value ? __float_as_uint(value) : 0x7fc00000u;
}
__device__ __forceinline__ uint32_t shared_word(uint32_t pair) {
  return pair == kUnwritten ? 0x7fff7fffu : pair;
}

// Words that nobody prepared, such as the initial state's, as if they had been shared.
template <typename T>
__device__ __forceinline__ uint4 plain(const uint4& words) {
  if constexpr (sizeof(T) < 4) {
    return words;
  } else {
    return make_uint4(shared_word(__uint_as_float(words.x)), shared_word(__uint_as_float(words.y)),
                      shared_word(__uint_as_float(words.z)), shared_word(__uint_as_float(words.w)));
  }
}

__device__ __forceinline__ bool unwritten(const uint4& words) {
  return max(max(words.x, words.y), max(words.z, words.w)) == kUnwritten;
}

__device__ __forceinline__ void store_shared_word(void* address, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
}

__device__ __forceinline__ uint4 load_shared_words(const void* address) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(address)
               : "memory");
  return words;
}

}  // namespace lltm
