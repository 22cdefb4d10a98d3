// The macros for a client's csrc/ops/register.cpp. They register the client's operators and attach
// its kernels.
#pragma once

#include <optional>
#include <string>
#include <type_traits>

#include "guards.h"
#include "kernel_registry.h"
#include "schema.h"

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

// What an operator serves. For kOnMeta, `run` of Device::kMeta allocates the results and computes
// nothing; torch.library.register_fake is the way for sizes that are symbols. Under torch.autocast,
// kAutocast casts tensors of float32, float16 and bfloat16 to autocast's dtype, kAutocastFloat32
// casts them to float32; the package's loader registers both.
enum Devices { kOnCPU = 1, kOnCUDA = 2, kOnMeta = 4, kAutocast = 8, kAutocastFloat32 = 16 };

constexpr int mask_of(Device device) {
  return device == Device::kCPU ? kOnCPU : device == Device::kCUDA ? kOnCUDA : kOnMeta;
}

// The first device in a mask.
template <int devices>
constexpr Device kFirstDevice = (devices & kOnCPU)    ? Device::kCPU
                                : (devices & kOnCUDA) ? Device::kCUDA
                                                      : Device::kMeta;

template <template <typename, Device> class Operator, int devices>
constexpr bool kTakesTensor =
    TakesTensor<Door::Tensor, decltype(&Operator<Door, kFirstDevice<devices>>::run)>::value;

// An operator without tensors among its arguments: torch cannot choose a device by them, so this
// does, by an argument of the type Torch::DeviceArgument or an optional one. Without such an
// argument, or without a value for it, the device is the first in the mask.
template <template <typename, Device> class Operator, int devices, typename Function>
struct ByArgument;

template <template <typename, Device> class Operator, int devices, typename Result,
          typename... Arguments>
struct ByArgument<Operator, devices, Result (*)(Arguments...)> {
  static Result run(Arguments... arguments) {
    using Named = std::optional<typename Door::DeviceArgument>;
    Named named;
    (find(named, arguments), ...);
    if constexpr ((devices & kOnCPU) != 0) {
      if (!named || named->is_cpu()) return Operator<Door, Device::kCPU>::run(arguments...);
    }
    if constexpr ((devices & kOnCUDA) != 0) {
      if (!named || named->is_cuda()) return Operator<Door, Device::kCUDA>::run(arguments...);
    }
    Guards<Door>::fail("this operator makes tensors on ",
                       devices & kOnCPU ? (devices & kOnCUDA ? "cpu or cuda" : "cpu") : "cuda",
                       " alone, and another device was named; name one of these");
  }

 private:
  template <typename Named, typename Argument>
  static void find(Named& named, const Argument& argument) {
    using Value = typename Named::value_type;
    if constexpr (std::is_same_v<Argument, Value> || std::is_same_v<Argument, Named>) {
      if (!named) named = argument;
    }
  }
};

template <template <typename, Device> class Operator, int devices, typename Library>
void define(Library& library) {
  using First = Operator<Door, kFirstDevice<devices>>;
  check_schema<Door::kIsStable, Door::kHasGenerator, First>();
  constexpr int casts = devices & (kAutocast | kAutocastFloat32);
  static_assert(casts != (kAutocast | kAutocastFloat32),
                "autocast casts to one dtype: name kAutocast or kAutocastFloat32");
  static_assert(casts == 0 || kTakesTensor<Operator, devices>,
                "this operator takes no tensor that autocast could cast: leave kAutocast out");
  static_assert((devices & (kOnCPU | kOnCUDA | kOnMeta)) != 0, "an operator serves some device");
  library.def(First::kSchema);
}

// Registers an operator for `device`, if the mask `devices` has the device.
template <template <typename, Device> class Operator, Device device, int devices, typename Library>
void implement([[maybe_unused]] Library& library, [[maybe_unused]] const char* name) {
  if constexpr ((devices & mask_of(device)) != 0) {
    if constexpr (kTakesTensor<Operator, devices>) {
      using Chosen = Operator<Door, device>;
      library.impl(name, PROJECT_BOX(&Chosen::run));
    }
  }
}

