// SPDX-License-Identifier: Apache-2.0
// The parts of a trainer by themselves: lifetimes of tensors, the flat array of parameters, rates.
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/training_networks.h"
#include "unit_cpu.h"
#include "voxconv/training/parameter_store.h"
#include "voxconv/training/rate_schedule.h"
#include "voxconv/training/step_plan.h"

namespace voxconv {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

constexpr auto kForward = StepAction::Kind::kForward;
constexpr auto kBackward = StepAction::Kind::kBackward;
constexpr auto kRecompute = StepAction::Kind::kRecompute;

// The actions after which the node's tensor is freed.
std::vector<int> Deaths(const StepPlan& plan, int node) {
  std::vector<int> deaths;
  for (size_t at = 0; at < plan.actions.size(); ++at) {
    for (const int dead : plan.actions[at].dying_tensors) {
      if (dead == node) deaths.push_back(static_cast<int>(at));
    }
  }
  return deaths;
}

TEST(StepPlanTest, TensorsLiveAsLongAsTheyAreRead) {
  GraphBuilder builder("g");
  const int input = builder.Input(2);
  const int conv = builder.Conv("conv", input, 3, {});
  const int norm = builder.BatchNorm("norm", conv, /*relu=*/true);
  const int sum = builder.Add("sum", norm, norm, /*relu=*/false);
  const int head = builder.Conv("head", sum, 2, {.kernel = {1, 1, 1}});
  const NetworkGraph graph = *std::move(builder).Build(head);
  const StepPlan plan = PlanStep(graph);
  EXPECT_THAT(Deaths(plan, input),
              ElementsAre(plan.Find(kBackward, conv)));  // by the weight gradient
  EXPECT_THAT(Deaths(plan, conv), ElementsAre(plan.Find(kBackward, norm)));
  EXPECT_THAT(Deaths(plan, norm), ElementsAre(plan.Find(kBackward, norm)));  // by its ReLU
  EXPECT_THAT(Deaths(plan, sum), ElementsAre(plan.Find(kBackward, head)));
  EXPECT_THAT(Deaths(plan, head), IsEmpty());  // the network's result
  EXPECT_FALSE(plan.needs_gradient[input]);
}

TEST(StepPlanTest, WhatNoGradientReadsIsFreedInTheForwardPass) {
  GraphBuilder builder("g");
  const int input = builder.Input(2);
  const int conv = builder.Conv("conv", input, 2, {});
  const int sum = builder.Add("sum", conv, input, /*relu=*/false);
  const int joined = builder.Concat("joined", sum, conv);
  const int pool = builder.Pool("pool", joined, {.mode = PoolMode::kMax});
  const int aside = builder.Conv("aside", joined, 3, {});
  const int head = builder.GlobalPool("head", pool, PoolMode::kSum);
  const NetworkGraph graph = *std::move(builder).Build(head);
  const StepPlan plan = PlanStep(graph);
  EXPECT_THAT(Deaths(plan, sum), ElementsAre(plan.Find(kForward, joined)));
  EXPECT_THAT(Deaths(plan, conv), ElementsAre(plan.Find(kForward, joined)));
  EXPECT_THAT(Deaths(plan, joined), ElementsAre(plan.Find(kForward, aside)));
  EXPECT_THAT(Deaths(plan, pool), ElementsAre(plan.Find(kForward, head)));
  EXPECT_FALSE(plan.reaches_output[aside]);
  EXPECT_THAT(plan.actions[plan.Find(kBackward, pool)].dying_switches, ElementsAre(pool));
}

TEST(StepPlanTest, DroppedTensorsAreMadeAgainBeforeTheyAreRead) {
  GraphBuilder builder("g");
  const int input = builder.Input(2);
  const int conv = builder.Conv("conv", input, 3, {});
  const int norm = builder.BatchNorm("norm", conv, /*relu=*/true);
  const int next = builder.Conv("next", norm, 3, {});
  const int head = builder.Conv("head", next, 2, {});
  const NetworkGraph graph = *std::move(builder).Build(head);
  std::vector<bool> dropped(graph.nodes().size(), false);
  dropped[conv] = dropped[norm] = true;
  const StepPlan plan = PlanStep(graph, dropped);
  EXPECT_EQ(plan.recomputed, 2);
  EXPECT_EQ(plan.Find(kRecompute, conv), plan.Find(kBackward, head) + 1);
  EXPECT_EQ(plan.Find(kRecompute, norm), plan.Find(kRecompute, conv) + 1);
  EXPECT_EQ(plan.Find(kBackward, next), plan.Find(kRecompute, norm) + 1);
  EXPECT_THAT(Deaths(plan, conv),
              ElementsAre(plan.Find(kForward, norm), plan.Find(kBackward, norm)));
  EXPECT_THAT(Deaths(plan, norm),
              ElementsAre(plan.Find(kForward, next), plan.Find(kBackward, norm)));
  const std::vector<NodeBytes> bytes = {{0, 0}, {3, 0}, {3, 0}, {3, 0}, {2, 0}};
  EXPECT_LT(PeakBytes(graph, plan, bytes), PeakBytes(graph, PlanStep(graph), bytes));
}

TEST(ParameterStoreTest, KeepsValuesApartAndBack) {
  const UnitCpu cpu(1);
  const NetworkGraph graph = SegmentationGraph(PoolMode::kMax);
  auto store = ParameterStore::Create(graph, DType::kF32, cpu.context);
  ASSERT_TRUE(store.ok()) << store.status();
  const ParameterRange decayed = store->DecayedRange(), rest = store->UndecayedRange();
  EXPECT_EQ(decayed.size + rest.size, store->trained_size());
  for (size_t i = 0; i < graph.parameters().size(); ++i) {
    const Parameter& parameter = graph.parameters()[i];
    const float* values = store->values(static_cast<int>(i));
    EXPECT_EQ(std::vector<float>(values, values + parameter.size()), parameter.values);
    const bool in_decayed = values >= decayed.values && values < decayed.values + decayed.size;
    const bool in_rest = values >= rest.values && values < rest.values + rest.size;
    EXPECT_EQ(in_decayed, parameter.role == Parameter::Role::kWeight) << parameter.name;
    EXPECT_EQ(in_decayed || in_rest, parameter.trained()) << parameter.name;
    if (parameter.role != Parameter::Role::kWeight) continue;
    EXPECT_EQ(store->Weights(static_cast<int>(i)).channels, parameter.shape.back());
    EXPECT_EQ(store->Weights(static_cast<int>(i)).rows * parameter.shape.back(), parameter.size());
  }
  store->values(0)[1] = 42;
  const auto values = store->ToHost(cpu.context);
  ASSERT_TRUE(values.ok()) << values.status();
  EXPECT_EQ((*values)[0][1], 42);
  EXPECT_EQ((*values)[1], graph.parameters()[1].values);
}

TEST(RateScheduleTest, GrowsInALineAndFallsInACosine) {
  const RateSchedule schedule{
      .rate = 1, .warm_up = 4, .steps = 104, .final_rate = 0.1, .decay = Decay::kCosine};
  ASSERT_TRUE(CheckSchedule(schedule).ok());
  EXPECT_DOUBLE_EQ(RateAt(schedule, 0), 0.25);
  EXPECT_DOUBLE_EQ(RateAt(schedule, 3), 1);
  EXPECT_DOUBLE_EQ(RateAt(schedule, 4), 1);
  EXPECT_NEAR(RateAt(schedule, 54), 0.55, 1e-12);
  EXPECT_DOUBLE_EQ(RateAt(schedule, 104), 0.1);
  EXPECT_DOUBLE_EQ(RateAt(schedule, 1000), 0.1);
  EXPECT_DOUBLE_EQ(RateAt({.rate = 3}, 1000), 3);
}

TEST(RateScheduleTest, RefusesByName) {
  const auto message = [](const RateSchedule& schedule) {
    return std::string(CheckSchedule(schedule).message());
  };
  EXPECT_THAT(message({.rate = -1}), HasSubstr("rate: -1; it must be finite and at least 0"));
  EXPECT_THAT(message({.warm_up = -2}), HasSubstr("warm_up: -2"));
  EXPECT_THAT(message({.warm_up = 5, .steps = 5, .decay = Decay::kCosine}),
              HasSubstr("steps: 5; it must be more than the warm-up of 5"));
}

}  // namespace
}  // namespace voxconv
