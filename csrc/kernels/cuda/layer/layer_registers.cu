// The family `registers`, for small states: each block keeps all recurrent weights in its
// registers, and runs a few batch rows through the whole sequence. Blocks are independent of one
// another.
//
// A thread holds the weights of a few units over a slice of the product's inner dimension. The
// lanes with the same units add up their sums by shuffles. So a step needs only one barrier, after
// the threads have written the new h, or dz in backward, to shared memory. In a cycle, a
// multiprocessor can read 32 words of shared memory and do 128 multiplications. So a thread has
// several units, and uses each word in at least four products.
#include <algorithm>
#include <type_traits>

#include "../common/launch.h"
#include "layer.h"
#include "layer_element.h"

namespace lltm {
inline namespace layer_registers_cu {

// Returns a Prefetch of `rows` rows of each step of a tensor (T, B, vectors, S), one cache line per
// thread. Without a tensor, the Prefetch does nothing.
template <typename T>
LLTM_DEVICE Prefetch<T> prefetch_rows(const void* tensor, int64_t vectors, int64_t state,
                                      const Walk& walk, int64_t first_row, int rows) {
  const int64_t line = int64_t{threadIdx.x} * Prefetch<T>::kLine;
  const int64_t row = vectors * state;
  return Prefetch<T>(tensor, vectors, walk, first_row * row + line, line < rows * row);
}

template <typename T, typename L, int kRows>
__global__ void __launch_bounds__(L::kThreads, 1)
    registers_kernel(const lltm_layer_forward_arguments a) {
  using Sum = LaneSum<L::kLanes, kRows, L::kUnits, kGateCount>;
  __shared__ __align__(16) float h[2][kRows * L::kInner];

  const int lane = threadIdx.x % L::kLanes;
  const int first_unit = threadIdx.x / L::kLanes * L::kUnits;
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int rows = static_cast<int>(min(int64_t{kRows}, a.sizes.batch_size - first_row));
  float weights[L::kUnits][kGateCount][4 * L::kVectors];
  load_forward_weights<T, L>(a, first_unit, lane, weights);
  load_initial_h<T, L>(a, first_row, rows, h);

  const int unit = first_unit + Sum::unit(lane);
  const int own_row = Sum::row(lane);
  ForwardUnit<T, Sum::kOwnRows> own(a, first_row + own_row, rows - own_row, unit,
                                    lane % Sum::kCopies == 0);
  auto later_gates = prefetch_rows<T>(a.gates, kGateCount, a.sizes.state_size, Walk(a.sizes, false),
                                      first_row, rows);
  int half = 0;
  __syncthreads();

  for (int left = static_cast<int>(a.sizes.steps); left > 0; --left) {
    const float* const old_h = h[half] + lane * 4;
    half ^= 1;
    float products[Sum::kOwnRows][kGateCount];
    multiply_rows<L::kLanes, kRows, L::kInner>(weights, old_h, kRows, lane, products);
    own.step(products, left > 1);
    unrolled<Sum::kOwnRows>([&](int r) {
      if (own.writes(r)) h[half][(own_row + r) * L::kInner + unit] = own.h(r);
    });
    __syncthreads();
    own.store();
    later_gates.step(left);
  }
  own.store_final(a);
}

// Each step multiplies the dz of the step that ran before it by W_h. The inner dimension is that of
// dz: one gate after another, each padded to the layout's state.
template <typename T, typename L, int kRows>
__global__ void __launch_bounds__(L::kThreads, 1)
    registers_kernel(const lltm_layer_backward_arguments a) {
  using Sum = LaneSum<L::kLanes, kRows, L::kUnits, 1>;
  constexpr int kOwn = Sum::kOwnRows;
  static_assert(L::kInner == kGateCount * L::kPaddedState, "the inner dimension is that of dz");
  __shared__ __align__(16) float dz[2][kRows][L::kInner];

  const int lane = threadIdx.x % L::kLanes;
  const int first_unit = threadIdx.x / L::kLanes * L::kUnits;
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int rows = static_cast<int>(min(int64_t{kRows}, a.sizes.batch_size - first_row));
  const int state = static_cast<int>(a.sizes.state_size);
  float weights[L::kUnits][1][4 * L::kVectors];
  // A lane holds four of every 4 * L::kLanes rows of W_h.
  load_backward_weights<T>(a, first_unit, weights, [&](int i) {
    const int inner = (i / 4 * L::kLanes + lane) * 4 + i % 4;
    const int unit = inner % L::kPaddedState;
    return unit < state ? inner / L::kPaddedState * state + unit : -1;
  });
  for (int i = threadIdx.x; i < 2 * kRows * L::kInner; i += L::kThreads) (&dz[0][0][0])[i] = 0.0f;

  const int unit = first_unit + Sum::unit(lane);
  const int own_row = Sum::row(lane);
  BackwardUnit<T, kOwn> own(a, first_row + own_row, rows - own_row, unit, lane % Sum::kCopies == 0);
  const Walk walk(a.sizes, true);
  auto later_gates = prefetch_rows<T>(a.gates, kGateCount, state, walk, first_row, rows);
  auto later_cells = prefetch_rows<T>(a.cells, 1, state, walk, first_row, rows);
  auto later_grads = prefetch_rows<T>(a.grad_output, 1, state, walk, first_row, rows);
  // If clang called this as a function, the weights would stay in memory.
  const auto product = [&](const float (&from)[kRows][L::kInner],
                           float (&dh)[kOwn][1]) __attribute__((always_inline)) {
    multiply_rows<L::kLanes, kRows, L::kInner>(weights, from[0] + lane * 4, kRows, lane, dh);
  };
  int half = 0;
  __syncthreads();

  float dh[kOwn][1];
  for (int left = static_cast<int>(a.sizes.steps); left > 0; --left) {
    if (left > 1) own.fetch();
    product(dz[half], dh);  // dz is zero in the first step that runs
    half ^= 1;
    unrolled<kOwn>([&](int r) {
      own.step(r, dh[r][0]);
      if (!own.writes(r)) return;
      unrolled<kGateCount>([&](int gate) {
        dz[half][own_row + r][gate * L::kPaddedState + unit] = own.d_z(r, gate);
      });
    });
    __syncthreads();
    own.store();
    later_gates.step(left);
    later_cells.step(left);
    later_grads.step(left);
    own.prepare();
  }
  if (a.d_initial_h != nullptr) {
    product(dz[half], dh);
    unrolled<kOwn>([&](int r) {
      if (own.writes(r)) own.store_d_initial_h(a, r, dh[r][0]);
    });
  }
  own.store_d_initial_cell(a);
}

using Forward128 = LaneLayout<256, 2, 4, 8>;
using Forward64 = LaneLayout<128, 2, 4, 4>;
using Backward128 = LaneLayout<256, 8, 16, 6>;
using Backward64 = LaneLayout<128, 4, 8, 6>;
static_assert(Forward128::kPaddedState == 128 && Forward128::kInner == 128, "");
static_assert(Forward64::kPaddedState == 64 && Forward64::kInner == 64, "");
static_assert(Backward128::kPaddedState == 128 && Backward64::kPaddedState == 64, "");

template <typename T, int kRows, typename Arguments>
void launch(const Arguments& arguments, cudaStream_t stream) {
  constexpr bool kBackward = kIsBackward<Arguments>;
  const auto run = [&](auto layout) {
    using L = decltype(layout);
    const auto blocks = static_cast<unsigned>(divide_up(arguments.sizes.batch_size, kRows));
    registers_kernel<T, L, kRows><<<blocks, L::kThreads, 0, stream>>>(arguments);
  };
  if (arguments.sizes.state_size <= Forward64::kPaddedState) {
    run(std::conditional_t<kBackward, Backward64, Forward64>{});
  } else {
    run(std::conditional_t<kBackward, Backward128, Forward128>{});
  }
}

}  // namespace layer_registers_cu

static bool registers_fit(const LayerProblem& problem) {
  const lltm_layer_sizes& sizes = problem.sizes;
  return problem.dtype != LLTM_FLOAT64 && sizes.state_size <= Forward128::kPaddedState &&
         sizes.steps <= 0x7fffffff && divide_up(sizes.batch_size, 4) <= 0x7fffffff;
}

template <typename Arguments>
static const char* run_registers(lltm_dtype dtype, const Arguments& arguments,
                                 const lltm_execution& execution) {
  return launch_on(execution, kLayerName<Arguments>, dtype, [&](auto zero, cudaStream_t stream) {
    using T = decltype(zero);
    if constexpr (sizeof(T) <= 4) {  // registers_fit refuses float64
      // Blocks take 1, 2 or 4 rows: the fewest with which all blocks run at once, or else 4. A step
      // takes longer with every row, but a second wave of blocks doubles the time.
      const int blocks = device_fact(cudaDevAttrMultiProcessorCount, execution.device_index);
      const int64_t rows = divide_up(arguments.sizes.batch_size, std::max(blocks, 1));
      const auto launch_rows = rows <= 1   ? launch<T, 1, Arguments>
                               : rows <= 2 ? launch<T, 2, Arguments>
                                           : launch<T, 4, Arguments>;
      launch_rows(arguments, stream);
    }
  });
}

LayerFamily registers_family = {
    "registers", registers_fit, run_registers<lltm_layer_forward_arguments>,
    run_registers<lltm_layer_backward_arguments>,
    "lltm: LLTM_LAYER_KERNELS=registers cannot run this problem: it needs float32, float16 or "
    "bfloat16 and a state of at most 128; unset it"};

}  // namespace lltm
