// Whole steps on the CPU: which of them run here, memory, and threads.
#include "step.h"

#include <atomic>
#include <cstdlib>
#include <cstring>

#include "levels.h"

namespace lltm {
namespace {

// Multiplications a thread must have before another thread is worth waking: some 10 us.
constexpr int64_t kProductsPerThread = int64_t{1} << 20;

constexpr const char* kUnknownProducts =
    "lltm: LLTM_CPU_PRODUCTS must be own or torch: which matrix products a step on the CPU takes; "
    "set it to one of them, or unset it";
constexpr const char* kNoMemory = "lltm: no memory for the CPU kernels' workspace";

// Little memory comes from the stack: what a small step would spend on malloc is a tenth of it.
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

int64_t at_least_one(int64_t value) { return value > 0 ? value : 1; }

// Multiplications of one product with all of `weights`.
int64_t products_of(const lltm_step_sizes& sizes) {
  return sizes.batch_size * 3 * sizes.state_size * (sizes.state_size + sizes.input_size);
}

int64_t grain(int64_t products_per_unit) {
  return at_least_one(kProductsPerThread / at_least_one(products_per_unit));
}

// Calls `work(first, last)` on disjoint ranges that cover [0, units); false when one of them had no
// memory.
template <typename Work>
bool in_parallel(int64_t units, int64_t grain_size, const lltm_execution& execution,
                 const Work& work) {
  struct Context {
    const Work* work;
    std::atomic<bool> done;
  } context{&work, {true}};
  const auto range = [](int64_t begin, int64_t end, void* opaque) {
    auto& local = *static_cast<Context*>(opaque);
    if (!(*local.work)(begin, end)) local.done.store(false, std::memory_order_relaxed);
  };
  if (units <= grain_size) {
    range(0, units, &context);
  } else {
    execution.parallel_for(0, units, grain_size, range, &context);
  }
  return context.done.load(std::memory_order_relaxed);
}

// Which products: -1 as is quickest, 0 torch's, 1 ours, 2 the variable names none.
int forced_products() {
  static const int forced = [] {
    const char* wanted = std::getenv("LLTM_CPU_PRODUCTS");
    if (wanted == nullptr || *wanted == '\0') return -1;
    if (std::strcmp(wanted, "torch") == 0) return 0;
    return std::strcmp(wanted, "own") == 0 ? 1 : 2;
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

// Up to how many products ours are the quicker ones: measured, see benchmarks/NOTES.md. A rule, not
// a trial, so that a machine computes the same every time.
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
      // Torch's library knows Intel's processors; others get half of what they can do from it.
      static const double most = is_intel() ? 64e6 : kAny;
      return most;
    }
  }
}

// Beyond it, one running sum over the batch would lose digits; torch's products sum in blocks.
constexpr int64_t kMostSummed = 32768;

}  // namespace

const char* cpu_step_plan(lltm_dtype dtype, int32_t needs, const lltm_step_sizes* sizes,
                          const lltm_execution*, lltm_step_plan* plan) {
  const Level* level = cpu_level();
  if (level == nullptr) return kUnknownLevel;
  const int forced = forced_products();
  if (forced == 2) return kUnknownProducts;
  plan->workspace_bytes = 0;
  if (sizes->batch_size == 0 || sizes->state_size == 0) {
    plan->family = 0;
  } else if (forced >= 0) {
    plan->family = forced;
  } else {
    const bool summed = needs >= 0 && sizes->batch_size > kMostSummed;
    const bool quicker = static_cast<double>(products_of(*sizes)) <= most_products(dtype);
    plan->family = quicker && !summed ? 1 : 0;
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
  const int64_t grain_size = grain(products_of(sizes) / units);
  const bool done = in_parallel(units, grain_size, *execution, [&](int64_t begin, int64_t end) {
    Scratch scratch(scratch_size);
    if (scratch.missing()) return false;
    kernels.forward(*arguments, scratch.data(), begin, end);
    return true;
  });
  return done ? nullptr : kNoMemory;
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
      return true;
    });
  }

  // An element of the pointwise part costs as much as some ten products.
  const int64_t pointwise = 16 * sizes.batch_size * sizes.state_size;
  const int64_t units = kernels.backward_units(sizes);
  const int64_t products = (right ? products_of(sizes) : 0) + pointwise;
  bool done =
      in_parallel(units, grain(products / units), *execution, [&](int64_t begin, int64_t end) {
        Scratch own(left ? 0 : kernels.own_dz_size(sizes));
        if (own.missing()) return false;
        kernels.backward(*arguments, parts, own.data(), begin, end);
        return true;
      });

  const int64_t left_units = left ? kernels.left_units(*arguments) : 0;
  if (left_units > 0 && done) {
    const int64_t grain_size = grain(products_of(sizes) / left_units);
    done = in_parallel(left_units, grain_size, *execution, [&](int64_t begin, int64_t end) {
      Scratch own(kernels.left_scratch(sizes));
      if (own.missing()) return false;
      kernels.backward_left(*arguments, parts.dz, own.data(), begin, end);
      return true;
    });
  }
  return done ? nullptr : kNoMemory;
}

}  // namespace lltm
