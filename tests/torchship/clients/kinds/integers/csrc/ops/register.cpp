// The operator tally: how often each of the numbers from 0 to `bins` - 1 is among the values, and
// where each of them comes first (-1 if nowhere).
#include "torchship/register.h"

#include <tuple>

#include "torchship/kernels/types.h"

namespace PROJECT_NAMESPACE {

template <typename Torch, Device device>
struct Tally {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "tally(Tensor values, int bins) -> (Tensor, Tensor)";

  static std::tuple<Tensor, Tensor> run(const Tensor& values, int64_t bins) {
    Guards<Torch>::on_device(values, "values", device);
    const Tensor whole = Torch::contiguous(values);
    const Tensor counts = Torch::zeros({bins}, values);
    const Tensor first = Torch::empty({bins}, values, Dtype::kInt64);
    auto* const places = static_cast<int64_t*>(Torch::data(first));
    std::fill(places, places + bins, -1);
    const char* const error =
        dispatch<IntegerTypes, bool>(Torch::scalar_type(values), [&](auto zero) -> const char* {
          using T = decltype(zero);
          const auto* const numbers = static_cast<const T*>(Torch::data(whole));
          auto* const sums = static_cast<T*>(Torch::data(counts));
          for (int64_t k = 0; k < Torch::numel(values); ++k) {
            const auto number = static_cast<int64_t>(numbers[k]);
            if (number < 0 || number >= bins)
              return PROJECT_NAME ": a value is in none of the bins";
            sums[number] = static_cast<T>(sums[number] + 1);
            if (places[number] < 0) places[number] = k;
          }
          return nullptr;
        });
    if (error != nullptr) throw std::runtime_error(error);
    return {counts, first};
  }
};

}  // namespace PROJECT_NAMESPACE

#define OPERATORS(OPERATOR) OPERATOR(tally, Tally, kOnCPU)

PROJECT_OPERATORS(OPERATORS)
