// The products of one LLTM step for a tile of the batch and a few columns of the state, in one
// block.
//
// The operands [h, x] and W are read in place, slice by slice of their common dimension, into
// shared memory, and several groups of threads share each slice: a small step waits for memory.
// Sums are in the compute type and in a fixed order.
#pragma once

#include "async_copy.h"
#include "launch.h"

namespace lltm {

// The operands of a step's products.
template <typename T>
struct StepOperands {
  const T* input;
  const T* weights;
  const T* old_h;
  int64_t batch_size;
  int64_t input_size;
  int64_t state_size;
  int64_t weight_stride;

  template <typename Arguments>
  LLTM_HOST_DEVICE explicit StepOperands(const Arguments& arguments)
      : input(static_cast<const T*>(arguments.input)),
        weights(static_cast<const T*>(arguments.weights)),
        old_h(static_cast<const T*>(arguments.old_h)),
        batch_size(arguments.sizes.batch_size),
        input_size(arguments.sizes.input_size),
        state_size(arguments.sizes.state_size),
        weight_stride(arguments.sizes.weight_stride) {}

  // Vectors need every row to begin where one may.
  bool takes_vectors() const {
    constexpr int64_t n = kVectorSize<T>;
    return input_size % n == 0 && state_size % n == 0 && weight_stride % n == 0 &&
           aligned_for_vectors(input, weights, old_h);
  }

  // Where [h, x] of a row continues at k.
  LLTM_DEVICE const T* joined(int64_t row, int64_t k) const {
    return k < state_size ? old_h + row * state_size + k
                          : input + row * input_size + (k - state_size);
  }
};

// kRows of the batch by kColumns of the state (times three gates). Without kVectors, rows of the
// operands may begin anywhere. A thread has every
// (kRows / kThreadRows)-th row of one column, for the kGroups-th part of each slice.
template <typename T_, bool kVectors, int kRows_, int kColumns_, int kThreadRows, int kGroups,
          int kVectorsPerGroup, int kStages>
struct StepTile {
  using T = T_;
  using C = compute_t<T>;
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kGates = 3;
  static constexpr int kVector = kVectorSize<T>;
  static constexpr int kThreadGroups = kRows / kThreadRows;
  static constexpr int kThreads = kThreadGroups * kColumns * kGroups;
  static constexpr int kDepth = kGroups * kVectorsPerGroup * kVector;
  static constexpr int kPitch = kDepth + kVector;  // neighbouring rows begin in other banks
  static constexpr int kWeightLines = kGates * kColumns;
  static constexpr int kLines = kRows + kWeightLines;

  union Shared {
    alignas(kVectorBytes) T stage[kStages][kLines][kPitch];
    C sums[kGroups][kGates][kRows][kColumns];
  };

