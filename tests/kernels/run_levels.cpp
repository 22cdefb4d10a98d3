// Runs the CPU kernels of one instruction set, without torch, and prints what they computed:
//   run_levels SEED COUNT
// First the instruction set, then for each of COUNT problems and each dtype its sizes, and a line
// for each result: its name and its elements. Problems follow from SEED alone.
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "../../csrc/kernels/lltm_kernels.h"
#include "../../csrc/kernels/types.h"

extern "C" const void* lltm_kernel_table(void);
extern "C" const char* lltm_cpu_capability(void);

namespace {

using namespace lltm;

uint64_t random_state = 0;

uint64_t draw() {  // splitmix64
  uint64_t z = (random_state += 0x9e3779b97f4a7c15u);
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9u;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebu;
  return z ^ (z >> 31);
}

int64_t draw_size(int64_t least, int64_t most) {
  return least + static_cast<int64_t>(draw() % static_cast<uint64_t>(most - least + 1));
}

template <typename T>
struct Tensor {
  std::vector<T> elements;
  explicit Tensor(int64_t count) : elements(static_cast<size_t>(count)) {}
  T* data() { return elements.data(); }
};

template <typename T>
Tensor<T> drawn(int64_t count, double scale = 1.0) {
  Tensor<T> tensor(count);
  for (T& element : tensor.elements) {
    const double value = (static_cast<double>(draw() >> 11) * 0x1p-52 - 1.0) * scale;
    element = narrow<T>(static_cast<compute_t<T>>(value));
  }
  return tensor;
}

template <typename T>
void print(const char* name, const Tensor<T>& tensor) {
  std::printf("%s", name);
  for (const T element : tensor.elements) std::printf(" %.17g", double(widen(element)));
  std::printf("\n");
}

void check(const char* failure) {
  if (failure == nullptr) return;
  std::fprintf(stderr, "%s\n", failure);
  std::exit(1);
}

void in_turn(int64_t begin, int64_t end, int64_t grain, lltm_range_function function,
             void* context) {
  for (int64_t from = begin; from < end; from += grain) {
    function(from, from + grain < end ? from + grain : end, context);
  }
}

template <typename T>
void run(lltm_dtype dtype) {
  const auto& kernels = *static_cast<const lltm_kernel_functions*>(lltm_kernel_table());
  const lltm_execution execution = {0, nullptr, in_turn};
  const int64_t B = draw_size(1, 40), I = draw_size(0, 50), S = draw_size(1, 70),
                T_ = draw_size(1, 5);
  std::printf("dtype %d B %ld I %ld S %ld T %ld\n", int(dtype), long(B), long(I), long(S),
              long(T_));
  const double scale = 1.0 / (1.0 + double(S + I) / 8.0);
  auto weights = drawn<T>(3 * S * (S + I), scale);
  auto bias = drawn<T>(3 * S), input = drawn<T>(B * I), old_h = drawn<T>(B * S);
  auto old_cell = drawn<T>(B * S, 3.0), grad_h = drawn<T>(B * S), grad_cell = drawn<T>(B * S);

  Tensor<T> gates(3 * B * S), new_h(B * S), new_cell(B * S);
  lltm_step_sizes sizes = {B, I, S, S + I, 0};
  lltm_step_forward_arguments forward = {};
  forward.sizes = sizes;
  forward.input = input.data(), forward.weights = weights.data(), forward.bias = bias.data();
  forward.old_h = old_h.data(), forward.old_cell = old_cell.data();
  forward.gates = gates.data(), forward.new_h = new_h.data(), forward.new_cell = new_cell.data();
  check(kernels.step_forward(dtype, 1, &forward, &execution));
  print("new_h", new_h), print("new_cell", new_cell);

  Tensor<T> d_input(B * I), d_weights(3 * S * (S + I)), d_bias(3 * S), d_h(B * S), d_cell(B * S);
  lltm_step_backward_arguments backward = {};
  backward.sizes = sizes;
  backward.grad_h = grad_h.data(), backward.grad_cell = grad_cell.data();
  backward.input = input.data(), backward.weights = weights.data();
  backward.old_h = old_h.data(), backward.new_cell = new_cell.data(), backward.gates = gates.data();
  backward.d_input = d_input.data(), backward.d_weights = d_weights.data();
  backward.d_bias = d_bias.data(), backward.d_old_h = d_h.data();
  backward.d_old_cell = d_cell.data();
  check(kernels.step_backward(dtype, 1, &backward, &execution));
  print("d_input", d_input), print("d_weights", d_weights), print("d_bias", d_bias);
  print("d_old_h", d_h), print("d_old_cell", d_cell);

  // Of a sequence the columns of h alone: its gates are drawn.
  Tensor<T> sequence = drawn<T>(T_ * B * 3 * S), output(T_ * B * S), cells(T_ * B * S);
  Tensor<T> final_h(B * S), final_cell(B * S), workspace(0);
  lltm_layer_sizes layer = {T_, B, S, S + I, int32_t(draw() % 2), 0};
  lltm_layer_plan plan;
  check(kernels.layer_plan(dtype, LLTM_FORWARD, &layer, &execution, &plan));
  std::vector<double> memory(size_t(plan.workspace_bytes / 8 + 1));
  lltm_layer_forward_arguments all = {};
  all.sizes = layer;
  all.weights = weights.data(), all.bias = bias.data();
  all.initial_h = old_h.data(), all.initial_cell = old_cell.data();
  all.gates = sequence.data(), all.output = output.data(), all.cells = cells.data();
  all.final_h = final_h.data(), all.final_cell = final_cell.data();
  all.workspace = memory.data();
  check(kernels.layer_forward(dtype, plan.family, &all, &execution));
  print("output", output), print("cells", cells);

  check(kernels.layer_plan(dtype, LLTM_BACKWARD, &layer, &execution, &plan));
  memory.resize(size_t(plan.workspace_bytes / 8 + 1));
  auto grad_output = drawn<T>(T_ * B * S);
  Tensor<T> d_gates(T_ * B * 3 * S);
  lltm_layer_backward_arguments back = {};
  back.sizes = layer;
  back.weights = weights.data(), back.grad_output = grad_output.data();
  back.gates = sequence.data(), back.cells = cells.data(), back.d_gates = d_gates.data();
  back.d_initial_h = d_h.data(), back.d_initial_cell = d_cell.data();
  back.workspace = memory.data();
  check(kernels.layer_backward(dtype, plan.family, &back, &execution));
  print("d_gates", d_gates), print("d_initial_h", d_h), print("d_initial_cell", d_cell);

  {
    const int64_t rows = draw_size(1, 300), columns = draw_size(1, 70), depth = draw_size(1, 600);
    auto left = drawn<T>(rows * depth), right = drawn<T>(depth * columns);
    auto to = drawn<T>(rows * columns);
    lltm_product_arguments product = {};
    product.rows = rows, product.columns = columns, product.depth = depth;
    product.left_transposed = int32_t(draw() % 2), product.right_transposed = int32_t(draw() % 2);
    product.left = left.data(), product.left_stride = product.left_transposed ? rows : depth;
    product.right = right.data(), product.right_stride = product.right_transposed ? depth : columns;
    product.to = to.data(), product.to_stride = columns, product.adds = int32_t(draw() % 2);
    check(kernels.product(dtype, &product, &execution));
    print("product", to);
  }
}

}  // namespace

int main(int, char** arguments) {
  setenv("LLTM_LAYER_KERNELS", "fused", 1);
  random_state = std::strtoull(arguments[1], nullptr, 10);
  std::printf("level %s\n", lltm_cpu_capability());
  for (int count = std::atoi(arguments[2]); count > 0; --count) {
    run<float>(LLTM_FLOAT32);
    run<double>(LLTM_FLOAT64);
    run<float16>(LLTM_FLOAT16);
    run<bfloat16>(LLTM_BFLOAT16);
  }
}
