// SPDX-License-Identifier: Apache-2.0
// Whole networks on CUDA against the same networks on the CPU.
#include <algorithm>
#include <cmath>
#include <cstddef>
#include <limits>
#include <memory>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/types/span.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/dataflows/fetch_on_demand/register.h"
#include "voxconv/dataflows/gather_gemm_scatter/register.h"
#include "voxconv/dataflows/implicit_gemm/register.h"
#include "voxconv/mapping/hash/register.h"
#include "voxconv/mapping/output_coords/register.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"

namespace voxconv {
namespace {

// A wavy surface in two samples.
std::vector<Coordinate> Scene() {
  std::set<Coordinate> rows;
  for (int b = 0; b < 2; ++b) {
    for (int x = 0; x < 48; ++x) {
      for (int y = 0; y < 48 / (b + 1); ++y) {
        const int z = static_cast<int>(5 * std::sin(0.4 * x) + 3 * std::cos(0.7 * y + b));
        rows.insert({b, x - 24, y, z});
      }
    }
  }
  return {rows.begin(), rows.end()};
}

// ||a - b|| / ||b||.
double RelativeError(const std::vector<float>& a, const std::vector<float>& b) {
  EXPECT_EQ(a.size(), b.size());
  double difference = 0, norm = 0;
  for (size_t i = 0; i < b.size(); ++i) {
    difference += std::pow(double{a[i]} - b[i], 2);
    norm += std::pow(double{b[i]}, 2);
  }
  return std::sqrt(difference / norm);
}

// Some forty layers' rounding.
double Bound(Precision precision) {
  switch (precision) {
    case Precision::kF32:
      return 1e-4;
    case Precision::kTf32:
    case Precision::kF16:
      return 2e-2;
    case Precision::kBF16:
      return 1e-1;
  }
  return 0;
}

constexpr Precision kPrecisions[] = {Precision::kF32, Precision::kTf32, Precision::kF16,
                                     Precision::kBF16};

class NetworksCudaTest : public ::testing::Test {
 protected:
  void SetUp() override {
    cuda_ = UnitCuda::Create();
    if (cuda_ == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
    cpu_ = *CpuBackend::Create({.threads = 1});
    for (const auto& add :
         {RegisterHashMapping, RegisterHashMappingCuda, RegisterOutputCoords,
          RegisterOutputCoordsCuda, RegisterFetchOnDemand, RegisterFetchOnDemandCuda,
          RegisterGatherGemmScatter, RegisterGatherGemmScatterCuda, RegisterImplicitGemm,
          RegisterImplicitGemmCuda}) {
      ASSERT_TRUE(add(registry_).ok());
    }
    for (size_t i = 0; i < rows_.size() * 4; ++i) {
      features_.push_back(std::sin(0.37f * static_cast<float>(i)));
    }
  }

  // A test that leaves something out, since this device or build has it not, ends as a skipped one
  // that names all of it.
  void TearDown() override {
    if (!left_out_.empty()) GTEST_SKIP() << "not run: " << absl::StrJoin(left_out_, "; ");
  }
  // Whether `what` is to be left out: it is unimplemented here.
  bool IsLeftOut(const absl::Status& status, const std::string& what) {
    if (!absl::IsUnimplemented(status)) return false;
    left_out_.push_back(absl::StrCat(what, ": ", status.message()));
    return true;
  }

  static RunConfig Config(const std::string& dataflow, Precision precision) {
    return {.planner = std::make_shared<FixedPlanner>(LayerChoice{"hash", dataflow, "fused"}),
            .precision = precision};
  }

  absl::StatusOr<std::unique_ptr<NetworkRunner>> Runner(const NetworkGraph& graph,
                                                        const RunConfig& config) {
    return NetworkRunner::Create(graph, config, registry_, *cuda_->backend);
  }

  // The network's output on the host.
  absl::StatusOr<std::vector<float>> Run(const NetworkGraph& graph, const RunConfig& config,
                                         Backend& backend, RunReport* report = nullptr,
                                         DType features = DType::kF32) {
    const ExecutionContext context{&backend, &backend.main_stream(), nullptr};
    VOXCONV_ASSIGN_OR_RETURN(auto runner, NetworkRunner::Create(graph, config, registry_, backend));
    VOXCONV_ASSIGN_OR_RETURN(const SparseTensor input, Input(context, 1, features));
    VOXCONV_ASSIGN_OR_RETURN(RunResult result, runner->Run(input.view()));
    EXPECT_EQ(result.output.features().view().dtype, StorageOf(config.precision));
    if (report != nullptr) *report = std::move(result.report);
    return result.output.features().ToHost(context);
  }

  // The first of the scene's rows, a `divisor`-th of them, with their features.
  absl::StatusOr<SparseTensor> Input(const ExecutionContext& context, size_t divisor = 1,
                                     DType dtype = DType::kF32) const {
    const size_t size = rows_.size() / divisor;
    return SparseTensor::Create(absl::MakeConstSpan(rows_).first(size), {1, 1, 1},
                                absl::MakeConstSpan(features_).first(4 * size), 4, context, dtype);
  }

  std::unique_ptr<UnitCuda> cuda_;
  std::unique_ptr<CpuBackend> cpu_;
  Registry registry_;
  std::vector<Coordinate> rows_ = Scene();
  std::vector<float> features_;

 private:
  std::vector<std::string> left_out_;
};

TEST_F(NetworksCudaTest, EqualsTheCpuInEveryDType) {
  for (const char* name : {"minkunet42", "sparseresnet21"}) {
    NetworkGraph graph = *MakeModel(name, {.width = 0.5});
    InitializeParameters(graph, 5);
    const auto expected = Run(graph, Config("gather_gemm_scatter", Precision::kF32), *cpu_);
    ASSERT_TRUE(expected.ok()) << expected.status();
    for (const char* dataflow : {"fetch_on_demand", "gather_gemm_scatter", "implicit_gemm"}) {
      for (const Precision precision : kPrecisions) {
        for (const bool fold : {false, true}) {
          SCOPED_TRACE(
              absl::StrCat(name, " ", dataflow, " ", ToString(precision), fold ? " fold" : ""));
          RunConfig config = Config(dataflow, precision);
          config.fold_batch_norm = fold;
          config.profile_stages = fold;
          const auto output = Run(graph, config, *cuda_->backend);
          if (IsLeftOut(output.status(), absl::StrCat(dataflow, " ", ToString(precision))))
            continue;
          ASSERT_TRUE(output.ok()) << output.status();
          EXPECT_LT(RelativeError(*output, *expected), Bound(precision));
        }
      }
    }
  }
}

TEST_F(NetworksCudaTest, RowsInAnyOrderEqualTheCpu) {
  std::shuffle(rows_.begin(), rows_.end(), std::mt19937(3));
  NetworkGraph graph = *MakeModel("minkunet42", {.width = 0.5});
  InitializeParameters(graph, 5);
  const auto expected = Run(graph, Config("gather_gemm_scatter", Precision::kF32), *cpu_);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* dataflow : {"fetch_on_demand", "gather_gemm_scatter", "implicit_gemm",
                               "implicit_gemm:mask_sort=rarest"}) {
    for (const bool ahead : {false, true}) {
      SCOPED_TRACE(absl::StrCat(dataflow, ahead ? ", maps ahead" : ""));
      RunConfig config = Config(dataflow, Precision::kF32);
      config.profile_stages = !ahead;
      const auto output = Run(graph, config, *cuda_->backend);
      if (IsLeftOut(output.status(), dataflow)) continue;
      ASSERT_TRUE(output.ok()) << output.status();
      EXPECT_LT(RelativeError(*output, *expected), Bound(Precision::kF32));
    }
  }
}

TEST_F(NetworksCudaTest, ReportsTheCpusPairs) {
  NetworkGraph graph = *MakeMinkUNet42(0.5, 4, 5);
  InitializeParameters(graph, 5);
  RunReport expected, report;
  ASSERT_TRUE(Run(graph, Config("fetch_on_demand", Precision::kF32), *cpu_, &expected).ok());
  for (const char* dataflow : {"fetch_on_demand", "implicit_gemm"}) {
    const auto output =
        Run(graph, Config(dataflow, Precision::kF16), *cuda_->backend, &report, DType::kF16);
    if (IsLeftOut(output.status(), dataflow)) continue;
    ASSERT_TRUE(output.ok()) << output.status();
    ASSERT_EQ(report.layers.size(), expected.layers.size());
    for (size_t i = 0; i < report.layers.size(); ++i) {
      EXPECT_EQ(report.layers[i].pairs, expected.layers[i].pairs) << report.layers[i].name;
      EXPECT_EQ(report.layers[i].map_sizes, expected.layers[i].map_sizes);
      EXPECT_EQ(report.layers[i].n_out, expected.layers[i].n_out) << report.layers[i].name;
    }
    EXPECT_GT(report.total.Total(), 0);
  }
}

TEST_F(NetworksCudaTest, FramesMayFollowEachOtherWithoutAWait) {
  NetworkGraph graph = *MakeMinkUNet42(0.5, 4, 5);
  InitializeParameters(graph, 5);
  const ExecutionContext context{cuda_->backend.get(), &cuda_->backend->main_stream(), nullptr};
  for (const bool keep_maps : {false, true}) {
    // Fixed order of sums, so that frames are bitwise equal.
    RunConfig config = Config("gather_gemm_scatter", Precision::kF16);
    config.fold_batch_norm = true;
    config.profile_stages = false;
    config.keep_maps = keep_maps;
    auto runner = *Runner(graph, config);
    const SparseTensor input = *Input(context);
    std::vector<SparseTensor> outputs;
    outputs.reserve(4);
    for (int frame = 0; frame < 4; ++frame) {
      outputs.push_back(std::move(runner->Run(input.view())->output));
    }
    const std::vector<float> first = *outputs[0].features().ToHost(context);
    for (const SparseTensor& output : outputs) {
      EXPECT_EQ(*output.features().ToHost(context), first);
    }
  }
  // Nothing but the pool's keep is left.
  EXPECT_EQ(cuda_->backend->BytesInUse(), 0);
}

// Frames of different sizes follow each other, so that launches that are handed over together come
// again with other sizes and addresses. Launches one by one give the expected results.
TEST_F(NetworksCudaTest, LaunchesTogetherGiveTheSameBits) {
  const auto plain = *CudaBackend::Create({.collect_launches = false});
  NetworkGraph graph = *MakeMinkUNet42(0.5, 4, 5);
  InitializeParameters(graph, 5);
  RunConfig config = Config("implicit_gemm:mask_sort=rarest", Precision::kF16);
  config.fold_batch_norm = true;
  config.profile_stages = false;
  std::vector<std::vector<float>> outputs[2];
  for (const bool together : {false, true}) {
    Backend& backend = together ? *cuda_->backend : *plain;
    const ExecutionContext context{&backend, &backend.main_stream(), nullptr};
    auto runner = *NetworkRunner::Create(graph, config, registry_, backend);
    for (const size_t divisor : {1, 1, 3, 1, 2, 3, 1, 1}) {
      const SparseTensor input = *Input(context, divisor);
      const auto result = runner->Run(input.view());
      ASSERT_TRUE(result.ok()) << result.status();
      outputs[together].push_back(*result->output.features().ToHost(context));
    }
  }
  EXPECT_EQ(outputs[1], outputs[0]);
  EXPECT_EQ(outputs[0][0], outputs[0][7]);
}

TEST_F(NetworksCudaTest, ARecordedFrameReplaysBitwise) {
  NetworkGraph graph = *MakeMinkUNet42(0.5, 4, 5);
  InitializeParameters(graph, 5);
  const ExecutionContext context{cuda_->backend.get(), &cuda_->backend->main_stream(), nullptr};
  std::vector<float> later = features_;
  for (float& x : later) x = 1.0f - 2.0f * x;
  // Fixed order of sums. The second runs on side streams too.
  for (const char* dataflow :
       {"implicit_gemm", "gather_gemm_scatter:grouping=separate,streams=4"}) {
    for (const Precision precision : {Precision::kF16, Precision::kF32}) {
      SCOPED_TRACE(absl::StrCat(dataflow, " ", ToString(precision)));
      RunConfig config = Config(dataflow, precision);
      config.fold_batch_norm = true;
      config.profile_stages = false;
      config.keep_maps = true;
      auto runner = *Runner(graph, config);
      const SparseTensor input = *Input(context);
      const Tensor other = *Tensor::FromHost(later, input.features().rows(), 4, context);
      const auto frame = runner->Record(input.view());
      ASSERT_TRUE(frame.ok()) << frame.status();
      // Runs between replays take no memory that the replays use, nor the other way round.
      const RunResult first = *runner->Run(input.view());
      ASSERT_TRUE((*frame)->Replay().ok());
      const RunResult second = *runner->Run({input.coordinates(), other.view()});
      const std::vector<float> expected = *first.output.features().ToHost(context);
      EXPECT_EQ(*(*frame)->result().output.features().ToHost(context), expected);
      // Other features at the same address.
      const TensorView& fed = input.features().view();
      ASSERT_TRUE(cuda_->backend
                      ->Copy(fed.data, MemorySpace::kDevice, other.view().data,
                             MemorySpace::kDevice, fed.bytes(), *context.stream)
                      .ok());
      for (int i = 0; i < 3; ++i) ASSERT_TRUE((*frame)->Replay().ok());
      const std::vector<float> replayed = *(*frame)->result().output.features().ToHost(context);
      EXPECT_EQ(replayed, *second.output.features().ToHost(context));
      EXPECT_NE(replayed, expected);
      EXPECT_EQ(*first.output.features().ToHost(context), expected) << "a replay has written to it";
    }
  }
  EXPECT_EQ(cuda_->backend->BytesInUse(), 0);
}

// Max pooling, its unpooling, and a layer for which the host waits.
NetworkGraph PoolingNetwork() {
  GraphBuilder b("pools");
  const int x = b.Conv("conv", b.Input(4), 8, {.bias = true, .relu = true});
  const int pool = b.Pool("pool", x, {});
  const int fine = b.Unpool("unpool", b.Conv("coarse", pool, 8, {.bias = true}), pool);
  const int sum = b.Add("sum", x, fine, true);
  const int head = b.Linear("head", b.GlobalPool("all", sum, PoolMode::kSum), 4);
  NetworkGraph graph = *std::move(b).Build(head);
  InitializeParameters(graph, 5);
  return graph;
}

TEST_F(NetworksCudaTest, WhatCannotBeRecordedIsRefused) {
  const ExecutionContext context{cuda_->backend.get(), &cuda_->backend->main_stream(), nullptr};
  {
    const SparseTensor input = *Input(context);
    RunConfig config = Config("fetch_on_demand", Precision::kF32);
    config.profile_stages = false;
    auto runner = *Runner(PoolingNetwork(), config);
    const absl::Status rebuilt = runner->Record(input.view()).status();
    EXPECT_EQ(rebuilt.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(rebuilt.message()), ::testing::HasSubstr("keep_maps is needed"));
    config.keep_maps = true;
    runner = *Runner(PoolingNetwork(), config);
    const absl::Status waits = runner->Record(input.view()).status();
    EXPECT_EQ(waits.code(), absl::StatusCode::kFailedPrecondition);
    EXPECT_THAT(std::string(waits.message()),
                ::testing::HasSubstr("work that is recorded must not"));
    // The program can go on.
    const auto result = runner->Run(input.view());
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_TRUE(context.stream->Synchronize().ok());
  }
  EXPECT_EQ(cuda_->backend->BytesInUse(), 0);
}

// Each layer's map has an index of its own. There are more of them than streams to build them on,
// and the host waits for the sizes of the coarser levels meanwhile.
TEST_F(NetworksCudaTest, MoreIndicesThanStreams) {
  GraphBuilder b("many_maps");
  int x = b.Conv("first", b.Input(4), 8, {.bias = true});
  for (int level = 0; level < 3; ++level) {
    for (int i = 0; i < 4; ++i) {
      x = b.Conv(absl::StrCat("conv", level, "_", i), x, 8, {.bias = true, .relu = true});
    }
    x = b.Conv(absl::StrCat("down", level), x, 8,
               {.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}});
  }
  NetworkGraph graph = *std::move(b).Build(x);
  InitializeParameters(graph, 5);
  RunConfig config = Config("gather_gemm_scatter", Precision::kF32);
  config.profile_stages = false;
  config.reuse_maps = false;
  config.parallel_maps = false;
  const auto expected = Run(graph, config, *cuda_->backend);
  ASSERT_TRUE(expected.ok()) << expected.status();
  config.parallel_maps = true;
  for (int round = 0; round < 5; ++round) {
    const auto output = Run(graph, config, *cuda_->backend);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_EQ(*output, *expected) << round;
  }
}

// A NaN of the input goes through activations as on the CPU: the same elements of the output are
// NaN.
TEST_F(NetworksCudaTest, NaNSurvivesFusedActivations) {
  GraphBuilder b("nan");
  const int x = b.Conv("conv", b.Input(4), 32, {.bias = true, .relu = true});
  const int y = b.Conv("wide", x, 64, {.bias = true});
  const int sum = b.Add("sum", y, b.Linear("one", x, 64), true);
  NetworkGraph graph = *std::move(b).Build(sum);
  InitializeParameters(graph, 5);
  features_[4 * 100] = std::numeric_limits<float>::quiet_NaN();
  const auto nans = [](const std::vector<float>& values) {
    std::vector<bool> found(values.size());
    std::transform(values.begin(), values.end(), found.begin(),
                   [](float value) { return std::isnan(value); });
    return found;
  };
  const auto expected = Run(graph, Config("gather_gemm_scatter", Precision::kF32), *cpu_);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const char* dataflow : {"fetch_on_demand", "implicit_gemm", "implicit_gemm:tile=128"}) {
    for (const Precision precision : kPrecisions) {
      const auto output = Run(graph, Config(dataflow, precision), *cuda_->backend);
      if (IsLeftOut(output.status(), absl::StrCat(dataflow, " ", ToString(precision)))) continue;
      ASSERT_TRUE(output.ok()) << output.status();
      EXPECT_EQ(nans(*output), nans(*expected)) << dataflow << " " << ToString(precision);
    }
  }
}

