// One LLTM step as a first CUDA extension is usually written: one pointwise kernel for each
// pass, 1024 threads a block for every S, a grid of ((S + 1023) / 1024, B), zero-filled
// outputs, packed accessors, the legacy default stream, and no check after a launch. It is a
// baseline: do not improve it.
//
// Headers of single operators compile faster than torch/extension.h, and give the same kernels.
#include <ATen/Dispatch.h>
#include <ATen/core/Tensor.h>
#include <ATen/ops/addmm.h>
#include <ATen/ops/cat.h>
#include <ATen/ops/zeros_like.h>
#include <torch/csrc/utils/pybind.h>

#include <initializer_list>
#include <vector>

using at::Tensor;

namespace {

void check_inputs(std::initializer_list<const Tensor*> tensors) {
  for (const Tensor* tensor : tensors) {
    TORCH_CHECK(tensor->is_cuda(), "every argument must be a CUDA tensor");
    TORCH_CHECK(tensor->is_contiguous(), "every argument must be contiguous");
  }
}

template <typename scalar_t, size_t dims>
using Accessor = at::PackedTensorAccessor32<scalar_t, dims, at::RestrictPtrTraits>;

template <typename scalar_t, size_t dims>
Accessor<scalar_t, dims> access(const Tensor& tensor) {
  return tensor.packed_accessor32<scalar_t, dims, at::RestrictPtrTraits>();
}

template <typename scalar_t>
__device__ __forceinline__ scalar_t sigmoid(scalar_t z) {
  return 1.0 / (1.0 + exp(-z));
}

template <typename scalar_t>
__device__ __forceinline__ scalar_t sigmoid_slope(scalar_t z) {
  const auto s = sigmoid(z);
  return (1.0 - s) * s;
}

template <typename scalar_t>
__device__ __forceinline__ scalar_t tanh_slope(scalar_t z) {
  const auto t = tanh(z);
  return 1 - (t * t);
}

template <typename scalar_t>
__device__ __forceinline__ scalar_t elu(scalar_t z) {
  return z > 0.0 ? z : exp(z) - 1.0;
}

template <typename scalar_t>
__device__ __forceinline__ scalar_t elu_slope(scalar_t z) {
  const auto e = exp(z);
  const auto slope = z < 0.0 ? 0.0 : 1.0;
  return slope + ((e - 1.0) < 0.0 ? e : 0.0);
}

template <typename scalar_t>
__global__ void forward_kernel(const Accessor<scalar_t, 3> gates,
                               const Accessor<scalar_t, 2> old_cell, Accessor<scalar_t, 2> new_h,
                               Accessor<scalar_t, 2> new_cell, Accessor<scalar_t, 2> input_gate,
                               Accessor<scalar_t, 2> output_gate, Accessor<scalar_t, 2> candidate) {
  const int row = blockIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column < gates.size(2)) {
    input_gate[row][column] = sigmoid(gates[row][0][column]);
    output_gate[row][column] = sigmoid(gates[row][1][column]);
    candidate[row][column] = elu(gates[row][2][column]);
    new_cell[row][column] =
        old_cell[row][column] + candidate[row][column] * input_gate[row][column];
    new_h[row][column] = tanh(new_cell[row][column]) * output_gate[row][column];
  }
}

template <typename scalar_t>
__global__ void backward_kernel(Accessor<scalar_t, 2> d_old_cell, Accessor<scalar_t, 3> d_gates,
                                const Accessor<scalar_t, 2> grad_h,
                                const Accessor<scalar_t, 2> grad_cell,
                                const Accessor<scalar_t, 2> new_cell,
                                const Accessor<scalar_t, 2> input_gate,
                                const Accessor<scalar_t, 2> output_gate,
                                const Accessor<scalar_t, 2> candidate,
                                const Accessor<scalar_t, 3> gates) {
  const int row = blockIdx.y;
  const int column = blockIdx.x * blockDim.x + threadIdx.x;
  if (column < d_gates.size(2)) {
    const auto d_output_gate = tanh(new_cell[row][column]) * grad_h[row][column];
    const auto d_tanh = output_gate[row][column] * grad_h[row][column];
    const auto d_new_cell = tanh_slope(new_cell[row][column]) * d_tanh + grad_cell[row][column];

    d_old_cell[row][column] = d_new_cell;
    const auto d_candidate = input_gate[row][column] * d_new_cell;
    const auto d_input_gate = candidate[row][column] * d_new_cell;

    d_gates[row][0][column] = d_input_gate * sigmoid_slope(gates[row][0][column]);
    d_gates[row][1][column] = d_output_gate * sigmoid_slope(gates[row][1][column]);
    d_gates[row][2][column] = d_candidate * elu_slope(gates[row][2][column]);
  }
}

