// The operator affine: y = x weightᵀ + bias, by torch's own product.
#include "torchship/register.h"

#include "torchship/guards.h"

namespace PROJECT_NAMESPACE {

template <typename Torch, Device device>
struct Affine {
  using Tensor = typename Torch::Tensor;
  using Guard = Guards<Torch>;
  static constexpr const char* kSchema = "affine(Tensor x, Tensor weight, Tensor bias) -> Tensor";

  static Tensor run(const Tensor& x, const Tensor& weight, const Tensor& bias) {
    for (const Tensor* tensor : {&x, &weight, &bias}) Guard::input(*tensor, "each tensor", device);
    Guard::like(weight, "weight", x, "x");
    Guard::like(bias, "bias", x, "x");
    Guard::has_dim(x, "x", 2, "(N, D)");
    Guard::has_dim(weight, "weight", 2, "(M, D)");
    const int64_t n = Torch::sizes(x)[0], d = Torch::sizes(x)[1], m = Torch::sizes(weight)[0];
    Guard::has_shape(weight, "weight", {m, d}, "(M, D)", "D is read from x (N, D)");
    Guard::has_shape(bias, "bias", {m}, "(M,)", "M is read from weight (M, D)");
    const typename Torch::DeviceGuard device_guard(x);
    const Tensor y = Torch::empty({n, m}, x);
    Torch::addmm_out(y, bias, x, Torch::strided(weight, {d, m}, {1, d}, 0));
    return y;
  }
};

}  // namespace PROJECT_NAMESPACE

#define OPERATORS(OPERATOR) OPERATOR(affine, Affine, kOnCPU | kOnCUDA)

PROJECT_OPERATORS(OPERATORS)
