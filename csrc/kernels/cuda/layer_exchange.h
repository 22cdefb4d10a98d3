// Exchange of states between the blocks of a kernel, through the tensors that they write anyway,
// without flags, fences or barriers.
//
// The host fills the tensor with kUnwritten words before the launch. A block that needs a word
// reads it from L2, which all multiprocessors share, until it is no longer kUnwritten. Every word
// shows its own arrival, so the order of words does not matter. Writers never store kUnwritten: it
// is a NaN (or two 16-bit NaNs), and `shared_word` replaces it with another NaN.
#pragma once

#include <cstdint>

#include "../types.h"

namespace lltm {

constexpr uint32_t kUnwritten = 0xffffffffu;

// A float32, or two 16-bit numbers, in a form that never equals kUnwritten.
LLTM_DEVICE uint32_t shared_word(float value) {
  return value == value ? __float_as_uint(value) : 0x7fc00000u;
}
LLTM_DEVICE uint32_t shared_word(uint32_t pair) { return pair == kUnwritten ? 0x7fff7fffu : pair; }

// Applies `shared_word` to float32 words that have not passed through it, for example the initial
// state's. 16-bit words stay unchanged.
template <typename T>
LLTM_DEVICE uint4 plain(const uint4& words) {
  if constexpr (sizeof(T) < 4) {
    return words;
  } else {
    return make_uint4(shared_word(__uint_as_float(words.x)), shared_word(__uint_as_float(words.y)),
                      shared_word(__uint_as_float(words.z)), shared_word(__uint_as_float(words.w)));
  }
}

LLTM_DEVICE bool unwritten(const uint4& words) {
  return max(max(words.x, words.y), max(words.z, words.w)) == kUnwritten;
}

LLTM_DEVICE void store_shared_word(void* address, uint32_t word) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(address), "r"(word) : "memory");
}

LLTM_DEVICE uint4 load_shared_words(const void* address) {
  uint4 words;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
               : "l"(address)
               : "memory");
  return words;
}

}  // namespace lltm
