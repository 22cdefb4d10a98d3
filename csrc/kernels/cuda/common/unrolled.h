// Loops that the compiler unrolls completely.
#pragma once

#include "../../types.h"

namespace lltm {

// Calls `use` with the indices of nested loops, the outermost first: unrolled<2, 3>(use) calls
// use(0, 0), use(0, 1), and so on up to use(1, 2). If clang called a large `use` as a function, the
// arrays that it refers to would stay in memory.
template <int turns, int... inner_turns, typename Use>
LLTM_DEVICE void unrolled(const Use& use) {
#pragma unroll
  for (int i = 0; i < turns; ++i) {
    if constexpr (sizeof...(inner_turns) == 0) {
      [[clang::always_inline]] use(i);
    } else {
      unrolled<inner_turns...>([&](auto... inner) { [[clang::always_inline]] use(i, inner...); });
    }
  }
}

}  // namespace lltm
