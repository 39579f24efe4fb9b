// SPDX-License-Identifier: Apache-2.0
// Maps, features and candidates of output coordinates of more than 2^31 elements on CUDA, which
// `voxconv verify` cannot afford to hold against its reference: here voxels fill a cube, so that
// rows, pairs and sums are found by arithmetic alone.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/core/convolution.h"
#include "voxconv/dataflows/direct/register.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/hash2col/register.h"
#include "voxconv/dataflows/implicit_gemm/register.h"
#include "voxconv/mapping/grid/register.h"
#include "voxconv/mapping/hash/register.h"
#include "voxconv/mapping/octree/register.h"
#include "voxconv/mapping/output_coords/register.h"
#include "voxconv/mapping/perfect_hash/register.h"
#include "voxconv/mapping/sorted_search/register.h"

namespace voxconv {
namespace {

// A cube of voxels, full, whose map has 2.24e9 table entries and 2.18e9 pairs for a kernel of 7.
constexpr int kEdge = 187;
constexpr int kKernel = 7, kReach = kKernel / 2;
constexpr int64_t kVoxels = int64_t{kEdge} * kEdge * kEdge;
static_assert(kVoxels * kKernel * kKernel * kKernel > int64_t{1} << 31);

Registry MakeRegistry() {
  Registry registry;
  for (const auto& add : {RegisterGridMapping,
                          RegisterGridMappingCuda,
                          RegisterHashMapping,
                          RegisterHashMappingCuda,
                          RegisterOctreeMapping,
                          RegisterOctreeMappingCuda,
                          RegisterPerfectHashMapping,
                          RegisterPerfectHashMappingCuda,
                          RegisterSortedSearchMapping,
                          RegisterSortedSearchMappingCuda,
                          RegisterOutputCoords,
                          RegisterOutputCoordsCuda,
                          RegisterDirect,
                          RegisterDirectCuda,
                          RegisterFetchOnDemand,
                          RegisterFetchOnDemandCuda,
                          RegisterGatherGemmScatter,
                          RegisterGatherGemmScatterCuda,
                          RegisterHash2col,
                          RegisterHash2colCuda,
                          RegisterImplicitGemm,
                          RegisterImplicitGemmCuda}) {
    EXPECT_TRUE(add(registry).ok());
  }
  return registry;
}

bool HasMemory(int64_t gib) {
  size_t free = 0, total = 0;
  return cudaMemGetInfo(&free, &total) == cudaSuccess && static_cast<int64_t>(free >> 30) >= gib;
}

// All voxels from `first` to `last` on every axis, sorted.
std::vector<Coordinate> Cube(int first, int last) {
  std::vector<Coordinate> rows;
  for (int x = first; x <= last; ++x) {
    for (int y = first; y <= last; ++y) {
      for (int z = first; z <= last; ++z) rows.push_back({0, x, y, z});
    }
  }
  return rows;
}

ConvGeometry CubeGeometry() {
  return *ConvGeometry::Create({.kernel = {kKernel, kKernel, kKernel}});
}

// Of the cube, by the mapping `spec`.
absl::StatusOr<KernelMap> CubeMap(const std::string& spec, const Registry& registry,
                                  const ExecutionContext& context) {
  const CoordinateSetPtr cube = *CoordinateSet::Create(Cube(0, kEdge - 1), {1, 1, 1}, context);
  const auto mapping = *registry.mappings().Create(spec, BackendKind::kCuda);
  return QueryKernelMap(*mapping, {*cube, *cube, CubeGeometry()}, context);
}

// What a row's features and an offset's weights are made of. Whole numbers, with sums that are
// exact: in f32 all there are, in f16 up to 2048.
struct Numbers {
  bool narrow;

