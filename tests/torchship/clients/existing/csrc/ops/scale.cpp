// Code as extensions have it: torch/extension.h, AT_DISPATCH, gradients in C++, pybind11's macro.
#include <torch/extension.h>
#include <torch/python.h>

#include <optional>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

at::Tensor scale_cpu(const at::Tensor& values, double factor) {
  at::Tensor result = at::empty_like(values, values.options());
  AT_DISPATCH_FLOATING_TYPES_AND2(
      at::ScalarType::Half, at::ScalarType::BFloat16, values.scalar_type(), "scale_cpu", [&] {
        const auto* from = values.data_ptr<scalar_t>();
        auto* to = result.data_ptr<scalar_t>();
        at::parallel_for(0, values.numel(), 1024, [&](int64_t begin, int64_t end) {
          for (int64_t i = begin; i < end; ++i) to[i] = from[i] * static_cast<scalar_t>(factor);
        });
      });
  return result;
}

#ifdef WITH_CUDA
at::Tensor scale_cuda(const at::Tensor& values, double factor);
#endif

at::Tensor scale_any(const at::Tensor& values, double factor) {
  TORCH_CHECK(values.is_contiguous(), "values must be contiguous");
  if (values.is_cuda()) {
#ifdef WITH_CUDA
    return scale_cuda(values, factor);
#else
    TORCH_CHECK(false, "not compiled with CUDA");
#endif
  }
  return scale_cpu(values, factor);
}

using torch::autograd::AutogradContext;
using torch::autograd::variable_list;

class Scale : public torch::autograd::Function<Scale> {
 public:
  static at::Tensor forward(AutogradContext* context, at::Tensor values, double factor) {
    context->saved_data["factor"] = factor;
    return scale_any(values, factor);
  }

  static variable_list backward(AutogradContext* context, variable_list gradients) {
    const double factor = context->saved_data["factor"].toDouble();
    return {scale_any(gradients[0].contiguous(), factor), at::Tensor()};
  }
};

at::Tensor scale(at::Tensor values, double factor) { return Scale::apply(values, factor); }

std::vector<at::Tensor> split(at::Tensor values, int64_t parts) { return values.chunk(parts); }

// What bindings take, and no schema has: small numbers, and references that are not constant.
std::tuple<int, at::Tensor, float> power(at::Tensor& values, const int exponent, float factor,
                                         std::optional<at::Tensor>& bias,
                                         const std::vector<unsigned>& sizes) {
  at::Tensor result = values.pow(exponent) * factor;
  if (bias) result = result + *bias;
  for (unsigned size : sizes) result = result.repeat({size});
  return {exponent + 1, result, factor / 2};
}

std::pair<at::Tensor, std::optional<int>> halves(at::Tensor values, std::optional<int> divisor) {
  return {values / divisor.value_or(2), divisor};
}

void fill(at::Tensor& values, float number) { values.fill_(number); }

PYBIND11_MODULE(TORCH_EXTENSION_NAME, m) {
  m.def("scale", &scale, "values times a factor");
  m.def("split", &split);
  m.def("power", &power);
  m.doc() = "Help for Python.";
  m.def("halves", &halves, "values", py::arg("values"), py::arg("divisor") = py::none());
  m.def("fill", &fill, py::arg("values"), py::arg("number") = 1.5f);
  m.def("version", [](const std::string& name) { return name + " 1"; });
}
