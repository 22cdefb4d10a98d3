// The kernels of the family `grid`. A block owns some units of the state for a slice of the batch,
// and keeps their weights in registers and shared memory; what does not fit, StreamedEngine reads
// again in each step. The blocks of one slice exchange states, which are d_gates in backward,
// through the tensor that they write anyway; see layer_grid_pieces.h. Slices are independent of one
// another. A slice is divided into chunks of a few batch rows. Chunks are independent as well, so
// work on other chunks hides the exchange of one chunk.
//
// There are two roles. The Multiplier makes a chunk's products, as one partial sum per warp. The
// finisher adds the partial sums, computes the formulas and publishes the results. If the engine's
// kFinishWarps is not 0, this number of warps only finish chunks, while the other warps multiply
// the next chunk, if there is one. Otherwise each warp has both roles, one after the other.
//
// shape_grid ensures that all blocks run at once, since the blocks of a slice wait for one another.
#pragma once

#include "layer.h"
#include "layer_grid_exact.h"
#include "layer_grid_finish.h"
#include "layer_grid_streamed.h"
#include "layer_grid_tensor.h"

namespace lltm {

template <typename Engine>
constexpr int kGridThreads = 32 * (kWarps + Engine::kFinishWarps);

// Named barriers for `threads` threads of a block. `barrier` must not be 0, which belongs to
// __syncthreads. arrive_at does not wait.
template <int threads>
LLTM_DEVICE void arrive_at(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}
template <int threads>
LLTM_DEVICE void wait_at(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

// Cycles to wait before a block reads the words that other blocks write in the same step. A block
// must repeat a read that comes too early, which costs one more trip to L2. These values come from
// measurements on an H200. They affect only the speed.
constexpr int kPatience = 600;        // after the block's own products
constexpr int kRowPatience = 12;      // in addition, per row
constexpr int kHandedPatience = 400;  // after other warps have finished the chunk

LLTM_DEVICE uint32_t cycles() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
  return now;
}
LLTM_DEVICE void wait_since(uint32_t start, int patience) {
  while (cycles() - start < static_cast<uint32_t>(patience)) {
  }
}

// The products of the steps [first, end), numbered as they run. Step 0 multiplies `initial`; it has
// no product in backward or without an initial h. Each later step multiplies the states, or dz in
// backward, that the step before it has written to `written`. If backward must compute the gradient
// of the initial h, one more product makes it, from dz of the step that runs last.
template <typename T>
struct GridProducts {
  const T* initial;
  const T* written;
  int first;
  int end;

  template <typename Arguments, typename Place>
  LLTM_DEVICE static GridProducts of(const Arguments& a, const Place& place) {
    const int64_t row = place.first_row * place.state;
    const int64_t first = place.walk.first + row;
    if constexpr (kIsBackward<Arguments>) {
      return {nullptr, static_cast<const T*>(a.d_gates) + kGateCount * first, 1,
              place.steps + (a.d_initial_h != nullptr ? 1 : 0)};
    } else {
      return {static_cast<const T*>(a.initial_h) + row, static_cast<const T*>(a.output) + first,
              a.initial_h != nullptr ? 0 : 1, place.steps};
    }
  }
};

// The role that waits for the states of other blocks, and multiplies them by the block's weights.
template <typename T, typename Engine, bool backward>
class Multiplier {
 public:
  using Shared = GridShared<Engine>;
  using Place = GridPlace<Engine, backward>;

  LLTM_DEVICE Multiplier(const Place& place, const WeightRows<T, backward>& weights,
                         const Shared& shared, const GridProducts<T>& products)
      : engine_(weights, shared.memory),
        place_(place),
        products_(products),
        next_{products.first, 0, place.chunks} {
    constexpr int kTimes = backward ? kGateCount : 1;
    source_ = {products.first == 0 ? products.initial : products.written,
               int64_t{kTimes} * place.state, place.rows, products.first > 0};
  }

  LLTM_DEVICE bool done() const { return next_.step >= products_.end; }
  LLTM_DEVICE int step() const { return next_.step; }

  // Starts to read the states of the next product.
  LLTM_DEVICE void issue() { engine_.issue(source_); }

