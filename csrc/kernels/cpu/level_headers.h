// Headers that the kernels of every level include before level_*.cpp sets its instruction set.
// Their functions are thus compiled for every processor.
#pragma once

#include <atomic>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <type_traits>
#include <utility>

#ifdef __aarch64__
#include <arm_neon.h>
#endif

#include "../types.h"
#include "levels.h"
#include "threads.h"
