// The engine's storage types; this op's names for its macros.
#pragma once

#include "../engine/kernels/types.h"

#define LLTM_HOST_DEVICE PROJECT_HOST_DEVICE
#define LLTM_DEVICE PROJECT_DEVICE
