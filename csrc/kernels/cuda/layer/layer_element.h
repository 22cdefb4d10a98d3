// A step of one element of the state, without its products, for all layer families but `gemm`.
#pragma once

#include "../common/device_math.h"
#include "layer_device.h"

namespace lltm {

// One forward step of one element. The pre-activations are rounded to T, as backward will read
// them. Updates the cell state and returns h.
template <typename T>
LLTM_DEVICE T forward_element(T z_i, T z_o, T z_c, float& cell) {
  const auto next = CellFormulas<SwiftMath>::forward(widen(z_i), widen(z_o), widen(z_c), cell);
  cell = next.cell;
  return narrow<T>(next.h);
}

// The factors of one element's backward step that do not depend on dh, the gradient of h. dc is the
// gradient of the cell state, and `carry` is the part of dc that does not come through h.
//   dc = carry + dh * d_cell;  dz_i = dc * input_gate;  dz_o = dh * output_gate;
//   dz_c = dc * candidate
struct StepSlopes {
  float d_cell;
  float input_gate;
  float output_gate;
  float candidate;

  LLTM_DEVICE static StepSlopes of(float z_i, float z_o, float z_c, float cell) {
    const Sigmoid<float> i = FloatMath::sigmoid(z_i);
    const Sigmoid<float> o = FloatMath::sigmoid(z_o);
    const float g = FloatMath::elu(z_c);
    const float t = FloatMath::tanh(cell);
    return {o.value * (1.0f - t * t), g * i.value * i.complement, t * o.value * o.complement,
            i.value * FloatMath::elu_slope(z_c)};
  }

  // For a step whose h has no gradient: a NaN in these factors would reach all gradients.
  LLTM_DEVICE void leave_out_h() {
    d_cell = 0.0f;
    output_gate = 0.0f;
  }

  // Writes dz, rounded, and returns dc.
  template <typename T>
  LLTM_DEVICE float gradients(float dh, float carry, T (&d_z)[kGateCount]) const {
    const float dc = fmaf(dh, d_cell, carry);
    d_z[kInputGate] = narrow<T>(dc * input_gate);
    d_z[kOutputGate] = narrow<T>(dh * output_gate);
    d_z[kCandidate] = narrow<T>(dc * candidate);
    return dc;
  }
};

// Neighbouring elements. `load` takes any address; `store` needs alignment to n elements.
template <typename T, int n>
struct alignas(sizeof(T) * n) Elements {
  T at[n];

  LLTM_DEVICE void load(const T* address) {
    unrolled<n>([&](int i) { at[i] = address[i]; });
  }
  LLTM_DEVICE void set(const float (&values)[n]) {
    unrolled<n>([&](int i) { at[i] = narrow<T>(values[i]); });
  }
  LLTM_DEVICE void store(T* address) const { *reinterpret_cast<Elements*>(address) = *this; }
  // A word is a float32, or two 16-bit elements.
  LLTM_DEVICE uint32_t word(int i) const {
    if constexpr (sizeof(T) == 4) {
      return __float_as_uint(at[i]);
    } else {
      return at[2 * i].bits | static_cast<uint32_t>(at[2 * i + 1].bits) << 16;
    }
  }
};

// Backward's inputs of one step for n neighbouring elements.
template <typename T, int n>
struct BackwardInputs {
  Elements<T, n> z[kGateCount];
  Elements<T, n> cell;
  Elements<T, n> grad_output;
  Elements<T, n> grad_cell;

  LLTM_DEVICE StepSlopes slopes(int i) const {
    return StepSlopes::of(widen(z[kInputGate].at[i]), widen(z[kOutputGate].at[i]),
                          widen(z[kCandidate].at[i]), widen(cell.at[i]));
  }
};

// The addresses of one step's BackwardInputs.
template <typename T>
struct BackwardSource {
  const T* gates;
  const T* cells;
  const T* grad_output;
  const T* grad_cells;
  bool has_output;
  bool has_cells;

  // `element` is an index in tensors (T, B, S), `gate_element` an index in tensors (T, B, 3, S).
  LLTM_DEVICE BackwardSource(const lltm_layer_backward_arguments& a, int64_t element,
                             int64_t gate_element)
      : gates(static_cast<const T*>(a.gates) + gate_element),
        cells(static_cast<const T*>(a.cells) + element),
        grad_output(static_cast<const T*>(a.grad_output) + element),
        grad_cells(static_cast<const T*>(a.grad_cells) + element),
        has_output(a.grad_output != nullptr),
        has_cells(a.grad_cells != nullptr) {}