  int Feature(int64_t row) const { return static_cast<int>(row % (narrow ? 5 : 251)); }
  int Weight(int k) const { return narrow ? k % 3 - 1 : k + 1; }
};

// For every row the sum over its neighbours of their feature times the offset's weight.
std::vector<int32_t> NeighbourSums(const Numbers& numbers) {
  const ConvGeometry geometry = CubeGeometry();
  std::vector<int32_t> features(kVoxels), sums(kVoxels, 0);
  for (int64_t row = 0; row < kVoxels; ++row) features[row] = numbers.Feature(row);
  for (int x = 0; x < kEdge; ++x) {
    for (int y = 0; y < kEdge; ++y) {
      int32_t* const to = &sums[(int64_t{x} * kEdge + y) * kEdge];
      for (int k = 0; k < geometry.num_offsets(); ++k) {
        const Int3& o = geometry.InputOffset(k);
        if (x + o.x < 0 || x + o.x >= kEdge || y + o.y < 0 || y + o.y >= kEdge) continue;
        const int32_t* const from = &features[(int64_t{x + o.x} * kEdge + y + o.y) * kEdge];
        const int weight = numbers.Weight(k);
        const int last = std::min(kEdge, kEdge - o.z);
        for (int z = std::max(0, -o.z); z < last; ++z) to[z] += weight * from[z + o.z];
      }
    }
  }
  return sums;
}

// Once for all.
const std::vector<int32_t>& ExpectedSums(const Numbers& numbers) {
  static const std::vector<int32_t> kWide = NeighbourSums({.narrow = false});
  static const std::vector<int32_t> kNarrow = NeighbourSums({.narrow = true});
  return numbers.narrow ? kNarrow : kWide;
}

// A row has the same feature in all channels; weights are diagonal, every second one doubled.
void ExpectNeighbourSums(const std::string& spec, Precision precision, int64_t channels,
                         const Registry& registry, const KernelMap& map,
                         const ExecutionContext& context) {
  SCOPED_TRACE(absl::StrCat(spec, " ", ToString(precision), " ", channels));
  const DType dtype = StorageOf(precision);
  const Numbers numbers{.narrow = precision != Precision::kF32};
  std::vector<float> features;
  features.reserve(kVoxels * channels);
  for (int64_t row = 0; row < kVoxels; ++row) {
    features.insert(features.end(), channels, static_cast<float>(numbers.Feature(row)));
  }
  std::vector<float> weights(map.num_offsets() * channels * channels, 0.0f);
  for (int k = 0; k < map.num_offsets(); ++k) {
    for (int64_t c = 0; c < channels; ++c) {
      weights[(k * channels + c) * channels + c] =
          static_cast<float>(numbers.Weight(k)) * static_cast<float>(1 + c % 2);
    }
  }
  const Tensor input = *Tensor::FromHost(features, kVoxels, channels, context, dtype);
  const Tensor kernel =
      *Tensor::FromHost(weights, map.num_offsets() * channels, channels, context, dtype);
  const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCuda);
  Workspace workspace;
  const auto output =
      RunConvolution(*dataflow, map, input.view(), kernel.view(), precision, workspace, context);
  ASSERT_TRUE(output.ok()) << output.status();
  const std::vector<float> sums = *output->ToHost(context);
  const std::vector<int32_t>& expected = ExpectedSums(numbers);
  const float* sum = sums.data();
  for (int64_t row = 0; row < kVoxels; ++row) {
    for (int64_t c = 0; c < channels; ++c, ++sum) {
      const auto wanted = static_cast<float>((1 + c % 2) * expected[row]);
      if (*sum != wanted) {
        FAIL() << "row " << row << ", channel " << c << ": " << *sum << " for " << wanted;
      }
    }
  }
}

// Writes the most memory that the test had into its results. The limits below are these figures, an
// eighth more because blocks may be larger than their buffers, and some room.
void RecordPeak(const UnitCuda& cuda) {
  ::testing::Test::RecordProperty("peak_mib",
                                  static_cast<int>(cuda.backend->PeakBytes() / (1 << 20)));
}

void ExpectMap(const std::string& spec, const Registry& registry, const UnitCuda& cuda) {
  SCOPED_TRACE(spec);
  const ConvGeometry geometry = CubeGeometry();
  const auto map = CubeMap(spec, registry, cuda.context);
  ASSERT_TRUE(map.ok()) << map.status();
  ASSERT_TRUE(map->EnsureCounts(cuda.context).ok());
  for (int k = 0; k < geometry.num_offsets(); ++k) {
    const Int3& o = geometry.InputOffset(k);
    ASSERT_EQ(map->num_pairs(k),
              int64_t{kEdge - std::abs(o.x)} * (kEdge - std::abs(o.y)) * (kEdge - std::abs(o.z)))
        << "offset " << k;
  }
  ASSERT_GT(map->num_pairs(), int64_t{1} << 31);
  ExpectNeighbourSums("direct", Precision::kF32, 1, registry, *map, cuda.context);
}

TEST(LargeSizesCudaTest, Maps) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(20)) GTEST_SKIP() << "less than 20 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  for (const char* spec :
       {"hash", "hash:variant=bucketed", "hash:variant=cuckoo", "hash:symmetric=true", "grid",
        "grid:storage=bitmap", "grid:coords=planar", "octree", "octree:children=all",
        "perfect_hash:build=device", "sorted_search", "sorted_search:variant=naive",
        "sorted_search:variant=segmented", "sorted_search:variant=double_traversed",
        "sorted_search:symmetric=true"}) {
    ExpectMap(spec, registry, *cuda);
  }
  RecordPeak(*cuda);
}

