// Products of the family `grid` in float32, without rounding to tf32, with all weights in
// registers.
#pragma once

#include "layer_grid_pieces.h"

namespace lltm {

// Each warp stages the states of its part of K in shared memory of its own, since every group of
// kSlices lanes reads them all. The groups divide the rows of the weights; the lanes of a group
// have the same rows and divide the warp's part of K.
template <bool backward, int kPieces>
class ExactEngine {
 public:
  static constexpr bool kOneChunk = false;
  static constexpr int kUnits = 16;
  static constexpr int kFinishWarps = 0;  // weights take all registers
  static constexpr int kFinishEach = 1;
  static constexpr int kTiles = 1;
  static constexpr int kGates = WeightRows<float, backward>::kGates;

 private:
  static constexpr int kSlices = backward ? 8 : 4;
  static constexpr int kUnitsEach = kUnits * kSlices / 32;
  static constexpr int kVectors = kPieces * 16 / (4 * kSlices);  // float4 per lane
  static_assert(kVectors * 4 * kSlices == kPieces * 16, "pieces fill the lanes' vectors");
  static constexpr int kStagePitch = (kPieces + 1) * 16;  // odd and even rows use different banks
  using Lane = LanePiece<float>;
  // A lane reads pieces into registers, a group of kGroup pieces at a time.
  static constexpr int kInFlight = kUnitsEach * kGates * 4 * kVectors > 128 ? 4 : 8;
  static constexpr int kGroup = kPieces <= kInFlight ? kPieces : kInFlight;
  static constexpr int kGroups = (kPieces + kGroup - 1) / kGroup;

 public:
  static constexpr int kStageFloats = kTileRows * kStagePitch;  // per warp

  LLTM_DEVICE ExactEngine(const WeightRows<float, backward>& rows, const GridMemory& memory)
      : inner_(rows.inner()), stage_(memory.stage + warp_index() * kStageFloats) {
    const int lane = lane_index();
    const int warp = warp_index();
    unrolled<kUnitsEach, kGates, kVectors>([&](int unit, int gate, int v) {
      const int staged = (v * kSlices + lane % kSlices) * 4;
      const int k = (staged / 16 * kWarps + warp) * 16 + staged % 16;
      float values[4];
      rows.load(gate, lane / kSlices * kUnitsEach + unit, k, values);
      unrolled<4>([&](int i) { weights_[unit][gate][4 * v + i] = values[i]; });
    });
  }

  LLTM_DEVICE void issue(const Source<float>& source) { start(source, 0); }

  template <typename Free>
  LLTM_DEVICE void multiply(const Source<float>& source, const Source<float>& next, bool has_next,
                            float* partial, const Free& free) {
    __syncwarp();  // all lanes have read the stage
    unrolled<kGroups>([&](int group) {
      if (group + 1 < kGroups) start(source, group + 1);
      settle(source, group);
      for_pieces(group, [&](int piece, const uint4& words) {
        float* const row = stage_ + lane_index() / 4 * kStagePitch;
        *reinterpret_cast<uint4*>(row + piece * 16 + lane_index() % 4 * 4) = words;
      });
    });
    if (has_next) issue(next);
    __syncwarp();
    free();
    const int lane = lane_index();
#pragma unroll 1
    for (int row = 0; row < kTileRows; row += 2) {
      if (row >= source.rows) break;
      using Sum = LaneSum<kSlices, 2, kUnitsEach, kGates>;
      float own[1][kGates];
      const float* const from = stage_ + row * kStagePitch + lane % kSlices * 4;
      multiply_rows<kSlices, 2, kStagePitch, ulonglong2>(weights_, from, 2, lane, own);
      float* const at = partial + (row + Sum::row(lane)) * kUnitPitch<kUnits> +
                        lane / kSlices * kUnitsEach + Sum::unit(lane);
      unrolled<kGates>([&](int gate) { at[gate * kTileRows * kUnitPitch<kUnits>] = own[0][gate]; });
    }
  }

 private:
  // Starts to read a group of pieces.
  LLTM_DEVICE void start(const Source<float>& source, int group) {
    for_pieces(group, [&](int piece, uint4& words) { load(source, piece, words); });
  }

  // If `source.wait`, waits until all words of the group have arrived.
  LLTM_DEVICE void settle(const Source<float>& source, int group) {
    bool complete = !source.wait;
    while (!__all_sync(0xffffffffu, complete)) {
      complete = true;
      for_pieces(group, [&](int piece, uint4& words) {
        if (!unwritten(words)) return;
        complete = false;
        load(source, piece, words);
      });
    }
  }

  // Calls `use(piece, words)` for each piece of the group.
  template <typename Use>
  LLTM_DEVICE void for_pieces(int group, const Use& use) {
    unrolled<kGroup>([&](int i) {
      const int piece = group * kGroup + i;
      if (piece < kPieces) use(piece, words_[group % 2][i]);
    });
  }

  LLTM_DEVICE void load(const Source<float>& source, int piece, uint4& words) {
    if (Lane::exists(source, inner_, 0, piece)) {
      words = load_shared_words(Lane::address(source, 0, piece));
    } else {
      words = make_uint4(0, 0, 0, 0);
    }
  }

  int inner_;
  float* stage_;
  float weights_[kUnitsEach][kGates][4 * kVectors];
  uint4 words_[2][kGroup];
};

}  // namespace lltm
