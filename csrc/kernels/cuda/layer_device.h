// Reads of operands, and products, for the layer's kernels.
#pragma once

#include "../../engine/kernels/vectors.h"
#include "../cell_math.h"
#include "../lltm_kernels.h"
#include "unrolled.h"

namespace lltm {

// The steps of a sequence as strides. Moving an address costs two additions. Computing it from
// indices costs a dozen multiplications, in a loop where every instruction counts.
struct Walk {
  int64_t first;   // index of the first step's plane
  int64_t stride;  // planes from one step to the next: 1 or -1

  LLTM_DEVICE static Walk forward(const lltm_layer_sizes& sizes) {
    return sizes.reverse != 0 ? Walk{sizes.steps - 1, -1} : Walk{0, 1};
  }
  LLTM_DEVICE static Walk backward(const lltm_layer_sizes& sizes) {
    return sizes.reverse != 0 ? Walk{0, 1} : Walk{sizes.steps - 1, -1};
  }
};

// The division of a product among the threads of a block. A thread has kUnits units and kVectors
// vectors of four inner elements, one of every kLanes vectors.
template <int kThreads_, int kUnits_, int kLanes_, int kVectors_>
struct LaneLayout {
  static constexpr int kThreads = kThreads_;
  static constexpr int kUnits = kUnits_;
  static constexpr int kLanes = kLanes_;
  static constexpr int kVectors = kVectors_;
  static constexpr int kInner = 4 * kLanes * kVectors;  // padded
  static constexpr int kPaddedState = kThreads / kLanes * kUnits;
};

// A row of the recurrent weights.
struct WeightRow {
  int gate;
  int unit;
};

LLTM_DEVICE int lane_index() { return static_cast<int>(threadIdx.x) % 32; }
LLTM_DEVICE int warp_index() { return static_cast<int>(threadIdx.x) / 32; }

template <typename T>
LLTM_DEVICE float load_or_zero(const void* data, int64_t index, bool valid) {
  return valid && data != nullptr ? widen(static_cast<const T*>(data)[index]) : 0.0f;
}

// Reads four neighbouring columns of the recurrent weights, with one instruction if they are
// aligned: kernels read all weights first, and a short sequence waits for that.
template <typename T>
class WeightReader {
 public:
  LLTM_DEVICE WeightReader(const void* weights, const lltm_layer_sizes& sizes)
      : weights_(static_cast<const T*>(weights)),
        stride_(sizes.weight_stride),
        state_(static_cast<int>(sizes.state_size)),
        aligned_(reinterpret_cast<uintptr_t>(weights) % (4 * sizeof(T)) == 0 && stride_ % 4 == 0) {}

  // `column` is a multiple of four. Values beyond the state are zero.
  LLTM_DEVICE void read(int gate, int unit, int column, float (&values)[4]) const {
    const int64_t first = (int64_t{gate} * state_ + unit) * stride_ + column;
    if (aligned_ && unit < state_ && column + 4 <= state_) {
      const auto pack = load_pack<4>(weights_ + first);
      unrolled<4>([&](int i) { values[i] = widen(pack.element[i]); });
    } else {
      unrolled<4>([&](int i) {
        values[i] = load_or_zero<T>(weights_, first + i, unit < state_ && column + i < state_);
      });
    }
  }

 private:
  const T* weights_;
  int64_t stride_;
  int state_;
  bool aligned_;
};

// The weights of backward: kUnits times kWidth columns of W_h from `first_column` on, in the rows
// that `row_of(i)` gives.
template <typename T, int kUnits, int kWidth, int kInner, typename RowOf>
LLTM_DEVICE void load_backward_weights(const lltm_layer_backward_arguments& a, int first_column,
                                       float (&weights)[kUnits][kWidth][kInner],
                                       const RowOf& row_of) {
  static_assert(kUnits * kWidth % 4 == 0, "whole vectors of columns");
  const WeightReader<T> reader(a.weights, a.sizes);
  unrolled<kInner>([&](int i) {
    const WeightRow row = row_of(i);
#pragma unroll
    for (int column = 0; column < kUnits * kWidth; column += 4) {
      float four[4];
      reader.read(row.gate, row.unit, first_column + column, four);
      unrolled<4>(
          [&](int x) { weights[(column + x) / kWidth][(column + x) % kWidth][i] = four[x]; });
    }
  });
}

// The weights of forward: the three gates of L::kUnits units. A lane holds four of every
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
// elements, and everything else with zeros. All threads of the block take part.
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

// Adds four products to each sum: its weights from `first` on, times x.
template <int kUnits, int kColumns, int kInner>
LLTM_DEVICE void add_products(const float (&weights)[kUnits][kColumns][kInner], int first,
                              const float4& x, float (&sums)[kUnits][kColumns]) {
  unrolled<kUnits, kColumns>([&](int unit, int column) {
    const float* const w = weights[unit][column] + first;
    float& sum = sums[unit][column];
    sum = fmaf(w[0], x.x, sum);
    sum = fmaf(w[1], x.y, sum);
    sum = fmaf(w[2], x.z, sum);
    sum = fmaf(w[3], x.w, sum);
  });
}

LLTM_DEVICE void prefetch_to_l2(const void* address) {
  asm volatile("prefetch.global.L2 [%0];" ::"l"(address));
}

// Prefetches a line, kAhead steps before it is read.
template <typename T>
class Prefetch {
 public:
  static constexpr int kLine = 128 / sizeof(T);

  // `first` points to the line of the first step.
  LLTM_DEVICE Prefetch(const T* first, int64_t stride, bool asks)
      : at_(asks ? first + kAhead * stride : nullptr), stride_(stride) {}

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

// Adds values[rows][units][width] of `kLanes` neighbouring lanes. In each halving, a lane gives
// half of its units, then half of its rows, to its partner. With one unit and one row left, both
// keep the sum.
template <int kLanes, int kRows, int kUnits, int kWidth>
struct LaneSum {
  static constexpr int kMask = kLanes / 2;
  static constexpr bool kSplitUnits = kUnits > 1;
  static constexpr bool kSplitRows = !kSplitUnits && kRows > 1;
  static constexpr int kNextRows = kSplitRows ? kRows / 2 : kRows;
  static constexpr int kNextUnits = kSplitUnits ? kUnits / 2 : kUnits;
  using Next = LaneSum<kMask, kNextRows, kNextUnits, kWidth>;
  static constexpr int kOwnRows = Next::kOwnRows;
  static constexpr int kCopies = kLanes * kOwnRows / (kRows * kUnits);  // lanes with the same sums

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
  static_assert(kUnits == 1, "as many lanes as units at least");
  static constexpr int kOwnRows = kRows;
  LLTM_DEVICE static void add(const float (&values)[kRows][1][kWidth], int,
                              float (&own)[kRows][kWidth]) {
    unrolled<kRows, kWidth>([&](int r, int x) { own[r][x] = values[r][0][x]; });
  }
  LLTM_DEVICE static int unit(int) { return 0; }
  LLTM_DEVICE static int row(int) { return 0; }
};

}  // namespace lltm
