// One LLTM step by cuBLAS, for weights whose rows of K = S + I elements are not aligned to vectors.
// cuBLAS is several times slower on such rows, and a padded copy takes as long as a product.
//
// But every P-th row begins at the same place in a vector, if P = V / gcd(K, V) for vectors of V
// elements. So rows j, j + P, j + 2P, ... are an aligned matrix, plane j, with P K elements between
// its rows. It begins s = K mod V elements early for each row before it, at j (K - s), so that the
// planes are a batch. What lies before a row belongs to the row before, and meets zeros in [h, x]:
// a weight that is not finite makes neighbouring rows NaN, too.
//
// cuBLAS also wants the contiguous sides of matrices to be whole vectors. So forward's products lie
// transposed, (P, 3S / P, B), with B rounded up. The gradients of the weights are written in place:
// plane j begins V - s elements late for each row before it, and its rows end where those of plane
// j + 1 begin. A last product of a few columns makes what lies before.
#include <algorithm>
#include <numeric>
#include <type_traits>

#include "step.h"
#include "step_element.h"
#include "step_launches.h"

namespace lltm {
inline namespace step_planes_cu {

constexpr int kThreads = 256;
constexpr int kTile = 32;  // rows and columns of a tile that a block transposes

// Writes [h, x], its columns moved to the right by `shift` per plane, into planes of gridDim.x
// rows. The other elements become zero.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    join(const T* h, const T* x, T* to, int64_t rows, int64_t state, int64_t inputs, int64_t stride,
         int64_t shift, int64_t planes) {
  const int64_t row = blockIdx.x;
  const int64_t to_column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  if (to_column >= stride) return;
  const T* const h_row = h + row * state;
  const T* const x_row = x + row * inputs - state;
#pragma unroll 4
  for (int64_t plane = 0; plane < planes; ++plane) {
    const int64_t column = to_column - plane * shift;
    const bool inside = row < rows && column >= 0 && column < state + inputs;
    const T* const from = column < state ? h_row : x_row;
    to[(plane * gridDim.x + row) * stride + to_column] = inside ? from[column] : T{};
  }
}

// (rows, lines) becomes (planes, lines / planes, aligned_rows), with zeros for the added rows.
template <typename T>
__global__ void __launch_bounds__(kTile* kTile)
    transpose(const T* from, T* to, unsigned rows, unsigned aligned_rows, unsigned lines,
              unsigned planes) {
  __shared__ T tile[kTile][kTile + 1];
  const unsigned from_row = blockIdx.y * kTile + threadIdx.y;
  const unsigned from_line = blockIdx.x * kTile + threadIdx.x;
  const bool inside = from_row < rows && from_line < lines;
  tile[threadIdx.y][threadIdx.x] = inside ? from[int64_t{from_row} * lines + from_line] : T{};
  __syncthreads();
  const unsigned row = blockIdx.y * kTile + threadIdx.x;
  const unsigned line = blockIdx.x * kTile + threadIdx.y;
  if (row >= aligned_rows || line >= lines) return;
  const int64_t place = line % planes * (lines / planes) + line / planes;
  to[place * aligned_rows + row] = tile[threadIdx.x][threadIdx.y];
}

// The pointwise part of forward, for `products` (planes, 3S / planes, aligned_rows) in float32.
template <typename T>
__global__ void __launch_bounds__(kTile* kTile)
    finish(const lltm_step_forward_arguments arguments, const float* products,
           unsigned aligned_rows, unsigned planes) {
  wait_for_earlier();
  __shared__ float tile[kGateCount][kTile][kTile + 1];
  const auto rows = static_cast<unsigned>(arguments.sizes.batch_size);
  const auto state = static_cast<unsigned>(arguments.sizes.state_size);
  const unsigned from_row = blockIdx.y * kTile + threadIdx.x;
  const unsigned from_column = blockIdx.x * kTile + threadIdx.y;
  if (from_row < rows && from_column < state) {
    const unsigned gate_lines = state / planes;  // in a plane
    const unsigned first = from_column % planes * kGateCount * gate_lines + from_column / planes;
    unrolled<kGateCount>([&](int gate) {
      const int64_t place = first + gate * gate_lines;
      tile[gate][threadIdx.y][threadIdx.x] = products[place * aligned_rows + from_row];
    });
  }
  __syncthreads();
  const unsigned row = blockIdx.y * kTile + threadIdx.y;
  const unsigned column = blockIdx.x * kTile + threadIdx.x;
  if (row >= rows || column >= state) return;
  const T* const bias = static_cast<const T*>(arguments.bias);
  float sums[kGateCount];
  unrolled<kGateCount>([&](int gate) {
    const float addend = bias == nullptr ? 0.0f : widen(bias[gate * state + column]);
    sums[gate] = tile[gate][threadIdx.x][threadIdx.y] + addend;
  });
  const auto old_cell = load_cell<T, 1>(arguments.old_cell, nullptr, int64_t{row} * state + column);
  finish_element<T>(arguments, row, state, column, sums, old_cell.element[0]);
}

// Adds up planes of `aligned_rows` rows, in which the columns of [d_h, d_x] begin `shift` later
// from plane to plane.
template <typename T>
__global__ void __launch_bounds__(kThreads)
    add_up(const float* from, T* d_h, T* d_x, int64_t aligned_rows, int64_t state, int64_t inputs,
           int64_t stride, int64_t shift, int64_t planes) {
  const int64_t row = blockIdx.x;
  const int64_t column = int64_t{blockIdx.y} * kThreads + threadIdx.x;
  const bool is_h = column < state;
  if (column >= state + inputs || (is_h ? d_h : d_x) == nullptr) return;
  float sum = 0.0f;
#pragma unroll 8
  for (int64_t plane = 0; plane < planes; ++plane) {
    sum += from[(plane * aligned_rows + row) * stride + plane * shift + column];
  }
  (is_h ? d_h[row * state + column] : d_x[row * inputs + column - state]) = narrow<T>(sum);
}

// P for rows of `depth` elements.
int64_t plane_count(int64_t depth, int64_t vector) { return vector / std::gcd(depth, vector); }

// A step: its sizes, the layout of its workspace, and its launches.
class PlanesStep : public StepLaunches {
 public:
  int64_t aligned_rows;  // B, rounded up to vectors
  int64_t planes = 1;
  int64_t each;                 // lines of a plane
  int64_t early = 0, late = 0;  // elements between a plane's begin and its row, per plane before
  int64_t width;                // of a plane of the weights: depth + (planes - 1) early
  int64_t stride;               // of `joined`
  // The workspace.
  void* joined = nullptr;    // (planes, aligned_rows, stride)
  void* products = nullptr;  // forward: (planes, each, aligned_rows) in float32
  void* d_z = nullptr;       // backward: (B, 3S)
  void* turned = nullptr;    // d_z as (planes, each, aligned_rows)
  void* sums = nullptr;      // for pointwise_backward
  void* d_joined = nullptr;  // (planes, aligned_rows, width) in float32

