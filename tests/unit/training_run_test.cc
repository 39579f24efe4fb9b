// SPDX-License-Identifier: Apache-2.0
// Checkpoints, whole trainings, and their ends.
#include "voxconv/training/run/training_run.h"

#include <atomic>
#include <filesystem>
#include <fstream>
#include <limits>
#include <memory>
#include <string>
#include <tuple>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "voxconv/builtin/backends.h"
#include "voxconv/io/file_bytes.h"
#include "voxconv/io/json_file.h"
#include "voxconv/io/npy.h"
#include "voxconv/io/output_file.h"
#include "voxconv/io/safetensors.h"
#include "voxconv/networks/hcnn.h"
#include "voxconv/networks/initialize.h"
#include "voxconv/training/checkpoint.h"
#include "voxconv/training/run/confusion.h"

namespace voxconv {
namespace {

namespace fs = std::filesystem;
using testing::BuiltinRegistry;
using ::testing::ContainsRegex;
using testing::Cpu;
using ::testing::HasSubstr;

std::string FreshFolder(const std::string& name) {
  const std::string folder = ::testing::TempDir() + "/" + name;
  fs::remove_all(folder);
  return folder;
}

// Lines and plates: a set that a small network learns.
std::unique_ptr<Dataset> ShapesSet(int64_t models = 24) {
  std::vector<int32_t> cells, labels;
  std::vector<int64_t> offsets{0};
  for (int i = 0; i < models; ++i) {
    const int32_t at = i % 5;
    for (int32_t x = 0; x < 6; ++x) {
      for (int32_t y = 0; y < (i % 2 == 0 ? 1 : 6); ++y) {
        cells.insert(cells.end(), {x + at, y + i % 3, at});
      }
    }
    labels.push_back(i % 2);
    offsets.push_back(static_cast<int64_t>(cells.size()) / 3);
  }
  NpzArrays arrays;
  for (const char* split : {"train", "test"}) {
    arrays.emplace_back(std::string("coords_") + split,
                        MakeNpyArray({offsets.back(), 3}, absl::MakeConstSpan(cells)));
    arrays.emplace_back(std::string("offsets_") + split,
                        MakeNpyArray({models + 1}, absl::MakeConstSpan(offsets)));
    arrays.emplace_back(std::string("labels_") + split,
                        MakeNpyArray({models}, absl::MakeConstSpan(labels)));
  }
  const std::string path = ::testing::TempDir() + "/shapes.npz";
  EXPECT_TRUE(WriteNpz(path, arrays).ok());
  return *OpenDataset(path, "train");
}

// A set whose classes have other names.
class Renamed final : public Dataset {
 public:
  Renamed(const Dataset& set, std::vector<std::string> names)
      : set_(set), names_(std::move(names)) {}
  int64_t size() const override { return set_.size(); }
  LabelKind label_kind() const override { return set_.label_kind(); }
  int64_t classes() const override { return set_.classes(); }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string NameOf(int64_t index) const override { return set_.NameOf(index); }
  absl::StatusOr<std::string> ContentHash() const override { return set_.ContentHash(); }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override { return set_.Load(index); }

