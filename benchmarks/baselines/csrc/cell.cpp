// One LLTM step as a first C++ extension is usually written: one ATen call after another, without
// fused pointwise operations. Backward gets new_cell, the gates, X = [old_h, input] and z from
// forward. Do not improve this baseline.
#include <torch/extension.h>

#include <vector>

namespace {

using torch::Tensor;

Tensor sigmoid_slope(const Tensor& z) {
  auto s = torch::sigmoid(z);
  return (1 - s) * s;
}

Tensor tanh_slope(const Tensor& z) { return 1 - z.tanh().pow(2); }

Tensor elu_slope(const Tensor& z) {
  auto e = z.exp();
  auto negative = (e - 1) < 0;
  return (z > 0).type_as(z) + negative.type_as(z) * e;
}

std::vector<Tensor> forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h,
                            Tensor old_cell) {
  auto X = torch::cat({old_h, input}, /*dim=*/1);
  auto z = torch::addmm(bias, X, weights.transpose(0, 1));
  auto parts = z.chunk(3, /*dim=*/1);

  auto input_gate = torch::sigmoid(parts[0]);
  auto output_gate = torch::sigmoid(parts[1]);
  auto candidate = torch::elu(parts[2], /*alpha=*/1.0);

  auto new_cell = old_cell + candidate * input_gate;
  auto new_h = torch::tanh(new_cell) * output_gate;
  return {new_h, new_cell, input_gate, output_gate, candidate, X, z};
}

std::vector<Tensor> backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell, Tensor input_gate,
                             Tensor output_gate, Tensor candidate, Tensor X, Tensor z,
                             Tensor weights) {
  auto d_output_gate = torch::tanh(new_cell) * grad_h;
  auto d_tanh = output_gate * grad_h;
  auto d_new_cell = tanh_slope(new_cell) * d_tanh + grad_cell;

  auto d_old_cell = d_new_cell;
  auto d_candidate = input_gate * d_new_cell;
  auto d_input_gate = candidate * d_new_cell;

  auto parts = z.chunk(3, /*dim=*/1);
  d_input_gate *= sigmoid_slope(parts[0]);
  d_output_gate *= sigmoid_slope(parts[1]);
  d_candidate *= elu_slope(parts[2]);
  auto d_z = torch::cat({d_input_gate, d_output_gate, d_candidate}, /*dim=*/1);

  auto d_weights = d_z.t().mm(X);
  auto d_bias = d_z.sum(/*dim=*/0, /*keepdim=*/true);
  auto d_X = d_z.mm(weights);
  const auto state_size = grad_h.size(1);
  auto d_old_h = d_X.slice(/*dim=*/1, 0, state_size);
  auto d_input = d_X.slice(/*dim=*/1, state_size);
  return {d_old_h, d_input, d_weights, d_bias, d_old_cell};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, "LLTM forward, op by op");
  m.def("backward", &backward, "LLTM backward, op by op");
}
