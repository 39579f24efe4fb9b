// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "dataflow_test_util.h"
#include "gmock/gmock.h"
#include "gradient_test_util.h"
#include "gtest/gtest.h"
#include "unit_cpu.h"
#include "voxconv/core/convolution.h"
#include "voxconv/core/map_ops.h"
#include "voxconv/core/tensor_ops.h"
#include "voxconv/dataflows/direct/register.h"
#include "voxconv/dataflows/hash2col/register.h"

namespace voxconv {
namespace {

class Hash2colTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(RegisterHash2col(registry_).ok()); }

  ConvResult RunSpec(const std::string& options, const ConvProblem& problem,
                     absl::StatusCode code = absl::StatusCode::kOk) const {
    return RunDataflow(registry_, absl::StrCat("hash2col:", options), problem, 1, code);
  }

  Registry registry_;
};

TEST_F(Hash2colTest, AnyMapAndChannelsEqualBruteForce) {
  const std::vector<HostMap> maps = {
      SubmanifoldMap(6, 0.4, 1),     RandomMap(50, 30, {20, 0, 7, 30}, 2),
      RandomMap(9, 9, {9}, 3),       RandomMap(0, 0, {0, 0}, 1),
      RandomMap(5, 0, {0, 0}, 1),    RandomMap(0, 5, {0, 0}, 1),
      RandomMap(5, 6, {0, 0, 0}, 1),
  };
  for (const HostMap& map : maps) {
    for (int c_in : {1, 3, 33}) {
      for (int c_out : {1, 3, 33}) {
        const ConvProblem problem(map, c_in, c_out);
        ExpectNear(RunSpec("", problem).output, problem, "hash2col");
      }
    }
  }
}

TEST_F(Hash2colTest, WorkspaceBoundsTheColumns) {
  // A column of 27 x 64 floats: 151 rows a MiB.
  const ConvProblem problem(SubmanifoldMap(10, 0.5, 4), 64, 8);
  const ConvResult whole = RunSpec("", problem);
  const ConvResult blocks = RunSpec("workspace_mib=1", problem);
  ExpectNear(whole.output, problem, "whole");
  ExpectNear(blocks.output, problem, "blocks");
  EXPECT_EQ(whole.profile.counters.launches, 1);
  EXPECT_EQ(blocks.profile.counters.launches, (problem.map.num_outputs + 150) / 151);
  EXPECT_LE(blocks.profile.counters.peak_workspace, int64_t{1} << 20);
  EXPECT_EQ(whole.profile.counters.padded_pairs, 27 * problem.map.num_outputs);
  EXPECT_GT(blocks.profile.visits[static_cast<int>(Stage::kGather)], 1);
}

TEST_F(Hash2colTest, BitwiseTheSameForAnyThreadCount) {
  for (const ConvProblem& problem : {ConvProblem(SubmanifoldMap(15, 0.5, 5), 8, 24),
                                     ConvProblem(DensityMap(300, 700, 27, 0.1), 8, 64)}) {
    for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
      CheckVariant(registry_, spec, problem);
    }
  }
}

// A transposed layer has columns of its inputs: 27 x 64 floats, 151 rows a MiB.
TEST_F(Hash2colTest, TransposedLayersByCol2hash) {
  const ConvProblem problem(DensityMap(300, 700, 27, 0.1), 32, 64);
  const ConvResult inputs = RunSpec("workspace_mib=1", problem);
  const ConvResult outputs = RunSpec("transposed=hash2col", problem);
  ExpectNear(inputs.output, problem, "col2hash");
  ExpectNear(outputs.output, problem, "hash2col");
  EXPECT_EQ(inputs.profile.counters.padded_pairs, 27 * 300);
  EXPECT_EQ(outputs.profile.counters.padded_pairs, 27 * 700);
  EXPECT_EQ(inputs.profile.counters.launches, 2);
  EXPECT_LE(inputs.profile.counters.peak_workspace, (int64_t{1} << 20) + 27 * 32 * 64 * 4);
  EXPECT_EQ(inputs.profile.visits[static_cast<int>(Stage::kScatter)], 2);
  EXPECT_EQ(outputs.profile.visits[static_cast<int>(Stage::kScatter)], 0);

  const ConvProblem other(DensityMap(300, 300, 27, 0.1), 4, 4);
  EXPECT_EQ(RunSpec("", other).output, RunSpec("transposed=hash2col", other).output);
}