 private:
  const Dataset& set_;
  std::vector<std::string> names_;
};

NetworkGraph Classifier(int64_t classes = 2, double width = 0.25) {
  NetworkGraph graph =
      *MakeHcnnClassifier({.width = width, .in_channels = 1, .classes = classes, .levels = 1});
  InitializeParameters(graph, 1);
  return graph;
}

TrainingRunConfig Config(const std::string& folder, int64_t epochs) {
  TrainingRunConfig config{.folder = folder, .epochs = epochs};
  config.test = {.batch = 5, .channels = 1};
  config.test.voxelize = {.size = {1, 1, 1}, .xyz_features = false};
  config.train = config.test;
  config.train.shuffle = true;
  config.train.augmentation = {.shift = 1, .drop_points = 0.1};
  config.training.run.planner =
      std::make_shared<FixedPlanner>(LayerChoice{"hash", "implicit_gemm", "fused"});
  config.training.optimizer.kind = OptimizerKind::kAdamW;
  config.rate = {.rate = 0.01};
  config.checkpoint_steps = 3;
  config.settings = "seed=1";
  return config;
}

absl::StatusOr<NetworkGraph> Train(const TrainingRunConfig& config, const Dataset& set,
                                   const TrainingObserver& observer = {},
                                   const NetworkGraph& graph = Classifier(),
                                   Backend& backend = Cpu()) {
  return RunTraining(graph, config, set, &set, BuiltinRegistry(), backend, observer);
}

// The lines of a run, without their times and waits, and without what the process has held at once.
std::vector<std::string> Lines(const std::string& path) {
  std::vector<std::string> lines;
  std::ifstream file(path);
  for (std::string line; std::getline(file, line);) {
    Json json = *ParseJson(line);
    json.erase("ms");
    json.erase("waits");
    json.erase("peak_bytes");
    lines.push_back(json.dump());
  }
  return lines;
}

// What the steps of one epoch add up to, from their lines. Each row weighs 1.
EpochSums SumsOfEpoch(const std::string& folder, int64_t epoch) {
  EpochSums sums;
  for (const std::string& line : Lines(folder + "/steps.jsonl")) {
    const Json step = *ParseJson(line);
    if (step["epoch"] != epoch) continue;
    const auto rows = step["rows"].get<int64_t>();
    sums.rows += rows;
    sums.weight += static_cast<double>(rows);
    sums.loss += step["loss"].get<double>() * static_cast<double>(rows);
  }
  return sums;
}

TEST(TrainingRunTest, LearnsAndWritesWhatHappened) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const std::string folder = FreshFolder("learns");
  double accuracy = 0;
  int64_t steps = 0;
  const TrainingObserver observer{
      .step = [&](const StepReport&) { ++steps; },
      .epoch = [&](const EpochReport& report) { accuracy = report.test.Accuracy(); }};
  const auto trained = Train(Config(folder, 12), *set, observer);
  ASSERT_TRUE(trained.ok()) << trained.status();
  EXPECT_EQ(accuracy, 1);
  EXPECT_EQ(steps, 12 * 5);
  EXPECT_EQ(Lines(folder + "/steps.jsonl").size(), 60u);
  const std::vector<std::string> epochs = Lines(folder + "/epochs.jsonl");
  ASSERT_EQ(epochs.size(), 12u);
  const Json last = *ParseJson(epochs.back());
  EXPECT_EQ(last["test_classes"].get<std::vector<std::string>>(), set->class_names());
  EXPECT_EQ(last["test_confusion"].size(), set->class_names().size());
  NetworkGraph loaded = Classifier();
  ASSERT_TRUE(LoadParameters(folder + "/checkpoint.safetensors", loaded).ok());
  for (size_t i = 0; i < loaded.parameters().size(); ++i) {
    EXPECT_EQ(loaded.parameters()[i].values, trained->parameters()[i].values);
  }
}

// What a run leaves behind that is killed, whenever that is: a checkpoint that is some steps old,
// and lines of later steps, the last of which may be cut off.
TEST(TrainingRunTest, GoesOnToTheSameBitsFromAnyCheckpoint) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const std::string whole = FreshFolder("whole");
  const TrainingRunConfig config = Config(whole, 3);
  std::vector<std::string> killed;
  const TrainingObserver observer{.step = [&](const StepReport& report) {
    if (report.step % 4 != 1 || report.step < 5) return;
    killed.push_back(FreshFolder("killed" + std::to_string(report.step)));
    fs::copy(whole, killed.back());
    std::ofstream(killed.back() + "/steps.jsonl", std::ios::app) << "{\"step\":";
    std::ofstream(killed.back() + "/.voxconv-0123456789abcdef") << "half a checkpoint";
  }};
  const auto expected = Train(config, *set, observer);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_EQ(killed.size(), 3u);
  for (const std::string& folder : killed) {
    SCOPED_TRACE(folder);
    TrainingRunConfig again = config;
    again.folder = folder;
    const auto trained = Train(again, *set);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_EQ(Lines(folder + "/steps.jsonl"), Lines(whole + "/steps.jsonl"));
    EXPECT_EQ(Lines(folder + "/epochs.jsonl"), Lines(whole + "/epochs.jsonl"));
    EXPECT_FALSE(fs::exists(folder + "/.voxconv-0123456789abcdef"));
    for (size_t i = 0; i < trained->parameters().size(); ++i) {
      EXPECT_EQ(trained->parameters()[i].values, expected->parameters()[i].values);
    }
  }
}