// 48 bytes for each of 2.24e9 queries.
TEST(LargeSizesCudaTest, MapBySortedQueries) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(130)) GTEST_SKIP() << "less than 130 GiB of device memory are free";
  ExpectMap("sorted_search:variant=full", MakeRegistry(), *cuda);
  RecordPeak(*cuda);
}

TEST(LargeSizesCudaTest, DataflowsOverLargeMaps) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(40)) GTEST_SKIP() << "less than 40 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  const KernelMap map = *CubeMap("hash", registry, cuda->context);
  const auto expect_sums = [&](const char* spec, Precision precision, int64_t channels) {
    ExpectNeighbourSums(spec, precision, channels, registry, map, cuda->context);
  };
  for (const char* spec :
       {"direct:weights=naive", "fetch_on_demand", "fetch_on_demand:fusion=batched",
        "fetch_on_demand:fusion=separate", "hash2col", "implicit_gemm",
        "implicit_gemm:mask_sort=rarest", "implicit_gemm:mask_sort=none,splits=3"}) {
    expect_sums(spec, Precision::kF32, 1);
  }
  // Kernels of their own, on tensor cores: by warps, by blocks of these, by warpgroups.
  for (const char* spec : {"fetch_on_demand", "hash2col", "implicit_gemm:mask_sort=rarest",
                           "implicit_gemm:mask_sort=none", "implicit_gemm:mma=warp,splits=2"}) {
    for (const int64_t channels : {16, 64}) expect_sums(spec, Precision::kF16, channels);
    expect_sums(spec, Precision::kTf32, 16);
  }
  expect_sums("implicit_gemm:mask_sort=rarest", Precision::kF16, 128);
  expect_sums("implicit_gemm", Precision::kTf32, 64);
  expect_sums("implicit_gemm:mma=3xtf32", Precision::kF32, 64);
  expect_sums("direct", Precision::kF16, 16);
  RecordPeak(*cuda);
}

// Positions of pairs in these layouts are of 32 bits.
TEST(LargeSizesCudaTest, GatherGemmScatterRefusesLargeMaps) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(40)) GTEST_SKIP() << "less than 40 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  const KernelMap map = *CubeMap("hash", registry, cuda->context);
  const Tensor input = *Tensor::Create(kVoxels, 1, DType::kF32, cuda->context);
  const Tensor weights = *Tensor::Create(map.num_offsets(), 1, DType::kF32, cuda->context);
  const auto refusal = [&](const char* spec) {
    const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCuda);
    Workspace workspace;
    return std::string(RunConvolution(*dataflow, map, input.view(), weights.view(), Precision::kF32,
                                      workspace, cuda->context)
                           .status()
                           .message());
  };
  EXPECT_THAT(refusal("gather_gemm_scatter"),
              ::testing::HasSubstr("2181825073 pairs; dense tables hold at most 2147483647"));
  EXPECT_THAT(refusal("gather_gemm_scatter:map=coded_csr"),
              ::testing::HasSubstr("2181825073 pairs; coded CSR holds codes below 2^32"));
  RecordPeak(*cuda);
}