  // If `aligned` is false, the weights begin within a vector. Then all rows are one plane, slowly.
  PlanesStep(lltm_dtype dtype, const lltm_step_sizes& sizes, const lltm_execution& execution,
             void* workspace, bool aligned = true)
      : StepLaunches(dtype, sizes, execution, workspace) {
    const int64_t vector = 16 / bytes_;
    const auto whole = [&](int64_t size) { return divide_up(size, vector) * vector; };
    if (aligned) {
      planes = plane_count(depth, vector);
      early = depth % vector;
      late = (vector - early) % vector;
    }
    aligned_rows = whole(rows);
    each = lines / planes;
    width = depth + (planes - 1) * early;
    stride = whole(std::max(width, depth + late));
  }

  // Lay out the workspace for a pass, and return its size in bytes.
  int64_t lay_out_forward() {
    joined = take(planes * aligned_rows * stride);
    products = take_bytes(lines * aligned_rows * 4);
    return taken_;
  }
  int64_t lay_out_backward(const GradientSet& gradients) {
    d_z = take(rows * lines);
    turned = take(lines * aligned_rows);
    if (gradients.bias) sums = take_bytes(pointwise_backward_workspace(dtype_, rows, state));
    if (gradients.old_h || gradients.input)
      d_joined = take_bytes(planes * aligned_rows * width * 4);
    if (gradients.weights) joined = take(planes * aligned_rows * stride);
    return taken_;
  }