// Trains with a loss scale that makes gradients overflow, and goes on from each checkpoint that a
// skipped step left.
void ExpectTheSameBitsAfterSkippedSteps(TrainingRunConfig config, Backend& backend) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const std::string whole = FreshFolder("skipping");
  config.folder = whole;
  config.checkpoint_steps = 1;
  std::vector<std::string> killed;
  bool skipped = false, grew = false;
  float scale = config.training.optimizer.loss_scale;
  const TrainingObserver observer{.step = [&](const StepReport& report) {
    if (skipped) {  // the checkpoint is that of the step before
      killed.push_back(FreshFolder("skipped" + std::to_string(report.step)));
      fs::copy(whole, killed.back());
    }
    skipped = report.result.skipped;
    grew |= report.result.loss_scale > scale;
    scale = report.result.loss_scale;
  }};
  const auto expected = Train(config, *set, observer, Classifier(), backend);
  ASSERT_TRUE(expected.ok()) << expected.status();
  ASSERT_FALSE(killed.empty());
  EXPECT_TRUE(grew || backend.kind() == BackendKind::kCpu);
  for (const std::string& folder : killed) {
    SCOPED_TRACE(folder);
    config.folder = folder;
    const auto trained = Train(config, *set, {}, Classifier(), backend);
    ASSERT_TRUE(trained.ok()) << trained.status();
    EXPECT_EQ(Lines(folder + "/steps.jsonl"), Lines(whole + "/steps.jsonl"));
    EXPECT_EQ(Lines(folder + "/epochs.jsonl"), Lines(whole + "/epochs.jsonl"));
    for (size_t i = 0; i < trained->parameters().size(); ++i) {
      EXPECT_EQ(trained->parameters()[i].values, expected->parameters()[i].values);
    }
  }
}

TEST(TrainingRunTest, GoesOnToTheSameBitsAfterSkippedSteps) {
  TrainingRunConfig config = Config("", 2);
  config.training.optimizer.loss_scale = std::numeric_limits<float>::max();
  config.training.optimizer.scale_growth_interval = 2000;
  ExpectTheSameBitsAfterSkippedSteps(config, Cpu());
}

// As `voxconv train` scales the loss in f16, but that the scale grows sooner.
TEST(TrainingRunTest, GoesOnToTheSameBitsAfterSkippedStepsInF16) {
  const auto cuda = MakeBackend({.kind = BackendKind::kCuda});
  if (!cuda.ok()) GTEST_SKIP() << "no CUDA device on this machine: " << cuda.status().message();
  TrainingRunConfig config = Config("", 6);
  config.training.run.precision = Precision::kF16;
  config.training.optimizer.loss_scale = 65536;
  config.training.optimizer.scale_growth_interval = 3;
  ExpectTheSameBitsAfterSkippedSteps(config, **cuda);
}

TEST(TrainingRunTest, StepsThatAreAllSkippedEndTheRun) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  TrainingRunConfig config = Config(FreshFolder("stuck"), 4);
  config.training.optimizer.loss_scale = std::numeric_limits<float>::max();
  const auto trained = Train(config, *set);
  EXPECT_EQ(trained.status().code(), absl::StatusCode::kOutOfRange);
  EXPECT_THAT(std::string(trained.status().message()),
              ContainsRegex("^step 3: 3 steps in a row had gradients that are not finite, so "
                            "nothing is learned; the one nearest to the loss is that of parameter "
                            "'[a-z0-9_.]+'$"));
  EXPECT_TRUE(fs::exists(config.folder + "/steps.jsonl"));
}

