// How the layer's kernels read their operands, multiply, and add up over lanes.
#pragma once

#include "torchship/kernels/vectors.h"

#include "../../cell_math.h"
#include "../../lltm_kernels.h"
#include "../common/unrolled.h"

namespace lltm {

// The steps of a sequence as strides. In a loop where every instruction counts, moving an address
// by a stride costs two additions; computing it from indices would cost a dozen multiplications.
struct Walk {
  int64_t first;   // the index in tensors (T, B, S) at which the step that runs first starts
  int64_t stride;  // elements of these tensors from one step to the next; may be negative

  LLTM_DEVICE Walk(const lltm_layer_sizes& sizes, bool backward) {
    const int64_t plane = sizes.batch_size * sizes.state_size;
    const bool last_first = (sizes.reverse != 0) != backward;
    first = last_first ? (sizes.steps - 1) * plane : 0;
    stride = last_first ? -plane : plane;
  }
};

// The division of a product among the threads of a block. Each group of kLanes lanes has kUnits
// units. The lanes of a group divide the inner dimension: a lane has every kLanes-th vector of four
// elements, kVectors in all.
template <int kThreads_, int kUnits_, int kLanes_, int kVectors_>
struct LaneLayout {
  static constexpr int kThreads = kThreads_;
  static constexpr int kUnits = kUnits_;
  static constexpr int kLanes = kLanes_;
  static constexpr int kVectors = kVectors_;
  static constexpr int kInner = 4 * kLanes * kVectors;  // padded
  static constexpr int kPaddedState = kThreads / kLanes * kUnits;
};

LLTM_DEVICE int lane_index() { return static_cast<int>(threadIdx.x) % 32; }
LLTM_DEVICE int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

template <typename T>
LLTM_DEVICE float load_or_zero(const void* data, int64_t index, bool valid) {
  return valid && data != nullptr ? widen(static_cast<const T*>(data)[index]) : 0.0f;
}

// Loads the weights of backward: kUnits * kWidth columns of W_h, starting at `first_column`, in the
// rows `row_of(i)`. Columns beyond the state, and negative rows, give zeros. The first step waits
// for all weights, so one instruction reads four columns if they are aligned.
template <typename T, int kUnits, int kWidth, int kInner, typename RowOf>
LLTM_DEVICE void load_backward_weights(const lltm_layer_backward_arguments& a, int first_column,
                                       float (&weights)[kUnits][kWidth][kInner],
                                       const RowOf& row_of) {
  static_assert(kUnits * kWidth % 4 == 0, "whole vectors of columns");
  const T* const from = static_cast<const T*>(a.weights);
  const int64_t stride = a.sizes.weight_stride;
  const bool aligned = reinterpret_cast<uintptr_t>(from) % (4 * sizeof(T)) == 0 && stride % 4 == 0;
  const int state = static_cast<int>(a.sizes.state_size);
  unrolled<kInner, kUnits * kWidth / 4>([&](int i, int v) {
    const int row = row_of(i);
    const int column = first_column + 4 * v;
    const T* const at = from + int64_t{row} * stride + column;
    float four[4];
    if (aligned && row >= 0 && column + 4 <= state) {
      const auto pack = load_pack<4>(at);
      unrolled<4>([&](int x) { four[x] = widen(pack.element[x]); });
    } else {
      unrolled<4>([&](int x) { four[x] = load_or_zero<T>(at, x, row >= 0 && column + x < state); });
    }
    unrolled<4>([&](int x) { weights[(4 * v + x) / kWidth][(4 * v + x) % kWidth][i] = four[x]; });
  });
}

// Loads the weights of forward: the three gates of L::kUnits units. A lane holds four of every
// 4 * L::kLanes columns.
template <typename T, typename L>
LLTM_DEVICE void load_forward_weights(const lltm_layer_forward_arguments& a, int first_unit,
                                      int lane,
                                      float (&weights)[L::kUnits][kGateCount][4 * L::kVectors]) {
  const int state = static_cast<int>(a.sizes.state_size);
  unrolled<L::kUnits, kGateCount, 4 * L::kVectors>([&](int u, int gate, int i) {
    const int column = (i / 4 * L::kLanes + lane) * 4 + i % 4;
    const int unit = first_unit + u;
    weights[u][gate][i] =
        load_or_zero<T>(a.weights, (int64_t{gate} * state + unit) * a.sizes.weight_stride + column,
                        unit < state && column < state);
  });
}

// Fills the first of two buffers with the initial h of `rows` batch rows, in rows of L::kInner
// elements, and everything else with zeros. All threads of the block call this function.
template <typename T, typename L, int kBuffer>
LLTM_DEVICE void load_initial_h(const lltm_layer_forward_arguments& a, int64_t first_row, int rows,
                                float (&h)[2][kBuffer]) {
  const int state = static_cast<int>(a.sizes.state_size);
  for (int i = threadIdx.x; i < kBuffer; i += L::kThreads) {
    const int unit = i % L::kInner;
    const int row = i / L::kInner;
    h[0][i] =
        load_or_zero<T>(a.initial_h, (first_row + row) * state + unit, row < rows && unit < state);
    h[1][i] = 0.0f;
  }
}

LLTM_DEVICE void prefetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Prefetches a line of every step but the first kAhead, kAhead steps before the kernel reads it.
template <typename T>
class Prefetch {
 public:
  static constexpr int kLine = 128 / sizeof(T);

