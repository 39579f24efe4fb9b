// SPDX-License-Identifier: Apache-2.0
#include <memory>
#include <optional>

#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/backend.h"

namespace voxconv {
namespace {

// A CPU backend whose clock the test moves.
class ClockedBackend final : public CpuBackend {
 public:
  ClockedBackend() : CpuBackend({.threads = 1}) {}

  int64_t BeginStage(Stage, Stream&) override { return now_; }
  void EndStage(int64_t token, Stage stage, bool resumes, Stream&, Profile* profile) override {
    profile->AddTime(stage, static_cast<double>(now_ - token), resumes);
  }
  void Pass(int64_t milliseconds) { now_ += milliseconds; }

 private:
  int64_t now_ = 1000;
};

class StageScopeTest : public testing::Test {
 protected:
  int64_t Visits(Stage stage) const { return profile_.visits[static_cast<int>(stage)]; }

  ClockedBackend backend_;
  Profile profile_;
  const ExecutionContext context_{&backend_, &backend_.main_stream(), &profile_};
};

TEST_F(StageScopeTest, TimesAStage) {
  for (int i = 0; i < 2; ++i) {
    const StageScope scope(context_, Stage::kGemm);
    backend_.Pass(3);
  }
  backend_.Pass(100);
  EXPECT_EQ(profile_.Time(Stage::kGemm), 6);
  EXPECT_EQ(Visits(Stage::kGemm), 2);
  EXPECT_EQ(profile_.open_stage, nullptr);
}

TEST_F(StageScopeTest, AnInnerScopeInterruptsTheOuterOne) {
  {
    const StageScope query(context_, Stage::kMapQuery);
    backend_.Pass(1);
    {
      const StageScope build(context_, Stage::kIndexBuild);
      backend_.Pass(10);
      {
        const StageScope convert(context_, Stage::kConvert);
        backend_.Pass(100);
      }
      backend_.Pass(20);
    }
    backend_.Pass(2);
    {
      const StageScope build(context_, Stage::kIndexBuild);
      backend_.Pass(40);
    }
    backend_.Pass(4);
  }
  EXPECT_EQ(profile_.Time(Stage::kMapQuery), 7);
  EXPECT_EQ(profile_.Time(Stage::kIndexBuild), 70);
  EXPECT_EQ(profile_.Time(Stage::kConvert), 100);
  EXPECT_EQ(profile_.Total(), 177);
  // A stage that goes on is not visited again.
  EXPECT_EQ(Visits(Stage::kMapQuery), 1);
  EXPECT_EQ(Visits(Stage::kIndexBuild), 2);
  EXPECT_EQ(Visits(Stage::kConvert), 1);
}

TEST_F(StageScopeTest, AScopeInsideOneOfItsOwnStageCountsTimeOnce) {
  {
    const StageScope outer(context_, Stage::kDense);
    backend_.Pass(1);
    const StageScope inner(context_, Stage::kDense);
    backend_.Pass(2);
  }
  EXPECT_EQ(profile_.Time(Stage::kDense), 3);
  EXPECT_EQ(Visits(Stage::kDense), 2);
}

TEST_F(StageScopeTest, ProfilesDoNotInterruptEachOther) {
  Profile other;
  const ExecutionContext beside{&backend_, &backend_.main_stream(), &other};
  const ExecutionContext nowhere{&backend_, &backend_.main_stream(), nullptr};
  {
    const StageScope outer(context_, Stage::kGemm);
    const StageScope inner(beside, Stage::kGather);
    const StageScope unseen(nowhere, Stage::kScatter);
    backend_.Pass(5);
  }
  EXPECT_EQ(profile_.Time(Stage::kGemm), 5);
  EXPECT_EQ(other.Time(Stage::kGather), 5);
  EXPECT_EQ(profile_.Total() + other.Total(), 10);
}

}  // namespace
}  // namespace voxconv
