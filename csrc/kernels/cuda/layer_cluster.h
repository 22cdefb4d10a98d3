// The family `cluster`: the recurrent weights spread over the registers of a thread-block cluster.
#pragma once

#include "../lltm_kernels.h"

namespace lltm {

// How a problem is spread over clusters; without blocks where it does not fit.
struct ClusterShape {
  int blocks = 0;      // of a cluster, each with its units of the state
  int rows = 0;        // of the batch, a cluster
  bool quick = false;  // all clusters run at once, and blocks rarely compete for a multiprocessor
};

const char* shape_cluster(lltm_dtype dtype, bool backward, const lltm_layer_sizes& sizes,
                          int32_t device_index, ClusterShape* shape);
const char* cluster_forward(lltm_dtype dtype, const lltm_layer_forward_arguments& arguments,
                            const lltm_execution& execution, const ClusterShape& shape);
const char* cluster_backward(lltm_dtype dtype, const lltm_layer_backward_arguments& arguments,
                             const lltm_execution& execution, const ClusterShape& shape);

}  // namespace lltm
