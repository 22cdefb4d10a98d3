// The layout of the backward kernel's blocks, and the counters for the sums of a strip.
#pragma once

#include <atomic>
#include <cstdint>

#include "launch.h"

namespace lltm {

// A backward block owns a strip of columns and goes down its rows, so that it can sum them for the
// bias. If this gives too few blocks, the rows are divided into parts too, and the parts' sums are
// added up.
struct StripGeometry {
  dim3 block;
  int64_t strips;
  int64_t parts;

  StripGeometry(int64_t rows, int64_t packs, int pack_bytes, bool sums) {
    constexpr int kThreads = PlaneGeometry::kThreads;
    constexpr int kStripBytes = 128;   // of a row at a time, for full memory speed
    constexpr int kSectorBytes = 32;   // the smallest memory access
    constexpr int64_t kBlocks = 1024;  // fills any GPU several times over
    constexpr int64_t kFewBlocks = 128;
    constexpr int64_t kFewRows = 8;  // per thread; more rows are divided into parts
    int width = kStripBytes / pack_bytes;
    const auto most_blocks = [&] {
      return divide_up(packs, width) * divide_up(rows, kFewRows * (kThreads / width));
    };
    while (width > kSectorBytes / pack_bytes && most_blocks() < kFewBlocks) width /= 2;
    block = dim3(width, kThreads / width);
    strips = divide_up(packs, width);
    const int64_t rounds = divide_up(rows, block.y);
    parts = rounds;
    if (sums) {
      const int64_t wanted = divide_up(kBlocks, strips);
      const int64_t most = rounds <= kFewRows ? 1 : divide_up(rounds, 4);
      parts = wanted < most ? wanted : most;
    }
    constexpr int64_t kMaxGridY = 65535;
    if (parts > kMaxGridY) parts = kMaxGridY;
    if (parts < 1) parts = 1;
  }
};

// Selects the arrival counters of a launch. The blocks of a strip write their sums to the
// workspace, and the last block to arrive adds them up. So a counter must be zero before a launch,
// and no other launch may use it at the same time. This needs no fill: the counters are variables
// of the module, which are zero when it is loaded. They are zero again after each launch, since the
// last arrival wraps to zero (unless the launch destroys its CUDA context). Each row of counters
// belongs to one workspace address. Launches that share a workspace never run at the same time,
// whatever their streams or graphs.
class ArrivalRow {
 public:
  static constexpr int kRows = 512;
  static constexpr int kStrips = 256;

  // Returns -1 if too many other addresses came first.
  static int of(const void* workspace) {
    static std::atomic<uintptr_t> owners[kRows];
    constexpr int kTries = 16;
    const auto key = reinterpret_cast<uintptr_t>(workspace);
    const uint64_t mixed = (uint64_t{key} >> 4) * 0x9E3779B97F4A7C15u;  // spreads neighbours
    for (int attempt = 0; attempt < kTries; ++attempt) {
      const int row = static_cast<int>(((mixed >> 32) + attempt) % kRows);
      uintptr_t owner = 0;
      if (owners[row].compare_exchange_strong(owner, key) || owner == key) return row;
    }
    return -1;
  }
};

}  // namespace lltm
