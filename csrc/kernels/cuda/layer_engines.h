// The product of one step inside a block of the family `grid`: (rows of weights) x (rows of the
// batch). Each warp holds the block's weights over its own slice of the inner dimension K for the
// whole sequence, and reads its own slice of the state from L2. The warps' partial products are
// added up in shared memory by the caller.
//
// A piece is what a warp reads by one instruction: of each of 8 rows of the batch 64 bytes, 16 a
// lane. Pieces are dealt to the warps in turn. Which element of K a register means is free as long
// as weights and states agree, so a lane's 16 bytes serve as its operands of two multiplications by
// the tensor cores just as they were read.
#pragma once

#include "../types.h"
#include "layer_exchange.h"
#include "layer_lane_sum.h"

namespace lltm {

constexpr int kWarps = 8;       // that multiply
constexpr int kUnits = 16;      // of the state, a block
constexpr int kTileRows = 8;    // of the batch
constexpr int kUnitPitch = 20;  // floats between rows of partial products: writes without conflicts

// A block's rows of weights. Forward: three gates of the block's units, K = S. Backward: W_h
// transposed, the block's units, K = 3S.
template <typename T, bool backward>
struct WeightRows {
  const T* weights;
  int64_t stride;
  int state;
  int first_unit;

  static constexpr int kGates = backward ? 1 : 3;

  __device__ __forceinline__ int inner() const { return backward ? 3 * state : state; }
  // `count` elements from k on, all of them inside of K or none.
  template <int count>
  __device__ __forceinline__ void load(int gate, int unit, int k, T (&values)[count]) const {
    unit += first_unit;
    const bool valid = unit < state && k < inner();
    const T* const at = backward ? weights + k * stride + unit
                                 : weights + (int64_t{gate} * state + unit) * stride + k;
    const int64_t step = backward ? stride : 1;
#pragma unroll
    for (int i = 0; i < count; ++i) values[i] = valid ? at[i * step] : narrow<T>(0.0f);
  }
};

// Where a step's states come from: rows of K elements, `row_stride` apart.
template <typename T>
struct Source {
  const T* data;   // of the chunk's first row
  int64_t stride;  // elements between rows
  int rows;        // valid ones; the others count as zero
  bool wait;       // other blocks write it: wait for every word

  // The first is there always. Alike for the whole block.
  __device__ __forceinline__ bool has_tile(int tile) const {
    return tile == 0 || rows > tile * kTileRows;
  }
};

// `kInFlight` of them are on their way at a time.
template <typename T, int kPieces, int kTiles, int kInFlight>
class Pieces {
 public:
  static constexpr int kElements = 16 / sizeof(T);  // of a lane's piece
  static constexpr int kSpan = 4 * kElements;       // of K, a piece
  static constexpr int kGroup = kPieces * kTiles <= kInFlight ? kPieces : kInFlight / kTiles;
  static constexpr int kGroups = (kPieces + kGroup - 1) / kGroup;

  // The element of K where this lane's part of the warp's piece begins.
  __device__ static __forceinline__ int first_k(int piece) {
    return (piece * kWarps + static_cast<int>(threadIdx.x) / 32) * kSpan +
           static_cast<int>(threadIdx.x) % 4 * kElements;
  }

