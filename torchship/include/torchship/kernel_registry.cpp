#include "kernel_registry.h"

#include <atomic>
#include <cstdio>
#include <cstring>

namespace PROJECT_NAMESPACE {
namespace {

std::atomic<const TableHead*> attached[2];  // in the order of Device

}  // namespace

const TableHead* attached_kernels(Device device) {
  return attached[static_cast<int>(device)].load(std::memory_order_acquire);
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
  const bool is_cuda = std::strcmp(head->device, "cuda") == 0;
  if (!is_cuda && std::strcmp(head->device, "cpu") != 0) {
    std::snprintf(text, sizeof(text), PROJECT_NAME ": kernels for the unknown device '%.32s'",
                  head->device);
    return text;
  }
  attached[is_cuda].store(head, std::memory_order_release);
  return nullptr;
}

}  // namespace PROJECT_NAMESPACE
