// The place and the shared memory of a block of the family `grid`, and the finishers. A finisher
// adds up the partial products of a chunk, computes the formulas and publishes the results.
#pragma once

#include "layer_element.h"
#include "layer_grid_pieces.h"

namespace lltm {

template <typename Engine>
struct GridShared {
  static constexpr int kRows = Engine::kTiles * kTileRows;  // per chunk
  static constexpr int kPartial = Engine::kGates * kRows * kUnitPitch<Engine::kUnits>;
  // Finishing warps finish one chunk while the others multiply the next.
  static constexpr int kTurns = Engine::kFinishWarps > 0 ? 2 : 1;
  float* partials;  // [kTurns][kWarps][gates][kRows][kUnitPitch]
  float* carried;   // [slice][kUnits]: cells in forward, gradients of cells in backward
  GridMemory memory;

  // Without the resident weights.
  __host__ __device__ static int64_t bytes(int64_t slice) {
    return (kTurns * kWarps * kPartial + slice * Engine::kUnits + kWarps * Engine::kStageFloats) *
           4;
  }
  LLTM_DEVICE GridShared(float* all, int slice, void* stream, int resident, int kept)
      : partials(all) {
    float* const stage = all + kTurns * kWarps * kPartial;
    carried = stage + kWarps * Engine::kStageFloats;
    auto* const weights = reinterpret_cast<uint4*>(carried + slice * Engine::kUnits);
    memory = {stage, weights, static_cast<uint4*>(stream), resident, kept};
  }
};

// The position of a multiplier or finisher in its loop over steps and, within a step, over chunks.
struct GridPosition {
  int step;
  int chunk;
  int chunks;

  LLTM_DEVICE bool wraps() const { return chunk + 1 == chunks; }
  LLTM_DEVICE void advance() {
    step += wraps() ? 1 : 0;
    chunk = wraps() ? 0 : chunk + 1;
  }
};

// How far an address moves, in elements, to the next chunk; see Walk.
struct GridStride {
  int64_t chunk;  // within a step
  int64_t wrap;   // from a step's last chunk to the first chunk of the step that runs next

  LLTM_DEVICE GridStride(int64_t step_stride, int64_t chunk_stride, int chunks)
      : chunk(chunk_stride), wrap(step_stride - (chunks - 1) * chunk_stride) {}
  LLTM_DEVICE int64_t from(const GridPosition& at) const { return at.wraps() ? wrap : chunk; }
};

// The place of a block, for multipliers and finishers, in forward and backward.
template <typename Engine, bool backward>
struct GridPlace {
  static constexpr int kRows = GridShared<Engine>::kRows;
  int state;
  int first_unit;
  int64_t first_row;
  int rows;
  int steps;
  int chunks;
  Walk walk;
  GridStride state_stride;  // of tensors (T, B, S)
  GridStride gate_stride;   // of tensors (T, B, 3, S)

  LLTM_DEVICE GridPlace(const lltm_layer_sizes& sizes, int slice)
      : state(static_cast<int>(sizes.state_size)),
        first_unit(static_cast<int>(blockIdx.x) * Engine::kUnits),
        first_row(int64_t{blockIdx.y} * slice),
        rows(static_cast<int>(min(int64_t{slice}, sizes.batch_size - first_row))),
        steps(static_cast<int>(sizes.steps)),
        chunks(Engine::kOneChunk ? 1 : (rows + kRows - 1) / kRows),
        walk(sizes, backward),
        state_stride(walk.stride, int64_t{kRows} * state, chunks),
        gate_stride(kGateCount * walk.stride, int64_t{kRows} * kGateCount * state, chunks) {}
};

constexpr int kPrefetchSteps = 4;

// Stores elements for which other blocks wait.
template <typename T, int n>
LLTM_DEVICE void publish(const Elements<T, n>& elements, T* address) {
  constexpr int kEach = 4 / sizeof(T);  // elements in a word
  unrolled<n / kEach>(
      [&](int i) { store_shared_word(address + i * kEach, shared_word<T>(elements.word(i))); });
}

// A thread finishes kEach neighbouring units in one row of every chunk.
template <typename T, typename Engine, bool backward>
class Finisher {
 protected:
  using Place = GridPlace<Engine, backward>;
  static constexpr int kEach = Engine::kFinishEach;

