// torch.ops.bare.gram: rows times rows, by torch's own product. This client has no kernels.
#include "torchship/register.h"

#include "torchship/guards.h"

namespace PROJECT_NAMESPACE {

template <typename Torch, Device device>
struct Gram {
  using Tensor = typename Torch::Tensor;

  static constexpr const char* kSchema = "gram(Tensor rows) -> Tensor";

  static Tensor run(const Tensor& rows) {
    Guards<Torch>::on_device(rows, "rows", device);
    CHECK_CONTIGUOUS(rows);
    Guards<Torch>::has_dim(rows, "rows", 2, "(N, D)");
    const int64_t count = Torch::sizes(rows)[0];
    const int64_t depth = Torch::sizes(rows)[1];
    const typename Torch::DeviceGuard device_guard(rows);
    const Tensor products = Torch::empty({count, count}, rows);
    Torch::mm_out(products, rows, Torch::strided(rows, {depth, count}, {1, depth}, 0));
    return products;
  }
};

}  // namespace PROJECT_NAMESPACE

#define BARE_OPERATORS(OPERATOR) OPERATOR(gram, Gram, kOnCPU | kOnCUDA)

PROJECT_OPERATORS(BARE_OPERATORS)
