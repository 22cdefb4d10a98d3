// Code that all families share: a step of one element of the state, apart from the products.
#pragma once

#include "device_math.h"
#include "layer_device.h"

namespace lltm {

// One forward step of one element, from pre-activations that are rounded as backward reads them.
// Updates the cell state and returns h.
template <typename T>
LLTM_DEVICE T forward_element(T z_i, T z_o, T z_c, float& cell) {
  const auto next = CellFormulas<SwiftMath>::forward(widen(z_i), widen(z_o), widen(z_c), cell);
  cell = next.cell;
  return narrow<T>(next.h);
}

// Backward of one element from dh, the gradient of h. These factors do not depend on dh.
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
            i.value * FloatMath::elu_slope(g)};
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

// Neighbouring elements. Reads take any address; writes need an address that is aligned to words.
template <typename T, int n>
struct Elements {
  T at[n];

  LLTM_DEVICE void load(const T* address) {
    unrolled<n>([&](int i) { at[i] = address[i]; });
  }
  LLTM_DEVICE void set(const float (&values)[n]) {
    unrolled<n>([&](int i) { at[i] = narrow<T>(values[i]); });
  }
  LLTM_DEVICE void store(T* address) const {
    if constexpr (sizeof(T) < 4) {
      *reinterpret_cast<uint32_t*>(address) = word();
    } else {
      unrolled<n>([&](int i) { address[i] = at[i]; });
    }
  }
  // A 32-bit word of two 16-bit elements.
  LLTM_DEVICE uint32_t word() const {
    static_assert(n == 2 && sizeof(T) == 2, "a word is two 16-bit elements");
    return at[0].bits | static_cast<uint32_t>(at[1].bits) << 16;
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

// The addresses of BackwardInputs. The pointers move from step to step.
template <typename T>
struct BackwardSource {
  const T* gates;
  const T* cells;
  const T* grad_output;
  const T* grad_cells;
  bool has_output;
  bool has_cells;

  // `element` is an index in tensors (T, B, S), `gate_element` in tensors (T, B, 3, S).
  LLTM_DEVICE BackwardSource(const lltm_layer_backward_arguments& a, int64_t element,
                             int64_t gate_element)
      : gates(static_cast<const T*>(a.gates) + gate_element),
        cells(static_cast<const T*>(a.cells) + element),
        grad_output(static_cast<const T*>(a.grad_output) + element),
        grad_cells(static_cast<const T*>(a.grad_cells) + element),
        has_output(a.grad_output != nullptr),
        has_cells(a.grad_cells != nullptr) {}

  // Reads the elements that are `rows` batch rows further on. Inputs without a tensor do not
  // change.
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

// Forward of one unit of the state in kRows rows of the batch, by one thread.
template <typename T, int kRows>
class ForwardUnit {
 public:
  // `row` is the first row; `rows` of the kRows exist, possibly none. Several threads may have the
  // same unit; one of them `writes`. Starts to read the first step's gates.
  LLTM_DEVICE ForwardUnit(const lltm_layer_forward_arguments& a, int64_t row, int rows, int unit,
                          bool writes)
      : state_(static_cast<int>(a.sizes.state_size)),
        element_(row * state_ + unit),
        keeps_cells_(a.cells != nullptr) {
    const Walk walk = Walk::forward(a.sizes);
    const int64_t plane = a.sizes.batch_size * state_;
    const int64_t first = walk.first * plane;
    stride_ = walk.stride * plane;
    gates_ = static_cast<T*>(a.gates) + (first + row * state_) * kGateCount + unit;
    output_ = static_cast<T*>(a.output) + first + element_;
    cells_ = static_cast<T*>(a.cells) + first + element_;
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
  // reads its own gates again, because a condition on the reads would delay them.
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
  int64_t element_;  // of tensors (B, S)
  int64_t stride_;   // from step to step, of tensors (T, B, S)
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

// Backward of one unit of the state in kRows rows of the batch, by one thread.
template <typename T, int kRows>
class BackwardUnit {
 public:
  // Parameters as for ForwardUnit. Prepares the first step.
  LLTM_DEVICE BackwardUnit(const lltm_layer_backward_arguments& a, int64_t row, int rows, int unit,
                           bool writes)
      : state_(static_cast<int>(a.sizes.state_size)),
        element_(row * state_ + unit),
        from_(a, first_element(a) + element_,
              kGateCount * (first_element(a) + row * state_) + unit),
        d_gates_(static_cast<T*>(a.d_gates) + kGateCount * (first_element(a) + row * state_) +
                 unit) {
    stride_ = Walk::backward(a.sizes).stride * a.sizes.batch_size * state_;
    unrolled<kRows>([&](int r) {
      valid_[r] = unit < state_ && r < rows;
      writes_[r] = valid_[r] && writes;
      carry_[r] = load_or_zero<T>(a.grad_final_cell, element_ + r * state_, valid_[r]);
    });
    fetch();
    prepare();
    unrolled<kRows>([&](int r) {
      grad_h_[r] += load_or_zero<T>(a.grad_final_h, element_ + r * state_, valid_[r]);
    });
  }

  LLTM_DEVICE bool valid(int r) const { return valid_[r]; }
  LLTM_DEVICE bool writes(int r) const { return writes_[r]; }
  LLTM_DEVICE float d_z(int r, int gate) const { return widen(d_z_[r][gate]); }

  // Starts to read the next step's inputs.
  LLTM_DEVICE void fetch() {
    unrolled<kRows>([&](int r) {
      if (valid_[r]) from_.load(state_, r, ahead_[r]);
    });
    from_.advance(stride_, kGateCount * stride_);
  }

  // Computes the values that do not depend on the products, from the inputs of `fetch`.
  LLTM_DEVICE void prepare() {
    unrolled<kRows>([&](int r) {
      slopes_[r] = ahead_[r].slopes(0);
      grad_h_[r] = widen(ahead_[r].grad_output.at[0]);
      grad_cell_[r] = widen(ahead_[r].grad_cell.at[0]) + carry_[r];
    });
  }

  // Runs one step from the product of the later step's dz.
  LLTM_DEVICE void step(int r, float product) {
    carry_[r] = slopes_[r].gradients(product + grad_h_[r], grad_cell_[r], d_z_[r]);
  }

  // Writes the step's results and moves to the next step.
  LLTM_DEVICE void store() {
    unrolled<kRows, kGateCount>([&](int r, int gate) {
      if (writes_[r]) d_gates_[(kGateCount * r + gate) * state_] = d_z_[r][gate];
    });
    d_gates_ += kGateCount * stride_;
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
  LLTM_DEVICE static int64_t first_element(const lltm_layer_backward_arguments& a) {
    return Walk::backward(a.sizes).first * a.sizes.batch_size * a.sizes.state_size;
  }

  int state_;
  int64_t element_;  // of tensors (B, S)
  int64_t stride_;   // from step to step, of tensors (T, B, S)
  BackwardSource<T> from_;
  T* d_gates_;
  bool valid_[kRows];
  bool writes_[kRows];
  BackwardInputs<T, 1> ahead_[kRows] = {};
  StepSlopes slopes_[kRows];
  float grad_h_[kRows];  // without the product
  float grad_cell_[kRows];
  float carry_[kRows];  // dc of the later step
  T d_z_[kRows][kGateCount] = {};
};

}  // namespace lltm