  // Leaves the sums in shared memory; every thread of the block calls it, and may read the sums at
  // once.
  LLTM_DEVICE static void multiply(const StepOperands<T>& from, int64_t first_row,
                                   int64_t first_column, Shared& shared) {
    const int thread = threadIdx.x;
    const int column = thread % kColumns;
    const int rows = thread / kColumns % kThreadGroups;
    const int group = thread / (kColumns * kThreadGroups);
    const int64_t slices = divide_up(from.state_size + from.input_size, kDepth);
    const Loader loader(from, first_row, first_column);
    C sum[kThreadRows][kGates] = {};
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < slices) loader.load(int64_t{s} * kDepth, shared.stage[s]);
      end_copies();
    }
    int stage = 0;
    for (int64_t slice = 0; slice < slices; ++slice) {
      wait_copies<kStages - 2>();
      __syncthreads();  // this slice is there, and the one before it has been read by all
      const int64_t next = slice + kStages - 1;
      if (next < slices) {
        loader.load(next * kDepth, shared.stage[stage == 0 ? kStages - 1 : stage - 1]);
      }
      end_copies();
      const auto& lines = shared.stage[stage];
#pragma unroll
      for (int v = 0; v < kVectorsPerGroup; ++v) {
        const int k = (v * kGroups + group) * kVector;
        C w[kGates][kVector];
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          widen_vector(&lines[kRows + gate * kColumns + column][k], w[gate]);
        }
#pragma unroll
        for (int r = 0; r < kThreadRows; ++r) {
          C a[kVector];
          widen_vector(&lines[rows + r * kThreadGroups][k], a);
#pragma unroll
          for (int e = 0; e < kVector; ++e) {
#pragma unroll
            for (int gate = 0; gate < kGates; ++gate) sum[r][gate] += a[e] * w[gate][e];
          }
        }
      }
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    wait_copies<0>();
    __syncthreads();  // the stages are free for the sums
#pragma unroll
    for (int r = 0; r < kThreadRows; ++r) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        shared.sums[group][gate][rows + r * kThreadGroups][column] = sum[r][gate];
      }
    }
    __syncthreads();
  }

  LLTM_DEVICE static C total(const Shared& shared, int gate, int row, int column) {
    C sum = shared.sums[0][gate][row][column];
#pragma unroll
    for (int group = 1; group < kGroups; ++group) sum += shared.sums[group][gate][row][column];
    return sum;
  }

 private:
  LLTM_DEVICE static void widen_vector(const T* from, C (&to)[kVector]) {
    const auto pack = load_pack<kVector>(from);
#pragma unroll
    for (int e = 0; e < kVector; ++e) to[e] = widen(pack.element[e]);
  }

  // Copies slices of both operands into shared memory, with zeros outside of the operands. A thread
  // has the same kVector elements of every kStep-th line, and keeps where its lines of weights
  // begin.
  class Loader {
   public:
    LLTM_DEVICE Loader(const StepOperands<T>& from, int64_t first_row, int64_t first_column)
        : from_(from),
          first_line_(static_cast<int>(threadIdx.x) / kPerLine),
          inner_(static_cast<int>(threadIdx.x) % kPerLine * kVector),
          first_row_(first_row + first_line_) {
#pragma unroll
      for (int i = 0; i < kWeightItems; ++i) {
        const int line = first_line_ + i * kStep;
        const int64_t column = first_column + line % kColumns;
        const bool valid = line < kWeightLines && column < from.state_size;
        const int64_t row = line / kColumns * from.state_size + column;
        weights_[i] = valid ? from.weights + row * from.weight_stride + inner_ : nullptr;
      }
    }

    LLTM_DEVICE void load(int64_t first_k, T (&lines)[kLines][kPitch]) const {
#pragma unroll
      for (int e = 0; e < kVector; e += kAtOnce) load_some(first_k, e, lines);
    }

   private:
    static constexpr int kAtOnce = kVectors ? kVector : 1;
    static constexpr int kPerLine = kDepth / kVector;
    static constexpr int kStep = kThreads / kPerLine;
    static_assert(kThreads % kPerLine == 0 && kRows % kStep == 0, "whole lines at a time");
    static constexpr int kRowItems = kRows / kStep;
    static constexpr int kWeightItems = (kWeightLines + kStep - 1) / kStep;

    // kAtOnce elements of each line, from the thread's element `e` on.
    LLTM_DEVICE void load_some(int64_t first_k, int e, T (&lines)[kLines][kPitch]) const {
      const int64_t k = first_k + inner_ + e;
      const bool within = k < from_.state_size + from_.input_size;
      const bool of_h = k < from_.state_size;
      const int64_t width = of_h ? from_.state_size : from_.input_size;
      const T* row = of_h ? from_.old_h + k : from_.input + (k - from_.state_size);
      row += first_row_ * width;
#pragma unroll
      for (int i = 0; i < kRowItems; ++i) {
        const bool valid = within && first_row_ + i * kStep < from_.batch_size;
        copy(&lines[first_line_ + i * kStep][inner_ + e], row, valid);
        row += kStep * width;
      }
#pragma unroll
      for (int i = 0; i < kWeightItems; ++i) {
        const int line = first_line_ + i * kStep;
        if (kWeightLines % kStep != 0 && line >= kWeightLines) continue;
        const bool valid = within && weights_[i] != nullptr;
        copy(&lines[kRows + line][inner_ + e], weights_[i] + first_k + e, valid);
      }
    }

    LLTM_DEVICE void copy(T* to, const T* from, bool valid) const {
      if constexpr (kVectors) {
        copy_vector(to, valid ? from : from_.weights, valid);
      } else {
        *to = valid ? *from : T{};
      }
    }

    const StepOperands<T>& from_;
    int first_line_;
    int inner_;
    int64_t first_row_;
    const T* weights_[kWeightItems];
  };
};

// A few rows: such a step waits for the weights, and many groups read them.
template <typename T>
using Rows4Tile = StepTile<T, true, 4, 4, 4, 32, 1, 4>;
template <typename T, bool kVectors>
using Rows16Tile = StepTile<T, kVectors, 16, 8, 4, 8, 2, 3>;
// Each weight that is read serves 32 rows, or 64.
template <typename T>
using Rows32Tile = StepTile<T, true, 32, 8, 8, 8, 2, 3>;
template <typename T>
using Rows64Tile = StepTile<T, true, 64, 8, 8, 4, 2, 3>;
// For backward: fewer columns, since a block also makes its columns' weight gradients.
template <typename T, bool kVectors>
using BackwardTile = StepTile<T, kVectors, 16, 4, 4, 8, 2, 4>;

}  // namespace lltm
