// Maps, features and candidates of output coordinates that are more than 2^31 on CUDA, which
// `voxconv verify` cannot afford to hold against its reference: what is right is known in closed
// form.
#include <cuda_runtime.h>

#include <algorithm>
#include <cstdint>
#include <cstdlib>
#include <memory>
#include <numeric>
#include <string>
#include <vector>

#include "core/convolution.h"
#include "dataflows/direct/register.h"
#include "dataflows/fetch_on_demand/register.h"
#include "dataflows/gather_gemm_scatter/register.h"
#include "dataflows/hash2col/register.h"
#include "dataflows/implicit_gemm/register.h"
#include "gtest/gtest.h"
#include "mapping/grid/register.h"
#include "mapping/hash/register.h"
#include "mapping/octree/register.h"
#include "mapping/output_coords/register.h"
#include "mapping/perfect_hash/register.h"
#include "mapping/sorted_search/register.h"
#include "unit_cuda.h"

namespace voxconv {
namespace {

// A cube of voxels, full, whose map has 2.24e9 table entries and 2.18e9 pairs for a kernel of 7.
constexpr int kEdge = 187;
constexpr int kKernel = 7, kReach = kKernel / 2;
constexpr int64_t kVoxels = int64_t{kEdge} * kEdge * kEdge;
static_assert(kVoxels * kKernel * kKernel * kKernel > int64_t{1} << 31);

Registry MakeRegistry() {
  Registry registry;
  for (const auto& add :
       {RegisterGridMapping, RegisterHashMapping, RegisterOctreeMapping, RegisterPerfectHashMapping,
        RegisterSortedSearchMapping, RegisterOutputCoords, RegisterDirect, RegisterFetchOnDemand,
        RegisterGatherGemmScatter, RegisterHash2col, RegisterImplicitGemm}) {
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

// Along one axis, of the neighbours of `at` inside the cube: how many, and the sum of where.
struct Neighbours {
  int64_t count, sum;

  explicit Neighbours(int at) {
    const int64_t first = std::max(at - kReach, 0), last = std::min(at + kReach, kEdge - 1);
    count = last - first + 1;
    sum = (first + last) * count / 2;
  }
};

// Features are x + 3 y + 5 z and weights ones, so that every sum is exact.
void ExpectNeighbourSums(const std::string& spec, const Registry& registry, const KernelMap& map,
                         const ExecutionContext& context) {
  const auto dataflow = *registry.dataflows().Create(spec);
  std::vector<float> features;
  for (const Coordinate& c : Cube(0, kEdge - 1)) {
    features.push_back(static_cast<float>(c.x + 3 * c.y + 5 * c.z));
  }
  const Tensor input = *Tensor::FromHost(features, kVoxels, 1, context);
  const Tensor weights =
      *Tensor::FromHost(std::vector<float>(map.num_offsets(), 1.0f), map.num_offsets(), 1, context);
  Workspace workspace;
  const auto output =
      RunConvolution(*dataflow, map, input.view(), weights.view(), workspace, context);
  ASSERT_TRUE(output.ok()) << spec << ": " << output.status();
  const std::vector<float> sums = *output->ToHost(context);
  for (int64_t row = 0; row < kVoxels; ++row) {
    const Neighbours x(static_cast<int>(row / (kEdge * kEdge)));
    const Neighbours y(static_cast<int>(row / kEdge % kEdge));
    const Neighbours z(static_cast<int>(row % kEdge));
    const int64_t expected =
        x.sum * y.count * z.count + 3 * x.count * y.sum * z.count + 5 * x.count * y.count * z.sum;
    ASSERT_EQ(sums[row], static_cast<float>(expected)) << spec << ", row " << row;
  }
}

TEST(LargeSizesCudaTest, Maps) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(130)) GTEST_SKIP() << "less than 130 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  const ConvGeometry geometry = *ConvGeometry::Create({.kernel = {kKernel, kKernel, kKernel}});
  const CoordinateSetPtr cube =
      *CoordinateSet::Create(Cube(0, kEdge - 1), {1, 1, 1}, cuda->context);
  for (const char* spec :
       {"hash", "hash:variant=bucketed", "hash:variant=cuckoo", "hash:symmetric=true", "grid",
        "grid:storage=bitmap", "grid:coords=planar", "octree", "octree:children=all",
        "perfect_hash:build=device", "sorted_search", "sorted_search:variant=naive",
        "sorted_search:variant=full", "sorted_search:variant=segmented",
        "sorted_search:variant=double_traversed", "sorted_search:symmetric=true"}) {
    const auto mapping = *registry.mappings().Create(spec);
    const auto map = QueryKernelMap(*mapping, {*cube, *cube, geometry}, cuda->context);
    ASSERT_TRUE(map.ok()) << spec << ": " << map.status();
    ASSERT_TRUE(map->EnsureCounts(cuda->context).ok());
    for (int k = 0; k < geometry.num_offsets(); ++k) {
      const Int3& o = geometry.InputOffset(k);
      ASSERT_EQ(map->num_pairs(k),
                int64_t{kEdge - std::abs(o.x)} * (kEdge - std::abs(o.y)) * (kEdge - std::abs(o.z)))
          << spec << ", offset " << k;
    }
    ASSERT_GT(map->num_pairs(), int64_t{1} << 31);
    ExpectNeighbourSums("direct", registry, *map, cuda->context);
  }
}

TEST(LargeSizesCudaTest, DataflowsOverLargeMaps) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(100)) GTEST_SKIP() << "less than 100 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  const ConvGeometry geometry = *ConvGeometry::Create({.kernel = {kKernel, kKernel, kKernel}});
  const CoordinateSetPtr cube =
      *CoordinateSet::Create(Cube(0, kEdge - 1), {1, 1, 1}, cuda->context);
  const auto mapping = *registry.mappings().Create("hash");
  const KernelMap map = *QueryKernelMap(*mapping, {*cube, *cube, geometry}, cuda->context);
  for (const char* dataflow :
       {"direct:weights=naive", "fetch_on_demand", "fetch_on_demand:fusion=batched",
        "fetch_on_demand:fusion=separate", "hash2col", "implicit_gemm",
        "implicit_gemm:mask_sort=rarest", "implicit_gemm:mask_sort=none,splits=3"}) {
    ExpectNeighbourSums(dataflow, registry, map, cuda->context);
  }
  // Position tables are refused past 2^31 pairs, by name.
  const auto dense =
      cuda->backend->ConvertKernelMap(map, {.layout = MapLayout::kDenseTables}, cuda->context);
  EXPECT_EQ(dense.status().code(), absl::StatusCode::kInvalidArgument) << dense.status();
}

