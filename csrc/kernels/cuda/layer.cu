// Chooses the family that runs a whole sequence quickest on a CUDA device, and recomputes the cell
// states of a sequence from its gates.
#include <cstdlib>
#include <cstring>

#include "../layer_parts.h"
#include "launch.h"
#include "layer.h"
#include "layer_device.h"

namespace lltm {
inline namespace layer_cu {

constexpr int kThreads = 128;

// Each thread sums one element's terms over time, and computes several terms at once.
template <typename T>
__global__ void __launch_bounds__(kThreads) sum_cells(const lltm_layer_cells_arguments arguments) {
  using C = compute_t<T>;
  using Math = ScalarMath<C>;
  const int64_t element = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  const lltm_layer_sizes& sizes = arguments.sizes;
  if (element >= sizes.batch_size * sizes.state_size) return;
  const int64_t row = element / sizes.state_size;
  const T* const initial = static_cast<const T*>(arguments.initial_cell);
  const Walk walk(sizes, false);
  const T* gates = static_cast<const T*>(arguments.gates) + kGateCount * walk.first + element +
                   2 * row * sizes.state_size;
  T* cells = static_cast<T*>(arguments.cells) + walk.first + element;
  C cell = initial != nullptr ? widen(initial[element]) : C(0);
#pragma unroll 4
  for (int64_t step = 0; step < sizes.steps; ++step) {
    const C z_i = widen(gates[kInputGate * sizes.state_size]);
    const C z_c = widen(gates[kCandidate * sizes.state_size]);
    cell += Math::elu(z_c) * Math::sigmoid(z_i).value;
    *cells = narrow<T>(cell);
    gates += kGateCount * walk.stride;
    cells += walk.stride;
  }
}

enum Family : int32_t { kGemm = 0, kRegisters = 1, kGrid = 2, kCluster = 3 };

const LayerFamily gemm_family = {"gemm", [](const LayerProblem&) { return true; }, nullptr, nullptr,
                                 nullptr};
const LayerFamily* const kFamilies[] = {&gemm_family, &registers_family, &grid_family,
                                        &cluster_family};

// Returns the problem with S and I padded to multiples of 64 bytes, for cuBLAS and `grid`, which
// read vectors. In float64, or if S and I are multiples of 8 elements, returns it unchanged.
LayerProblem padded(LayerProblem problem) {
  constexpr int64_t kAligned = 8;
  lltm_layer_sizes& sizes = problem.sizes;
  const int64_t inputs = sizes.weight_stride - sizes.state_size;
  const bool aligned = sizes.state_size % kAligned == 0 && inputs % kAligned == 0;
  if (aligned || problem.dtype == LLTM_FLOAT64) return problem;
  const int64_t whole = 64 / lltm_dtype_bytes(problem.dtype);
  sizes.state_size = divide_up(sizes.state_size, whole) * whole;
  sizes.weight_stride = sizes.state_size + divide_up(inputs, whole) * whole;
  return problem;
}

// In a sequence of few steps, copies of the weights take longer than they save, and the loop waits
// for the host, which is not ahead of the device yet.
bool has_few_steps(const LayerProblem& problem) { return problem.sizes.steps <= 16; }

// Whether padding saves more time than the copies take. `family` runs the padded problem. The
// families `registers` and `cluster` need no multiples of 8, so with them padding speeds up only
// the products over all steps. Unpadded rows of whole vectors cost the loop a few percent.
bool is_worth_padding(Family family, const LayerProblem& problem) {
  const lltm_layer_sizes& sizes = problem.sizes;
  const bool vectors =
      problem.dtype == LLTM_FLOAT32 && sizes.state_size % 4 == 0 && sizes.weight_stride % 4 == 0;
  if (family == kGemm && vectors && has_few_steps(problem)) return false;
  const lltm_layer_sizes larger = padded(problem).sizes;
  if (larger.state_size == sizes.state_size && larger.weight_stride == sizes.weight_stride) {
    return false;
  }
  if (family != kRegisters && family != kCluster) return true;
  constexpr double kLeastWork = 1e9;  // multiplications
  return 3.0 * sizes.state_size * (sizes.weight_stride - sizes.state_size) * sizes.batch_size *
             sizes.steps >
         kLeastWork;
}

// The quickest family, as measured on an H200 and an H100; benchmarks/NOTES.md has the numbers.
// `cluster` waits least in a step, but a block repeats the work of a step for each of its batch
// rows. `registers` needs no exchange between blocks. The time of a step of `grid` grows with the
// batch rows of a block times the state and, if weights are streamed, with the number of chunks.
// The time of a step of `gemm` is that of launching a GEMM and a pointwise kernel or, for large
// states, that of reading the weights again.
Family choose(const LayerProblem& problem) {
  const lltm_layer_sizes& sizes = problem.sizes;
  constexpr int64_t kAlone = 64;  // states up to this size are quicker on one multiprocessor
  if (sizes.state_size > kAlone && shape_cluster(problem).quick) return kCluster;
  if (registers_family.fits(problem)) return kRegisters;
  const bool half = problem.dtype != LLTM_FLOAT32;
  const bool exact = !half && sizes.allow_tf32 == 0;
  const int64_t most = exact              ? (problem.backward ? 24576 : 32768)
                       : problem.backward ? 65536
                       : half             ? 131072
                                          : 98304;
  const GridShape grid = shape_grid(problem);
  if (grid.kernel == nullptr) return kGemm;
  const bool few_rows = grid.slice_rows * sizes.state_size <= most;
  if (grid.chunks == 0) return few_rows ? kGrid : kGemm;
  // The streamed weights are copied first, which takes as long as some steps of the loop.
  constexpr int64_t kLeastSteps = 4;
  if (sizes.steps < kLeastSteps) return kGemm;
  // Each chunk reads the streamed weights again, which a larger product need not. While the host is
  // not late, three chunks take up to 1.4 times as long as a step of the loop, four 1.9 times.
  constexpr int64_t kSmall = 1280;
  const bool one_more = !exact && !problem.backward && sizes.state_size <= kSmall;
  const int most_chunks = grid.exceeds_l2                      ? (exact ? 2 : 1)
                          : half                               ? 2
                          : one_more && has_few_steps(problem) ? 4
                                                               : 3;
  return grid.chunks <= most_chunks || (exact && few_rows) ? kGrid : kGemm;
}

// Sets `family` to the family of this name, the value of LLTM_LAYER_KERNELS. Returns an error if no
// family has this name, or if the family cannot run the problem. For an `empty` problem, which
// needs no family, only checks the name.
const char* name_family(const char* name, bool empty, const LayerProblem& problem, Family* family) {
  for (int32_t number = kGemm; number <= kCluster; ++number) {
    const LayerFamily& known = *kFamilies[number];
    if (std::strcmp(name, known.name) != 0) continue;
    if (empty) return nullptr;
    *family = static_cast<Family>(number);
    return known.fits(problem) ? nullptr : known.refusal;
  }
  return "lltm: LLTM_LAYER_KERNELS names no family of CUDA kernels; set it to gemm, registers, "
         "grid or cluster, or unset it";
}

}  // namespace layer_cu

const char* cuda_layer_plan(lltm_dtype dtype, lltm_pass pass, const lltm_layer_sizes* sizes,
                            const lltm_execution* execution, lltm_layer_plan* plan) {
  *plan = {};
  const bool backward = pass == LLTM_BACKWARD;
  if (backward) {
    set_part_starts(sizes->steps, plan);
  } else {
    plan->product_adds_bias = 1;  // cuBLAS adds the bias at no cost
  }
  const LayerProblem problem{dtype, backward, *sizes, execution->device_index};
  const LayerProblem larger = padded(problem);
  const bool empty = sizes->batch_size == 0 || sizes->state_size == 0 || sizes->steps == 0;
  const char* const forced = std::getenv("LLTM_LAYER_KERNELS");
  Family family = kGemm;
  if (forced != nullptr && *forced != '\0') {
    const char* const error = name_family(forced, empty, larger, &family);
    if (error != nullptr) return error;
  } else if (!empty) {
    family = choose(larger);
  }
  if (!empty && is_worth_padding(family, problem)) {
    plan->padded_state = larger.sizes.state_size;
    plan->padded_input = larger.sizes.weight_stride - larger.sizes.state_size;
    return nullptr;
  }
  plan->family = family;
  if (family == kGrid) {
    plan->workspace_bytes = shape_grid(problem).stream_bytes;
    // There is also room for a copy of initial_h, if its address is not a multiple of 16.
    const int64_t state_bytes = sizes->batch_size * sizes->state_size * lltm_dtype_bytes(dtype);
    if (!backward) plan->workspace_bytes += state_bytes;
  }
  return nullptr;
}

const char* cuda_layer_forward(lltm_dtype dtype, int32_t family,
                               const lltm_layer_forward_arguments* arguments,
                               const lltm_execution* execution) {
  return kFamilies[family]->forward(dtype, *arguments, *execution);
}

const char* cuda_layer_backward(lltm_dtype dtype, int32_t family,
                                const lltm_layer_backward_arguments* arguments,
                                const lltm_execution* execution) {
  return kFamilies[family]->backward(dtype, *arguments, *execution);
}

const char* cuda_layer_cells(lltm_dtype dtype, const lltm_layer_cells_arguments* arguments,
                             const lltm_execution* execution) {
  return launch_on(*execution, "layer_cells", dtype, [&](auto zero, cudaStream_t stream) {
    const int64_t plane = arguments->sizes.batch_size * arguments->sizes.state_size;
    if (plane == 0) return;  // CUDA refuses empty grids
    const auto blocks = static_cast<unsigned>(divide_up(plane, kThreads));
    sum_cells<decltype(zero)><<<blocks, kThreads, 0, stream>>>(*arguments);
  });
}

}  // namespace lltm
