// SPDX-License-Identifier: Apache-2.0
// What is held against the definition and the exact sums on the whole input: the same fault on both
// sides of a comparison must not pass, wherever on the input it is.
#include <algorithm>
#include <functional>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/saboteurs/pairs.h"
#include "tests/saboteurs/wrapped_dataflow.h"
#include "tests/saboteurs/wrapped_mapping.h"
#include "tests/support/session.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/cli/session.h"
#include "voxconv/core/map_check.h"
#include "voxconv/measure/ab/trial.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/verify/problem.h"
#include "voxconv/verify/sampled_rows.h"

namespace voxconv::ab {
namespace {

using testing::ConvCall;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using testing::MapCall;
using testing::Pairs;

// More than the reference is given.
constexpr int64_t kMany = 2500;

// All outputs but their last voxel.
class ShortCoords final : public OutputCoords {
 public:
  explicit ShortCoords(std::unique_ptr<const OutputCoords> right) : right_(std::move(right)) {}
  const Options& options() const override { return right_->options(); }
  Support DoSupports(const ConvGeometry& geometry) const override {
    return right_->Supports(geometry);
  }

 protected:
  absl::StatusOr<CoordinateSetPtr> DoCompute(const CoordinateSet& inputs,
                                             const ConvGeometry& geometry,
                                             const ExecutionContext& context) const override {
    VOXCONV_ASSIGN_OR_RETURN(CoordinateSetPtr set, right_->Compute(inputs, geometry, context));
    if (inputs.size() < kMany) return set;
    VOXCONV_ASSIGN_OR_RETURN(std::vector<Coordinate> rows, CopyToHost(set->rows(), context));
    rows.pop_back();
    return CoordinateSet::Create(rows, geometry.output_tensor_stride(), context);
  }

 private:
  std::unique_ptr<const OutputCoords> right_;
};

class AllRowsTest : public ::testing::Test {
 protected:
  void SetUp() override {
    registry_ = testing::BuiltinRegistry();
    const auto map_fault = [&](const std::string& name, std::function<void(Pairs&)> change) {
      ASSERT_EQ(testing::RegisterWrapped(
                    name, testing::BuiltinRegistry(), "hash",
                    [change = std::move(change)](const MapCall&, Pairs& pairs) {
                      if (pairs.num_inputs > kMany) change(pairs);
                    },
                    registry_),
                absl::OkStatus());
    };
    map_fault("loses_last", [](Pairs& pairs) { pairs.DropLast(); });
    map_fault("leaves_range",
              [](Pairs& pairs) { pairs.in.back() = static_cast<int32_t>(pairs.num_inputs); });
    map_fault("is_negative", [](Pairs& pairs) { pairs.in.front() = -7; });
    map_fault("has_wrong_rows", [](Pairs& pairs) { pairs.in[1] = pairs.in[0]; });
    ASSERT_EQ(testing::RegisterWrapped(
                  "zeroes_end", testing::BuiltinRegistry(), "gather_gemm_scatter",
                  [](const ConvCall& call) { return ZeroEnd(call); }, registry_),
              absl::OkStatus());
    ASSERT_EQ(registry_.output_coords().Register(
                  {.name = "short", .summary = "for this test"}, BackendKind::kCpu,
                  [](const Options&) -> absl::StatusOr<std::unique_ptr<const OutputCoords>> {
                    VOXCONV_ASSIGN_OR_RETURN(auto right,
                                             testing::BuiltinRegistry().output_coords().Create(
                                                 "sort_unique", BackendKind::kCpu));
                    return std::make_unique<ShortCoords>(std::move(right));
                  }),
              absl::OkStatus());
    backend_ = *CpuBackend::Create({.threads = 1});
    for (int x = 0; x < 60; ++x) {
      for (int y = 0; y < 60; ++y) cloud_.coords.push_back({0, x, y, (x * y) % 3});
    }
    cloud_.features.assign(cloud_.coords.size(), 1.0f);
    cloud_.channels = 1;
  }

