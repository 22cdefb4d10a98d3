// Products of the family `grid` with weights that may exceed the chip. Shared memory and registers
// keep some of the weights for the whole sequence; the others are read from L2 in every step, in an
// order that makes each read contiguous, and before they are needed.
#pragma once

#include "../common/tensor_words.h"
#include "layer_grid_pieces.h"

namespace lltm {

// Reads 16 bytes past the L1 cache. They leave the L2 cache before others.
LLTM_DEVICE uint4 load_evict_first(const void* address) {
  uint4 words = {};
#if __CUDA_ARCH__ >= 800
  asm volatile(
      "{\n .reg .b64 policy;\n createpolicy.fractional.L2::evict_first.b64 policy;\n"
      " ld.relaxed.gpu.global.L2::cache_hint.v4.u32 {%0, %1, %2, %3}, [%4], policy;\n}"
      : "=r"(words.x), "=r"(words.y), "=r"(words.z), "=r"(words.w)
      : "l"(address)
      : "memory");
#endif
  return words;
}

// Products by tensor cores or, if `exact`, in float32 without rounding to tf32.
//
// A warp's pieces are divided into groups. Registers hold one streamed group of the weights, which
// is replaced by the next one as it is used, and the states of kBuffers groups. Streamed groups lie
// evenly between groups in shared memory, so that L2 is never idle.
//
// Eight rows of the weights, of neighbouring units and one gate, are an eighth. Two eighths are the
// first operand of a multiplication. A lane has four words of one row of each eighth of a piece.
template <typename T, bool backward, bool exact, int kUnits_, int kTiles_>
class StreamedEngine {
 public:
  static constexpr bool kOneChunk = false;
  static constexpr int kFinishWarps = 0;
  static constexpr int kUnits = kUnits_;
  static constexpr int kTiles = kTiles_;
  static constexpr int kGates = WeightRows<T, backward>::kGates;
  static constexpr int kFinishEach = sizeof(T) == 4 && kTiles == 1 ? 1 : 2;
  // Whether the L2 cache may be too small for what is streamed.
  static constexpr bool kExceedsL2 = kUnits > 16 && sizeof(T) == 4;

 private:
  static constexpr int kGateEighths = kUnits / 8;
  static constexpr int kEighths = kGates * kGateEighths;
  static constexpr int kPairs = (kEighths + 1) / 2;
  // Pieces of a group, and groups whose states are read at once: as many as registers hold.
  static constexpr int kGroup = kEighths > 6 && (exact || kTiles > 1) ? 1
                                : exact || kEighths == 2              ? 4
                                                                      : 2;
  // Whether registers hold the states of few groups only.
  static constexpr bool kFew = exact ? kGroup == 1 : kTiles > 1 && !backward;
  static constexpr int kBuffers = (exact && backward ? 12 : kFew ? 4 : 8) / kGroup;
  static constexpr int kGroupWords = kGroup * kEighths * 32;  // uint4 per warp
  using Lane = LanePiece<T>;
  static constexpr int kPieceStride = kWarps * Lane::kSpan;  // elements of K

 public:
  static constexpr int kStageFloats = exact ? kGroup * 32 * 4 : 0;  // per warp
  static constexpr int kGroupBytes = kWarps * kGroupWords * 16;
  static constexpr int kKeepable = kGroup * kEighths;  // uint4 per lane

  // The number of groups of a warp for a state of this size.
  static __host__ __device__ int count_groups(int64_t state) {
    constexpr int64_t kSpan = kGroup * kPieceStride;
    return static_cast<int>(((backward ? kGateCount * state : state) + kSpan - 1) / kSpan);
  }

