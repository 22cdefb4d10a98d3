// The kernels that were attached to this glue, per device.
#pragma once

#include "../kernels/lltm_kernels.h"

namespace lltm {

enum class Device { kCPU, kCUDA };

// The attached kernels of `device`, or nullptr.
const lltm_kernel_functions* attached_kernels(Device device);

}  // namespace lltm

// Attaches the table that a kernels object returned from `lltm_kernel_table()`. Returns NULL, or a
// text that says why the table was refused. Attaching again replaces.
extern "C" LLTM_EXPORT const char* lltm_attach_kernels(const void* table);