  // The line starts at index `element` of each step of the tensor (T, B, vectors, S). Prefetches
  // nothing if `tensor` is NULL or `asks` is false.
  LLTM_DEVICE Prefetch(const void* tensor, int64_t vectors, const Walk& walk, int64_t element,
                       bool asks)
      : at_(nullptr), stride_(vectors * walk.stride) {
    if (tensor == nullptr || !asks) return;
    at_ = static_cast<const T*>(tensor) + vectors * walk.first + element + kAhead * stride_;
  }

  // `left`: the number of steps left, the present one included.
  LLTM_DEVICE void step(int left) {
    if (at_ == nullptr || left <= kAhead) return;
    prefetch_to_l2(at_);
    at_ += stride_;
  }

 private:
  static constexpr int kAhead = 8;
  const T* at_;
  int64_t stride_;
};

LLTM_DEVICE float shuffle_xor(float value, int mask) {
  return __shfl_xor_sync(0xffffffffu, value, mask);
}

// Adds up values[rows][units][width] over kLanes neighbouring lanes. In each round, two lanes
// exchange halves of their units or, once one unit is left, of their rows: each lane keeps the sums
// of one half. Once one unit and one row are left, both lanes keep the same sums.
template <int kLanes, int kRows, int kUnits, int kWidth>
struct LaneSum {
  static constexpr int kMask = kLanes / 2;
  static constexpr bool kSplitUnits = kUnits > 1;
  static constexpr bool kSplitRows = !kSplitUnits && kRows > 1;
  static constexpr int kNextRows = kSplitRows ? kRows / 2 : kRows;
  static constexpr int kNextUnits = kSplitUnits ? kUnits / 2 : kUnits;
  using Next = LaneSum<kMask, kNextRows, kNextUnits, kWidth>;
  static constexpr int kOwnRows = Next::kOwnRows;
  static constexpr int kCopies =
      kLanes * kOwnRows / (kRows * kUnits);  // the number of lanes with the same sums

  // Writes the sums of one unit for kOwnRows rows to `own`.
  LLTM_DEVICE static void add(const float (&values)[kRows][kUnits][kWidth], int lane,
                              float (&own)[kOwnRows][kWidth]) {
    const bool upper = (lane & kMask) != 0;
    float half[kNextRows][kNextUnits][kWidth];
    unrolled<kNextRows, kNextUnits, kWidth>([&](int r, int u, int x) {
      const float low = values[r][u][x];
      const float high =
          values[kSplitRows ? r + kNextRows : r][kSplitUnits ? u + kNextUnits : u][x];
      const float kept = upper ? high : low;
      const float given = upper ? low : high;
      half[r][u][x] = kept + shuffle_xor(given, kMask);
    });
    Next::add(half, lane, own);
  }

  LLTM_DEVICE static int unit(int lane) {
    return (kSplitUnits && (lane & kMask) != 0 ? kNextUnits : 0) + Next::unit(lane);
  }
  LLTM_DEVICE static int row(int lane) {
    return (kSplitRows && (lane & kMask) != 0 ? kNextRows : 0) + Next::row(lane);
  }
};

template <int kRows, int kUnits, int kWidth>
struct LaneSum<1, kRows, kUnits, kWidth> {
  static_assert(kUnits == 1, "there must be at least as many lanes as units");
  static constexpr int kOwnRows = kRows;
  LLTM_DEVICE static void add(const float (&values)[kRows][1][kWidth], int,
                              float (&own)[kRows][kWidth]) {
    unrolled<kRows, kWidth>([&](int r, int x) { own[r][x] = values[r][0][x]; });
  }
  LLTM_DEVICE static int unit(int) { return 0; }
  LLTM_DEVICE static int row(int) { return 0; }
};

LLTM_DEVICE float4 load_four(const float4* from) { return *from; }
// The exact engines read this type, because nvcc 13.0 splits a float4 there and joins its
// elements again, in a way that differs from build to build.
LLTM_DEVICE float4 load_four(const ulonglong2* from) {
  const ulonglong2 words = *from;
  const auto low = [](unsigned long long word) {
    return __uint_as_float(static_cast<unsigned int>(word));
  };
  return {low(words.x), low(words.x >> 32), low(words.y), low(words.y >> 32)};
}

// Multiplies the first `rows` of kRows rows of numbers by the lanes' weights, and adds up over
// kLanes lanes; LaneSum tells which sums `own` gets. A lane has four of every 4 * kLanes numbers.
// `from` points to the first four numbers of the lane.
template <int kLanes, int kRows, int kPitch, typename Vector = float4, int kUnits, int kWidth,
          int kInner, int kOwnRows>
LLTM_DEVICE void multiply_rows(const float (&weights)[kUnits][kWidth][kInner], const float* from,
                               int rows, int lane, float (&own)[kOwnRows][kWidth]) {
  float sums[kRows][kUnits][kWidth] = {};
#pragma unroll
  for (int r = 0; r < kRows; ++r) {
    if (r > 0 && r >= rows) break;
    unrolled<kInner / 4>([&](int v) {
      const float4 x =
          load_four(reinterpret_cast<const Vector*>(from + r * kPitch + v * kLanes * 4));
      unrolled<kUnits, kWidth>([&](int unit, int column) {
        const float* const w = weights[unit][column] + 4 * v;
        float& sum = sums[r][unit][column];
        sum = fmaf(w[0], x.x, sum);
        sum = fmaf(w[1], x.y, sum);
        sum = fmaf(w[2], x.z, sum);
        sum = fmaf(w[3], x.w, sum);
      });
    });
  }
  LaneSum<kLanes, kRows, kUnits, kWidth>::add(sums, lane, own);
}

}  // namespace lltm
