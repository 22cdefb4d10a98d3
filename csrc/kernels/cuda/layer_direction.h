// Forward and backward of a layer, for the code that launches either.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

struct LayerForward {
  using Arguments = lltm_layer_forward_arguments;
  static constexpr bool kBackward = false;
  static constexpr const char* kName = "layer_forward";
};

struct LayerBackward {
  using Arguments = lltm_layer_backward_arguments;
  static constexpr bool kBackward = true;
  static constexpr const char* kName = "layer_backward";
};

}  // namespace lltm
