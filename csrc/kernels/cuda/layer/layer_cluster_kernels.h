// The kernels of the family `cluster`. The blocks of a cluster divide the units of the state,
// kClusterUnits each, for up to kRows batch rows. A block keeps its weights in registers for the
// whole sequence. Clusters are independent of one another.
//
// The numbers that a block sends depend on all numbers that it has received before. So once a block
// has received all numbers of a step, every block has read all numbers of the step before.
// Two buffers with a barrier each are enough, and no block checks whether a buffer is free.
//
// A step waits for the numbers of the step before. Other work, such as stores and the next step's
// addresses, runs after the sends, while the numbers are under way.
#pragma once

#include "../../lltm_kernels.h"
#include "layer_element.h"

namespace lltm {

constexpr int kClusterUnits = 32;  // units of the state per block

// Forward: kLanes lanes divide the inner dimension S for the three gates of kUnits units.
template <int kThreads, int kLanes, int kVectors, int kUnits>
struct ClusterForward : LaneLayout<kThreads, kUnits, kLanes, kVectors> {
  static constexpr int kMaxBlocks = ClusterForward::kInner / kClusterUnits;
  static_assert(ClusterForward::kPaddedState == kClusterUnits, "a block's threads cover its units");
};

// Backward: a block holds the rows of W_h for the three gates of its own units. It multiplies only
// its own dz, and sends each block the part of dh for that block's units. Eight lanes divide the
// block's dz; a group of eight makes 8 * kWidth units of dh. kFinishers additional warps turn dh
// into dz, so that preparations and stores delay no product. With kFinishers = 0, which saves
// registers, the first warps multiply and also turn dh into dz.
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

#if __CUDA_ARCH__ >= 900

// Exchange of numbers between the blocks of a cluster. A block writes into every block's shared
// memory, its own included, and each number that arrives counts towards the bytes that the barrier
// there expects. The code is PTX, so that a compiler without CUDA's cluster headers can build it.

// The 32-bit PTX address of an object in this block's shared memory.
LLTM_DEVICE uint32_t shared_address(const void* pointer) {
  return static_cast<uint32_t>(__cvta_generic_to_shared(pointer));
}

// threadIdx.x, kept in a register: the compiler would otherwise read it again, slowly, at each use.
LLTM_DEVICE int thread_index() {
  int index;
  asm volatile("mov.u32 %0, %%tid.x;" : "=r"(index));
  return index;
}

// The address in block `rank` of the cluster that corresponds to `address` in this block.
LLTM_DEVICE uint32_t address_in(uint32_t address, int rank) {
  uint32_t remote;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(remote) : "r"(address), "r"(rank));
  return remote;
}

LLTM_DEVICE void cluster_sync() {
  asm volatile(
      "barrier.cluster.arrive.release.aligned;\n\tbarrier.cluster."
      "wait.acquire.aligned;" ::
          : "memory");
}

// Makes a barrier for one arrival, that of `expect`, and for the bytes that `expect` names.
LLTM_DEVICE void make_barrier(uint32_t barrier) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(barrier) : "memory");
}

// Makes the barriers visible to the other blocks, together with a cluster_sync that follows.
LLTM_DEVICE void show_barriers() {
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}

LLTM_DEVICE void expect(uint32_t barrier, int bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(barrier), "r"(bytes)
               : "memory");
}

// Waits until the barrier's phase of this parity has ended.
LLTM_DEVICE void await(uint32_t barrier, uint32_t parity) {
  uint32_t done = 0;
  while (done == 0) {
    asm volatile(
        "{\n\t.reg .pred complete;\n\t"
        "mbarrier.try_wait.parity.shared::cta.b64 complete, [%1], %2;\n\t"
        "selp.u32 %0, 1, 0, complete;\n\t}"
        : "=r"(done)
        : "r"(barrier), "r"(parity)
        : "memory");
  }
}

// Both addresses lie in the receiver's memory; see address_in.
LLTM_DEVICE void send(uint32_t address, float value, uint32_t barrier) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 "
      "[%0], %1, [%2];" ::"r"(address),
      "r"(__float_as_uint(value)), "r"(barrier)
      : "memory");
}

