// Decides how a step runs on a CUDA device. Our kernels run the whole step if this is expected to
// be quicker than cuBLAS, which takes more launches and more of the host's time. Otherwise cuBLAS
// makes the products. The limits are measured; benchmarks/NOTES.md has the times.
#include <algorithm>
#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "cell.h"
#include "launch.h"

namespace lltm {
namespace {

constexpr int32_t kNeedsDataGradient = LLTM_NEEDS_INPUT | LLTM_NEEDS_OLD_H;  // d_gates W

// Whether tensor cores may round this step's products to tf32; false unless `dtype` is float32.
bool allows_tf32(lltm_dtype dtype, const lltm_step_sizes& sizes, const lltm_execution& execution) {
  const int major = device_fact(cudaDevAttrComputeCapabilityMajor, execution.device_index);
  if (dtype != LLTM_FLOAT32 || major < 8) return false;
  if (sizes.input_size != 0) return torch_allows_tf32(execution);
  constexpr int64_t kAligned = 4;  // elements; see is_worth_padding in layer.cu
  return sizes.allow_tf32 != 0 && sizes.state_size % kAligned == 0 &&
         sizes.weight_stride % kAligned == 0;
}

// The costs of the parts of a forward step on a GPU, in microseconds. The values below are an
// H200's for float32; the constructor changes some of them. `python -m benchmarks constants`
// measures them on any GPU, and benchmarks/NOTES.md compares the model with measurements.
struct ForwardCosts {
  double launch = 3;
  double rows_depth = 0.0085;   // per element of the depth, without tensor cores
  double rows_work = 0.19;      // per million multiplications
  double rows4_depth = 0.0025;  // like rows_depth, in tiles of four rows
  double rows4_work = 0.31;
  double tensor_slice = 0.85;  // per 128 bytes of the depth, by tensor cores
  double tensor_block = 0.0038;
  double elements_slice = 1.6;  // like tensor_slice, for rows not aligned to words of 4 bytes
  double elements_block = 0.0038;
  double few_slice = 0.45;  // like tensor_slice, for up to kFewRows rows
  double few_block = 0.0014;
  double cublas = 8;  // the three launches of a step by cuBLAS
  double cublas_work = 0.1;
  double cublas_megabyte = 0.7;  // per megabyte of weights
  double more_launches = 12;     // the host's time for two additional launches

  ForwardCosts(int64_t element_bytes, bool exact) {
    if (!exact) {
      cublas_work = 0.01;
      cublas_megabyte = 0.5;
    }
    if (element_bytes == 2) {
      rows_depth = 0.0125;
      rows_work = 0.27;
      rows4_depth = 0.004;
      rows4_work = 0.33;
    }
  }
};

// The estimated times of a forward step.
struct ForwardTimes {
  double rows;    // the whole step without tensor cores, in tiles of `tile` rows
  double tensor;  // the whole step with tensor cores
  double cublas;