// A set of which one cloud cannot be loaded after so many loads.
class Failing final : public Dataset {
 public:
  Failing(const Dataset& set, int loads) : set_(set), loads_(loads) {}
  int64_t size() const override { return set_.size(); }
  LabelKind label_kind() const override { return set_.label_kind(); }
  int64_t classes() const override { return set_.classes(); }
  const std::vector<std::string>& class_names() const override { return set_.class_names(); }
  std::string NameOf(int64_t index) const override { return set_.NameOf(index); }
  absl::StatusOr<std::string> ContentHash() const override { return set_.ContentHash(); }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override {
    if (loaded_++ >= loads_) return absl::UnavailableError("the file is gone");
    return set_.Load(index);
  }

 private:
  const Dataset& set_;
  const int loads_;
  mutable std::atomic<int> loaded_ = 0;
};

// The next batch is loaded during a step, also over the border of an epoch. What is done is not
// lost if that fails.
TEST(TrainingRunTest, ABatchThatCannotBeLoadedEndsTheRunBeforeItsStep) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  // 24 clouds are 5 batches: the first of the second epoch, and the second of the first.
  for (const auto& [loads, steps, epochs] : {std::tuple{24, 5u, 1u}, {5, 1u, 0u}}) {
    SCOPED_TRACE(loads);
    TrainingRunConfig config = Config(FreshFolder("gone"), 2);
    config.train.workers = 0;
    config.checkpoint_steps = 1;
    const Failing failing(*set, loads);
    const auto trained =
        RunTraining(Classifier(), config, failing, set.get(), BuiltinRegistry(), Cpu(), {});
    EXPECT_EQ(trained.status().message(), "the file is gone");
    EXPECT_EQ(Lines(config.folder + "/steps.jsonl").size(), steps);
    EXPECT_EQ(Lines(config.folder + "/epochs.jsonl").size(), epochs);
    ASSERT_TRUE(Train(config, *set).ok());  // goes on
    EXPECT_EQ(Lines(config.folder + "/steps.jsonl").size(), 10u);
  }
}

// Killed between the checkpoint of an epoch's last step and the test after it.
TEST(TrainingRunTest, GoesOnFromTheLastStepOfAnEpoch) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const std::string whole = FreshFolder("whole_epochs"), killed = FreshFolder("killed_at_end");
  TrainingRunConfig config = Config(whole, 2);
  ASSERT_TRUE(Train(config, *set).ok());
  config.folder = killed;
  config.checkpoint_steps = 5;
  ASSERT_TRUE(Train(config, *set).ok());
  const NetworkGraph graph = Classifier();
  Checkpoint checkpoint =
      *LoadCheckpoint(killed + "/checkpoint.safetensors", graph, OptimizerKind::kAdamW);
  const EpochSums last = SumsOfEpoch(killed, 2);
  checkpoint.progress.epoch = 1;
  checkpoint.progress.step_in_epoch = 5;
  checkpoint.progress.sums = last;
  ASSERT_TRUE(SaveCheckpoint(killed + "/checkpoint.safetensors", graph, checkpoint).ok());
  ASSERT_TRUE(Train(config, *set).ok());
  EXPECT_EQ(Lines(killed + "/epochs.jsonl"), Lines(whole + "/epochs.jsonl"));
  checkpoint.progress.step_in_epoch = 6;
  ASSERT_TRUE(SaveCheckpoint(killed + "/checkpoint.safetensors", graph, checkpoint).ok());
  EXPECT_THAT(std::string(Train(config, *set).status().message()),
              HasSubstr("6 steps of an epoch are done; this run has 5 an epoch"));
}

