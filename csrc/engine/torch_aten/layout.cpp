// Writes the layout of torch's classes into every ATen glue. The builder writes the record.
#include "../torch_extension.h"
