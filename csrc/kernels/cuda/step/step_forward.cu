// One whole LLTM step forward, by cuBLAS or in one launch: products, bias, activations.
#include <type_traits>

#include "../common/launch.h"
#include "step.h"
#include "step_element.h"
#include "step_tile.h"

namespace lltm {
inline namespace step_forward_cu {

template <typename Tile>
__global__ void __launch_bounds__(Tile::kThreads)
    forward_step(const lltm_step_forward_arguments arguments) {
  using T = typename Tile::T;
  using C = typename Tile::C;
  __shared__ typename Tile::Shared shared;
  const int64_t batch_size = arguments.sizes.batch_size;
  const int64_t state_size = arguments.sizes.state_size;
  const int64_t first_row = int64_t{blockIdx.x} * Tile::kRows;
  const int64_t first_column = int64_t{blockIdx.y} * Tile::kColumns;
  const T* const bias = static_cast<const T*>(arguments.bias);
  const T* const gates = static_cast<const T*>(arguments.gates);

  // Loads the activations' other operands while the products are computed.
  constexpr int kElements = Tile::kRows * Tile::kColumns;
  constexpr int kItems = (kElements + Tile::kThreads - 1) / Tile::kThreads;
  C addends[kItems][Tile::kGates] = {};
  C cells[kItems] = {};
  const auto for_elements = [&](auto action) {
    unrolled<kItems>([&](int item) {
      const int index = static_cast<int>(threadIdx.x) + item * Tile::kThreads;
      const int row = index / Tile::kColumns;
      const int column = index % Tile::kColumns;
      if (index < kElements && first_row + row < batch_size && first_column + column < state_size) {
        action(item, row, column);
      }
    });
  };
  for_elements([&](int item, int tile_row, int tile_column) {
    const int64_t row = first_row + tile_row;
    const int64_t column = first_column + tile_column;
    unrolled<Tile::kGates>([&](int gate) {
      if (bias != nullptr) addends[item][gate] = widen(bias[gate * state_size + column]);
      if (arguments.gates_hold_addend != 0) {
        addends[item][gate] += widen(gates[(row * Tile::kGates + gate) * state_size + column]);
      }
    });
    const int64_t element = row * state_size + column;
    cells[item] =
        load_cell<T, 1>(arguments.old_cell, arguments.running.old_cell, element).element[0];
  });
  Tile::multiply(StepOperands<T>(arguments), first_row, first_column, shared);
  for_elements([&](int item, int tile_row, int tile_column) {
    const int64_t row = first_row + tile_row;
    const int64_t column = first_column + tile_column;
    C sums[Tile::kGates];
    unrolled<Tile::kGates>([&](int gate) {
      sums[gate] = Tile::total(shared, gate, tile_row, tile_column) + addends[item][gate];
    });
    finish_element<T>(arguments, row, state_size, column, sums, cells[item]);
  });
}

template <typename Tile>
void launch(const lltm_step_forward_arguments& arguments, cudaStream_t stream) {
  // The grid's x counts tiles of rows, so that blocks that run together read the same weights.
  const dim3 grid = grid_of(divide_up(arguments.sizes.batch_size, Tile::kRows),
                            divide_up(arguments.sizes.state_size, Tile::kColumns));
  forward_step<Tile><<<grid, Tile::kThreads, 0, stream>>>(arguments);
}

// Returns a family's launch. For unaligned rows, kRows64 uses Rows16Tile.
template <typename T>
auto launch_of(int32_t family, const StepOperands<T>& operands) {
  constexpr int n = kVectorSize<T>;
  const bool vectors = operands.aligned_to(n);
  if constexpr (!std::is_same_v<T, double>) {
    if (family == kTensor) {
      constexpr int kWord = kWordElements<T>;
      const bool words = operands.aligned_to(kWord);
      return vectors                                    ? launch<TensorTile<T, n>>
             : words && operands.batch_size <= kFewRows ? launch<FewRowsTensorTile<T>>
             : words                                    ? launch<TensorTile<T, kWord>>
                                                        : launch<TensorTile<T, 1>>;
    }
  }
  if (!vectors) return family == kRows4 ? launch<Rows4Tile<T, 1>> : launch<Rows16Tile<T, 1>>;
  return family == kRows4    ? launch<Rows4Tile<T, n>>
         : family == kRows64 ? launch<Rows64Tile<T>>
                             : launch<Rows16Tile<T, n>>;
}

}  // namespace step_forward_cu

bool runs_tensor_step(lltm_dtype dtype, const lltm_execution& execution) {
  const auto kernel =
      reinterpret_cast<const void*>(forward_step<TensorTile<bfloat16, kVectorSize<bfloat16>>>);
  return dtype != LLTM_FLOAT64 && compiled_for(kernel, 80, execution.device_index);
}

const char* cuda_step_forward(lltm_dtype dtype, int32_t family,
                              const lltm_step_forward_arguments* arguments,
                              const lltm_execution* execution) {
  if (family == kCublas) return cublas_step_forward(dtype, *arguments, *execution);
  if (family == kPlanes) return planes_step_forward(dtype, *arguments, *execution);
  return launch_on(*execution, "step_forward", dtype, [&](auto zero, cudaStream_t stream) {
    using T = decltype(zero);
    launch_of(family, StepOperands<T>(*arguments))(*arguments, stream);
  });
}

}  // namespace lltm
