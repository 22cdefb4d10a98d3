// Every measured bound of the CUDA kernels' plans, in one table: from which size on one way to run
// a problem is quicker than another. They were measured on an H200 and an H100. README.md in the
// folder above says which family a row chooses, and what it gains.
#pragma once

#include <cmath>
#include <cstdint>

#include "../../lltm_kernels.h"

namespace lltm {

// How a device multiplies: this decides its speed more than the dtype does.
enum class Arithmetic { kExact, kTf32, kHalf, kDouble };

inline Arithmetic arithmetic_of(lltm_dtype dtype, bool allows_tf32) {
  if (dtype == LLTM_FLOAT64) return Arithmetic::kDouble;
  if (dtype != LLTM_FLOAT32) return Arithmetic::kHalf;
  return allows_tf32 ? Arithmetic::kTf32 : Arithmetic::kExact;
}

// A row of the table. A column that no plan reads is 0.
template <typename Number>
struct ByArithmetic {
  Number exact;  // float32, without tensor cores
  Number tf32;   // float32 that tensor cores may round
  Number half;   // float16 and bfloat16
  Number wide;   // float64

  constexpr Number of(Arithmetic arithmetic) const {
    return arithmetic == Arithmetic::kExact  ? exact
           : arithmetic == Arithmetic::kTf32 ? tf32
           : arithmetic == Arithmetic::kHalf ? half
                                             : wide;
  }
};

namespace bounds {

using Count = ByArithmetic<int64_t>;
using Real = ByArithmetic<double>;
constexpr int64_t kMillion = 1'000'000;
constexpr double kNever = HUGE_VAL;

// clang-format off

// ---- A whole step by our own kernels, up to so many multiplications (3 B S (S + I)) ----
//                                          exact           tf32            half            float64
// Forward. Above, cuBLAS is quicker, or tensor cores are.
constexpr Count kForwardWork          = {320 * kMillion,   64 * kMillion,  64 * kMillion,  64 * kMillion};
// Forward of up to kFewForwardRows rows: a float32 GEMM without tensor cores is slow for few rows.
constexpr Count kForwardWorkOfFewRows = {1'100 * kMillion, 64 * kMillion,  64 * kMillion,  64 * kMillion};
// Backward without d_input and d_old_h, which takes one launch.
constexpr Count kBackwardWork         = {80 * kMillion,    80 * kMillion,  64 * kMillion,  64 * kMillion};
// Backward with d_input or d_old_h, in a sequence: the host is ahead, so launches cost less.
constexpr Count kBackwardWorkInLoop   = {32 * kMillion,    32 * kMillion,  16 * kMillion,  16 * kMillion};
// The same in a single step, for which cuBLAS takes up to five launches.
constexpr Count kBackwardWorkOfStep   = {64 * kMillion,    64 * kMillion,  32 * kMillion,  32 * kMillion};
// Up to so much work, it does not matter whether tf32 is allowed. Above, a sequence takes the GEMM.
constexpr int64_t kTf32LeastWork = 8 * kMillion;
// Backward of one row in a sequence: above, cuBLAS reads the weights quicker.
constexpr int64_t kBackwardWorkOfOneRow = 3 * kMillion;

// ---- Rows of the batch that choose a kernel of a step ----
constexpr int64_t kMostRowsOfRows4 = 4;      // the time of a step is that of reading the weights
constexpr int64_t kMostRowsOfRows4Tile = 8;  // unaligned operands: two tiles of 4 beat one of 16
constexpr int64_t kFewForwardRows = 16;      // see kForwardWorkOfFewRows
constexpr int64_t kMostRowsOfRows16 = 32;    // above, a tile of 64 rows reads the weights less often
constexpr int64_t kMostOutputsOfRows16 = 16'384;  // B S; above, there are enough tiles of 64 rows
constexpr int64_t kMostBackwardRows = 256;   // our backward reads every row for a few columns
constexpr int64_t kMostRowsOfBackward4 = 32; // above, a block of d_gates W takes 8 rows, not 4
// A sequence of two to four rows: up to this state, our kernel's one launch beats the GEMM.
constexpr int64_t kRows4MostStateInLoop = 2'048;

// ---- A step by cuBLAS in planes, from so many megabytes of weights on ----
//                                                exact   tf32    half    float64
constexpr Real kPlanesForwardMegabytes         = {kNever,   64,     16,   kNever};
// Rows of an odd number of elements: in tf32 each of four planes is a launch.
constexpr Real kPlanesForwardMegabytesOfOdd    = {kNever,  128,     16,   kNever};
// Up to kMostRowsOfRows4 rows, our own kernel is one launch.
constexpr Real kPlanesForwardMegabytesOfFewRows = {kNever, kNever,  50,   kNever};
constexpr Real kPlanesBackwardMegabytes        = {kNever,   32,     32,   kNever};
// Rows per megabyte, at most: the planes' other kernels cost more with every row.
constexpr Real kPlanesRowsPerMegabyte          = {0,         2,      6,   0};

// clang-format on

// ---- A step by cuBLAS on padded copies, if rows are not aligned: from so many rows on ----
// The copy of the weights costs more the larger they are.
struct Padding {
  double rows_per_megabyte;  // of weights
  double least_rows;
  double most_rows;
};
constexpr Padding kPadsPairs = {1.0, 2.0, 128.0};  // 16 bits, S and I even: cuBLAS reads pairs
constexpr Padding kPadsSingle = {0.0, 2.0, 2.0};   // 16 bits, odd: cuBLAS reads single elements
constexpr Padding kPadsTf32 = {2.4, 8.0, 192.0};   // exact float32 and float64 are never padded

// ---- Backward by cuBLAS: one GEMM over [h, x] instead of two ----
// It saves a launch, but its operand or its result is copied. It is quicker up to so many
// multiplications, or if neither I nor S is much larger than the other.
constexpr ByArithmetic<double> kJoinedWork = {1.2e9, 1.2e9, 6e9, 1.2e9};
constexpr int64_t kJoinedInputsPerState = 4;
constexpr int64_t kJoinedStatePerInputs = 5;

// ---- split_k of a plan: parts of the depth of d_z W_h in a sequence ----
constexpr int64_t kSplitLeastState = 512;
constexpr int64_t kSplitMostOutputs = 1 << 19;  // B S; above, planes cost more than they save
struct Split {
  int32_t parts;
  int64_t least_rows;
  int64_t most_state;
  int64_t aligned_state;  // the state must be a multiple
};
constexpr Split kSplitHalf = {4, 16, kSplitMostOutputs, 32};  // a quarter of 3S: whole vectors
constexpr Split kSplitTf32 = {3, 192, 2'048, 1};              // one part per gate
static_assert(kSplitHalf.parts <= LLTM_MOST_SPLIT_K && kSplitTf32.parts <= LLTM_MOST_SPLIT_K);

// ---- A layer: by a family, or step by step (gemm) ----

// clang-format off
//                                  exact     tf32      half    float64
// `grid`: rows of a slice times S, at most. Above, a step of the loop is quicker.
constexpr Count kGridForward    = {32'768,   98'304,  131'072,    0};
constexpr Count kGridBackward   = {24'576,   65'536,   65'536,    0};
// `grid` with streamed weights: so many chunks of rows, at most. Each chunk reads the weights again.
constexpr Count kGridChunks     = {     3,        3,        2,    0};
// The same if the weights do not fit into L2.
constexpr Count kGridChunksBeyondL2 = { 2,        1,        1,    0};
// The same, forward, for states up to kGridSmallState and up to kFewSteps steps: the host is late.
constexpr Count kGridChunksOfFewSteps = {3,       4,        2,    0};
// clang-format on
constexpr int64_t kGridSmallState = 1'280;
constexpr int64_t kGridLeastSteps = 4;      // streamed: the copy of the weights takes such a time
constexpr double kGridKeptShareOfL2 = 0.6;  // the quickest of 0.4, 0.6, 0.8 and 1 on an H100
constexpr int64_t kRegistersQuickerState = 64;  // up to it, one multiprocessor beats a cluster
// In a sequence of so few steps, copies of the weights take longer than they save, and the loop
// waits for the host, which is not ahead of the device yet.
constexpr int64_t kFewSteps = 16;
// `registers` and `cluster` need no padding: it speeds up only the products over all steps, from so
// many multiplications on.
constexpr double kPaddedWork = 1e9;

}  // namespace bounds

// The costs of the parts of a forward step on a GPU, in microseconds. The values below are an
// H200's for float32; the constructor changes some of them. benchmarks/constants.py
// measured them at commit a32da095. On an H200, the model gave 0.79 to 1.19 of the measured time
// for 80 % of drawn steps by our own kernels, and 0.69 to 1.22 by cuBLAS.
struct ForwardCosts {
  double launch = 3;
  double rows_depth = 0.0085;   // per element of the depth, without tensor cores
  double rows_work = 0.19;      // per million multiplications
  double rows4_depth = 0.0025;  // like rows_depth, in tiles of four rows
  double rows4_work = 0.31;
  double tensor_slice = 0.85;         // per 128 bytes of the depth, by tensor cores
  double tensor_block = 0.0038;       // per slice and block
  double cublas = 8;                  // the three launches of a step by cuBLAS
  double cublas_work = 0.1;           // per million multiplications
  double cublas_megabyte = 0.7;       // per megabyte of weights
  double more_launches = 36;          // the host's time for cuBLAS and two additional launches
  double more_launches_in_loop = 12;  // likewise in a sequence, where the host is often ahead
  double whole_step_error = 1.2;      // a whole step may take so much longer than its estimate

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

}  // namespace lltm
