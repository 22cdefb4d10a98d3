// The operators rms_norm and rms_norm_backward, written once for both doors to torch.
#include "torchship/register.h"

#include <tuple>

#include "torchship/kernel_calls.h"

#include "../kernels/rms_norm.h"

namespace PROJECT_NAMESPACE {

// The sizes and addresses of x and weight, after checks.
template <typename Torch, Device device>
Arguments checked(const typename Torch::Tensor& x, const typename Torch::Tensor& weight,
                  double eps) {
  using Guard = Guards<Torch>;
  Guard::input(x, "x", device);
  Guard::input(weight, "weight", device);
  Guard::like(weight, "weight", x, "x");
  const int64_t dim = Torch::dim(x);
  if (dim == 0) Guard::fail("x must have at least one dimension, got none; reshape it");
  Arguments arguments = {};
  arguments.dtype = Torch::scalar_type(x);
  arguments.columns = Torch::sizes(x)[dim - 1];
  arguments.rows = 1;
  for (int64_t k = 0; k < dim - 1; ++k) arguments.rows *= Torch::sizes(x)[k];
  Guard::has_shape(weight, "weight", {arguments.columns}, "(D,)", "D is the last size of x");
  arguments.eps = eps;
  arguments.x = Torch::data(x);
  arguments.weight = Torch::data(weight);
  return arguments;
}

template <typename Torch, Device device>
struct RMSNorm {
  using Tensor = typename Torch::Tensor;
  using Calls = AttachedKernels<Torch, device, Kernels>;
  static constexpr const char* kSchema = "rms_norm(Tensor x, Tensor weight, float eps) -> Tensor";

  static Tensor run(const Tensor& x, const Tensor& weight, double eps) {
    Arguments arguments = checked<Torch, device>(x, weight, eps);
    const typename Torch::DeviceGuard device_guard(x);
    const Tensor y = Torch::empty_like(x);
    arguments.y = Torch::data(y);
    const Execution execution = Calls::execution(x);
    Calls::check(Calls::kernels().forward(&arguments, &execution));
    return y;
  }
};

template <typename Torch, Device device>
struct RMSNormBackward {
  using Tensor = typename Torch::Tensor;
  using Calls = AttachedKernels<Torch, device, Kernels>;
  static constexpr const char* kSchema =
      "rms_norm_backward(Tensor dy, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)";

  static std::tuple<Tensor, Tensor> run(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                        double eps) {
    Arguments arguments = checked<Torch, device>(x, weight, eps);
    Calls::Guard::input(dy, "dy", device);
    Calls::Guard::like(dy, "dy", x, "x");
    Calls::Guard::same_shape(dy, "dy", x, "x");
    const typename Torch::DeviceGuard device_guard(x);
    const Tensor dx = Torch::empty_like(x), dweight = Torch::empty_like(weight);
    arguments.dy = Torch::data(dy);
    arguments.dx = Torch::data(dx);
    arguments.dweight = Torch::data(dweight);
    const Execution execution = Calls::execution(x);
    const auto workspace = Calls::workspace(Calls::kernels().workspace(&arguments, &execution), x);
    arguments.workspace = Calls::data_or_null(workspace);
    Calls::check(Calls::kernels().backward(&arguments, &execution));
    return {dx, dweight};
  }
};

}  // namespace PROJECT_NAMESPACE

#define OPERATORS(OPERATOR)                     \
  OPERATOR(rms_norm, RMSNorm, kOnCPU | kOnCUDA) \
  OPERATOR(rms_norm_backward, RMSNormBackward, kOnCPU | kOnCUDA)

PROJECT_OPERATORS(OPERATORS)

PROJECT_KERNELS(Kernels, RMS_NORM_KERNEL_ABI)
