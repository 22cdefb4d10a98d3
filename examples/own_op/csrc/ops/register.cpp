// torch.ops.own_op.rms_norm and its gradient, written once for both doors to torch.
#include "torchship/register.h"

#include <tuple>

#include "torchship/kernel_calls.h"

#include "../kernels/own_op_kernels.h"

namespace own_op {

// The sizes and addresses of x and weight, after checks.
template <typename Torch, Device device>
own_op_arguments checked(const typename Torch::Tensor& x, const typename Torch::Tensor& weight,
                         double eps) {
  using Guard = Guards<Torch>;
  Guard::input(x, "x", device);
  Guard::input(weight, "weight", device);
  Guard::like(weight, "weight", x, "x");
  const int64_t dim = Torch::dim(x);
  if (dim == 0) Guard::fail("x must have at least one dimension, got none; reshape it");
  own_op_arguments given = {};
  given.dtype = Torch::scalar_type(x);
  given.columns = Torch::sizes(x)[dim - 1];
  given.rows = 1;
  for (int64_t k = 0; k < dim - 1; ++k) given.rows *= Torch::sizes(x)[k];
  Guard::has_shape(weight, "weight", {given.columns}, "(D,)", "D is the last size of x");
  given.eps = eps;
  given.x = Torch::data(x);
  given.weight = Torch::data(weight);
  return given;
}

template <typename Torch, Device device>
struct RMSNorm {
  using Tensor = typename Torch::Tensor;
  using Calls = AttachedKernels<Torch, device, own_op_kernel_functions>;
  static constexpr const char* kSchema = "rms_norm(Tensor x, Tensor weight, float eps) -> Tensor";

  static Tensor run(const Tensor& x, const Tensor& weight, double eps) {
    own_op_arguments given = checked<Torch, device>(x, weight, eps);
    const typename Torch::DeviceGuard device_guard(x);
    const Tensor y = Torch::empty_like(x);
    given.y = Torch::data(y);
    const own_op_execution where = Calls::execution(x);
    Calls::check(Calls::kernels().forward(&given, &where));
    return y;
  }
};

template <typename Torch, Device device>
struct RMSNormBackward {
  using Tensor = typename Torch::Tensor;
  using Calls = AttachedKernels<Torch, device, own_op_kernel_functions>;
  static constexpr const char* kSchema =
      "rms_norm_backward(Tensor dy, Tensor x, Tensor weight, float eps) -> (Tensor, Tensor)";

  static std::tuple<Tensor, Tensor> run(const Tensor& dy, const Tensor& x, const Tensor& weight,
                                        double eps) {
    own_op_arguments given = checked<Torch, device>(x, weight, eps);
    Calls::Guard::input(dy, "dy", device);
    Calls::Guard::like(dy, "dy", x, "x");
    Calls::Guard::same_shape(dy, "dy", x, "x");
    const typename Torch::DeviceGuard device_guard(x);
    const Tensor dx = Torch::empty_like(x), dweight = Torch::empty_like(weight);
    given.dy = Torch::data(dy);
    given.dx = Torch::data(dx);
    given.dweight = Torch::data(dweight);
    const own_op_execution where = Calls::execution(x);
    const auto workspace = Calls::workspace(Calls::kernels().workspace(&given, &where), x);
    given.workspace = Calls::data_or_null(workspace);
    Calls::check(Calls::kernels().backward(&given, &where));
    return {dx, dweight};
  }
};

}  // namespace own_op

#define OWN_OP_OPERATORS(OPERATOR)              \
  OPERATOR(rms_norm, RMSNorm, kOnCPU | kOnCUDA) \
  OPERATOR(rms_norm_backward, RMSNormBackward, kOnCPU | kOnCUDA)

PROJECT_OPERATORS(OWN_OP_OPERATORS)

PROJECT_KERNELS(own_op_kernel_functions, OWN_OP_KERNEL_ABI)