  LLTM_DEVICE StreamedEngine(const WeightRows<T, backward>& rows, const GridMemory& memory)
      : pieces_((rows.inner() + kPieceStride - 1) / kPieceStride),
        groups_(count_groups(rows.state)),
        streamed_(groups_ - memory.resident),
        due_(memory.resident),
        kept_(memory.kept),
        lane_pieces_((rows.inner() - Lane::first_k(0) + kPieceStride - 1) / kPieceStride),
        stage_(memory.stage + warp_index() * kStageFloats),
        resident_(memory.weights + warp_index() * memory.resident * kGroupWords + lane_index()) {
    const int64_t block = blockIdx.y * int64_t{gridDim.x} + blockIdx.x;
    stream_ =
        memory.stream + (block * kWarps + warp_index()) * streamed_ * kGroupWords + lane_index();
    uint4* resident = resident_;
    uint4* stream = stream_;
    for (int group = 0; group < groups_; ++group) {
      const bool streamed = next_is_streamed();
      uint4* const to = streamed ? stream : resident;
      unrolled<kGroup, kEighths>([&](int i, int vector) {
        to[(i * kEighths + vector) * 32] = read(rows, group * kGroup + i, vector);
      });
      (streamed ? stream : resident) += kGroupWords;
    }
    unrolled<kGroup>([&](int i) { load_ahead(i); });
    advance();
  }

  LLTM_DEVICE void issue(const Source<T>& source) {
    unrolled<kBuffers>([&](int group) { request<false>(source, group, group); });
  }

  template <typename Free>
  LLTM_DEVICE void multiply(const Source<T>& source, const Source<T>& next, bool has_next,
                            float* partial, const Free& free) {
    Sums sums = {};
    const uint4* resident = resident_;
#pragma unroll 1
    for (int first = 0; first < groups_; first += kBuffers) {
      unrolled<kBuffers>([&](int buffer) {
        const int group = first + buffer;
        if (group >= groups_) return;
        settle(source, group, buffer);
        const bool streamed = next_is_streamed();
        const auto request_next = [&] {
          if (group + kBuffers < groups_) request<false>(source, group + kBuffers, buffer);
        };
        if constexpr (exact) {
          share(buffer);
          request_next();
        }
        unrolled<kGroup>([&](int i) {
          uint4 weights[kEighths];
          unrolled<kEighths>([&](int vector) {
            weights[vector] = ahead_[i][vector];
            if (!streamed) weights[vector] = resident[(i * kEighths + vector) * 32];
          });
          if (streamed && streamed_ > 1) load_ahead(i);
          if constexpr (!exact) {
            multiply_tile(weights, source, words_[buffer][i], sums);
          } else if (group * kGroup + i < pieces_) {
            multiply_exactly(weights, i, source.rows, sums);
          }
        });
        if (streamed) {
          advance();
        } else {
          resident += kGroupWords;
        }
        if constexpr (!exact) request_next();
      });
    }
    if (has_next) issue(next);
    free();
    store(source, sums, partial);
  }

 private:
  static constexpr int kChains = kPairs == 1 ? 2 : kPairs;  // as in TensorEngine
  // [tile][chain][sum of a multiplication], or [row][eighth of a pair][pair]
  using Sums = std::conditional_t<exact, float[kTileRows][2][kPairs], float[kTiles][kChains][4]>;

  // Whether the next group is streamed, as the first one is; call it once for each group, in order.
  LLTM_DEVICE bool next_is_streamed() {
    due_ += streamed_;
    if (due_ < groups_) return false;
    due_ -= groups_;
    return true;
  }

  // Word `k` of an eighth, among a lane's vectors of a piece: those of a pair of eighths are the
  // operands of two multiplications. An eighth without a partner is a vector, or all zeros.
  LLTM_DEVICE static uint32_t word(const uint4 (&vectors)[kEighths], int eighth, int k) {
    if (eighth == kEighths) return 0;
    const bool alone = eighth / 2 * 2 + 1 == kEighths;
    const uint4& vector = vectors[alone ? eighth : eighth / 2 * 2 + k / 2];
    const int element = alone ? k : k % 2 * 2 + eighth % 2;
    return element == 0 ? vector.x : element == 1 ? vector.y : element == 2 ? vector.z : vector.w;
  }