// Registers an operator without tensors among its arguments.
template <template <typename, Device> class Operator, int devices, typename Library>
void implement_by_argument([[maybe_unused]] Library& library, [[maybe_unused]] const char* name) {
  if constexpr (!kTakesTensor<Operator, devices>) {
    using First = Operator<Door, kFirstDevice<devices>>;
    using Chosen = ByArgument<Operator, devices, decltype(&First::run)>;
    library.impl(name, PROJECT_BOX(&Chosen::run));
  }
}

// Adds an operator to the names for autocast, such as `norm:lower sum:float32`.
template <int devices>
void name_for_autocast([[maybe_unused]] std::string& names, [[maybe_unused]] const char* name) {
  if constexpr ((devices & kAutocast) != 0) names.append(name).append(":lower ");
  if constexpr ((devices & kAutocastFloat32) != 0) names.append(name).append(":float32 ");
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

#define PROJECT_DEFINE(name, Operator, devices) define<Operator, (devices)>(library);
#define PROJECT_ON_CPU(name, Operator, devices) \
  implement<Operator, Device::kCPU, (devices)>(library, #name);
#define PROJECT_ON_CUDA(name, Operator, devices) \
  implement<Operator, Device::kCUDA, (devices)>(library, #name);
#define PROJECT_ON_META(name, Operator, devices) \
  implement<Operator, Device::kMeta, (devices)>(library, #name);
#define PROJECT_FOR_AUTOCAST(name, Operator, devices) name_for_autocast<(devices)>(names, #name);
#define PROJECT_BY_ARGUMENT(name, Operator, devices) \
  implement_by_argument<Operator, (devices)>(library, #name);

// Registers a list of operators. LIST is a macro that calls its argument once per operator, with
// three arguments: the operator's name; a class template over door and device, with the members
// kSchema and run; and a mask of Devices.
// clang-format off
#define PROJECT_OPERATORS(LIST)                                                \
  using namespace PROJECT_NAMESPACE;                                           \
  PROJECT_LIBRARY(PROJECT_NAMESPACE, library) { LIST(PROJECT_DEFINE) }         \
  PROJECT_LIBRARY_IMPL(PROJECT_NAMESPACE, CPU, library) { LIST(PROJECT_ON_CPU) } \
  PROJECT_LIBRARY_IMPL(PROJECT_NAMESPACE, CUDA, library) { LIST(PROJECT_ON_CUDA) } \
  PROJECT_LIBRARY_IMPL(PROJECT_NAMESPACE, Meta, library) { LIST(PROJECT_ON_META) } \
  PROJECT_LIBRARY_IMPL(PROJECT_NAMESPACE, CompositeExplicitAutograd, library) { \
    LIST(PROJECT_BY_ARGUMENT)                                                  \
  }                                                                            \
  /* The stable ABI has no way to register for autocast, so the loader does. */ \
  extern "C" PROJECT_EXPORT const char* PROJECT_SYMBOL(autocast_operators)() { \
    static const std::string operators = [] {                                  \
      std::string names;                                                       \
      LIST(PROJECT_FOR_AUTOCAST)                                               \
      return names;                                                            \
    }();                                                                       \
    return operators.c_str();                                                  \
  }
// clang-format on

// Defines the exported function that attaches a table of kernels, and attaches linked kernels at
// load. The table must be a `Table`, whose first member is the table_head, and have this ABI.
#define PROJECT_KERNELS(Table, ABI)                                                         \
  extern "C" PROJECT_EXPORT const char* PROJECT_SYMBOL(attach_kernels)(const void* table) { \
    return PROJECT_NAMESPACE::attach_kernels(table, ABI, sizeof(Table));                    \
  }                                                                                         \
  [[maybe_unused]] static const bool kernels_linked =                                       \
      PROJECT_NAMESPACE::attach_linked(PROJECT_SYMBOL(attach_kernels));