std::vector<Tensor> forward(Tensor input, Tensor weights, Tensor bias, Tensor old_h,
                            Tensor old_cell) {
  check_inputs({&input, &weights, &bias, &old_h, &old_cell});
  auto X = at::cat({old_h, input}, /*dim=*/1);
  auto z = at::addmm(bias, X, weights.transpose(0, 1));
  const auto batch_size = old_cell.size(0);
  const auto state_size = old_cell.size(1);
  auto gates = z.reshape({batch_size, 3, state_size});

  auto new_h = at::zeros_like(old_cell);
  auto new_cell = at::zeros_like(old_cell);
  auto input_gate = at::zeros_like(old_cell);
  auto output_gate = at::zeros_like(old_cell);
  auto candidate = at::zeros_like(old_cell);

  const int threads = 1024;
  const dim3 blocks((state_size + threads - 1) / threads, batch_size);
  AT_DISPATCH_FLOATING_TYPES(gates.scalar_type(), "lltm_baseline_forward", [&] {
    forward_kernel<scalar_t><<<blocks, threads>>>(
        access<scalar_t, 3>(gates), access<scalar_t, 2>(old_cell), access<scalar_t, 2>(new_h),
        access<scalar_t, 2>(new_cell), access<scalar_t, 2>(input_gate),
        access<scalar_t, 2>(output_gate), access<scalar_t, 2>(candidate));
  });
  return {new_h, new_cell, input_gate, output_gate, candidate, X, gates};
}

std::vector<Tensor> backward(Tensor grad_h, Tensor grad_cell, Tensor new_cell, Tensor input_gate,
                             Tensor output_gate, Tensor candidate, Tensor X, Tensor gates,
                             Tensor weights) {
  check_inputs({&grad_h, &grad_cell, &new_cell, &input_gate, &output_gate, &candidate, &X, &gates,
                &weights});
  auto d_old_cell = at::zeros_like(new_cell);
  auto d_gates = at::zeros_like(gates);
  const auto batch_size = new_cell.size(0);
  const auto state_size = new_cell.size(1);

  const int threads = 1024;
  const dim3 blocks((state_size + threads - 1) / threads, batch_size);
  AT_DISPATCH_FLOATING_TYPES(X.scalar_type(), "lltm_baseline_backward", [&] {
    backward_kernel<scalar_t><<<blocks, threads>>>(
        access<scalar_t, 2>(d_old_cell), access<scalar_t, 3>(d_gates), access<scalar_t, 2>(grad_h),
        access<scalar_t, 2>(grad_cell), access<scalar_t, 2>(new_cell),
        access<scalar_t, 2>(input_gate), access<scalar_t, 2>(output_gate),
        access<scalar_t, 2>(candidate), access<scalar_t, 3>(gates));
  });

  auto d_z = d_gates.reshape({batch_size, 3 * state_size});
  auto d_weights = d_z.t().mm(X);
  auto d_bias = d_z.sum(/*dim=*/0, /*keepdim=*/true);
  auto d_X = d_z.mm(weights);
  auto d_old_h = d_X.slice(/*dim=*/1, 0, state_size);
  auto d_input = d_X.slice(/*dim=*/1, state_size);
  return {d_old_h, d_input, d_weights, d_bias, d_old_cell};
}

}  // namespace

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("forward", &forward, "LLTM forward (CUDA)");
  m.def("backward", &backward, "LLTM backward (CUDA)");
}