  // Starts reading a group of pieces.
  template <int group>
  __device__ __forceinline__ void issue(const Source<T>& source, int inner) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int piece = group * kGroup + i;
      if (piece >= kPieces) break;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile)
        load(source, inner, tile, piece, words(group, tile, i));
    }
  }

  // Waits until all words of the group are there.
  template <int group>
  __device__ __forceinline__ void settle(const Source<T>& source, int inner) {
    if (!source.wait) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        if (group * kGroup + i >= kPieces) break;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          words(group, tile, i) = plain<T>(words(group, tile, i));
        }
      }
      return;
    }
    for (;;) {
      bool complete = true;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
        const int piece = group * kGroup + i;
        if (piece >= kPieces) break;
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          uint4& value = words(group, tile, i);
          if (unwritten(value)) {
            complete = false;
            load(source, inner, tile, piece, value);
          }
        }
      }
      if (__all_sync(0xffffffffu, complete)) return;
    }
  }

  __device__ __forceinline__ const uint4& get(int group, int tile, int i) const {
    return buffer_[group % kBuffers][tile][i];
  }

 private:
  static constexpr int kBuffers = kGroups > 1 ? 2 : 1;

  __device__ __forceinline__ uint4& words(int group, int tile, int i) {
    return buffer_[group % kBuffers][tile][i];
  }

  __device__ static __forceinline__ void load(const Source<T>& source, int inner, int tile,
                                              int piece, uint4& value) {
    const int row = tile * kTileRows + static_cast<int>(threadIdx.x) % 32 / 4;
    const int k = first_k(piece);
    if (row >= source.rows || k >= inner) {
      value = make_uint4(0, 0, 0, 0);
      return;
    }
    value = load_shared_words(source.data + row * source.stride + k);
  }

  uint4 buffer_[kBuffers][kTiles][kGroup];
};

// Pieces on their way to shared memory, where each lane reads back what it asked for. `kRing` of
// them at a time; what came too early to be there is asked for again. `kGroup_` are waited for
// together: words that are missing in another group are asked for again only after this one's.
template <typename T, int kPieces_, int kTiles, int kRing, int kGroup_>
class StagedPieces {
 public:
  static constexpr int kPieces = kPieces_;
  static constexpr int kElements = 16 / sizeof(T);
  static constexpr int kSpan = 4 * kElements;
  static constexpr int kGroup = kGroup_;
  static constexpr int kGroups = kPieces / kGroup;
  static constexpr int kRingGroups = kRing / kGroup;
  static_assert(kPieces % kGroup == 0 && kRing % kGroup == 0 && kRing <= kPieces, "whole groups");
  // With room for a whole chunk, the next one's first groups are asked for while the present one's
  // last are multiplied. Earlier, their makers would not be done with them.
  static constexpr int kLag = kRingGroups == kGroups ? kGroups / 2 : kGroups;
  static constexpr int kStageWords = kRing * kTiles * 32 * 4;  // a warp

  // The element of K where this lane's part of the warp's piece begins.
  __device__ static __forceinline__ int first_k(int piece) {
    return (piece * kWarps + static_cast<int>(threadIdx.x) / 32) * kSpan +
           static_cast<int>(threadIdx.x) % 4 * kElements;
  }

  __device__ __forceinline__ explicit StagedPieces(uint4* stage)
      : lane_(stage + threadIdx.x % 32),
        shared_address_(static_cast<uint32_t>(__cvta_generic_to_shared(lane_))) {}

  // Asks for the first groups of a chunk from `begin` on.
  template <int begin>
  __device__ __forceinline__ void start(const Source<T>& source, int inner) {
#pragma unroll
    for (int group = begin; group < kRingGroups; ++group) {
      ask(source, inner, group);
      commit();
    }
  }

  // Waits until all words of the group are there.
  template <int group>
  __device__ __forceinline__ void settle(const Source<T>& source, int inner) {
    constexpr int kBehind =
        kRingGroups - 1 < kGroups - 1 - group ? kRingGroups - 1 : kGroups - 1 - group;
    constexpr int kNext = group > kLag ? group - kLag : 0;
    asm volatile("cp.async.wait_group %0;" ::"n"(kBehind + kNext) : "memory");
    bool complete = true;
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (!source.has_tile(tile)) continue;
        words_[tile][i] = lane_[slot(group, i, tile)];
        complete &= !unwritten(words_[tile][i]);
      }
    }
    if (!source.wait) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) words_[tile][i] = plain<T>(words_[tile][i]);
      }
      return;
    }
    while (!__all_sync(0xffffffffu, complete)) {
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          uint4& value = words_[tile][i];
          if (source.has_tile(tile) && unwritten(value)) {
            value = load_shared_words(address(source, tile, group * kGroup + i));
          }
        }
      }
      complete = true;
