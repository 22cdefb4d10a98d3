// Sums over neighbouring lanes of a warp.
#pragma once

#include "layer_device.h"

namespace lltm {

// Adds values[rows][units][width] of `kLanes` neighbouring lanes. In each halving, a lane gives
// half of its units, then half of its rows, to its partner. With one unit and one row left, both
// keep the sum.
template <int kLanes, int kRows, int kUnits, int kWidth>
struct LaneSum {
  static constexpr int kMask = kLanes / 2;
  static constexpr bool kSplitUnits = kUnits > 1;
  static constexpr bool kSplitRows = !kSplitUnits && kRows > 1;
  static constexpr int kNextRows = kSplitRows ? kRows / 2 : kRows;
  static constexpr int kNextUnits = kSplitUnits ? kUnits / 2 : kUnits;
  using Next = LaneSum<kMask, kNextRows, kNextUnits, kWidth>;
  static constexpr int kOwnRows = Next::kOwnRows;

  // Writes the sums of one unit for kOwnRows rows to `own`.
  LLTM_DEVICE static void add(const float (&values)[kRows][kUnits][kWidth], int lane,
                              float (&own)[kOwnRows][kWidth]) {
    const bool upper = (lane & kMask) != 0;
    float half[kNextRows][kNextUnits][kWidth];
    unrolled<kNextRows, kNextUnits, kWidth>([&](int r, int u, int x) {
      const float low = values[r][u][x];
      const float high =
          values[kSplitRows ? r + kNextRows : r][kSplitUnits ? u + kNextUnits : u][x];
      const float kept = upper ? high : low;
      const float given = upper ? low : high;
      half[r][u][x] = kept + shuffle_xor(given, kMask);
    });
    Next::add(half, lane, own);
  }

  LLTM_DEVICE static int unit(int lane) {
    return (kSplitUnits && (lane & kMask) != 0 ? kNextUnits : 0) + Next::unit(lane);
  }
  LLTM_DEVICE static int row(int lane) {
    return (kSplitRows && (lane & kMask) != 0 ? kNextRows : 0) + Next::row(lane);
  }
  // Whether this is the first of the lanes that hold the same sums.
  LLTM_DEVICE static bool first(int lane) {
    return (kSplitUnits || kSplitRows || (lane & kMask) == 0) && Next::first(lane);
  }
};

template <int kRows, int kUnits, int kWidth>
struct LaneSum<1, kRows, kUnits, kWidth> {
  static_assert(kUnits == 1, "as many lanes as units at least");
  static constexpr int kOwnRows = kRows;
  LLTM_DEVICE static void add(const float (&values)[kRows][1][kWidth], int,
                              float (&own)[kRows][kWidth]) {
    unrolled<kRows, kWidth>([&](int r, int x) { own[r][x] = values[r][0][x]; });
  }
  LLTM_DEVICE static int unit(int) { return 0; }
  LLTM_DEVICE static int row(int) { return 0; }
  LLTM_DEVICE static bool first(int) { return true; }
};

}  // namespace lltm
