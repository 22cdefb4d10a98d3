// The kernels of the family `grid`. A block owns some units of the state for a slice of the batch,
// and its weights stay in registers and shared memory. Blocks of one slice hand their states to one
// another through the tensor that is written anyway; see layer_exchange.h. Slices know nothing of
// one another. A slice is taken in chunks of a few rows of the batch; chunks do not depend on one
// another, so one chunk's exchange hides behind the others' work.
//
// Two roles: the Multiplier makes a chunk's products, as every warp's partial sums, and the
// finisher adds these up, activates and publishes. Where there may be several chunks and registers
// allow it, they are different warps, and one chunk is finished while the next is multiplied; else
// all warps are both, in turn.
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

template <typename Engine>
constexpr int kGridThreads = 32 * (kWarps + Engine::kFinishWarps);

// Barriers of some warps' own; number 0 is __syncthreads. Who only arrives does not wait.
template <int threads>
__device__ __forceinline__ void arrive_at(int barrier) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}
template <int threads>
__device__ __forceinline__ void wait_at(int barrier) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "n"(threads) : "memory");
}

// How long to wait, in cycles, until the words that other blocks make of the same step should be
// there: who asks too early has to ask again, one more way through L2. Measured on an H200, from
// the block's own sums on; where other warps finish, from the end of their work on. Right wherever
// they are wrong, only slower.
constexpr int kPatience = 600;
constexpr int kRowPatience = 12;
constexpr int kHandedPatience = 400;

__device__ __forceinline__ uint32_t cycles() {
  uint32_t now;
  asm volatile("mov.u32 %0, %%clock;" : "=r"(now)::"memory");
  return now;
}
__device__ __forceinline__ void wait_since(uint32_t start, int patience) {
  while (cycles() - start < static_cast<uint32_t>(patience)) {
  }
}

// Where a kernel is: step by step, within a step chunk by chunk.
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

// Elements from one chunk to the next. Addresses move along by strides, since every instruction of
// the loop counts.
struct GridStride {
  int64_t chunk;
  int64_t wrap;  // from a step's last chunk to the next step's first

  __device__ __forceinline__ GridStride(int64_t step_stride, int64_t chunk_stride, int chunks)
      : chunk(chunk_stride), wrap(step_stride - (chunks - 1) * chunk_stride) {}
  __device__ __forceinline__ int64_t from(const GridPosition& at) const {
    return at.wraps() ? wrap : chunk;
  }
};

// What both roles of both directions have to know of the block's place.
template <typename Engine, bool backward>
struct GridPlace {
  static constexpr int kRows = GridShared<Engine>::kRows;
  int state;
  int first_unit;
  int64_t first_row;
  int rows;
  int steps;
  int chunks;
  int64_t plane;
  Walk walk;
  GridStride state_stride;  // of tensors (T, B, S)
  GridStride gate_stride;   // of tensors (T, B, 3, S)

  __device__ __forceinline__ GridPlace(const lltm_layer_sizes& sizes, int slice)
      : state(static_cast<int>(sizes.state_size)),
        first_unit(static_cast<int>(blockIdx.x) * kUnits),
        first_row(int64_t{blockIdx.y} * slice),
        rows(static_cast<int>(min(int64_t{slice}, sizes.batch_size - first_row))),
        steps(static_cast<int>(sizes.steps)),
        chunks(Engine::kOneChunk ? 1 : (rows + kRows - 1) / kRows),
        plane(sizes.batch_size * state),
        walk(backward ? Walk::backward(sizes) : Walk::forward(sizes)),
        state_stride(walk.stride * plane, int64_t{kRows} * state, chunks),
        gate_stride(walk.stride * 3 * plane, int64_t{kRows} * 3 * state, chunks) {}

  __device__ __forceinline__ GridPosition start(int step) const {
    GridPosition at;
    at.step = step;
    at.chunks = chunks;
    return at;
  }
};

