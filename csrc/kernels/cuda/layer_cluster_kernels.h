// The kernels of the family `cluster`. The blocks of a cluster share out the units of the state,
// kClusterUnits each, for up to kRows rows of the batch, and keep their weights in registers for
// the whole sequence. Clusters know nothing of one another.
//
// Who has received all of a step knows that every block has read all of the step before: a block's
// numbers come out of sums over everything that it received. So two buffers, each with a barrier of
// its own, are enough, and nobody asks whether a buffer is free.
//
// A step waits for the one before, so what does not depend on it stands behind the sending: what
// the next step needs of addresses is ready before its numbers arrive.
#pragma once

#include "../lltm_kernels.h"
#include "layer_cluster_exchange.h"
#include "layer_device.h"
#include "layer_lane_sum.h"

namespace lltm {

constexpr int kClusterUnits = 32;  // of the state, a block
constexpr int kClusterAhead = 8;   // steps that memory is asked ahead

// Forward: kLanes lanes share out the inner dimension S of kUnits units' three gates.
template <int kThreads_, int kLanes_, int kVectors_, int kUnits_>
struct ClusterForward {
  static constexpr int kThreads = kThreads_;
  static constexpr int kLanes = kLanes_;
  static constexpr int kVectors = kVectors_;
  static constexpr int kUnits = kUnits_;
  static constexpr int kInner = 4 * kLanes * kVectors;
  static constexpr int kMaxBlocks = kInner / kClusterUnits;
  static_assert(kThreads / kLanes * kUnits == kClusterUnits, "a block's threads cover its units");
};

template <typename T, typename L, int kRows>
__global__ void __launch_bounds__(L::kThreads, 1)
    cluster_forward_kernel(const lltm_layer_forward_arguments a, int rows_each) {
#if __CUDA_ARCH__ >= 900
  using Sum = LaneSum<L::kLanes, kRows, L::kUnits, 3>;
  constexpr int kOwn = Sum::kOwnRows;
  constexpr int kCopies = L::kLanes * kOwn / (kRows * L::kUnits);  // lanes with the same sums
  constexpr int kSends = (L::kMaxBlocks + kCopies - 1) / kCopies;
  constexpr int kBuffer = kRows * L::kInner;
  __shared__ __align__(16) float h[2][kBuffer];
  __shared__ __align__(8) uint64_t barriers[2];

  const int blocks = cluster_blocks();
  const int rank = cluster_rank();
  const int thread = thread_index();
  const int lane = thread % L::kLanes;
  const int group = thread / L::kLanes;
  const int state = static_cast<int>(a.sizes.state_size);
  const int64_t first_row = int64_t{blockIdx.x} / blocks * rows_each;
  const int rows = static_cast<int>(min(int64_t{rows_each}, a.sizes.batch_size - first_row));
  const int64_t plane = a.sizes.batch_size * state;
  const Walk walk = Walk::forward(a.sizes);

  float weights[L::kUnits][3][4 * L::kVectors];
#pragma unroll
  for (int u = 0; u < L::kUnits; ++u) {
    const int unit = rank * kClusterUnits + group * L::kUnits + u;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
#pragma unroll
      for (int i = 0; i < 4 * L::kVectors; ++i) {
        const int column = (i / 4 * L::kLanes + lane) * 4 + i % 4;
        weights[u][gate][i] =
            load_or_zero(static_cast<const T*>(a.weights),
                         (int64_t{gate} * state + unit) * a.sizes.weight_stride + column,
                         unit < state && column < state);
      }
    }
  }
  for (int i = thread; i < kBuffer; i += L::kThreads) {
    const int unit = i % L::kInner;
    const int row = i / L::kInner;
    h[0][i] = load_or_zero(static_cast<const T*>(a.initial_h), (first_row + row) * state + unit,
                           row < rows && unit < state);
    h[1][i] = 0.0f;
  }
  const uint32_t h_address = shared_address(h);
  const uint32_t barrier_address = shared_address(barriers);
  const int bytes = rows * blocks * kClusterUnits * 4;  // that a step receives
  if (thread == 0) {
    make_barrier(barrier_address);
    make_barrier(barrier_address + 8);
    expect(barrier_address, bytes);
    expect(barrier_address + 8, bytes);
    show_barriers();
  }

