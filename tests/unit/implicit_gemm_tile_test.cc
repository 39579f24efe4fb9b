// SPDX-License-Identifier: Apache-2.0
// Which kernel, tiles and shares implicit GEMM plans on an H200 (132 multiprocessors); host code.
#include <set>
#include <string>
#include <tuple>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cuda/cuda_backend.h"
#include "voxconv/dataflows/implicit_gemm/block_shape.h"
#include "voxconv/dataflows/implicit_gemm/implicit_gemm_kernels.h"
#include "voxconv/dataflows/implicit_gemm/register.h"

namespace voxconv {
namespace {

constexpr ImplicitGemmDevice kH200{.compute_capability = 90,
                                   .shared_memory = 232448,
                                   .multiprocessors = 132,
                                   .warpgroup_products = true};

ImplicitGemmTile Choose(int64_t rows, int64_t c_in, int64_t c_out, ImplicitGemmChoice choice = {}) {
  if (choice.num_offsets == 0) choice.num_offsets = 27;
  choice.num_outputs = rows;
  return ChooseImplicitGemmTile(choice, Precision::kF16, c_in, c_out, kH200);
}

TEST(ImplicitGemmTileTest, FewChannelsGoToTheWarpKernel) {
  constexpr int kShapes[][2] = {{4, 16},  {8, 64},  {16, 16}, {16, 64}, {32, 32},
                                {32, 48}, {64, 16}, {64, 32}, {3, 16},  {20, 20}};
  for (const auto& [c_in, c_out] : kShapes) {
    EXPECT_EQ(Choose(94444, c_in, c_out).kernel, ImplicitGemmKernel::kWarp) << c_in << " " << c_out;
  }
}

TEST(ImplicitGemmTileTest, RowsAreNotCopiedForTheWarpKernelThatOthersReadInPlace) {
  constexpr int kShapes[][2] = {{24, 16}, {24, 24}, {40, 16}, {48, 32},
                                {48, 48}, {56, 56}, {64, 48}, {64, 64}};
  for (const auto& [c_in, c_out] : kShapes) {
    const ImplicitGemmTile tile = Choose(94444, c_in, c_out);
    EXPECT_EQ(tile.kernel, ImplicitGemmKernel::kWarpgroup) << c_in << " " << c_out;
    EXPECT_EQ(tile.channels, 64);
    EXPECT_EQ(tile.padded_c_in, c_in);
    EXPECT_EQ(Choose(94444, c_in, c_out, {.tile = 16}).kernel, ImplicitGemmKernel::kWarp);
  }
  EXPECT_EQ(Choose(94444, 48, 32, {.tile_channels = 32}).kernel, ImplicitGemmKernel::kBlock);
  EXPECT_EQ(Choose(94444, 48, 32, {.tile_channels = 32}).channels, 32);
  const ImplicitGemmTile few = Choose(1000, 48, 32);
  EXPECT_EQ(few.kernel, ImplicitGemmKernel::kBlock);
  EXPECT_EQ(few.channels, 32);
}

TEST(ImplicitGemmTileTest, FourByteElementsFillRowsWithHalfAsMany) {
  const ImplicitGemmChoice choice{.num_offsets = 27, .num_outputs = 94444};
  const auto kernel = [&](int64_t c_in, int64_t c_out) {
    return ChooseImplicitGemmTile(choice, Precision::kTf32, c_in, c_out, kH200).kernel;
  };
  EXPECT_EQ(kernel(4, 16), ImplicitGemmKernel::kWarp);
  EXPECT_EQ(kernel(32, 32), ImplicitGemmKernel::kWarp);
  EXPECT_EQ(kernel(24, 24), ImplicitGemmKernel::kWarpgroup);
  EXPECT_EQ(kernel(64, 32), ImplicitGemmKernel::kWarpgroup);
}

TEST(ImplicitGemmTileTest, WarpgroupsMultiplyInTf32) {
  const auto choose = [](int64_t c_out, ImplicitGemmChoice choice = {}) {
    choice.num_offsets = 27;
    choice.num_outputs = 94444;
    return ChooseImplicitGemmTile(choice, Precision::kTf32, 128, c_out, kH200);
  };
  EXPECT_EQ(choose(128).kernel, ImplicitGemmKernel::kWarpgroup);
  EXPECT_EQ(choose(128).rows, 192);
  EXPECT_EQ(choose(96).rows, 128);
  EXPECT_EQ(choose(256).channels, 256);
  EXPECT_EQ(choose(256).rows, 128);
  EXPECT_EQ(choose(128, {.warpgroups = false}).kernel, ImplicitGemmKernel::kBlock);
}

TEST(ImplicitGemmTileTest, F32IsSplitWhereThatIsAskedFor) {
  const auto choose = [](int64_t c_in, int64_t c_out, ImplicitGemmChoice choice) {
    choice.num_offsets = 27;
    choice.num_outputs = 94444;
    return ChooseImplicitGemmTile(choice, Precision::kF32, c_in, c_out, kH200);
  };
  EXPECT_EQ(choose(64, 64, {}).kernel, ImplicitGemmKernel::kFma);
  EXPECT_EQ(choose(64, 64, {.splits_f32 = true}).kernel, ImplicitGemmKernel::kWarpgroup);
  EXPECT_EQ(choose(64, 64, {.splits_f32 = true}).rows, 192);
  EXPECT_EQ(choose(8, 16, {.splits_f32 = true}).kernel, ImplicitGemmKernel::kWarpgroup);
  EXPECT_EQ(choose(256, 256, {.splits_f32 = true}).channels, 128);
  EXPECT_EQ(choose(256, 256, {.splits_f32 = true, .tile_channels = 256}).channels, 128);
  EXPECT_EQ(choose(256, 256, {.splits_f32 = true, .tile_channels = 32}).kernel,
            ImplicitGemmKernel::kFma);
  EXPECT_EQ(choose(4, 64, {.splits_f32 = true}).kernel, ImplicitGemmKernel::kFma);
}

TEST(ImplicitGemmTileTest, CostliestTilesAreSharedWhereThereAreFewTilesEach) {
  const ImplicitGemmTile tile = Choose(94444, 128, 128);
  EXPECT_EQ(tile.kernel, ImplicitGemmKernel::kWarpgroup);
  EXPECT_EQ(tile.rows, 192);
  EXPECT_EQ(tile.channels, 128);
  EXPECT_EQ(tile.shares, 2);
  EXPECT_EQ(tile.shared_tiles, 66);
  EXPECT_EQ(tile.share_offsets, 12);
  EXPECT_EQ(Choose(1000000, 128, 128).shares, 1);
}

TEST(ImplicitGemmTileTest, TilesOf192RowsAreSharedUpToFourABlockButInTf32) {
  const auto shares = [](Precision precision, int64_t rows, int64_t channels) {
    return ChooseImplicitGemmTile({.splits_f32 = true, .num_offsets = 27, .num_outputs = rows},
                                  precision, channels, channels, kH200)
        .shares;
  };
  EXPECT_EQ(shares(Precision::kF32, 101376, 64), 2);  // 528 tiles, a block a multiprocessor
  EXPECT_EQ(shares(Precision::kF32, 101377, 64), 1);
  EXPECT_EQ(shares(Precision::kTf32, 76032, 128), 2);  // 396, three a multiprocessor
  EXPECT_EQ(shares(Precision::kTf32, 76033, 128), 1);
  EXPECT_EQ(shares(Precision::kF32, 94444, 96), 1);   // tiles of 128 rows
  EXPECT_EQ(shares(Precision::kF16, 101376, 64), 2);  // 792, two blocks a multiprocessor
  EXPECT_EQ(shares(Precision::kF16, 101377, 64), 1);
}

TEST(ImplicitGemmTileTest, TilesOf192RowsWhereEachMultiprocessorHasOne) {
  for (const int64_t channels : {96, 128}) {
    EXPECT_EQ(Choose(132 * 192, channels, channels).rows, 192);
    EXPECT_EQ(Choose(131 * 192, channels, channels).rows, 128);
    EXPECT_EQ(Choose(44 * 192, channels, channels, {.splits = 3}).rows, 192);
    EXPECT_EQ(Choose(131 * 192, channels, channels, {.tile = 192}).rows, 192);
    EXPECT_EQ(Choose(94444, channels, channels, {.tile = 128}).rows, 128);
  }
  EXPECT_EQ(Choose(66 * 192, 128, 384).rows, 192);  // three tiles side by side
  EXPECT_EQ(Choose(94444, 64, 64, {.tile = 192}).rows, 128);
  EXPECT_EQ(Choose(94444, 256, 256, {.tile = 192}).rows, 128);
}

TEST(ImplicitGemmTileTest, FewTilesAreAllShared) {
  const ImplicitGemmTile tile = Choose(9483, 128, 128);  // 75 tiles of 128 rows
  EXPECT_EQ(tile.kernel, ImplicitGemmKernel::kWarpgroup);
  EXPECT_EQ(tile.shares, 4);
  EXPECT_EQ(tile.shared_tiles, 75);
}

TEST(ImplicitGemmTileTest, NothingIsSharedThatHasTooFewOffsets) {
  EXPECT_EQ(Choose(94444, 64, 64, {.num_offsets = 8}).shares, 1);
  EXPECT_EQ(Choose(94444, 64, 64, {.num_offsets = 8}).shared_tiles, 0);
  EXPECT_EQ(Choose(9483, 128, 128, {.num_offsets = 8}).shares, 2);
}

TEST(ImplicitGemmTileTest, FewTilesThatCannotBeSharedGoToTheBlockKernel) {
  for (const ImplicitGemmChoice& choice :
       {ImplicitGemmChoice{.num_offsets = 125}, ImplicitGemmChoice{.num_offsets = 14, .splits = 2},
        ImplicitGemmChoice{.warpgroups = false}}) {
    const ImplicitGemmTile tile = Choose(5000, 128, 128, choice);
    EXPECT_EQ(tile.kernel, ImplicitGemmKernel::kBlock);
    EXPECT_EQ(tile.shares, 1);
  }
  const ImplicitGemmTile block = Choose(9483, 128, 128, {.warpgroups = false});
  EXPECT_EQ(block.rows, 64);
  EXPECT_EQ(Choose(94444, 128, 128, {.warpgroups = false}).rows, 128);
}

TEST(ImplicitGemmTileTest, WideTilesWhereTheyPadNoMore) {
  EXPECT_EQ(Choose(21311, 256, 256).channels, 256);
  EXPECT_EQ(Choose(21311, 128, 192).channels, 256);
  EXPECT_EQ(Choose(21311, 128, 384).channels, 128);
  EXPECT_EQ(Choose(21311, 128, 512).channels, 256);
  EXPECT_EQ(Choose(21311, 128, 256, {.tile_channels = 128}).channels, 128);
  EXPECT_EQ(Choose(1280, 256, 256).channels, 128);  // ten tiles
}

TEST(ImplicitGemmTileTest, SharedTilesHaveTickets) {
  for (const int64_t rows : {1, 127, 129, 1000, 9483, 16896, 33792, 50000, 101376, 101377}) {
    for (const int64_t channels : {16, 32, 64, 96, 128, 160, 256, 512}) {
      for (const Precision precision : {Precision::kF16, Precision::kTf32, Precision::kF32}) {
        const ImplicitGemmTile tile =
            ChooseImplicitGemmTile({.splits_f32 = true, .num_offsets = 27, .num_outputs = rows},
                                   precision, 64, channels, kH200);
        EXPECT_GE(tile.shares, 1);
        EXPECT_LE(tile.shared_tiles * (tile.rows / 64), CudaTicket::kMaxShared);
        const int64_t tiles =
            (rows + tile.rows - 1) / tile.rows * ((channels + tile.channels - 1) / tile.channels);
        EXPECT_LE(tile.shared_tiles, tiles);
      }
    }
  }
}

// Of all architectures with tensor cores for these types: a block may have 99, 163 or 227 KiB.
TEST(ImplicitGemmTileTest, BlocksFitTheDevicesSharedMemory) {
  constexpr ImplicitGemmDevice kDevices[] = {{80, 166912, 108, false},  {86, 101376, 82, false},
                                             {89, 101376, 128, false},  {90, 232448, 132, false},
                                             {100, 232448, 148, false}, {120, 101376, 170, false}};
  for (const ImplicitGemmDevice& device : kDevices) {
    for (const int64_t rows : {100, 20000, 1000000}) {
      for (const int64_t c_out : {16, 32, 64, 96, 128, 192, 256, 512}) {
        for (const int64_t tile : {0, 64, 128, 256}) {
          for (const int64_t tile_channels : {0, 32, 64, 96, 128, 256}) {
            const ImplicitGemmChoice choice{.tile = tile,
                                            .tile_channels = tile_channels,
                                            .num_offsets = 27,
                                            .num_outputs = rows};
            const ImplicitGemmTile chosen =
                ChooseImplicitGemmTile(choice, Precision::kF16, 256, c_out, device);
            ASSERT_EQ(chosen.kernel, ImplicitGemmKernel::kBlock);
            EXPECT_LE(BlockSharedBytes(chosen.rows, chosen.channels), device.shared_memory)
                << device.compute_capability << ": " << chosen.rows << " x " << chosen.channels;
          }
        }
      }
    }
  }
  const ImplicitGemmChoice choice{.num_offsets = 27, .num_outputs = 200000};
  EXPECT_EQ(ChooseImplicitGemmTile(choice, Precision::kF16, 128, 128, kDevices[0]).rows, 128);
  EXPECT_EQ(ChooseImplicitGemmTile(choice, Precision::kF16, 128, 128, kDevices[2]).rows, 64);
}

// An instance of a kernel: rows of the tile (of the warp kernel: bytes of an input row) and
// channels.
using Instance = std::tuple<ImplicitGemmKernel, int64_t, int>;

// The instances that some shape gets on some device if no option asks for a tile.
std::set<Instance> TakenByThemselves(Precision precision) {
  constexpr ImplicitGemmDevice kDevices[] = {
      {80, 166912, 108, false}, {89, 101376, 128, false}, kH200};
  constexpr int64_t kChannels[] = {2, 4, 8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384};
  const int64_t size = SizeOf(StorageOf(precision));
  std::set<Instance> taken;
  for (const ImplicitGemmDevice& device : kDevices) {
    for (const int64_t rows : {300, 3000, 30000, 300000}) {
      for (const int64_t c_in : kChannels) {
        for (const int64_t c_out : kChannels) {
          const ImplicitGemmTile tile = ChooseImplicitGemmTile(
              {.num_offsets = 27, .num_outputs = rows}, precision, c_in, c_out, device);
          const bool warp = tile.kernel == ImplicitGemmKernel::kWarp;
          taken.insert({tile.kernel, warp ? tile.padded_c_in * size : tile.rows, tile.channels});
        }
      }
    }
  }
  return taken;
}

// Every instance takes time to compile and room in the program.
TEST(ImplicitGemmTileTest, EveryInstanceIsTakenWithoutOptions) {
  std::set<Instance> instances;
  for (const int64_t row_bytes : {8, 16, 32, 64, 128}) {
    for (const int channels : {16, 32, 64}) {
      instances.insert({ImplicitGemmKernel::kWarp, row_bytes, channels});
    }
  }
  for (const int64_t rows : {64, 128}) {
    for (const int channels : {32, 64, 96, 128}) {
      instances.insert({ImplicitGemmKernel::kBlock, rows, channels});
    }
  }
  const auto with_warpgroups = [&instances](Precision precision) {
    std::set<Instance> all = instances;
    for (const int channels : {64, 96, 128, 256}) {
      for (const bool short_tiles : {false, true}) {
        const int rows = WarpgroupShapeOf(precision, channels, short_tiles).rows;
        all.insert({ImplicitGemmKernel::kWarpgroup, rows, channels});
      }
    }
    return all;
  };
  EXPECT_EQ(TakenByThemselves(Precision::kTf32), with_warpgroups(Precision::kTf32));
  // 64 -> 64 channels of 16 bits: `tile=16` alone takes it.
  instances.erase({ImplicitGemmKernel::kWarp, 128, 64});
  EXPECT_EQ(TakenByThemselves(Precision::kF16), with_warpgroups(Precision::kF16));
}

TEST(ImplicitGemmTileTest, WideLayersInF32AskForPartsByRows) {
  Registry registry;
  ASSERT_TRUE(RegisterImplicitGemm(registry).ok());
  ASSERT_TRUE(RegisterImplicitGemmCuda(registry).ok());
  const auto layout = [&](const char* options, int64_t c_out, int num_offsets,
                          Precision precision) {
    const auto dataflow =
        *registry.dataflows().Create(absl::StrCat("implicit_gemm:", options), BackendKind::kCuda);
    return dataflow
        ->NeededMap(Pass::kForward, {.c_in = 64,
                                     .c_out = c_out,
                                     .num_offsets = num_offsets,
                                     .types = ConvTypes::Of(precision)})
        .layout;
  };
  const std::string one = "mask_sorted:order=rarest,splits=1";
  constexpr char kSplit[] = "mask_sort=rarest,mma=3xtf32";
  EXPECT_EQ(layout(kSplit, 256, 27, Precision::kF32), one + ",parts by rows");
  EXPECT_EQ(layout(kSplit, 128, 27, Precision::kF32), one);
  EXPECT_EQ(layout(kSplit, 256, 26, Precision::kF32), one);
  EXPECT_EQ(layout(kSplit, 256, 27, Precision::kTf32), one);
  EXPECT_EQ(layout("mask_sort=rarest", 256, 27, Precision::kF32), one);
  EXPECT_EQ(layout("mask_sort=rarest,mma=3xtf32,splits=1", 256, 27, Precision::kF32), one);
}

TEST(ImplicitGemmTileTest, NoRowsNoShares) { EXPECT_EQ(Choose(0, 128, 128).shared_tiles, 0); }

}  // namespace
}  // namespace voxconv