#pragma unroll
      for (int i = 0; i < kGroup; ++i) {
#pragma unroll
        for (int tile = 0; tile < kTiles; ++tile) {
          complete &= !source.has_tile(tile) || !unwritten(words_[tile][i]);
        }
      }
    }
  }

  // After the group has been multiplied: asks for what may take its place.
  template <int group>
  __device__ __forceinline__ void refill(const Source<T>& source, const Source<T>& next,
                                         bool has_next, int inner) {
    if constexpr (group + kRingGroups < kGroups) {
      ask(source, inner, group + kRingGroups);
      commit();
    } else if constexpr (group >= kLag) {
      if (has_next) ask(next, inner, group - kLag);
      commit();
    }
  }
  // After a chunk's last group.
  __device__ __forceinline__ void start_rest(const Source<T>& next, int inner) {
    start<(kLag < kGroups ? kGroups - kLag : 0)>(next, inner);
  }

  __device__ __forceinline__ const uint4& get(int tile, int i) const { return words_[tile][i]; }

 private:
  __device__ static constexpr int slot(int group, int i, int tile) {
    return ((group % kRingGroups * kGroup + i) * kTiles + tile) * 32;
  }
  __device__ static __forceinline__ const T* address(const Source<T>& source, int tile, int piece) {
    const int row = tile * kTileRows + static_cast<int>(threadIdx.x) % 32 / 4;
    return source.data + row * source.stride + first_k(piece);
  }
  __device__ static __forceinline__ void commit() {
    asm volatile("cp.async.commit_group;" ::: "memory");
  }
  __device__ __forceinline__ void ask(const Source<T>& source, int inner, int group) {
#pragma unroll
    for (int i = 0; i < kGroup; ++i) {
      const int piece = group * kGroup + i;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (!source.has_tile(tile)) continue;
        const int row = tile * kTileRows + static_cast<int>(threadIdx.x) % 32 / 4;
        // What is not there counts as zero.
        const int bytes = row < source.rows && first_k(piece) < inner ? 16 : 0;
        const T* const from = bytes > 0 ? address(source, tile, piece) : source.data;
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16, %2;" ::"r"(
                         shared_address_ + slot(group, i, tile) * 16),
                     "l"(from), "r"(bytes)
                     : "memory");
      }
    }
  }

  uint4* lane_;
  uint32_t shared_address_;
  uint4 words_[kTiles][kGroup];
};

// -- tensor cores --

// float32 by way of tf32, or a 16-bit type. A lane's piece, 4 words, is the second operand of two
// multiplications; each word is a tf32 or two 16-bit elements.
template <typename T>
struct TensorWord;

template <>
struct TensorWord<float> {
  static constexpr int kElements = 1;
  __device__ static __forceinline__ uint32_t pack(const float* values) {
    return round(shared_word(values[0]));
  }
  // To the nearest: tensor cores cut the low 13 bits off. What is not a number has them clear.
  __device__ static __forceinline__ uint32_t round(uint32_t value) { return value + 0x1000u; }
  __device__ static __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k8.row.col.f32.tf32.tf32.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
};

template <typename T>
struct TensorWord16 {
  static constexpr int kElements = 2;
  __device__ static __forceinline__ uint32_t pack(const T* values) {
    return values[0].bits | static_cast<uint32_t>(values[1].bits) << 16;
  }
  __device__ static __forceinline__ uint32_t round(uint32_t value) { return value; }
};

template <>
struct TensorWord<bfloat16> : TensorWord16<bfloat16> {
  __device__ static __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.bf16.bf16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
};

