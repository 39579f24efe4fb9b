// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/plan_file.h"

#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/builtin/plugins.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv::measure {
namespace {

using ::testing::HasSubstr;

PlanKey Key() {
  return {.backend = BackendKind::kCuda,
          .device = "NVIDIA H200",
          .network = "minkunet42",
          .width = 0.5,
          .precision = Precision::kF16,
          .input = {16, 1}};
}

TunedPlan Plan(const PlanKey& key) {
  const LayerChoice choice{"hash:symmetric=true", "direct", "fused"};
  return MakeTunedPlan(key, {{"stem.conv1", 4, 16, choice}, {"stem.conv2", 16, 16, choice}},
                       {{"sum_ms", 1.5}, {"layers", {{{"ms", 0.25}}, {{"ms", 0.5}}}}});
}

TEST(PlanFileTest, RoundTrips) {
  PlanKey other = Key();
  other.precision = Precision::kF32;
  const auto plans = ParsePlans(FormatPlans({Plan(Key()), Plan(other)}));
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_EQ(plans->size(), 2u);
  EXPECT_EQ((*plans)[0].key, Key());
  EXPECT_EQ((*plans)[1].key, other);
  EXPECT_EQ((*plans)[0].layers, Plan(Key()).layers);
  EXPECT_EQ((*plans)[0].record, Plan(Key()).record);
  EXPECT_EQ((*plans)[0].record["layers"][1]["ms"], 0.5);
}

// A file's name may be any bytes; minutes of work must not be lost by one.
TEST(PlanFileTest, NamesThatAreNoUtf8AreWritten) {
  TunedPlan plan = Plan(Key());
  plan.record["input"] = {{"name", "caf\xe9.bin"}};
  const auto plans = ParsePlans(FormatPlans({plan}));
  ASSERT_TRUE(plans.ok()) << plans.status();
  EXPECT_EQ((*plans)[0].record["input"]["name"], "caf\xef\xbf\xbd.bin");
}

TEST(PlanFileTest, RefusesWhatIsNoPlan) {
  const std::string good = FormatPlans({Plan(Key())});
  for (const auto& [from, to, word] : std::vector<std::array<std::string, 3>>{
           {"voxconv-plan", "voxconv-map", "not a plan file"},
           {"\"version\": 1", "\"version\": 2", "'version' is 2"},
           {"\"device\"", "\"devise\"", "'plans[0].key.device' is missing"},
           {"\"c_in\": 16", "\"c_in\": \"16\"",
            "key 'plans[0].layers[1].c_in' is \"16\"; allowed are whole numbers"},
           {"\"f16\"", "\"f17\"", "f17"},
           {"\"log2_voxels\": 16", "\"log2_voxels\": -1", "input_class"}}) {
    const auto plans = ParsePlans(absl::StrReplaceAll(good, {{from, to}}));
    EXPECT_THAT(std::string(plans.status().message()), HasSubstr(word)) << to;
  }
  EXPECT_FALSE(ParsePlans("{").ok());
  EXPECT_FALSE(ParsePlans("[]").ok());
}

TEST(PlanFileTest, ASideSaysWhatWasTuned) {
  Registry registry;
  ASSERT_TRUE(RegisterBuiltinPlugins(registry).ok());
  TunedPlan plan = Plan(Key());
  plan.record["search"] = {{"kind", "measured"},
                           {"space",
                            {{"mappings", {"hash", "grid"}},
                             {"dataflows", {"direct", "implicit_gemm", "hash2col"}},
                             {"grids", 2}}}};
  plan.record["input"] = {{"name", "scan.bin"}};
  plan.record["provenance"] = {{"commit", "0123abc"}};
  const std::string path = ::testing::TempDir() + "/side.json";
  ASSERT_TRUE(SavePlan(path, plan).ok());
  const auto side = LoadPlanSide(path, Key(), registry);
  ASSERT_TRUE(side.ok()) << side.status();
  EXPECT_EQ(side->configuration.plan.size(), 2u);
  EXPECT_EQ(side->tuned["plan"], path);
  EXPECT_EQ(side->tuned["what"],
            "each layer's mapping of 2 and dataflow of 3 and their options, on scan.bin");
  EXPECT_EQ(side->tuned["commit"], "0123abc");
  PlanKey other = Key();
  other.input = {18, 3};
  EXPECT_THAT(LoadPlanSide(path, other, registry)->tuned["what"].get<std::string>(),
              HasSubstr("which is of another class of inputs"));
  other.network = "centerpoint";
  EXPECT_THAT(LoadPlanSide(path, other, registry).status().message(), HasSubstr(path));
  std::filesystem::remove(path);
}

TEST(PlanFileTest, FindsByKeyAndNearestInput) {
  PlanKey dense = Key();
  dense.input = {17, 4};
  const std::vector<TunedPlan> plans = {Plan(dense), Plan(Key())};
  PlanKey wanted = Key();
  auto found = FindPlan(plans, wanted);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->plan, &plans[1]);
  EXPECT_FALSE(found->other_input_class);
  wanted.input = {18, 3};
  found = FindPlan(plans, wanted);
  ASSERT_TRUE(found.ok());
  EXPECT_EQ(found->plan, &plans[0]);
  EXPECT_TRUE(found->other_input_class);
}

