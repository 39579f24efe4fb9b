// SPDX-License-Identifier: Apache-2.0
// Training steps that are recorded and replayed, beside steps that are queued each time.
#include <memory>
#include <string>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "trainer_cuda_test_util.h"
#include "voxconv/training/recorded_step.h"
#include "voxconv/training/trainer.h"

namespace voxconv {
namespace {

constexpr int kSteps = 6;

// Strided and inverse convolutions, batch norms, sums and concatenations, and two dropouts; with
// `pools` a pooling and its unpooling too.
NetworkGraph DroppingGraph(bool pools) {
  GraphBuilder b("dropping");
  const int stem = b.ConvBlock("stem", b.Input(3), 8, {});
  const int down = b.ConvBlock(
      "down", stem, 16, {.kind = ConvKind::kStrided, .kernel = {2, 2, 2}, .stride = {2, 2, 2}});
  int deep = b.Dropout("first", b.ResidualBlock("block", down, 16), 0.3);
  if (pools) {
    const int pool = b.Pool("pool", deep, {});
    deep = b.Unpool("unpool", b.Conv("coarse", pool, 16, {.bias = true, .relu = true}), pool);
  }
  const int joined = b.Concat("joined", b.UpBlock("up", deep, 8, down), stem);
  const int head = b.Linear("head", b.Dropout("second", joined, 0.5), kSegmentationClasses);
  NetworkGraph graph = *std::move(b).Build(head);
  InitializeParameters(graph, 3);
  return graph;
}

class RecordedStepCudaTest : public TrainerCudaFixture {
 protected:
  SparseTensor InputOf(int step) {
    std::vector<float> features = features_;
    for (float& x : features) x *= 1.0f + 0.1f * static_cast<float>(step);
    return Input(features);
  }

  // Every step has others.
  std::vector<int32_t> Labels(int step) const {
    std::vector<int32_t> labels = labels_;
    for (size_t i = step; i < labels.size(); i += 3) {
      labels[i] = static_cast<int32_t>(i + step) % kSegmentationClasses;
    }
    return labels;
  }
  static double Rate(int step) { return 0.02 / (1 + step); }

  // New features at the addresses of the old.
  void Feed(int step) {
    const SparseTensor other = InputOf(step);
    const TensorView& fed = input_.features().view();
    ASSERT_EQ(unit_->backend->Copy(fed.data, MemorySpace::kDevice, other.features().view().data,
                                   MemorySpace::kDevice, fed.bytes(), *unit_->context.stream),
              absl::OkStatus());
  }

  static TrainingConfig Config(const LayerChoice& choice, Precision precision,
                               OptimizerKind optimizer) {
    TrainingConfig config = TrainerCudaFixture::Config(choice, precision);
    config.run.keep_maps = true;
    config.optimizer.kind = optimizer;
    config.optimizer.weight_decay = 0.01;
    config.optimizer.max_norm = 0.5;
    config.optimizer.scale_growth_interval = 2;
    config.dropout_seed = 7;
    return config;
  }

  // Step `i` of a trainer, or of its recording.
  template <typename Call>
  StepResult Step(int i, const Call& call) {
    Feed(i);
    const absl::StatusOr<StepResult> result = call(Labels(i), Rate(i));
    EXPECT_TRUE(result.ok()) << result.status();
    return result.value_or(StepResult());
  }