// Every voxel has 343 candidates, all of which are outputs.
TEST(LargeSizesCudaTest, OutputCoordinates) {
  VOXCONV_NEED_CUDA(cuda);
  if (!HasMemory(120)) GTEST_SKIP() << "less than 120 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  const ConvGeometry geometry = *ConvGeometry::Create({.kind = ConvKind::kStrided,
                                                       .rule = OutputRule::kDilate,
                                                       .kernel = {kKernel, kKernel, kKernel}});
  const CoordinateSetPtr cube =
      *CoordinateSet::Create(Cube(0, kEdge - 1), {1, 1, 1}, cuda->context);
  const std::vector<Coordinate> expected = Cube(-kReach, kEdge - 1 + kReach);
  for (const char* spec : {"fused", "sort_unique", "staged"}) {
    const auto plugin = *registry.output_coords().Create(spec);
    const auto outputs = plugin->Compute(*cube, geometry, cuda->context);
    ASSERT_TRUE(outputs.ok()) << spec << ": " << outputs.status();
    ASSERT_EQ((*outputs)->size(), static_cast<int64_t>(expected.size())) << spec;
    EXPECT_TRUE(*CopyToHost((*outputs)->rows(), cuda->context) == expected) << spec;
  }
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
                    ->Copy(to.data, to.space, part.view().data, part.view().space, to.bytes(),
                           *context.stream)
                    .ok());
  }
  const Tensor weights =
      *Tensor::FromHost(std::vector<float>(c_in * c_out, 1.0f), c_in, c_out, context, DType::kF16);
  const auto dataflow = *registry.dataflows().Create(spec);
  Workspace workspace;
  const auto output =
      RunConvolution(*dataflow, map, input.view(), weights.view(), workspace, context);
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
  if (!HasMemory(30)) GTEST_SKIP() << "less than 30 GiB of device memory are free";
  const Registry registry = MakeRegistry();
  constexpr int64_t kRows = 2'200'000;
  constexpr int64_t kChannels = 1000;
  static_assert(kRows * kChannels > int64_t{1} << 31);
  std::vector<int32_t> rows(kRows);
  std::iota(rows.begin(), rows.end(), 0);
  PairList pairs;
  pairs.in = *CopyToBackend<int32_t>(rows, cuda->context);
  pairs.out = *CopyToBackend<int32_t>(rows, cuda->context);
  const KernelMap map(kRows, kRows, {0, kRows}, {MapLayout::kPairs}, std::move(pairs));
  for (const char* spec : {"direct", "fetch_on_demand", "gather_gemm_scatter",
                           "gather_gemm_scatter:map=coded_csr", "hash2col", "implicit_gemm"}) {
    ExpectSums(spec, registry, map, kChannels, 8, cuda->context);
    ExpectSums(spec, registry, map, 8, kChannels, cuda->context);
  }
}

}  // namespace
}  // namespace voxconv
