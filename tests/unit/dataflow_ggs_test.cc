// SPDX-License-Identifier: Apache-2.0
#include <string>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dataflow_test_util.h"
#include "gtest/gtest.h"
#include "voxconv/dataflows/gather_gemm_scatter/grouping.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"

namespace voxconv {
namespace {

class GatherGemmScatterTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(RegisterGatherGemmScatter(registry_).ok()); }

  ConvResult RunSpec(const std::string& options, const ConvProblem& problem,
                     absl::StatusCode code = absl::StatusCode::kOk) const {
    return RunDataflow(registry_, absl::StrCat("gather_gemm_scatter:", options), problem, 1, code);
  }

  // Those that the CPU runs: some are of CUDA's options.
  std::vector<std::string> CpuVariants() const {
    std::vector<std::string> variants = registry_.dataflows().Variants(BackendKind::kCpu);
    std::erase_if(variants, [this](const std::string& spec) {
      const auto dataflow = *registry_.dataflows().Create(spec, BackendKind::kCpu);
      return !dataflow->Supports(Pass::kForward, {.c_in = 4, .c_out = 4}).ok;
    });
    return variants;
  }

  Registry registry_;
};

// Skewed sizes, an empty offset, outputs without pairs, more inputs than outputs.
HostMap StridedLikeMap() { return RandomMap(160, 90, {40, 3, 0, 71, 12, 70, 1, 35}, 3); }

TEST_F(GatherGemmScatterTest, EveryVariantEqualsBruteForce) {
  const std::vector<ConvProblem> problems = {{SubmanifoldMap(7, 0.4, 1), 8, 20},
                                             {StridedLikeMap(), 5, 3}};
  for (const std::string& spec : CpuVariants()) {
    for (const ConvProblem& problem : problems) CheckVariant(registry_, spec, problem);
  }
}

TEST_F(GatherGemmScatterTest, AnyChannelsAndTiles) {
  const HostMap map = SubmanifoldMap(5, 0.5, 2);
  for (int c_in : {1, 3, 33}) {
    for (int c_out : {1, 3, 33, 64}) {
      for (const char* options : {"", "tile=5", "order=weight,map=coded_csr,tile=16"}) {
        const ConvProblem problem(map, c_in, c_out);
        ExpectNear(RunSpec(options, problem).output, problem, options);
      }
    }
  }
}

TEST_F(GatherGemmScatterTest, EmptyAndIdentityMaps) {
  HostMap identity = RandomMap(20, 20, {0}, 1);
  for (int32_t i = 0; i < 20; ++i) identity.pairs[0].emplace_back(i, i);
  identity.symmetric = true;
  identity.identity_offset = 0;
  const std::vector<HostMap> maps = {RandomMap(0, 0, {0, 0, 0}, 1), RandomMap(5, 0, {0, 0}, 1),
                                     RandomMap(0, 5, {0, 0}, 1),    RandomMap(5, 6, {0, 0, 0}, 1),
                                     RandomMap(1, 1, {1}, 1),       identity};
  for (const char* options : {"", "order=weight", "map=coded_csr", "grouping=fixed"}) {
    for (const HostMap& map : maps) {
      const ConvProblem problem(map, 3, 2);
      ExpectNear(RunSpec(options, problem).output, problem, options);
    }
  }
}

TEST_F(GatherGemmScatterTest, BitwiseTheSameForAnyThreadCount) {
  const ConvProblem problem(SubmanifoldMap(14, 0.5, 5), 16, 24);
  for (const std::string& spec : CpuVariants()) CheckVariant(registry_, spec, problem);
}

TEST_F(GatherGemmScatterTest, CountersFollowTheGrouping) {
  const ConvProblem problem(SubmanifoldMap(10, 0.3, 4), 4, 4);
  const int64_t pairs = problem.map.num_pairs();
  const auto count = [&](const std::string& options) {
    const Counters counters = RunSpec(options, problem).profile.counters;
    EXPECT_EQ(counters.true_pairs, pairs) << options;
    return counters;
  };

  const Counters separate = count("grouping=separate");
  EXPECT_EQ(separate.padded_pairs, pairs);
  EXPECT_EQ(separate.launches, 27);
  const Counters symmetric = count("grouping=symmetric");
  EXPECT_EQ(symmetric.padded_pairs, pairs);
  EXPECT_EQ(symmetric.launches, 14);
  const Counters fixed = count("grouping=fixed");
  EXPECT_GT(fixed.padded_pairs, pairs);
  EXPECT_EQ(fixed.launches, 3);
  const Counters dense = count("epsilon=1,threshold=1000000");
  EXPECT_GE(dense.padded_pairs, fixed.padded_pairs);
  EXPECT_EQ(dense.launches, 2);
  EXPECT_EQ(count("epsilon=1,threshold=0").launches, 27);
  EXPECT_EQ(count("epsilon=0,threshold=1000000").padded_pairs, pairs);
  // Every offset is padded to a multiple of 128 rows; the identity's rows are not.
  const Counters ragged = count("grouping=ragged");
  EXPECT_GE(ragged.padded_pairs, pairs);
  EXPECT_EQ((ragged.padded_pairs - problem.map.num_outputs) % kRaggedRows, 0);
  // Sorting by size: no more padding at the same tolerance with no more launches.
  const Counters adaptive = count("epsilon=0.1,threshold=1000000");
  const Counters sorted = count("grouping=sorted_adaptive,epsilon=0.1,threshold=1000000");
  EXPECT_LE(sorted.launches, adaptive.launches);
}

