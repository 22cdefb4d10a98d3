// torch.ops.kit: an operator for each helper of the doors, and for each kind of operator. This
// client has no kernels.
#include "torchship/register.h"

#include <algorithm>
#include <tuple>
#include <vector>

#include "torchship/guards.h"
#include "torchship/kernels/types.h"

namespace PROJECT_NAMESPACE {

// Converts by kernels/types.h: every value is widened, then narrowed.
template <typename Torch, Device device>
struct Convert {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "convert(Tensor values, ScalarType dtype) -> Tensor";

  static Tensor run(const Tensor& values, typename Torch::DtypeArgument dtype) {
    Guards<Torch>::input(values, "values", device);
    const int64_t count = Torch::numel(values);
    const Tensor result = Torch::empty(Torch::size_list(values), values, Torch::dtype_code(dtype));
    const auto convert = [&](auto from) {
      return [&, from](auto to) -> const char* {
        using From = decltype(from);
        using To = decltype(to);
        const auto* const source = static_cast<const From*>(Torch::data(values));
        auto* const target = static_cast<To*>(Torch::data(result));
        for (int64_t k = 0; k < count; ++k) {
          target[k] = narrow<To>(static_cast<compute_t<To>>(widen(source[k])));
        }
        return nullptr;
      };
    };
    const char* const error =
        dispatch<FloatingTypes, Float8Types, int16_t>(Torch::scalar_type(values), [&](auto from) {
          return dispatch<FloatingTypes, Float8Types, int16_t>(Torch::dtype_code(dtype),
                                                               convert(from));
        });
    if (error != nullptr) throw std::runtime_error(error);
    return result;
  }
};

// The sum of the squares, of integers, bool and complex numbers.
template <typename Torch, Device device>
struct Squares {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "squares(Tensor values) -> Tensor";

  static Tensor run(const Tensor& values) {
    Guards<Torch>::input(values, "values", device);
    const Tensor result = Torch::zeros(Torch::size_list(values), values);
    const char* const error = dispatch<IntegerTypes, UnsignedTypes, bool, ComplexTypes>(
        Torch::scalar_type(values), [&](auto zero) -> const char* {
          using T = decltype(zero);
          const auto* const source = static_cast<const T*>(Torch::data(values));
          auto* const target = static_cast<T*>(Torch::data(result));
          for (int64_t k = 0; k < Torch::numel(values); ++k) {
            target[k] = static_cast<T>(widen(source[k]) * widen(source[k]));
          }
          return nullptr;
        });
    if (error != nullptr) throw std::runtime_error(error);
    return result;
  }
};

template <typename Torch, Device device>
struct Copies {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "copies(Tensor x, Tensor like) -> Tensor[]";

  static std::vector<Tensor> run(const Tensor& x, const Tensor& like) {
    const std::vector<int64_t> sizes = {2, 3};
    const Tensor uninitialised = Torch::empty(sizes, x, Dtype::kUInt8);
    Torch::zero(uninitialised);
    return {Torch::contiguous(x),
            Torch::to_dtype(x, Dtype::kFloat64),
            Torch::to_device_of(x, like),
            Torch::to_cpu(x),
            Torch::zeros(sizes, x),
            Torch::zeros({4}, x, Dtype::kBool),
            uninitialised};
  }
};

template <typename Torch, Device device>
struct Views {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema =
      "views(Tensor x, int dim, int index, int length) -> Tensor[]";

  static std::vector<Tensor> run(const Tensor& x, int64_t dim, int64_t index, int64_t length) {
    return {Torch::contiguous(Torch::select(x, dim, index)),
            Torch::contiguous(Torch::narrow(x, dim, index, length))};
  }
};

template <typename Torch, Device device>
struct Element {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema =
      "element(Tensor x, int row, int column) -> (float, int, bool)";

  static std::tuple<double, int64_t, bool> run(const Tensor& x, int64_t row, int64_t column) {
    return {Torch::template at<double>(x, {row, column}),
            Torch::template at<int64_t>(x, {row, column}),
            Torch::template item<bool>(Torch::select(Torch::select(x, 0, row), 0, column))};
  }
};

template <typename Torch, Device device>
struct Pick {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "pick(Tensor x, Tensor rows) -> Tensor";

  static Tensor run(const Tensor& x, const Tensor& rows) { return Torch::index_select(x, 0, rows); }
};

// A factory: no tensor among the arguments, so its `device` chooses.
template <typename Torch, Device device>
struct Noise {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema =
      "noise(int count, bool normal, *, ScalarType dtype, Device device) -> Tensor";

