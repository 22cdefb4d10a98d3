// Adds the layout of torch's classes to every ATen glue. A generated source adds the build record.
#include "../../torch_extension.h"
