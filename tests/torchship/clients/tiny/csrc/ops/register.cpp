// torch.ops.tiny.scale: float32 of any shape times a number, on the CPU alone.
#include "torchship/register.h"

#include "torchship/kernel_calls.h"

#include "../kernels/tiny_kernels.h"

namespace PROJECT_NAMESPACE {

template <typename Torch, Device device>
struct Scale {
  using Tensor = typename Torch::Tensor;
  using Calls = AttachedKernels<Torch, device, tiny_kernel_functions>;

  static constexpr const char* kSchema = "scale(Tensor values, float factor) -> Tensor";

  static Tensor run(const Tensor& values, double factor) {
    static_assert(device == Device::kCPU, "the list of operators names no other device");
    CHECK_CPU(values);
    CHECK_CONTIGUOUS(values);
    constexpr int32_t kFloat32 = 6;
    if (Torch::scalar_type(values) != kFloat32) {
      Calls::Guard::fail("values must be float32, got ", dtype_name(Torch::scalar_type(values)),
                         "; convert it with values.float()");
    }
    const Tensor scaled = Torch::empty_like(values);
    const tiny_execution where = Calls::execution(values);
    Calls::check(Calls::kernels().scale(static_cast<const float*>(Torch::data(values)),
                                        values.numel(), factor,
                                        static_cast<float*>(Torch::data(scaled)), &where));
    return scaled;
  }
};

}  // namespace PROJECT_NAMESPACE

#define TINY_OPERATORS(OPERATOR) OPERATOR(scale, Scale, kOnCPU)

PROJECT_OPERATORS(TINY_OPERATORS)

PROJECT_KERNELS(tiny_kernel_functions, TINY_KERNEL_ABI)
