// Runs the LLTM cell in a program without Python, and holds its results and its first and second
// derivatives against the same cell in plain ATen.
//
//   lltm_example [cpu|cuda]
#include <ATen/Context.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/elu.h>
#include <ATen/ops/linear.h>
#include <ATen/ops/ones.h>
#include <ATen/ops/randn.h>
#include <ATen/ops/sigmoid.h>
#include <ATen/ops/tanh.h>
#include <ATen/ops/zeros.h>
#include <lltm/lltm.h>
#include <torch/csrc/autograd/autograd.h>

#include <cstdio>
#include <cstring>
#include <functional>
#include <string>
#include <vector>

namespace {

using Tensors = std::vector<at::Tensor>;
using Step = std::function<std::tuple<at::Tensor, at::Tensor>(const Tensors&)>;

int failures = 0;

void report(const std::string& what, double error, double bound) {
  const bool good = error <= bound;  // false for NaN
  std::printf("%-44s error %.2e, at most %.0e  %s\n", what.c_str(), error, bound,
              good ? "ok" : "WRONG");
  if (!good) ++failures;
}

// The definition, in operations of torch alone.
std::tuple<at::Tensor, at::Tensor> plain_aten(const Tensors& operands) {
  const at::Tensor x = at::cat({operands[3], operands[0]}, 1);
  const Tensors z = at::linear(x, operands[1], operands[2]).chunk(3, 1);
  const at::Tensor new_cell = operands[4] + at::elu(z[2]) * at::sigmoid(z[0]);
  return {at::tanh(new_cell) * at::sigmoid(z[1]), new_cell};
}

std::tuple<at::Tensor, at::Tensor> our_op(const Tensors& operands) {
  return lltm::cell(operands[0], operands[1], operands[2], operands[3], operands[4]);
}

struct Results {
  Tensors outputs;
  Tensors first;   // gradients of a number made of the outputs
  Tensors second;  // gradients of a number made of those gradients
};

Results differentiate(const Step& step, const Tensors& operands) {
  Tensors leaves;
  for (const at::Tensor& operand : operands) {
    leaves.push_back(operand.detach().clone().requires_grad_());
  }
  const auto [new_h, new_cell] = step(leaves);
  const at::Tensor number = (new_h.sin() + new_cell.square()).sum();
  const Tensors first = torch::autograd::grad({number}, leaves, {}, true, true);
  at::Tensor again = at::zeros({}, number.options());
  for (const at::Tensor& gradient : first) again = again + gradient.square().sum();
  const Tensors second = torch::autograd::grad({again}, leaves);
  // Without create_graph the raw backward op computes, not its differentiable twin.
  const auto [h, cell] = step(leaves);
  const Tensors plain = torch::autograd::grad({(h.sin() + cell.square()).sum()}, leaves);
  return {{new_h.detach(), new_cell.detach()}, plain, second};
}

double relative_error(const Tensors& got, const Tensors& wanted) {
  double worst = 0;
  for (size_t k = 0; k < wanted.size(); ++k) {
    const at::Tensor expected = wanted[k].detach().to(at::kDouble);
    const double size = expected.norm().item<double>() + 1e-30;
    const double error = (got[k].detach().to(at::kDouble) - expected).norm().item<double>() / size;
    if (!(error <= worst)) worst = error;
  }
  return worst;
}

void compare(at::Device device, at::ScalarType dtype, double bound) {
  const int64_t batch = 7, features = 33, state = 65;
  const auto options = at::TensorOptions().device(device).dtype(at::kDouble);
  const auto drawn = [&](at::IntArrayRef sizes) { return at::randn(sizes, options) * 0.5; };
  Tensors exact = {drawn({batch, features}), drawn({3 * state, state + features}),
                   drawn({3 * state}), drawn({batch, state}), drawn({batch, state})};
  Tensors operands;
  for (at::Tensor& tensor : exact) {
    operands.push_back(tensor.to(dtype));
    tensor = operands.back().to(at::kDouble);  // both sides start from the same numbers
  }
  const Results got = differentiate(our_op, operands);
  const Results wanted = differentiate(plain_aten, exact);
  const std::string where = std::string(c10::toString(dtype)) + " on " + device.str();
  report(where + ", outputs", relative_error(got.outputs, wanted.outputs), bound);
  report(where + ", first derivatives", relative_error(got.first, wanted.first), bound);
  report(where + ", second derivatives", relative_error(got.second, wanted.second), 4 * bound);
}

// Where z = 0, elu has two slopes on its sides in the second derivative: the op takes at::elu's.
void check_elu_at_zero(at::Device device) {
  const int64_t batch = 3, features = 4, state = 5;
  const auto options = at::TensorOptions().device(device).dtype(at::kDouble);
  const Tensors operands = {at::randn({batch, features}, options),
                            at::zeros({3 * state, state + features}, options),
                            at::zeros({3 * state}, options), at::randn({batch, state}, options),
                            at::randn({batch, state}, options)};
  const Results got = differentiate(our_op, operands);
  const Results wanted = differentiate(plain_aten, operands);
  report("z = 0, first derivatives", relative_error(got.first, wanted.first), 1e-12);
  report("z = 0, second derivatives", relative_error(got.second, wanted.second), 1e-12);
}

// What is not asked for is not computed, and a wrong argument is refused by name.
void check_refusals(at::Device device) {
  const auto options = at::TensorOptions().device(device);
  const at::Tensor h = at::zeros({2, 3}, options), x = at::ones({2, 4}, options);
  const at::Tensor weights = at::ones({9, 7}, options).requires_grad_();
  const auto [new_h, new_cell] = lltm::cell(x, weights, at::zeros({9}, options), h, h);
  const Tensors found = torch::autograd::grad({new_h.sum()}, {weights});
  report("gradient of the weights alone has their shape",
         found[0].sizes() == weights.sizes() ? 0 : 1, 0);
  std::string text = "nothing was thrown";
  try {
    lltm::cell(x, weights, at::zeros({9}, options), at::zeros({2, 5}, options), h);
  } catch (const std::exception& error) {
    text = error.what();
  }
  const bool named = text.find("weights must have shape (3S, S + I)") != std::string::npos;
  report("a wrong shape is refused by name", named ? 0 : 1, 0);
  if (!named) std::printf("  got instead: %s\n", text.c_str());
}

}  // namespace

int main(int argc, char** argv) {
  const at::Device device(argc > 1 ? argv[1] : "cpu");
  at::manual_seed(0);
  std::printf("lltm %s\n", lltm_version());
  compare(device, at::kDouble, 1e-12);
  compare(device, at::kFloat, 1e-5);
  compare(device, at::kHalf, 5e-3);
  compare(device, at::kBFloat16, 3e-2);
  check_elu_at_zero(device);
  check_refusals(device);
  std::printf(failures == 0 ? "all checks passed\n" : "%d checks failed\n", failures);
  return failures == 0 ? 0 : 1;
}