// The barriers of two buffers. The blocks fill the buffers alternately, the second buffer first.
class BufferBarriers {
 public:
  uint32_t flip = static_cast<uint32_t>(-8);  // bytes from the next barrier to the other barrier

  // `arms` is true in the thread that makes the barriers. Each barrier waits for `bytes` bytes per
  // turn. cluster_sync must follow.
  LLTM_DEVICE BufferBarriers(const uint64_t (&barriers)[2], int bytes, bool arms)
      : second_(shared_address(barriers) + 8), next_(second_), bytes_(bytes), arms_(arms) {
    if (!arms) return;
    make_barrier(second_ - 8);
    make_barrier(second_);
    expect(second_ - 8, bytes);
    expect(second_, bytes);
    show_barriers();
  }
  LLTM_DEVICE uint32_t second() const { return second_; }

  // Waits until the next buffer is full.
  LLTM_DEVICE void wait() {
    await(next_, parity_);
    if (arms_) expect(next_, bytes_);
  }
  LLTM_DEVICE void turn() {
    next_ += flip;
    flip = 0u - flip;
    parity_ ^= flip >> 31;  // changes after the first buffer's turn
  }

 private:
  uint32_t second_;
  uint32_t next_;
  uint32_t parity_ = 0;
  int bytes_;
  bool arms_;
};

// The units and the batch rows of a block.
struct ClusterPlace {
  int blocks;  // of the cluster
  int rank;    // of this block in its cluster
  int first_unit;
  int64_t first_row;
  int rows;

  LLTM_DEVICE ClusterPlace(const lltm_layer_sizes& sizes, int rows_each)
      : blocks(static_cast<int>((sizes.state_size + kClusterUnits - 1) / kClusterUnits)),
        rank(static_cast<int>(blockIdx.x) % blocks),
        first_unit(rank * kClusterUnits),
        first_row(static_cast<int>(blockIdx.x) / blocks * int64_t{rows_each}),
        rows(static_cast<int>(min(int64_t{rows_each}, sizes.batch_size - first_row))) {}

  // The bytes that a block receives in a step: from each block, kClusterUnits floats for each row.
  LLTM_DEVICE int step_bytes() const { return rows * blocks * kClusterUnits * 4; }
};

// The addresses to which a thread sends its elements of h: the same place in up to kSends blocks.
template <int kSends>
struct ForwardTargets {
  uint32_t h[kSends];
  uint32_t barrier[kSends];
  bool sends[kSends];

  // `copies` lanes have the same elements and divide the receiving blocks. `offset` is in bytes.
  LLTM_DEVICE ForwardTargets(uint32_t h_address, uint32_t barrier_address, int offset, int copy,
                             int copies, int blocks) {
    unrolled<kSends>([&](int i) {
      const int other = copy + i * copies;
      sends[i] = other < blocks;
      const int receiver = sends[i] ? other : 0;
      h[i] = address_in(h_address, receiver) + offset;
      barrier[i] = address_in(barrier_address, receiver);
    });
  }
  LLTM_DEVICE void send_all(int offset, float value) const {
    unrolled<kSends>([&](int i) {
      if (sends[i]) send(h[i] + offset, value, barrier[i]);
    });
  }
  LLTM_DEVICE void move(uint32_t h_bytes, uint32_t barrier_bytes) {
    unrolled<kSends>([&](int i) {
      h[i] += h_bytes;
      barrier[i] += barrier_bytes;
    });
  }
};

// Returns a Prefetch of one line of gates, cells or grad_output. Past their lines, it does nothing.
template <typename T>
LLTM_DEVICE Prefetch<T> prefetch_line(const lltm_layer_backward_arguments& a,
                                      const ClusterPlace& place, int line) {
  const auto of = [&](const void* tensor, int64_t vectors, int64_t row) {
    return Prefetch<T>(tensor, vectors, Walk(a.sizes, true),
                       (vectors * place.first_row + row) * a.sizes.state_size + place.first_unit,
                       true);
  };
  const int rows = place.rows;
  if (line < kGateCount * rows) return of(a.gates, kGateCount, line);
  if (line < 4 * rows) return of(a.cells, 1, line - 3 * rows);
  return of(line < 5 * rows ? a.grad_output : nullptr, 1, line - 4 * rows);
}

