// Whole steps on the CPU: which of them run here, memory, and threads.
#include <atomic>
#include <cstdlib>
#include <cstring>

#include "cpu_kernels.h"
#include "levels.h"

namespace lltm {
namespace {

// Multiplications that are worth waking another thread for: some 10 us.
constexpr int64_t kProductsPerThread = int64_t{1} << 20;

enum Family : int32_t { kGemm = 0, kOwn = 1 };

constexpr const char* kUnknownProducts =
    "lltm: LLTM_CPU_PRODUCTS must be own or gemm: which matrix products a step on the CPU takes; "
    "set it to one of them, or unset it";
constexpr const char* kNoMemory = "lltm: no memory for the CPU kernels' workspace";

// A small piece of memory comes from the stack: malloc would take a tenth of a small step's time.
class Scratch {
 public:
  explicit Scratch(int64_t bytes) : bytes_(static_cast<size_t>(bytes)) {
    // In whole cache lines: the size must be a multiple of the alignment.
    if (!fits()) allocated_ = std::aligned_alloc(kLine, (bytes_ + kLine - 1) / kLine * kLine);
  }
  ~Scratch() { std::free(allocated_); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  char* data() { return fits() ? here_ : static_cast<char*>(allocated_); }
  bool missing() const { return !fits() && allocated_ == nullptr; }

 private:
  static constexpr size_t kLine = 64;
  bool fits() const { return bytes_ <= sizeof(here_); }

  const size_t bytes_;
  void* allocated_ = nullptr;
  alignas(kLine) char here_[24 * 1024];
};

// Multiplications of one product with all of `weights`.
int64_t products_of(const lltm_step_sizes& sizes) {
  return sizes.batch_size * 3 * sizes.state_size * (sizes.state_size + sizes.input_size);
}

int64_t grain(int64_t products_per_unit) {
  return at_least_one(kProductsPerThread / at_least_one(products_per_unit));
}

// The family that LLTM_CPU_PRODUCTS names, kNone if it is not set, kUnknown if it names none.
constexpr int32_t kNone = -1, kUnknown = -2;
int32_t forced_family() {
  static const int32_t forced = [] {
    const char* const wanted = std::getenv("LLTM_CPU_PRODUCTS");
    if (wanted == nullptr || *wanted == '\0') return kNone;
    if (std::strcmp(wanted, "gemm") == 0) return int32_t{kGemm};
    return std::strcmp(wanted, "own") == 0 ? int32_t{kOwn} : kUnknown;
  }();
  return forced;
}

#ifdef __x86_64__
bool is_intel() {
  __builtin_cpu_init();
  return __builtin_cpu_is("intel") != 0;
}
bool multiplies_bfloat16() {
  __builtin_cpu_init();
  return __builtin_cpu_supports("avx512bf16") != 0;
}
#else
bool is_intel() { return false; }
bool multiplies_bfloat16() { return false; }
#endif

// Ours are quicker up to so many products: measured, see benchmarks/NOTES.md. A rule rather than a
// trial, so that a machine computes the same every time.
double most_products(lltm_dtype dtype) {
  constexpr double kAny = 1e300;
  switch (dtype) {
    case LLTM_FLOAT16:
      return kAny;
    case LLTM_BFLOAT16: {
      static const double most = multiplies_bfloat16() ? 4e6 : kAny;
      return most;
    }
    default: {
      // Torch's library is tuned for Intel's processors; others reach half of their speed with it.
      static const double most = is_intel() ? 64e6 : kAny;
      return most;
    }
  }
}

// In a larger batch, one running sum would lose digits; torch's products sum in blocks.
constexpr int64_t kMostSummed = 32768;

}  // namespace

// For gemm, the plan's other fields stay 0: a CPU GEMM would write the bias to memory first, and
// there are no launches to save.
const char* cpu_step_plan(lltm_dtype dtype, lltm_pass pass, int32_t, const lltm_step_sizes* sizes,
                          const lltm_execution*, lltm_step_plan* plan) {
  *plan = {};
  if (cpu_level() == nullptr) return kUnknownLevel;
  const int32_t forced = forced_family();
  if (forced == kUnknown) return kUnknownProducts;
  if (sizes->batch_size == 0 || sizes->state_size == 0) return nullptr;
  if (forced != kNone) {
    plan->family = forced;
  } else {
    const bool too_long = pass == LLTM_BACKWARD && sizes->batch_size > kMostSummed;
    const bool quicker = static_cast<double>(products_of(*sizes)) <= most_products(dtype);
    plan->family = quicker && !too_long ? kOwn : kGemm;
  }
  return nullptr;
}

const char* cpu_step_forward(lltm_dtype dtype, int32_t,
                             const lltm_step_forward_arguments* arguments,
                             const lltm_execution* execution) {
  const StepKernels& kernels = cpu_level()->step[dtype];
  const lltm_step_sizes& sizes = arguments->sizes;
  const int64_t units = kernels.forward_units(sizes);
  const int64_t scratch_size = kernels.forward_scratch(sizes);
  std::atomic<bool> out_of_memory{false};
  in_parallel(units, grain(products_of(sizes) / units), *execution,
              [&](int64_t begin, int64_t end) {
                Scratch scratch(scratch_size);
                if (scratch.missing()) return out_of_memory.store(true);
                kernels.forward(*arguments, scratch.data(), begin, end);
              });
  return out_of_memory ? kNoMemory : nullptr;
}

const char* cpu_step_backward(lltm_dtype dtype, int32_t,
                              const lltm_step_backward_arguments* arguments,
                              const lltm_execution* execution) {
  if (arguments->gates == nullptr) return "lltm: the CPU kernels need the gates of forward";
  const StepKernels& kernels = cpu_level()->step[dtype];
  const lltm_step_sizes& sizes = arguments->sizes;
  const bool right = arguments->d_weights != nullptr;
  const bool left = arguments->d_old_h != nullptr || arguments->d_input != nullptr;
  const int64_t right_size = right ? kernels.right_size(sizes) : 0;
  Scratch shared(right_size + (left ? kernels.dz_size(sizes) : 0));
  if (shared.missing()) return kNoMemory;
  const StepShared parts = {left ? shared.data() + right_size : nullptr, shared.data()};

  if (right) {
    const int64_t units = kernels.right_units(sizes);
    in_parallel(units, grain(right_size / units), *execution, [&](int64_t begin, int64_t end) {
      kernels.pack_right(*arguments, shared.data(), begin, end);
    });
  }

  // An element of the pointwise part costs as much as some ten products.
  const int64_t pointwise = 16 * sizes.batch_size * sizes.state_size;
  const int64_t units = kernels.backward_units(sizes);
  const int64_t products = (right ? products_of(sizes) : 0) + pointwise;
  std::atomic<bool> out_of_memory{false};
  in_parallel(units, grain(products / units), *execution, [&](int64_t begin, int64_t end) {
    Scratch own(left ? 0 : kernels.own_dz_size(sizes));
    if (own.missing()) return out_of_memory.store(true);
    kernels.backward(*arguments, parts, own.data(), begin, end);
  });

  const int64_t left_units = left ? kernels.left_units(*arguments) : 0;
  if (left_units > 0 && !out_of_memory) {
    const int64_t grain_size = grain(products_of(sizes) / left_units);
    in_parallel(left_units, grain_size, *execution, [&](int64_t begin, int64_t end) {
      Scratch own(kernels.left_scratch(sizes));
      if (own.missing()) return out_of_memory.store(true);
      kernels.backward_left(*arguments, parts.dz, own.data(), begin, end);
    });
  }
  return out_of_memory ? kNoMemory : nullptr;
}

}  // namespace lltm
