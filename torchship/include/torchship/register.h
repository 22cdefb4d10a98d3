// The macros for a client's csrc/ops/register.cpp. They register the client's operators and attach
// its kernels.
#pragma once

#include "kernel_registry.h"

// The door to torch for this object: the stable ABI if the build defines TORCH_TARGET_VERSION, the
// oldest torch that the object serves; otherwise ATen.
#ifdef TORCH_TARGET_VERSION
#include "torch_stable/torch.h"
#else
#include "torch_aten/torch.h"
#endif

#ifdef PROJECT_LINKED_CPU
PROJECT_KERNEL_TABLE(cpu);
#endif
#ifdef PROJECT_LINKED_CUDA
PROJECT_KERNEL_TABLE(cuda);
#endif

namespace PROJECT_NAMESPACE {

// The devices that an operator serves.
enum Devices { kOnCPU = 1, kOnCUDA = 2 };

// Registers an operator for `device`, if the mask `devices` has the device.
template <template <typename, Device> class Operator, Device device, int devices, typename Library>
void implement(Library& library, const char* name) {
  if constexpr ((devices & (device == Device::kCPU ? kOnCPU : kOnCUDA)) != 0) {
    using Chosen = Operator<Door, device>;
    library.impl(name, PROJECT_BOX(&Chosen::run));
  }
}

// Calls `attach` with the tables of the kernels that are linked into this object. Returns true.
inline bool attach_linked([[maybe_unused]] const char* (*attach)(const void*)) {
#ifdef PROJECT_LINKED_CPU
  attach(PROJECT_SYMBOL(cpu_kernel_table)());
#endif
#ifdef PROJECT_LINKED_CUDA
  attach(PROJECT_SYMBOL(cuda_kernel_table)());
#endif
  return true;
}

}  // namespace PROJECT_NAMESPACE

#define PROJECT_DEFINE(name, Operator, devices) library.def(Operator<Door, Device::kCPU>::kSchema);
#define PROJECT_ON_CPU(name, Operator, devices) \
  implement<Operator, Device::kCPU, (devices)>(library, #name);
#define PROJECT_ON_CUDA(name, Operator, devices) \
  implement<Operator, Device::kCUDA, (devices)>(library, #name);

// Registers a list of operators. LIST is a macro that calls its argument once per operator, with
// three arguments: the operator's name; a class template over door and device, with the members
// kSchema and run; and a mask of Devices.
// clang-format off
#define PROJECT_OPERATORS(LIST)                                                \
  using namespace PROJECT_NAMESPACE;                                           \
  PROJECT_LIBRARY(PROJECT_NAMESPACE, library) { LIST(PROJECT_DEFINE) }         \
  PROJECT_LIBRARY_IMPL(PROJECT_NAMESPACE, CPU, library) { LIST(PROJECT_ON_CPU) } \
  PROJECT_LIBRARY_IMPL(PROJECT_NAMESPACE, CUDA, library) { LIST(PROJECT_ON_CUDA) }
// clang-format on

// Defines the exported function that attaches a table of kernels, and attaches linked kernels at
// load. The table must be a `Table`, whose first member is the table_head, and have this ABI.
#define PROJECT_KERNELS(Table, ABI)                                                         \
  extern "C" PROJECT_EXPORT const char* PROJECT_SYMBOL(attach_kernels)(const void* table) { \
    return PROJECT_NAMESPACE::attach_kernels(table, ABI, sizeof(Table));                    \
  }                                                                                         \
  [[maybe_unused]] static const bool kernels_linked =                                       \
      PROJECT_NAMESPACE::attach_linked(PROJECT_SYMBOL(attach_kernels));