TEST_F(GatherGemmScatterTest, BytesFollowOrderMapAndTile) {
  const ConvProblem problem(SubmanifoldMap(10, 0.3, 4), 16, 16);
  const auto bytes = [&](const std::string& options) {
    return RunSpec(options, problem).profile.counters;
  };
  EXPECT_LT(bytes("order=locality").bytes_read, bytes("order=weight").bytes_read);
  EXPECT_LT(bytes("order=locality").bytes_written, bytes("order=weight").bytes_written);
  EXPECT_LT(bytes("map=coded_csr").bytes_read, bytes("map=dense").bytes_read);
  // On the CPU every tile reads the map in either order.
  EXPECT_EQ(bytes("order=tile,tile=4").bytes_read, bytes("tile=4").bytes_read);
  EXPECT_LT(bytes("tile=0").bytes_read, bytes("tile=4").bytes_read);
  EXPECT_LT(bytes("tile=4,scatter_tile=16").bytes_read, bytes("tile=4").bytes_read);
}

TEST_F(GatherGemmScatterTest, SmallBuffersWorkInPasses) {
  // 128 + 64 channels: 1 MiB holds 1365 rows of the 4,000 or so.
  const ConvProblem problem(SubmanifoldMap(11, 0.45, 6), 128, 64);
  for (const char* options : {"grouping=separate", "epsilon=1,threshold=1000000",
                              "grouping=fixed,order=weight", "grouping=ragged", "map=coded_csr"}) {
    const ConvResult whole = RunSpec(options, problem);
    const ConvResult parts = RunSpec(absl::StrCat(options, ",buffer_mib=1"), problem);
    ExpectNear(parts.output, problem, options);
    EXPECT_EQ(whole.profile.visits[static_cast<int>(Stage::kGather)], 1);
    EXPECT_GT(parts.profile.visits[static_cast<int>(Stage::kGather)], 1);
    EXPECT_LE(parts.profile.counters.peak_workspace, int64_t{1} << 20);
    EXPECT_EQ(parts.profile.counters.padded_pairs, whole.profile.counters.padded_pairs);
  }
}

TEST_F(GatherGemmScatterTest, StagesAreTimedApart) {
  const ConvProblem problem(StridedLikeMap(), 8, 8);
  const Profile profile = RunSpec("", problem).profile;
  for (Stage stage : {Stage::kGather, Stage::kGemm, Stage::kScatter}) {
    EXPECT_EQ(profile.visits[static_cast<int>(stage)], 1) << ToString(stage);
  }
}

TEST_F(GatherGemmScatterTest, RefusesWhatItCannotDo) {
  EXPECT_FALSE(
      registry_.dataflows().Create("gather_gemm_scatter:epsilon=1.5", BackendKind::kCpu).ok());
  EXPECT_FALSE(
      registry_.dataflows().Create("gather_gemm_scatter:buffer_mib=0", BackendKind::kCpu).ok());
  EXPECT_FALSE(
      registry_.dataflows().Create("gather_gemm_scatter:vector_bytes=6", BackendKind::kCpu).ok());
  const ConvProblem any(StridedLikeMap(), 4, 4);
  for (const char* of_cuda : {"streams=2", "vector_bytes=8", "offsets_per_launch=1"}) {
    RunSpec(of_cuda, any, absl::StatusCode::kUnimplemented);
  }

  // A row of both buffers takes 4,004 bytes: 1 MiB holds 261, a batch of 300 offsets needs 300.
  const ConvProblem wide(RandomMap(4, 4, std::vector<int64_t>(300, 2), 1), 1000, 1);
  RunSpec("epsilon=1,threshold=1000000,buffer_mib=1", wide, absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace voxconv
