// Registers torch.ops.lltm through the stable ABI.
#include "../ops/cell.h"
#include "../ops/layer.h"
#include "torch.h"

namespace {

using Cpu = lltm::Cell<lltm::StableTorch, lltm::Device::kCPU>;
using Cuda = lltm::Cell<lltm::StableTorch, lltm::Device::kCUDA>;
using CpuLayer = lltm::Layer<lltm::StableTorch, lltm::Device::kCPU>;
using CudaLayer = lltm::Layer<lltm::StableTorch, lltm::Device::kCUDA>;

}  // namespace

STABLE_TORCH_LIBRARY(lltm, library) {
  library.def(LLTM_FORWARD_SCHEMA);
  library.def(LLTM_BACKWARD_SCHEMA);
  library.def(LLTM_FORWARD_LEAN_SCHEMA);
  library.def(LLTM_BACKWARD_LEAN_SCHEMA);
  library.def(LLTM_LAYER_FORWARD_SCHEMA);
  library.def(LLTM_LAYER_BACKWARD_SCHEMA);
}

STABLE_TORCH_LIBRARY_IMPL(lltm, CPU, library) {
  library.impl("forward", TORCH_BOX(&Cpu::forward));
  library.impl("backward", TORCH_BOX(&Cpu::backward));
  library.impl("forward_lean", TORCH_BOX(&Cpu::forward_lean));
  library.impl("backward_lean", TORCH_BOX(&Cpu::backward_lean));
  library.impl("layer_forward", TORCH_BOX(&CpuLayer::forward));
  library.impl("layer_backward", TORCH_BOX(&CpuLayer::backward));
}

STABLE_TORCH_LIBRARY_IMPL(lltm, CUDA, library) {
  library.impl("forward", TORCH_BOX(&Cuda::forward));
  library.impl("backward", TORCH_BOX(&Cuda::backward));
  library.impl("layer_forward", TORCH_BOX(&CudaLayer::forward));
  library.impl("layer_backward", TORCH_BOX(&CudaLayer::backward));
}
