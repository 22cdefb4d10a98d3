// In place of pybind11's header of this name; see torch/extension.h.
#pragma once

#include "torch/extension.h"