  // Makes the products of the chunk for which `issue` was called. If `ahead` is true, also calls
  // `issue` for the next product, if there is one. TensorEngine::multiply describes `free`.
  template <typename Free>
  LLTM_DEVICE void multiply(float* partials, bool ahead, const Free& free) {
    Source<T> next_source = source_;
    GridPosition next = next_;
    next.advance();
    if (next.chunk == 0 && next.step == 1) {
      next_source.data = products_.written;
      next_source.wait = true;
    } else {
      next_source.data += (backward ? place_.gate_stride : place_.state_stride).from(next_);
    }
    next_source.rows = place_.rows - next.chunk * Shared::kRows;
    engine_.multiply(source_, next_source, ahead && next.step < products_.end,
                     partials + warp_index() * Shared::kPartial, free);
    source_ = next_source;
    next_ = next;
  }

 private:
  Engine engine_;
  const Place& place_;
  const GridProducts<T> products_;
  GridPosition next_;
  Source<T> source_;
};

template <typename T, typename Engine, bool backward, typename Finish>
__global__ void __launch_bounds__(kGridThreads<Engine>, 1)
    grid_kernel(const typename Finish::Arguments a, int slice, int resident, int kept) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) float memory[];
  using Shared = GridShared<Engine>;
  const Shared shared(memory, slice, a.workspace, resident, kept);
  const GridPlace<Engine, backward> place(a.sizes, slice);
  const auto products = GridProducts<T>::of(a, place);
  const WeightRows<T, backward> weights = {static_cast<const T*>(a.weights), a.sizes.weight_stride,
                                           place.state, place.first_unit};
  const int last = products.end > place.steps ? products.end : place.steps;
  const bool many = !Engine::kOneChunk && place.chunks > 1;
  // If clang called this as a function, all that it refers to would stay in memory.
  const auto make_multiplier = [&]() __attribute__((always_inline)) {
    return Multiplier<T, Engine, backward>(place, weights, shared, products);
  };
  if constexpr (Engine::kFinishWarps > 0) {
    const auto partials = [&](int turn) {
      return shared.partials + turn * (kWarps * Shared::kPartial);
    };
    constexpr int kThreads = kGridThreads<Engine>;
    constexpr int kFull = 1;   // barriers 1 and 2: the products of a turn are ready
    constexpr int kEmpty = 3;  // barriers 3 and 4: the finishing warps have read these products
    int turn = 0;
    if (threadIdx.x < 32 * kWarps) {
      auto multiplier = make_multiplier();
      int made = 0;
      if (!multiplier.done()) multiplier.issue();
      while (!multiplier.done()) {
        multiplier.multiply(partials(turn), many, [&] {
          if (many && made >= 2) wait_at<kThreads>(kEmpty + turn);
        });
        arrive_at<kThreads>(kFull + turn);
        // With one chunk, the next product needs the results of the finishing warps. An earlier
        // read would slow these warps down.
        if (!many && !multiplier.done()) {
          wait_at<kThreads>(kEmpty + turn);
          wait_since(cycles(), kHandedPatience);
          multiplier.issue();
        }
        ++made;
        turn ^= 1;
      }
    } else {
      Finish finisher(a, place, shared.carried);
      // How often the multiplying warps still wait at kEmpty: before they overwrite products or,
      // with one chunk, before they read states.
      int waits = (products.end - products.first) * place.chunks - (many ? 2 : 1);
      for (int step = 0; step < last; ++step) {
        const bool has_product = step >= products.first;
        for (int chunk = 0; chunk < place.chunks; ++chunk) {
          finisher.prepare();
          if (has_product) wait_at<kThreads>(kFull + turn);
          finisher.finish(partials(turn), has_product);
          if (!has_product) continue;
          if (waits-- > 0) arrive_at<kThreads>(kEmpty + turn);
          turn ^= 1;
        }
      }
    }
  } else {
    auto multiplier = make_multiplier();
    Finish finisher(a, place, shared.carried);
    if (products.first == 0) multiplier.issue();
    for (int step = 0; step < last; ++step) {
      const bool has_product = step >= products.first;
      for (int chunk = 0; chunk < place.chunks; ++chunk) {
        finisher.prepare();
        // All warps have finished the chunk before, whose products are overwritten.
        if (has_product) multiplier.multiply(shared.partials, many, [] { __syncthreads(); });
        __syncthreads();
        const uint32_t summed = cycles();
        finisher.finish(shared.partials, has_product);
        const bool next_has_product =
            !multiplier.done() && multiplier.step() <= step + (chunk + 1 == place.chunks ? 1 : 0);
        if (next_has_product && !(has_product && many)) {
          if (!many) wait_since(summed, kPatience + kRowPatience * place.rows);
          multiplier.issue();
        }
      }
    }
  }
#endif
}

}  // namespace lltm