  // `carried` starts with the block's part of `initial`, (B, S), or zeros if `initial` is NULL.
  LLTM_DEVICE Finisher(const Place& place, float* carried, const void* initial)
      : place_(place), at_{0, 0, place.chunks} {
    const int thread = static_cast<int>(threadIdx.x) - (Engine::kFinishWarps > 0 ? 32 * kWarps : 0);
    active_ = thread < kThreads;
    // Threads that read partial products together take rows four apart. With 16 units, these are in
    // different banks.
    const int index = thread / kRowThreads;
    row_ = index % 2 * 4 + index / 2 % 4 + index / 8 * 8;
    unit_ = thread % kRowThreads * kEach;
    owns_ = active_ && place.first_unit + unit_ < place.state;
    carried_ = carried + unit_;
    for (int r = row_; owns_ && r < place.rows; r += Place::kRows) {
      unrolled<kEach>([&](int i) {
        carried_[r * Engine::kUnits + i] = load_or_zero<T>(
            initial, (place.first_row + r) * place.state + place.first_unit + unit_ + i, true);
      });
    }
  }

  // The thread's first element of the first chunk: its index in tensors (T, B, S) or (T, B, 3, S).
  LLTM_DEVICE int64_t first_element(int vectors) const {
    return vectors * (place_.walk.first + (place_.first_row + row_) * int64_t{place_.state}) +
           place_.first_unit + unit_;
  }
  // The thread's first element of the present chunk: its index in tensors (B, S).
  LLTM_DEVICE int64_t element() const {
    return (place_.first_row + at_.chunk * Place::kRows + row_) * place_.state + place_.first_unit +
           unit_;
  }
  // The values that the present chunk carries from step to step.
  LLTM_DEVICE float* carried() const {
    return carried_ + (at_.chunk * Place::kRows + row_) * Engine::kUnits;
  }

  LLTM_DEVICE bool valid() const { return owns_ && at_.chunk * Place::kRows + row_ < place_.rows; }
  LLTM_DEVICE bool next_valid() const {
    GridPosition next = at_;
    next.advance();
    return owns_ && next.step < place_.steps && next.chunk * Place::kRows + row_ < place_.rows;
  }
  // One thread per row prefetches the data of the step that runs kPrefetchSteps later.
  LLTM_DEVICE bool prefetches() const {
    return valid() && unit_ == 0 && at_.step + kPrefetchSteps < place_.steps;
  }
  LLTM_DEVICE int64_t prefetch_offset() const { return kPrefetchSteps * place_.walk.stride; }
  LLTM_DEVICE int64_t stride() const { return place_.state_stride.from(at_); }
  LLTM_DEVICE int64_t gate_stride() const { return place_.gate_stride.from(at_); }

  // Adds the partial products to `sums`. All reads start before the first addition.
  LLTM_DEVICE void add(const float* partials, float (&sums)[Engine::kGates][kEach]) const {
    constexpr int kGate = Engine::kTiles * kTileRows * kUnitPitch<Engine::kUnits>;
    const float* const at = partials + row_ * kUnitPitch<Engine::kUnits> + unit_;
    float parts[kWarps][Engine::kGates][kEach];
    unrolled<Engine::kGates, kWarps>([&](int gate, int warp) {
      const auto part = load_pack<kEach>(at + (warp * Engine::kGates + gate) * kGate);
      unrolled<kEach>([&](int i) { parts[warp][gate][i] = part.element[i]; });
    });
#pragma unroll
    for (int half = kWarps / 2; half > 0; half /= 2) {
      unrolled<kWarps / 2, Engine::kGates, kEach>([&](int warp, int gate, int i) {
        if (warp < half) parts[warp][gate][i] += parts[warp + half][gate][i];
      });
    }
    unrolled<Engine::kGates, kEach>([&](int gate, int i) { sums[gate][i] += parts[0][gate][i]; });
  }

