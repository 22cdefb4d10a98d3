// In place of pybind11's header of this name.
#pragma once

#include "../torch/extension.h"
