// Products of the family `grid` in float32, without rounding to tf32.
#pragma once

#include "layer_grid_pieces.h"

namespace lltm {

// Each warp stages its slice of the state in its own part of shared memory, since every group of
// kSlices lanes reads the whole slice. The groups divide the rows of the weights; the lanes of a
// group have the same rows and divide the slice of K.
template <bool backward, int kPieces>
class ExactEngine {
 public:
  static constexpr bool kOneChunk = false;
  static constexpr int kFinishWarps = 0;  // weights take all registers
  static constexpr int kFinishEach = 1;
  static constexpr int kTiles = 1;
  static constexpr int kGates = WeightRows<float, backward>::kGates;

 private:
  static constexpr int kSlices = backward ? 8 : 4;
  static constexpr int kUnitsEach = kUnits * kSlices / 32;
  static constexpr int kVectors = kPieces * 16 / (4 * kSlices);  // float4 per lane
  static_assert(kVectors * 4 * kSlices == kPieces * 16, "pieces fill the lanes' vectors");
  static constexpr int kStagePitch = kPieces * 16 + (kPieces % 2 == 0 ? 16 : 0);
  using Lane = LanePiece<float>;
  // Pieces are read into registers, a group at a time.
  static constexpr int kInFlight = kUnitsEach * kGates * 4 * kVectors > 128 ? 4 : 8;
  static constexpr int kGroup = kPieces <= kInFlight ? kPieces : kInFlight;
  static constexpr int kGroups = (kPieces + kGroup - 1) / kGroup;

 public:
  static constexpr int kStageFloats = kTileRows * kStagePitch;  // per warp

  LLTM_DEVICE ExactEngine(const WeightRows<float, backward>& rows, float* stage)
      : inner_(rows.inner()), stage_(stage + warp_index() * kStageFloats) {
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

  LLTM_DEVICE void issue(const Source<float>& source) { issue<0>(source); }

  template <typename Free>
  LLTM_DEVICE void multiply(const Source<float>& source, const Source<float>& next, bool has_next,
                            float* partial, const Free& free) {
    __syncwarp();  // all lanes have read the stage
    stage<0>(source);
    if (has_next) issue(next);
    __syncwarp();
    free();
    const int lane = lane_index();
#pragma unroll 1
    for (int row = 0; row < kTileRows; row += 2) {
      if (row >= source.rows) break;
      float sum[2][kUnitsEach][kGates] = {};
      unrolled<kVectors, 2>([&](int v, int r) {
        const float* const from =
            stage_ + (row + r) * kStagePitch + (v * kSlices + lane % kSlices) * 4;
        add_products(weights_, 4 * v, load_whole(from), sum[r]);
      });
      using Sum = LaneSum<kSlices, 2, kUnitsEach, kGates>;
      float own[Sum::kOwnRows][kGates];
      static_assert(Sum::kOwnRows == 1, "LaneSum must leave every lane with one element");
      Sum::add(sum, lane, own);
      float* const at = partial + (row + Sum::row(lane)) * kUnitPitch +
                        lane / kSlices * kUnitsEach + Sum::unit(lane);
      unrolled<kGates>([&](int gate) { at[gate * kTileRows * kUnitPitch] = own[0][gate]; });
    }
  }

 private:
  // nvcc 13.0 splits a float4 and joins its elements again, not the same way each time.
  LLTM_DEVICE static float4 load_whole(const float* from) {
    const ulonglong2 words = *reinterpret_cast<const ulonglong2*>(from);
    const auto low = [](unsigned long long word) {
      return __uint_as_float(static_cast<unsigned int>(word));
    };
    return {low(words.x), low(words.x >> 32), low(words.y), low(words.y >> 32)};
  }

  template <int group>
  LLTM_DEVICE void stage(const Source<float>& source) {
    if constexpr (group < kGroups) {
      if constexpr (group + 1 < kGroups) issue<group + 1>(source);
      settle<group>(source);
      const int lane = lane_index();
      for_pieces<group>([&](int piece, const uint4& words) {
        *reinterpret_cast<uint4*>(stage_ + lane / 4 * kStagePitch + piece * 16 + lane % 4 * 4) =
            words;
      });
      stage<group + 1>(source);
    }
  }

  // Starts to read a group of pieces.
  template <int group>
  LLTM_DEVICE void issue(const Source<float>& source) {
    for_pieces<group>([&](int piece, uint4& words) { load(source, piece, words); });
  }

  // Waits until all words of the group have arrived.
  template <int group>
  LLTM_DEVICE void settle(const Source<float>& source) {
    if (!source.wait) {
      for_pieces<group>([](int, uint4& words) { words = plain<float>(words); });
      return;
    }
    for (;;) {
      bool complete = true;
      for_pieces<group>([&](int piece, uint4& words) {
        if (!unwritten(words)) return;
        complete = false;
        load(source, piece, words);
      });
      if (__all_sync(0xffffffffu, complete)) return;
    }
  }

  // Calls `use(piece, words)` for each piece of the group.
  template <int group, typename Use>
  LLTM_DEVICE void for_pieces(const Use& use) {
#pragma unroll
    for (int i = 0; i < kGroup && group * kGroup + i < kPieces; ++i) {
      use(group * kGroup + i, words_[group % 2][i]);
    }
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