  static Tensor run(int64_t count, bool normal, typename Torch::DtypeArgument dtype,
                    typename Torch::DeviceArgument where) {
    const typename Torch::DeviceGuard guard(where);
    const Tensor noise = Torch::empty_on({count}, Torch::dtype_code(dtype), where);
    if (normal) {
      Torch::fill_normal(noise, 5, 0.5);
    } else {
      Torch::fill_uniform(noise, 2, 3);
    }
    return noise;
  }
};

// A factory for the CPU alone, whose device may be left out.
template <typename Torch, Device device>
struct Ramp {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "ramp(int count, Device? device=None) -> Tensor";

  static Tensor run(int64_t count, std::optional<typename Torch::DeviceArgument>) {
    static_assert(device == Device::kCPU, "the list of operators names no other device");
    const Tensor ramp = Torch::empty_on({count}, Dtype::kInt64, Torch::cpu());
    for (int64_t k = 0; k < count; ++k) static_cast<int64_t*>(Torch::data(ramp))[k] = k;
    return ramp;
  }
};

// No arguments at all.
template <typename Torch, Device device>
struct Seed {
  static constexpr const char* kSchema = "seed() -> int";

  static int64_t run() { return Torch::draw_seed(); }
};

// Allocates on meta, too, where nothing is computed.
template <typename Torch, Device device>
struct Twice {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "twice(Tensor x) -> Tensor";

  static Tensor run(const Tensor& x) {
    Guards<Torch>::input(x, "x", device);
    Guards<Torch>::has_dtype(x, "x", {Dtype::kFloat32, Dtype::kInt32});
    const Tensor y = Torch::empty_like(x);
    if constexpr (device == Device::kCPU) {
      const char* const error =
          dispatch<float, int32_t>(Torch::scalar_type(x), [&](auto zero) -> const char* {
            using T = decltype(zero);
            const auto* const source = static_cast<const T*>(Torch::data(x));
            std::transform(source, source + Torch::numel(x), static_cast<T*>(Torch::data(y)),
                           [](T value) { return value + value; });
            return nullptr;
          });
      if (error != nullptr) throw std::runtime_error(error);
    }
    return y;
  }
};

// A copy of x, in the dtype in which autocast passes it.
template <typename Torch>
typename Torch::Tensor copy_of(const typename Torch::Tensor& x) {
  const typename Torch::Tensor y = Torch::empty_like(x);
  Torch::copy(y, x);
  return y;
}

template <typename Torch, Device device>
struct Lowered {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema =
      "lowered(Tensor x, Tensor[] more, *, float factor=1.0) -> (Tensor, Tensor)";

  static std::tuple<Tensor, Tensor> run(const Tensor& x, std::vector<Tensor> more, double) {
    return {copy_of<Torch>(x), copy_of<Torch>(more.empty() ? x : more.front())};
  }
};

template <typename Torch, Device device>
struct Raised {
  using Tensor = typename Torch::Tensor;
  static constexpr const char* kSchema = "raised(Tensor x) -> Tensor";

  static Tensor run(const Tensor& x) { return copy_of<Torch>(x); }
};

}  // namespace PROJECT_NAMESPACE

#define KIT_OPERATORS(OPERATOR)                            \
  OPERATOR(convert, Convert, kOnCPU)                       \
  OPERATOR(squares, Squares, kOnCPU)                       \
  OPERATOR(copies, Copies, kOnCPU | kOnCUDA)               \
  OPERATOR(views, Views, kOnCPU | kOnCUDA)                 \
  OPERATOR(element, Element, kOnCPU | kOnCUDA)             \
  OPERATOR(pick, Pick, kOnCPU | kOnCUDA)                   \
  OPERATOR(noise, Noise, kOnCPU | kOnCUDA)                 \
  OPERATOR(ramp, Ramp, kOnCPU)                             \
  OPERATOR(seed, Seed, kOnCPU)                             \
  OPERATOR(twice, Twice, kOnCPU | kOnMeta)                 \
  OPERATOR(lowered, Lowered, kOnCPU | kOnCUDA | kAutocast) \
  OPERATOR(raised, Raised, kOnCPU | kOnCUDA | kAutocastFloat32)

PROJECT_OPERATORS(KIT_OPERATORS)
