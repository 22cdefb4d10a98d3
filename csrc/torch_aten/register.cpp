// Registers torch.ops.lltm through ATen.
#include <torch/library.h>

#include "../ops/cell.h"
#include "../ops/layer.h"
#include "torch.h"

namespace {

using Cpu = lltm::Cell<lltm::AtenTorch, lltm::Device::kCPU>;
using Cuda = lltm::Cell<lltm::AtenTorch, lltm::Device::kCUDA>;
using CpuLayer = lltm::Layer<lltm::AtenTorch, lltm::Device::kCPU>;
using CudaLayer = lltm::Layer<lltm::AtenTorch, lltm::Device::kCUDA>;

}  // namespace

TORCH_LIBRARY(lltm, library) {
  library.def(LLTM_FORWARD_SCHEMA);
  library.def(LLTM_BACKWARD_SCHEMA);
  library.def(LLTM_FORWARD_LEAN_SCHEMA);
  library.def(LLTM_BACKWARD_LEAN_SCHEMA);
  library.def(LLTM_LAYER_FORWARD_SCHEMA);
  library.def(LLTM_LAYER_BACKWARD_SCHEMA);
}

TORCH_LIBRARY_IMPL(lltm, CPU, library) {
  library.impl("forward", &Cpu::forward);
  library.impl("backward", &Cpu::backward);
  library.impl("forward_lean", &Cpu::forward_lean);
  library.impl("backward_lean", &Cpu::backward_lean);
  library.impl("layer_forward", &CpuLayer::forward);
  library.impl("layer_backward", &CpuLayer::backward);
}

TORCH_LIBRARY_IMPL(lltm, CUDA, library) {
  library.impl("forward", &Cuda::forward);
  library.impl("backward", &Cuda::backward);
  library.impl("layer_forward", &CudaLayer::forward);
  library.impl("layer_backward", &CudaLayer::backward);
}
