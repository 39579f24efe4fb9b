// SPDX-License-Identifier: Apache-2.0
// The parts of a trainer by themselves: lifetimes of tensors, the flat array of parameters, rates.
#include <cmath>
#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "tests/support/training_networks.h"
#include "unit_cpu.h"
#include "voxconv/training/backward_plan.h"
#include "voxconv/training/parameter_store.h"
#include "voxconv/training/rate_schedule.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

int MomentOfDeath(const BackwardPlan& plan, int node) {
  for (size_t moment = 0; moment < plan.dying_tensors.size(); ++moment) {
    for (const int dead : plan.dying_tensors[moment]) {
      if (dead == node) return static_cast<int>(moment);
    }
  }
  return -1;
}

TEST(BackwardPlanTest, TensorsLiveAsLongAsTheyAreRead) {
  GraphBuilder builder("g");
  const int input = builder.Input(2);
  const int conv = builder.Conv("conv", input, 3, {});
  const int norm = builder.BatchNorm("norm", conv, /*relu=*/true);
  const int sum = builder.Add("sum", norm, norm, /*relu=*/false);
  const int head = builder.Conv("head", sum, 2, {.kernel = {1, 1, 1}});
  const NetworkGraph graph = *std::move(builder).Build(head);
  const BackwardPlan plan = PlanBackward(graph);
  EXPECT_EQ(MomentOfDeath(plan, input), plan.Moment(conv, true));  // by the weight gradient
  EXPECT_EQ(MomentOfDeath(plan, conv), plan.Moment(norm, true));
  EXPECT_EQ(MomentOfDeath(plan, norm), plan.Moment(norm, true));  // by its ReLU
  EXPECT_EQ(MomentOfDeath(plan, sum), plan.Moment(head, true));
  EXPECT_EQ(MomentOfDeath(plan, head), -1);  // the network's result
  EXPECT_FALSE(plan.needs_gradient[input]);
}

TEST(BackwardPlanTest, WhatNoGradientReadsIsFreedInTheForwardPass) {
  GraphBuilder builder("g");
  const int input = builder.Input(2);
  const int conv = builder.Conv("conv", input, 2, {});
  const int sum = builder.Add("sum", conv, input, /*relu=*/false);
  const int joined = builder.Concat("joined", sum, conv);
  const int pool = builder.Pool("pool", joined, {.mode = PoolMode::kMax});
  const int aside = builder.Conv("aside", joined, 3, {});
  const int head = builder.GlobalPool("head", pool, PoolMode::kSum);
  const NetworkGraph graph = *std::move(builder).Build(head);
  const BackwardPlan plan = PlanBackward(graph);
  EXPECT_EQ(MomentOfDeath(plan, sum), plan.Moment(joined, false));
  EXPECT_EQ(MomentOfDeath(plan, conv), plan.Moment(joined, false));
  EXPECT_EQ(MomentOfDeath(plan, joined), plan.Moment(aside, false));
  EXPECT_EQ(MomentOfDeath(plan, pool), plan.Moment(head, false));
  EXPECT_FALSE(plan.reaches_output[aside]);
  bool switches_die = false;
  for (const int dead : plan.dying_switches[plan.Moment(pool, true)]) switches_die |= dead == pool;
  EXPECT_TRUE(switches_die);
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