  const Place& place_;
  GridPosition at_;
  bool active_;  // one value per warp
  bool owns_;    // has elements of the state

 private:
  static constexpr int kRowThreads = Engine::kUnits / kEach;
  static constexpr int kThreads = Engine::kTiles * kTileRows * kRowThreads;
  static_assert(Engine::kFinishWarps == 0 || Engine::kFinishWarps * 32 == kThreads,
                "there is a finishing thread for each kEach elements of a chunk");
  int unit_;
  int row_;
  float* carried_;
};

template <typename T, typename Engine>
class ForwardFinisher : Finisher<T, Engine, false> {
  using Base = Finisher<T, Engine, false>;

 public:
  using Place = typename Base::Place;
  using Arguments = lltm_layer_forward_arguments;

  LLTM_DEVICE ForwardFinisher(const Arguments& a, const Place& place, float* carried)
      : Base(place, carried, a.initial_cell),
        final_h_(static_cast<T*>(a.final_h)),
        final_cell_(static_cast<T*>(a.final_cell)),
        keeps_cells_(a.cells != nullptr),
        gates_(static_cast<T*>(a.gates) + this->first_element(kGateCount)),
        output_(static_cast<T*>(a.output) + this->first_element(1)),
        cells_(static_cast<T*>(a.cells) + this->first_element(1)) {
    fetch(this->valid());
  }

  // Does the part of a chunk's work that needs no products.
  LLTM_DEVICE void prepare() {
    if (!this->active_) return;
    unrolled<kGateCount, kEach>([&](int gate, int i) { z_[gate][i] = widen(ahead_[gate].at[i]); });
    if (this->prefetches()) {
      const int64_t later = this->prefetch_offset();
      unrolled<kGateCount>([&](int gate) {
        prefetch_to_l2(gates_ + kGateCount * later + gate * this->place_.state);
      });
      prefetch_to_l2(output_ + later);
    }
    gates_ += this->gate_stride();
    fetch(this->next_valid());
  }

  // Finishes one chunk, with its partial products if there are any.
  LLTM_DEVICE void finish(const float* partials, bool has_product) {
    if (!this->active_) return;
    if (has_product) this->add(partials, z_);
    if (this->valid()) {
      // Forward computes with the rounded values that backward will read.
      Elements<T, kEach> z[kGateCount];
      unrolled<kGateCount>([&](int gate) { z[gate].set(z_[gate]); });
      float* const carried = this->carried();
      Elements<T, kEach> new_h;
      Elements<T, kEach> new_cell;
      unrolled<kEach>([&](int i) {
        new_h.at[i] = forward_element(z[kInputGate].at[i], z[kOutputGate].at[i],
                                      z[kCandidate].at[i], carried[i]);
        new_cell.at[i] = narrow<T>(carried[i]);
      });
      publish(new_h, output_);
      T* const gates = gates_ - this->gate_stride();
      unrolled<kGateCount>([&](int gate) { z[gate].store(gates + gate * this->place_.state); });
      if (keeps_cells_) new_cell.store(cells_);
      if (this->at_.step + 1 == this->place_.steps) {
        new_h.store(final_h_ + this->element());
        new_cell.store(final_cell_ + this->element());
      }
    }
    output_ += this->stride();
    cells_ += this->stride();
    this->at_.advance();
  }

 private:
  static constexpr int kEach = Base::kEach;

  LLTM_DEVICE void fetch(bool valid) {
    if (!valid) return;
    unrolled<kGateCount>([&](int gate) { ahead_[gate].load(gates_ + gate * this->place_.state); });
  }

  // These are copies, since a reference to the arguments could make compilers keep them in memory.
  T* const final_h_;
  T* const final_cell_;
  const bool keeps_cells_;
  T* gates_;
  T* output_;
  T* cells_;
  Elements<T, kEach> ahead_[kGateCount] = {};
  float z_[kGateCount][kEach];
};

template <typename T, typename Engine>
class BackwardFinisher : Finisher<T, Engine, true> {
  using Base = Finisher<T, Engine, true>;