  const int unit = rank * kClusterUnits + group * L::kUnits + Sum::unit(lane);
  const int own_row = Sum::row(lane);
  const int copy = lane % kCopies;
  // Each copy sends to other blocks. Addresses of this block's, as those have them.
  uint32_t to_h[kSends];
  uint32_t to_barrier[kSends];
  bool sends[kSends];
#pragma unroll
  for (int i = 0; i < kSends; ++i) {
    const int other = copy + i * kCopies;
    sends[i] = other < blocks;
    const int receiver = sends[i] ? other : 0;
    // The first step writes the second buffer.
    to_h[i] = address_in(h_address, receiver) + (kBuffer + own_row * L::kInner + unit) * 4;
    to_barrier[i] = address_in(barrier_address, receiver) + 8;
  }
  uint32_t flip_h = static_cast<uint32_t>(-kBuffer * 4);
  uint32_t flip_barrier = static_cast<uint32_t>(-8);

  bool valid[kOwn];
  float cell[kOwn];
  T ahead[kOwn][3] = {};  // the next step's gates
  const int64_t first = walk.first * plane + (first_row + own_row) * state;
  T* gates = static_cast<T*>(a.gates) + first * 3 + unit;
  T* output = static_cast<T*>(a.output) + first + unit;
  T* cells = static_cast<T*>(a.cells) + first + unit;
  const int64_t stride = walk.stride * plane;
  const bool keeps_cells = a.cells != nullptr;
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    valid[r] = unit < state && own_row + r < rows;
    cell[r] = load_or_zero(static_cast<const T*>(a.initial_cell),
                           (first_row + own_row + r) * state + unit, valid[r]);
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      if (valid[r]) ahead[r][gate] = gates[(3 * r + gate) * state];
    }
  }
  const T* next_gates = gates + 3 * stride;
  // A line holds a row's gate of all of this block's units.
  const bool asks = thread < 3 * rows;
  const T* later = static_cast<const T*>(a.gates) +
                   ((walk.first + walk.stride * kClusterAhead) * plane + first_row * state) * 3 +
                   int64_t{thread} * state + rank * kClusterUnits;
  T new_h[kOwn] = {};
  const float* old_h = h[0] + lane * 4;
  uint32_t barrier = barrier_address + 8;  // of the next step's buffer
  uint32_t parity = 0;
  const bool arms = thread == 0;
  cluster_sync();

  for (int left = static_cast<int>(a.sizes.steps); left > 0; --left) {
    const bool more = left > 1;
    float sum[kRows][L::kUnits][3] = {};
#pragma unroll
    for (int r = 0; r < kRows; ++r) {
      if (r > 0 && r >= rows) break;
#pragma unroll
      for (int v = 0; v < L::kVectors; ++v) {
        const float4 x =
            *reinterpret_cast<const float4*>(old_h + r * L::kInner + v * L::kLanes * 4);
#pragma unroll
        for (int u = 0; u < L::kUnits; ++u) {
#pragma unroll
          for (int gate = 0; gate < 3; ++gate) {
            float& s = sum[r][u][gate];
            s = fmaf(weights[u][gate][4 * v], x.x, s);
            s = fmaf(weights[u][gate][4 * v + 1], x.y, s);
            s = fmaf(weights[u][gate][4 * v + 2], x.z, s);
            s = fmaf(weights[u][gate][4 * v + 3], x.w, s);
          }
        }
      }
    }
    float z[kOwn][3];
    Sum::add(sum, lane, z);
    T rounded[kOwn][3];
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        rounded[r][gate] = narrow<T>(z[r][gate] + widen(ahead[r][gate]));
        // At once, for the next step: it takes about a step to come.
        if (valid[r] && more) ahead[r][gate] = next_gates[(3 * r + gate) * state];
      }
      // What backward will read is what forward computes with.
      const auto next = CellFormulas<SwiftMath>::forward(widen(rounded[r][kInputGate]),
                                                         widen(rounded[r][kOutputGate]),
                                                         widen(rounded[r][kCandidate]), cell[r]);
      cell[r] = next.cell;
      new_h[r] = narrow<T>(next.h);
    }
    if (more) {
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        if (own_row + r >= rows) continue;
#pragma unroll
        for (int i = 0; i < kSends; ++i) {
          if (sends[i]) send(to_h[i] + r * L::kInner * 4, widen(new_h[r]), to_barrier[i]);
        }
      }
    }
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      if (copy != 0 || !valid[r]) continue;
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) gates[(3 * r + gate) * state] = rounded[r][gate];
      output[r * state] = new_h[r];
      if (keeps_cells) cells[r * state] = narrow<T>(cell[r]);
    }
    if (asks && left > kClusterAhead) prefetch_to_l2(later);
    if (!more) break;
    later += 3 * stride;
    gates += 3 * stride;
    next_gates += 3 * stride;
    output += stride;
    cells += stride;
