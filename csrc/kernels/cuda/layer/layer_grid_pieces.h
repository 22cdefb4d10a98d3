// The product of one step in a block of the family `grid`: (rows of weights) x (batch rows). Each
// warp has the block's weights over its own part of the inner dimension K, and reads this part of
// the states, which are d_gates in backward, from L2. A finisher adds up the partial products of
// all warps.
//
// A piece is what a warp reads with one instruction: 64 bytes of each of 8 batch rows, 16 bytes per
// lane. The pieces along K go to the warps in turn. The order of K's elements in registers does not
// matter, as long as it is the same for weights and states. So tensor cores use a lane's 16 bytes
// as operands of two multiplications, without any rearrangement.
#pragma once

#include "../../types.h"
#include "../common/async_copy.h"
#include "layer_device.h"

namespace lltm {

// Exchange of states between the blocks of a kernel, through the tensor that they write anyway,
// without flags, fences or barriers.
//
// The host fills the tensor with kUnwritten words before the launch. A block that needs a word
// reads it from L2, which all multiprocessors share, until it is no longer kUnwritten. Every word
// shows its own arrival, so the order of words does not matter. Writers never store kUnwritten: its
// bits are a float32 NaN or two 16-bit NaNs, and `shared_word` replaces these with other NaNs.

constexpr uint32_t kUnwritten = 0xffffffffu;

// Returns `word`, a float32 or two 16-bit numbers, in a form that never equals kUnwritten.
template <typename T>
LLTM_DEVICE uint32_t shared_word(uint32_t word) {
  if constexpr (sizeof(T) < 4) return word == kUnwritten ? 0x7fff7fffu : word;
  const float value = __uint_as_float(word);
  return value == value ? word : 0x7fc00000u;
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

constexpr int kWarps = 8;     // warps that multiply
constexpr int kTileRows = 8;  // batch rows
template <int units>
constexpr int kUnitPitch =
    units + 4;  // floats between rows of partial products; avoids bank conflicts

// A block's rows of weights. Forward: the rows of W_h for three gates of the block's units, K = S.
// Backward: the rows of the transposed W_h for the block's units, K = 3S.
template <typename T, bool backward>
struct WeightRows {
  const T* weights;
  int64_t stride;
  int state;
  int first_unit;

  static constexpr int kGates = backward ? 1 : kGateCount;

  LLTM_DEVICE int inner() const { return backward ? kGateCount * state : state; }
  // Loads `count` elements from k on. Either all of them or none must be inside K.
  template <int count>
  LLTM_DEVICE void load(int gate, int unit, int k, T (&values)[count]) const {
    unit += first_unit;
    const bool valid = unit < state && k < inner();
    const T* const at = backward ? weights + k * stride + unit
                                 : weights + (int64_t{gate} * state + unit) * stride + k;
    const int64_t step = backward ? stride : 1;
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = valid ? at[i * step] : narrow<T>(0.0f);
  }
};

// Where a block keeps what does not fit its registers.
struct GridMemory {
  float* stage;    // shared: [kWarps][Engine::kStageFloats]
  uint4* weights;  // shared: of StreamedEngine, the groups that stay for the whole sequence
  uint4* stream;   // global: of StreamedEngine, the other groups
  int resident;    // the number of groups per warp in `weights`
  int kept;        // if kExceedsL2: of each kKeepable vectors, those that L2 should keep
};

// The states that a step reads: rows of K elements, `stride` apart.
template <typename T>
struct Source {
  const T* data;   // of the chunk's first row
  int64_t stride;  // elements between rows
  int rows;        // the number of valid rows; any rows after them count as zero
  bool wait;       // other blocks write the data, so readers wait for every word

  // Whether a tile has valid rows, or is the first. All threads of a block get the same answer.
  LLTM_DEVICE bool has_tile(int tile) const { return tile == 0 || rows > tile * kTileRows; }
};

// A lane's part of a warp's pieces.
template <typename T>
struct LanePiece {
  static constexpr int kElements = 16 / sizeof(T);
  static constexpr int kSpan = 4 * kElements;  // elements of K per piece

  // The index in K of the lane's first element of a piece.
  LLTM_DEVICE static int first_k(int piece) {
    return (piece * kWarps + warp_index()) * kSpan + lane_index() % 4 * kElements;
  }
  LLTM_DEVICE static bool has_row(const Source<T>& source, int tile) {
    return row(tile) < source.rows;
  }
  LLTM_DEVICE static bool exists(const Source<T>& source, int inner, int tile, int piece) {
    return has_row(source, tile) && first_k(piece) < inner;
  }
  LLTM_DEVICE static const T* address(const Source<T>& source, int tile, int piece) {
    return source.data + row(tile) * source.stride + first_k(piece);
  }

 private:
  LLTM_DEVICE static int row(int tile) { return tile * kTileRows + lane_index() / 4; }
};

// Copies pieces to shared memory, where each lane reads back the words that it requested. A ring in
// shared memory has room for kRing pieces in flight. A warp settles one group of kGroup_ pieces
// after another: it reads words of other blocks from L2 again while they are still kUnwritten.
template <typename T, int kPieces_, int kTiles, int kRing, int kGroup_>
class StagedPieces {
 public:
  using Lane = LanePiece<T>;
  static constexpr int kPieces = kPieces_;
  static constexpr int kGroup = kGroup_;
  static constexpr int kGroups = kPieces / kGroup;
  static constexpr int kRingGroups = kRing / kGroup;
  static_assert(kPieces % kGroup == 0 && kRing % kGroup == 0 && kRing <= kPieces, "whole groups");
  // If the ring holds a whole chunk, the warp requests the first groups of the next chunk while it
  // multiplies the last groups of this chunk. Earlier requests would come before the other blocks
  // have written the words.
  static constexpr int kLag = kRingGroups == kGroups ? kGroups / 2 : kGroups;
  static constexpr int kStageWords = kRing * kTiles * 32 * 4;  // per warp

  LLTM_DEVICE explicit StagedPieces(uint4* stage)
      : lane_(stage + lane_index()),
        shared_address_(static_cast<uint32_t>(__cvta_generic_to_shared(lane_))) {}

  // Requests the groups [begin, kRingGroups) of a chunk.
  template <int begin>
  LLTM_DEVICE void start(const Source<T>& source, int inner) {
#pragma unroll
    for (int group = begin; group < kRingGroups; ++group) {
      ask(source, inner, group);
      end_copies();
    }
  }

  // Waits until all words of the group have arrived, and reads them back.
  template <int group>
  LLTM_DEVICE void settle(const Source<T>& source, int inner) {
    constexpr int kLater =
        kRingGroups - 1 < kGroups - 1 - group ? kRingGroups - 1 : kGroups - 1 - group;
    constexpr int kNext = group > kLag ? group - kLag : 0;
    wait_copies<kLater + kNext>();
    bool complete = true;
    unrolled<kGroup, kTiles>([&](int i, int tile) {
      if (!source.has_tile(tile)) return;
      words_[tile][i] = lane_[slot(group, i, tile)];
      complete &= !unwritten(words_[tile][i]);
    });
    if (!source.wait) {
      unrolled<kGroup, kTiles>([&](int i, int tile) {
        if (sizeof(T) < 4) return;
        uint4& words = words_[tile][i];  // of an initial h; round_word needs shared_word's NaNs
        words = make_uint4(shared_word<T>(words.x), shared_word<T>(words.y),
                           shared_word<T>(words.z), shared_word<T>(words.w));
      });
      return;
    }
    while (!__all_sync(0xffffffffu, complete)) {
      unrolled<kGroup, kTiles>([&](int i, int tile) {
        if (source.has_tile(tile) && unwritten(words_[tile][i])) {
          words_[tile][i] = load_shared_words(Lane::address(source, tile, group * kGroup + i));
        }
      });
      complete = true;
      unrolled<kGroup, kTiles>([&](int i, int tile) {
        complete &= !source.has_tile(tile) || !unwritten(words_[tile][i]);
      });
    }
  }

  // Call this after the product of `group`. Requests the group that is due then, if there is one: a
  // later group of this chunk or, if the ring holds a whole chunk, a group of the next chunk.
  template <int group>
  LLTM_DEVICE void refill(const Source<T>& source, const Source<T>& next, bool has_next,
                          int inner) {
    if constexpr (group + kRingGroups < kGroups) {
      ask(source, inner, group + kRingGroups);
      end_copies();
    } else if constexpr (group >= kLag) {
      if (has_next) ask(next, inner, group - kLag);
      end_copies();
    }
  }
  // Call this after a chunk's last group. Requests those of the next chunk's first groups that
  // `refill` has left out.
  LLTM_DEVICE void start_rest(const Source<T>& next, int inner) {
    start<(kLag < kGroups ? kGroups - kLag : 0)>(next, inner);
  }

  LLTM_DEVICE const uint4& get(int tile, int i) const { return words_[tile][i]; }

 private:
  __device__ static constexpr int slot(int group, int i, int tile) {
    return ((group % kRingGroups * kGroup + i) * kTiles + tile) * 32;
  }
  LLTM_DEVICE void ask(const Source<T>& source, int inner, int group) {
    unrolled<kGroup, kTiles>([&](int i, int tile) {
      if (!source.has_tile(tile)) return;
      const int piece = group * kGroup + i;
      const bool exists = Lane::exists(source, inner, tile, piece);
      const T* const from = exists ? Lane::address(source, tile, piece) : source.data;
      copy_to_shared(shared_address_ + slot(group, i, tile) * 16, from, exists);
    });
  }

  uint4* lane_;
  uint32_t shared_address_;
  uint4 words_[kTiles][kGroup];
};

}  // namespace lltm