TEST(PlanFileTest, RefusesAnotherUseByName) {
  const std::vector<TunedPlan> plans = {Plan(Key())};
  const auto message = [&](auto change) {
    PlanKey wanted = Key();
    change(wanted);
    return std::string(FindPlan(plans, wanted).status().message());
  };
  EXPECT_THAT(message([](PlanKey& k) { k.network = "centerpoint"; }),
              HasSubstr("network 'centerpoint'; there is one for 'minkunet42'"));
  EXPECT_THAT(message([](PlanKey& k) { k.width = 1; }), HasSubstr("width '1'"));
  EXPECT_THAT(message([](PlanKey& k) { k.precision = Precision::kF32; }), HasSubstr("dtype 'f32'"));
  EXPECT_THAT(message([](PlanKey& k) { k.device = "NVIDIA H100"; }),
              HasSubstr("device 'NVIDIA H100'; there is one for 'NVIDIA H200'"));
  EXPECT_THAT(message([](PlanKey& k) { k.backend = BackendKind::kCpu; }), HasSubstr("backend"));
}

TEST(PlanFileTest, SavesBesideOthersAndReplacesItsOwn) {
  const std::string path =
      (std::filesystem::temp_directory_path() / absl::StrCat("voxconv_plan_", getpid(), ".json"))
          .string();
  std::filesystem::remove(path);
  PlanKey other = Key();
  other.width = 1;
  ASSERT_TRUE(SavePlan(path, Plan(Key())).ok());
  ASSERT_TRUE(SavePlan(path, Plan(other)).ok());
  TunedPlan again = Plan(Key());
  again.record["sum_ms"] = 0.75;
  ASSERT_TRUE(SavePlan(path, again).ok());
  const auto plans = ReadPlans(path);
  ASSERT_TRUE(plans.ok()) << plans.status();
  ASSERT_EQ(plans->size(), 2u);
  EXPECT_EQ((*plans)[0].record["sum_ms"], 0.75);
  EXPECT_EQ((*plans)[1].key, other);

  std::ofstream(path) << "notes";
  EXPECT_THAT(std::string(CheckSavePlan(path).message()), HasSubstr(path));
  EXPECT_FALSE(SavePlan(path, again).ok());
  std::filesystem::remove(path);
  EXPECT_THAT(std::string(ReadPlans(path).status().message()), HasSubstr("no such file"));
  EXPECT_FALSE(CheckSavePlan("/nowhere/plan.json").ok());
}

TEST(PlanFileTest, ConfigurationPlansEveryLayer) {
  const Configuration configuration = ToConfiguration(Plan(Key()));
  EXPECT_EQ(configuration.plan, Plan(Key()).layers);
  EXPECT_EQ(configuration.choice.mapping, "hash:symmetric=true");
}

TEST(InputClassTest, CountsVoxelsAndNeighboursByPowersOfTwo) {
  const std::vector<Coordinate> cube = {{0, 0, 0, 0}, {0, 0, 0, 1}, {0, 0, 1, 0}, {0, 0, 1, 1},
                                        {0, 1, 0, 0}, {0, 1, 0, 1}, {0, 1, 1, 0}, {0, 1, 1, 1}};
  EXPECT_EQ(MeasureDensity(cube).neighbours, 8);
  EXPECT_EQ(Classify(MeasureDensity(cube)), (InputClass{3, 3}));
  // Another sample is nobody's neighbour.
  const std::vector<Coordinate> apart = {{0, 0, 0, 0}, {1, 0, 0, 1}};
  EXPECT_EQ(Classify(MeasureDensity(apart)), (InputClass{1, 0}));
  EXPECT_EQ(Classify(MeasureDensity({})), (InputClass{0, 0}));
  EXPECT_EQ(Distance({16, 1}, {14, 4}), 5);
}