// Which neighbouring units a thread finishes, in which row of a chunk.
template <typename Engine>
struct Finisher {
  static constexpr int kEach = Engine::kFinishEach;
  static constexpr int kRowThreads = kUnits / kEach;
  static constexpr int kThreads = Engine::kTiles * kTileRows * kRowThreads;
  static_assert(Engine::kFinishWarps == 0 || Engine::kFinishWarps * 32 == kThreads,
                "finishing warps take a chunk at once");
  bool active;  // for whole warps
  int unit;
  int row;

  // Threads that read partial products together take rows four apart, which lie in other banks.
  __device__ __forceinline__ Finisher() {
    const int thread = static_cast<int>(threadIdx.x) - (Engine::kFinishWarps > 0 ? 32 * kWarps : 0);
    active = thread < kThreads;
    const int index = thread / kRowThreads;
    row = index % 2 * 4 + index / 2 % 4 + index / 8 * 8;
    unit = thread % kRowThreads * kEach;
  }

  // Adds the products to `sums`. All are read before any is waited for.
  __device__ __forceinline__ void add(const float* partials,
                                      float (&sums)[Engine::kGates][kEach]) const {
    constexpr int kGate = Engine::kTiles * kTileRows * kUnitPitch;
    const float* const at = partials + row * kUnitPitch + unit;
    float parts[kWarps][Engine::kGates][kEach];
#pragma unroll
    for (int gate = 0; gate < Engine::kGates; ++gate) {
#pragma unroll
      for (int warp = 0; warp < kWarps; ++warp) {
        load_floats(at + (warp * Engine::kGates + gate) * kGate, parts[warp][gate]);
      }
    }
#pragma unroll
    for (int half = kWarps / 2; half > 0; half /= 2) {
#pragma unroll
      for (int warp = 0; warp < half; ++warp) {
#pragma unroll
        for (int gate = 0; gate < Engine::kGates; ++gate) {
#pragma unroll
          for (int i = 0; i < kEach; ++i) parts[warp][gate][i] += parts[warp + half][gate][i];
        }
      }
    }
#pragma unroll
    for (int gate = 0; gate < Engine::kGates; ++gate) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) sums[gate][i] += parts[0][gate][i];
    }
  }

  __device__ static __forceinline__ void load_floats(const float* at, float (&values)[1]) {
    values[0] = *at;
  }
  __device__ static __forceinline__ void load_floats(const float* at, float (&values)[2]) {
    const float2 two = *reinterpret_cast<const float2*>(at);
    values[0] = two.x;
    values[1] = two.y;
  }
};

// Neighbouring elements. Those that are read may lie anywhere, those that are written lie where
// their words may.
template <typename T, int n>
struct Elements {
  T at[n];

  __device__ __forceinline__ void load(const T* address) {
#pragma unroll
    for (int i = 0; i < n; ++i) at[i] = address[i];
  }
  __device__ __forceinline__ void set(const float (&values)[n]) {
#pragma unroll
    for (int i = 0; i < n; ++i) at[i] = narrow<T>(values[i]);
  }
  __device__ __forceinline__ void store(T* address) const {
    if constexpr (sizeof(T) < 4) {
      *reinterpret_cast<uint32_t*>(address) = word();
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i) address[i] = at[i];
    }
  }
  // For other blocks, which wait for them.
  __device__ __forceinline__ void publish(T* address) const {
    if constexpr (sizeof(T) < 4) {
      store_shared_word(address, shared_word(word()));
    } else {
#pragma unroll
      for (int i = 0; i < n; ++i) store_shared_word(address + i, shared_word(at[i]));
    }
  }

 private:
  __device__ __forceinline__ uint32_t word() const {
    static_assert(n == 2, "a word is two 16-bit elements");
    return at[0].bits | static_cast<uint32_t>(at[1].bits) << 16;
  }
};

// The role that waits for other blocks' states and multiplies them.
template <typename T, typename Engine, bool backward>
class Multiplier {
 public:
  using Shared = GridShared<Engine>;
  using Place = GridPlace<Engine, backward>;