TEST_F(Hash2colTest, NonFiniteWeightsStayInTheirOffsets) {
  for (const int64_t num_outputs : {40, 20}) {
    ConvProblem problem(RandomMap(20, num_outputs, {15, 7, 20}, 3), 3, 2);
    problem.weights[1 * 3 * 2 + 1] = NAN;  // offset 1, output channel 1
    std::vector<bool> reached(num_outputs);
    for (const auto& [p, q] : problem.map.pairs[1]) reached[q] = true;
    for (const std::string& spec : registry_.dataflows().Variants(BackendKind::kCpu)) {
      const ConvResult result = RunDataflow(registry_, spec, problem, 1);
      for (int64_t q = 0; q < num_outputs; ++q) {
        EXPECT_FALSE(std::isnan(result.output[q * 2])) << spec << " " << q;
        EXPECT_EQ(std::isnan(result.output[q * 2 + 1]), reached[q]) << spec << " " << q;
      }
    }
  }
}

// A layer without a kernel map: a lookup that counts what is asked of it.
class CountingLookup final : public NeighbourLookup {
 public:
  CountingLookup(KernelMap table, int64_t* found) : table_(std::move(table)), found_(found) {}
  absl::Status Find(int64_t first, int64_t count, int32_t* table,
                    const ExecutionContext&) const override {
    const int64_t offsets = table_.num_offsets();
    std::copy_n(table_.table().table.data() + first * offsets, count * offsets, table);
    *found_ += count;
    return absl::OkStatus();
  }
  int64_t bytes() const override { return 0; }

 private:
  KernelMap table_;
  int64_t* found_;
};

TEST_F(Hash2colTest, ColumnsOfLookups) {
  for (const ConvProblem& problem : {ConvProblem(SubmanifoldMap(10, 0.5, 4), 64, 8),
                                     ConvProblem(DensityMap(300, 700, 27, 0.1), 8, 64)}) {
    UnitCpu cpu(2);
    const HostMap& host = problem.map;
    const KernelMap table = *cpu.backend->map_ops().To(MapForm::kNeighbourTable,
                                                       ToKernelMap(host, cpu.context), cpu.context);
    int64_t found = 0;
    KernelMap map(host.num_inputs, host.num_outputs, 27,
                  std::make_shared<const CountingLookup>(table, &found));
    map.set_symmetric(host.symmetric);
    const auto dataflow =
        *registry_.dataflows().Create("hash2col:columns=lookup,workspace_mib=1", BackendKind::kCpu);
    const ConvShape shape = problem.ShapeIn(Precision::kF32);
    EXPECT_EQ(dataflow->NeededMap(Pass::kForward, shape), MapNeed{.form = MapForm::kLookup});
    EXPECT_EQ(dataflow->NeededMap(Pass::kInputGrad, shape).form,
              host.symmetric ? MapForm::kLookup : MapForm::kNeighbourTable);
    const Tensor x =
        *Tensor::FromHost(problem.features, host.num_inputs, problem.c_in, cpu.context);
    const Tensor w =
        *Tensor::FromHost(problem.weights, 27 * problem.c_in, problem.c_out, cpu.context);
    Workspace workspace;
    const auto output =
        RunConvolution(*dataflow, map, x.view(), w.view(), Precision::kF32, workspace, cpu.context);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(*output->ToHost(cpu.context), RunSpec("workspace_mib=1", problem).output);
    // Two blocks of the transposed layer's columns ask for all neighbours each.
    EXPECT_EQ(found, host.symmetric ? host.num_outputs : 2 * host.num_outputs);
    EXPECT_FALSE(map.counts_known());
  }
}

