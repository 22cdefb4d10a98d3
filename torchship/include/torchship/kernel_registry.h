// The tables of kernels that were attached to this glue, one per device.
#pragma once

#include <cstddef>

#include "kernel_table.h"

namespace PROJECT_NAMESPACE {

// The devices of an operator. Only CPU and CUDA have kernels: on `meta` there are no elements.
enum class Device { kCPU, kCUDA, kMeta };

using TableHead = PROJECT_SYMBOL(table_head);

// Returns the table that is attached for `device`, or nullptr.
const TableHead* attached_kernels(Device device);

// Attaches the table of a kernels object in place of an earlier table for the same device. Returns
// nullptr, or a text that says why it refuses the table: the table is missing, has another ABI or
// too few bytes, or is for an unknown device.
const char* attach_kernels(const void* table, uint32_t abi, size_t byte_size);

}  // namespace PROJECT_NAMESPACE