  // Products of steps `first` to `end`: of `initial` in step 0, else of what was written in the
  // step before, planes of rows of K elements.
  __device__ __forceinline__ Multiplier(const Place& place, const WeightRows<T, backward>& weights,
                                        const Shared& shared, const T* initial, const T* written,
                                        int first, int end)
      : engine_(weights, shared.stage),
        place_(place),
        written_(written),
        next_(place.start(first)),
        end_(end) {
    constexpr int kTimes = backward ? 3 : 1;
    source_ = {first == 0 ? initial : written, int64_t{kTimes} * place.state, place.rows,
               first > 0};
  }

  __device__ __forceinline__ bool done() const { return next_.step >= end_; }
  __device__ __forceinline__ int step() const { return next_.step; }

  // Starts to read what the next product needs.
  __device__ __forceinline__ void issue() { engine_.issue(source_); }

  // One chunk's products, for which `issue` was called; see the engines for `free`. With `ahead`,
  // issues what comes next.
  template <typename Free>
  __device__ __forceinline__ void multiply(float* partials, bool ahead, const Free& free) {
    Source<T> next_source = source_;
    GridPosition next = next_;
    next.advance();
    if (next.chunk == 0 && next.step == 1) {
      next_source.data = written_;
      next_source.wait = true;
    } else {
      next_source.data += (backward ? place_.gate_stride : place_.state_stride).from(next_);
    }
    next_source.rows = place_.rows - next.chunk * Shared::kRows;
    engine_.multiply(source_, next_source, ahead && next.step < end_,
                     partials + threadIdx.x / 32 * Shared::kPartial, free);
    source_ = next_source;
    next_ = next;
  }

 private:
  Engine engine_;
  const Place& place_;
  const T* written_;
  GridPosition next_;
  int end_;
  Source<T> source_;
};

template <typename T, typename Engine>
class ForwardFinisher : Finisher<Engine> {
 public:
  using Place = GridPlace<Engine, false>;
  using Arguments = lltm_layer_forward_arguments;

