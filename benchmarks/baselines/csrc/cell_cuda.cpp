// The Python binding of cell_cuda_kernel.cu: it checks every tensor, then calls.
#include <torch/extension.h>

#include <vector>

using torch::Tensor;

std::vector<Tensor> lltm_baseline_forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h,
                                          Tensor old_cell);
std::vector<Tensor> lltm_baseline_backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell,
                                           Tensor input_gate, Tensor output_gate, Tensor candidate,
                                           Tensor X, Tensor gates, Tensor weights);

namespace {

void check_input(const Tensor& tensor, const char* name) {
  TORCH_CHECK(tensor.is_cuda(), name, " must be a CUDA tensor");
  TORCH_CHECK(tensor.is_contiguous(), name, " must be contiguous");
}

std::vector<Tensor> forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h,
                            Tensor old_cell) {
  check_input(input, "input");
  check_input(weights, "weights");
  check_input(bias, "bias");
  check_input(old_h, "old_h");
  check_input(old_cell, "old_cell");
  return lltm_baseline_forward(input, weights, bias, old_h, old_cell);
}

std::vector<Tensor> backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell, Tensor input_gate,
                             Tensor output_gate, Tensor candidate, Tensor X, Tensor gates,
                             Tensor weights) {
  check_input(grad_h, "grad_h");
  check_input(grad_cell, "grad_cell");
  check_input(new_cell, "new_cell");
  check_input(input_gate, "input_gate");
  check_input(output_gate, "output_gate");
  check_input(candidate, "candidate");
  check_input(X, "X");
  check_input(gates, "gates");
  check_input(weights, "weights");
  return lltm_baseline_backward(grad_h, grad_cell, new_cell, input_gate, output_gate, candidate, X,
                                gates, weights);
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, "LLTM forward (CUDA)");
  m.def("backward", &backward, "LLTM backward (CUDA)");
}
