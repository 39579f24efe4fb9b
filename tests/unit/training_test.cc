// SPDX-License-Identifier: Apache-2.0
// Steps of the trainer on the CPU, against the fp64 oracle.
#include <algorithm>
#include <cmath>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "tests/support/training_networks.h"
#include "training_test_util.h"
#include "voxconv/networks/executor.h"
#include "voxconv/networks/graph_builder.h"
#include "voxconv/networks/hcnn.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/networks/models.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/training/recorded_step.h"
#include "voxconv/training/reference_gradients.h"
#include "voxconv/training/trainer.h"

namespace voxconv {
namespace {

using testing::BuiltinRegistry;
using testing::Cpu;
using testing::CpuContext;
using ::testing::HasSubstr;

// One step; its loss and all gradients are those of the oracle.
void ExpectOraclesGradients(const NetworkGraph& graph, const Batch& batch,
                            const LayerChoice& choice, LossKind loss = LossKind::kCrossEntropy) {
  TrainingConfig config = Config(choice);
  const int64_t classes = graph.node(graph.output()).channels;
  config.loss.kind = loss;
  ReferenceLoss reference_loss{.cross_entropy = loss != LossKind::kLovasz,
                               .lovasz = loss != LossKind::kCrossEntropy};
  if (loss != LossKind::kLovasz) {
    config.loss.class_weights.assign(classes, 0.75f);
    reference_loss.class_weights.assign(classes, 0.75);
    reference_loss.smoothing = config.loss.smoothing = 0.1;
  }
  config.optimizer.loss_scale = 4;
  const std::unique_ptr<Trainer> trainer = MakeTrainer(graph, config);
  const auto result = trainer->Step(batch.tensor.view(), batch.labels, 0.1);
  ASSERT_TRUE(result.ok()) << result.status();

  const auto reference = ReferenceTraining::Create(graph, batch.rows);
  const auto expected =
      (*reference)->Compute(ParametersOf(graph), batch.Features64(), batch.labels, reference_loss);
  ASSERT_TRUE(expected.ok()) << expected.status();
  EXPECT_NEAR(result->loss.loss, expected->loss, 1e-5 * expected->loss);
  for (size_t p = 0; p < graph.parameters().size(); ++p) {
    const Parameter& parameter = graph.parameters()[p];
    if (!parameter.trained()) continue;
    auto gradient = trainer->Gradient(parameter.name);
    ASSERT_TRUE(gradient.ok()) << gradient.status();
    for (float& value : *gradient) value /= 4;
    EXPECT_LE(reference::RelativeError(*gradient, expected->parameters[p]), 2e-4) << parameter.name;
  }
}

TEST(TrainingTest, AStepCanBeQueuedAndFinishedLater) {
  const std::vector<Coordinate> rows = WavyRows(8);
  const Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  const std::unique_ptr<Trainer> whole = MakeTrainer(graph, Config());
  const std::unique_ptr<Trainer> halves = MakeTrainer(graph, Config());
  EXPECT_EQ(halves->Finish().status().code(), absl::StatusCode::kFailedPrecondition);
  for (int step = 0; step < 3; ++step) {
    std::vector<int32_t> labels = batch.labels;
    ASSERT_TRUE(halves->Queue(batch.tensor.view(), labels, 0.1).ok());
    labels.assign(labels.size(), -7);  // they were copied
    EXPECT_EQ(halves->Queue(batch.tensor.view(), batch.labels, 0.1).code(),
              absl::StatusCode::kFailedPrecondition);
    const auto expected = whole->Step(batch.tensor.view(), batch.labels, 0.1);
    const auto result = halves->Finish();
    ASSERT_TRUE(expected.ok() && result.ok()) << expected.status() << result.status();
    EXPECT_EQ(result->loss.loss, expected->loss.loss);
    EXPECT_EQ(result->gradient_norm, expected->gradient_norm);
  }
}

class TrainingPluginsTest : public ::testing::TestWithParam<LayerChoice> {};

TEST_P(TrainingPluginsTest, GradientsOfSegmentationAreTheOracles) {
  const std::vector<Coordinate> rows = WavyRows(9);
  const Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  for (const PoolMode mode : {PoolMode::kMax, PoolMode::kAveragePresent}) {
    ExpectOraclesGradients(SegmentationGraph(mode), batch, GetParam());
  }
}

TEST(TrainingTest, GradientsOfEveryLossAreTheOracles) {
  const std::vector<Coordinate> rows = WavyRows(9);
  const Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  for (const LossKind loss : {LossKind::kLovasz, LossKind::kCrossEntropyLovasz}) {
    SCOPED_TRACE(ToString(loss));
    ExpectOraclesGradients(SegmentationGraph(PoolMode::kMax), batch, kDefault, loss);
  }
}

INSTANTIATE_TEST_SUITE_P(Plugins, TrainingPluginsTest,
                         ::testing::Values(LayerChoice{"hash", "implicit_gemm", "fused"},
                                           LayerChoice{"hash", "gather_gemm_scatter", "fused"},
                                           LayerChoice{"sorted_search", "fetch_on_demand", "fused"},
                                           LayerChoice{"perfect_hash", "hash2col", "sort_unique"},
                                           LayerChoice{"octree", "direct", "fused"}),
                         [](const auto& info) { return testing::TestName(info.param.dataflow); });

TEST(TrainingTest, GradientsOfClassificationAreTheOracles) {
  const Batch batch(WavyRows(8), 3, {2, 0});
  for (const PoolMode pool : {PoolMode::kSum, PoolMode::kAverage}) {
    for (const PoolMode global : {PoolMode::kMax, PoolMode::kSum, PoolMode::kAveragePresent}) {
      SCOPED_TRACE(::testing::Message() << ToString(pool) << " " << ToString(global));
      ExpectOraclesGradients(ClassificationGraph(pool, global), batch, kDefault);
    }
  }
}

// The last sample loses all of its voxels, and its label counts all the same.
TEST(TrainingTest, GradientsOfASampleWithoutVoxelsAreTheOracles) {
  std::vector<Coordinate> rows = WavyRows(8);
  rows.push_back({rows.back().b + 1, 99, 99, 99});
  std::vector<int32_t> labels(rows.back().b + 1, 1);
  for (const PoolMode mode : {PoolMode::kMax, PoolMode::kSum, PoolMode::kAveragePresent}) {
    GraphBuilder b("bounded");
    int x = b.Conv("down", b.Input(3), 4,
                   {.kind = ConvKind::kStrided,
                    .rule = OutputRule::kDilate,
                    .stride = {2, 2, 2},
                    .output_bounds = Box{{-32, -32, -32}, {32, 32, 32}}});
    x = b.Linear("classes", b.GlobalPool("global", x, mode), 3);
    NetworkGraph graph = *std::move(b).Build(x);
    InitializeParameters(graph, 2);
    ExpectOraclesGradients(graph, Batch(rows, 3, labels), kDefault);
  }
}

// A network of H-CNN's with values.
NetworkGraph Initialized(absl::StatusOr<NetworkGraph> graph) {
  EXPECT_TRUE(graph.ok()) << graph.status();
  InitializeParameters(*graph, 3);
  return *std::move(graph);
}

TEST(TrainingTest, GradientsOfHcnnsNetworksAreTheOracles) {
  const std::vector<Coordinate> rows = WavyRows(9);
  const Batch voxels(rows, 3, SomeLabels(rows.size(), 4)), samples(rows, 3, {2, 0});
  for (const double dropout : {0.0, 0.5}) {
    const HcnnOptions options{
        .width = 0.25, .in_channels = 3, .classes = 4, .levels = 2, .dropout = dropout};
    ExpectOraclesGradients(Initialized(MakeHcnnSegmenter(options)), voxels, kDefault);
    ExpectOraclesGradients(Initialized(MakeHcnnClassifier(options)), samples, kDefault);
  }
}

// The layer behind the coarsest cells weighs each of them by itself.
TEST(TrainingTest, HcnnsClassifierHasOneWindowThatKnowsPlaces) {
  const NetworkGraph graph =
      Initialized(MakeHcnnClassifier({.width = 0.5, .in_channels = 3, .classes = 4, .levels = 1}));
  RunConfig config = Config().run;
  config.keep_layers = {"hidden"};
  const auto run = [&](const std::vector<Coordinate>& rows) {
    const Batch batch(rows, 3, {0});
    const auto runner = NetworkRunner::Create(graph, config, BuiltinRegistry(), Cpu());
    EXPECT_TRUE(runner.ok()) << runner.status();
    auto result = *(*runner)->Run(batch.tensor.view());
    EXPECT_EQ(result.output.features().rows(), 1);
    return std::pair(result.kept.at("hidden").features().rows(),
                     *result.output.features().ToHost(CpuContext()));
  };
  const auto [first_rows, first] = run({{0, -4, -4, -4}, {0, -3, -4, -4}});
  const auto [last_rows, last] = run({{0, 2, 2, 2}, {0, 3, 2, 2}});
  EXPECT_EQ(first_rows, 1);
  EXPECT_EQ(last_rows, 1);
  EXPECT_NE(first, last);
  EXPECT_EQ(run({{0, -4, -4, -4}, {0, 4, 2, 2}}).first, 2);  // beyond [-4, 4)^3
}

// The losses of steps that change nothing differ by what dropout leaves out alone.
TEST(TrainingTest, DropoutIsAnotherInEachStepAndNoneAtInference) {
  const Batch batch(WavyRows(8), 3, {2, 0});
  const HcnnOptions options{
      .width = 0.5, .in_channels = 3, .classes = 4, .levels = 1, .dropout = 0.5};
  const NetworkGraph graph = Initialized(MakeHcnnClassifier(options));
  const auto reference = *ReferenceTraining::Create(graph, batch.rows);
  TrainingConfig config = Config();
  config.dropout_seed = 7;
  const std::unique_ptr<Trainer> trainer = MakeTrainer(graph, config);
  std::vector<double> losses;
  for (int64_t step = 0; step < 3; ++step) {
    losses.push_back(trainer->Step(batch.tensor.view(), batch.labels, 0)->loss.loss);
    const auto expected = reference->Compute(ParametersOf(graph), batch.Features64(), batch.labels,
                                             {}, {.seed = 7, .step = step});
    EXPECT_NEAR(losses.back(), expected->loss, 1e-5 * expected->loss);
  }
  EXPECT_NE(losses[0], losses[1]);
  EXPECT_NE(losses[1], losses[2]);

  const std::unique_ptr<Trainer> restored = MakeTrainer(graph, config);
  ASSERT_TRUE(restored->Restore(*trainer->Save()).ok());
  EXPECT_EQ(restored->Step(batch.tensor.view(), batch.labels, 0)->loss.loss,
            trainer->Step(batch.tensor.view(), batch.labels, 0)->loss.loss);

  const auto output = [&](const NetworkGraph& network) {
    const auto runner = NetworkRunner::Create(network, config.run, BuiltinRegistry(), Cpu());
    EXPECT_TRUE(runner.ok()) << runner.status();
    return *(*runner)->Run(batch.tensor.view())->output.features().ToHost(CpuContext());
  };
  HcnnOptions without = options;
  without.dropout = 0;
  EXPECT_EQ(output(graph), output(Initialized(MakeHcnnClassifier(without))));
}

TEST(TrainingTest, StepsAreTheSameBitsWithAnyNumberOfThreads) {
  const std::vector<Coordinate> rows = WavyRows(12);
  const Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  std::vector<std::vector<double>> losses;
  for (const int threads : {1, 2, 4}) {
    auto trainer = Trainer::Create(SegmentationGraph(PoolMode::kMax), Config(), BuiltinRegistry(),
                                   Cpu(threads));
    ASSERT_TRUE(trainer.ok()) << trainer.status();
    losses.emplace_back();
    for (int step = 0; step < 4; ++step) {
      losses.back().push_back((*trainer)->Step(batch.tensor.view(), batch.labels, 0.1)->loss.loss);
    }
  }
  EXPECT_EQ(losses[0], losses[1]);
  EXPECT_EQ(losses[0], losses[2]);
}

TEST(TrainingTest, AdamWLowersTheLossAndKeepsStatisticsForInference) {
  const Batch batch(WavyRows(10), 3, {2, 0});
  TrainingConfig config = Config();
  config.optimizer.kind = OptimizerKind::kAdamW;
  config.optimizer.weight_decay = 0.01;
  const std::unique_ptr<Trainer> trainer =
      MakeTrainer(ClassificationGraph(PoolMode::kMax, PoolMode::kMax), config);
  double loss = 0;
  for (int step = 0; step < 60; ++step) {
    const auto result = trainer->Step(batch.tensor.view(), batch.labels, 0.01);
    ASSERT_TRUE(result.ok()) << result.status();
    loss = result->loss.loss;
  }
  EXPECT_LT(loss, 0.05);
  // By then the running statistics are those of the only batch.
  const auto snapshot = trainer->Snapshot();
  ASSERT_TRUE(snapshot.ok()) << snapshot.status();
  auto runner = NetworkRunner::Create(*snapshot, Config().run, BuiltinRegistry(), Cpu());
  ASSERT_TRUE(runner.ok()) << runner.status();
  const auto logits = (*runner)->Run(batch.tensor.view());
  ASSERT_TRUE(logits.ok()) << logits.status();
  const std::vector<float> values = *logits->output.features().ToHost(CpuContext());
  for (int sample = 0; sample < 2; ++sample) {
    const auto row = values.begin() + sample * kClasses;
    EXPECT_EQ(std::max_element(row, row + kClasses) - row, batch.labels[sample]);
  }
}

TEST(TrainingTest, ARestoredTrainerGoesOnWithTheSameBits) {
  const std::vector<Coordinate> rows = WavyRows(8);
  const Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  for (const OptimizerKind kind : {OptimizerKind::kSgd, OptimizerKind::kAdamW}) {
    SCOPED_TRACE(ToString(kind));
    TrainingConfig config = Config();
    config.optimizer.kind = kind;
    config.optimizer.loss_scale = 16;
    config.optimizer.scale_growth_interval = 3;
    const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
    const std::unique_ptr<Trainer> trainer = MakeTrainer(graph, config);
    const std::unique_ptr<Trainer> other = MakeTrainer(graph, config);
    for (int step = 0; step < 2; ++step) {
      ASSERT_TRUE(trainer->Step(batch.tensor.view(), batch.labels, 0.01).ok());
    }
    const auto state = trainer->Save();
    ASSERT_TRUE(state.ok()) << state.status();
    ASSERT_TRUE(other->Restore(*state).ok());
    for (int step = 0; step < 3; ++step) {
      const auto expected = trainer->Step(batch.tensor.view(), batch.labels, 0.01);
      const auto result = other->Step(batch.tensor.view(), batch.labels, 0.01);
      ASSERT_TRUE(expected.ok() && result.ok());
      EXPECT_EQ(result->loss.loss, expected->loss.loss);
      EXPECT_EQ(result->loss_scale, expected->loss_scale);
    }
    EXPECT_EQ(other->Save()->parameters, trainer->Save()->parameters);
  }
}

TEST(TrainingTest, ReportsMemoryAndKeepsItFromStepToStep) {
  const std::vector<Coordinate> rows = WavyRows(12);
  const Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  const std::unique_ptr<Trainer> trainer = MakeTrainer(SegmentationGraph(PoolMode::kMax), Config());
  ASSERT_TRUE(trainer->Step(batch.tensor.view(), batch.labels, 0.1).ok());
  const TrainingMemory first = trainer->memory();
  ASSERT_TRUE(trainer->Step(batch.tensor.view(), batch.labels, 0.1).ok());
  const int64_t in_use = Cpu().BytesInUse();
  for (int step = 0; step < 5; ++step) {
    ASSERT_TRUE(trainer->Step(batch.tensor.view(), batch.labels, 0.1).ok());
  }
  EXPECT_EQ(Cpu().BytesInUse(), in_use);
  EXPECT_EQ(trainer->memory().activations, first.activations);
  EXPECT_GT(first.activations, static_cast<int64_t>(rows.size()) * 4 * (6 + 6 + 6));
  EXPECT_GT(first.maps, 0);
  EXPECT_GT(first.parameters, 2 * trainer->graph().num_parameters() * 4 - 1);
  EXPECT_GT(first.optimizer, 0);
  EXPECT_GE(first.peak, first.activations + first.parameters + first.optimizer);
}

// What does not fit is computed again, with the same bits.
TEST(TrainingTest, ALimitOfMemoryChangesNoGradient) {
  const std::vector<Coordinate> rows = WavyRows(12);
  const Batch batch(rows, 3, SomeLabels(rows.size(), 4));
  const std::vector<NetworkGraph> graphs = {
      Initialized(MakeHcnnSegmenter(
          {.width = 0.5, .in_channels = 3, .classes = 4, .levels = 3, .dropout = 0.25})),
      Initialized(MakeMinkUNet42(0.125, 3, 4))};
  for (const NetworkGraph& graph : graphs) {
    SCOPED_TRACE(graph.name());
    const std::unique_ptr<Trainer> whole = MakeTrainer(graph, Config());
    const auto expected = whole->Step(batch.tensor.view(), batch.labels, 0);
    ASSERT_TRUE(expected.ok()) << expected.status();
    EXPECT_EQ(whole->memory().recomputed, 0);
    int recomputed = 0;
    for (const double share : {0.8, 0.65}) {
      TrainingConfig config = Config();
      config.activation_limit = static_cast<int64_t>(share * whole->memory().activations);
      const std::unique_ptr<Trainer> limited = MakeTrainer(graph, config);
      const auto result = limited->Step(batch.tensor.view(), batch.labels, 0);
      ASSERT_TRUE(result.ok()) << share << ": " << result.status();
      EXPECT_EQ(result->loss.loss, expected->loss.loss);
      EXPECT_LE(limited->memory().activations, config.activation_limit);
      EXPECT_GE(limited->memory().recomputed, recomputed);
      recomputed = limited->memory().recomputed;
      EXPECT_GT(recomputed, 0);
      for (const Parameter& parameter : graph.parameters()) {
        if (!parameter.trained()) continue;
        EXPECT_EQ(*limited->Gradient(parameter.name), *whole->Gradient(parameter.name))
            << parameter.name;
      }
      EXPECT_EQ(limited->Save()->parameters, whole->Save()->parameters);  // running statistics
    }
  }
}

// The bytes of a plan are known before the step: it is taken if they are the limit, and not if the
// limit is one byte less.
TEST(TrainingTest, ALimitOfMemoryIsThatOfTheStep) {
  const std::vector<Coordinate> rows = WavyRows(8);
  const Batch batch(rows, 3, SomeLabels(rows.size(), 4)), clouds(rows, 3, SomeLabels(2, 4));
  for (const std::string& name : TrainableNames()) {
    SCOPED_TRACE(name);
    const NetworkGraph graph = Initialized(MakeTrainable(
        name, {.width = 0.125, .in_channels = 3, .classes = 4, .levels = 2, .dropout = 0.5}));
    const bool per_cloud = graph.node(graph.output()).coordinates < 0;
    // The bytes of a step with the limit and how many layers ran again, or why there was none.
    std::string refused;
    const auto step = [&](int64_t limit) {
      TrainingConfig config = Config();
      config.activation_limit = limit;
      const std::unique_ptr<Trainer> trainer = MakeTrainer(graph, config);
      const Batch& given = per_cloud ? clouds : batch;
      refused = std::string(trainer->Step(given.tensor.view(), given.labels, 0).status().message());
      return std::pair(trainer->memory().activations, trainer->memory().recomputed);
    };
    const auto [whole, none] = step(0);
    ASSERT_EQ(refused, "");
    EXPECT_EQ(none, 0);
    EXPECT_EQ(step(whole), std::pair(whole, 0)) << refused;
    EXPECT_GT(step(whole - 1).second, 0) << refused;
    EXPECT_EQ(refused, "");
    step(1000);
    const std::string words = "activation_limit: 1000 bytes; this batch needs at least ";
    ASSERT_THAT(refused, HasSubstr(words));
    const int64_t least = std::stoll(refused.substr(words.size()));
    EXPECT_LT(least, whole);
    EXPECT_EQ(step(least).first, least) << refused;
    step(least - 1);
    EXPECT_THAT(refused, HasSubstr(absl::StrCat("this batch needs at least ", least)));
  }
}

TEST(TrainingTest, BadLabelsAndInputsAreRefusedByName) {
  const std::vector<Coordinate> rows = WavyRows(6);
  Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  const std::unique_ptr<Trainer> trainer = MakeTrainer(graph, Config());
  const auto message = [&](const std::vector<int32_t>& labels, double rate = 0.1) {
    const auto result = trainer->Step(batch.tensor.view(), labels, rate);
    EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
    return std::string(result.status().message());
  };
  std::vector<int32_t> labels = batch.labels;
  labels[3] = kSegmentationClasses;
  EXPECT_THAT(message(labels), HasSubstr("labels: 4 in row 3; allowed are 0 to 3, and -1"));
  labels.pop_back();
  labels[3] = 0;
  EXPECT_THAT(message(labels), HasSubstr("values; the network's output has"));
  EXPECT_THAT(message(batch.labels, std::nan("")), HasSubstr("rate: nan"));
  const Batch wide(rows, 5, batch.labels);
  EXPECT_THAT(std::string(trainer->Step(wide.tensor.view(), wide.labels, 0.1).status().message()),
              HasSubstr("features: shape"));
  // Nothing has changed.
  const auto snapshot = trainer->Snapshot();
  ASSERT_TRUE(snapshot.ok());
  for (size_t p = 0; p < graph.parameters().size(); ++p) {
    if (!graph.parameters()[p].trained()) continue;
    EXPECT_EQ(snapshot->parameters()[p].values, graph.parameters()[p].values);
  }
}

TEST(TrainingTest, ALossThatIsNotFiniteNamesTheLayerAndChangesNoParameter) {
  const std::vector<Coordinate> rows = WavyRows(6);
  Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  for (const Node& node : graph.nodes()) {
    if (node.name != "deep") continue;
    const Parameter& parameter = graph.parameters()[node.parameters[0]];
    const std::vector<float> values(parameter.size(), std::numeric_limits<float>::infinity());
    ASSERT_TRUE(graph.SetParameter(parameter.name, values).ok());
  }
  const std::unique_ptr<Trainer> trainer = MakeTrainer(graph, Config());
  const auto result = trainer->Step(batch.tensor.view(), batch.labels, 0.1);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(result.status().message()),
              HasSubstr("the first result that is not finite is that of layer 'deep'"));
  EXPECT_EQ((*trainer->Snapshot()).parameters()[0].values, graph.parameters()[0].values);