template <>
struct TensorWord<float16> : TensorWord16<float16> {
  __device__ static __forceinline__ void multiply(float (&sum)[4], const uint32_t (&a)[4],
                                                  uint32_t b0, uint32_t b1) {
#if __CUDA_ARCH__ >= 800
    asm("mma.sync.aligned.m16n8k16.row.col.f32.f16.f16.f32 {%0, %1, %2, %3}, {%4, %5, %6, %7}, "
        "{%8, %9}, {%0, %1, %2, %3};"
        : "+f"(sum[0]), "+f"(sum[1]), "+f"(sum[2]), "+f"(sum[3])
        : "r"(a[0]), "r"(a[1]), "r"(a[2]), "r"(a[3]), "r"(b0), "r"(b1));
#endif
  }
};

// `one_chunk`: for slices of one chunk of one tile, where no other chunk's finishing could be
// hidden and handing it to other warps takes longer than it does. Then registers hold more weights,
// and all pieces are on their way at once.
template <typename T, bool backward, int kPieces, bool one_chunk>
class TensorEngine {
 public:
  static constexpr bool kOneChunk = one_chunk;
  static constexpr int kFinishWarps = one_chunk ? 0 : 4;  // take what the multiplying ones begin
  static constexpr int kFinishEach = one_chunk && sizeof(T) == 4 ? 1 : 2;  // a word at least
  static constexpr int kTiles = one_chunk ? 1 : 2;
  static constexpr int kGates = backward ? 1 : 3;

 private:
  // Weights that the registers do not hold go to shared memory, and what it has room for else
  // decides how many pieces are on their way.
  static constexpr int kMostPieces = one_chunk ? (backward ? 12 : 4) : (backward ? 8 : 3);
  static constexpr int kRegisterPieces = kPieces <= kMostPieces ? kPieces : kMostPieces;
  static constexpr int kSharedPieces = kPieces - kRegisterPieces;
  static constexpr int kWeightFloats = kGates * kSharedPieces * 2 * 32 * 4;  // a warp
  static constexpr int kMostRing = one_chunk ? kPieces : !backward ? 4 : kPieces <= 12 ? 12 : 8;
  static constexpr int kRing = kPieces < kMostRing ? kPieces : kMostRing;
  using Word = TensorWord<T>;
  static constexpr int kTogether = !one_chunk ? 2 : kPieces < 12 ? kPieces : 12;
  using Piece = StagedPieces<T, kPieces, kTiles, kRing, kTogether>;

 public:
  static constexpr int kStageFloats = kWeightFloats + Piece::kStageWords;  // a warp

  __device__ __forceinline__ TensorEngine(const WeightRows<T, backward>& rows, float* stage)
      : inner_(rows.inner()),
        shared_(reinterpret_cast<uint4*>(stage + threadIdx.x / 32 * kStageFloats) +
                threadIdx.x % 32),
        pieces_(reinterpret_cast<uint4*>(stage + threadIdx.x / 32 * kStageFloats + kWeightFloats)) {
#pragma unroll
    for (int piece = 0; piece < kRegisterPieces; ++piece) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) read(rows, gate, piece, weights_[gate][piece]);
    }
    // A few at a time, for all at once would be a large part of the kernel.
    constexpr int kAtOnce = backward ? 4 : 1;