// H-CNN Section 4: average pooling is a convolution whose weights are 1 / F^3, here on the
// diagonal.
TEST_F(Hash2colTest, AveragePoolingIsAConvolution) {
  constexpr int64_t kChannels = 5;
  ConvProblem problem(RandomMap(60, 20, std::vector<int64_t>(27, 9), 2), kChannels, kChannels);
  for (int64_t i = 0; i < 27 * kChannels * kChannels; ++i) {
    problem.weights[i] = i / kChannels % kChannels == i % kChannels ? 1.0f / 27 : 0.0f;
  }
  UnitCpu cpu(1);
  const Tensor x = *Tensor::FromHost(problem.features, 60, kChannels, cpu.context);
  const Tensor pooled = *Tensor::Create(20, kChannels, DType::kF32, cpu.context);
  ASSERT_TRUE(cpu.backend->tensor_ops()
                  .Pool(ToKernelMap(problem.map, cpu.context), PoolMode::kAverage, x.view(),
                        pooled.view(), /*switches=*/nullptr, cpu.context)
                  .ok());
  const std::vector<float> expected = *pooled.ToHost(cpu.context);
  const std::vector<float> output = RunSpec("", problem).output;
  ASSERT_EQ(output.size(), expected.size());
  for (size_t i = 0; i < output.size(); ++i) EXPECT_NEAR(output[i], expected[i], 1e-6) << i;
}

// Pools and unpools through `spec`, with all results on the host.
struct Pooled {
  std::vector<float> y, back;
  std::vector<int32_t> switches;  // empty but for kMax
  friend bool operator==(const Pooled&, const Pooled&) = default;
};

constexpr PoolMode kModes[] = {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage,
                               PoolMode::kAveragePresent};

Pooled PoolWith(const Registry& registry, const std::string& spec, const HostMap& host,
                PoolMode mode, int64_t channels, int threads) {
  UnitCpu cpu(threads);
  const auto dataflow = *registry.dataflows().Create(spec, BackendKind::kCpu);
  const KernelMap map = ToKernelMap(host, cpu.context);
  std::vector<float> values(std::max(host.num_inputs, host.num_outputs) * channels);
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<float>(i * 37 % 101) - 50;
  values.resize(host.num_inputs * channels);
  const Tensor x = *Tensor::FromHost(values, host.num_inputs, channels, cpu.context);
  values.resize(host.num_outputs * channels, 3);
  const Tensor g = *Tensor::FromHost(values, host.num_outputs, channels, cpu.context);
  const Tensor y = *Tensor::Create(host.num_outputs, channels, DType::kF32, cpu.context);
  const Tensor back = *Tensor::Create(host.num_inputs, channels, DType::kF32, cpu.context);
  Array<int32_t> switches =
      *AllocateArray<int32_t>(mode == PoolMode::kMax ? y.rows() * channels : 0, cpu.context);
  int32_t* const used = mode == PoolMode::kMax ? switches.data() : nullptr;
  EXPECT_EQ(RunPool(*dataflow, map, {mode, x.view(), y.view(), used}, cpu.context),
            absl::OkStatus());
  EXPECT_EQ(RunUnpool(*dataflow, map, {mode, g.view(), back.view(), used}, cpu.context),
            absl::OkStatus());
  return {*y.ToHost(cpu.context),
          *back.ToHost(cpu.context),
          {switches.host().begin(), switches.host().end()}};
}

// The same bits as the backend's operators where one block holds all columns: of equal maxima the
// same is taken, and sums have the same order.
TEST_F(Hash2colTest, PoolingThroughColumnsIsThatOfTheBackend) {
  ASSERT_TRUE(RegisterDirect(registry_).ok());
  const std::vector<HostMap> maps = {
      SubmanifoldMap(10, 0.5, 4),    StridedMap(13, 0.3, 2),     RandomMap(60, 20, {9, 0, 7}, 2),
      RandomMap(0, 0, {0, 0}, 1),    RandomMap(5, 0, {0, 0}, 1), RandomMap(0, 5, {0, 0}, 1),
      RandomMap(5, 6, {0, 0, 0}, 1),
  };
  for (const HostMap& map : maps) {
    for (const PoolMode mode : kModes) {
      for (const int64_t channels : {1, 5, 64}) {
        SCOPED_TRACE(::testing::Message()
                     << ToString(mode) << " " << map.num_outputs << " x " << channels);
        const Pooled expected = PoolWith(registry_, "direct", map, mode, channels, 1);
        for (const int threads : {1, 4}) {
          EXPECT_EQ(PoolWith(registry_, "hash2col", map, mode, channels, threads), expected);
          const Pooled blocks =
              PoolWith(registry_, "hash2col:workspace_mib=1", map, mode, channels, threads);
          EXPECT_EQ(blocks.y, expected.y);
          EXPECT_EQ(blocks.switches, expected.switches);
          // Block after block is another order of the sums.
          EXPECT_THAT(blocks.back,
                      ::testing::Pointwise(::testing::FloatNear(1e-4f), expected.back));
        }
        EXPECT_EQ(PoolWith(registry_, "hash2col:columns=lookup", map, mode, channels, 2), expected);
      }
    }
  }
}

