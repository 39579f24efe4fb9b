// SPDX-License-Identifier: Apache-2.0
// Both sides as graphs beside both as they run, with sides that the test makes up.
#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/cli/ab_rounds.h"
#include "voxconv/measure/ab/trial.h"

namespace voxconv::ab {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;

measure::RunOnce Taking(double ms) {
  return [ms]() -> absl::StatusOr<measure::Measurement> {
    measure::Measurement measurement;
    measurement.wall_ms = ms;
    return measurement;
  };
}

Side Runs(double ms, double captured_ms) {
  Side side;
  side.run = Taking(ms);
  side.capture = [captured_ms]() -> absl::StatusOr<measure::RunOnce> {
    return Taking(captured_ms);
  };
  return side;
}

class CapturedTest : public ::testing::Test {
 protected:
  absl::StatusOr<measure::Json> Compare(const Work& work) {
    Surroundings surroundings;
    VOXCONV_ASSIGN_OR_RETURN(const auto samples, Measure({}, work, context_, surroundings));
    VOXCONV_ASSIGN_OR_RETURN(const auto as_run, measure::Compare(samples));
    return CompareCaptured({}, work, as_run, context_, surroundings);
  }

  std::unique_ptr<Backend> backend_ = *CpuBackend::Create({.threads = 1});
  ExecutionContext context_{backend_.get(), &backend_->main_stream(), nullptr};
  Work work_;
};

TEST_F(CapturedTest, ARatioOfKernelsIsToldFromARatioOfHosts) {
  work_.a = Runs(1.0, 0.5);  // the host sets its time
  work_.b = Runs(2.0, 1.9);
  const auto captured = Compare(work_);
  ASSERT_TRUE(captured.ok()) << captured.status();
  EXPECT_DOUBLE_EQ((*captured)["speedup"]["ratio"].get<double>(), 3.8);
  EXPECT_EQ((*captured)["a"]["wall_ms"]["median"], 0.5);
  EXPECT_THAT((*captured)["launch_bound"], ElementsAre("a"));
  EXPECT_EQ((*captured)["pairs"], 20);
  EXPECT_EQ(
      cli::CapturedLine(*captured),
      "A is 3.80x faster than B (3.80..3.80), 0.500 ms against 1.900 ms; A is launch-bound as "
      "it runs");
}

TEST_F(CapturedTest, ASideThatRefusesSaysWhy) {
  work_.a = Runs(1.0, 0.5);
  work_.b = Runs(2.0, 1.9);
  work_.b.capture = []() -> absl::StatusOr<measure::RunOnce> {
    return absl::FailedPreconditionError("waits for the device");
  };
  EXPECT_EQ((*Compare(work_))["why"], "side b: waits for the device");
  work_.b.capture = []() -> absl::StatusOr<measure::RunOnce> {
    return absl::InternalError("another output");
  };
  EXPECT_THAT(std::string(Compare(work_).status().message()),
              HasSubstr("captured side b: another output"));
  work_.b.capture = nullptr;
  EXPECT_TRUE(Compare(work_)->is_null());
}

TEST_F(CapturedTest, NoGpuNoClocks) {
  work_.a = work_.b = Runs(1, 1);
  Surroundings surroundings;
  ASSERT_TRUE(Measure({}, work_, context_, surroundings).ok());
  ASSERT_TRUE(surroundings.gpu.has_value());
  EXPECT_TRUE(surroundings.gpu->ToJson().is_null());
  EXPECT_EQ(surroundings.gpu->WhySlow(), "");
}

}  // namespace
}  // namespace voxconv::ab