// Every voxel has 343 candidates, all of which are outputs.
TEST(LargeSizesCudaTest, OutputCoordinates) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(110)) GTEST_SKIP() << "less than 110 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  const ConvGeometry geometry = *ConvGeometry::Create({.kind = ConvKind::kStrided,
                                                       .rule = OutputRule::kDilate,
                                                       .kernel = {kKernel, kKernel, kKernel}});
  const CoordinateSetPtr cube =
      *CoordinateSet::Create(Cube(0, kEdge - 1), {1, 1, 1}, cuda->context);
  const std::vector<Coordinate> expected = Cube(-kReach, kEdge - 1 + kReach);
  for (const char* spec : {"fused", "appended", "sort_unique", "staged", "location_table"}) {
    const auto plugin = *registry.output_coords().Create(spec, BackendKind::kCuda);
    const auto outputs = plugin->Compute(*cube, geometry, cuda->context);
    ASSERT_TRUE(outputs.ok()) << spec << ": " << outputs.status();
    ASSERT_EQ((*outputs)->size(), static_cast<int64_t>(expected.size())) << spec;
    EXPECT_TRUE(*CopyToHost((*outputs)->rows(), cuda->context) == expected) << spec;
  }
  RecordPeak(*cuda);
}

// Rows of features that are looked at; all others are zeros.
struct Window {
  static constexpr int64_t kRows = 32;
  int64_t first;

  // Small whole numbers, whose sums are exact in f16.
  static float Value(int64_t row) { return static_cast<float>(row % 7 + 1); }
  TensorView Of(const TensorView& matrix) const {
    TensorView view = matrix;
    view.data = static_cast<char*>(matrix.data) + first * matrix.channels * SizeOf(matrix.dtype);
    view.rows = kRows;
    return view;
  }
};

// One kernel offset, under which every row meets itself; weights are ones.
void ExpectSums(const std::string& spec, const Registry& registry, const KernelMap& map,
                int64_t c_in, int64_t c_out, const ExecutionContext& context) {
  const int64_t rows = map.num_inputs();
  const int64_t boundary = (int64_t{1} << 31) / std::max(c_in, c_out);
  const std::vector<Window> windows = {{0}, {boundary - Window::kRows / 2}, {rows - Window::kRows}};
  const Tensor input = *Tensor::Create(rows, c_in, DType::kF16, context);
  ASSERT_TRUE(
      context.backend->FillBytes(input.view().data, 0, input.view().bytes(), *context.stream).ok());
  for (const Window& window : windows) {
    std::vector<float> values;
    for (int64_t i = 0; i < Window::kRows; ++i) {
      values.insert(values.end(), c_in, Window::Value(window.first + i));
    }
    const Tensor part = *Tensor::FromHost(values, Window::kRows, c_in, context, DType::kF16);
    const TensorView to = window.Of(input.view());
    ASSERT_TRUE(context.backend
                    ->Copy(to.data, to.device.space, part.view().data, part.view().device.space,
                           to.bytes(), *context.stream)
                    .ok());
  }
  const Tensor weights =
      *Tensor::FromHost(std::vector<float>(c_in * c_out, 1.0f), c_in, c_out, context, DType::kF16);
  const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCuda);
  Workspace workspace;
  const auto output = RunConvolution(*dataflow, map, input.view(), weights.view(), Precision::kF16,
                                     workspace, context);
  ASSERT_TRUE(output.ok()) << spec << ": " << output.status();
  for (const Window& window : windows) {
    const std::vector<float> sums = *ToHost(window.Of(output->view()), context);
    for (size_t i = 0; i < sums.size(); ++i) {
      const int64_t row = window.first + static_cast<int64_t>(i) / c_out;
      ASSERT_EQ(sums[i], static_cast<float>(c_in) * Window::Value(row))
          << spec << ", " << c_in << " -> " << c_out << ", row " << row;
    }
  }
}

TEST(LargeSizesCudaTest, Features) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(20)) GTEST_SKIP() << "less than 20 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  constexpr int64_t kRows = 2'200'000;
  constexpr int64_t kChannels = 1000;
  static_assert(kRows * kChannels > int64_t{1} << 31);
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  const SharedArray<int32_t> all = *CopyToBackend<int32_t>(rows, cuda->context);
  const KernelMap map(kRows, kRows, {0, kRows}, PairList{.in = all, .out = all});
  for (const char* spec : {"direct", "fetch_on_demand", "gather_gemm_scatter",
                           "gather_gemm_scatter:map=coded_csr", "hash2col", "implicit_gemm"}) {
    ExpectSums(spec, registry, map, kChannels, 8, cuda->context);
    ExpectSums(spec, registry, map, 8, kChannels, cuda->context);
  }
  RecordPeak(*cuda);
}

}  // namespace
}  // namespace voxconv