 public:
  using Place = typename Base::Place;
  using Arguments = lltm_layer_backward_arguments;

  LLTM_DEVICE BackwardFinisher(const Arguments& a, const Place& place, float* carried)
      : Base(place, carried, a.grad_final_cell),
        grad_final_h_(a.grad_final_h),
        d_initial_h_(static_cast<T*>(a.d_initial_h)),
        d_initial_cell_(static_cast<T*>(a.d_initial_cell)),
        from_(a, this->first_element(1), this->first_element(kGateCount)),
        d_gates_(static_cast<T*>(a.d_gates) + this->first_element(kGateCount)) {
    if (this->valid()) from_.load(place.state, 0, ahead_);
  }

  // Does the part of a chunk's work that needs no products.
  LLTM_DEVICE void prepare() {
    if (!this->active_ || this->at_.step >= this->place_.steps) return;
    unrolled<kEach>([&](int i) {
      slopes_[i] = ahead_.slopes(i);
      grad_h_[i] = widen(ahead_.grad_output.at[i]);
      if (this->at_.step == 0) {
        if (!from_.has_output && grad_final_h_ == nullptr) slopes_[i].leave_out_h();
        grad_h_[i] += load_or_zero<T>(grad_final_h_, this->element() + i, this->valid());
      }
      grad_cell_[i] = widen(ahead_.grad_cell.at[i]);
    });
    if (this->prefetches()) {
      const int64_t later = this->prefetch_offset();
      unrolled<kGateCount>([&](int gate) {
        prefetch_to_l2(from_.gates + kGateCount * later + gate * this->place_.state);
        prefetch_to_l2(d_gates_ + kGateCount * later + gate * this->place_.state);
      });
      prefetch_to_l2(from_.cells + later);
      if (from_.has_output) prefetch_to_l2(from_.grad_output + later);
      if (from_.has_cells) prefetch_to_l2(from_.grad_cells + later);
    }
    from_.advance(this->stride(), this->gate_stride());
    if (this->next_valid()) from_.load(this->place_.state, 0, ahead_);
  }

  // Finishes one chunk. Once all steps have run, only the gradient of the initial h is left.
  LLTM_DEVICE void finish(const float* partials, bool has_product) {
    if (!this->active_) return;
    float product[1][kEach] = {};
    if (has_product) this->add(partials, product);
    if (this->valid() && this->at_.step == this->place_.steps) {
      Elements<T, kEach> d_initial_h;
      d_initial_h.set(product[0]);
      d_initial_h.store(d_initial_h_ + this->element());
    } else if (this->valid()) {
      float* const carried = this->carried();
      Elements<T, kEach> d_z[kGateCount];
      Elements<T, kEach> d_old_cell;
      unrolled<kEach>([&](int i) {
        T rounded[kGateCount];
        carried[i] =
            slopes_[i].gradients(product[0][i] + grad_h_[i], grad_cell_[i] + carried[i], rounded);
        unrolled<kGateCount>([&](int gate) { d_z[gate].at[i] = rounded[gate]; });
        d_old_cell.at[i] = narrow<T>(carried[i]);
      });
      unrolled<kGateCount>(
          [&](int gate) { publish(d_z[gate], d_gates_ + gate * this->place_.state); });
      if (this->at_.step + 1 == this->place_.steps && d_initial_cell_ != nullptr) {
        d_old_cell.store(d_initial_cell_ + this->element());
      }
    }
    d_gates_ += this->gate_stride();
    this->at_.advance();
  }

 private:
  static constexpr int kEach = Base::kEach;

  const void* const grad_final_h_;
  T* const d_initial_h_;
  T* const d_initial_cell_;
  BackwardSource<T> from_;
  T* d_gates_;
  BackwardInputs<T, kEach> ahead_ = {};
  StepSlopes slopes_[kEach] = {};
  float grad_h_[kEach] = {};
  float grad_cell_[kEach] = {};
};

}  // namespace lltm
