// SPDX-License-Identifier: Apache-2.0
// The steps of optimisers on CUDA against the CPU's.
#include <limits>

#include "cuda_training_test_util.h"

namespace voxconv {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();
constexpr float kNaN = std::numeric_limits<float>::quiet_NaN();

class CudaOptimizerTest : public CudaTrainingTest {
 protected:
  double Norm(const float* values, int64_t size) {
    Array<double> norm = *AllocateArray<double>(1, cuda_);
    ExpectOk(ops().SquaredNorm(values, size, norm.data(), cuda_));
    return (*CopyToHost(norm, cuda_))[0];
  }

  // The state after PrepareStep on both; the CPU's is returned.
  StepState Prepare(const StepRule& rule, double squared_norm, const StepState& before) {
    StepState cpu = before;
    ExpectOk(cpu_ops().PrepareStep(rule, &squared_norm, &cpu, cpu_));
    const Array<double> norm = *CopyToBackend<double>({&squared_norm, 1}, cuda_);
    Array<StepState> state = *CopyToBackend<StepState>({&before, 1}, cuda_);
    ExpectOk(ops().PrepareStep(rule, norm.data(), state.data(), cuda_));
    const StepState cuda = (*CopyToHost(state, cuda_))[0];
    EXPECT_EQ(cuda.loss_scale, cpu.loss_scale);
    EXPECT_NEAR(cuda.coefficient, cpu.coefficient, 1e-6 * cpu.coefficient);
    EXPECT_EQ(cuda.skipped, cpu.skipped);
    EXPECT_EQ(cuda.good_steps, cpu.good_steps);
    EXPECT_EQ(cuda.steps, cpu.steps);
    EXPECT_EQ(cuda.skipped_steps, cpu.skipped_steps);
    if (cpu.skipped == 0) {
      EXPECT_NEAR(cuda.norm, cpu.norm, 1e-14 * cpu.norm);
    }
    return cpu;
  }

  // Five steps on both sides, from element `offset` on. The third is skipped. `arrays`: what the
  // optimiser changes beside the parameters.
  template <typename MakeStep>
  void ExpectSteps(int64_t size, int64_t offset, int arrays, const MakeStep& make) {
    SCOPED_TRACE(testing::Message() << size << " parameters from " << offset << " on");
    const Both values = MakeVector(size + offset);
    std::vector<Both> changed;
    for (int i = 0; i < arrays; ++i) {
      changed.push_back(Share(std::vector<float>(size + offset, 0.0f), 1, size + offset));
    }
    StepState state;
    state.loss_scale = 64;
    const StepRule rule{.max_norm = 0.5, .growth_interval = 2};
    for (int i = 0; i < 5; ++i) {
      const Both gradients = MakeVector(size + offset, -64, 64);
      state = Prepare(rule, i == 2 ? kInfinity : 5000.0, state);
      const Array<StepState> cuda_state = *CopyToBackend<StepState>({&state, 1}, cuda_);
      const std::vector<float> before = *values.cuda.ToHost(cuda_);
      const auto cpu_step = make([&](int k) { return OnCpu(changed[k]) + offset; });
      const auto step = make([&](int k) { return OnCuda(changed[k]) + offset; });
      ExpectOk(cpu_ops().Step(cpu_step, {size, OnCpu(values) + offset, OnCpu(gradients) + offset},
                              &state, cpu_));
      ExpectOk(ops().Step(step, {size, OnCuda(values) + offset, OnCuda(gradients) + offset},
                          cuda_state.data(), cuda_));
      ExpectNear(values, 2e-6, 1);
      for (const Both& array : changed) ExpectNear(array, 2e-6, 0.1);
      const std::vector<float> after = *values.cuda.ToHost(cuda_);
      EXPECT_EQ(after == before, i == 2 || size == 0);
      EXPECT_TRUE(std::equal(before.begin(), before.begin() + offset, after.begin()));
    }
  }

