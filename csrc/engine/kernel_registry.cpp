#include "kernel_registry.h"

#include <atomic>
#include <cstdio>
#include <cstring>

namespace PROJECT_NAMESPACE {
namespace {

std::atomic<const TableHead*> cpu_kernels{nullptr};
std::atomic<const TableHead*> cuda_kernels{nullptr};

}  // namespace

const TableHead* attached_kernels(Device device) {
  const auto& slot = device == Device::kCUDA ? cuda_kernels : cpu_kernels;
  return slot.load(std::memory_order_acquire);
}

const char* attach_kernels(const void* table, uint32_t abi, size_t byte_size) {
  static thread_local char text[192];
  const auto* head = static_cast<const TableHead*>(table);
  if (head == nullptr) return PROJECT_NAME ": the kernels object gave no table";
  if (head->abi != abi || head->byte_size < byte_size) {
    std::snprintf(text, sizeof(text),
                  PROJECT_NAME
                  ": the kernels speak kernel ABI %u (%u bytes), this glue needs %u (%zu bytes); "
                  "reinstall " PROJECT_NAME " so that both come from one version",
                  head->abi, head->byte_size, abi, byte_size);
    return text;
  }
  if (std::strcmp(head->device, "cpu") == 0) {
    cpu_kernels.store(head, std::memory_order_release);
  } else if (std::strcmp(head->device, "cuda") == 0) {
    cuda_kernels.store(head, std::memory_order_release);
  } else {
    std::snprintf(text, sizeof(text), PROJECT_NAME ": kernels for the unknown device '%.32s'",
                  head->device);
    return text;
  }
  return nullptr;
}

}  // namespace PROJECT_NAMESPACE
