// The products of one LLTM step for a tile of the batch and a few columns of the state, in one
// block.
//
// A block reads the operands [h, x] and W in place, one slice of the depth after another, into
// shared memory. Without tensor cores, groups of threads divide each slice: a small step waits for
// memory, and more threads read more at once. Sums are in the compute type and in a fixed order.
#pragma once

#include <type_traits>

#include "../common/async_copy.h"
#include "../common/launch.h"
#include "../common/tensor_words.h"
#include "../common/unrolled.h"
#include "step.h"

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

  // Whether every row of the operands is aligned to n elements.
  bool aligned_to(int n) const {
    const auto places = reinterpret_cast<uintptr_t>(input) | reinterpret_cast<uintptr_t>(weights) |
                        reinterpret_cast<uintptr_t>(old_h);
    return places % (n * sizeof(T)) == 0 && input_size % n == 0 && state_size % n == 0 &&
           weight_stride % n == 0;
  }

  // The address of element k of a row of [h, x].
  LLTM_DEVICE const T* joined(int64_t row, int64_t k) const {
    return k < state_size ? old_h + row * state_size + k
                          : input + row * input_size + (k - state_size);
  }
};

// A tile of kRows batch rows by kColumns columns of the state, times three gates. It reads kAtOnce
// elements at a time, to which every row of the operands must be aligned. A thread has every
// (kRows / kThreadRows)-th row of one column, for one of kGroups_ parts of each slice. With kTensor
// instead, a warp has 16 rows and 8 columns, and float32 is rounded to tf32.
template <typename T_, int kAtOnce, int kRows_, int kColumns_, int kThreadRows, int kGroups_,
          int kVectorsPerGroup, int kStages, bool kTensor = false>
struct StepTile {
  using T = T_;
  using C = compute_t<T>;
  static constexpr int kRows = kRows_;
  static constexpr int kColumns = kColumns_;
  static constexpr int kGates = 3;
  static constexpr int kVector = kVectorSize<T>;
  static constexpr bool kVectors = kAtOnce == kVector;
  static constexpr int kThreadGroups = kRows / kThreadRows;
  static constexpr int kThreads = kThreadGroups * kColumns * kGroups_;
  static constexpr int kDepth = kGroups_ * kVectorsPerGroup * kVector;
  static constexpr int kGroups = kTensor ? 1 : kGroups_;  // groups of sums
  static constexpr int kPitch = kDepth + kVector;         // neighbouring rows begin in other banks
  static constexpr int kWeightLines = kGates * kColumns;
  static constexpr int kLines = kRows + kWeightLines;
  // Asynchronous copies cannot move 2 bytes, so registers hold single 16-bit elements.
  static constexpr bool kHolds = kAtOnce * sizeof(T) == 2;

  union Shared {
    alignas(kVectorBytes) T stage[kStages][kLines][kPitch];
    C sums[kGroups][kGates][kRows][kColumns];
  };

  // Makes the products, and leaves their sums in shared memory. Every thread of the block must call
  // this function, and may then read all sums.
  LLTM_DEVICE static void multiply(const StepOperands<T>& from, int64_t first_row,
                                   int64_t first_column, Shared& shared) {
    const int64_t slices = divide_up(from.state_size + from.input_size, kDepth);
    Loader loader(from, first_row, first_column);
    Sums sums;
    for (int s = 0; s < kStages - 1; ++s) {
      if (s < slices) {
        loader.begin(int64_t{s} * kDepth, shared.stage[s]);
        loader.end(shared.stage[s]);
      }
      end_copies();
    }
    int stage = 0;
    for (int64_t slice = 0; slice < slices; ++slice) {
      wait_copies<kStages - 2>();
      __syncthreads();  // this slice has arrived, and all threads have read the previous one
      const int64_t next = slice + kStages - 1;
      auto& free = shared.stage[stage == 0 ? kStages - 1 : stage - 1];
      if (next < slices) loader.begin(next * kDepth, free);
      end_copies();
      sums.add(shared.stage[stage]);
      if (next < slices) loader.end(free);
      stage = stage == kStages - 1 ? 0 : stage + 1;
    }
    wait_copies<0>();
    __syncthreads();  // the stages are free for the sums
    sums.store(shared);
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
    unrolled<kVector>([&](int e) { to[e] = widen(pack.element[e]); });
  }

