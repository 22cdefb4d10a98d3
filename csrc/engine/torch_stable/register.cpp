// Registers the operators of ops/operators.h through the stable ABI.
#include "../../ops/operators.h"
#include "torch.h"

namespace {

using namespace lltm;

template <template <typename, Device> class Operator>
using OnCPU = Operator<StableTorch, Device::kCPU>;
template <template <typename, Device> class Operator>
using OnCUDA = Operator<StableTorch, Device::kCUDA>;

}  // namespace

#define DEFINE(name, Operator, devices) library.def(OnCPU<Operator>::kSchema);
#define IMPLEMENT_ON_CPU(name, Operator, devices) \
  if ((devices) & kOnCPU) library.impl(#name, TORCH_BOX(&OnCPU<Operator>::run));
#define IMPLEMENT_ON_CUDA(name, Operator, devices) \
  if ((devices) & kOnCUDA) library.impl(#name, TORCH_BOX(&OnCUDA<Operator>::run));

STABLE_TORCH_LIBRARY(lltm, library){LLTM_OPERATORS(DEFINE)} STABLE_TORCH_LIBRARY_IMPL(lltm, CPU,
                                                                                      library){
    LLTM_OPERATORS(IMPLEMENT_ON_CPU)} STABLE_TORCH_LIBRARY_IMPL(lltm, CUDA, library) {
  LLTM_OPERATORS(IMPLEMENT_ON_CUDA)
}