  // The last row is 0 where there are many.
  static absl::Status ZeroEnd(const ConvCall& call) {
    VOXCONV_RETURN_IF_ERROR(call.RunRight());
    if (call.output.rows < kMany) return absl::OkStatus();
    std::vector<float> values(call.output.f32(),
                              call.output.f32() + call.output.rows * call.output.channels);
    std::fill_n(values.end() - call.output.channels, call.output.channels, 0.0f);
    return testing::Overwrite(call.output, values, call.context);
  }

  ExecutionContext context() { return {backend_.get(), &backend_->main_stream(), nullptr}; }
  static measure::Configuration Configured(const std::string& mapping, const std::string& dataflow,
                                           const std::string& coords = "sort_unique") {
    measure::Configuration configuration;
    configuration.choice = {mapping, dataflow, coords};
    return configuration;
  }
  absl::Status VerifyLayer(const measure::Configuration& both, const LayerShape& shape) {
    const Request request{both, both, cloud_};
    VOXCONV_ASSIGN_OR_RETURN(const Work work, MakeLayerWork(request, shape, registry_, context()));
    return Verifier(registry_, context()).Verify(request, work, "input").status();
  }
  absl::Status VerifyNetwork(const measure::Configuration& both) {
    const Request request{both, both, cloud_};
    VOXCONV_ASSIGN_OR_RETURN(
        const Work work, MakeNetworkWork(request, {"sparseresnet21", 0.25}, registry_, context()));
    return Verifier(registry_, context()).Verify(request, work, "input").status();
  }

