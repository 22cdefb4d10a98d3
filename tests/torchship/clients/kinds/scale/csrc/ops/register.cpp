#include "torchship/register.h"

#include "torchship/kernel_calls.h"

#include "../kernels/scale.h"

namespace PROJECT_NAMESPACE {

template <typename Torch, Device device>
struct Scale {
  using Tensor = typename Torch::Tensor;
  using Calls = AttachedKernels<Torch, device, Kernels>;
  static constexpr const char* kSchema = "scale(Tensor x, float factor) -> Tensor";

  static Tensor run(const Tensor& x, double factor) {
    Calls::Guard::input(x, "x", device);  // on the device, and contiguous
    const typename Torch::DeviceGuard device_guard(x);
    const Tensor y = Torch::empty_like(x);
    const auto dtype = Torch::scalar_type(x);
    const auto count = Torch::numel(x);
    const Arguments arguments = {dtype, count, factor, Torch::data(x), Torch::data(y)};
    const Execution execution = Calls::execution(x);
    Calls::check(Calls::kernels().scale(&arguments, &execution));
    return y;
  }
};

}  // namespace PROJECT_NAMESPACE

// A line for each operator: its name, its template, its devices.
#define OPERATORS(OPERATOR) OPERATOR(scale, Scale, kOnCPU | kOnCUDA)

PROJECT_OPERATORS(OPERATORS)

PROJECT_KERNELS(Kernels, SCALE_KERNEL_ABI)