#pragma unroll
    for (int i = 0; i < kSends; ++i) {
      to_h[i] += flip_h;
      to_barrier[i] += flip_barrier;
    }
    old_h -= static_cast<int>(flip_h) / 4;
    flip_h = 0u - flip_h;
    flip_barrier = 0u - flip_barrier;
    await(barrier, parity);
    if (arms) expect(barrier, bytes);
    barrier -= flip_barrier;
    parity ^= flip_barrier >> 31;  // behind the first buffer's turn
  }
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    if (copy != 0 || !valid[r]) continue;
    const int64_t element = (first_row + own_row + r) * state + unit;
    static_cast<T*>(a.final_h)[element] = new_h[r];
    static_cast<T*>(a.final_cell)[element] = narrow<T>(cell[r]);
  }
  cluster_sync();  // nobody leaves while others may still write to it
#endif
}

// Backward: a block has the rows of W_h of its own units' three gates, so that its own dz is all
// that it multiplies, and sends every block the part of dh that it makes for that one's units.
// Eight lanes share out the block's dz; a group of them makes 8 * kWidth units of dh.
// kFinishers warps of their own turn dh into dz, so that what they prepare and store holds up no
// product; without, which saves registers, the first warps do both.
template <int kMaxBlocks_, int kWidth_, int kFinishers_>
struct ClusterBackward {
  static constexpr int kMaxBlocks = kMaxBlocks_;
  static constexpr int kWidth = kWidth_;
  static constexpr int kLanes = 8;
  static constexpr int kUnits = 8;
  static constexpr int kFinishers = kFinishers_;
  static constexpr int kThreads = kMaxBlocks * kClusterUnits / kWidth + 32 * kFinishers;  // at most
  static constexpr int kInner = 3 * kClusterUnits;
};