  __device__ __forceinline__ ForwardFinisher(const Arguments& a, const Place& place, float* carried)
      : final_h_(static_cast<T*>(a.final_h)),
        final_cell_(static_cast<T*>(a.final_cell)),
        keeps_cells_(a.cells != nullptr),
        place_(place),
        at_(place.start(0)),
        carried_(carried + this->unit) {
    const int unit = place.first_unit + this->unit;
    const int64_t row = place.first_row + this->row;
    const int64_t element = place.walk.first * place.plane + row * place.state + unit;
    owns_ = this->active && unit < place.state;
    gates_ = static_cast<T*>(a.gates) + place.walk.first * 3 * place.plane + row * 3 * place.state +
             unit;
    output_ = static_cast<T*>(a.output) + element;
    cells_ = static_cast<T*>(a.cells) + element;
    for (int r = this->row; owns_ && r < place.rows; r += Place::kRows) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        carried_[r * kUnits + i] =
            load_or_zero(static_cast<const T*>(a.initial_cell),
                         (place.first_row + r) * place.state + unit + i, true);
      }
    }
    fetch(owns_ && this->row < place.rows);
  }

  // What does not wait for the products.
  __device__ __forceinline__ void prepare() {
    if (!this->active) return;
    GridPosition next = at_;
    next.advance();
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) z_[gate][i] = widen(ahead_[gate].at[i]);
    }
    if (valid() && this->unit == 0 && at_.step + kPrefetchSteps < place_.steps) {
      const int64_t later = kPrefetchSteps * place_.walk.stride * place_.plane;
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        prefetch_to_l2(gates_ + 3 * later + int64_t{gate} * place_.state);
      }
      prefetch_to_l2(output_ + later);
    }
    gates_ += place_.gate_stride.from(at_);
    fetch(owns_ && next.step < place_.steps && next.chunk * Place::kRows + this->row < place_.rows);
  }

  // One chunk, from partial products where it has any.
  __device__ __forceinline__ void finish(const float* partials, bool has_product) {
    if (!this->active) return;
    if (has_product) this->add(partials, z_);
    if (valid()) {
      // What backward will read is what forward computes with.
      Elements<T, kEach> z[3];
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) z[gate].set(z_[gate]);
      float* const carried = carried_ + (at_.chunk * Place::kRows + this->row) * kUnits;
      Elements<T, kEach> new_h;
      Elements<T, kEach> new_cell;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const auto now = CellFormulas<SwiftMath>::forward(widen(z[kInputGate].at[i]),
                                                          widen(z[kOutputGate].at[i]),
                                                          widen(z[kCandidate].at[i]), carried[i]);
        new_h.at[i] = narrow<T>(now.h);
        new_cell.at[i] = narrow<T>(now.cell);
        carried[i] = now.cell;
      }
      new_h.publish(output_);
      T* const gates = gates_ - place_.gate_stride.from(at_);
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) z[gate].store(gates + int64_t{gate} * place_.state);
      if (keeps_cells_) new_cell.store(cells_);
      if (at_.step + 1 == place_.steps) {
        const int64_t element =
            (place_.first_row + at_.chunk * Place::kRows + this->row) * place_.state +
            place_.first_unit + this->unit;
        new_h.store(final_h_ + element);
        new_cell.store(final_cell_ + element);
      }
    }
    output_ += place_.state_stride.from(at_);
    cells_ += place_.state_stride.from(at_);
    at_.advance();
  }

 private:
  static constexpr int kEach = Finisher<Engine>::kEach;

  __device__ __forceinline__ bool valid() const {
    return owns_ && at_.chunk * Place::kRows + this->row < place_.rows;
  }
  __device__ __forceinline__ void fetch(bool valid) {
    if (!valid) return;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) ahead_[gate].load(gates_ + int64_t{gate} * place_.state);
  }

  // Not the arguments by reference: compilers may then copy them to memory.
  T* const final_h_;
  T* const final_cell_;
  const bool keeps_cells_;
  const Place& place_;
  GridPosition at_;
  float* carried_;
  bool owns_;
  T* gates_;
  T* output_;
  T* cells_;
  Elements<T, kEach> ahead_[3] = {};
  float z_[3][kEach];
};

template <typename T, typename Engine>
class BackwardFinisher : Finisher<Engine> {
 public:
  using Place = GridPlace<Engine, true>;
  using Arguments = lltm_layer_backward_arguments;