TEST_F(NetworksCudaTest, PoolingNetworksRun) {
  const NetworkGraph graph = PoolingNetwork();
  const auto expected = Run(graph, Config("fetch_on_demand", Precision::kF32), *cpu_);
  ASSERT_TRUE(expected.ok()) << expected.status();
  for (const Precision precision : {Precision::kF32, Precision::kBF16}) {
    const auto output = Run(graph, Config("fetch_on_demand", precision), *cuda_->backend);
    ASSERT_TRUE(output.ok()) << output.status();
    EXPECT_LT(RelativeError(*output, *expected), Bound(precision));
  }
}

// The bounds of the outputs leave nothing of the last sample.
TEST_F(NetworksCudaTest, ASampleThatLostAllVoxelsIsZero) {
  const ExecutionContext context{cuda_->backend.get(), &cuda_->backend->main_stream(), nullptr};
  GraphBuilder b("bounded");
  const int x = b.Conv("down", b.Input(4), 8,
                       {.kind = ConvKind::kStrided,
                        .rule = OutputRule::kDilate,
                        .stride = {2, 2, 2},
                        .output_bounds = Box{{-8, -8, -8}, {8, 8, 8}}});
  const int all = b.GlobalPool("all", x, PoolMode::kSum);
  NetworkGraph graph = *std::move(b).Build(all);
  InitializeParameters(graph, 5);
  const std::vector<Coordinate> rows = {{0, 1, 2, 3}, {1, 0, 0, 0}, {2, 99, 99, 99}};
  const std::vector<float> ones(rows.size() * 4, 1.0f);
  const SparseTensor input = *SparseTensor::Create(rows, {1, 1, 1}, ones, 4, context);
  const auto runner = *Runner(graph, Config("implicit_gemm", Precision::kF32));
  const auto result = runner->Run(input.view());
  ASSERT_TRUE(result.ok()) << result.status();
  const std::vector<float> sums = *result->output.features().ToHost(context);
  ASSERT_EQ(sums.size(), size_t{3 * 8});
  EXPECT_NE(std::vector<float>(sums.begin(), sums.begin() + 8), std::vector<float>(8, 0.0f));
  EXPECT_EQ(std::vector<float>(sums.end() - 8, sums.end()), std::vector<float>(8, 0.0f));
}

TEST_F(NetworksCudaTest, RefusesFeaturesOfAnotherDType) {
  NetworkGraph graph = *MakeMinkUNet42(0.125, 4, 5);
  InitializeParameters(graph, 5);
  EXPECT_THAT(std::string(Run(graph, Config("fetch_on_demand", Precision::kF16), *cuda_->backend,
                              nullptr, DType::kBF16)
                              .status()
                              .message()),
              ::testing::HasSubstr("features: dtype bf16; the network takes f16 or f32"));
}

}  // namespace
}  // namespace voxconv