template <typename T, typename L, int kRows>
__global__ void __launch_bounds__(L::kThreads, 1)
    cluster_backward_kernel(const lltm_layer_backward_arguments a, int rows_each) {
#if __CUDA_ARCH__ >= 900
  using Sum = LaneSum<L::kLanes, kRows, L::kUnits, L::kWidth>;
  static_assert(L::kFinishers == 0 || L::kFinishers == kRows, "a finisher an element");
  static_assert(Sum::kOwnRows == kRows, "a lane is left with all rows");
  constexpr int kElements = kRows * kClusterUnits;  // of this block's own
  constexpr int kDz = kRows * L::kInner;
  constexpr int kBuffer = L::kMaxBlocks * kElements;
  __shared__ __align__(16) float dz[2][kDz];
  __shared__ __align__(16) float parts[2][kBuffer];  // of dh, by the blocks that made them
  __shared__ __align__(8) uint64_t barriers[2];

  const int blocks = cluster_blocks();
  const int rank = cluster_rank();
  const int thread = thread_index();
  const int lane = thread % L::kLanes;
  const int group_unit = thread / L::kLanes * L::kUnits * L::kWidth;
  // This thread's element of the block's own.
  const int own = thread - (L::kFinishers == 0 ? 0 : static_cast<int>(blockDim.x) - kElements);
  const bool multiplies = L::kFinishers == 0 || own < 0;
  const int state = static_cast<int>(a.sizes.state_size);
  const int64_t first_row = int64_t{blockIdx.x} / blocks * rows_each;
  const int rows = static_cast<int>(min(int64_t{rows_each}, a.sizes.batch_size - first_row));
  const int64_t plane = a.sizes.batch_size * state;
  const Walk walk = Walk::backward(a.sizes);
  const bool wants_h = a.d_initial_h != nullptr;  // which is the product of the last dz

  float weights[L::kUnits][L::kWidth][L::kInner / L::kLanes];
  const WeightReader<T> reader(a.weights, a.sizes);
#pragma unroll
  for (int i = 0; i < L::kInner / L::kLanes; ++i) {
    const int unit = rank * kClusterUnits + lane * 4 + i % 4;
#pragma unroll
    for (int column = 0; column < L::kUnits * L::kWidth; column += 4) {
      float four[4];
      reader.read(i / 4, multiplies ? unit : state, group_unit + column, four);
#pragma unroll
      for (int x = 0; x < 4; ++x) {
        weights[(column + x) / L::kWidth][(column + x) % L::kWidth][i] = four[x];
      }
    }
  }
  const uint32_t barrier_address = shared_address(barriers);
  const uint32_t parts_address = shared_address(parts);
  const int bytes = rows * blocks * kClusterUnits * 4;  // that a step receives
  if (own == 0) {
    make_barrier(barrier_address);
    make_barrier(barrier_address + 8);
    expect(barrier_address, bytes);
    expect(barrier_address + 8, bytes);
    show_barriers();
  }
  // The sums that this lane is left with go to the block that owns those units. The last step's go
  // to the second buffer.
  const int sum_unit = group_unit + Sum::unit(lane) * L::kWidth;
  const int owner = sum_unit / kClusterUnits;
  const bool sends = multiplies && owner < blocks;
  uint32_t to_parts = address_in(parts_address, sends ? owner : 0) +
                      (kBuffer + rank * kElements + sum_unit % kClusterUnits) * 4;
  uint32_t to_barrier = address_in(barrier_address, sends ? owner : 0) + 8;
  uint32_t flip_parts = static_cast<uint32_t>(-kBuffer * 4);
  uint32_t flip_barrier = static_cast<uint32_t>(-8);
  int flip_dz = kDz;

  const int own_row = own / kClusterUnits;
  const int own_unit = own % kClusterUnits;
  const int unit = rank * kClusterUnits + own_unit;
  const bool owns = own >= 0 && own_row < rows;  // whole warps
  const bool valid = owns && unit < state;
  const int64_t element = (first_row + own_row) * state + unit;
  const T* gates = static_cast<const T*>(a.gates) + walk.first * plane * 3 +
                   (first_row + own_row) * 3 * state + unit;
  const T* cells = static_cast<const T*>(a.cells) + walk.first * plane + element;
  const T* grad_output = static_cast<const T*>(a.grad_output) + walk.first * plane + element;
  const T* grad_cells = static_cast<const T*>(a.grad_cells) + walk.first * plane + element;
  T* d_gates = static_cast<T*>(a.d_gates) + walk.first * plane * 3 +
               (first_row + own_row) * 3 * state + unit;
  const int64_t stride = walk.stride * plane;
  const bool has_output = a.grad_output != nullptr;
  const bool has_cells = a.grad_cells != nullptr;
  struct Ahead {
    T z[3];
    T cell;
    T grad_output;
    T grad_cell;
  } ahead = {};
  const auto fetch = [&] {
    if (!valid) return;
    ahead.z[0] = gates[0];
    ahead.z[1] = gates[state];
    ahead.z[2] = gates[2 * state];
    ahead.cell = *cells;
    if (has_output) ahead.grad_output = *grad_output;
    if (has_cells) ahead.grad_cell = *grad_cells;
    gates += 3 * stride;
    cells += stride;
    grad_output += stride;
    grad_cells += stride;
  };
  float carry = load_or_zero(static_cast<const T*>(a.grad_final_cell), element, valid);
  StepSlopes slopes;
  float grad_h;
  float grad_cell;
  // All that does not wait for the other blocks.
  const auto prepare = [&] {
    slopes = StepSlopes::of(widen(ahead.z[kInputGate]), widen(ahead.z[kOutputGate]),
                            widen(ahead.z[kCandidate]), widen(ahead.cell));
    grad_h = widen(ahead.grad_output);
    grad_cell = widen(ahead.grad_cell) + carry;
  };
  fetch();
  prepare();
  if (a.sizes.steps > 1) fetch();
  grad_h += load_or_zero(static_cast<const T*>(a.grad_final_h), element, valid);
  // Lines of gates, of cells and of the output's gradient, a line a thread.
  const T* later = nullptr;
  int64_t later_stride = stride;
  {
    const int line = own >= 0 ? own : 5 * rows;
    const int64_t there = (walk.first + walk.stride * kClusterAhead) * plane + first_row * state;
    const int64_t column = rank * kClusterUnits;
    if (line < 3 * rows) {
      later = static_cast<const T*>(a.gates) + there * 3 + int64_t{line} * state + column;
      later_stride *= 3;
    } else if (line < 4 * rows) {
      later = static_cast<const T*>(a.cells) + there + int64_t{line - 3 * rows} * state + column;
    } else if (line < 5 * rows && has_output) {
      later =
          static_cast<const T*>(a.grad_output) + there + int64_t{line - 4 * rows} * state + column;
    }
  }
  float* own_dz = dz[0] + own_row * L::kInner + own_unit;
  const float* all_dz = dz[0] + lane * 4;
  const float* own_parts = parts[1] + own;  // of the next step
  const auto sum_parts = [&] {
    float total[2] = {};
#pragma unroll
    for (int block = 0; block < L::kMaxBlocks; ++block) {
      if (block < blocks) total[block % 2] += own_parts[block * kElements];
    }
    return total[0] + total[1];
  };
  uint32_t barrier = barrier_address + 8;  // of the next step's buffer
  uint32_t parity = 0;
  const bool arms = own == 0;
  float dh = 0.0f;  // but for grad_h
  cluster_sync();

  for (int left = static_cast<int>(a.sizes.steps); left > 0; --left) {
    const bool more = left > 1;
    T rounded[3] = {};
    if (owns) {
      const float all_dh = dh + grad_h;
      carry = fmaf(all_dh, slopes.d_cell, grad_cell);
      rounded[kInputGate] = narrow<T>(carry * slopes.input_gate);
      rounded[kOutputGate] = narrow<T>(all_dh * slopes.output_gate);
      rounded[kCandidate] = narrow<T>(carry * slopes.candidate);
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        own_dz[gate * kClusterUnits] = valid ? widen(rounded[gate]) : 0.0f;
      }
    }
    __syncthreads();
    if (multiplies && (more || wants_h)) {
      float sum[kRows][L::kUnits][L::kWidth] = {};
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (r > 0 && r >= rows) break;
#pragma unroll
        for (int gate = 0; gate < 3; ++gate) {
          const float4 x =
              *reinterpret_cast<const float4*>(all_dz + r * L::kInner + gate * kClusterUnits);
#pragma unroll
          for (int u = 0; u < L::kUnits; ++u) {
#pragma unroll
            for (int w = 0; w < L::kWidth; ++w) {
              float& s = sum[r][u][w];
              s = fmaf(weights[u][w][4 * gate], x.x, s);
              s = fmaf(weights[u][w][4 * gate + 1], x.y, s);
              s = fmaf(weights[u][w][4 * gate + 2], x.z, s);
              s = fmaf(weights[u][w][4 * gate + 3], x.w, s);
            }
          }
        }
      }
      float part[kRows][L::kWidth];
      Sum::add(sum, lane, part);
      if (sends) {
#pragma unroll
        for (int r = 0; r < kRows; ++r) {
          if (r > 0 && r >= rows) break;
#pragma unroll
          for (int w = 0; w < L::kWidth; ++w) {
            send(to_parts + (r * kClusterUnits + w) * 4, part[r][w], to_barrier);
          }
        }
      }
    }
    if (valid) {
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) d_gates[gate * state] = rounded[gate];
    }
    d_gates += 3 * stride;
    if (later != nullptr && left > kClusterAhead) {
      prefetch_to_l2(later);
      later += later_stride;
    }
    to_parts += flip_parts;
    to_barrier += flip_barrier;
    own_dz += flip_dz;
    all_dz += flip_dz;
    flip_dz = -flip_dz;
    if (owns) {
      if (more) prepare();
      if (left > 2) fetch();  // it takes about a step to come
      if (more || wants_h) {
        await(barrier, parity);
        if (arms) expect(barrier, bytes);
        dh = sum_parts();
      }
    }
    barrier += flip_barrier;
    own_parts += static_cast<int>(flip_parts) / 4;
    flip_parts = 0u - flip_parts;
    flip_barrier = 0u - flip_barrier;
    parity ^= flip_barrier >> 31;  // behind the first buffer's turn
  }
  if (valid && wants_h) static_cast<T*>(a.d_initial_h)[element] = narrow<T>(dh);
  if (valid && a.d_initial_cell != nullptr) {
    static_cast<T*>(a.d_initial_cell)[element] = narrow<T>(carry);
  }
  __syncthreads();  // whole warps at the next one
  cluster_sync();   // nobody leaves while others may still write to it
#endif
}

}  // namespace lltm