  // Reads the inputs that are `rows` batch rows after these addresses. Inputs without a tensor do
  // not change.
  template <int n>
  LLTM_DEVICE void load(int state, int rows, BackwardInputs<T, n>& to) const {
    unrolled<kGateCount>(
        [&](int gate) { to.z[gate].load(gates + (kGateCount * rows + gate) * state); });
    to.cell.load(cells + rows * state);
    if (has_output) to.grad_output.load(grad_output + rows * state);
    if (has_cells) to.grad_cell.load(grad_cells + rows * state);
  }

  LLTM_DEVICE void advance(int64_t stride, int64_t gate_stride) {
    gates += gate_stride;
    cells += stride;
    grad_output += stride;
    grad_cells += stride;
  }
};

// One thread's part of forward: one unit of the state in kRows rows of the batch.
template <typename T, int kRows>
class ForwardUnit {
 public:
  // `row` is the first row. Only the first `rows` of the kRows rows exist; `rows` may be 0 or less.
  // One of the threads with the same elements has `writes`. Starts to read the first step's gates.
  LLTM_DEVICE ForwardUnit(const lltm_layer_forward_arguments& a, int64_t row, int rows, int unit,
                          bool writes)
      : state_(static_cast<int>(a.sizes.state_size)),
        element_(row * state_ + unit),
        keeps_cells_(a.cells != nullptr) {
    const Walk walk(a.sizes, false);
    stride_ = walk.stride;
    gates_ = static_cast<T*>(a.gates) + (walk.first + row * state_) * kGateCount + unit;
    output_ = static_cast<T*>(a.output) + walk.first + element_;
    cells_ = static_cast<T*>(a.cells) + walk.first + element_;
    unrolled<kRows>([&](int r) {
      valid_[r] = unit < state_ && r < rows;
      writes_[r] = valid_[r] && writes;
      cell_[r] = load_or_zero<T>(a.initial_cell, element_ + r * state_, valid_[r]);
    });
    fetch(gates_);
  }

  LLTM_DEVICE bool writes(int r) const { return writes_[r]; }
  LLTM_DEVICE float h(int r) const { return widen(h_[r]); }

  // Runs one step from the products of the old h. If there are `more` steps, starts to read the
  // next step's gates before the activations, since the read takes about a step. The last step
  // reads its own gates again, because a condition would delay all reads.
  LLTM_DEVICE void step(const float (&products)[kRows][kGateCount], bool more) {
    unrolled<kRows, kGateCount>([&](int r, int gate) {
      z_[r][gate] = narrow<T>(products[r][gate] + widen(ahead_[r][gate]));
    });
    fetch(more ? gates_ + kGateCount * stride_ : gates_);
    unrolled<kRows>([&](int r) {
      h_[r] = forward_element(z_[r][kInputGate], z_[r][kOutputGate], z_[r][kCandidate], cell_[r]);
    });
  }

  // Writes the step's results and moves to the next step.
  LLTM_DEVICE void store() {
    unrolled<kRows>([&](int r) {
      if (!writes_[r]) return;
      unrolled<kGateCount>(
          [&](int gate) { gates_[(kGateCount * r + gate) * state_] = z_[r][gate]; });
      output_[r * state_] = h_[r];
      if (keeps_cells_) cells_[r * state_] = narrow<T>(cell_[r]);
    });
    gates_ += kGateCount * stride_;
    output_ += stride_;
    cells_ += stride_;
  }

  LLTM_DEVICE void store_final(const lltm_layer_forward_arguments& a) {
    unrolled<kRows>([&](int r) {
      if (!writes_[r]) return;
      static_cast<T*>(a.final_h)[element_ + r * state_] = h_[r];
      static_cast<T*>(a.final_cell)[element_ + r * state_] = narrow<T>(cell_[r]);
    });
  }

 private:
  LLTM_DEVICE void fetch(const T* from) {
    unrolled<kRows, kGateCount>([&](int r, int gate) {
      if (valid_[r]) ahead_[r][gate] = from[(kGateCount * r + gate) * state_];
    });
  }

