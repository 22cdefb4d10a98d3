// The kernels that were attached to this glue, per device.
#pragma once

#include <cstddef>

#include "kernel_table.h"

namespace PROJECT_NAMESPACE {

enum class Device { kCPU, kCUDA };

using TableHead = PROJECT_SYMBOL(table_head);

// The table of the attached kernels of `device`, or nullptr.
const TableHead* attached_kernels(Device device);

// Attaches the table of a kernels object, and replaces an earlier one. Returns NULL, or a text that
// says why the table was refused: it has another ABI, or fewer bytes.
const char* attach_kernels(const void* table, uint32_t abi, size_t byte_size);

}  // namespace PROJECT_NAMESPACE
