#include "kernel_registry.h"

#include <atomic>
#include <cstdio>
#include <cstring>

namespace lltm {
namespace {

// Builds that link the kernels in (just in time, CMake) say so with these macros.
#ifdef LLTM_LINKED_CPU_KERNELS
const lltm_kernel_functions* linked_cpu() { return lltm_cpu_kernels(); }
#else
const lltm_kernel_functions* linked_cpu() { return nullptr; }
#endif
#ifdef LLTM_LINKED_CUDA_KERNELS
const lltm_kernel_functions* linked_cuda() { return lltm_cuda_kernels(); }
#else
const lltm_kernel_functions* linked_cuda() { return nullptr; }
#endif

std::atomic<const lltm_kernel_functions*> cpu_kernels{linked_cpu()};
std::atomic<const lltm_kernel_functions*> cuda_kernels{linked_cuda()};

}  // namespace

const lltm_kernel_functions* attached_kernels(Device device) {
  const auto& slot = device == Device::kCUDA ? cuda_kernels : cpu_kernels;
  return slot.load(std::memory_order_acquire);
}

}  // namespace lltm

extern "C" const char* lltm_attach_kernels(const void* table) {
  static thread_local char text[192];
  const auto* functions = static_cast<const lltm_kernel_functions*>(table);
  if (functions == nullptr) return "lltm: the kernels object gave no table";
  if (functions->abi != LLTM_KERNEL_ABI || functions->byte_size < sizeof(lltm_kernel_functions)) {
    std::snprintf(
        text, sizeof(text),
        "lltm: the kernels speak kernel ABI %u (%u bytes), this glue needs %u (%zu bytes); "
        "reinstall lltm so that both come from one version",
        functions->abi, functions->byte_size, LLTM_KERNEL_ABI, sizeof(lltm_kernel_functions));
    return text;
  }
  if (std::strcmp(functions->device, "cpu") == 0) {
    lltm::cpu_kernels.store(functions, std::memory_order_release);
  } else if (std::strcmp(functions->device, "cuda") == 0) {
    lltm::cuda_kernels.store(functions, std::memory_order_release);
  } else {
    std::snprintf(text, sizeof(text), "lltm: kernels for the unknown device '%.32s'",
                  functions->device);
    return text;
  }
  return nullptr;
}
