// Registers torch.ops.lltm through ATen.
#include <torch/library.h>

#include "../ops/cell.h"
#include "torch.h"

namespace {

using Cpu = lltm::Cell<lltm::AtenTorch, lltm::Device::kCPU>;
using Cuda = lltm::Cell<lltm::AtenTorch, lltm::Device::kCUDA>;

}  // namespace

TORCH_LIBRARY(lltm, library) {
  library.def(LLTM_FORWARD_SCHEMA);
  library.def(LLTM_BACKWARD_SCHEMA);
}

TORCH_LIBRARY_IMPL(lltm, CPU, library) {
  library.impl("forward", &Cpu::forward);
  library.impl("backward", &Cpu::backward);
}

TORCH_LIBRARY_IMPL(lltm, CUDA, library) {
  library.impl("forward", &Cuda::forward);
  library.impl("backward", &Cuda::backward);
}