TEST(TrainingRunTest, RefusesWhatDoesNotFitByName) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const std::string folder = FreshFolder("refuses");
  ASSERT_TRUE(Train(Config(folder, 1), *set).ok());
  const auto message = [&](const TrainingRunConfig& config, const NetworkGraph& graph) {
    const auto trained = Train(config, *set, {}, graph);
    EXPECT_FALSE(trained.ok());
    return std::string(trained.status().message());
  };
  TrainingRunConfig config = Config(folder, 1);
  config.settings = "seed=2";
  EXPECT_THAT(message(config, Classifier()),
              HasSubstr("a run with the settings 'seed=1'; this one has 'seed=2'"));
  config.settings = "rate=0.1 seed=1 width=2";  // those that differ alone
  EXPECT_THAT(message(config, Classifier()),
              HasSubstr("a run with the settings ''; this one has 'rate=0.1 width=2'"));
  EXPECT_THAT(message(Config(folder, 1), Classifier(2, 0.5)),
              HasSubstr("has the shape [27, 1, 4]; hcnn_classifier needs [27, 1, 8]"));
  config = Config(folder, 1);
  config.training.optimizer.kind = OptimizerKind::kSgd;
  EXPECT_THAT(message(config, Classifier()),
              HasSubstr("a checkpoint of the optimizer adamw; this training has sgd"));
  EXPECT_THAT(message(Config(FreshFolder("classes"), 1), Classifier(3)),
              HasSubstr("3 classes; the data set has 2"));
  config = Config(FreshFolder("rate"), 1);
  config.rate.rate = -1;
  EXPECT_THAT(message(config, Classifier()), HasSubstr("rate: -1"));
}

TEST(TrainingRunTest, AnotherDataSetIsRefused) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const TrainingRunConfig config = Config(FreshFolder("other_data"), 1);
  ASSERT_TRUE(Train(config, *set).ok());
  const std::unique_ptr<Dataset> other = ShapesSet(20);  // in the same file
  const auto trained = Train(config, *other);
  EXPECT_EQ(trained.status().code(), absl::StatusCode::kFailedPrecondition);
  EXPECT_THAT(std::string(trained.status().message()),
              ContainsRegex("settings 'train-clouds=24 train-content=[0-9a-f]* test-clouds=24 .*'; "
                            "this one has 'train-clouds=20 train-content="));
  const Renamed renamed(*other, {"class 0", "class one"});
  EXPECT_THAT(
      std::string(RunTraining(Classifier(), config, *other, &renamed, BuiltinRegistry(), Cpu(), {})
                      .status()
                      .message()),
      HasSubstr("class 1 is 'class 1' in the training data and 'class one' in the test"));
}

// Checkpoints of the first version do not tell their data set. Their weights can be read.
TEST(TrainingRunTest, ACheckpointOfAnEarlierVersionIsRefused) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const std::string folder = FreshFolder("earlier");
  const std::string path = folder + "/checkpoint.safetensors";
  ASSERT_TRUE(Train(Config(folder, 1), *set).ok());
  Safetensors content = *ReadSafetensors(path);
  for (auto& [key, value] : content.metadata) {
    if (key == "format") value = "voxconv training 1";
  }
  ASSERT_TRUE(WriteFileBytes(path, *SerializeSafetensors(content)).ok());
  EXPECT_THAT(std::string(Train(Config(folder, 1), *set).status().message()),
              HasSubstr("a checkpoint of an earlier version, which does not tell its data set"));
  NetworkGraph graph = Classifier();
  EXPECT_TRUE(LoadParameters(path, graph).ok());
  content.tensors[0] =
      MakeSafeTensor(content.tensors[0].name, content.tensors[0].shape,
                     std::vector<float>(27 * 4, std::numeric_limits<float>::quiet_NaN()));
  ASSERT_TRUE(WriteFileBytes(path, *SerializeSafetensors(content)).ok());
  EXPECT_THAT(std::string(LoadParameters(path, graph).message()),
              HasSubstr("nan at 0; values must be finite"));
}

