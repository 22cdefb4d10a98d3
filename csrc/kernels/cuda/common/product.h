// Matrix products by torch's cuBLAS.
#pragma once

#include "../../lltm_kernels.h"

namespace lltm {

// Whether cuda_product can be called, and whether torch's flag lets it round to tf32.
bool can_multiply(const lltm_execution&);
bool torch_allows_tf32(const lltm_execution&);
const char* cuda_product(lltm_dtype, const lltm_product_arguments*, const lltm_execution*);
// Like cuda_product, with a result of the type `to_dtype`: the other matrices' type, or float32.
const char* product_to(lltm_dtype, lltm_dtype to_dtype, const lltm_product_arguments&);

}  // namespace lltm