  // Replays of `other` have the bits of `direct`'s steps.
  void ExpectReplaysAreSteps(const std::unique_ptr<Trainer>& other,
                             const std::unique_ptr<Trainer>& direct) {
    const auto recorded = other->Record(input_.view());
    ASSERT_TRUE(recorded.ok()) << recorded.status();
    EXPECT_EQ(other->Save()->parameters, direct->Save()->parameters) << "recording took a step";
    for (int i = 0; i < kSteps; ++i) {
      const StepResult expected = Step(i, [&](const std::vector<int32_t>& labels, double rate) {
        return direct->Step(input_.view(), labels, rate);
      });
      const StepResult replayed = Step(i, [&](const std::vector<int32_t>& labels, double rate) {
        // The trainer's own steps may come between.
        if (i == 3) return other->Step(input_.view(), labels, rate);
        return (*recorded)->Step(labels, rate);
      });
      EXPECT_EQ(replayed.loss.loss, expected.loss.loss) << "step " << i;
      EXPECT_EQ(replayed.loss.correct, expected.loss.correct) << "step " << i;
      EXPECT_EQ(replayed.gradient_norm, expected.gradient_norm) << "step " << i;
      EXPECT_EQ(replayed.loss_scale, expected.loss_scale) << "step " << i;
    }
    const Trainer::State end = *direct->Save(), replayed = *other->Save();
    EXPECT_EQ(replayed.parameters, end.parameters);  // running statistics too
    EXPECT_EQ(replayed.optimizer.first, end.optimizer.first);
    EXPECT_EQ(replayed.optimizer.second, end.optimizer.second);
    EXPECT_EQ(replayed.optimizer.state.steps, kSteps);
  }
};

const LayerChoice kFast{"hash", "implicit_gemm", "fused"};
const LayerChoice kColumns{"perfect_hash", "hash2col", "sort_unique"};

// A test each, so that processes can share them.
class RecordedStepsCudaTest
    : public RecordedStepCudaTest,
      public ::testing::WithParamInterface<std::tuple<Precision, OptimizerKind>> {};

TEST_P(RecordedStepsCudaTest, ReplaysAreTheSameBitsAsSteps) {
  const auto& [precision, optimizer] = GetParam();
  const TrainingConfig config = Config(kFast, precision, optimizer);
  const NetworkGraph graph = DroppingGraph(false);
  ExpectReplaysAreSteps(Make(graph, config), Make(graph, config));
}

INSTANTIATE_TEST_SUITE_P(All, RecordedStepsCudaTest,
                         ::testing::Combine(::testing::Values(Precision::kF32, Precision::kTf32,
                                                              Precision::kF16, Precision::kBF16),
                                            ::testing::Values(OptimizerKind::kSgd,
                                                              OptimizerKind::kAdamW)),
                         [](const auto& info) {
                           return absl::StrCat(ToString(std::get<Precision>(info.param)), "_",
                                               ToString(std::get<OptimizerKind>(info.param)));
                         });

TEST_F(RecordedStepCudaTest, PoolingByColumnsIsRecorded) {
  for (const Precision precision : {Precision::kF32, Precision::kF16}) {
    SCOPED_TRACE(ToString(precision));
    TrainingConfig config = Config(kColumns, precision, OptimizerKind::kSgd);
    config.loss.kind = LossKind::kCrossEntropyLovasz;
    const NetworkGraph graph = DroppingGraph(true);
    ExpectReplaysAreSteps(Make(graph, config), Make(graph, config));
  }
}

// What is computed a second time is recorded as well. It has the bits of steps that keep all.
TEST_F(RecordedStepCudaTest, AnActivationLimitIsKept) {
  TrainingConfig config = Config(kFast, Precision::kF32, OptimizerKind::kSgd);
  const NetworkGraph graph = DroppingGraph(false);
  const std::unique_ptr<Trainer> whole = Make(graph, config);
  ASSERT_TRUE(whole->Step(input_.view(), Labels(0), 0).ok());
  const int64_t activations = whole->memory().activations;
  EXPECT_EQ(whole->memory().recomputed, 0);
  config.activation_limit = activations - 1;
  const std::unique_ptr<Trainer> limited = Make(graph, config);
  config.activation_limit = 0;
  ExpectReplaysAreSteps(limited, Make(graph, config));
  EXPECT_GT(limited->memory().recomputed, 0);
  EXPECT_LT(limited->memory().activations, activations);
}

TEST_F(RecordedStepCudaTest, WhatCannotBeRecordedIsRefused) {
  TrainingConfig config = Config(kFast, Precision::kF32, OptimizerKind::kSgd);
  const auto message = [&](const NetworkGraph& graph, absl::StatusCode code) {
    const std::unique_ptr<Trainer> trainer = Make(graph, config);
    const ParameterStore::Values before = trainer->Save()->parameters;
    const absl::Status status = trainer->Record(input_.view()).status();
    EXPECT_EQ(status.code(), code) << status;
    EXPECT_EQ(trainer->Save()->parameters, before);
    // The trainer can go on.
    EXPECT_TRUE(trainer->Step(input_.view(), Labels(0), 0.1).ok());
    return std::string(status.message());
  };
  using ::testing::HasSubstr;
  EXPECT_THAT(message(DroppingGraph(true), absl::StatusCode::kFailedPrecondition),
              HasSubstr("layer 'unpool': work that is recorded must not copy"));
  config.run.keep_maps = false;
  EXPECT_THAT(message(DroppingGraph(false), absl::StatusCode::kFailedPrecondition),
              HasSubstr("keep_maps is needed"));
  config.run.keep_maps = true;
  config.shared.combine_gradients = [](float*, int64_t, const ExecutionContext&) {
    return absl::OkStatus();
  };
  EXPECT_THAT(message(DroppingGraph(false), absl::StatusCode::kFailedPrecondition),
              HasSubstr("a step whose batch processes share cannot be recorded"));
}

TEST_F(RecordedStepCudaTest, LabelsAreChecked) {
  const std::unique_ptr<Trainer> trainer =
      Make(DroppingGraph(false), Config(kFast, Precision::kF32, OptimizerKind::kSgd));
  const auto recorded = trainer->Record(input_.view());
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  std::vector<int32_t> labels = Labels(0);
  labels[3] = kSegmentationClasses;
  EXPECT_THAT(std::string((*recorded)->Step(labels, 0.1).status().message()),
              ::testing::HasSubstr("labels: 4 in row 3; allowed are 0 to 3, and -1"));
  labels.pop_back();
  labels[3] = 0;
  EXPECT_THAT(std::string((*recorded)->Step(labels, 0.1).status().message()),
              ::testing::HasSubstr("values; the network's output has"));
}

// Neither Queue nor the replay waits. Finish waits once.
TEST_F(RecordedStepCudaTest, AReplayHasOneWait) {
  const std::unique_ptr<Trainer> trainer =
      Make(DroppingGraph(false), Config(kFast, Precision::kF16, OptimizerKind::kSgd));
  const auto recorded = trainer->Record(input_.view());
  ASSERT_TRUE(recorded.ok()) << recorded.status();
  for (int i = 0; i < 3; ++i) {
    const int64_t before = unit_->backend->synchronisations();
    ASSERT_TRUE((*recorded)->Queue(Labels(i), Rate(i)).ok());
    EXPECT_EQ(unit_->backend->synchronisations(), before);
    ASSERT_TRUE((*recorded)->Finish().ok());
    EXPECT_EQ(unit_->backend->synchronisations(), before + 1);
  }
}

}  // namespace
}  // namespace voxconv