  template <typename MakeStep>
  void ExpectStepsOfAllSizes(int arrays, const MakeStep& make) {
    for (const int64_t size : {0, 1, 3, 4, 1000, 1027, 300'001}) {
      for (const int64_t offset : {0, 1, 4}) ExpectSteps(size, offset, arrays, make);
    }
  }
};

TEST_F(CudaOptimizerTest, SquaredNorm) {
  for (const int64_t size : {0, 1, 3, 4, 5, 1000, 4099, (1 << 20) + 3, 20'000'001}) {
    const Both values = MakeVector(size + 1);
    for (const int64_t offset : {0, 1}) {
      double expected = 0;
      ExpectOk(cpu_ops().SquaredNorm(OnCpu(values) + offset, size, &expected, cpu_));
      const double norm = Norm(OnCuda(values) + offset, size);
      EXPECT_NEAR(norm, expected, 1e-12 * expected) << size << " values from " << offset;
      for (int i = 0; i < 5; ++i) EXPECT_EQ(Norm(OnCuda(values) + offset, size), norm);
    }
  }
}

TEST_F(CudaOptimizerTest, SquaredNormOfWhatIsNotFinite) {
  for (const float bad : {kInfinity, -kInfinity, kNaN}) {
    for (const int64_t at : {0, 500, 1000}) {
      std::vector<float> values(1001, 1.0f);
      values[at] = bad;
      EXPECT_FALSE(std::isfinite(Norm(OnCuda(Share(values, 1, 1001)), 1001)));
    }
  }
  const std::vector<float> large(1000, 3e38f);  // whose squares are past f32
  EXPECT_TRUE(std::isfinite(Norm(OnCuda(Share(large, 1, 1000)), 1000)));
}

TEST_F(CudaOptimizerTest, PrepareStep) {
  for (const double max_norm : {0.0, 1.5}) {
    for (const int32_t growth_interval : {0, 3}) {
      const StepRule rule{.max_norm = max_norm,
                          .growth_interval = growth_interval,
                          .min_scale = 4,
                          .max_scale = 64};
      StepState state;
      state.loss_scale = 16;
      for (const double norm : {4.0, 1e6, 9.0, double{kInfinity}, double{kNaN}, double{kInfinity},
                                0.0, 1.0, 2.0, 3.0, 1e9, 1e-9, 1.0, 1.0, 1.0, 1.0, 1.0, 1.0}) {
        state = Prepare(rule, norm, state);
      }
      EXPECT_EQ(state.skipped_steps, 3);
      EXPECT_EQ(state.loss_scale, growth_interval == 0 ? 16 : 64);
    }
  }
}

TEST_F(CudaOptimizerTest, Sgd) {
  for (const bool nesterov : {false, true}) {
    ExpectStepsOfAllSizes(1, [&](const auto& array) {
      return SgdStep{.rate = 0.1,
                     .momentum = 0.9,
                     .weight_decay = 0.01,
                     .nesterov = nesterov,
                     .velocity = array(0)};
    });
  }
}

TEST_F(CudaOptimizerTest, AdamW) {
  ExpectStepsOfAllSizes(2, [](const auto& array) {
    return AdamWStep{.rate = 0.01, .weight_decay = 0.1, .first = array(0), .second = array(1)};
  });
}

TEST_F(CudaOptimizerTest, LaunchesAndWaits) {
  const Both values = MakeVector(1000), gradients = MakeVector(1000), velocity = MakeVector(1000);
  const StepState start;
  Array<StepState> state = *CopyToBackend<StepState>({&start, 1}, cuda_);
  Array<double> norm = *AllocateArray<double>(1, cuda_);
  ExpectQueues(2, [&] { return ops().SquaredNorm(OnCuda(gradients), 1000, norm.data(), cuda_); });
  ExpectQueues(1, [&] { return ops().PrepareStep({}, norm.data(), state.data(), cuda_); });
  const SgdStep step{.rate = 0.1, .velocity = OnCuda(velocity)};
  ExpectQueues(1, [&] {
    return ops().Step(step, {1000, OnCuda(values), OnCuda(gradients)}, state.data(), cuda_);
  });
}

}  // namespace
}  // namespace voxconv