  // Launches a kernel of this file: launch(T{}, stream).
  template <typename Launch>
  void launch(const char* kernel, const Launch& launch) {
    run([&] {
      return launch_on(execution_, kernel, dtype_, [&](auto zero, cudaStream_t stream) {
        if constexpr (!std::is_same_v<decltype(zero), double>) launch(zero, stream);
      });
    });
  }
  void join_planes(const void* h, const void* x, int64_t shift) {
    launch("join", [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      join<T><<<grid_of(aligned_rows, divide_up(stride, kThreads)), kThreads, 0, stream>>>(
          static_cast<const T*>(h), static_cast<const T*>(x), static_cast<T*>(joined), rows, state,
          inputs, stride, shift, planes);
    });
  }

  void forward(const lltm_step_forward_arguments& a);
  void backward(const lltm_step_backward_arguments& a);

 private:
  static dim3 tiles(int64_t columns, int64_t rows) {
    return grid_of(divide_up(columns, kTile), divide_up(rows, kTile));
  }
  Matrix weight_planes(const void* weights) const {
    return Matrix{weights, planes * depth}.in_planes(depth - early);
  }
  void weights_gradient(const lltm_step_backward_arguments& a);
};

void PlanesStep::forward(const lltm_step_forward_arguments& a) {
  join_planes(a.old_h, a.input, early);
  const Matrix weights = weight_planes(a.weights);
  const int64_t operand = aligned_rows * stride;
  const int64_t product = each * aligned_rows;
  // cuBLAS has slow kernels for batches of these products in tf32.
  const int64_t at_once = allows_tf32_ ? 1 : planes;
  for (int64_t plane = 0; plane < planes; plane += at_once) {
    Product some;
    some.rows = each;
    some.columns = aligned_rows;
    some.depth = width;
    some.left = Matrix{element(weights.data, plane * weights.plane), weights.stride}.in_planes(
        weights.plane);
    some.right = Matrix{element(joined, plane * operand), stride}.transposed().in_planes(operand);
    some.to =
        Matrix{static_cast<float*>(products) + plane * product, aligned_rows}.in_planes(product);
    some.to_dtype = LLTM_FLOAT32;
    some.planes = at_once;
    multiply(some);
  }
  launch("finish", [&](auto zero, cudaStream_t) {
    launch_early(finish<decltype(zero)>, tiles(state, rows), dim3(kTile, kTile), execution_, a,
                 static_cast<const float*>(products), static_cast<unsigned>(aligned_rows),
                 static_cast<unsigned>(planes));
  });
}

void PlanesStep::backward(const lltm_step_backward_arguments& a) {
  lltm_step_backward_arguments pointwise = a;
  pointwise.d_gates = d_z;
  pointwise.workspace = sums;
  run([&] { return pointwise_backward_to(dtype_, pointwise, lines, {}, execution_); });
  launch("transpose", [&](auto zero, cudaStream_t stream) {
    using T = decltype(zero);
    transpose<T><<<tiles(lines, aligned_rows), dim3(kTile, kTile), 0, stream>>>(
        static_cast<const T*>(d_z), static_cast<T*>(turned), static_cast<unsigned>(rows),
        static_cast<unsigned>(aligned_rows), static_cast<unsigned>(lines),
        static_cast<unsigned>(planes));
  });
  if (a.d_old_h != nullptr || a.d_input != nullptr) {
    Product product;
    product.rows = aligned_rows;
    product.columns = width;
    product.depth = each;
    product.left = Matrix{turned, aligned_rows}.transposed().in_planes(each * aligned_rows);
    product.right = weight_planes(a.weights);
    product.to = Matrix{d_joined, width}.in_planes(aligned_rows * width);
    product.to_dtype = LLTM_FLOAT32;
    product.planes = planes;
    multiply(product);
    launch("add_up", [&](auto zero, cudaStream_t stream) {
      using T = decltype(zero);
      add_up<T><<<grid_of(rows, divide_up(depth, kThreads)), kThreads, 0, stream>>>(
          static_cast<const float*>(d_joined), static_cast<T*>(a.d_old_h),
          static_cast<T*>(a.d_input), aligned_rows, state, inputs, width, early, planes);
    });
  }
  if (a.d_weights != nullptr) weights_gradient(a);
}

void PlanesStep::weights_gradient(const lltm_step_backward_arguments& a) {
  join_planes(a.old_h, a.input, -late);
  const int64_t last = planes - 1;  // its rows end where those of plane 0 begin
  const int64_t between = planes * depth;
  const int64_t columns = depth + late;
  const Matrix d_z_planes = Matrix{turned, aligned_rows}.in_planes(each * aligned_rows);
  const Matrix joined_planes = Matrix{joined, stride}.in_planes(aligned_rows * stride);
  if (last != 0) {
    Product first_planes;
    first_planes.rows = each;
    first_planes.columns = columns;
    first_planes.depth = aligned_rows;
    first_planes.left = d_z_planes;
    first_planes.right = joined_planes;
    first_planes.to = Matrix{a.d_weights, between}.in_planes(columns);
    first_planes.to_dtype = dtype_;
    first_planes.planes = last;
    multiply(first_planes);
  }
  Product last_plane;
  last_plane.rows = each;
  last_plane.columns = depth - last * late;
  last_plane.depth = aligned_rows;
  last_plane.left = {element(d_z_planes.data, last * d_z_planes.plane), d_z_planes.stride};
  last_plane.right = {element(joined_planes.data, last * joined_planes.plane),
                      joined_planes.stride};
  last_plane.to = {element(a.d_weights, last * columns), between};
  last_plane.to_dtype = dtype_;
  multiply(last_plane);
  if (last == 0) return;
  Product before_the_rows;
  before_the_rows.rows = lines;
  before_the_rows.columns = last * late;
  before_the_rows.depth = rows;
  before_the_rows.left = Matrix{d_z, lines}.transposed();
  before_the_rows.right = joined_planes;
  before_the_rows.to = {a.d_weights, depth};
  before_the_rows.to_dtype = dtype_;
  multiply(before_the_rows);
}

}  // namespace step_planes_cu

