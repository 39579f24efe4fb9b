// SPDX-License-Identifier: Apache-2.0
#include <algorithm>

#include "absl/strings/string_view.h"
#include "voxconv/core/integer.h"
#include "voxconv/dataflows/implicit_gemm/block_shape.h"
#include "voxconv/dataflows/implicit_gemm/implicit_gemm_kernels.h"

namespace voxconv {
namespace {

constexpr int64_t kVectorBytes = 16;
constexpr int kFmaTile = 64;
constexpr int kWarpRows = 16;
constexpr int kWarpgroupRows = 64;
// Parts that the offsets of a tile are shared out to, at most: each costs a pass over the output.
constexpr int kMaxParts = 8;

// Channels of a row of whole vectors.
int64_t WholeVectors(int64_t channels, int64_t size) {
  return CeilDiv(channels * size, kVectorBytes) * kVectorBytes / size;
}

// Bytes of an input row as the warp kernel takes it; 0 where it is too long.
int64_t WarpRowBytes(int64_t bytes) {
  for (const int64_t length : {8, 16, 32, 64, 128}) {
    if (bytes <= length) return length;
  }
  return 0;
}

// Output channels as the warp kernel takes them at once.
int64_t WarpChannels(int64_t c_out) { return c_out <= 16 ? 16 : (c_out <= 32 ? 32 : 64); }

// Whether the warp kernel, if it can run the shape, is the fastest: where its products, padding
// included, are few, and where it does not copy an input that the others read in place.
bool PreferWarp(int64_t size, int64_t c_in, int64_t c_out) {
  // Where all kernels need a copy, longer rows are no faster here.
  constexpr int64_t kCopiedRowBytes = 64;
  const int64_t row_bytes = WarpRowBytes(c_in * size);
  if (c_out > 64 || row_bytes / size * WarpChannels(c_out) >= 64 * 64) return false;
  return row_bytes == c_in * size ||
         (WholeVectors(c_in, size) != c_in && row_bytes <= kCopiedRowBytes);
}

// Fills in `tile` if the warp kernel can run the shape.
bool ChooseWarp(const ImplicitGemmChoice& choice, int64_t size, int64_t c_in, int64_t c_out,
                const ImplicitGemmDevice& device, ImplicitGemmTile& tile) {
  const int64_t row_bytes = WarpRowBytes(c_in * size);
  const int64_t channels = WarpChannels(c_out);
  if (row_bytes == 0) return false;
  // Four offsets at a time where a row is one vector.
  const int64_t offsets =
      row_bytes <= kVectorBytes ? CeilDiv(choice.num_offsets, 4) * 4 : choice.num_offsets;
  if (offsets * row_bytes * channels > device.shared_memory) return false;
  tile = {.kernel = ImplicitGemmKernel::kWarp,
          .rows = kWarpRows,
          .channels = static_cast<int>(channels),
          .skip_rows = kWarpRows,
          .padded_c_in = row_bytes / size};
  return true;
}

// The widest tile of the block kernel. Only the warpgroup kernel has wider ones.
constexpr int kMaxBlockChannels = 128;

int TileChannels(int64_t asked, int64_t c_out) {
  const int64_t wanted = asked > 0 ? asked : std::min<int64_t>(c_out, kMaxBlockChannels);
  for (const int channels : {32, 64, 96, 128}) {
    if (wanted <= channels) return channels;
  }
  return 256;
}

// Rows of the block kernel's tile of `channels` channels, of which there are `tiles_n` side by
// side.
int BlockRows(const ImplicitGemmChoice& choice, int channels, int64_t tiles_n,
              const ImplicitGemmDevice& device) {
  int rows = 128;
  if (choice.tile == 0) {
    if (CeilDiv(choice.num_outputs, 128) * tiles_n < device.multiprocessors) rows = 64;
  } else if (choice.tile <= 64) {
    rows = 64;
  }
  return BlockSharedBytes(rows, channels) > device.shared_memory ? 64 : rows;
}

// Few row tiles leave multiprocessors idle, unless blocks share a tile's offsets.
int ShareOffsets(const ImplicitGemmChoice& choice, int64_t tiles,
                 const ImplicitGemmDevice& device) {
  int parts = 1;
  while (parts < kMaxParts && 2 * parts <= choice.num_offsets &&
         2 * parts * tiles <= 2 * device.multiprocessors) {
    parts *= 2;
  }
  return parts;
}

// Offsets that a share of a warpgroup kernel's tile has at least: fewer cost more to add up than to
// multiply.
constexpr int kShareOffsets = 4;

// Whether blocks of the warpgroup kernel can share tiles: their masks are one word.
bool Shareable(const ImplicitGemmChoice& choice) {
  return choice.splits == 1 && choice.num_offsets >= 2 * kShareOffsets && choice.num_offsets <= 32;
}

// The warpgroup kernel's tiles differ in cost by as much as their offsets: where a multiprocessor
// has few, the costliest go on when all others are done. Adding up costs a pass over the tile.
void ShareTiles(const ImplicitGemmChoice& choice, Precision precision, const WarpgroupShape& shape,
                int64_t tiles_n, const ImplicitGemmDevice& device, ImplicitGemmTile& tile) {
  constexpr int kMaxShares = 4, kCostlyShareOffsets = 12;
  // Of 192 rows there are fewer tiles, and a costly one takes a block longer. In tf32 adding up
  // costs more than it gains there.
  const int few_tiles = tile.rows > 128 && precision != Precision::kTf32 ? 4 : 3;
  const int64_t resident = int64_t{device.multiprocessors} * shape.blocks;
  const int64_t tiles = CeilDiv(choice.num_outputs, tile.rows) * tiles_n;
  if (tiles == 0) return;
  if (tiles <= resident) {
    const int64_t wanted = std::clamp<int64_t>((resident + tiles / 2) / tiles, 2, kMaxShares);
    tile.shares = static_cast<int>(std::min<int64_t>(wanted, choice.num_offsets / kShareOffsets));
    tile.shared_tiles = static_cast<int>(tiles);
    tile.share_offsets = kShareOffsets;
  } else if (tiles * tiles_n <= few_tiles * resident &&
             choice.num_offsets >= 2 * kCostlyShareOffsets) {
    // Those of nearly all offsets alone. More channels also mean coarser levels, whose tiles have
    // more offsets each: there is work enough beside the costliest.
    tile.shares = 2;
    tile.shared_tiles = static_cast<int>(resident / 2);
    tile.share_offsets = kCostlyShareOffsets;
  }
}

// Whether tiles of the warpgroup kernel are to have 128 rows where its shape may have 128 or 192.
// `tiles_n` tiles lie side by side. If multiprocessors are left without a tile of 192 rows, shorter
// tiles divide the work better.
bool ShortTiles(const ImplicitGemmChoice& choice, int64_t tiles_n,
                const ImplicitGemmDevice& device) {
  if (choice.tile != 0) return choice.tile <= 128;
  return CeilDiv(choice.num_outputs, 192) * tiles_n * choice.splits < device.multiprocessors;
}

// Fills in the rest of `tile`, whose channels are those of TileChannels, if the warpgroup
// kernel is to run the shape. The block kernel takes smaller tiles where there are few.
bool ChooseWarpgroup(const ImplicitGemmChoice& choice, Precision precision, int64_t c_in,
                     int64_t c_out, const ImplicitGemmDevice& device, ImplicitGemmTile& tile) {
  const int64_t size = SizeOf(StorageOf(precision));
  if (!choice.warpgroups || !device.warpgroup_products) return false;
  // A tile that is mostly padding costs less here than the block kernel's of 32 channels.
  const int channels = choice.tile_channels == 0 ? std::max(tile.channels, 64) : tile.channels;
  if (channels < 64) return false;
  const int64_t tiles_m = CeilDiv(choice.num_outputs, 128);
  const int64_t tiles = tiles_m * CeilDiv(c_out, channels) * choice.splits;
  // With fewer even the shares of all tiles would leave most of the device idle.
  const int64_t fewest = Shareable(choice) ? device.multiprocessors / 8 : device.multiprocessors;
  if (choice.tile == 0 ? tiles < fewest : choice.tile <= 64) return false;
  tile.kernel = ImplicitGemmKernel::kWarpgroup;
  tile.channels = channels;
  // One wide block reads its rows from shared memory once, two narrow ones twice; the bandwidth of
  // that memory is the bound.
  const bool fits =
      precision != Precision::kF32 && CeilDiv(c_out, 256) * 256 == CeilDiv(c_out, 128) * 128;
  if (choice.tile_channels == 0 && fits && tiles_m >= fewest) {
    tile.channels = 256;
  }
  const int64_t tiles_n = CeilDiv(c_out, tile.channels);
  const WarpgroupShape shape =
      WarpgroupShapeOf(precision, tile.channels, ShortTiles(choice, tiles_n, device));
  tile.rows = shape.rows;
  tile.skip_rows = kWarpgroupRows;
  tile.padded_c_in = WholeVectors(c_in, size);
  if (Shareable(choice)) ShareTiles(choice, precision, shape, tiles_n, device, tile);
  return true;
}

}  // namespace

absl::string_view ToString(ImplicitGemmKernel kernel) {
  switch (kernel) {
    case ImplicitGemmKernel::kWarp:
      return "mma of a warp";
    case ImplicitGemmKernel::kBlock:
      return "mma of a block";
    case ImplicitGemmKernel::kWarpgroup:
      return "wgmma";
    case ImplicitGemmKernel::kFma:
      return "fma";
  }
  return "?";
}

ImplicitGemmTile ChooseImplicitGemmTile(const ImplicitGemmChoice& choice, Precision precision,
                                        int64_t c_in, int64_t c_out,
                                        const ImplicitGemmDevice& device) {
  if (precision == Precision::kF32 || device.compute_capability < 80) {
    // With fewer input channels the bound on f32 leaves no room for the error of the split.
    constexpr int64_t kFewestSplitChannels = 8;
    ImplicitGemmTile split{
        .channels = std::min(TileChannels(choice.tile_channels, c_out), kMaxBlockChannels)};
    if (choice.splits_f32 && c_in >= kFewestSplitChannels && precision == Precision::kF32 &&
        ChooseWarpgroup(choice, precision, c_in, c_out, device, split)) {
      return split;
    }
    return {.kernel = ImplicitGemmKernel::kFma,
            .rows = kFmaTile,
            .channels = kFmaTile,
            .skip_rows = kFmaTile,
            .padded_c_in = c_in};
  }
  const int64_t size = SizeOf(StorageOf(precision));
  ImplicitGemmTile tile;
  const bool warp = choice.tile == 0 ? PreferWarp(size, c_in, c_out) : choice.tile <= kWarpRows;
  if (warp && ChooseWarp(choice, size, c_in, c_out, device, tile)) return tile;
  tile.channels = TileChannels(choice.tile_channels, c_out);
  if (ChooseWarpgroup(choice, precision, c_in, c_out, device, tile)) return tile;
  tile.channels = std::min(tile.channels, kMaxBlockChannels);
  const int64_t tiles_n = CeilDiv(c_out, tile.channels) * choice.splits;
  tile.kernel = ImplicitGemmKernel::kBlock;
  tile.rows = BlockRows(choice, tile.channels, tiles_n, device);
  tile.skip_rows = kWarpRows;
  tile.padded_c_in = WholeVectors(c_in, size);
  tile.k_parts = ShareOffsets(choice, CeilDiv(choice.num_outputs, tile.rows) * tiles_n, device);
  return tile;
}

}  // namespace voxconv