#endif

template <typename T, typename L, int kRows>
__global__ void __launch_bounds__(L::kThreads, 1)
    cluster_forward_kernel(const lltm_layer_forward_arguments a, int rows_each) {
#if __CUDA_ARCH__ >= 900
  using Sum = LaneSum<L::kLanes, kRows, L::kUnits, kGateCount>;
  constexpr int kOwn = Sum::kOwnRows;
  constexpr int kCopies = Sum::kCopies;
  constexpr int kSends = (L::kMaxBlocks + kCopies - 1) / kCopies;
  constexpr int kBuffer = kRows * L::kInner;
  __shared__ __align__(16) float h[2][kBuffer];
  __shared__ __align__(8) uint64_t barriers[2];

  const ClusterPlace place(a.sizes, rows_each);
  const int rows = place.rows;
  const int thread = thread_index();
  const int lane = thread % L::kLanes;
  const int first_unit = place.first_unit + thread / L::kLanes * L::kUnits;
  float weights[L::kUnits][kGateCount][4 * L::kVectors];
  load_forward_weights<T, L>(a, first_unit, lane, weights);
  load_initial_h<T, L>(a, place.first_row, rows, h);
  BufferBarriers arrivals(barriers, place.step_bytes(), thread == 0);

  const int unit = first_unit + Sum::unit(lane);
  const int own_row = Sum::row(lane);
  const int copy = lane % kCopies;
  // The first step writes the second buffer.
  ForwardTargets<kSends> targets(shared_address(h), arrivals.second(),
                                 (kBuffer + own_row * L::kInner + unit) * 4, copy, kCopies,
                                 place.blocks);
  uint32_t flip_h = static_cast<uint32_t>(-kBuffer * 4);
  ForwardUnit<T, kOwn> own(a, place.first_row + own_row, rows - own_row, unit, copy == 0);
  // A line holds one gate of one row for all units of this block.
  Prefetch<T> later(a.gates, kGateCount, Walk(a.sizes, false),
                    (kGateCount * place.first_row + thread) * a.sizes.state_size + place.first_unit,
                    thread < kGateCount * rows);
  const float* old_h = h[0] + lane * 4;
  cluster_sync();

  for (int left = static_cast<int>(a.sizes.steps); left > 0; --left) {
    const bool more = left > 1;
    float products[kOwn][kGateCount];
    multiply_rows<L::kLanes, kRows, L::kInner>(weights, old_h, rows, lane, products);
    own.step(products, more);
    if (more) {
      unrolled<kOwn>([&](int r) {
        if (own_row + r < rows) targets.send_all(r * L::kInner * 4, own.h(r));
      });
    }
    own.store();
    later.step(left);
    if (!more) break;
    targets.move(flip_h, arrivals.flip);
    old_h -= static_cast<int>(flip_h) / 4;
    flip_h = 0u - flip_h;
    arrivals.wait();
    arrivals.turn();
  }
  own.store_final(a);
  cluster_sync();  // no block ends while other blocks may still write to its memory
#endif
}