TEST_F(Hash2colTest, PoolingReadsTables) {
  const auto dataflow = *registry_.dataflows().Create("hash2col", BackendKind::kCpu);
  EXPECT_TRUE(dataflow->pools());
  for (const bool symmetric : {false, true}) {
    EXPECT_EQ(dataflow->NeededPoolMap(Pass::kForward, symmetric),
              MapNeed{.form = MapForm::kNeighbourTable});
    EXPECT_EQ(dataflow->NeededPoolMap(Pass::kInputGrad, symmetric).layout.empty(), symmetric);
  }
  ASSERT_TRUE(RegisterDirect(registry_).ok());
  const auto other = *registry_.dataflows().Create("direct", BackendKind::kCpu);
  EXPECT_FALSE(other->pools());
  EXPECT_EQ(other->NeededPoolMap(Pass::kInputGrad, false), MapNeed{.form = MapForm::kPairs});
}

TEST_F(Hash2colTest, PoolingRefusesWhatDoesNotFit) {
  UnitCpu cpu(1);
  const auto dataflow =
      *registry_.dataflows().Create("hash2col:workspace_mib=1", BackendKind::kCpu);
  const KernelMap map = ToKernelMap(RandomMap(2, 2, std::vector<int64_t>(27, 1), 1), cpu.context);
  const auto pool = [&](PoolMode mode, int64_t rows, int64_t channels, bool switches) {
    const Tensor x = *Tensor::Create(rows, channels, DType::kF32, cpu.context);
    const Tensor y = *Tensor::Create(2, channels, DType::kF32, cpu.context);
    Array<int32_t> taken = *AllocateArray<int32_t>(2 * channels, cpu.context);
    const PoolArgs args{mode, x.view(), y.view(), switches ? taken.data() : nullptr};
    return RunPool(*dataflow, map, args, cpu.context);
  };
  EXPECT_EQ(pool(PoolMode::kMax, 2, 3, true), absl::OkStatus());
  EXPECT_THAT(std::string(pool(PoolMode::kMax, 3, 3, true).message()),
              ::testing::StartsWith("pool: x: shape [3, 3]; it must be "));
  EXPECT_EQ(pool(PoolMode::kSum, 2, 3, true).message(),
            "pool: mode sum has no switches; only max has");
  // 27 offsets x 10,000 channels do not fit in 1 MiB.
  EXPECT_EQ(pool(PoolMode::kMax, 2, 10'000, false).code(), absl::StatusCode::kResourceExhausted);
  const Tensor x = *Tensor::Create(2, 3, DType::kF32, cpu.context);
  const UnpoolArgs none{PoolMode::kMax, x.view(), x.view()};
  EXPECT_EQ(RunUnpool(*dataflow, map, none, cpu.context).message(),
            "unpool: mode max needs the switches of its pooling");
}

TEST_F(Hash2colTest, RefusesWhatItCannotDo) {
  EXPECT_FALSE(registry_.dataflows().Create("hash2col:workspace_mib=-1", BackendKind::kCpu).ok());

  // 27 offsets x 10,000 channels do not fit in 1 MiB.
  const ConvProblem wide(RandomMap(2, 2, std::vector<int64_t>(27, 1), 1), 10'000, 1);
  RunSpec("workspace_mib=1", wide, absl::StatusCode::kResourceExhausted);
}

}  // namespace
}  // namespace voxconv
