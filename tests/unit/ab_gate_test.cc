// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/cli/session.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/measure/ab/gate.h"
#include "voxconv/measure/ab/work.h"

namespace voxconv::ab {
namespace {

using ::testing::HasSubstr;

// Correct but for the last pair, which is lost.
class LossyMapping final : public Mapping {
 public:
  explicit LossyMapping(std::unique_ptr<const Mapping> inner) : inner_(std::move(inner)) {}
  const Options& options() const override { return options_; }
  Support DoSupports(const ConvGeometry&) const override { return Support::Yes(); }

 protected:
  absl::StatusOr<std::unique_ptr<MapIndex>> DoBuildIndex(
      const CoordinateSet& inputs, const ExecutionContext& context) const override {
    return inner_->BuildIndex(inputs, context);
  }
  absl::StatusOr<KernelMap> DoQuery(const MapIndex& index, const MapProblem& problem,
                                    const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap queried, inner_->Query(index, problem, context));
    VOXCONV_ASSIGN_OR_RETURN(const KernelMap map,
                             context.backend->map_ops().To(MapForm::kPairs, queried, context));
    VOXCONV_ASSIGN_OR_RETURN(std::vector<int32_t> in, CopyToHost(map.pairs().in.array(), context));
    VOXCONV_ASSIGN_OR_RETURN(std::vector<int32_t> out,
                             CopyToHost(map.pairs().out.array(), context));
    in.pop_back();
    out.pop_back();
    std::vector<int64_t> offset_ptr = map.offset_ptr();
    for (int64_t& end : offset_ptr) end = std::min<int64_t>(end, in.size());
    PairList pairs;
    VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(in, context));
    VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(out, context));
    return KernelMap(map.num_inputs(), map.num_outputs(), offset_ptr, std::move(pairs));
  }

 private:
  std::unique_ptr<const Mapping> inner_;
  Options options_;
};

class GateTest : public ::testing::Test {
 protected:
  void SetUp() override {
    ASSERT_TRUE(RegisterAllPlugins({}, registry_).ok());
    ASSERT_TRUE(registry_.mappings()
                    .Register({.name = "lossy", .summary = "loses a pair"}, BackendKind::kCpu,
                              [this](Options) -> absl::StatusOr<std::unique_ptr<const Mapping>> {
                                VOXCONV_ASSIGN_OR_RETURN(
                                    auto inner,
                                    registry_.mappings().Create("hash", BackendKind::kCpu));
                                return std::make_unique<LossyMapping>(std::move(inner));
                              })
                    .ok());
    backend_ = *CpuBackend::Create({.threads = 1});
    for (int x = 0; x < 20; ++x) {
      for (int y = 0; y < 20; ++y) cloud_.coords.push_back({0, x, y, (x * y) % 3});
    }
    cloud_.features.assign(cloud_.coords.size(), 1.0f);
    cloud_.channels = 1;
  }
  ExecutionContext context() { return {backend_.get(), &backend_->main_stream(), nullptr}; }
  absl::StatusOr<verify::CropCheck> CheckOnCrop(const measure::Configuration& configuration) {
    VOXCONV_ASSIGN_OR_RETURN(const auto reference,
                             MakeCropReference(shape_, cloud_.coords, verify::kCropVoxels));
    return CheckAgainst(reference, configuration, registry_, context());
  }
  static measure::Configuration Configured(const std::string& mapping) {
    measure::Configuration configuration;
    configuration.choice = {mapping, "gather_gemm_scatter", "sort_unique"};
    return configuration;
  }

  Registry registry_;
  std::unique_ptr<CpuBackend> backend_;
  VoxelizedCloud cloud_;
  LayerShape shape_{{.kind = ConvKind::kSubmanifold}, 4, 8};
};

