// Small states: the recurrent weights live in the registers of one block, which runs a few rows of
// the batch through the whole sequence. Blocks know nothing of one another.
//
// A thread holds the weights of a few units over a slice of the product's inner dimension; the
// lanes that share a unit's slices add up by shuffles. So one barrier a step is enough, behind the
// write of the new state to shared memory. A word read from shared memory costs a register write,
// and a multiprocessor does 32 of these a cycle beside 128 multiplications: each word must serve at
// least four products, hence several units a thread.
#include "../dispatch.h"
#include "launch.h"
#include "layer_device.h"
#include "layer_lane_sum.h"
#include "layer_registers.h"

namespace lltm {
namespace {

constexpr int kPrefetch = 8;  // steps that memory is asked ahead

// kUnits units a thread, over kVectors times four of every 4 * kLanes inner elements.
template <int kThreads_, int kUnits_, int kLanes_, int kVectors_>
struct Layout {
  static constexpr int kThreads = kThreads_;
  static constexpr int kUnits = kUnits_;
  static constexpr int kLanes = kLanes_;
  static constexpr int kVectors = kVectors_;
  static constexpr int kInner = 4 * kLanes * kVectors;  // padded
  static constexpr int kPaddedState = kThreads / kLanes * kUnits;
};

// Asks memory for what a row of the batch will read kPrefetch steps later, a line a thread.
template <typename T>
class Prefetch {
 public:
  // `data` points to the first step's first row of this block; all threads of the block take part.
  __device__ __forceinline__ Prefetch(const T* data, int64_t step_stride, int64_t elements,
                                      int64_t steps)
      : step_stride_(step_stride),
        at_(data + kPrefetch * step_stride + int64_t{threadIdx.x} * kLine),
        left_(data != nullptr && threadIdx.x * kLine < elements ? steps - kPrefetch : 0) {}

  __device__ __forceinline__ void step() {
    if (left_-- > 0) prefetch_to_l2(at_);
    at_ += step_stride_;
  }

 private:
  static constexpr int kLine = 128 / sizeof(T);
  int64_t step_stride_;
  const T* at_;
  int left_;
};

template <typename T, typename L, int kRows>
__global__ void __launch_bounds__(L::kThreads, 1)
    forward_kernel(const lltm_layer_forward_arguments a) {
  using Sum = LaneSum<L::kLanes, kRows, L::kUnits, 3>;
  constexpr int kOwn = Sum::kOwnRows;
  __shared__ __align__(16) float h[2][kRows][L::kInner];

  const int lane = threadIdx.x % L::kLanes;
  const int first_unit = threadIdx.x / L::kLanes * L::kUnits;
  const int state = static_cast<int>(a.sizes.state_size);
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int64_t plane = a.sizes.batch_size * state;
  const Walk walk = Walk::forward(a.sizes);

  float weights[L::kUnits][3][4 * L::kVectors];
#pragma unroll
  for (int u = 0; u < L::kUnits; ++u) {
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
#pragma unroll
      for (int i = 0; i < 4 * L::kVectors; ++i) {
        const int column = (i / 4 * L::kLanes + lane) * 4 + i % 4;
        const int unit = first_unit + u;
        weights[u][gate][i] =
            load_or_zero(static_cast<const T*>(a.weights),
                         (int64_t{gate} * state + unit) * a.sizes.weight_stride + column,
                         unit < state && column < state);
      }
    }
  }
  for (int i = threadIdx.x; i < kRows * L::kInner; i += L::kThreads) {
    const int64_t row = first_row + i / L::kInner;
    const int unit = i % L::kInner;
    h[0][i / L::kInner][unit] = load_or_zero(static_cast<const T*>(a.initial_h), row * state + unit,
                                             row < a.sizes.batch_size && unit < state);
    h[1][i / L::kInner][unit] = 0.0f;
  }