  // A thread's sums, without tensor cores.
  class PlainSums {
   public:
    LLTM_DEVICE void add(const T (&lines)[kLines][kPitch]) {
      unrolled<kVectorsPerGroup>([&](int v) {
        const int k = (v * kGroups + group_) * kVector;
        C w[kGates][kVector];
        unrolled<kGates>(
            [&](int gate) { widen_vector(&lines[kRows + gate * kColumns + column_][k], w[gate]); });
        unrolled<kThreadRows>([&](int r) {
          C a[kVector];
          widen_vector(&lines[rows_ + r * kThreadGroups][k], a);
          unrolled<kVector, kGates>([&](int e, int gate) { sum_[r][gate] += a[e] * w[gate][e]; });
        });
      });
    }
    LLTM_DEVICE void store(Shared& shared) const {
      unrolled<kThreadRows, kGates>([&](int r, int gate) {
        shared.sums[group_][gate][rows_ + r * kThreadGroups][column_] = sum_[r][gate];
      });
    }

   private:
    const int column_ = static_cast<int>(threadIdx.x) % kColumns;
    const int rows_ = static_cast<int>(threadIdx.x) / kColumns % kThreadGroups;
    const int group_ = static_cast<int>(threadIdx.x) / (kColumns * kThreadGroups);
    C sum_[kThreadRows][kGates] = {};
  };

  // A warp's sums by tensor cores. The depth of one instruction is 32 bytes of a line.
  class TensorSums {
   public:
    LLTM_DEVICE void add(const T (&lines)[kLines][kPitch]) {
      constexpr int kStep = 32 / sizeof(T);
      unrolled<kDepth / kStep>([&](int step) {
        const int k = step * kStep;
        uint32_t a[4];
        load_words<4>(&lines[first_row_ + lane_ % 16][k + lane_ / 16 * (kStep / 2)], a);
        unrolled<kGates>([&](int gate) {
          uint32_t b[2];
          const int line = kRows + gate * kColumns + first_column_ + lane_ % 8;
          load_words<2>(&lines[line][k + lane_ / 8 % 2 * (kStep / 2)], b);
          multiply_tiles<T>(sum_[gate], a, b[0], b[1]);
        });
      });
    }
    LLTM_DEVICE void store(Shared& shared) const {
      unrolled<kGates, 4>([&](int gate, int i) {
        const int row = first_row_ + lane_ / 4 + i / 2 * 8;
        shared.sums[0][gate][row][first_column_ + lane_ % 4 * 2 + i % 2] = sum_[gate][i];
      });
    }

   private:
    // Loads n matrices of 8 lines by 16 bytes. A lane gives the address of one line, and gets one
    // word of each matrix.
    template <int n>
    LLTM_DEVICE static void load_words(const T* line, uint32_t (&words)[n]) {
#if __CUDA_ARCH__ >= 800
      const auto address = static_cast<uint32_t>(__cvta_generic_to_shared(line));
      if constexpr (n == 4) {
        asm volatile("ldmatrix.sync.aligned.m8n8.x4.shared.b16 {%0, %1, %2, %3}, [%4];"
                     : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
                     : "r"(address));
      } else {
        asm volatile("ldmatrix.sync.aligned.m8n8.x2.shared.b16 {%0, %1}, [%2];"
                     : "=r"(words[0]), "=r"(words[1])
                     : "r"(address));
      }
      if constexpr (sizeof(T) == 4) {  // tensor cores would truncate to tf32
#pragma unroll
        for (uint32_t& word : words) asm("cvt.rna.tf32.f32 %0, %0;" : "+r"(word));
      }
#endif
    }

    const int lane_ = static_cast<int>(threadIdx.x) % 32;
    const int first_row_ = static_cast<int>(threadIdx.x) / 32 % (kRows / 16) * 16;
    const int first_column_ = static_cast<int>(threadIdx.x) / 32 / (kRows / 16) * 8;
    float sum_[kGates][4] = {};
  };

  using Sums = std::conditional_t<kTensor, TensorSums, PlainSums>;
  static_assert(!kTensor || kThreads == kRows / 16 * kColumns / 8 * 32, "a warp for each part");

  // Copies slices of both operands into shared memory, with zeros outside of the operands. A thread
  // has the same kVector elements of every kStep-th line, and keeps the addresses of its lines of
  // weights.
  class Loader {
   public:
    LLTM_DEVICE Loader(const StepOperands<T>& from, int64_t first_row, int64_t first_column)
        : from_(from),
          first_line_(static_cast<int>(threadIdx.x) / kPerLine),
          inner_(static_cast<int>(threadIdx.x) % kPerLine * kAtOnce),
          first_row_(first_row + first_line_) {
      unrolled<kWeightItems>([&](int i) {
        const int line = first_line_ + i * kStep;
        const int64_t column = first_column + line % kColumns;
        const bool valid = line < kWeightLines && column < from.state_size;
        const int64_t row = line / kColumns * from.state_size + column;
        weights_[i] = valid ? from.weights + row * from.weight_stride + inner_ : nullptr;
      });
    }