  ForwardTimes(lltm_dtype dtype, const lltm_step_sizes& sizes, bool tf32, bool vectors,
               int64_t tile) {
    const int64_t bytes = lltm_dtype_bytes(dtype);
    const ForwardCosts costs(bytes, bytes > 2 && !tf32);
    const auto tiles = [](int64_t size, int64_t each) {
      return static_cast<double>(divide_up(size, each));
    };
    const double depth = static_cast<double>(sizes.state_size + sizes.input_size);
    const double millions = 3e-6 * sizes.state_size * depth;  // multiplications for a row
    // The time `rows` is for operands that are not aligned to vectors: single elements are read.
    const double work = tiles(sizes.batch_size, tile) * tile * millions;
    rows = costs.launch + (tile == 4 ? std::max(depth * costs.rows4_depth, work * costs.rows4_work)
                                     : std::max(depth * costs.rows_depth, work * costs.rows_work));
    // A block reads the depth in slices of 128 bytes, and waits for each slice.
    const double blocks = tiles(sizes.state_size, 16);
    const int64_t word = bytes == 2 ? 2 : 1;
    const bool words = sizes.state_size % word == 0 && sizes.weight_stride % word == 0;
    const bool few = !vectors && words && sizes.batch_size <= kFewRows;
    const double tensor_tiles = blocks * tiles(sizes.batch_size, 64);
    const double slice = few     ? costs.few_slice + costs.few_block * blocks
                         : words ? costs.tensor_slice + costs.tensor_block * tensor_tiles
                                 : costs.elements_slice + costs.elements_block * tensor_tiles;
    tensor = costs.launch + std::ceil(depth * bytes / 128) * slice;
    cublas = costs.cublas + costs.more_launches + sizes.batch_size * millions * costs.cublas_work +
             bytes * millions * costs.cublas_megabyte;
  }
};

int32_t rows_family(const lltm_step_sizes& sizes) {
  const int64_t rows = sizes.batch_size;
  const int64_t outputs = rows * sizes.state_size;
  if (rows <= 32 || outputs <= 16384) return kRows16;
  return outputs <= 65536 ? kRows32 : kRows64;
}

int32_t forward_family(lltm_dtype dtype, const lltm_step_sizes& sizes, int64_t work,
                       const lltm_execution& execution) {
  const int64_t bytes = lltm_dtype_bytes(dtype);
  const bool vectors = sizes.state_size * bytes % 16 == 0 && sizes.weight_stride * bytes % 16 == 0;
  constexpr int64_t kSmall = 8'000'000;
  const bool tf32 = work > kSmall && allows_tf32(dtype, sizes, execution);
  const bool exact = bytes > 2 && !tf32;
  // For up to 4 rows, the time of any kernel is that of reading the weights. A GEMM by tensor cores
  // reads them quickest, but needs a second launch, which is free only in a loop over large steps.
  if (sizes.batch_size <= 4) {
    constexpr int64_t kLarge = 2048;
    const bool tensor_loop = sizes.input_size == 0 && !exact && sizes.state_size > kLarge;
    return tensor_loop && sizes.batch_size > 1 ? kGemm : kRows4;
  }
  // Without tf32, a float32 GEMM uses no tensor cores: the limit is higher, above all for few rows.
  int64_t limit = tf32 && sizes.input_size == 0 ? kSmall : 64'000'000;
  if (dtype == LLTM_FLOAT32 && !tf32) limit = sizes.batch_size <= 16 ? 1'100'000'000 : 320'000'000;
  if (vectors && work <= limit) return rows_family(sizes);
  const int64_t tile = sizes.batch_size <= 8 ? 4 : 16;
  const ForwardTimes times(dtype, sizes, tf32, vectors, tile);
  const double rows = vectors ? times.cublas : times.rows;
  // kTensor saves launches. In a sequence these cost no time, as the host is ahead of the device.
  const bool can_use_tensor = !exact && sizes.input_size != 0 && runs_tensor_step(dtype, execution);
  const double whole = can_use_tensor ? std::min(rows, times.tensor) : rows;
  if (whole >= times.cublas) return kGemm;
  if (whole < rows) return kTensor;
  return tile == 4 ? kRows4 : kRows16;
}

int32_t backward_family(lltm_dtype dtype, int32_t needs, const lltm_step_sizes& sizes, int64_t work,
                        const lltm_execution& execution) {
  const bool exact = dtype == LLTM_FLOAT32;
  const int64_t rows = sizes.batch_size;
  // In a sequence the host is ahead of the device, so launches cost less than in a single step.
  if (sizes.input_size == 0) {
    constexpr int64_t kMostOfOneRow = 3'000'000;
    constexpr int64_t kMostByTensorCores = 8'000'000;
    if (rows == 1 && work > kMostOfOneRow) return kGemm;
    if (work > kMostByTensorCores && allows_tf32(dtype, sizes, execution)) return kGemm;
    // For two to four rows of float32, cuBLAS reads the weights slowly.
    if (exact && rows <= 4) return kRows16;
  }
  int64_t limit = exact ? 80'000'000 : 64'000'000;
  if ((needs & kNeedsDataGradient) != 0) {
    limit = exact ? 32'000'000 : 16'000'000;
    // The limit is higher for a single step, because cuBLAS then takes up to five launches.
    if (sizes.input_size != 0) limit *= 2;
  }
  return work > limit || rows > 256 ? kGemm : kRows16;
}

// Whether a step in planes is quicker than one on a padded copy of the weights. The larger the
// weights, the more the copy costs; the more rows, the more the planes' other kernels cost.
bool prefers_planes(lltm_dtype dtype, lltm_pass pass, const lltm_step_sizes& sizes,
                    const lltm_execution& execution) {
  const int64_t bytes = lltm_dtype_bytes(dtype);
  const int64_t vector = 16 / bytes;
  const bool aligned = sizes.state_size % vector == 0 && sizes.input_size % vector == 0;
  if (aligned || !can_take_planes(dtype, sizes, execution)) return false;
  const double megabytes = 3e-6 * sizes.state_size * sizes.weight_stride * bytes;
  double least = 32;
  if (pass == LLTM_FORWARD) {
    // Up to 4 rows, our own kernel is one launch. In tf32, each plane is a launch.
    if (sizes.batch_size <= 4)
      least = bytes == 2 ? 50 : HUGE_VAL;
    else
      least = bytes == 2 ? 16 : sizes.weight_stride % 2 == 0 ? 64 : 128;
  }
  return megabytes >= least && sizes.batch_size <= (bytes == 2 ? 6 : 2) * megabytes;
}

int32_t preferred_family(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                         const lltm_step_sizes& sizes, const lltm_execution& execution) {
  const int64_t depth = sizes.state_size + sizes.input_size;
  constexpr int64_t kLargest = 1 << 20;  // products of larger sizes may overflow
  if (sizes.batch_size > kLargest || depth > kLargest) return kGemm;
  if (prefers_planes(dtype, pass, sizes, execution)) return kPlanes;
  const int64_t work = 3 * sizes.batch_size * sizes.state_size * depth;  // multiplications
  const int32_t family = pass == LLTM_FORWARD
                             ? forward_family(dtype, sizes, work, execution)
                             : backward_family(dtype, needs, sizes, work, execution);
  // A step without an input counts as part of a sequence, whose caller calls `product` itself.
  const bool single = sizes.input_size != 0 && can_multiply(execution);
  return family == kGemm && single ? kCublas : family;
}

// Returns the plan's split_k. A product of few rows has few tiles and a great depth: cuBLAS divides
// the depth, and adds up the parts in a separate launch. If the caller divides the depth instead,
// the next kernel adds up the parts, the planes, at no cost, which saves this launch.
int32_t split_k(lltm_dtype dtype, const lltm_step_sizes& sizes, const lltm_execution& execution) {
  constexpr int64_t kLeastState = 512;
  constexpr int64_t kMostOutputs = 1 << 19;  // above this, planes cost more than they save
  const int64_t rows = sizes.batch_size;
  const int64_t state = sizes.state_size;
  if (state < kLeastState || rows > kMostOutputs / state) return 1;
  if (lltm_dtype_bytes(dtype) == 2) {
    constexpr int32_t kParts = 4;
    static_assert(kParts <= LLTM_MOST_SPLIT_K);
    constexpr int64_t kAligned = 32;  // a quarter of 3S is then a multiple of 16 bytes
    return rows >= 16 && state % kAligned == 0 ? kParts : 1;
  }
  constexpr int32_t kParts = 3;  // one per gate
  static_assert(kParts <= LLTM_MOST_SPLIT_K);
  constexpr int64_t kLeastRows = 192;
  constexpr int64_t kMostState = 2048;
  return rows >= kLeastRows && state <= kMostState && allows_tf32(dtype, sizes, execution) ? kParts
                                                                                           : 1;
}

// The family that LLTM_CUDA_CELL names, or -1.
int32_t named_family(const char* name) {
  static const char* const names[] = {"gemm",   "rows4",  "rows16", "rows32",
                                      "rows64", "cublas", "tensor", "planes"};
  for (int32_t family = kGemm; family <= kPlanes; ++family) {
    if (std::strcmp(name, names[family]) == 0) return family;
  }
  return -1;
}

// Sets the plan's fields except the family.
void describe(lltm_dtype dtype, lltm_pass pass, int32_t needs, const lltm_step_sizes& sizes,
              const lltm_execution& execution, lltm_step_plan* plan) {
  const int64_t elements = sizes.batch_size * sizes.state_size;
  if (plan->family == kCublas) {
    plan->workspace_bytes = cublas_step_workspace(dtype, pass, needs, sizes, execution);
  } else if (plan->family == kPlanes) {
    plan->workspace_bytes = planes_step_workspace(dtype, pass, needs, sizes, execution);
  } else if (plan->family == kGemm) {
    plan->calls_product = sizes.input_size == 0 && elements != 0 && can_multiply(execution);
    if (pass == LLTM_BACKWARD) plan->split_k = split_k(dtype, sizes, execution);
  } else if (pass == LLTM_BACKWARD) {
    plan->makes_gates = 1;
    // The workspace holds d_gates between the two launches.
    if ((needs & kNeedsDataGradient) != 0) {
      plan->workspace_bytes = 3 * elements * lltm_dtype_bytes(dtype);
    }
  }
}

}  // namespace

const char* cuda_step_plan(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                           const lltm_step_sizes* sizes, const lltm_execution* execution,
                           lltm_step_plan* plan) {
  *plan = {};
  const bool empty = sizes->batch_size == 0 || sizes->state_size == 0;
  const char* const forced = std::getenv("LLTM_CUDA_CELL");
  if (empty) {
    plan->family = kGemm;
  } else if (forced == nullptr || *forced == '\0') {
    plan->family = preferred_family(dtype, pass, needs, *sizes, *execution);
  } else {
    plan->family = named_family(forced);
    const bool sequence = sizes->input_size == 0;
    if (plan->family == kPlanes && !can_take_planes(dtype, *sizes, *execution)) {
      plan->family = kCublas;
    }
    if (plan->family == kCublas && (sequence || !can_multiply(*execution))) plan->family = kGemm;
    const bool exact = dtype == LLTM_FLOAT32 && !allows_tf32(dtype, *sizes, *execution);
    if (plan->family == kTensor &&
        (pass == LLTM_BACKWARD || exact || !runs_tensor_step(dtype, *execution))) {
      plan->family = kRows16;
    }
    if (plan->family < 0) {
      thread_local char text[200];
      std::snprintf(text, sizeof(text),
                    "lltm: LLTM_CUDA_CELL names no kernels, got '%.40s'; set it to gemm, rows4, "
                    "rows16, rows32, rows64, cublas, tensor or planes, or unset it",
                    forced);
      return text;
    }
  }
  describe(dtype, pass, needs, *sizes, *execution, plan);
  return nullptr;
}

}  // namespace lltm