  const int unit = first_unit + Sum::unit(lane);
  const int own_row = Sum::row(lane);
  const int64_t gate_stride = walk.stride * 3 * plane;
  const int64_t state_stride = walk.stride * plane;
  bool valid[kOwn];
  bool writes[kOwn];
  float cell[kOwn];
  T ahead[kOwn][3] = {};  // the next step's gates
  T* gates[kOwn][3];
  T* output[kOwn];
  T* cells[kOwn];
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const int64_t row = first_row + own_row + r;
    valid[r] = unit < state && row < a.sizes.batch_size;
    writes[r] = valid[r] && Sum::first(lane);
    const int64_t element = row * state + unit;
    cell[r] = load_or_zero(static_cast<const T*>(a.initial_cell), element, valid[r]);
    output[r] = static_cast<T*>(a.output) + walk.first * plane + element;
    cells[r] = static_cast<T*>(a.cells) + walk.first * plane + element;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      gates[r][gate] = static_cast<T*>(a.gates) + (walk.first * plane + row * state) * 3 +
                       int64_t{gate} * state + unit;
      if (valid[r]) ahead[r][gate] = *gates[r][gate];
    }
  }
  Prefetch<T> prefetch(
      static_cast<const T*>(a.gates) + (walk.first * plane + first_row * state) * 3, gate_stride,
      min(int64_t{kRows}, a.sizes.batch_size - first_row) * 3 * state, a.sizes.steps);
  const bool keeps_cells = a.cells != nullptr;
  T new_h[kOwn] = {};
  int half = 0;
  __syncthreads();

  for (int left = static_cast<int>(a.sizes.steps); left > 0; --left) {
    const bool more = left > 1;
    const float (&old_h)[kRows][L::kInner] = h[half];
    half ^= 1;
    float sum[kRows][L::kUnits][3] = {};
#pragma unroll
    for (int v = 0; v < L::kVectors; ++v) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 x = reinterpret_cast<const float4*>(old_h[r])[v * L::kLanes + lane];
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
        if (valid[r] && more) ahead[r][gate] = gates[r][gate][gate_stride];
      }
      // What backward will read is what forward computes with.
      const auto next = CellFormulas<SwiftMath>::forward(widen(rounded[r][kInputGate]),
                                                         widen(rounded[r][kOutputGate]),
                                                         widen(rounded[r][kCandidate]), cell[r]);
      cell[r] = next.cell;
      new_h[r] = narrow<T>(next.h);
      if (writes[r]) h[half][own_row + r][unit] = widen(new_h[r]);
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        if (writes[r]) *gates[r][gate] = rounded[r][gate];
        gates[r][gate] += gate_stride;
      }
      if (writes[r]) {
        *output[r] = new_h[r];
        if (keeps_cells) *cells[r] = narrow<T>(cell[r]);
      }
      output[r] += state_stride;
      cells[r] += state_stride;
    }
    prefetch.step();
  }
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const int64_t element = (first_row + own_row + r) * state + unit;
    if (!writes[r]) continue;
    static_cast<T*>(a.final_h)[element] = new_h[r];
    static_cast<T*>(a.final_cell)[element] = narrow<T>(cell[r]);
  }
}