  // Reads one of a lane's vectors of a piece.
  LLTM_DEVICE static uint4 read(const WeightRows<T, backward>& rows, int piece, int vector) {
    const bool alone = vector + 1 == kEighths && kEighths % 2 == 1;
    constexpr int kEach = Lane::kElements / 4;  // elements per word
    uint32_t words[4];
    unrolled<4>([&](int element) {
      const int eighth = alone ? vector : vector / 2 * 2 + element % 2;
      const int k = alone ? element : vector % 2 * 2 + element / 2;
      T values[kEach];
      rows.load(eighth / kGateEighths, eighth % kGateEighths * 8 + lane_index() / 4,
                Lane::first_k(piece) + k * kEach, values);
      if constexpr (exact) {
        words[element] = __float_as_uint(values[0]);
      } else {
        words[element] = tensor_word(values);
      }
    });
    return make_uint4(words[0], words[1], words[2], words[3]);
  }

  // Starts to read piece `i` of the streamed group that comes next. Relaxed reads need no room in
  // the L1 cache, of which shared memory leaves little.
  LLTM_DEVICE void load_ahead(int i) {
    unrolled<kEighths>([&](int vector) {
      const int place = i * kEighths + vector;
      const uint4* const from = stream_ + next_ + place * 32;
      const bool kept = !kExceedsL2 || place < kept_;
      ahead_[i][vector] = kept ? load_shared_words(from) : load_evict_first(from);
    });
  }
  LLTM_DEVICE void advance() {
    next_ += kGroupWords;
    if (next_ == streamed_ * kGroupWords) next_ = 0;
  }

  // Starts to read the states of a group, or `again` those that other blocks had not written.
  // States beyond K are zero.
  template <bool again>
  LLTM_DEVICE void request(const Source<T>& source, int group, int buffer) {
    unrolled<kTiles>([&](int tile) {
      if (!source.has_tile(tile)) return;
      const T* const at = Lane::address(source, tile, group * kGroup);
      const int left = Lane::has_row(source, tile) ? lane_pieces_ - group * kGroup : 0;
      unrolled<kGroup>([&](int i) {
        uint4& words = words_[buffer][i][tile];
        if (again && !unwritten(words)) return;
        words = i < left ? load_shared_words(at + i * kPieceStride) : make_uint4(0, 0, 0, 0);
      });
    });
  }

  // Waits until all words of the group have arrived.
  LLTM_DEVICE void settle(const Source<T>& source, int group, int buffer) {
    if (!source.wait) {
      unrolled<kGroup, kTiles>([&](int i, int tile) {
        if (sizeof(T) < 4 || exact) return;
        uint4& words = words_[buffer][i][tile];  // of an initial h; see round_word
        words = make_uint4(shared_word<T>(words.x), shared_word<T>(words.y),
                           shared_word<T>(words.z), shared_word<T>(words.w));
      });
      return;
    }
    const auto incomplete = [&] {
      bool missing = false;
      unrolled<kGroup, kTiles>([&](int i, int tile) {
        missing |= source.has_tile(tile) && unwritten(words_[buffer][i][tile]);
      });
      return __any_sync(0xffffffffu, missing);
    };
    while (incomplete()) request<true>(source, group, buffer);
  }

  LLTM_DEVICE static void multiply_tile(const uint4 (&weights)[kEighths], const Source<T>& source,
                                        const uint4 (&states)[kTiles], Sums& sums) {
    unrolled<2, kPairs>([&](int half, int pair) {
      uint32_t a[4];
      unrolled<4>([&](int i) { a[i] = word(weights, 2 * pair + i % 2, 2 * half + i / 2); });
      unrolled<kTiles>([&](int tile) {
        if (!source.has_tile(tile)) return;
        const uint4& b = states[tile];
        multiply_tiles<T>(sums[tile][kPairs == 1 ? half : pair], a,
                          round_word<T>(half == 0 ? b.x : b.z),
                          round_word<T>(half == 0 ? b.y : b.w));
      });
    });
  }

