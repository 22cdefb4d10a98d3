// The Python binding of cell_cuda_kernel.cu.
#include <torch/extension.h>

#include <vector>

using torch::Tensor;

std::vector<Tensor> lltm_baseline_forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h,
                                          Tensor old_cell);
std::vector<Tensor> lltm_baseline_backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell,
                                           Tensor input_gate, Tensor output_gate, Tensor candidate,
                                           Tensor X, Tensor gates, Tensor weights);

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &lltm_baseline_forward, "LLTM forward (CUDA)");
  m.def("backward", &lltm_baseline_backward, "LLTM backward (CUDA)");
}