    // Starts to copy a slice into shared memory or, with kHolds, into registers.
    LLTM_DEVICE void begin(int64_t first_k, T (&lines)[kLines][kPitch]) {
      for_items(first_k, [&](int item, int line, int e, const T* from, bool valid) {
        T* const to = &lines[line][inner_ + e * kApart];
        if constexpr (kHolds) {
          held_[item][e] = valid ? *from : T{};
        } else if constexpr (kVectors) {
          copy_vector(to, valid ? from : from_.weights, valid);
        } else {
          using Unit = std::conditional_t<sizeof(T) == 2, uint32_t, T>;
          copy_element(reinterpret_cast<Unit*>(to),
                       reinterpret_cast<const Unit*>(valid ? from : from_.weights), valid);
        }
      });
    }
    // With kHolds, writes the slice from registers into shared memory.
    LLTM_DEVICE void end(T (&lines)[kLines][kPitch]) const {
      if constexpr (kHolds) {
        for_lines([&](int item, int line) {
          unrolled<kVector>([&](int e) { lines[line][inner_ + e * kApart] = held_[item][e]; });
        });
      }
    }

   private:
    static constexpr int kPerLine = kDepth / kVector;
    // Without vectors, the accesses of a thread lie apart, so that neighbouring threads read
    // neighbouring elements.
    static constexpr int kApart = kVectors ? 1 : kPerLine;
    static constexpr int kStep = kThreads / kPerLine;
    static_assert(kThreads % kPerLine == 0 && kRows % kStep == 0, "whole lines at a time");
    static constexpr int kRowItems = kRows / kStep;
    static constexpr int kWeightItems = (kWeightLines + kStep - 1) / kStep;

    // Calls action(item, line) for each line of this thread: rows of the batch, then weights.
    template <typename Action>
    LLTM_DEVICE void for_lines(const Action& action) const {
      unrolled<kRowItems>([&](int i) { action(i, first_line_ + i * kStep); });
      unrolled<kWeightItems>([&](int i) {
        const int line = first_line_ + i * kStep;
        if (kWeightLines % kStep != 0 && line >= kWeightLines) return;
        action(kRowItems + i, kRows + line);
      });
    }

    // Calls copy(item, line, e, from, valid) for each access: kAtOnce elements of a line, from the
    // thread's e-th element on.
    template <typename Copy>
    LLTM_DEVICE void for_items(int64_t first_k, const Copy& copy) const {
      unrolled<kVector / kAtOnce>([&](int i) {
        const int e = i * kAtOnce;
        const int64_t k = first_k + inner_ + e * kApart;
        const bool within = k < from_.state_size + from_.input_size;
        const bool of_h = k < from_.state_size;
        const int64_t width = of_h ? from_.state_size : from_.input_size;
        const T* const rows =
            (of_h ? from_.old_h + k : from_.input + (k - from_.state_size)) + first_row_ * width;
        for_lines([&](int item, int line) {
          if (item < kRowItems) {
            const bool valid = within && first_row_ + item * kStep < from_.batch_size;
            copy(item, line, e, rows + item * kStep * width, valid);
          } else {
            const T* const weights = weights_[item - kRowItems];
            copy(item, line, e, weights + first_k + e * kApart, within && weights != nullptr);
          }
        });
      });
    }

    const StepOperands<T>& from_;
    int first_line_;
    int inner_;
    int64_t first_row_;
    const T* weights_[kWeightItems];
    T held_[kHolds ? kRowItems + kWeightItems : 1][kVector];
  };
};

// With few rows, a step waits for the weights, so many groups read them.
template <typename T, int kAtOnce>
using Rows4Tile = StepTile<T, kAtOnce, 4, 4, 4, 32, 1, 4>;
template <typename T, int kAtOnce>
using Rows16Tile = StepTile<T, kAtOnce, 16, 8, 4, 8, 2, 3>;
// Reads each weight once for 64 rows.
//
// Measured without it on an H100 (100 draws that took it or a tile of 32 rows): the median step
// takes 5.2 % longer in tiles of 16 rows. One of 32 rows beside it gained 0.4 %, and went.
template <typename T>
using Rows64Tile = StepTile<T, kVectorSize<T>, 64, 8, 8, 4, 2, 3>;
template <typename T, int kAtOnce>
using TensorTile = StepTile<T, kAtOnce, 64, 16, 8, 2, 4, 3, true>;
// Measured without it on an H100, and with a model of costs that knows nothing of few rows (100
// draws whose plan changes): the median step takes 2.8 % longer, and one falls behind torch's
// (bfloat16 B7 I188 S1934: 47 us become 117).
template <typename T>
using FewRowsTensorTile = StepTile<T, kWordElements<T>, kFewRows, 16, 8, 2, 4, 4, true>;
// Has fewer columns than Rows16Tile: a block of backward also makes the gradients of its weights.
template <typename T, int kAtOnce>
using BackwardTile = StepTile<T, kAtOnce, 16, 4, 4, 8, 2, 4>;

}  // namespace lltm