  // Shows all lanes of the warp the states of a group.
  LLTM_DEVICE void share(int buffer) {
    uint4* const stage = reinterpret_cast<uint4*>(stage_);
    __syncwarp();
    unrolled<kGroup>([&](int i) { stage[i * 32 + lane_index()] = words_[buffer][i][0]; });
    __syncwarp();
  }
  LLTM_DEVICE void multiply_exactly(const uint4 (&weights)[kEighths], int i, int rows,
                                    Sums& sums) const {
    const auto* const states =
        reinterpret_cast<const ulonglong2*>(stage_) + i * 32 + lane_index() % 4;
    constexpr int kAtOnce = backward ? 4 : 2;  // rows, so that reads overlap
#pragma unroll
    for (int first = 0; first < kTileRows; first += kAtOnce) {
      if (first > 0 && first >= rows) break;
      float4 x[kAtOnce];
      unrolled<kAtOnce>([&](int r) { x[r] = load_four(states + (first + r) * 4); });
      unrolled<kAtOnce, kEighths>([&](int r, int eighth) {
        float& sum = sums[first + r][eighth % 2][eighth / 2];
        sum = fmaf(__uint_as_float(word(weights, eighth, 0)), x[r].x, sum);
        sum = fmaf(__uint_as_float(word(weights, eighth, 1)), x[r].y, sum);
        sum = fmaf(__uint_as_float(word(weights, eighth, 2)), x[r].z, sum);
        sum = fmaf(__uint_as_float(word(weights, eighth, 3)), x[r].w, sum);
      });
    }
  }

  // Writes the warp's partial products [gate][row][unit].
  LLTM_DEVICE static void store(const Source<T>& source, const Sums& sums, float* partial) {
    const auto put = [&](int eighth, int row, int unit, float sum) {
      if (eighth >= kEighths) return;
      const int line = eighth / kGateEighths * kTiles * kTileRows + row;
      partial[line * kUnitPitch<kUnits> + eighth % kGateEighths * 8 + unit] = sum;
    };
    const int lane = lane_index();
    if constexpr (exact) {
      using Sum = LaneSum<4, 2, 2, kPairs>;
      unrolled<kTileRows / 2>([&](int i) {
        if (i > 0 && 2 * i >= source.rows) return;
        float two[2][2][kPairs];
        float own[1][kPairs];
        unrolled<2, 2, kPairs>([&](int row, int which, int pair) {
          two[row][which][pair] = sums[2 * i + row][which][pair];
        });
        Sum::add(two, lane % 4, own);
        unrolled<kPairs>([&](int pair) {
          put(2 * pair + Sum::unit(lane % 4), 2 * i + Sum::row(lane % 4), lane / 4, own[0][pair]);
        });
      });
    } else {
      unrolled<kTiles, kPairs, 4>([&](int tile, int pair, int i) {
        if (!source.has_tile(tile)) return;
        float sum = sums[tile][pair][i];
        if (kChains > kPairs) sum += sums[tile][kChains - 1][i];
        put(2 * pair + i / 2, tile * kTileRows + lane % 4 * 2 + i % 2, lane / 4, sum);
      });
    }
  }

  int pieces_;
  int groups_;
  int streamed_;     // groups
  int due_;          // see next_is_streamed
  int next_ = 0;     // the offset in stream_ of the group to be loaded next
  int kept_;         // see GridMemory
  int lane_pieces_;  // pieces in which the lane's part is inside K
  float* stage_;
  uint4* resident_;  // the lane's weights in shared memory
  uint4* stream_;    // and in global memory
  uint4 ahead_[kGroup][kEighths];
  uint4 words_[kBuffers][kGroup][kTiles];
};

}  // namespace lltm