TEST(TrainingRunTest, LogitsThatAreNotFiniteAreNamed) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  NetworkGraph graph = Classifier();
  const Parameter& last = graph.parameters().back();
  std::vector<float> values = last.values;
  values.assign(values.size(), std::numeric_limits<float>::quiet_NaN());
  ASSERT_TRUE(graph.SetParameter(last.name, values).ok());
  const TrainingRunConfig config = Config("", 1);
  EXPECT_THAT(std::string(Evaluate(graph, config.training.run, config.test, *set, BuiltinRegistry(),
                                   Cpu(), NonFiniteLogits::kRefused)
                              .status()
                              .message()),
              HasSubstr("shapes.npz: train model 0: its logits are not finite; so are those of 5 "
                        "of 5 clouds of its batch"));
}

// Two clouds of three points. Only the last two of the second cloud have a label.
class SomePoints final : public Dataset {
 public:
  int64_t size() const override { return 2; }
  LabelKind label_kind() const override { return LabelKind::kPoint; }
  int64_t classes() const override { return 2; }
  const std::vector<std::string>& class_names() const override { return names_; }
  std::string NameOf(int64_t index) const override { return "cloud " + std::to_string(index); }
  absl::StatusOr<std::string> ContentHash() const override { return "0"; }
  absl::StatusOr<LabelledCloud> Load(int64_t index) const override {
    LabelledCloud cloud{.cloud = {}, .labels = {-1, -1, -1}};
    cloud.cloud.xyz = {0.5, 0, 0, 1.5, 0, 0, 2.5, 0, 0};
    if (index == 1) cloud.labels = {-1, 0, 1};
    return cloud;
  }

 private:
  std::vector<std::string> names_ = {"ground", "tree"};
};

TEST(TrainingRunTest, TheVoxelWhoseLogitsAreNotFiniteIsNamed) {
  const SomePoints set;
  NetworkGraph graph =
      *MakeHcnnSegmenter({.width = 0.25, .in_channels = 1, .classes = 2, .levels = 1});
  InitializeParameters(graph, 1);
  const TrainingRunConfig config = Config("", 1);
  const auto evaluate = [&](NonFiniteLogits non_finite) {
    return Evaluate(graph, config.training.run, config.test, set, BuiltinRegistry(), Cpu(),
                    non_finite);
  };
  EXPECT_EQ(evaluate(NonFiniteLogits::kRefused)->total(), 2);
  const Parameter& last = graph.parameters().back();
  const std::vector<float> values(last.values.size(), std::numeric_limits<float>::infinity());
  ASSERT_TRUE(graph.SetParameter(last.name, values).ok());
  EXPECT_EQ(evaluate(NonFiniteLogits::kRefused).status().message(),
            "cloud 1: the logits of voxel 1 are not finite; so are those of 2 of 6 voxels of its "
            "batch");
  const absl::StatusOr<Confusion> counted = evaluate(NonFiniteLogits::kCounted);
  ASSERT_TRUE(counted.ok()) << counted.status();
  EXPECT_EQ(counted->not_finite(), 2);
  EXPECT_EQ(counted->total(), 2);
  EXPECT_EQ(counted->Accuracy(), 0);
}

TEST(TrainingRunTest, TwoRunsInOneFolderAreRefused) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const TrainingRunConfig config = Config(FreshFolder("twice"), 1);
  absl::Status second;
  const TrainingObserver observer{.step = [&](const StepReport& report) {
    if (report.step == 2) second = Train(config, *set).status();
  }};
  ASSERT_TRUE(Train(config, *set, observer).ok());
  EXPECT_EQ(second.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(second.message()),
              HasSubstr("checkpoint.safetensors: another program has locked its folder"));
  EXPECT_TRUE(Train(config, *set).ok());  // the lock went with the run
}

