// Registers the operators of ops/operators.h through ATen.
#include <torch/library.h>

#include "../../ops/operators.h"
#include "torch.h"

namespace {

using namespace lltm;

template <template <typename, Device> class Operator>
using OnCPU = Operator<AtenTorch, Device::kCPU>;
template <template <typename, Device> class Operator>
using OnCUDA = Operator<AtenTorch, Device::kCUDA>;

}  // namespace

#define DEFINE(name, Operator, devices) library.def(OnCPU<Operator>::kSchema);
#define IMPLEMENT_ON_CPU(name, Operator, devices) \
  if ((devices) & kOnCPU) library.impl(#name, &OnCPU<Operator>::run);
#define IMPLEMENT_ON_CUDA(name, Operator, devices) \
  if ((devices) & kOnCUDA) library.impl(#name, &OnCUDA<Operator>::run);

TORCH_LIBRARY(lltm, library){LLTM_OPERATORS(DEFINE)} TORCH_LIBRARY_IMPL(lltm, CPU, library){
    LLTM_OPERATORS(IMPLEMENT_ON_CPU)} TORCH_LIBRARY_IMPL(lltm, CUDA, library) {
  LLTM_OPERATORS(IMPLEMENT_ON_CUDA)
}
