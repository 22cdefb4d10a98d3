// The CPU kernels for every processor of the platform.
#define LLTM_LEVEL baseline
#define LLTM_VECTOR_BYTES 16
#include "level_table.h"
