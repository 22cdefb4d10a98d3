// The place of a block of the family `grid`, and its shared memory.
#pragma once

#include "layer_grid_pieces.h"

namespace lltm {

template <typename Engine>
struct GridShared {
  static constexpr int kRows = Engine::kTiles * kTileRows;  // per chunk
  static constexpr int kPartial = Engine::kGates * kRows * kUnitPitch;
  float* partials;  // [2][kWarps][gates][kRows][kUnitPitch]
  float* stage;     // [kWarps][Engine::kStageFloats]
  float* carried;   // [slice][kUnits]: cells in forward, their gradients in backward

  __host__ __device__ static int64_t bytes(int64_t slice) {
    return (2 * kWarps * kPartial + slice * kUnits + kWarps * Engine::kStageFloats) * 4;
  }
  LLTM_DEVICE GridShared(float* memory, int slice)
      : partials(memory),
        stage(memory + 2 * kWarps * kPartial),
        carried(stage + kWarps * Engine::kStageFloats) {}
};

// The position of a kernel in its loop over steps and, within a step, over chunks.
struct GridPosition {
  int step = 0;
  int chunk = 0;
  int chunks;

  LLTM_DEVICE bool wraps() const { return chunk + 1 == chunks; }
  LLTM_DEVICE void advance() {
    step += wraps() ? 1 : 0;
    chunk = wraps() ? 0 : chunk + 1;
  }
};

// Elements from one chunk to the next; see Walk.
struct GridStride {
  int64_t chunk;
  int64_t wrap;  // from a step's last chunk to the next step's first

  LLTM_DEVICE GridStride(int64_t step_stride, int64_t chunk_stride, int chunks)
      : chunk(chunk_stride), wrap(step_stride - (chunks - 1) * chunk_stride) {}
  LLTM_DEVICE int64_t from(const GridPosition& at) const { return at.wraps() ? wrap : chunk; }
};

// The place of a block, for both roles and both directions.
template <typename Engine, bool backward>
struct GridPlace {
  static constexpr int kRows = GridShared<Engine>::kRows;
  int state;
  int first_unit;
  int64_t first_row;
  int rows;
  int steps;
  int chunks;
  int64_t plane;
  Walk walk;
  GridStride state_stride;  // of tensors (T, B, S)
  GridStride gate_stride;   // of tensors (T, B, 3, S)

  LLTM_DEVICE GridPlace(const lltm_layer_sizes& sizes, int slice)
      : state(static_cast<int>(sizes.state_size)),
        first_unit(static_cast<int>(blockIdx.x) * kUnits),
        first_row(int64_t{blockIdx.y} * slice),
        rows(static_cast<int>(min(int64_t{slice}, sizes.batch_size - first_row))),
        steps(static_cast<int>(sizes.steps)),
        chunks(Engine::kOneChunk ? 1 : (rows + kRows - 1) / kRows),
        plane(sizes.batch_size * state),
        walk(backward ? Walk::backward(sizes) : Walk::forward(sizes)),
        state_stride(walk.stride * plane, int64_t{kRows} * state, chunks),
        gate_stride(kGateCount * walk.stride * plane, int64_t{kRows} * kGateCount * state, chunks) {
  }

  LLTM_DEVICE GridPosition start(int step) const {
    GridPosition at;
    at.step = step;
    at.chunks = chunks;
    return at;
  }
};

}  // namespace lltm
