// SPDX-License-Identifier: Apache-2.0
// What the products of AMX share: the shapes of their tiles, and how functions use them.
//
// For the .cc files of backends/cpu alone. Only functions that are marked VOXCONV_AMX_TARGET use
// the instructions, and HasAmxProducts() (amx_gemm.h) must hold before one is called.
#ifndef VOXCONV_BACKENDS_CPU_AMX_TILES_H_
#define VOXCONV_BACKENDS_CPU_AMX_TILES_H_

#include <cstdint>

#if defined(__x86_64__) && defined(__linux__)
#include <immintrin.h>
#define VOXCONV_HAVE_AMX 1
#else
#define VOXCONV_HAVE_AMX 0
#endif

namespace voxconv::amx {

constexpr int64_t kTileRows = 16;
constexpr int64_t kTileChannels = 32;  // of the inputs; a tile of weights has as many rows
constexpr int64_t kTileColumns = 16;   // of the weights and of the sums
constexpr int64_t kTileBytes = 64;     // of a row of each
constexpr int64_t kBlockRows = 2 * kTileRows;
constexpr int64_t kBlockColumns = 2 * kTileColumns;

#if VOXCONV_HAVE_AMX

#define VOXCONV_AMX_TARGET __attribute__((target("amx-tile,amx-bf16,avx512f,avx512bw,avx512vl")))
// For functions that run between products of tiles. They must be inlined there.
#define VOXCONV_AMX_INLINE VOXCONV_AMX_TARGET __attribute__((always_inline)) inline

// The shapes of the eight tiles: all have 16 rows of 64 bytes. 0 to 3 hold sums, 4 and 5 inputs, 6
// and 7 weights.
struct alignas(64) TileConfig {
  uint8_t palette = 1;
  uint8_t start_row = 0;
  uint8_t reserved[14] = {};
  uint16_t row_bytes[16] = {64, 64, 64, 64, 64, 64, 64, 64};
  uint8_t rows[16] = {16, 16, 16, 16, 16, 16, 16, 16};
};
static_assert(sizeof(TileConfig) == 64);
// In memory as a whole: GCC 12 believes that its first bytes alone are read.
inline constexpr TileConfig kTileConfig;

// The calling thread's tiles, for as long as it lives.
class Tiles {
 public:
  VOXCONV_AMX_TARGET Tiles() { _tile_loadconfig(&kTileConfig); }
  VOXCONV_AMX_TARGET ~Tiles() { _tile_release(); }
  Tiles(const Tiles&) = delete;
  Tiles& operator=(const Tiles&) = delete;
};

// Sets the tiles of sums to zero.
VOXCONV_AMX_INLINE void ClearSums() {
  _tile_zero(0);
  _tile_zero(1);
  _tile_zero(2);
  _tile_zero(3);
}

// Stores the sums of one or two tiles of rows and of columns to `products`, [kBlockRows,
// kBlockColumns].
template <int kRowTiles, int kColumnTiles>
VOXCONV_AMX_INLINE void StoreSums(float* products) {
  constexpr int64_t kRowBytes = kBlockColumns * sizeof(float);
  _tile_stored(0, products, kRowBytes);
  if constexpr (kColumnTiles == 2) _tile_stored(1, products + kTileColumns, kRowBytes);
  if constexpr (kRowTiles == 2) {
    float* const lower = products + kTileRows * kBlockColumns;
    _tile_stored(2, lower, kRowBytes);
    if constexpr (kColumnTiles == 2) _tile_stored(3, lower + kTileColumns, kRowBytes);
  }
}

// GCC 12 does not know that a tile is loaded from memory. What was stored before this is there.
inline void LetTilesReadMemory() { __asm__ volatile("" ::: "memory"); }

#endif  // VOXCONV_HAVE_AMX

}  // namespace voxconv::amx

#endif  // VOXCONV_BACKENDS_CPU_AMX_TILES_H_