// dh of a step is dz of the step behind it times W_h: the inner dimension is that of dz, the gates
// one after another, each padded to the layout's state.
template <typename T, typename L, int kRows>
__global__ void __launch_bounds__(L::kThreads, 1)
    backward_kernel(const lltm_layer_backward_arguments a) {
  using Sum = LaneSum<L::kLanes, kRows, L::kUnits, 1>;
  constexpr int kOwn = Sum::kOwnRows;
  constexpr int kPadded = L::kPaddedState;
  static_assert(L::kInner == 3 * kPadded, "the inner dimension is that of dz");
  __shared__ __align__(16) float dz[2][kRows][L::kInner];

  const int lane = threadIdx.x % L::kLanes;
  const int first_unit = threadIdx.x / L::kLanes * L::kUnits;
  const int state = static_cast<int>(a.sizes.state_size);
  const int64_t first_row = int64_t{blockIdx.x} * kRows;
  const int64_t plane = a.sizes.batch_size * state;
  const Walk walk = Walk::backward(a.sizes);

  static_assert(L::kUnits % 4 == 0, "whole vectors of units");
  float weights[L::kUnits][4 * L::kVectors];
  const WeightReader<T> reader(a.weights, a.sizes);
#pragma unroll
  for (int i = 0; i < 4 * L::kVectors; ++i) {
    const int inner = (i / 4 * L::kLanes + lane) * 4 + i % 4;
#pragma unroll
    for (int u = 0; u < L::kUnits; u += 4) {
      float four[4];
      reader.read(inner / kPadded, inner % kPadded, first_unit + u, four);
#pragma unroll
      for (int x = 0; x < 4; ++x) weights[u + x][i] = four[x];
    }
  }
  for (int i = threadIdx.x; i < 2 * kRows * L::kInner; i += L::kThreads) (&dz[0][0][0])[i] = 0.0f;

  const int unit = first_unit + Sum::unit(lane);
  const int own_row = Sum::row(lane);
  const int64_t gate_stride = walk.stride * 3 * plane;
  const int64_t state_stride = walk.stride * plane;
  bool valid[kOwn];
  bool writes[kOwn];
  float carry[kOwn];   // dc of the step behind
  float grad_h[kOwn];  // of the step, but for the product
  float grad_cell[kOwn];
  StepSlopes slopes[kOwn];
  const T* gates[kOwn];
  const T* cells[kOwn];
  const T* grad_output[kOwn];
  const T* grad_cells[kOwn];
  T* d_gates[kOwn][3];
  const bool has_output = a.grad_output != nullptr;
  const bool has_cells = a.grad_cells != nullptr;
  struct Ahead {
    T z[3];
    T cell;
    T grad_output;
    T grad_cell;
  } ahead[kOwn] = {};
  const auto fetch = [&] {
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      if (!valid[r]) continue;
      ahead[r].z[0] = gates[r][0];
      ahead[r].z[1] = gates[r][state];
      ahead[r].z[2] = gates[r][2 * state];
      ahead[r].cell = *cells[r];
      if (has_output) ahead[r].grad_output = *grad_output[r];
      if (has_cells) ahead[r].grad_cell = *grad_cells[r];
    }
  };
  // Nothing here waits for the product.
  const auto prepare = [&] {
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const Ahead& now = ahead[r];
      slopes[r] = StepSlopes::of(widen(now.z[kInputGate]), widen(now.z[kOutputGate]),
                                 widen(now.z[kCandidate]), widen(now.cell));
      grad_h[r] = widen(now.grad_output);
      grad_cell[r] = widen(now.grad_cell) + carry[r];
    }
  };
  const auto product = [&](const float (&old_dz)[kRows][L::kInner], float (&dh)[kOwn][1]) {
    float sum[kRows][L::kUnits][1] = {};
#pragma unroll
    for (int v = 0; v < L::kVectors; ++v) {
#pragma unroll
      for (int r = 0; r < kRows; ++r) {
        const float4 x = reinterpret_cast<const float4*>(old_dz[r])[v * L::kLanes + lane];
#pragma unroll
        for (int u = 0; u < L::kUnits; ++u) {
          float& s = sum[r][u][0];
          s = fmaf(weights[u][4 * v], x.x, s);
          s = fmaf(weights[u][4 * v + 1], x.y, s);
          s = fmaf(weights[u][4 * v + 2], x.z, s);
          s = fmaf(weights[u][4 * v + 3], x.w, s);
        }
      }
    }
    Sum::add(sum, lane, dh);
  };
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    const int64_t row = first_row + own_row + r;
    valid[r] = unit < state && row < a.sizes.batch_size;
    writes[r] = valid[r] && Sum::first(lane);
    const int64_t element = row * state + unit;
    const int64_t first = walk.first * plane;
    gates[r] = static_cast<const T*>(a.gates) + (first + row * state) * 3 + unit;
    cells[r] = static_cast<const T*>(a.cells) + first + element;
    grad_output[r] = static_cast<const T*>(a.grad_output) + first + element;
    grad_cells[r] = static_cast<const T*>(a.grad_cells) + first + element;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      d_gates[r][gate] =
          static_cast<T*>(a.d_gates) + (first + row * state) * 3 + int64_t{gate} * state + unit;
    }
    carry[r] = load_or_zero(static_cast<const T*>(a.grad_final_cell), element, valid[r]);
  }
  fetch();
  prepare();
#pragma unroll
  for (int r = 0; r < kOwn; ++r) {
    grad_h[r] += load_or_zero(static_cast<const T*>(a.grad_final_h),
                              (first_row + own_row + r) * state + unit, valid[r]);
  }
  const int64_t rows = min(int64_t{kRows}, a.sizes.batch_size - first_row);
  const int64_t block = walk.first * plane + first_row * state;
  Prefetch<T> next_gates(static_cast<const T*>(a.gates) + block * 3, gate_stride, rows * 3 * state,
                         a.sizes.steps);
  Prefetch<T> next_cells(static_cast<const T*>(a.cells) + block, state_stride, rows * state,
                         a.sizes.steps);
  Prefetch<T> next_output(has_output ? static_cast<const T*>(a.grad_output) + block : nullptr,
                          state_stride, rows * state, a.sizes.steps);
  int half = 0;
  __syncthreads();

  for (int left = static_cast<int>(a.sizes.steps); left > 0; --left) {
    if (left > 1) {
#pragma unroll
      for (int r = 0; r < kOwn; ++r) {
        gates[r] += gate_stride;
        cells[r] += state_stride;
        grad_output[r] += state_stride;
        grad_cells[r] += state_stride;
      }
      fetch();
    }
    float dh[kOwn][1];
    product(dz[half], dh);  // dz is zero at the first
    half ^= 1;
    T rounded[kOwn][3];
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      const float all_dh = dh[r][0] + grad_h[r];
      carry[r] = fmaf(all_dh, slopes[r].d_cell, grad_cell[r]);
      rounded[r][kInputGate] = narrow<T>(carry[r] * slopes[r].input_gate);
      rounded[r][kOutputGate] = narrow<T>(all_dh * slopes[r].output_gate);
      rounded[r][kCandidate] = narrow<T>(carry[r] * slopes[r].candidate);
      if (!writes[r]) continue;
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        dz[half][own_row + r][gate * kPadded + unit] = widen(rounded[r][gate]);
      }
    }
    __syncthreads();
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        if (writes[r]) *d_gates[r][gate] = rounded[r][gate];
        d_gates[r][gate] += gate_stride;
      }
    }
    next_gates.step();
    next_cells.step();
    next_output.step();
    prepare();
  }
  if (a.d_initial_h != nullptr) {
    float dh[kOwn][1];
    product(dz[half], dh);
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      if (!writes[r]) continue;
      static_cast<T*>(a.d_initial_h)[(first_row + own_row + r) * state + unit] =
          narrow<T>(dh[r][0]);
    }
  }
  if (a.d_initial_cell != nullptr) {
#pragma unroll
    for (int r = 0; r < kOwn; ++r) {
      if (!writes[r]) continue;
      static_cast<T*>(a.d_initial_cell)[(first_row + own_row + r) * state + unit] =
          narrow<T>(carry[r]);
    }
  }
}

