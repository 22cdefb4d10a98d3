// Whole sequences on the CPU: which of them run here, and threads.
#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "../layer_parts.h"
#include "cpu_kernels.h"
#include "levels.h"

namespace lltm {
namespace {

enum Family : int32_t { kGemm = 0, kFused = 1 };

constexpr const char* kUnknownFamily =
    "lltm: LLTM_LAYER_KERNELS names no family of CPU kernels; set it to fused or gemm, or unset it";

// Multiply-adds that are worth waking another thread for.
constexpr int64_t kProductsPerThread = 1 << 19;

const LayerKernels* layer_kernels(lltm_dtype dtype) {
  const Level* const level = cpu_level();
  return level == nullptr ? nullptr : &level->layer[dtype];
}

// The least rows of the batch for a thread: half a tile, and enough work to wake it for.
int64_t rows_per_thread(const lltm_layer_sizes& sizes, const LayerKernels& kernels) {
  const int64_t products = sizes.steps * 3 * sizes.state_size * sizes.state_size;
  const int64_t worthwhile = (kProductsPerThread + products - 1) / products;
  return std::max(worthwhile, kernels.tile_rows / 2);
}

int64_t panels_per_thread(const lltm_layer_sizes& sizes, int64_t panels) {
  const int64_t elements = 3 * sizes.state_size * sizes.state_size;
  return at_least_one(kProductsPerThread * panels / elements);
}

// Compared with torch's GEMM step by step, which shares columns among threads and packs nothing.
// With few rows the GEMM is quicker as soon as the weights leave the cache; with few steps, as soon
// as packing them costs more than it saves. Torch multiplies bfloat16 by instructions of its own,
// which win where products are most of the work. benchmarks/NOTES.md has the measurements.
bool is_quicker_fused(lltm_dtype dtype, const lltm_layer_sizes& sizes) {
  const int64_t rows = sizes.batch_size;
  const int64_t state_size = sizes.state_size;
  if (dtype == LLTM_BFLOAT16) return rows * state_size <= 4096;
  const int64_t size = dtype == LLTM_FLOAT64 ? 2 * state_size : state_size;
  return state_size <= 128 || (size <= 128 * rows && size <= 8 * rows * sizes.steps);
}

}  // namespace

const char* cpu_layer_plan(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes* sizes,
                           const lltm_execution*, lltm_layer_plan* plan) {
  *plan = {};
  if (pass == LLTM_BACKWARD) set_part_starts(sizes->steps, plan);
  if (sizes->batch_size == 0 || sizes->state_size == 0) return nullptr;
  const char* const forced = std::getenv("LLTM_LAYER_KERNELS");
  if (forced == nullptr || *forced == '\0') {
    if (!is_quicker_fused(dtype, *sizes)) return nullptr;
  } else {
    if (std::strcmp(forced, "gemm") == 0) return nullptr;
    if (std::strcmp(forced, "fused") != 0) return kUnknownFamily;
  }
  const LayerKernels* const kernels = layer_kernels(dtype);
  if (kernels == nullptr) return kUnknownLevel;
  plan->family = kFused;
  plan->workspace_bytes =
      pass == LLTM_BACKWARD ? kernels->backward_bytes(*sizes) : kernels->forward_bytes(*sizes);
  plan->makes_all_products = kernels->makes_all_products ? 1 : 0;
  return nullptr;
}

const char* cpu_layer_forward(lltm_dtype dtype, int32_t,
                              const lltm_layer_forward_arguments* arguments,
                              const lltm_execution* execution) {
  const LayerKernels* const kernels = layer_kernels(dtype);
  if (kernels == nullptr) return kUnknownLevel;
  const lltm_layer_sizes& sizes = arguments->sizes;
  const int64_t panels = kernels->forward_panels(sizes);
  in_parallel(panels, panels_per_thread(sizes, panels), *execution,
              [&](int64_t begin, int64_t end) { kernels->pack_forward(*arguments, begin, end); });
  in_parallel(sizes.batch_size, rows_per_thread(sizes, *kernels), *execution,
              [&](int64_t begin, int64_t end) { kernels->forward(*arguments, begin, end); });
  return nullptr;
}

const char* cpu_layer_backward(lltm_dtype dtype, int32_t,
                               const lltm_layer_backward_arguments* arguments,
                               const lltm_execution* execution) {
  const LayerKernels* const kernels = layer_kernels(dtype);
  if (kernels == nullptr) return kUnknownLevel;
  const lltm_layer_sizes& sizes = arguments->sizes;
  const int64_t panels = kernels->backward_panels(sizes);
  in_parallel(panels, panels_per_thread(sizes, panels), *execution,
              [&](int64_t begin, int64_t end) { kernels->pack_backward(*arguments, begin, end); });
  in_parallel(sizes.batch_size, rows_per_thread(sizes, *kernels), *execution,
              [&](int64_t begin, int64_t end) { kernels->backward(*arguments, begin, end); });
  if (kernels->makes_all_products && arguments->d_weights != nullptr) {
    const int64_t rows = (3 * sizes.state_size + kernels->tile_rows - 1) / kernels->tile_rows;
    const int64_t products =
        sizes.steps * sizes.batch_size * kernels->tile_rows * sizes.weight_stride;
    in_parallel(
        rows, kProductsPerThread / products + 1, *execution,
        [&](int64_t begin, int64_t end) { kernels->weights_gradient(*arguments, begin, end); });
  }
  return nullptr;
}

const char* cpu_layer_cells(lltm_dtype dtype, const lltm_layer_cells_arguments* arguments,
                            const lltm_execution* execution) {
  const LayerKernels* const kernels = layer_kernels(dtype);
  if (kernels == nullptr) return kUnknownLevel;
  // An element, with its activations, costs as much as some ten products.
  const int64_t products = 16 * arguments->sizes.steps * arguments->sizes.state_size;
  in_parallel(arguments->sizes.batch_size, kProductsPerThread / at_least_one(products) + 1,
              *execution,
              [&](int64_t begin, int64_t end) { kernels->cells(*arguments, begin, end); });
  return nullptr;
}

}  // namespace lltm
