// The kernels of the family `grid`. A block owns kUnits units of the state for a slice of the
// batch, and its weights stay in registers. Blocks of one slice hand their states to one another
// through the tensor that is written anyway; see layer_exchange.h. Slices know nothing of one
// another. A slice is taken in chunks of a few rows of the batch; chunks do not depend on one
// another, so one chunk's exchange hides behind the others' work.
//
// All blocks must run at once, which the launch demands and the driver grants or refuses.
#pragma once

#include "../lltm_kernels.h"
#include "layer_engines.h"

namespace lltm {

constexpr int kPrefetchSteps = 4;

template <typename Engine>
struct GridShared {
  static constexpr int kRows = Engine::kTiles * kTileRows;  // a chunk
  static constexpr int kPartial = Engine::kGates * kRows * kUnitPitch;
  float* partials;  // [2][kWarps][gates][kRows][kUnitPitch]
  float* stage;     // [kWarps][Engine::kStageFloats]
  float* carried;   // [slice][kUnits]: cells forward, their gradients backward

  __host__ __device__ static int64_t bytes(int64_t slice) {
    return (2 * kWarps * kPartial + slice * kUnits + kWarps * Engine::kStageFloats) * 4;
  }
  __device__ __forceinline__ GridShared(float* memory, int slice)
      : partials(memory),
        stage(memory + 2 * kWarps * kPartial),
        carried(stage + kWarps * Engine::kStageFloats) {}
};

// Which element of a chunk a thread finishes.
template <typename Engine>
struct Finisher {
  static constexpr int kThreads = Engine::kTiles * kTileRows * kUnits;  // whole warps
  bool active;
  int unit;
  int row;

  // The two halves of a warp take rows four apart, whose partial products lie in other banks.
  __device__ __forceinline__ Finisher() {
    const int index = static_cast<int>(threadIdx.x) / kUnits;
    active = threadIdx.x < kThreads;
    unit = static_cast<int>(threadIdx.x) % kUnits;
    row = index % 2 * 4 + index / 2 % 4 + index / 8 * 8;
  }

  __device__ __forceinline__ float sum(const float* partials, int gate) const {
    const float* const at =
        partials + (gate * Engine::kTiles * kTileRows + row) * kUnitPitch + unit;
    float total = 0.0f;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) {
      total += at[warp * Engine::kGates * Engine::kTiles * kTileRows * kUnitPitch];
    }
    return total;
  }
};

// Stores a value that other blocks wait for; 16-bit ones in pairs, by the even unit's lane. All
// lanes of the warp take part.
__device__ __forceinline__ void publish(float* address, float value, bool valid) {
  if (valid) store_shared_word(address, shared_word(value));
}
template <typename T>
__device__ __forceinline__ void publish(T* address, T value, bool valid) {
  const uint32_t other = __shfl_down_sync(0xffffffffu, static_cast<uint32_t>(value.bits), 1);
  if (valid && threadIdx.x % 2 == 0) {
    store_shared_word(address, shared_word(value.bits | other << 16));
  }
}

// Where a kernel is: planes of the sequence step by step, within a step chunk by chunk. Addresses
// move along by strides, since every instruction of the loop counts.
struct GridPosition {
  int step = 0;
  int chunk = 0;
  int chunks;

  __device__ __forceinline__ bool wraps() const { return chunk + 1 == chunks; }
  __device__ __forceinline__ void advance() {
    step += wraps() ? 1 : 0;
    chunk = wraps() ? 0 : chunk + 1;
  }
};

// Elements from one chunk to the next, of a tensor with `width` elements a row.
struct GridStride {
  int64_t chunk;
  int64_t wrap;  // from a step's last chunk to the next step's first

  __device__ __forceinline__ GridStride(int64_t step_stride, int64_t chunk_stride, int chunks)
      : chunk(chunk_stride), wrap(step_stride - (chunks - 1) * chunk_stride) {}
  __device__ __forceinline__ int64_t from(const GridPosition& at) const {
    return at.wraps() ? wrap : chunk;
  }
};

