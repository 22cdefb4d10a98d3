// The engine's storage types, and names of this op for the engine's macros.
#pragma once

#include "torchship/kernels/types.h"

#define LLTM_HOST_DEVICE PROJECT_HOST_DEVICE
#define LLTM_DEVICE PROJECT_DEVICE