template <typename T, typename L, int kRows>
__global__ void __launch_bounds__(L::kThreads, 1)
    cluster_backward_kernel(const lltm_layer_backward_arguments a, int rows_each) {
#if __CUDA_ARCH__ >= 900
  using Sum = LaneSum<L::kLanes, kRows, L::kUnits, L::kWidth>;
  static_assert(L::kFinishers == 0 || L::kFinishers == kRows, "one finishing warp per row");
  static_assert(Sum::kOwnRows == kRows, "LaneSum must leave every lane with all rows");
  constexpr int kElements = kRows * kClusterUnits;  // elements of this block
  constexpr int kDz = kRows * L::kInner;
  constexpr int kBuffer = L::kMaxBlocks * kElements;
  __shared__ __align__(16) float dz[2][kDz];
  __shared__ __align__(16) float parts[2][kBuffer];  // parts of dh, by sending block
  __shared__ __align__(8) uint64_t barriers[2];

  const ClusterPlace place(a.sizes, rows_each);
  const int rows = place.rows;
  const int blocks = place.blocks;
  const int thread = thread_index();
  const int lane = thread % L::kLanes;
  const int group_unit = thread / L::kLanes * L::kUnits * L::kWidth;
  // This thread's index among the block's own elements; negative in warps that only multiply.
  const int element = thread - (L::kFinishers == 0 ? 0 : static_cast<int>(blockDim.x) - kElements);
  const bool multiplies = L::kFinishers == 0 || element < 0;
  const int state = static_cast<int>(a.sizes.state_size);
  const bool makes_d_h = a.d_initial_h != nullptr;  // from dz of the step that runs last
  float weights[L::kUnits][L::kWidth][L::kInner / L::kLanes];
  load_backward_weights<T>(a, group_unit, weights, [&](int i) {
    const int unit = place.first_unit + lane * 4 + i % 4;  // one of this block's units
    return multiplies && unit < state ? i / 4 * state + unit : -1;
  });
  BufferBarriers arrivals(barriers, place.step_bytes(), element == 0);

  // This lane's sums go to the block that owns their units. The sums of the last step, which runs
  // first, go to the second buffer.
  const int sum_unit = group_unit + Sum::unit(lane) * L::kWidth;
  const int owner = sum_unit / kClusterUnits;
  const bool sends = multiplies && owner < blocks;
  uint32_t to_parts = address_in(shared_address(parts), sends ? owner : 0) +
                      (kBuffer + place.rank * kElements + sum_unit % kClusterUnits) * 4;
  uint32_t to_barrier = address_in(arrivals.second(), sends ? owner : 0);
  uint32_t flip_parts = static_cast<uint32_t>(-kBuffer * 4);
  int flip_dz = kDz;

  const int own_row = element / kClusterUnits;
  const int own_unit = element % kClusterUnits;
  const bool owns = element >= 0 && own_row < rows;  // one value per warp
  BackwardUnit<T, 1> own(a, place.first_row + own_row, owns ? 1 : 0, place.first_unit + own_unit,
                         true);
  if (a.sizes.steps > 1) own.fetch();
  auto later = prefetch_line<T>(a, place, element >= 0 ? element : 5 * rows);
  float* own_dz = dz[0] + own_row * L::kInner + own_unit;
  const float* all_dz = dz[0] + lane * 4;
  const float* own_parts = parts[1] + element;  // the next step's parts
  const auto sum_parts = [&] {
    float total[2] = {};
    unrolled<L::kMaxBlocks>([&](int block) {
      if (block < blocks) total[block % 2] += own_parts[block * kElements];
    });
    return total[0] + total[1];
  };
  float dh = 0.0f;  // without the gradient of the output
  cluster_sync();

  for (int left = static_cast<int>(a.sizes.steps); left > 0; --left) {
    const bool more = left > 1;
    if (owns) {
      own.step(0, dh);
      unrolled<kGateCount>(
          [&](int gate) { own_dz[gate * kClusterUnits] = own.valid(0) ? own.d_z(0, gate) : 0.0f; });
    }
    __syncthreads();
    if (multiplies && (more || makes_d_h)) {
      float part[kRows][L::kWidth];
      multiply_rows<L::kLanes, kRows, L::kInner>(weights, all_dz, rows, lane, part);
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        if (!sends || (r > 0 && r >= rows)) break;
        unrolled<L::kWidth>(
            [&](int w) { send(to_parts + (r * kClusterUnits + w) * 4, part[r][w], to_barrier); });
      }
    }
    own.store();
    later.step(left);
    to_parts += flip_parts;
    to_barrier += arrivals.flip;
    own_dz += flip_dz;
    all_dz += flip_dz;
    flip_dz = -flip_dz;
    if (owns) {
      if (more) own.prepare();
      if (left > 2) own.fetch();  // the reads take about a step
      if (more || makes_d_h) {
        arrivals.wait();
        dh = sum_parts();
      }
    }
    arrivals.turn();
    own_parts += static_cast<int>(flip_parts) / 4;
    flip_parts = 0u - flip_parts;
  }
  if (own.valid(0) && makes_d_h) own.store_d_initial_h(a, 0, dh);
  own.store_d_initial_cell(a);
  __syncthreads();  // the next barrier needs whole warps
  cluster_sync();   // as in forward
#endif
}

}  // namespace lltm