TEST_F(GateTest, CropTakesTheNearestInOrder) {
  std::vector<Coordinate> rows;
  for (int x = 0; x < 101; ++x) rows.push_back({0, x, 0, 0});
  const std::vector<int64_t> crop = verify::CropRows(rows, 5);
  ASSERT_EQ(crop.size(), 5u);
  EXPECT_EQ(crop.front(), 48);
  EXPECT_EQ(crop.back(), 52);
  EXPECT_EQ(verify::CropRows(rows, 500).size(), 101u);
}

TEST_F(GateTest, MapsOfAnInputAreHeldOnceForEachConfiguration) {
  HeldBefore held;
  const auto work = [&](const std::string& a, const std::string& b) {
    const measure::Configuration side_a = Configured(a), side_b = Configured(b);
    return MakeLayerWork({.a = side_a, .b = side_b, .cloud = cloud_, .held_before = &held}, shape_,
                         registry_, context())
        .status();
  };
  EXPECT_EQ(work("hash", "hash"), absl::OkStatus());
  EXPECT_EQ(held.maps.size(), 1u);
  EXPECT_EQ(work("hash", "grid"), absl::OkStatus());
  EXPECT_EQ(held.maps.size(), 2u);
  // Nothing that passed lets another mapping pass, and what failed is not noted.
  EXPECT_THAT(std::string(work("hash", "lossy").message()), HasSubstr("side B"));
  EXPECT_EQ(held.maps.size(), 2u);
  shape_.geometry.dilation = {2, 2, 2};
  EXPECT_EQ(work("hash", "grid"), absl::OkStatus());
  EXPECT_EQ(held.maps.size(), 4u);
}

TEST_F(GateTest, TheCpuHasNoSidesToCapture) {
  const measure::Configuration side = Configured("hash");
  const auto work = MakeLayerWork({.a = side, .b = side, .cloud = cloud_, .rebuild_maps = false},
                                  shape_, registry_, context());
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_FALSE(work->a.capture);
}

TEST_F(GateTest, RightConfigurationPasses) {
  const auto check = CheckOnCrop(Configured("hash"));
  ASSERT_TRUE(check.ok()) << check.status();
  EXPECT_EQ(check->voxels, 400);
  EXPECT_LE(check->error, check->bound);
}

TEST_F(GateTest, LostPairIsFoundByTheReferenceAndByTheOtherSide) {
  const auto check = CheckOnCrop(Configured("lossy"));
  EXPECT_EQ(check.status().code(), absl::StatusCode::kInternal) << check.status();
  const Request request{Configured("hash"), Configured("lossy"), cloud_};
  const auto work = MakeLayerWork(request, shape_, registry_, context());
  EXPECT_THAT(std::string(work.status().message()), HasSubstr("kernel map is wrong"));
}

TEST_F(GateTest, LostPairIsFoundBeforeANetworkIsMade) {
  const Request same{Configured("hash"), Configured("sorted_search"), cloud_};
  EXPECT_EQ(CheckSameMaps(same, shape_, registry_, context()), absl::OkStatus());
  const Request lossy{Configured("hash"), Configured("lossy"), cloud_};
  EXPECT_THAT(std::string(CheckSameMaps(lossy, shape_, registry_, context()).message()),
              HasSubstr("kernel map is wrong"));
  const auto work = MakeNetworkWork(lossy, {"minkunet42", 0.25}, registry_, context());
  EXPECT_THAT(std::string(work.status().message()), HasSubstr("kernel map is wrong"));
}

TEST_F(GateTest, OutputsBeyondTheBoundAreRefused) {
  const Request request{Configured("hash"), Configured("hash"), cloud_};
  auto work = MakeLayerWork(request, shape_, registry_, context());
  ASSERT_TRUE(work.ok()) << work.status();
  EXPECT_TRUE(CompareOutputs(*work).ok());
  work->b.output = [output = work->b.output]() -> absl::StatusOr<std::vector<float>> {
    VOXCONV_ASSIGN_OR_RETURN(std::vector<float> values, output());
    values[7] += 0.1f;
    return values;
  };
  EXPECT_THAT(std::string(CompareOutputs(*work).status().message()), HasSubstr("differ"));
}

}  // namespace
}  // namespace voxconv::ab
