// SPDX-License-Identifier: Apache-2.0
// voxconv train and eval as a user runs them: what they refuse, and a run that is killed.
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/io/json_file.h"
#include "voxconv/io/npy.h"

namespace voxconv {
namespace {

namespace fs = std::filesystem;
using ::testing::HasSubstr;

class TrainCommandTest : public ::testing::Test {
 protected:
  void SetUp() override {
    folder_ = fs::path(::testing::TempDir()) / "train_command";
    fs::remove_all(folder_);
    fs::create_directories(folder_);
    WriteModels();
  }
  void TearDown() override { fs::remove_all(folder_); }

  std::string Path(const std::string& name) const { return (folder_ / name).string(); }

  // Balls and crosses of 40 models each way.
  void WriteModels() const {
    std::vector<int32_t> cells, labels;
    std::vector<int64_t> offsets{0};
    for (int i = 0; i < 40; ++i) {
      for (int32_t x = -3; x <= 3; ++x) {
        for (int32_t y = -3; y <= 3; ++y) {
          const bool in = i % 2 == 0 ? x * x + y * y <= 9 : x == 0 || y == 0;
          if (in) cells.insert(cells.end(), {x + 5 + i % 3, y + 5, i % 4});
        }
      }
      labels.push_back(i % 2);
      offsets.push_back(static_cast<int64_t>(cells.size()) / 3);
    }
    NpzArrays arrays;
    for (const char* split : {"train", "test"}) {
      arrays.emplace_back(absl::StrCat("coords_", split),
                          MakeNpyArray({offsets.back(), 3}, absl::MakeConstSpan(cells)));
      arrays.emplace_back(absl::StrCat("offsets_", split),
                          MakeNpyArray({41}, absl::MakeConstSpan(offsets)));
      arrays.emplace_back(absl::StrCat("labels_", split),
                          MakeNpyArray({40}, absl::MakeConstSpan(labels)));
    }
    ASSERT_TRUE(WriteNpz(Path("models.npz"), arrays).ok());
  }

  std::string Common(const std::string& command) const {
    return absl::StrCat(command, " --data ", Path("models.npz"),
                        " --network hcnn_classifier --levels 1 --width 0.25 --in-channels 1 "
                        "--no-xyz --batch 4 --threads 1");
  }

  struct Outcome {
    int exit_code = -1;  // -1: ended by a signal
    std::string output;
  };
  static Outcome Voxconv(const std::string& arguments, const char* redirections = "2>&1") {
    const std::string command = absl::StrCat(VOXCONV_PROGRAM, " ", arguments, " ", redirections);
    Outcome outcome;
    FILE* pipe = popen(command.c_str(), "r");
    EXPECT_NE(pipe, nullptr);
    char buffer[4096];
    while (const size_t n = fread(buffer, 1, sizeof(buffer), pipe))
      outcome.output.append(buffer, n);
    const int status = pclose(pipe);
    if (WIFEXITED(status)) outcome.exit_code = WEXITSTATUS(status);
    return outcome;
  }
  static void ExpectRefused(const std::string& arguments, const std::string& words) {
    SCOPED_TRACE(arguments);
    const Outcome outcome = Voxconv(arguments, "2>&1 >/dev/null");
    EXPECT_EQ(outcome.exit_code, 1);
    EXPECT_THAT(outcome.output, HasSubstr(words));
    EXPECT_EQ(std::count(outcome.output.begin(), outcome.output.end(), '\n'), 1) << outcome.output;
  }

  // A run's steps, without their times.
  std::vector<std::string> Steps(const std::string& run) const {
    std::vector<std::string> steps;
    std::ifstream file(Path(run + "/steps.jsonl"));
    for (std::string line; std::getline(file, line);) {
      absl::StatusOr<Json> json = ParseJson(line);
      if (!json.ok()) continue;
      json->erase("ms");
      steps.push_back(json->dump());
    }
    return steps;
  }

