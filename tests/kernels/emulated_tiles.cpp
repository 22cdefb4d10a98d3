// pair_tiles.h with AMX's instructions emulated: its products against float64. An instruction that
// the processor would refuse ends the program. The operands are as long as they must be, so that
// AddressSanitizer finds what reads past them.
#include <cmath>
#include <cstdint>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace {

uint8_t tiles[8][16][64], tile_rows[8];
uint16_t tile_bytes[8];

void require(bool holds, const char* what) {
  if (holds) return;
  std::printf("refused: %s\n", what);
  std::exit(1);
}

void _tile_loadconfig(const void* config) {
  const auto* const bytes = static_cast<const uint8_t*>(config);
  require(bytes[0] == 1 && bytes[1] == 0, "palette");
  std::memcpy(tile_bytes, bytes + 16, sizeof(tile_bytes));
  std::memcpy(tile_rows, bytes + 48, sizeof(tile_rows));
  for (int byte = 2; byte < 64; ++byte) {
    const bool is_used = (byte >= 16 && byte < 32) || (byte >= 48 && byte < 56);
    require(is_used || bytes[byte] == 0, "a reserved byte");
  }
  for (int tile = 0; tile < 8; ++tile) {
    require(tile_rows[tile] <= 16 && tile_bytes[tile] <= 64, "size");
    require((tile_rows[tile] == 0) == (tile_bytes[tile] == 0), "half a shape");
  }
}

void _tile_release() { std::memset(tile_rows, 0, sizeof(tile_rows)); }
void _tile_zero(int tile) { std::memset(tiles[tile], 0, sizeof(tiles[tile])); }

void _tile_loadd(int tile, const void* from, int64_t stride) {
  require(tile_rows[tile] > 0, "a tile without a shape");
  _tile_zero(tile);
  for (int row = 0; row < tile_rows[tile]; ++row) {
    std::memcpy(tiles[tile][row], static_cast<const char*>(from) + row * stride, tile_bytes[tile]);
  }
}

void _tile_stored(int tile, void* to, int64_t stride) {
  for (int row = 0; row < tile_rows[tile]; ++row) {
    std::memcpy(static_cast<char*>(to) + row * stride, tiles[tile][row], tile_bytes[tile]);
  }
}

float float_at(const uint8_t* bytes) {  // of a bfloat16
  uint32_t bits = static_cast<uint32_t>(bytes[0]) << 16 | static_cast<uint32_t>(bytes[1]) << 24;
  float value;
  std::memcpy(&value, &bits, sizeof(value));
  return value;
}

void _tile_dpbf16ps(int to, int a, int b) {
  require(tile_bytes[a] == 4 * tile_rows[b], "depth");
  require(tile_rows[to] == tile_rows[a] && tile_bytes[to] == tile_bytes[b], "shape of the sums");
  for (int row = 0; row < tile_rows[to]; ++row) {
    for (int byte = 0; byte < tile_bytes[to]; byte += 4) {
      float sum;
      std::memcpy(&sum, tiles[to][row] + byte, sizeof(sum));
      for (int k = 0; k < 2 * tile_rows[b]; ++k) {
        sum += float_at(tiles[a][row] + 2 * k) * float_at(tiles[b][k / 2] + byte + k % 2 * 2);
      }
      std::memcpy(tiles[to][row] + byte, &sum, sizeof(sum));
    }
  }
}

}  // namespace

namespace lltm {
struct bfloat16 {
  uint8_t bytes[2];
};
}  // namespace lltm
#define LLTM_LEVEL emulated
#define LLTM_INLINE inline
#include "pair_tiles.h"

int main() {
  using lltm::bfloat16;
  using lltm::emulated::PairTiles;
  std::mt19937 random(0);
  const auto some = [&](size_t count) {
    std::vector<bfloat16> values(count);
    for (bfloat16& value : values) {
      const float number = static_cast<float>(random() % 2001) / 1000.0f - 1.0f;
      std::memcpy(&value, reinterpret_cast<const char*>(&number) + 2, sizeof(value));
    }
    return values;
  };
  for (int rows = 1; rows <= PairTiles::kRows; ++rows) {
    for (const int pairs : {0, 1, 2, 15, 16, 17, 31, 32, 33, 85, 91}) {
      const int stride = 2 * pairs + 6;
      const auto a = some(static_cast<size_t>((rows - 1) * stride + 2 * pairs));
      const auto b = some(static_cast<size_t>(pairs * 96));
      float products[PairTiles::kRows][48];
      PairTiles(rows, pairs)
          .multiply(a.data(), stride, reinterpret_cast<const float*>(b.data()), products[0]);
      for (int row = 0; row < rows; ++row) {
        for (int column = 0; column < 48; ++column) {
          double want = 0;
          for (int k = 0; k < 2 * pairs; ++k) {
            want += static_cast<double>(float_at(a[row * stride + k].bytes)) *
                    float_at(b[k / 2 * 96 + 2 * column + k % 2].bytes);
          }
          require(std::abs(products[row][column] - want) < 1e-4, "a wrong product");
        }
      }
    }
  }
  std::puts("right");
}