#pragma unroll kAtOnce
    for (int piece = kRegisterPieces; piece < kPieces; ++piece) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        uint32_t words[2][4];
        read(rows, gate, piece, words);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          shared_[place(gate, piece, half)] =
              make_uint4(words[half][0], words[half][1], words[half][2], words[half][3]);
        }
      }
    }
  }

  __device__ __forceinline__ void issue(const Source<T>& source) {
    pieces_.template start<0>(source, inner_);
  }

  // After `issue` of the same source: writes the warp's partial products [gate][row][unit], once
  // `free` has returned. With `has_next`, issues `next` as early as it makes sense.
  template <typename Free>
  __device__ __forceinline__ void multiply(const Source<T>& source, const Source<T>& next,
                                           bool has_next, float* partial, const Free& free) {
    float sum[kTiles][kChains][4] = {};
    step<0>(source, next, has_next, sum);
    if (has_next) pieces_.start_rest(next, inner_);
    free();
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        if (!source.has_tile(tile)) continue;
        float* const at =
            partial + ((gate * kTiles + tile) * kTileRows + lane % 4 * 2) * kUnitPitch + lane / 4;
        float total[4];
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          total[i] = sum[tile][gate][i];
          if (kChains > kGates) total[i] += sum[tile][kChains - 1][i];
        }
        at[0] = total[0];
        at[kUnitPitch] = total[1];
        at[8] = total[2];
        at[kUnitPitch + 8] = total[3];
      }
    }
  }

 private:
  // A piece of one gate's weights, as the first operands of two multiplications.
  __device__ static __forceinline__ void read(const WeightRows<T, backward>& rows, int gate,
                                              int piece, uint32_t (&words)[2][4]) {
    const int unit = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int eighth = 0; eighth < 2; ++eighth) {
      T values[Piece::kElements];
      rows.load(gate, eighth * 8 + unit, Piece::first_k(piece), values);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        words[i / 2][i % 2 * 2 + eighth] = Word::pack(values + i * Word::kElements);
      }
    }
  }

  // Sums that grow independently: one multiplication waits some 30 cycles for another's sum.
  static constexpr int kChains = kGates == 1 ? 2 : kGates;

  template <int group>
  __device__ __forceinline__ void step(const Source<T>& source, const Source<T>& next,
                                       bool has_next, float (&sum)[kTiles][kChains][4]) {
    if constexpr (group < Piece::kGroups) {
      pieces_.template settle<group>(source, inner_);
#pragma unroll
      for (int i = 0; i < Piece::kGroup; ++i) {
        const int piece = group * Piece::kGroup + i;
#pragma unroll
        for (int half = 0; half < 2; ++half) {
#pragma unroll
          for (int gate = 0; gate < kGates; ++gate) {
            uint32_t a[4];
            if (piece >= kRegisterPieces) {
              const uint4 words = shared_[place(gate, piece, half)];
              a[0] = words.x, a[1] = words.y, a[2] = words.z, a[3] = words.w;
            } else {
#pragma unroll
              for (int j = 0; j < 4; ++j) a[j] = weights_[gate][piece % kRegisterPieces][half][j];
            }
#pragma unroll
            for (int tile = 0; tile < kTiles; ++tile) {
              if (!source.has_tile(tile)) continue;
              const uint4 b = pieces_.get(tile, i);
              Word::multiply(sum[tile][kGates == 1 ? half : gate], a,
                             Word::round(half == 0 ? b.x : b.z),
                             Word::round(half == 0 ? b.y : b.w));
            }
          }
        }
      }
      pieces_.template refill<group>(source, next, has_next, inner_);
      step<group + 1>(source, next, has_next, sum);
    }
  }

  __device__ static constexpr int place(int gate, int piece, int half) {
    return ((gate * kSharedPieces + piece - kRegisterPieces) * 2 + half) * 32;
  }

  int inner_;
  uint4* shared_;  // this lane's
  uint32_t weights_[kGates][kRegisterPieces][2][4];
  Piece pieces_;
};

// -- exact float32 --

// A warp's slice of the state goes through its own part of shared memory, since all its lanes need
// all of it: kRowGroups groups of lanes share the weights' rows out among them, and the kSlices
// lanes of a group share out the slice of K.
template <bool backward, int kPieces>
class ExactEngine {
 public:
  static constexpr bool kOneChunk = false;
  static constexpr int kFinishWarps = 0;  // weights take all registers
  static constexpr int kFinishEach = 1;
  static constexpr int kTiles = 1;
  static constexpr int kGates = backward ? 1 : 3;

 private:
  static constexpr int kSlices = backward ? 8 : 4;
  static constexpr int kUnitsEach = kUnits * kSlices / 32;
  static constexpr int kVectors = kPieces * 16 / (4 * kSlices);  // float4 a lane
  static_assert(kVectors * 4 * kSlices == kPieces * 16, "pieces fill the lanes' vectors");
  static constexpr int kStagePitch = kPieces * 16 + (kPieces % 2 == 0 ? 16 : 0);
  using Piece = Pieces<float, kPieces, 1, (kUnitsEach * kGates * 4 * kVectors > 128 ? 4 : 8)>;