  Registry registry_;
  std::unique_ptr<CpuBackend> backend_;
  VoxelizedCloud cloud_;
  const LayerShape submanifold_{{.kind = ConvKind::kSubmanifold}, 4, 8};
  const LayerShape strided_{
      {.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}}, 4, 8};
};

TEST_F(AllRowsTest, RightSidesPass) {
  const auto right = Configured("hash", "gather_gemm_scatter");
  EXPECT_EQ(VerifyLayer(right, submanifold_), absl::OkStatus());
  EXPECT_EQ(VerifyLayer(right, strided_), absl::OkStatus());
  LayerShape inverse = strided_;
  inverse.geometry.kind = ConvKind::kInverse;
  EXPECT_EQ(VerifyLayer(right, inverse), absl::OkStatus());
  LayerShape transposed = strided_;
  transposed.geometry.kind = ConvKind::kTransposed;
  EXPECT_EQ(VerifyLayer(right, transposed), absl::OkStatus());
  EXPECT_EQ(VerifyNetwork(right), absl::OkStatus());
}

TEST_F(AllRowsTest, OneFaultInBothMappingsIsFound) {
  for (const char* mapping : {"loses_last", "leaves_range", "is_negative", "has_wrong_rows"}) {
    SCOPED_TRACE(mapping);
    const auto both = Configured(mapping, "gather_gemm_scatter");
    EXPECT_THAT(std::string(VerifyLayer(both, submanifold_).message()),
                HasSubstr("the kernel map is wrong"));
    EXPECT_THAT(std::string(VerifyNetwork(both).message()), HasSubstr("the kernel map is wrong"));
    const Request request{both, both, cloud_};
    EXPECT_THAT(std::string(MakeMapWork(request, {}, registry_, context()).status().message()),
                HasSubstr("the kernel map is wrong"));
  }
}

TEST_F(AllRowsTest, OneFaultInBothOutputCoordinatesIsFound) {
  const auto both = Configured("hash", "gather_gemm_scatter", "short");
  EXPECT_THAT(std::string(VerifyLayer(both, strided_).message()),
              HasSubstr("the output coordinates are wrong: there are"));
  EXPECT_THAT(std::string(VerifyNetwork(both).message()),
              HasSubstr("the output coordinates are wrong"));
}

TEST_F(AllRowsTest, OneFaultInBothDataflowsIsFoundAtTheEndOfTheInput) {
  const auto both = Configured("hash", "zeroes_end");
  EXPECT_THAT(std::string(VerifyLayer(both, submanifold_).message()),
              HasSubstr("output row 3599 of 3600"));
  EXPECT_THAT(std::string(VerifyNetwork(both).message()),
              HasSubstr("from that of the trusted pair"));
}

TEST_F(AllRowsTest, TheLineSaysWhatWasHeld) {
  const auto right = Configured("hash", "gather_gemm_scatter");
  const Request request{right, right, cloud_};
  const auto work = MakeLayerWork(request, submanifold_, registry_, context());
  ASSERT_EQ(work.status(), absl::OkStatus());
  const auto verified = Verifier(registry_, context()).Verify(request, *work, "input");
  ASSERT_EQ(verified.status(), absl::OkStatus());
  EXPECT_EQ(verified->checks["maps"], "all rows");
  EXPECT_EQ(verified->checks["held"]["by"], "sampled rows");
  EXPECT_EQ(verified->held.rows, 1000);
}

TEST(SpreadRowsTest, FirstAndLastAreAmongThem) {
  EXPECT_THAT(verify::SpreadRows(10, 4), ElementsAre(0, 3, 6, 9));
  EXPECT_THAT(verify::SpreadRows(3, 50), ElementsAre(0, 1, 2));
  EXPECT_THAT(verify::SpreadRows(1, 50), ElementsAre(0));
  EXPECT_TRUE(verify::SpreadRows(0, 50).empty());
}

// The two definitions share no code: they must say the same of every kind of layer.
TEST(MapCheckTest, AcceptsWhatTheReferenceFindsAndNothingElse) {
  const auto backend = *CpuBackend::Create({.threads = 1});
  const ExecutionContext context{backend.get(), &backend->main_stream(), nullptr};
  int checked = 0;
  for (const verify::NamedGeometry& geometry : verify::Geometries()) {
    for (const verify::Scene& scene : verify::Scenes()) {
      const auto problem = verify::MakeProblem(geometry, scene);
      if (problem == nullptr) continue;
      SCOPED_TRACE(problem->id);
      const auto inputs = problem->MakeInputs(context);
      ASSERT_EQ(inputs.status(), absl::OkStatus());
      const auto outputs = problem->MakeOutputs(*inputs, context);
      ASSERT_EQ(outputs.status(), absl::OkStatus());
      const MapProblem map_problem{**inputs, **outputs, problem->geometry};
      const auto make = [&](const std::vector<int64_t>& offset_ptr, const std::vector<int32_t>& in,
                            const std::vector<int32_t>& out) {
        PairBuffers pairs;
        pairs.in = *CopyToBackend<int32_t>(in, context);
        pairs.out = *CopyToBackend<int32_t>(out, context);
        KernelMap map((*inputs)->size(), (*outputs)->size(), offset_ptr,
                      PairList(std::move(pairs)));
        map.set_identity_offset(problem->geometry.center());
        map.set_symmetric(problem->geometry.symmetric());
        return map;
      };
      const auto& [offsets, offset_ptr, in, out] = problem->map;
      EXPECT_EQ(CheckMapOnAllRows(make(offset_ptr, in, out), map_problem, context),
                absl::OkStatus());
      const ConvGeometry& g = problem->geometry;
      if (g.kind() == ConvKind::kStrided || g.kind() == ConvKind::kTransposed) {
        EXPECT_EQ(CheckOutputsOnAllRows(g, **inputs, **outputs, context), absl::OkStatus());
      }
      ++checked;
      if (in.empty()) continue;
      std::vector<int64_t> shorter = offset_ptr;
      for (int64_t& end : shorter) end = std::min<int64_t>(end, in.size() - 1);
      const std::vector<int32_t> in_but_one(in.begin(), in.end() - 1);
      const std::vector<int32_t> out_but_one(out.begin(), out.end() - 1);
      EXPECT_EQ(
          CheckMapOnAllRows(make(shorter, in_but_one, out_but_one), map_problem, context).code(),
          absl::StatusCode::kInternal);
      std::vector<int32_t> moved = in;
      moved[in.size() / 2] = (moved[in.size() / 2] + 1) % static_cast<int32_t>((*inputs)->size());
      if (moved != in) {
        EXPECT_EQ(CheckMapOnAllRows(make(offset_ptr, moved, out), map_problem, context).code(),
                  absl::StatusCode::kInternal);
      }
    }
  }
  EXPECT_GT(checked, 100);
}

}  // namespace
}  // namespace voxconv::ab
