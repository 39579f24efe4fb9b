// SPDX-License-Identifier: Apache-2.0
// The bounds on whole networks, and what the comparison layer by layer finds.
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/saboteurs/faults.h"
#include "tests/saboteurs/wrapped_dataflow.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/cli/session.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/verify/matrix.h"
#include "voxconv/verify/network_bound.h"
#include "voxconv/verify/network_layers.h"

namespace voxconv::verify {
namespace {

using ::testing::HasSubstr;

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                     Precision::kBF16};

// One input channel does not count at one kernel offset.
voxconv::testing::DataflowFault LosesAChannel() {
  for (const auto& fault : voxconv::testing::DataflowFaults()) {
    if (std::string(fault.name) == "channel_lost_at_one_offset") return fault.fault;
  }
  return nullptr;
}

class NetworkLayersTest : public ::testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    auto graph = MakeModel(GetParam(), {.width = 0.25, .in_channels = 4});
    ASSERT_TRUE(graph.ok()) << graph.status();
    model_ = *std::move(graph);
    InitializeParameters(model_, 1);
    for (int32_t x = 0; x < 16; ++x) {
      for (int32_t y = 0; y < 16; ++y) rows_.push_back({0, x, y, (x * x + y) / 9 % 7});
    }
    features_ = Values(static_cast<int64_t>(rows_.size()) * 4, 5);
  }

  NetworkGraph model_;
  std::vector<Coordinate> rows_;
  std::vector<float> features_;
};

INSTANTIATE_TEST_SUITE_P(Models, NetworkLayersTest, ::testing::ValuesIn(ModelNames()));

TEST_P(NetworkLayersTest, BoundsAreAboveHonestErrorsAndBelowTheGraphsBound) {
  for (const Precision precision : kPrecisions) {
    SCOPED_TRACE(ToString(precision));
    const auto graph = FoldedAndRounded(model_, precision);
    ASSERT_TRUE(graph.ok()) << graph.status();
    const std::vector<float> features = RoundedTo(precision, features_);
    const auto layers = NetworkLayers::Create(*graph, precision, rows_, features);
    ASSERT_TRUE(layers.ok()) << layers.status();
    // An honest run: every layer computes in f32 or better and stores its output in the dtype.
    const Precision storage = PrecisionOf(StorageOf(precision));
    const auto honest = RunReferenceNetwork(
        *graph, rows_, features, [&](const ReferenceLayer&, std::vector<double>& output) {
          std::vector<float> stored = RoundedTo(storage, {output.begin(), output.end()});
          output.assign(stored.begin(), stored.end());
        });
    ASSERT_TRUE(honest.ok()) << honest.status();
    const double error = reference::RelativeError(honest->features, layers->result().features);
    RecordProperty(
        std::string(ToString(precision)),
        absl::StrCat(error, " of ", layers->bound(), " of ", NetworkBound(*graph, precision)));
    EXPECT_LT(error, layers->bound() / 2);
    EXPECT_LT(layers->bound(), NetworkBound(*graph, precision));
    if (precision == Precision::kBF16) {
      EXPECT_LT(layers->bound(), 0.06);
    }
  }
}

TEST_P(NetworkLayersTest, RightPluginsPassAndALostChannelIsNamedByItsLayer) {
  Registry registry;
  ASSERT_TRUE(RegisterAllPlugins({}, registry).ok());
  const auto backend = *CpuBackend::Create({.threads = 1});
  const ExecutionContext context = ContextOf(*backend);
  const auto graph = FoldedAndRounded(model_, Precision::kF32);
  ASSERT_TRUE(graph.ok()) << graph.status();
  const auto layers = NetworkLayers::Create(*graph, Precision::kF32, rows_, features_);
  ASSERT_TRUE(layers.ok()) << layers.status();
  const auto mapping = registry.mappings().Create("hash", BackendKind::kCpu);
  const std::string name = registry.output_coords().entries().begin()->first;
  const auto output_coords = registry.output_coords().Create(name, BackendKind::kCpu);
  const auto dataflow = registry.dataflows().Create("direct", BackendKind::kCpu);
  ASSERT_TRUE(mapping.ok() && output_coords.ok() && dataflow.ok());
  EXPECT_EQ(layers->CheckConvolutions(**mapping, **output_coords, **dataflow, context),
            absl::OkStatus());
  EXPECT_EQ(layers->CheckOperators(context), absl::OkStatus());
  Registry faults;
  ASSERT_EQ(voxconv::testing::RegisterWrapped("loses_a_channel", registry, "direct",
                                              LosesAChannel(), faults),
            absl::OkStatus());
  const auto faulty = faults.dataflows().Create("loses_a_channel", BackendKind::kCpu);
  ASSERT_TRUE(faulty.ok()) << faulty.status();
  const absl::Status found =
      layers->CheckConvolutions(**mapping, **output_coords, **faulty, context);
  EXPECT_THAT(std::string(found.message()), HasSubstr("layer '"));
  EXPECT_THAT(std::string(found.message()), HasSubstr("the bound on the error"));
}

TEST(NetworkBound, AllowsForOperandsOnlyBetweenPrecisions) {
  auto graph = MakeModel("minkunet42", {});
  ASSERT_TRUE(graph.ok());
  const double same = NetworkBound(*graph, Precision::kBF16);
  EXPECT_LT(same, 0.12);
  // One run's share of `same`, and the operands.
  EXPECT_GT(NetworkBound(*graph, Precision::kBF16, Precision::kF32), 1.1 * same / std::sqrt(2.0));
  EXPECT_LT(NetworkBound(*graph, Precision::kF32), 1e-4);
}

}  // namespace
}  // namespace voxconv::verify
