// Whole sequences on the CPU.
#include "layer.h"

#include <cstdlib>
#include <cstring>

#include "levels.h"

namespace lltm {
namespace {

constexpr int32_t kFallback = 0;
constexpr int32_t kFused = 1;

constexpr const char* kUnknownFamily =
    "lltm: LLTM_LAYER_KERNELS names no family of CPU kernels; set it to fused or fallback, or "
    "unset it";

// Work, in multiply-adds, that a thread must have before another thread is worth waking.
constexpr int64_t kProductsPerThread = 1 << 19;

const LayerKernels* layer_kernels(lltm_dtype dtype) {
  const Level* level = cpu_level();
  return level == nullptr ? nullptr : &level->layer[dtype];
}

// Runs `work(arguments, begin, end)` on parts of [0, count).
template <typename Arguments>
void share(const Arguments& arguments, void (*work)(const Arguments&, int64_t, int64_t),
           int64_t count, int64_t grain_size, const lltm_execution& execution) {
  struct Context {
    const Arguments* arguments;
    decltype(work) apply;
  } context{&arguments, work};
  const auto part = [](int64_t begin, int64_t end, void* opaque) {
    const Context& local = *static_cast<const Context*>(opaque);
    local.apply(*local.arguments, begin, end);
  };
  execution.parallel_for(0, count, grain_size, part, &context);
}

// Rows of the batch that a thread gets at least: half a tile, and enough work to wake it for.
int64_t rows_per_thread(const lltm_layer_sizes& sizes, const LayerKernels& kernels) {
  const int64_t products = sizes.steps * 3 * sizes.state_size * sizes.state_size;
  const int64_t worthwhile = (kProductsPerThread + products - 1) / products;
  const int64_t half_tile = kernels.tile_rows / 2;
  return worthwhile > half_tile ? worthwhile : half_tile;
}

int64_t panels_per_thread(const lltm_layer_sizes& sizes, int64_t panels) {
  const int64_t elements = 3 * sizes.state_size * sizes.state_size;
  const int64_t grain_size = kProductsPerThread * panels / elements;
  return grain_size > 0 ? grain_size : 1;
}

// Against torch's GEMM step by step, which shares the columns out to threads and packs nothing:
// with few rows that is quicker as soon as the weights leave the cache, with few steps as soon as
// packing them costs more than they save. Torch multiplies bfloat16 by instructions of its own,
// which win wherever the products are most of the work. benchmarks/NOTES.md has the measurements.
bool is_quicker_fused(lltm_dtype dtype, const lltm_layer_sizes& sizes) {
  const int64_t rows = sizes.batch_size;
  const int64_t state_size = sizes.state_size;
  if (dtype == LLTM_BFLOAT16) return rows * state_size <= 4096;
  const int64_t size = dtype == LLTM_FLOAT64 ? 2 * state_size : state_size;
  return state_size <= 128 || (size <= 128 * rows && size <= 8 * rows * sizes.steps);
}

}  // namespace

const char* cpu_layer_plan(lltm_dtype dtype, int32_t backward, const lltm_layer_sizes* sizes,
                           const lltm_execution*, lltm_layer_plan* plan) {
  *plan = {kFallback, 0, 0};
  if (sizes->batch_size == 0 || sizes->state_size == 0) return nullptr;
  const char* wanted = std::getenv("LLTM_LAYER_KERNELS");
  if (wanted != nullptr && *wanted == '\0') wanted = nullptr;
  if (wanted != nullptr && std::strcmp(wanted, "fallback") == 0) return nullptr;
  if (wanted != nullptr && std::strcmp(wanted, "fused") != 0) return kUnknownFamily;
  if (wanted == nullptr && !is_quicker_fused(dtype, *sizes)) return nullptr;
  const LayerKernels* const kernels = layer_kernels(dtype);
  if (kernels == nullptr) return kUnknownLevel;
  plan->family = kFused;
  plan->workspace_bytes =
      backward != 0 ? kernels->backward_bytes(*sizes) : kernels->forward_bytes(*sizes);
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
  share(*arguments, kernels->pack_forward, panels, panels_per_thread(sizes, panels), *execution);
  share(*arguments, kernels->forward, sizes.batch_size, rows_per_thread(sizes, *kernels),
        *execution);
  return nullptr;
}

const char* cpu_layer_backward(lltm_dtype dtype, int32_t,
                               const lltm_layer_backward_arguments* arguments,
                               const lltm_execution* execution) {
  const LayerKernels* const kernels = layer_kernels(dtype);
  if (kernels == nullptr) return kUnknownLevel;
  const lltm_layer_sizes& sizes = arguments->sizes;
  const int64_t panels = kernels->backward_panels(sizes);
  share(*arguments, kernels->pack_backward, panels, panels_per_thread(sizes, panels), *execution);
  share(*arguments, kernels->backward, sizes.batch_size, rows_per_thread(sizes, *kernels),
        *execution);
  if (kernels->makes_all_products && arguments->d_weights != nullptr) {
    const int64_t rows = (3 * sizes.state_size + kernels->tile_rows - 1) / kernels->tile_rows;
    const int64_t products =
        sizes.steps * sizes.batch_size * kernels->tile_rows * sizes.weight_stride;
    share(*arguments, kernels->weights_gradient, rows, kProductsPerThread / products + 1,
          *execution);
  }
  return nullptr;
}

const char* cpu_layer_cells(lltm_dtype dtype, const lltm_layer_cells_arguments* arguments,
                            const lltm_execution* execution) {
  const LayerKernels* const kernels = layer_kernels(dtype);
  if (kernels == nullptr) return kUnknownLevel;
  // An element, with its activations, costs as much as some ten products.
  const int64_t products = 16 * arguments->sizes.steps * arguments->sizes.state_size;
  share(*arguments, kernels->cells, arguments->sizes.batch_size,
        products > 0 ? kProductsPerThread / products + 1 : 1, *execution);
  return nullptr;
}

}  // namespace lltm