TEST(InputClassTest, CountsNeighboursOfRowsInAnyOrderUpToTheEdgeOfTheRange) {
  std::vector<Coordinate> rows;
  for (int i = 0; i < 6 * 6 * 6; ++i) {
    if (i * 37 % 11 > 4) continue;
    rows.push_back(
        Coordinate{i % 2, kMaxCoordinate - i / 36, kMinCoordinate + i / 6 % 6, i % 6 - 3});
  }
  std::reverse(rows.begin(), rows.begin() + static_cast<int64_t>(rows.size()) / 2);
  int64_t pairs = 0;
  for (const Coordinate& a : rows) {
    for (const Coordinate& b : rows) {
      pairs += a.b == b.b && std::abs(a.x - b.x) <= 1 && std::abs(a.y - b.y) <= 1 &&
                       std::abs(a.z - b.z) <= 1
                   ? 1
                   : 0;
    }
  }
  const InputDensity density = MeasureDensity(rows);
  EXPECT_EQ(density.voxels, static_cast<int64_t>(rows.size()));
  EXPECT_DOUBLE_EQ(density.neighbours,
                   static_cast<double>(pairs) / static_cast<double>(rows.size()));
}

class PlanFolder : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = std::filesystem::temp_directory_path() /
              absl::StrCat("voxconv_plans_", getpid(), "_",
                           ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(folder_);
  }
  void TearDown() override { std::filesystem::remove_all(folder_); }
  std::filesystem::path folder_;
};

TEST_F(PlanFolder, ProgramsThatSaveAtOnceLoseNoPlan) {
  const std::string path = (folder_ / "plan.json").string();
  constexpr int kPrograms = 4, kPlans = 10;
  std::vector<pid_t> programs;
  for (int program = 0; program < kPrograms; ++program) {
    const pid_t child = fork();
    ASSERT_GE(child, 0);
    if (child != 0) {
      programs.push_back(child);
      continue;
    }
    bool saved = true;
    for (int i = 0; i < kPlans; ++i) {
      PlanKey key = Key();
      key.network = absl::StrCat("network", program, "_", i);
      saved = SavePlan(path, Plan(key)).ok() && saved;
    }
    _exit(saved ? 0 : 1);
  }
  for (const pid_t child : programs) {
    int status = 1;
    ASSERT_EQ(waitpid(child, &status, 0), child);
    EXPECT_EQ(status, 0);
  }
  const auto plans = ReadPlans(path);
  ASSERT_TRUE(plans.ok()) << plans.status();
  EXPECT_EQ(plans->size(), static_cast<size_t>(kPrograms * kPlans));
  // No temporary file is left.
  EXPECT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
}

TEST_F(PlanFolder, APlanSurvivesItsFolder) {
  const std::filesystem::path gone = folder_ / "gone";
  const std::string path = (gone / "plan.json").string();
  EXPECT_FALSE(CheckSavePlan(path).ok());
  std::filesystem::create_directory(gone);
  EXPECT_TRUE(CheckSavePlan(path).ok());
  std::filesystem::remove_all(gone);
  const std::filesystem::path before = std::filesystem::current_path();
  std::filesystem::current_path(folder_);
  const absl::Status status = SavePlanOrElsewhere(path, Plan(Key()));
  std::filesystem::current_path(before);
  EXPECT_THAT(std::string(status.message()), HasSubstr(path));
  EXPECT_THAT(std::string(status.message()), HasSubstr("the plan is saved in ./voxconv-plan-"));
  ASSERT_EQ(std::distance(std::filesystem::directory_iterator(folder_), {}), 1);
  const auto plans = ReadPlans(std::filesystem::directory_iterator(folder_)->path().string());
  ASSERT_TRUE(plans.ok()) << plans.status();
  EXPECT_EQ((*plans)[0].key, Key());
}

TEST_F(PlanFolder, SavingTouchesNoOtherFile) {
  const std::string path = (folder_ / "plan.json").string(),
                    link = (folder_ / "link.json").string();
  std::ofstream(path + ".new") << "mine";
  std::filesystem::create_symlink("plan.json", link);
  ASSERT_TRUE(CheckSavePlan(link).ok());
  ASSERT_TRUE(SavePlan(link, Plan(Key())).ok());
  EXPECT_TRUE(std::filesystem::is_symlink(link));
  EXPECT_TRUE(ReadPlans(path).ok());
  std::string text;
  EXPECT_TRUE(std::getline(std::ifstream(path + ".new"), text));
  EXPECT_EQ(text, "mine");
}

TEST(PlanFileTest, TakesNamesThatAreNoUtf8) {
  TunedPlan plan = Plan(Key());
  plan.record["input"] = {{"name", "scan\xff.bin"}};
  EXPECT_TRUE(ParsePlans(FormatPlans({plan})).ok());
}

}  // namespace
}  // namespace voxconv::measure