TEST(TrainingRunTest, ADamagedCheckpointIsRefusedAndStays) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const std::string folder = FreshFolder("damaged");
  ASSERT_TRUE(Train(Config(folder, 1), *set).ok());
  const std::string path = folder + "/checkpoint.safetensors";
  const std::string bytes = *ReadFileBytes(path);
  for (const size_t kept : {size_t{4}, size_t{100}, bytes.size() - 1}) {
    ASSERT_TRUE(WriteFileBytes(path, bytes.substr(0, kept)).ok());
    const auto trained = Train(Config(folder, 1), *set);
    EXPECT_EQ(trained.status().code(), absl::StatusCode::kDataLoss) << trained.status();
    EXPECT_THAT(std::string(trained.status().message()), HasSubstr(path));
    EXPECT_EQ(ReadFileBytes(path)->size(), kept);
  }
}

// A rate that no training survives.
TEST(TrainingRunTest, ALossThatIsNotFiniteEndsTheRunAndKeepsTheCheckpoint) {
  const std::unique_ptr<Dataset> set = ShapesSet();
  const std::string folder = FreshFolder("diverges");
  TrainingRunConfig config = Config(folder, 50);
  config.training.optimizer.kind = OptimizerKind::kSgd;
  config.rate.rate = 1e18;
  config.checkpoint_steps = 1;
  const auto trained = Train(config, *set);
  ASSERT_EQ(trained.status().code(), absl::StatusCode::kOutOfRange) << trained.status();
  EXPECT_THAT(std::string(trained.status().message()), HasSubstr("step "));
  EXPECT_THAT(std::string(trained.status().message()), HasSubstr("layer '"));
  EXPECT_TRUE(
      LoadCheckpoint(folder + "/checkpoint.safetensors", Classifier(), OptimizerKind::kSgd).ok());
}

TEST(ConfusionTest, FindsRowsThatAreNotFinite) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  const NonFiniteRows rows = FindNonFiniteRows({nan, 0, 1, 2, 3, nan, 1 / 0.0f, 0}, {-1, 0, 1, 1},
                                               /*classes=*/2, /*ignored=*/-1);
  EXPECT_EQ(rows.count, 2);
  EXPECT_EQ(rows.first, 2);
}

TEST(ConfusionTest, CountsAccuracyAndIntersectionOverUnion) {
  Confusion confusion(3);
  confusion.Add({5, 1, 0, 0, 2, 1, 0, 3, 3, 1, 0, 0}, {0, 1, 2, -1}, -1);
  EXPECT_EQ(confusion.total(), 3);
  EXPECT_EQ(confusion.count(2, 1), 1);  // the first of equals
  EXPECT_DOUBLE_EQ(confusion.Accuracy(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(confusion.IntersectionOverUnion(0), 1);
  EXPECT_DOUBLE_EQ(confusion.IntersectionOverUnion(1), 0.5);
  EXPECT_DOUBLE_EQ(confusion.IntersectionOverUnion(2), 0);
  EXPECT_DOUBLE_EQ(confusion.MeanIntersectionOverUnion(), 0.5);
  EXPECT_EQ(Confusion(2).Accuracy(), 0);
}

TEST(ConfusionTest, CountsRowsWithoutPredictionAsWrong) {
  const float nan = std::numeric_limits<float>::quiet_NaN();
  Confusion confusion(2);
  confusion.Add({2, 1, 3, nan, 0, 1, nan, nan}, {0, 0, 1, -1}, /*ignored=*/-1);
  EXPECT_EQ(confusion.not_finite(0), 1);
  EXPECT_EQ(confusion.not_finite(), 1);
  EXPECT_EQ(confusion.total(), 3);
  EXPECT_DOUBLE_EQ(confusion.Accuracy(), 2.0 / 3);
  EXPECT_DOUBLE_EQ(confusion.IntersectionOverUnion(0), 0.5);
  EXPECT_DOUBLE_EQ(confusion.IntersectionOverUnion(1), 1);
}

}  // namespace
}  // namespace voxconv