template <typename T, typename Engine>
__global__ void __launch_bounds__(kGridThreads, 1)
    forward_kernel(const lltm_layer_forward_arguments a, int slice) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) float memory[];
  using Shared = GridShared<Engine>;
  constexpr int kRows = Shared::kRows;
  const Shared shared(memory, slice);
  const Finisher<Engine> mine;
  const int state = static_cast<int>(a.sizes.state_size);
  const int unit = static_cast<int>(blockIdx.x) * kUnits + mine.unit;
  const int64_t first_row = int64_t{blockIdx.y} * slice;
  const int rows = static_cast<int>(min(int64_t{slice}, a.sizes.batch_size - first_row));
  const int64_t plane = a.sizes.batch_size * state;
  const Walk walk = Walk::forward(a.sizes);
  const int steps = static_cast<int>(a.sizes.steps);
  GridPosition at;
  at.chunks = (rows + kRows - 1) / kRows;
  const GridStride state_stride(walk.stride * plane, int64_t{kRows} * state, at.chunks);
  const GridStride gate_stride(walk.stride * 3 * plane, int64_t{kRows} * 3 * state, at.chunks);

  Engine engine({static_cast<const T*>(a.weights), a.sizes.weight_stride, state,
                 static_cast<int>(blockIdx.x) * kUnits},
                shared.stage);
  // This thread's element of the chunk.
  const int64_t element = (first_row + mine.row) * state + unit;
  T* gates[3];
  for (int gate = 0; gate < 3; ++gate) {
    gates[gate] = static_cast<T*>(a.gates) + walk.first * 3 * plane +
                  (first_row + mine.row) * 3 * state + int64_t{gate} * state + unit;
  }
  T* output = static_cast<T*>(a.output) + walk.first * plane + element;
  T* cells = static_cast<T*>(a.cells) + walk.first * plane + element;
  const bool keeps_cells = a.cells != nullptr;
  const bool owns = mine.active && unit < state;
  for (int row = mine.row; owns && row < rows; row += kRows) {
    shared.carried[row * kUnits + mine.unit] =
        load_or_zero(static_cast<const T*>(a.initial_cell), (first_row + row) * state + unit, true);
  }
  T ahead[3] = {};
  if (owns && mine.row < rows) {
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) ahead[gate] = *gates[gate];
  }
  // The first step reads the initial state, and without one has no product.
  const T* const written = static_cast<const T*>(a.output) + walk.first * plane + first_row * state;
  bool has_product = a.initial_h != nullptr;
  Source<T> source = {
      has_product ? static_cast<const T*>(a.initial_h) + first_row * state : written, state, rows,
      false};
  if (has_product) engine.issue(source);

  float* partials = shared.partials;
  float* other_partials = shared.partials + kWarps * Shared::kPartial;
  while (at.step < steps) {
    const bool had_product = has_product;
    GridPosition next = at;
    next.advance();
    const bool more = next.step < steps;
    Source<T> next_source = source;
    if (next.chunk == 0 && next.step == 1) {
      next_source.data = written;
      next_source.wait = true;
      has_product = true;
    } else {
      next_source.data += state_stride.from(at);
    }
    next_source.rows = rows - next.chunk * kRows;
    const bool start_next = has_product && more;
    // With one chunk, what comes next is what is being made here.
    const bool ahead_of_time = start_next && had_product && at.chunks > 1;
    if (had_product) {
      engine.multiply(source, next_source, ahead_of_time,
                      partials + threadIdx.x / 32 * Shared::kPartial);
    }
    source = next_source;
    __syncthreads();
    if (mine.active) {
      const int row = at.chunk * kRows + mine.row;
      const bool valid = owns && row < rows;
      T z[3];
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        z[gate] = narrow<T>((had_product ? mine.sum(partials, gate) : 0.0f) + widen(ahead[gate]));
      }
      float& cell = shared.carried[row * kUnits + mine.unit];
      // What backward will read is what forward computes with.
      const auto now = CellFormulas<SwiftMath>::forward(widen(z[kInputGate]), widen(z[kOutputGate]),
                                                        widen(z[kCandidate]), valid ? cell : 0.0f);
      const T new_h = narrow<T>(now.h);
      publish(output, new_h, valid);
      const int64_t gate_step = gate_stride.from(at);
      const bool next_valid = owns && next.chunk * kRows + mine.row < rows && more;
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        if (valid) *gates[gate] = z[gate];
        gates[gate] += gate_step;
        if (next_valid) ahead[gate] = *gates[gate];
      }
      if (valid) {
        cell = now.cell;
        if (keeps_cells) *cells = narrow<T>(now.cell);
        if (mine.unit == 0 && at.step + kPrefetchSteps < steps) {
          prefetch_to_l2(output + kPrefetchSteps * walk.stride * plane);
        }
        if (at.step + 1 == steps) {
          const int64_t final_element = (first_row + row) * state + unit;
          static_cast<T*>(a.final_h)[final_element] = new_h;
          static_cast<T*>(a.final_cell)[final_element] = narrow<T>(now.cell);
        }
      }
      output += state_stride.from(at);
      cells += state_stride.from(at);
    }
    if (start_next && !ahead_of_time) engine.issue(source);
    at = next;
    float* const swap = partials;
    partials = other_partials;
    other_partials = swap;
  }