  const std::unique_ptr<Trainer> healthy = MakeTrainer(SegmentationGraph(PoolMode::kMax), Config());
  std::vector<float> features = batch.features;
  features[1] = std::nanf("");
  const SparseTensor bad = *SparseTensor::Create(rows, {1, 1, 1}, features, 3, CpuContext());
  EXPECT_THAT(std::string(healthy->Step(bad.view(), batch.labels, 0.1).status().message()),
              HasSubstr("the input has values that are not finite"));
}

TEST(TrainingTest, ConfigurationsThatCannotBeAreRefusedByName) {
  const NetworkGraph graph = ClassificationGraph(PoolMode::kMax, PoolMode::kMax);
  const auto message = [&](const TrainingConfig& config) {
    const auto trainer = Trainer::Create(graph, config, BuiltinRegistry(), Cpu());
    EXPECT_FALSE(trainer.ok());
    return std::string(trainer.status().message());
  };
  TrainingConfig config = Config();
  config.loss.class_weights = {1, 2};
  EXPECT_THAT(message(config), HasSubstr("class_weights: 2 values; the network has 3 classes"));
  config = Config();
  config.loss = {.kind = LossKind::kLovasz, .smoothing = 0.1};
  EXPECT_THAT(message(config), HasSubstr("smoothing: 0.1; the loss lovasz takes 0 alone"));
  config.loss = {.kind = LossKind::kLovasz, .class_weights = {1, 2, 3}};
  EXPECT_THAT(message(config), HasSubstr("class_weights: 3 values; the loss lovasz takes none"));
  EXPECT_THAT(std::string(ParseLossKind("dice").status().message()),
              HasSubstr("loss 'dice' is unknown; allowed are cross_entropy, lovasz"));
  config = Config();
  config.optimizer.momentum = 1.5;
  EXPECT_THAT(message(config), HasSubstr("sgd: momentum: 1.5; allowed is [0, 1)"));
  config = Config();
  config.run.fold_batch_norm = true;
  EXPECT_THAT(message(config), HasSubstr("fold_batch_norm"));
  config = Config();
  config.run.precision = Precision::kF16;
  EXPECT_THAT(message(config), HasSubstr("f16"));
}

TEST(TrainingTest, AnAnnouncedInputChangesNoBit) {
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  std::vector<Batch> batches;
  for (const int extent : {8, 12, 6, 12}) {
    const std::vector<Coordinate> rows = WavyRows(extent);
    batches.emplace_back(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  }
  const std::unique_ptr<Trainer> plain = MakeTrainer(graph, Config());
  const std::unique_ptr<Trainer> announced = MakeTrainer(graph, Config());
  ASSERT_TRUE(announced->Announce(batches[0].tensor.view()).ok());  // before the first step
  for (size_t i = 0; i < batches.size(); ++i) {
    const Batch& batch = batches[i];
    const auto expected = plain->Step(batch.tensor.view(), batch.labels, 0.1);
    ASSERT_TRUE(announced->Queue(batch.tensor.view(), batch.labels, 0.1).ok());
    // The last but one is announced wrongly.
    const size_t next = i == 2 ? 0 : std::min(i + 1, batches.size() - 1);
    ASSERT_TRUE(announced->Announce(batches[next].tensor.view()).ok());
    const auto result = announced->Finish();
    ASSERT_TRUE(result.ok()) << result.status();
    EXPECT_EQ(result->loss.loss, expected->loss.loss);
    EXPECT_EQ(result->gradient_norm, expected->gradient_norm);
  }
  EXPECT_EQ(announced->Save()->parameters, plain->Save()->parameters);
}

TEST(TrainingTest, NoStepIsRecordedOnTheCpu) {
  TrainingConfig config = Config();
  config.run.keep_maps = true;
  const std::unique_ptr<Trainer> trainer = MakeTrainer(SegmentationGraph(PoolMode::kMax), config);
  const std::vector<Coordinate> rows = WavyRows(5);
  const Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  const absl::Status status = trainer->Record(batch.tensor.view()).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnimplemented);
  EXPECT_EQ(status.message(),
            "backend cpu: work is done when it is queued, so no step can be recorded");
}

// Pooling through columns: hash2col over tables, and over lookups in the perfect hash.
TEST(TrainingTest, PoolingThroughHash2colGivesTheOraclesGradients) {
  const std::vector<Coordinate> rows = WavyRows(12);
  const Batch batch(rows, 3, SomeLabels(rows.size(), kSegmentationClasses));
  for (const LayerChoice& choice :
       {LayerChoice{"perfect_hash", "hash2col", "sort_unique"},
        LayerChoice{"perfect_hash:map=lookup", "hash2col:columns=lookup", "sort_unique"}}) {
    for (const PoolMode mode :
         {PoolMode::kMax, PoolMode::kSum, PoolMode::kAverage, PoolMode::kAveragePresent}) {
      SCOPED_TRACE(::testing::Message() << choice.dataflow << " " << ToString(mode));
      ExpectOraclesGradients(SegmentationGraph(mode), batch, choice);
    }
  }
}

TEST(TrainingTest, AnEmptyBatchIsRefused) {
  const std::unique_ptr<Trainer> trainer = MakeTrainer(SegmentationGraph(PoolMode::kMax), Config());
  const Batch batch({}, 3, {});
  const auto result = trainer->Step(batch.tensor.view(), batch.labels, 0.1);
  EXPECT_EQ(result.status().code(), absl::StatusCode::kInvalidArgument);
  EXPECT_EQ(result.status().message(), "batch: 0 voxels; at least 1 is needed");
}

TEST(TrainingTest, WithoutRowsThatCountNothingIsLearnt) {
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  const std::unique_ptr<Trainer> trainer = MakeTrainer(graph, Config());
  const std::vector<Coordinate> rows = WavyRows(5);
  const Batch batch(rows, 3, std::vector<int32_t>(rows.size(), -1));
  const auto result = trainer->Step(batch.tensor.view(), batch.labels, 0.1);
  ASSERT_TRUE(result.ok()) << result.status();
  EXPECT_EQ(result->loss.rows, 0);
  EXPECT_EQ(result->loss.loss, 0);
  EXPECT_EQ(trainer->Snapshot()->parameters()[0].values, graph.parameters()[0].values);
}

}  // namespace
}  // namespace voxconv
