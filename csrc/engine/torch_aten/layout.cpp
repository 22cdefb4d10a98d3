// The layout of torch's classes goes into every ATen glue; the record is the builder's.
#include "../torch_extension.h"
