// The door to torch that this object is built for: the stable ABI where the build names the oldest
// torch that it serves, otherwise ATen.
#pragma once

#ifdef TORCH_TARGET_VERSION
#include "torch_stable/torch.h"
#else
#include "torch_aten/torch.h"
#endif
