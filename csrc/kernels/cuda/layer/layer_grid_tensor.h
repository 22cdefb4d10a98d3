// Products of the family `grid` by tensor cores: float32 rounded to tf32, or a 16-bit type.
#pragma once

#include "../common/tensor_words.h"
#include "layer_grid_pieces.h"

namespace lltm {

// A lane has 4 words of a piece of the states: two words for each of two multiplications.
//
// With `one_chunk`, a slice is one chunk of one tile. No products of another chunk hide the
// finishing of this chunk, and finishing takes less time than handing the chunk to other warps. So
// there are no finishing warps, registers hold more weights, and all pieces are in flight at once.
template <typename T, bool backward, int kPieces, bool one_chunk>
class TensorEngine {
 public:
  static constexpr bool kOneChunk = one_chunk;
  static constexpr int kUnits = 16;
  static constexpr int kFinishWarps = one_chunk ? 0 : 4;  // in addition to the multiplying warps
  static constexpr int kFinishEach = one_chunk && sizeof(T) == 4 ? 1 : 2;  // at least a word
  static constexpr int kTiles = one_chunk ? 1 : 2;
  static constexpr int kGates = WeightRows<T, backward>::kGates;

 private:
  // Shared memory holds the weights for which the registers have no room. The rest of shared memory
  // limits the number of pieces in flight.
  static constexpr int kMostPieces = one_chunk ? (backward ? 12 : 4) : (backward ? 8 : 3);
  static constexpr int kRegisterPieces = kPieces <= kMostPieces ? kPieces : kMostPieces;
  static constexpr int kSharedPieces = kPieces - kRegisterPieces;
  static constexpr int kWeightFloats = kGates * kSharedPieces * 2 * 32 * 4;  // per warp
  static constexpr int kMostRing = one_chunk ? kPieces : !backward ? 4 : kPieces <= 12 ? 12 : 8;
  static constexpr int kRing = kPieces < kMostRing ? kPieces : kMostRing;
  static constexpr int kTogether = !one_chunk ? 2 : kPieces < 12 ? kPieces : 12;
  using Piece = StagedPieces<T, kPieces, kTiles, kRing, kTogether>;

 public:
  static constexpr int kStageFloats = kWeightFloats + Piece::kStageWords;  // per warp

  LLTM_DEVICE TensorEngine(const WeightRows<T, backward>& rows, const GridMemory& memory)
      : inner_(rows.inner()),
        shared_(reinterpret_cast<uint4*>(memory.stage + warp_index() * kStageFloats) +
                lane_index()),
        pieces_(
            reinterpret_cast<uint4*>(memory.stage + warp_index() * kStageFloats + kWeightFloats)) {
    unrolled<kRegisterPieces, kGates>(
        [&](int piece, int gate) { read(rows, gate, piece, weights_[gate][piece]); });
    // Completely unrolled, this loop would be a large part of the kernel's code.
    constexpr int kAtOnce = backward ? 4 : 1;
#pragma unroll kAtOnce
    for (int piece = kRegisterPieces; piece < kPieces; ++piece) {
      unrolled<kGates>([&](int gate) {
        uint32_t words[2][4];
        read(rows, gate, piece, words);
        unrolled<2>([&](int half) {
          shared_[place(gate, piece, half)] =
              make_uint4(words[half][0], words[half][1], words[half][2], words[half][3]);
        });
      });
    }
  }

  LLTM_DEVICE void issue(const Source<T>& source) { pieces_.template start<0>(source, inner_); }

  // Makes the products of `source`, for which `issue` was called. With `has_next`, issues `next` as
  // early as is useful. Calls `free`, which waits until `partial` may be overwritten, and then
  // writes the warp's partial products [gate][row][unit].
  template <typename Free>
  LLTM_DEVICE void multiply(const Source<T>& source, const Source<T>& next, bool has_next,
                            float* partial, const Free& free) {
    float sum[kTiles][kChains][4] = {};
    step<0>(source, next, has_next, sum);
    if (has_next) pieces_.start_rest(next, inner_);
    free();
    const int lane = lane_index();
    unrolled<kGates, kTiles>([&](int gate, int tile) {
      if (!source.has_tile(tile)) return;
      float* const at = partial +
                        ((gate * kTiles + tile) * kTileRows + lane % 4 * 2) * kUnitPitch<kUnits> +
                        lane / 4;
      float total[4];
      unrolled<4>([&](int i) {
        total[i] = sum[tile][gate][i];
        if (kChains > kGates) total[i] += sum[tile][kChains - 1][i];
      });
      at[0] = total[0];
      at[kUnitPitch<kUnits>] = total[1];
      at[8] = total[2];
      at[kUnitPitch<kUnits> + 8] = total[3];
    });
  }

 private:
  // Reads a piece of one gate's weights as the first operands of two multiplications.
  LLTM_DEVICE static void read(const WeightRows<T, backward>& rows, int gate, int piece,
                               uint32_t (&words)[2][4]) {
    const int unit = lane_index() / 4;
    unrolled<2>([&](int eighth) {
      T values[Piece::Lane::kElements];
      rows.load(gate, eighth * 8 + unit, Piece::Lane::first_k(piece), values);
      unrolled<4>([&](int i) {
        words[i / 2][i % 2 * 2 + eighth] = tensor_word(values + i * kWordElements<T>);
      });
    });
  }

  // Independent sums per tile: the next multiplication for a sum must wait for about 30 cycles.
  static constexpr int kChains = kGates == 1 ? 2 : kGates;

  template <int group>
  LLTM_DEVICE void step(const Source<T>& source, const Source<T>& next, bool has_next,
                        float (&sum)[kTiles][kChains][4]) {
    if constexpr (group < Piece::kGroups) {
      pieces_.template settle<group>(source, inner_);
      unrolled<Piece::kGroup>([&](int i) {
        const int piece = group * Piece::kGroup + i;
        unrolled<2, kGates>([&](int half, int gate) {
          uint32_t a[4];
          if (piece >= kRegisterPieces) {
            const uint4 words = shared_[place(gate, piece, half)];
            a[0] = words.x, a[1] = words.y, a[2] = words.z, a[3] = words.w;
          } else {
            unrolled<4>([&](int j) { a[j] = weights_[gate][piece % kRegisterPieces][half][j]; });
          }
          unrolled<kTiles>([&](int tile) {
            if (!source.has_tile(tile)) return;
            const uint4 b = pieces_.get(tile, i);
            multiply_tiles<T>(sum[tile][kGates == 1 ? half : gate], a,
                              round_word<T>(half == 0 ? b.x : b.z),
                              round_word<T>(half == 0 ? b.y : b.w));
          });
        });
      });
      pieces_.template refill<group>(source, next, has_next, inner_);
      step<group + 1>(source, next, has_next, sum);
    }
  }

  __device__ static constexpr int place(int gate, int piece, int half) {
    return ((gate * kSharedPieces + piece - kRegisterPieces) * 2 + half) * 32;
  }

  int inner_;
  uint4* shared_;  // the lane's weights
  uint32_t weights_[kGates][kRegisterPieces][2][4];
  Piece pieces_;
};

}  // namespace lltm
