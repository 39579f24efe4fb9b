// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "mapping_cases.h"
#include "voxconv/mapping/output_coords/register.h"

namespace voxconv {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

std::vector<std::unique_ptr<const OutputCoords>> AllPlugins() {
  Registry registry;
  EXPECT_TRUE(RegisterOutputCoords(registry).ok());
  EXPECT_EQ(RegisterOutputCoords(registry).code(), absl::StatusCode::kAlreadyExists);
  std::vector<std::unique_ptr<const OutputCoords>> plugins;
  for (const std::string& spec : registry.output_coords().Variants(BackendKind::kCpu)) {
    plugins.push_back(*registry.output_coords().Create(spec, BackendKind::kCpu));
  }
  EXPECT_EQ(plugins.size(), 6u);
  return plugins;
}

void ExpectOutputs(const MapCase& c, const OutputCoords& plugin) {
  SCOPED_TRACE(c.name);
  const ConvGeometry geometry = *ConvGeometry::Create(c.params);
  const std::vector<Coordinate> expected = BruteForceOutputs(c.inputs, geometry);
  for (int threads : {1, 2}) {
    UnitCpu cpu(threads);
    const auto inputs =
        *CoordinateSet::Create(c.inputs, geometry.input_tensor_stride(), cpu.context);
    const auto outputs = plugin.Compute(*inputs, geometry, cpu.context);
    ASSERT_TRUE(outputs.ok()) << outputs.status();
    EXPECT_EQ(*CopyToHost((*outputs)->rows(), cpu.context), expected);
    const auto checked =
        *CoordinateSet::Create(expected, geometry.output_tensor_stride(), cpu.context);
    EXPECT_EQ((*outputs)->tensor_stride(), checked->tensor_stride());
    EXPECT_EQ((*outputs)->bounds(), checked->bounds());
    EXPECT_EQ((*outputs)->num_batches(), inputs->num_batches());
    EXPECT_TRUE((*outputs)->sorted());
    EXPECT_EQ(cpu.profile.visits[static_cast<int>(Stage::kOutputCoords)], 1);
  }
}

TEST(OutputCoordsTest, EveryPluginFindsExactlyTheOutputs) {
  for (const auto& plugin : AllPlugins()) {
    int computed = 0;
    for (const MapCase& c : MapCases()) {
      const ConvGeometry geometry = *ConvGeometry::Create(c.params);
      if (!plugin->Supports(geometry).ok) continue;
      ExpectOutputs(c, *plugin);
      ++computed;
    }
    EXPECT_GE(computed, 10);
  }
}

TEST(OutputCoordsTest, ManyRows) {
  const std::vector<Coordinate> rows = RandomVoxels(15000, {0, 2}, -25, 24, {1, 1, 1}, 3);
  const MapCase dilate = Layer("dilate", rows, Dilate({3, 3, 3}, {2, 2, 2}));
  const MapCase quantize = Layer("quantize", rows, Quantize({3, 3, 3}, {2, 2, 2}));
  for (const auto& plugin : AllPlugins()) {
    ExpectOutputs(dilate, *plugin);
    ExpectOutputs(quantize, *plugin);
  }
}

// Each set of a chain is made of the one before.
TEST(OutputCoordsTest, AChainIsItsLayersOneAfterTheOther) {
  UnitCpu cpu(2);
  const auto inputs = *CoordinateSet::Create(RandomVoxels(500, {0, 2}, -25, 24, {1, 1, 1}, 3),
                                             {1, 1, 1}, cpu.context);
  const std::vector<ConvGeometry> chain = {
      *ConvGeometry::Create(Dilate({3, 3, 3}, {2, 2, 2})),
      *ConvGeometry::Create(Quantize({2, 2, 2}, {2, 2, 2}, {1, 1, 1}, {2, 2, 2}))};
  for (const auto& plugin : AllPlugins()) {
    auto pending = plugin->Begin(*inputs, chain, cpu.context);
    ASSERT_TRUE(pending.ok()) << pending.status();
    const auto sets = OutputCoords::Finish(*std::move(pending), cpu.context);
    ASSERT_TRUE(sets.ok()) << sets.status();
    ASSERT_EQ(sets->size(), 2u);
    const CoordinateSet* last = inputs.get();
    for (size_t i = 0; i < 2; ++i) {
      const auto expected = *plugin->Compute(*last, chain[i], cpu.context);
      EXPECT_EQ(*CopyToHost((*sets)[i]->rows(), cpu.context),
                *CopyToHost(expected->rows(), cpu.context));
      EXPECT_EQ((*sets)[i]->tensor_stride(), chain[i].output_tensor_stride());
      last = (*sets)[i].get();
    }
  }
}

// The first output outside the range is named; one that bounds or the lattice drop is no error.
TEST(OutputCoordsTest, RefusesOutputsOutsideTheRange) {
  struct {
    GeometryParams params;
    Coordinate input;
    std::string message;
  } cases[] = {
      {Quantize({3, 3, 3}, {3, 3, 3}), {0, 0, kMinCoordinate, 0}, "y = -131073"},
      {Dilate({3, 3, 3}, {2, 2, 2}), {0, 0, 0, kMaxCoordinate}, "z = 131072"},
      {Transposed({3, 3, 3}, {1, 1, 1}), {0, kMinCoordinate, 0, 0}, "x = -131073"},
      {Dilate({1, 1, 3}, {2, 2, 1}), {0, 1, 0, kMaxCoordinate}, ""},
  };
  for (const auto& plugin : AllPlugins()) {
    for (const auto& [params, input, message] : cases) {
      UnitCpu cpu(1);
      const auto set = *CoordinateSet::Create({input}, {1, 1, 1}, cpu.context);
      const auto outputs = plugin->Compute(*set, *ConvGeometry::Create(params), cpu.context);
      if (message.empty()) {
        ASSERT_TRUE(outputs.ok()) << outputs.status();
        EXPECT_EQ((*outputs)->size(), 0);
        continue;
      }
      EXPECT_EQ(outputs.status().code(), absl::StatusCode::kOutOfRange);
      EXPECT_THAT(outputs.status().message(),
                  AllOf(HasSubstr(message), HasSubstr("allowed are -131072..131071")));
    }
  }
}

// The box of these rows has 2^59 cells. A hash table takes the place of an array.
TEST(OutputCoordsTest, LocationTableOfAWideBox) {
  const std::vector<Coordinate> rows = {{0, kMinCoordinate, kMinCoordinate, kMinCoordinate},
                                        {0, 5, 4, 3},
                                        {0, 4, 5, 2},
                                        {31, kMaxCoordinate, kMaxCoordinate, kMaxCoordinate}};
  Registry registry;
  ASSERT_TRUE(RegisterOutputCoords(registry).ok());
  for (const std::string spec : {"location_table", "location_table:memory_limit_mib=1048576"}) {
    const auto plugin = *registry.output_coords().Create(spec, BackendKind::kCpu);
    ExpectOutputs(Layer("wide", rows, Quantize({2, 2, 2}, {2, 2, 2})), *plugin);
  }
  const auto refused =
      registry.output_coords().Create("location_table:memory_limit_mib=0", BackendKind::kCpu);
  EXPECT_THAT(std::string(refused.status().message()), HasSubstr("memory_limit_mib"));
}

// An array of 8 GiB, of which two pages are written.
TEST(OutputCoordsTest, LocationTableOnlyReservesItsArray) {
  UnitCpu cpu(1, /*memory_limit=*/1 << 20);
  const auto set =
      *CoordinateSet::Create({{0, 0, 0, 0}, {0, 2047, 2047, 2047}}, {1, 1, 1}, cpu.context);
  Registry registry;
  ASSERT_TRUE(RegisterOutputCoords(registry).ok());
  const ConvGeometry geometry = *ConvGeometry::Create(Quantize({2, 2, 2}, {2, 2, 2}));
  const auto outputs = (*registry.output_coords().Create("location_table", BackendKind::kCpu))
                           ->Compute(*set, geometry, cpu.context);
  ASSERT_TRUE(outputs.ok()) << outputs.status();
  EXPECT_EQ((*outputs)->size(), 2);
}

TEST(OutputCoordsTest, RefusesWithReason) {
  const ConvGeometry submanifold = *ConvGeometry::Create({});
  for (const auto& plugin : AllPlugins()) {
    EXPECT_THAT(plugin->Supports(submanifold).reason, HasSubstr("submanifold"));
  }
}

}  // namespace
}  // namespace voxconv