#endif
}

template <typename T, typename Engine>
__global__ void __launch_bounds__(kGridThreads, 1)
    backward_kernel(const lltm_layer_backward_arguments a, int slice) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) float memory[];
  using Shared = GridShared<Engine>;
  constexpr int kRows = Shared::kRows;
  const Shared shared(memory, slice);
  const Finisher<Engine> mine;
  const int state = static_cast<int>(a.sizes.state_size);
  const int unit = static_cast<int>(blockIdx.x) * kUnits + mine.unit;
  const int64_t first_row = int64_t{blockIdx.y} * slice;
  const int rows = static_cast<int>(min(int64_t{slice}, a.sizes.batch_size - first_row));
  const int64_t plane = a.sizes.batch_size * state;
  const Walk walk = Walk::backward(a.sizes);
  const int steps = static_cast<int>(a.sizes.steps);
  // The product of the last dz is the gradient of the initial h.
  const int products = steps + (a.d_initial_h != nullptr ? 1 : 0);
  GridPosition at;
  at.chunks = (rows + kRows - 1) / kRows;
  const GridStride state_stride(walk.stride * plane, int64_t{kRows} * state, at.chunks);
  const GridStride gate_stride(walk.stride * 3 * plane, int64_t{kRows} * 3 * state, at.chunks);

  Engine engine({static_cast<const T*>(a.weights), a.sizes.weight_stride, state,
                 static_cast<int>(blockIdx.x) * kUnits},
                shared.stage);
  const int64_t element = walk.first * plane + (first_row + mine.row) * state + unit;
  const int64_t gate_element = walk.first * 3 * plane + (first_row + mine.row) * 3 * state + unit;
  const T* gates = static_cast<const T*>(a.gates) + gate_element;
  const T* cells = static_cast<const T*>(a.cells) + element;
  const T* grad_output = static_cast<const T*>(a.grad_output) + element;
  const T* grad_cells = static_cast<const T*>(a.grad_cells) + element;
  T* d_gates = static_cast<T*>(a.d_gates) + gate_element;
  const bool has_output = a.grad_output != nullptr;
  const bool has_cells = a.grad_cells != nullptr;
  const bool owns = mine.active && unit < state;
  for (int row = mine.row; owns && row < rows; row += kRows) {
    shared.carried[row * kUnits + mine.unit] = load_or_zero(
        static_cast<const T*>(a.grad_final_cell), (first_row + row) * state + unit, true);
  }
  struct Ahead {
    T z[3];
    T cell;
    T grad_output;
    T grad_cell;
  } ahead = {};
  const auto fetch = [&] {
    ahead.z[0] = gates[0];
    ahead.z[1] = gates[state];
    ahead.z[2] = gates[2 * state];
    ahead.cell = *cells;
    if (has_output) ahead.grad_output = *grad_output;
    if (has_cells) ahead.grad_cell = *grad_cells;
  };
  if (owns && mine.row < rows) fetch();

  Source<T> source = {
      static_cast<const T*>(a.d_gates) + walk.first * 3 * plane + first_row * 3 * state, 3 * state,
      rows, true};
  float* partials = shared.partials;
  float* other_partials = shared.partials + kWarps * Shared::kPartial;
  while (at.step < products) {
    GridPosition next = at;
    next.advance();
    const int row = at.chunk * kRows + mine.row;
    const bool valid = owns && row < rows;
    // All that does not wait for the other blocks.
    StepSlopes slopes = {};
    float grad_h = 0.0f;
    float grad_cell = 0.0f;
    if (mine.active && at.step < steps) {
      slopes = StepSlopes::of(widen(ahead.z[kInputGate]), widen(ahead.z[kOutputGate]),
                              widen(ahead.z[kCandidate]), widen(ahead.cell));
      grad_h = widen(ahead.grad_output);
      if (at.step == 0) {
        grad_h += load_or_zero(static_cast<const T*>(a.grad_final_h),
                               (first_row + row) * state + unit, valid);
      }
      grad_cell = widen(ahead.grad_cell);
      gates += gate_stride.from(at);
      cells += state_stride.from(at);
      grad_output += state_stride.from(at);
      grad_cells += state_stride.from(at);
      if (next.step < steps && owns && next.chunk * kRows + mine.row < rows) fetch();
    }
    const bool start_next = next.step > 0 && next.step < products;
    const bool ahead_of_time = start_next && at.step > 0 && at.chunks > 1;
    if (at.step > 0) {
      Source<T> next_source = source;
      next_source.data += gate_stride.from(at);  // the source is a step behind
      next_source.rows = rows - next.chunk * kRows;
      engine.multiply(source, next_source, ahead_of_time,
                      partials + threadIdx.x / 32 * Shared::kPartial);
      source = next_source;
    } else {
      source.rows = rows - next.chunk * kRows;
    }
    __syncthreads();
    if (mine.active) {
      const float product = at.step > 0 ? mine.sum(partials, 0) : 0.0f;
      float& carried = shared.carried[row * kUnits + mine.unit];
      if (at.step == steps) {
        if (valid) {
          static_cast<T*>(a.d_initial_h)[(first_row + row) * state + unit] = narrow<T>(product);
        }
      } else {
        const float dh = product + grad_h;
        const float d_cell = fmaf(dh, slopes.d_cell, grad_cell + (valid ? carried : 0.0f));
        publish(d_gates + kInputGate * state, narrow<T>(d_cell * slopes.input_gate), valid);
        publish(d_gates + kOutputGate * state, narrow<T>(dh * slopes.output_gate), valid);
        publish(d_gates + kCandidate * state, narrow<T>(d_cell * slopes.candidate), valid);
        if (valid) {
          carried = d_cell;
          if (mine.unit == 0 && at.step + kPrefetchSteps < steps) {
            const T* const later = d_gates + kPrefetchSteps * walk.stride * 3 * plane;
#pragma unroll
            for (int gate = 0; gate < 3; ++gate) prefetch_to_l2(later + gate * state);
          }
          if (at.step + 1 == steps && a.d_initial_cell != nullptr) {
            static_cast<T*>(a.d_initial_cell)[(first_row + row) * state + unit] = narrow<T>(d_cell);
          }
        }
      }
      d_gates += gate_stride.from(at);
    }
    if (start_next && !ahead_of_time) engine.issue(source);
    at = next;
    float* const swap = partials;
    partials = other_partials;
    other_partials = swap;
  }
#endif
}

}  // namespace lltm