 public:
  static constexpr int kStageFloats = kTileRows * kStagePitch;  // a warp

  __device__ __forceinline__ ExactEngine(const WeightRows<float, backward>& rows, float* stage)
      : inner_(rows.inner()), stage_(stage + threadIdx.x / 32 * kStageFloats) {
    const int lane = static_cast<int>(threadIdx.x) % 32;
    const int warp = static_cast<int>(threadIdx.x) / 32;
#pragma unroll
    for (int unit = 0; unit < kUnitsEach; ++unit) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
        for (int v = 0; v < kVectors; ++v) {
          const int staged = (v * kSlices + lane % kSlices) * 4;
          const int k = (staged / 16 * kWarps + warp) * 16 + staged % 16;
          float values[4];
          rows.load(gate, lane / kSlices * kUnitsEach + unit, k, values);
#pragma unroll
          for (int i = 0; i < 4; ++i) weights_[unit][gate][4 * v + i] = values[i];
        }
      }
    }
  }

  __device__ __forceinline__ void issue(const Source<float>& source) {
    pieces_.template issue<0>(source, inner_);
  }

  template <typename Free>
  __device__ __forceinline__ void multiply(const Source<float>& source, const Source<float>& next,
                                           bool has_next, float* partial, const Free& free) {
    __syncwarp();  // the stage has been read
    stage<0>(source);
    if (has_next) issue(next);
    __syncwarp();
    free();
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll 1
    for (int row = 0; row < kTileRows; row += 2) {
      if (row >= source.rows) break;
      float sum[2][kUnitsEach][kGates] = {};
#pragma unroll
      for (int v = 0; v < kVectors; ++v) {
#pragma unroll
        for (int r = 0; r < 2; ++r) {
          const float4 x = *reinterpret_cast<const float4*>(stage_ + (row + r) * kStagePitch +
                                                            (v * kSlices + lane % kSlices) * 4);
#pragma unroll
          for (int unit = 0; unit < kUnitsEach; ++unit) {
#pragma unroll
            for (int gate = 0; gate < kGates; ++gate) {
              const float* const w = weights_[unit][gate] + 4 * v;
              float& s = sum[r][unit][gate];
              s = fmaf(w[0], x.x, s);
              s = fmaf(w[1], x.y, s);
              s = fmaf(w[2], x.z, s);
              s = fmaf(w[3], x.w, s);
            }
          }
        }
      }
      using Sum = LaneSum<kSlices, 2, kUnitsEach, kGates>;
      float own[Sum::kOwnRows][kGates];
      static_assert(Sum::kOwnRows == 1, "a lane is left with one element");
      Sum::add(sum, lane, own);
      float* const at = partial + (row + Sum::row(lane)) * kUnitPitch +
                        lane / kSlices * kUnitsEach + Sum::unit(lane);
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) at[gate * kTileRows * kUnitPitch] = own[0][gate];
    }
  }

 private:
  template <int group>
  __device__ __forceinline__ void stage(const Source<float>& source) {
    if constexpr (group < Piece::kGroups) {
      if constexpr (group + 1 < Piece::kGroups) {
        pieces_.template issue<group + 1>(source, inner_);
      }
      pieces_.template settle<group>(source, inner_);
      const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
      for (int i = 0; i < Piece::kGroup; ++i) {
        const int piece = group * Piece::kGroup + i;
        if (piece >= kPieces) break;
        *reinterpret_cast<uint4*>(stage_ + lane / 4 * kStagePitch + piece * 16 + lane % 4 * 4) =
            pieces_.get(group, 0, i);
      }
      stage<group + 1>(source);
    }
  }

  int inner_;
  float* stage_;
  float weights_[kUnitsEach][kGates][4 * kVectors];
  Piece pieces_;
};

}  // namespace lltm