  // Kills the command with SIGKILL once its run has `steps` lines. False if it ended before.
  bool KillAfter(const std::string& arguments, const std::string& run, size_t steps) const {
    std::vector<std::string> words = absl::StrSplit(arguments, ' ', absl::SkipEmpty());
    words.insert(words.begin(), VOXCONV_PROGRAM);
    std::vector<char*> argv;
    argv.reserve(words.size() + 1);
    for (std::string& word : words) argv.push_back(word.data());
    argv.push_back(nullptr);
    const pid_t child = fork();
    if (child == 0) {
      if (std::freopen("/dev/null", "w", stdout) != nullptr) execv(argv[0], argv.data());
      _exit(127);
    }
    int status = 0;
    while (Steps(run).size() < steps) {
      if (waitpid(child, &status, WNOHANG) != 0) return false;
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
    kill(child, SIGKILL);
    waitpid(child, &status, 0);
    return WIFSIGNALED(status);
  }

  fs::path folder_;
};

TEST_F(TrainCommandTest, AKilledRunGoesOnToTheSameBits) {
  const std::string options =
      " --epochs 6 --checkpoint-steps 4 --scale 0.1 --shift 1 --optimizer adamw "
      "--rate 0.01 --out ";
  const std::string train = Common("train") + options;
  const Outcome whole = Voxconv(train + Path("whole"));
  ASSERT_EQ(whole.exit_code, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("accuracy 100.00 %"));
  EXPECT_THAT(whole.output, HasSubstr("memory of a step: activations and their gradients "));
  const std::vector<std::string> expected = Steps("whole");
  ASSERT_EQ(expected.size(), 60u);
  for (const size_t steps : {3u, 17u, 40u}) {
    SCOPED_TRACE(steps);
    fs::remove_all(Path("killed"));
    ASSERT_TRUE(KillAfter(train + Path("killed"), "killed", steps));
    const Outcome rest = Voxconv(train + Path("killed"));
    ASSERT_EQ(rest.exit_code, 0) << rest.output;
    EXPECT_EQ(Steps("killed"), expected);
  }
  const Outcome tested =
      Voxconv(Common("eval") + " --weights " + Path("whole") + "/checkpoint.safetensors");
  EXPECT_EQ(tested.exit_code, 0) << tested.output;
  EXPECT_THAT(tested.output, HasSubstr("accuracy 100.00 %"));
  ExpectRefused(train + Path("whole") + " --seed 2", "a run with the settings");
}

TEST_F(TrainCommandTest, RefusesInOneLine) {
  const std::string train = Common("train") + " --out " + Path("run") + " ";
  ExpectRefused("train --data " + Path("models.npz") + " --in-channels 1", "--out: it is missing");
  ExpectRefused("train --out " + Path("run"), "--data: it is missing");
  ExpectRefused(train + "--epochs 0", "--epochs 0: allowed are 1 to");
  ExpectRefused("train --out " + Path("run") + " --data " + Path("models.npz") + " --batch 0",
                "--batch 0: allowed are 1 to");
  ExpectRefused(train + "--rate nan", "rate: nan");
  ExpectRefused(train + "--optimizer lion", "--optimizer lion: allowed are sgd and adamw");
  ExpectRefused(train + "--momentum 1", "sgd: momentum: 1; allowed is [0, 1)");
  ExpectRefused(train + "--decay step", "--decay step: allowed are cosine and none");
  ExpectRefused(train + "--scale 2", "scale: 2; allowed is [0, 1)");
  ExpectRefused(train + "--shift -1", "shift: -1; it must be finite and at least 0");
  ExpectRefused(train + "--centre --unit-sphere", "--centre has no meaning with --unit-sphere");
  ExpectRefused(train + "--loss dice", "loss 'dice' is unknown; allowed are cross_entropy, lovasz");
  ExpectRefused(train + "--loss lovasz --smoothing 0.1", "smoothing: 0.1; the loss lovasz");
  ExpectRefused(train + "--smoothing 1", "smoothing: 1; allowed is [0, 1)");
  ExpectRefused(train + "--workers 99", "--workers 99: allowed are 0 to 64");
  ExpectRefused(train + "--activation-memory -1", "--activation-memory -1: allowed are 0 to");
  ExpectRefused(train + "--samples 0", "--samples 0: allowed are 1 to");
  ExpectRefused(train + "--dropout 1", "layer 'dropout': dropout rate 1; allowed is [0, 1)");
  ExpectRefused(train + "--dtype f16", "f16");
  ExpectRefused("train --out " + Path("run") + " --data " + Path("nothing.npz"), "nothing.npz");
  ExpectRefused(
      "train --out " + Path("run") + " --data " + Path("models.npz") + " --network resnet50",
      "network 'resnet50' is unknown; allowed are minkunet42, hcnn_classifier");
  ExpectRefused("train --out " + Path("run") + " --data " + Path("models.npz"),
                "it has no result for each cloud");
  ExpectRefused(Common("train") + " --out /proc/nowhere", "/proc/nowhere");
  ExpectRefused(Common("eval") + " --weights " + Path("models.npz"), "models.npz");
  ExpectRefused(Common("eval"), "--weights: it is missing");
}

}  // namespace
}  // namespace voxconv
