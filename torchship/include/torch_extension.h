// Records the torch that an extension is compiled for. The record can be read from the
// extension's file without loading it.
//
// Include this header in ONE source file of any extension, and define TORCH_EXTENSION_PACKAGE and
// TORCH_EXTENSION_VERSION as bare words: -DTORCH_EXTENSION_PACKAGE=your_package. The header needs
// only torch's headers, exports nothing and runs nothing. It writes a record into an ELF section.
// Unless TORCH_TARGET_VERSION says that the extension uses only the stable ABI, the header also
// writes the layout of torch's classes into two more sections. On systems other than Linux it does
// nothing.
#pragma once

#if defined(__linux__) && defined(__GNUC__)

#include <array>
#include <cstddef>

#ifdef TORCH_EXTENSION_PACKAGE
#if __has_include(<torch/headeronly/version.h>)
#include <torch/headeronly/version.h>
#else
#include <torch/version.h>
#endif
#endif

#ifndef TORCH_TARGET_VERSION
#include <ATen/core/function_schema.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/ScalarType.h>
#include <c10/core/StorageImpl.h>
#include <c10/core/TensorImpl.h>
#include <torch/library.h>
#endif

namespace {
namespace torch_extension {

// A text that is built at compile time, as the text in a section must be.
template <size_t Capacity>
struct Text {
  std::array<char, Capacity> data{};
  size_t length = 0;

  constexpr void add(const char* part) {
    while (*part != '\0') data[length++] = *part++;
  }
  constexpr void add(unsigned long long number) {
    if (number >= 10) add(number / 10);
    data[length++] = static_cast<char>('0' + number % 10);
  }
  template <typename Number>
  constexpr void field(const char* name, Number number) {
    add(length == 0 ? "{\"" : ", \"");
    add(name);
    add("\": ");
    add(static_cast<unsigned long long>(number));
  }
};

#ifdef TORCH_EXTENSION_PACKAGE
#define TORCH_EXTENSION_QUOTED(words) #words
#define TORCH_EXTENSION_TEXT(macro) TORCH_EXTENSION_QUOTED(macro)

constexpr auto record() {
  Text<640> text;
  text.add(
      "{\"schema\": 1, \"kind\": \"extension\", "
      "\"package\": \"" TORCH_EXTENSION_TEXT(TORCH_EXTENSION_PACKAGE) "\", "
      "\"version\": \"" TORCH_EXTENSION_TEXT(TORCH_EXTENSION_VERSION) "\", "
      "\"torch_built\": \"" TORCH_VERSION "\", "
// Of another machine nothing is said here: the header of the file names it.
#if defined(__x86_64__)
      "\"platform\": \"linux-x86_64\", "
#elif defined(__aarch64__)
      "\"platform\": \"linux-aarch64\", "
#endif
#ifdef _GLIBCXX_USE_CXX11_ABI
      "\"cxx11_abi\": " TORCH_EXTENSION_TEXT(_GLIBCXX_USE_CXX11_ABI) ", "
#endif
#ifdef TORCH_TARGET_VERSION
      "\"lane\": \"stable\", \"torch_target\": \"");
  constexpr unsigned long long target = TORCH_TARGET_VERSION;
  text.add(target >> 56);
  text.add(".");
  text.add(target >> 48 & 0xff);
#else
      "\"lane\": \"aten\", \"torch_target\": \"");
  text.add(0ULL + TORCH_VERSION_MAJOR);
  text.add(".");
  text.add(0ULL + TORCH_VERSION_MINOR);
#endif
  text.add("\"}");
  return text.data;
}

__attribute__((section(".torch_extension.record"), used)) const auto record_text = record();
#endif

#ifndef TORCH_TARGET_VERSION
// Code for one torch may find all its symbols in another torch and still abort or compute nonsense,
// because an enumerator moved or a class changed its size. These numbers, with the slots below,
// differ in every such case that was measured.
constexpr auto layout() {
  Text<384> text;
  text.field("dispatch_key_cpu", c10::DispatchKey::CPU);
  text.field("dispatch_key_composite_implicit", c10::DispatchKey::CompositeImplicitAutograd);
  text.field("sizeof_tensor_impl", sizeof(c10::TensorImpl));
  text.field("sizeof_storage_impl", sizeof(c10::StorageImpl));
  text.field("sizeof_function_schema", sizeof(c10::FunctionSchema));
  text.field("sizeof_library", sizeof(torch::Library));
  text.field("sizeof_cpp_function", sizeof(torch::CppFunction));
  text.field("scalar_type_num_options", c10::ScalarType::NumOptions);
  text.add("}");
  return text.data;
}

__attribute__((section(".torch_extension.layout"), used)) const auto layout_text = layout();

// A new virtual function moves all later ones without changing a size: torch 2.10 put three into
// TensorImpl's base, so code for 2.9 calls a wrong function in 2.10, although no symbol is missing.
// These pointers to virtual member functions hold the slots. In the C++ ABI of x86-64 such a
// pointer holds 1 + 8 * the slot and no address, so the compiler writes plain numbers.
struct VirtualSlots {
  const c10::Storage& (c10::TensorImpl::*storage)() const;
  void (c10::TensorImpl::*shallow_copy_from)(const c10::intrusive_ptr<c10::TensorImpl>&);
};

__attribute__((section(".torch_extension.vtable"), used))
const VirtualSlots virtual_slots = {&c10::TensorImpl::storage, &c10::TensorImpl::shallow_copy_from};
#endif

}  // namespace torch_extension
}  // namespace

#endif  // Linux
