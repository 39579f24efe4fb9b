// SPDX-License-Identifier: Apache-2.0
// Trainers in threads of their own that share a batch, against one trainer that has all of it.
#include "voxconv/training/shared_batch.h"

#include <barrier>
#include <cmath>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/session.h"
#include "tests/support/training_networks.h"
#include "unit_cpu.h"
#include "voxconv/reference_cpu/layers.h"
#include "voxconv/training/trainer.h"

namespace voxconv {
namespace {

using testing::BuiltinRegistry;
using ::testing::HasSubstr;

constexpr int kThreads = 2, kSteps = 6;
constexpr double kRate = 0.05;

// Adds up arrays of threads, each of which calls Sum in the same order.
class Adder {
 public:
  // Replaces the values by `factor` times their sum over the threads.
  template <typename T>
  void Sum(int thread, T* values, int64_t size, double factor) {
    parts_[thread].assign(values, values + size);
    barrier_.arrive_and_wait();
    for (int64_t i = 0; i < size; ++i) {
      double sum = 0;
      for (const std::vector<double>& part : parts_) sum += part[i];
      values[i] = static_cast<T>(sum * factor);
    }
    barrier_.arrive_and_wait();  // before a thread writes its next part
  }

 private:
  std::vector<double> parts_[kThreads];
  std::barrier<> barrier_{kThreads};
};

// Two samples of as many voxels at different places, whose features differ in scale, so that their
// statistics do, too.
struct Sample {
  std::vector<Coordinate> rows;
  std::vector<float> features;
  std::vector<int32_t> labels;
};
Sample MakeSample(int which, int batch) {
  Sample sample;
  for (const Coordinate& row : WavyRows(9)) {
    if (row.b == 0) sample.rows.push_back({batch, row.x + 3 * which, row.y, row.z - which});
  }
  sample.features = DistinctFeatures(sample.rows.size() * 3);
  for (float& value : sample.features) {
    value = value * static_cast<float>(1 + 2 * which) + static_cast<float>(which);
  }
  sample.labels = SomeLabels(sample.rows.size(), kSegmentationClasses);
  return sample;
}

// The losses of some steps, and the parameters after them.
struct Course {
  std::vector<double> losses;
  ParameterStore::Values parameters;
};

Course Train(const Sample& sample, const SharedBatch& shared) {
  const UnitCpu cpu(1);
  TrainingConfig config{.run = {.planner = std::make_shared<FixedPlanner>(
                                    LayerChoice{"hash", "implicit_gemm", "fused"})},
                        .shared = shared};
  const auto input = SparseTensor::Create(sample.rows, {1, 1, 1}, sample.features, 3, cpu.context);
  EXPECT_TRUE(input.ok()) << input.status();
  auto trainer =
      Trainer::Create(SegmentationGraph(PoolMode::kMax), config, BuiltinRegistry(), *cpu.backend);
  EXPECT_TRUE(trainer.ok()) << trainer.status();
  Course course;
  for (int step = 0; step < kSteps; ++step) {
    const auto result = (*trainer)->Step(input->view(), sample.labels, kRate);
    EXPECT_TRUE(result.ok()) << result.status();
    course.losses.push_back(result->loss.loss);
  }
  course.parameters = (*trainer)->Save()->parameters;
  return course;
}

// Each thread has one sample. `norms`: whether their batch norms share statistics.
std::vector<Course> TrainTogether(bool norms) {
  BuiltinRegistry();  // before the threads
  Adder adder;
  std::vector<Course> courses(kThreads);
  std::vector<std::thread> threads;
  for (int thread = 0; thread < kThreads; ++thread) {
    threads.emplace_back([&, thread] {
      const auto sum = [&adder, thread](auto* values, int64_t size, const ExecutionContext&) {
        adder.Sum(thread, values, size, 1);
        return absl::OkStatus();
      };
      SharedBatch shared;
      if (norms) {
        shared.add_moments = sum;
        shared.add_norm_gradients = sum;
      }
      shared.combine_gradients = [&adder, thread](float* values, int64_t size,
                                                  const ExecutionContext&) {
        adder.Sum(thread, values, size, 1.0 / kThreads);
        return absl::OkStatus();
      };
      courses[thread] = Train(MakeSample(thread, 0), shared);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return courses;
}

Course TrainAlone() {
  Sample both = MakeSample(0, 0);
  const Sample second = MakeSample(1, 1);
  both.rows.insert(both.rows.end(), second.rows.begin(), second.rows.end());
  both.features.insert(both.features.end(), second.features.begin(), second.features.end());
  both.labels.insert(both.labels.end(), second.labels.begin(), second.labels.end());
  return Train(both, {});
}

// All parameters and running statistics, one after another.
std::vector<float> Joined(const ParameterStore::Values& values) {
  std::vector<float> joined;
  for (const std::vector<float>& of_one : values) {
    joined.insert(joined.end(), of_one.begin(), of_one.end());
  }
  return joined;
}
std::vector<double> Joined64(const ParameterStore::Values& values) {
  const std::vector<float> joined = Joined(values);
  return {joined.begin(), joined.end()};
}

TEST(SharedBatchTest, TwoTrainersTakeTheStepsOfOneWithTheWholeBatch) {
  const Course whole = TrainAlone();
  const std::vector<Course> parts = TrainTogether(/*norms=*/true);
  for (int step = 0; step < kSteps; ++step) {
    const double mean = (parts[0].losses[step] + parts[1].losses[step]) / 2;
    EXPECT_NEAR(mean, whole.losses[step], 1e-4 * whole.losses[step]) << "step " << step;
  }
  EXPECT_EQ(parts[0].parameters, parts[1].parameters);  // running statistics are among them
  EXPECT_LE(reference::RelativeError(Joined(parts[0].parameters), Joined64(whole.parameters)),
            1e-4);
}

// What the comparison above would find.
TEST(SharedBatchTest, WithStatisticsOfTheirOwnTheyTakeOtherSteps) {
  const Course whole = TrainAlone();
  const std::vector<Course> parts = TrainTogether(/*norms=*/false);
  EXPECT_NE(parts[0].parameters, parts[1].parameters);
  EXPECT_GT(reference::RelativeError(Joined(parts[0].parameters), Joined64(whole.parameters)),
            1e-2);
}

TEST(SharedBatchTest, AnErrorOfAFunctionEndsTheStepAndNamesTheLayer) {
  const UnitCpu cpu(1);
  const Sample sample = MakeSample(0, 0);
  const auto fail = [](auto*, int64_t, const ExecutionContext&) {
    return absl::UnavailableError("the other process is gone");
  };
  TrainingConfig config{.run = {.planner = std::make_shared<FixedPlanner>(
                                    LayerChoice{"hash", "implicit_gemm", "fused"})},
                        .shared = {.add_moments = fail, .add_norm_gradients = fail}};
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  auto trainer = Trainer::Create(graph, config, BuiltinRegistry(), *cpu.backend);
  ASSERT_TRUE(trainer.ok()) << trainer.status();
  const auto input = *SparseTensor::Create(sample.rows, {1, 1, 1}, sample.features, 3, cpu.context);
  const absl::Status status = (*trainer)->Step(input.view(), sample.labels, kRate).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kUnavailable);
  EXPECT_THAT(std::string(status.message()), HasSubstr("stem"));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the other process is gone"));
  config.shared.add_norm_gradients = nullptr;
  EXPECT_THAT(
      std::string(
          Trainer::Create(graph, config, BuiltinRegistry(), *cpu.backend).status().message()),
      HasSubstr("shared: add_moments and add_norm_gradients: one is null"));
}

// The sums of parts give the moments of the whole, also far from 0.
TEST(SharedBatchTest, MomentsOfPartsAreThoseOfTheWhole) {
  const UnitCpu cpu(1);
  TrainingOps& ops = *cpu.backend->training_ops();
  constexpr int64_t kRows = 1000, kFirst = 300, kChannels = 3;
  std::vector<float> values = DistinctFeatures(kRows * kChannels);
  for (size_t i = 0; i < values.size(); i += kChannels) values[i] = values[i] / 16 + 1000;
  const auto moments = [&](int64_t begin, int64_t end, float* mean, float* deviation) {
    const auto rows =
        absl::MakeConstSpan(values).subspan(begin * kChannels, (end - begin) * kChannels);
    const Tensor x = *Tensor::FromHost(rows, end - begin, kChannels, cpu.context);
    EXPECT_TRUE(ops.ChannelMoments(x.view(), mean, deviation, cpu.context).ok());
  };
  float mean[kChannels], deviation[kChannels], whole_mean[kChannels], whole_deviation[kChannels];
  moments(0, kRows, whole_mean, whole_deviation);
  std::vector<double> sums(1 + 2 * kChannels, 0.0), part(sums);
  const int64_t cuts[] = {0, kFirst, kRows};
  for (int i = 0; i < 2; ++i) {
    moments(cuts[i], cuts[i + 1], mean, deviation);
    ASSERT_TRUE(ops.SumsOfMoments(mean, deviation, cuts[i + 1] - cuts[i], kChannels, part.data(),
                                  cpu.context)
                    .ok());
    for (size_t s = 0; s < sums.size(); ++s) sums[s] += part[s];
  }
  EXPECT_EQ(sums[0], kRows);
  ASSERT_TRUE(ops.MomentsOfSums(sums.data(), kChannels, mean, deviation, cpu.context).ok());
  for (int64_t c = 0; c < kChannels; ++c) {
    EXPECT_NEAR(mean[c], whole_mean[c], 1e-6 * std::abs(whole_mean[c]) + 1e-7);
    EXPECT_NEAR(deviation[c], whole_deviation[c], 1e-3 * whole_deviation[c]);
  }
}

}  // namespace
}  // namespace voxconv
