// SPDX-License-Identifier: Apache-2.0
// Whole networks against the fp64 oracle, on a piece of a real scan: every mapping with every
// dataflow, in each of their ways of working.
#include <gtest/gtest.h>

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "tests/support/session.h"
#include "voxconv/cli/input_options.h"
#include "voxconv/io/load_input.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/networks/reference_network.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/verify/problem.h"

namespace voxconv::testing {
namespace {

// Errors of single layers add up over some forty of them.
constexpr double kBound = 2e-5;
constexpr int64_t kVoxels = 400;
constexpr double kWidth = 0.25;

struct Crop {
  std::vector<Coordinate> rows;
  std::vector<float> features;
};

// The voxels nearest to the middle row; of the synthetic LiDAR where the real frame is missing.
Crop MakeCrop(int64_t channels) {
  std::string input = DataPath("semkitti_spvnas_000000.bin");
  if (!std::filesystem::exists(input)) input = "scene:lidar64";
  const auto cloud = LoadInput(input, {});
  VOXCONV_CHECK(cloud.ok() && cloud->size() >= kVoxels);
  const std::vector<Coordinate>& rows = cloud->coords;
  const std::vector<float> features = FeaturesWithChannels(*cloud, channels);
  Crop crop;
  for (int64_t i : verify::CropRows(rows, kVoxels)) {
    crop.rows.push_back(rows[i]);
    crop.features.insert(crop.features.end(), features.begin() + i * channels,
                         features.begin() + (i + 1) * channels);
  }
  return crop;
}

class NetworkTest : public ::testing::TestWithParam<std::string> {};

TEST_P(NetworkTest, EveryMappingWithEveryDataflowMatchesTheOracle) {
  auto graph = MakeModel(GetParam(), {.width = kWidth, .in_channels = 4});
  ASSERT_TRUE(graph.ok()) << graph.status();
  InitializeParameters(*graph, 5);
  const Crop crop = MakeCrop(4);
  const auto expected = RunReferenceNetwork(*graph, crop.rows, crop.features);
  ASSERT_TRUE(expected.ok()) << expected.status();

  const ExecutionContext context = CpuContext();
  const auto input = SparseTensor::Create(crop.rows, {1, 1, 1}, crop.features, 4, context);
  ASSERT_TRUE(input.ok()) << input.status();
  const Registry& registry = BuiltinRegistry();
  const std::string output_coords = registry.output_coords().entries().begin()->first;
  int compared = 0;
  const ConvGeometry geometry = *ConvGeometry::Create({});
  for (const std::string& mapping : registry.mappings().EnumVariants(BackendKind::kCpu)) {
    const auto plugin = registry.mappings().Create(mapping, BackendKind::kCpu);
    if (!(*plugin)->Supports(geometry).ok) continue;  // CUDA's alone
    for (const std::string& dataflow : registry.dataflows().EnumVariants(BackendKind::kCpu)) {
      SCOPED_TRACE(absl::StrCat(mapping, " / ", dataflow));
      const RunConfig config{
          .planner = std::make_shared<FixedPlanner>(LayerChoice{mapping, dataflow, output_coords})};
      auto runner = NetworkRunner::Create(*graph, config, registry, Cpu());
      ASSERT_TRUE(runner.ok()) << runner.status();
      const auto result = (*runner)->Run(input->view());
      ASSERT_TRUE(result.ok()) << result.status();
      const auto rows = CopyToHost(result->output.coordinates()->rows(), context);
      const auto values = result->output.features().ToHost(context);
      ASSERT_TRUE(rows.ok() && values.ok());
      EXPECT_EQ(*rows, expected->coordinates);
      EXPECT_LE(reference::RelativeError(*values, expected->features), kBound);
      ++compared;
    }
  }
  EXPECT_GT(compared, 0);
}

INSTANTIATE_TEST_SUITE_P(Models, NetworkTest, ::testing::ValuesIn(ModelNames()));

}  // namespace
}  // namespace voxconv::testing
