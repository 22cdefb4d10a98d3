// The same op on CUDA, with ATen's headers.
#include <ATen/ATen.h>
#include <ATen/cuda/CUDAContext.h>
#include <c10/cuda/CUDAGuard.h>

template <typename scalar_t>
__global__ void scale_kernel(const scalar_t* from, scalar_t* to, int64_t count, double factor) {
  const int64_t i = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (i < count) to[i] = from[i] * static_cast<scalar_t>(factor);
}

at::Tensor scale_cuda(const at::Tensor& values, double factor) {
  const c10::cuda::CUDAGuard guard(values.device());
  at::Tensor result = at::empty_like(values);
  const int64_t count = values.numel();
  const auto stream = at::cuda::getCurrentCUDAStream();
  if (count == 0) return result;
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::ScalarType::Half, at::ScalarType::BFloat16, values.scalar_type(), "scale_cuda", [&] {
        scale_kernel<<<(count + 255) / 256, 256, 0, stream>>>(
            values.data_ptr<scalar_t>(), result.data_ptr<scalar_t>(), count, factor);
      });
  C10_CUDA_KERNEL_LAUNCH_CHECK();
  return result;
}