bool can_take_planes(lltm_dtype dtype, const lltm_step_sizes& sizes,
                     const lltm_execution& execution) {
  const int64_t bytes = lltm_dtype_bytes(dtype);
  constexpr int64_t kLeastDepth = 64;  // more than the elements before a row of any plane
  constexpr int64_t kMost = 1 << 20;   // rows, columns; the kernels count in 32 bits
  const int64_t depth = sizes.weight_stride;
  const bool tensor_cores = bytes == 2 || (dtype == LLTM_FLOAT32 && sizes.allow_tf32 != 0);
  return tensor_cores && can_multiply(execution) && sizes.input_size != 0 &&
         depth == sizes.state_size + sizes.input_size && depth >= kLeastDepth && depth <= kMost &&
         sizes.batch_size <= kMost && sizes.state_size % plane_count(depth, 16 / bytes) == 0;
}

int64_t planes_step_workspace(lltm_dtype dtype, lltm_pass pass, int32_t needs,
                              const lltm_step_sizes& sizes, const lltm_execution& execution) {
  return workspace_of(PlanesStep(dtype, sizes, execution, nullptr), pass, needs);
}

const char* planes_step_forward(lltm_dtype dtype, const lltm_step_forward_arguments& a,
                                const lltm_execution& execution) {
  PlanesStep step(dtype, a.sizes, execution, a.workspace, aligned_for_vectors(a.weights));
  step.lay_out_forward();
  step.forward(a);
  return step.error();
}

const char* planes_step_backward(lltm_dtype dtype, const lltm_step_backward_arguments& a,
                                 const lltm_execution& execution) {
  PlanesStep step(dtype, a.sizes, execution, a.workspace,
                  aligned_for_vectors(a.weights, a.d_weights));
  step.lay_out_backward(GradientSet::of_arguments(a));
  step.backward(a);
  return step.error();
}

}  // namespace lltm
