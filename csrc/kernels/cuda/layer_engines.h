// The product of one step inside a block of the family `grid`: (rows of weights) x (rows of the
// batch). Each warp holds the block's weights over its own slice of the inner dimension K in
// registers, for the whole sequence, and reads its own slice of the state straight from L2. The
// warps' partial products are added up in shared memory by the caller.
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

constexpr int kWarps = 8;
constexpr int kGridThreads = 32 * kWarps;
constexpr int kUnits = 16;      // of the state, a block
constexpr int kTileRows = 8;    // of the batch
constexpr int kUnitPitch = 20;  // floats between rows of partial products: writes without conflicts

// A block's rows of weights. Forward: three gates of kUnits units, K = S. Backward: W_h transposed,
// kUnits units, K = 3S.
template <typename T, bool backward>
struct WeightRows {
  const T* weights;
  int64_t stride;
  int state;
  int first_unit;

  static constexpr int kGates = backward ? 1 : 3;

  __device__ __forceinline__ int inner() const { return backward ? 3 * state : state; }
  __device__ __forceinline__ T at(int gate, int unit, int k) const {
    unit += first_unit;
    if (unit >= state || k >= inner()) return narrow<T>(0.0f);
    return backward ? weights[k * stride + unit]
                    : weights[(int64_t{gate} * state + unit) * stride + k];
  }
};

// Where a step's states come from: rows of K elements, `row_stride` apart.
template <typename T>
struct Source {
  const T* data;   // of the chunk's first row
  int64_t stride;  // elements between rows
  int rows;        // valid ones; the others count as zero
  bool wait;       // other blocks write it: wait for every word
};

// `kWeights` registers a thread are taken: with many, fewer pieces are on their way at a time.
template <typename T, int kPieces, int kTiles, int kWeights>
class Pieces {
 public:
  static constexpr int kElements = 16 / sizeof(T);  // of a lane's piece
  static constexpr int kSpan = 4 * kElements;       // of K, a piece
  static constexpr int kInFlight = kWeights > 128 ? 4 : 8;
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

template <typename T, bool backward, int kPieces, int kTiles_>
class TensorEngine {
 public:
  static constexpr int kTiles = kTiles_;
  static constexpr int kGates = backward ? 1 : 3;
  // Half of the weights go to shared memory where all of them would fill the registers.
  static constexpr int kRegisterPieces = kGates * kPieces * 8 > 128 ? kPieces / 2 : kPieces;
  static constexpr int kSharedPieces = kPieces - kRegisterPieces;
  static constexpr int kStageFloats = kGates * kSharedPieces * 2 * 32 * 4;  // a warp

  __device__ __forceinline__ TensorEngine(const WeightRows<T, backward>& rows, float* stage)
      : inner_(rows.inner()),
        shared_(reinterpret_cast<uint4*>(stage + threadIdx.x / 32 * kStageFloats) +
                threadIdx.x % 32) {
    const int unit = static_cast<int>(threadIdx.x) % 32 / 4;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int piece = 0; piece < kPieces; ++piece) {
        const int k = Piece::first_k(piece);
#pragma unroll
        for (int half = 0; half < 2; ++half) {
          uint32_t words[4];
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            T values[Word::kElements];
#pragma unroll
            for (int e = 0; e < Word::kElements; ++e) {
              values[e] =
                  rows.at(gate, unit + (i % 2) * 8, k + (2 * half + i / 2) * Word::kElements + e);
            }
            words[i] = Word::pack(values);
          }
          if (piece >= kRegisterPieces) {
            shared_[place(gate, piece, half)] = make_uint4(words[0], words[1], words[2], words[3]);
            continue;
          }
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            weights_[gate][piece % kRegisterPieces][half][i] = words[i];
          }
        }
      }
    }
  }

  __device__ __forceinline__ void issue(const Source<T>& source) {
    pieces_.template issue<0>(source, inner_);
  }

  // After `issue` of the same source: writes the warp's partial products [gate][row][unit]. With
  // `has_next`, issues `next` as early as its registers are free.
  __device__ __forceinline__ void multiply(const Source<T>& source, const Source<T>& next,
                                           bool has_next, float* partial) {
    float sum[kTiles][kChains][4] = {};
    step<0>(source, sum);
    if (has_next) issue(next);
    const int lane = static_cast<int>(threadIdx.x) % 32;
#pragma unroll
    for (int gate = 0; gate < kGates; ++gate) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
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
  using Word = TensorWord<T>;
  // Sums that grow independently: one multiplication waits some 30 cycles for another's sum.
  static constexpr int kChains = kGates == 1 ? 2 : kGates;
  using Piece = Pieces<T, kPieces, kTiles, kGates * kRegisterPieces * 8>;

  template <int group>
  __device__ __forceinline__ void step(const Source<T>& source, float (&sum)[kTiles][kChains][4]) {
    if constexpr (group < Piece::kGroups) {
      if constexpr (group + 1 < Piece::kGroups) {
        pieces_.template issue<group + 1>(source, inner_);
      }
      pieces_.template settle<group>(source, inner_);
#pragma unroll
      for (int i = 0; i < Piece::kGroup; ++i) {
        const int piece = group * Piece::kGroup + i;
        if (piece >= kPieces) break;
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
              const uint4 b = pieces_.get(group, tile, i);
              Word::multiply(sum[tile][kGates == 1 ? half : gate], a,
                             Word::round(half == 0 ? b.x : b.z),
                             Word::round(half == 0 ? b.y : b.w));
            }
          }
        }
      }
      step<group + 1>(source, sum);
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
  static constexpr int kTiles = 1;
  static constexpr int kGates = backward ? 1 : 3;

 private:
  static constexpr int kSlices = backward ? 8 : 4;
  static constexpr int kUnitsEach = kUnits * kSlices / 32;
  static constexpr int kVectors = kPieces * 16 / (4 * kSlices);  // float4 a lane
  static_assert(kVectors * 4 * kSlices == kPieces * 16, "pieces fill the lanes' vectors");
  static constexpr int kStagePitch = kPieces * 16 + (kPieces % 2 == 0 ? 16 : 0);
  using Piece = Pieces<float, kPieces, 1, kUnitsEach * kGates * 4 * kVectors>;

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
        for (int i = 0; i < 4 * kVectors; ++i) {
          const int staged = (i / 4 * kSlices + lane % kSlices) * 4 + i % 4;
          const int k = (staged / 16 * kWarps + warp) * 16 + staged % 16;
          weights_[unit][gate][i] = rows.at(gate, lane / kSlices * kUnitsEach + unit, k);
        }
      }
    }
  }

  __device__ __forceinline__ void issue(const Source<float>& source) {
    pieces_.template issue<0>(source, inner_);
  }

  __device__ __forceinline__ void multiply(const Source<float>& source, const Source<float>& next,
                                           bool has_next, float* partial) {
    __syncwarp();  // the stage has been read
    stage<0>(source);
    if (has_next) issue(next);
    __syncwarp();
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