  int state_;
  int64_t element_;  // the index in tensors (B, S)
  int64_t stride_;   // elements of tensors (T, B, S) from step to step
  bool keeps_cells_;
  T* gates_;
  T* output_;
  T* cells_;
  bool valid_[kRows];
  bool writes_[kRows];
  float cell_[kRows];
  T ahead_[kRows][kGateCount] = {};  // the next step's gates
  T z_[kRows][kGateCount] = {};
  T h_[kRows] = {};
};

// One thread's part of backward: one unit of the state in kRows rows of the batch.
template <typename T, int kRows>
class BackwardUnit {
 public:
  // The parameters are those of ForwardUnit. Prepares the last step, which runs first.
  LLTM_DEVICE BackwardUnit(const lltm_layer_backward_arguments& a, int64_t row, int rows, int unit,
                           bool writes)
      : state_(static_cast<int>(a.sizes.state_size)),
        element_(row * state_ + unit),
        walk_(a.sizes, true),
        from_(a, walk_.first + element_, kGateCount * (walk_.first + row * state_) + unit),
        d_gates_(static_cast<T*>(a.d_gates) + kGateCount * (walk_.first + row * state_) + unit) {
    unrolled<kRows>([&](int r) {
      valid_[r] = unit < state_ && r < rows;
      writes_[r] = valid_[r] && writes;
      carry_[r] = load_or_zero<T>(a.grad_final_cell, element_ + r * state_, valid_[r]);
    });
    fetch();
    prepare();
    unrolled<kRows>([&](int r) {
      if (a.grad_output == nullptr && a.grad_final_h == nullptr) slopes_[r].leave_out_h();
      grad_h_[r] += load_or_zero<T>(a.grad_final_h, element_ + r * state_, valid_[r]);
    });
  }

  LLTM_DEVICE bool valid(int r) const { return valid_[r]; }
  LLTM_DEVICE bool writes(int r) const { return writes_[r]; }
  LLTM_DEVICE float d_z(int r, int gate) const { return widen(d_z_[r][gate]); }

  // Starts to read the inputs of the step that runs next.
  LLTM_DEVICE void fetch() {
    unrolled<kRows>([&](int r) {
      if (valid_[r]) from_.load(state_, r, ahead_[r]);
    });
    from_.advance(walk_.stride, kGateCount * walk_.stride);
  }

  // Computes the values that do not depend on the products, from what `fetch` has read.
  LLTM_DEVICE void prepare() {
    unrolled<kRows>([&](int r) {
      slopes_[r] = ahead_[r].slopes(0);
      grad_h_[r] = widen(ahead_[r].grad_output.at[0]);
      grad_cell_[r] = widen(ahead_[r].grad_cell.at[0]) + carry_[r];
    });
  }

  // Runs one step of row `r` from the product of the later step's dz.
  LLTM_DEVICE void step(int r, float product) {
    carry_[r] = slopes_[r].gradients(product + grad_h_[r], grad_cell_[r], d_z_[r]);
  }

  // Writes the step's dz and moves to the step that runs next.
  LLTM_DEVICE void store() {
    unrolled<kRows, kGateCount>([&](int r, int gate) {
      if (writes_[r]) d_gates_[(kGateCount * r + gate) * state_] = d_z_[r][gate];
    });
    d_gates_ += kGateCount * walk_.stride;
  }

  LLTM_DEVICE void store_d_initial_h(const lltm_layer_backward_arguments& a, int r, float product) {
    static_cast<T*>(a.d_initial_h)[element_ + r * state_] = narrow<T>(product);
  }

  LLTM_DEVICE void store_d_initial_cell(const lltm_layer_backward_arguments& a) {
    if (a.d_initial_cell == nullptr) return;
    unrolled<kRows>([&](int r) {
      if (!writes_[r]) return;
      static_cast<T*>(a.d_initial_cell)[element_ + r * state_] = narrow<T>(carry_[r]);
    });
  }

 private:
  int state_;
  int64_t element_;  // the index in tensors (B, S)
  Walk walk_;
  BackwardSource<T> from_;
  T* d_gates_;
  bool valid_[kRows];
  bool writes_[kRows];
  BackwardInputs<T, 1> ahead_[kRows] = {};
  StepSlopes slopes_[kRows];
  float grad_h_[kRows];  // without the product of the later step's dz
  float grad_cell_[kRows];
  float carry_[kRows];  // dc of the later step
  T d_z_[kRows][kGateCount] = {};
};

}  // namespace lltm
