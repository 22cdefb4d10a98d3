// The operator ramp: a new tensor of `count` numbers, 0, step, 2 step, ..., on the named device.
#include "torchship/register.h"

namespace PROJECT_NAMESPACE {

template <typename Torch, Device device>
struct Ramp {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema =
      "ramp(int count, float step, *, ScalarType dtype, Device device) -> Tensor";

  static Tensor run(int64_t count, double step, typename Torch::DtypeArgument dtype,
                    typename Torch::DeviceArgument where) {
    if (count < 0) Guards<Torch>::fail("count must be at least 0, got ", count);
    const typename Torch::DeviceGuard device_guard(where);
    const Tensor ramp = Torch::empty_on({count}, Dtype::kFloat64, Torch::cpu());
    auto* const numbers = static_cast<double*>(Torch::data(ramp));
    for (int64_t k = 0; k < count; ++k) numbers[k] = k * step;
    return Torch::to_device(Torch::to_dtype(ramp, Torch::dtype_code(dtype)), where);
  }
};

}  // namespace PROJECT_NAMESPACE

#define OPERATORS(OPERATOR) OPERATOR(ramp, Ramp, kOnCPU | kOnCUDA)

PROJECT_OPERATORS(OPERATORS)