  __device__ __forceinline__ BackwardFinisher(const Arguments& a, const Place& place,
                                              float* carried)
      : grad_final_h_(static_cast<const T*>(a.grad_final_h)),
        d_initial_h_(static_cast<T*>(a.d_initial_h)),
        d_initial_cell_(static_cast<T*>(a.d_initial_cell)),
        has_output_(a.grad_output != nullptr),
        has_cells_(a.grad_cells != nullptr),
        place_(place),
        at_(place.start(0)),
        carried_(carried + this->unit) {
    const int unit = place.first_unit + this->unit;
    const int64_t row = place.first_row + this->row;
    const int64_t element = place.walk.first * place.plane + row * place.state + unit;
    const int64_t gate_element = place.walk.first * 3 * place.plane + row * 3 * place.state + unit;
    owns_ = this->active && unit < place.state;
    gates_ = static_cast<const T*>(a.gates) + gate_element;
    cells_ = static_cast<const T*>(a.cells) + element;
    grad_output_ = static_cast<const T*>(a.grad_output) + element;
    grad_cells_ = static_cast<const T*>(a.grad_cells) + element;
    d_gates_ = static_cast<T*>(a.d_gates) + gate_element;
    for (int r = this->row; owns_ && r < place.rows; r += Place::kRows) {
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        carried_[r * kUnits + i] =
            load_or_zero(static_cast<const T*>(a.grad_final_cell),
                         (place.first_row + r) * place.state + unit + i, true);
      }
    }
    fetch(owns_ && this->row < place.rows);
  }

  __device__ __forceinline__ void prepare() {
    if (!this->active || at_.step >= place_.steps) return;
    GridPosition next = at_;
    next.advance();
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      slopes_[i] =
          StepSlopes::of(widen(ahead_.z[kInputGate].at[i]), widen(ahead_.z[kOutputGate].at[i]),
                         widen(ahead_.z[kCandidate].at[i]), widen(ahead_.cell.at[i]));
      grad_h_[i] = widen(ahead_.grad_output.at[i]);
      if (at_.step == 0) {
        grad_h_[i] += load_or_zero(grad_final_h_, element() + i, valid());
      }
      grad_cell_[i] = widen(ahead_.grad_cell.at[i]);
    }
    if (valid() && this->unit == 0 && at_.step + kPrefetchSteps < place_.steps) {
      const int64_t later = kPrefetchSteps * place_.walk.stride * place_.plane;
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        prefetch_to_l2(gates_ + 3 * later + int64_t{gate} * place_.state);
        prefetch_to_l2(d_gates_ + 3 * later + int64_t{gate} * place_.state);
      }
      prefetch_to_l2(cells_ + later);
      if (has_output_) prefetch_to_l2(grad_output_ + later);
      if (has_cells_) prefetch_to_l2(grad_cells_ + later);
    }
    gates_ += place_.gate_stride.from(at_);
    cells_ += place_.state_stride.from(at_);
    grad_output_ += place_.state_stride.from(at_);
    grad_cells_ += place_.state_stride.from(at_);
    fetch(owns_ && next.step < place_.steps && next.chunk * Place::kRows + this->row < place_.rows);
  }

  // One chunk; behind the last step only the gradient of the initial h is left.
  __device__ __forceinline__ void finish(const float* partials, bool has_product) {
    if (!this->active) return;
    float products[1][kEach] = {};
    if (has_product) this->add(partials, products);
    const float (&product)[kEach] = products[0];
    if (valid() && at_.step == place_.steps) {
      Elements<T, kEach> d_initial_h;
      d_initial_h.set(product);
      d_initial_h.store(d_initial_h_ + element());
    } else if (valid()) {
      float* const carried = carried_ + (at_.chunk * Place::kRows + this->row) * kUnits;
      Elements<T, kEach> d_z[3];
      Elements<T, kEach> d_old_cell;
#pragma unroll
      for (int i = 0; i < kEach; ++i) {
        const float dh = product[i] + grad_h_[i];
        const float d_cell = fmaf(dh, slopes_[i].d_cell, grad_cell_[i] + carried[i]);
        d_z[kInputGate].at[i] = narrow<T>(d_cell * slopes_[i].input_gate);
        d_z[kOutputGate].at[i] = narrow<T>(dh * slopes_[i].output_gate);
        d_z[kCandidate].at[i] = narrow<T>(d_cell * slopes_[i].candidate);
        d_old_cell.at[i] = narrow<T>(d_cell);
        carried[i] = d_cell;
      }
#pragma unroll
      for (int gate = 0; gate < 3; ++gate) {
        d_z[gate].publish(d_gates_ + int64_t{gate} * place_.state);
      }
      if (at_.step + 1 == place_.steps && d_initial_cell_ != nullptr) {
        d_old_cell.store(d_initial_cell_ + element());
      }
    }
    d_gates_ += place_.gate_stride.from(at_);
    at_.advance();
  }

 private:
  static constexpr int kEach = Finisher<Engine>::kEach;

  __device__ __forceinline__ bool valid() const {
    return owns_ && at_.chunk * Place::kRows + this->row < place_.rows;
  }
  // Of tensors (B, S).
  __device__ __forceinline__ int64_t element() const {
    return (place_.first_row + at_.chunk * Place::kRows + this->row) * place_.state +
           place_.first_unit + this->unit;
  }
  __device__ __forceinline__ void fetch(bool valid) {
    if (!valid) return;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) ahead_.z[gate].load(gates_ + int64_t{gate} * place_.state);
    ahead_.cell.load(cells_);
    if (has_output_) ahead_.grad_output.load(grad_output_);
    if (has_cells_) ahead_.grad_cell.load(grad_cells_);
  }

  const T* const grad_final_h_;
  T* const d_initial_h_;
  T* const d_initial_cell_;
  const bool has_output_;
  const bool has_cells_;
  const Place& place_;
  GridPosition at_;
  float* carried_;
  bool owns_;
  const T* gates_;
  const T* cells_;
  const T* grad_output_;
  const T* grad_cells_;
  T* d_gates_;
  struct {
    Elements<T, kEach> z[3];
    Elements<T, kEach> cell;
    Elements<T, kEach> grad_output;
    Elements<T, kEach> grad_cell;
  } ahead_ = {};
  StepSlopes slopes_[kEach] = {};
  float grad_h_[kEach] = {};
  float grad_cell_[kEach] = {};
};

