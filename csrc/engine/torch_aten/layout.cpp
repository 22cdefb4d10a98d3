// Puts the layout of torch's classes into every ATen glue. A generated source adds the record.
#include "../torch_extension.h"