using Forward128 = Layout<256, 2, 4, 8>;
using Forward64 = Layout<128, 2, 4, 4>;
using Backward128 = Layout<256, 8, 16, 6>;
using Backward64 = Layout<128, 4, 8, 6>;
static_assert(Forward128::kPaddedState == 128 && Forward128::kInner == 128, "");
static_assert(Forward64::kPaddedState == 64 && Forward64::kInner == 64, "");
static_assert(Backward128::kPaddedState == 128 && Backward64::kPaddedState == 64, "");

int multiprocessors(int device) {
  int count = 0;
  cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
  return count > 0 ? count : 1;
}

// The two directions, as their launch sees them.
struct Forward {
  using Arguments = lltm_layer_forward_arguments;
  using Small = Forward64;
  using Large = Forward128;
  static constexpr const char* kName = "layer_forward";
  template <typename T, typename L, int kRows>
  static constexpr auto kKernel = forward_kernel<T, L, kRows>;
};
struct Backward {
  using Arguments = lltm_layer_backward_arguments;
  using Small = Backward64;
  using Large = Backward128;
  static constexpr const char* kName = "layer_backward";
  template <typename T, typename L, int kRows>
  static constexpr auto kKernel = backward_kernel<T, L, kRows>;
};

template <typename Direction, typename T, int kRows>
const char* launch(const typename Direction::Arguments& arguments, void* stream) {
  const auto blocks = static_cast<unsigned>(divide_up(arguments.sizes.batch_size, kRows));
  const auto run = [&](auto layout, auto kernel) {
    kernel<<<blocks, decltype(layout)::kThreads, 0, static_cast<cudaStream_t>(stream)>>>(arguments);
  };
  using Small = typename Direction::Small;
  using Large = typename Direction::Large;
  if (arguments.sizes.state_size <= Small::kPaddedState) {
    run(Small{}, Direction::template kKernel<T, Small, kRows>);
  } else {
    run(Large{}, Direction::template kKernel<T, Large, kRows>);
  }
  return error_text(Direction::kName, cudaGetLastError());
}

template <typename Direction>
const char* run(lltm_dtype dtype, const typename Direction::Arguments& arguments,
                const lltm_execution& execution) {
  return dispatch_dtype(dtype, [&](auto zero) -> const char* {
    using T = decltype(zero);
    if constexpr (sizeof(T) == 8) {
      return "lltm CUDA kernels: float64 has no persistent kernels for layers";
    } else {
      const DeviceScope device(execution.device_index);
      if (device.error() != cudaSuccess) return error_text(Direction::kName, device.error());
      // As few rows a block as fill the device once: a step takes longer with every row, but a
      // second wave of blocks would double the time.
      const int64_t rows =
          divide_up(arguments.sizes.batch_size, multiprocessors(execution.device_index));
      if (rows <= 1) return launch<Direction, T, 1>(arguments, execution.stream);
      if (rows <= 2) return launch<Direction, T, 2>(arguments, execution.stream);
      return launch<Direction, T, 4>(arguments, execution.stream);
    }
  });
}

}  // namespace

bool registers_fit(lltm_dtype dtype, const lltm_layer_sizes& sizes) {
  return dtype != LLTM_FLOAT64 && sizes.state_size <= Forward128::kPaddedState &&
         sizes.steps <= 0x7fffffff && divide_up(sizes.batch_size, 4) <= 0x7fffffff;
}

const char* registers_forward(lltm_dtype dtype, const lltm_layer_forward_arguments& arguments,
                              const lltm_execution& execution) {
  return run<Forward>(dtype, arguments, execution);
}

const char* registers_backward(lltm_dtype dtype, const lltm_layer_backward_arguments& arguments,
                               const lltm_execution& execution) {
  return run<Backward>(dtype, arguments, execution);
}

}  // namespace lltm