// Where products come from and go to. The product of backward's last dz is the gradient of the
// initial h; forward's first step without an initial h has none.
template <typename T>
struct GridProducts {
  const T* initial;
  const T* written;
  int first;
  int end;

  template <typename Place>
  __device__ __forceinline__ static GridProducts of(const lltm_layer_forward_arguments& a,
                                                    const Place& place) {
    return {static_cast<const T*>(a.initial_h) + place.first_row * place.state,
            static_cast<const T*>(a.output) + place.walk.first * place.plane +
                place.first_row * place.state,
            a.initial_h != nullptr ? 0 : 1, place.steps};
  }
  template <typename Place>
  __device__ __forceinline__ static GridProducts of(const lltm_layer_backward_arguments& a,
                                                    const Place& place) {
    return {nullptr,
            static_cast<const T*>(a.d_gates) +
                3 * (place.walk.first * place.plane + place.first_row * place.state),
            1, place.steps + (a.d_initial_h != nullptr ? 1 : 0)};
  }
};

template <typename T, typename Engine, bool backward, typename Finish>
__global__ void __launch_bounds__(kGridThreads<Engine>, 1)
    grid_kernel(const typename Finish::Arguments a, int slice) {
#if __CUDA_ARCH__ >= 800
  extern __shared__ __align__(16) float memory[];
  using Shared = GridShared<Engine>;
  const Shared shared(memory, slice);
  const GridPlace<Engine, backward> place(a.sizes, slice);
  const auto products = GridProducts<T>::of(a, place);
  const WeightRows<T, backward> weights = {static_cast<const T*>(a.weights), a.sizes.weight_stride,
                                           place.state, place.first_unit};
  const int last = products.end > place.steps ? products.end : place.steps;
  const bool many = !Engine::kOneChunk && place.chunks > 1;
  const auto make_multiplier = [&] {
    return Multiplier<T, Engine, backward>(place, weights, shared, products.initial,
                                           products.written, products.first, products.end);
  };
  const auto partials = [&](int turn) {
    return shared.partials + turn * (kWarps * Shared::kPartial);
  };
  if constexpr (Engine::kFinishWarps > 0) {
    constexpr int kThreads = kGridThreads<Engine>;
    constexpr int kFull = 1;   // and 2: of the partial products in turn
    constexpr int kEmpty = 3;  // and 4
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
        // With one chunk, what comes next is what is being made here: to look for it earlier
        // would be in the way of those who make it.
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
      // Whoever multiplies waits for every product but the last ones to be finished.
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
    int turn = 0;
    for (int step = 0; step < last; ++step) {
      const bool has_product = step >= products.first;
      for (int chunk = 0; chunk < place.chunks; ++chunk) {
        finisher.prepare();
        if (has_product) multiplier.multiply(partials(turn), many, [] {});
        __syncthreads();
        const uint32_t summed = cycles();
        finisher.finish(partials(turn), has_product);
        const bool next_has_product =
            !multiplier.done() && multiplier.step() <= step + (chunk + 1 == place.chunks ? 1 : 0);
        if (next_has_product && !(has_product && many)) {
          if (!many) wait_since(summed, kPatience + kRowPatience * place.rows);
          multiplier.issue();
        }
        turn ^= 1;
      }
    }
  }
#endif
}

}  // namespace lltm
