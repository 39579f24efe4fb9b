// SPDX-License-Identifier: Apache-2.0
// voxconv train and eval as a user runs them: what they refuse, and a run that is killed.
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <csignal>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
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
  void WriteModels(int64_t models = 40) const {
    std::vector<int32_t> cells, labels;
    std::vector<int64_t> offsets{0};
    for (int i = 0; i < models; ++i) {
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
                          MakeNpyArray({models + 1}, absl::MakeConstSpan(offsets)));
      arrays.emplace_back(absl::StrCat("labels_", split),
                          MakeNpyArray({models}, absl::MakeConstSpan(labels)));
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
    return Run("", arguments, redirections);
  }
  // `before`: commands of the shell that runs the program.
  static Outcome Run(const std::string& before, const std::string& arguments,
                     const char* redirections) {
    const std::string command =
        absl::StrCat(before, VOXCONV_PROGRAM, " ", arguments, " ", redirections);
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

  // A set as SemanticKITTI has it, of one scan to train and one to test: points on a line, all with
  // one raw label (10 is a car, 0 is ignored) and one intensity.
  std::string WriteScans(const std::string& name, int points, uint32_t label,
                         float intensity = 1) const {
    for (const char* sequence : {"00", "08"}) {
      const std::string folder = Path(name + "/sequences/" + sequence);
      std::vector<float> values;
      for (int i = 0; i < points; ++i) {
        const auto at = static_cast<float>(i);
        values.insert(values.end(), {at, at / 2, 0, intensity});
      }
      const std::vector<uint32_t> labels(points, label);
      for (const char* part : {"/velodyne", "/labels"}) fs::create_directories(folder + part);
      std::ofstream(folder + "/velodyne/000000.bin", std::ios::binary)
          .write(reinterpret_cast<const char*>(values.data()),
                 static_cast<std::streamsize>(values.size() * sizeof(float)));
      std::ofstream(folder + "/labels/000000.label", std::ios::binary)
          .write(reinterpret_cast<const char*>(labels.data()),
                 static_cast<std::streamsize>(labels.size() * sizeof(uint32_t)));
    }
    return Path(name);
  }

  // A run's steps, without their times, and without what the process has held at once.
  std::vector<std::string> Steps(const std::string& run) const {
    std::vector<std::string> steps;
    for (const absl::string_view line : absl::StrSplit(Bytes(run + "/steps.jsonl"), '\n')) {
      absl::StatusOr<Json> json = ParseJson(line);
      if (!json.ok()) continue;
      json->erase("ms");
      json->erase("peak_bytes");
      steps.push_back(json->dump());
    }
    return steps;
  }
  std::string Bytes(const std::string& name) const {
    std::ifstream file(Path(name), std::ios::binary);
    return {std::istreambuf_iterator<char>(file), {}};
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
    EXPECT_EQ(Bytes("killed/epochs.jsonl"), Bytes("whole/epochs.jsonl"));
  }
  const Outcome tested =
      Voxconv(Common("eval") + " --weights " + Path("whole") + "/checkpoint.safetensors");
  EXPECT_EQ(tested.exit_code, 0) << tested.output;
  EXPECT_THAT(tested.output, HasSubstr("accuracy 100.00 %"));
  ExpectRefused(train + Path("whole") + " --seed 2", "a run with the settings");
  ExpectRefused(train + Path("whole") + " --dataflow gather_gemm_scatter",
                "this one has 'dataflow=gather_gemm_scatter'");
  WriteModels(/*models=*/36);
  ExpectRefused(train + Path("whole"), "this one has 'train-clouds=36 train-content=");
}

// A limit on the size of files stands for a disk that is full: a write fails, and the program goes
// on.
TEST_F(TrainCommandTest, AFullDiskKeepsTheLastCheckpoint) {
  const std::string train = absl::StrCat(
      "train --data ", Path("models.npz"),
      " --network hcnn_classifier --levels 1 --in-channels 1 --no-xyz --batch 4 --threads 1 "
      "--epochs 4 --checkpoint-steps 4 --optimizer adamw --rate 0.01 --out ");
  ASSERT_EQ(Voxconv(train + Path("whole")).exit_code, 0);
  ASSERT_TRUE(KillAfter(train + Path("run"), "run", 6));
  const std::string before = Bytes("run/checkpoint.safetensors");
  ASSERT_GT(before.size(), size_t{100} << 10);  // more than the lines of steps
  const Outcome full = Run("trap '' XFSZ; ulimit -f 100; ", train + Path("run"), "2>&1 >/dev/null");
  EXPECT_EQ(full.exit_code, 1);
  EXPECT_THAT(full.output, HasSubstr("checkpoint.safetensors: cannot be written: File too large"));
  EXPECT_EQ(Bytes("run/checkpoint.safetensors"), before);
  int files = 0;
  for (const auto& entry : fs::directory_iterator(Path("run"))) files += entry.exists() ? 1 : 0;
  EXPECT_EQ(files, 3);  // the checkpoint and the lines of steps and epochs: nothing half-written
  const Outcome rest = Voxconv(train + Path("run"));
  EXPECT_EQ(rest.exit_code, 0) << rest.output;
  EXPECT_EQ(Steps("run"), Steps("whole"));
}

TEST_F(TrainCommandTest, BadBatchesAreNamed) {
  const auto train = [&](const std::string& data, const std::string& run) {
    return absl::StrCat("train --data ", data, " --network hcnn_segmenter --levels 1 --width 0.25 ",
                        "--voxel-size 1 --batch 1 --epochs 2 --threads 1 --out ", Path(run));
  };
  ExpectRefused(train(WriteScans("none", 0, 10), "none_run"), "000000.bin: the file is empty");
  ExpectRefused(train(WriteScans("unknown", 40, 5), "unknown_run"),
                "label 5: SemanticKITTI does not define it");
  ExpectRefused(train(WriteScans("ignored", 40, 0), "ignored_run"),
                "epoch 1: all labels of the training data are ignored");
  ExpectRefused(train(WriteScans("nan", 40, 10, std::nanf("")), "nan_run"), "nan");
  const float infinity = std::numeric_limits<float>::infinity();
  ExpectRefused(train(WriteScans("infinite", 40, 10, infinity), "infinite_run"), "inf");
  // A rate that no training survives names the step and the layer.
  ExpectRefused(Common("train") + " --rate 1e30 --out " + Path("diverges"),
                "the first result that is not finite is that of layer 'level");
  ExpectRefused(Common("train") + " --rate 1e30 --out " + Path("diverges"), "step 2: loss: nan");
}

TEST_F(TrainCommandTest, WeightsOfAnotherNetworkAreRefused) {
  const std::string out = " --epochs 1 --out " + Path("run");
  ASSERT_EQ(Voxconv(Common("train") + out).exit_code, 0);
  const std::string other = absl::StrCat(" --data ", Path("models.npz"),
                                         " --network hcnn_classifier --in-channels 1 --no-xyz "
                                         "--batch 4 --width 0.5 --levels ");
  const std::string weights = " --weights " + Path("run") + "/checkpoint.safetensors";
  ExpectRefused("train" + other + "1" + out, "has the shape [27, 1, 4]; hcnn_classifier needs");
  ExpectRefused("eval" + other + "1" + weights, "has the shape [27, 1, 4]; hcnn_classifier needs");
  const std::string deeper = absl::StrCat(" --data ", Path("models.npz"),
                                          " --network hcnn_classifier --in-channels 1 --no-xyz "
                                          "--batch 4 --width 0.25 --levels 2");
  ExpectRefused("train" + deeper + out, "hcnn_classifier needs");
  ExpectRefused("eval" + deeper + weights, "hcnn_classifier needs");
  ExpectRefused(Common("train") + " --loss lovasz" + out,
                "a run with the settings 'loss=cross_entropy'; this one has 'loss=lovasz'");
  // Both classes have as many models, so that balanced weights are 1.
  const std::string balanced = Common("train") + " --class-weights balanced";
  ExpectRefused(balanced + out, "this one has 'class-weights=balanced'");
  ASSERT_EQ(Voxconv(balanced + " --epochs 1 --out " + Path("balanced")).exit_code, 0);
  EXPECT_EQ(Steps("balanced"), Steps("run"));
  ASSERT_EQ(Voxconv(Common("train") + " --class-weights 1,3 --epochs 1 --out " + Path("weighted"))
                .exit_code,
            0);
  EXPECT_NE(Steps("weighted"), Steps("run"));
}

TEST_F(TrainCommandTest, RefusesInOneLine) {
  const std::string train = Common("train") + " --out " + Path("run") + " ";
  ExpectRefused("train --data " + Path("models.npz") + " --in-channels 1", "--out: it is missing");
  ExpectRefused("train --out " + Path("run"), "--data: it is missing");
  ExpectRefused(train + "--epochs 0", "--epochs 0: allowed are 1 to");
  ExpectRefused("train --out " + Path("run") + " --data " + Path("models.npz") + " --batch 0",
                "--batch 0: allowed are 1 to");
  ExpectRefused(train + "--rate nan", "--rate nan: allowed are finite values from 0");
  ExpectRefused(train + "--optimizer lion", "--optimizer lion: allowed are sgd and adamw");
  ExpectRefused(train + "--momentum 1", "--momentum 1: allowed are values from 0, less than 1");
  ExpectRefused(train + "--decay step", "--decay step: allowed are cosine and none");
  ExpectRefused(train + "--scale 2", "--scale 2: allowed are values from 0, less than 1");
  ExpectRefused(train + "--shift -1", "--shift -1: allowed are finite values from 0");
  ExpectRefused(train + "--centre --unit-sphere", "--centre has no meaning with --unit-sphere");
  ExpectRefused(train + "--rate -1", "--rate -1: allowed are");
  ExpectRefused(train + "--clip -1", "--clip -1: allowed are finite values from 0");
  ExpectRefused(train + "--warm-up -1", "--warm-up -1: allowed are 0 to");
  ExpectRefused(train + "--weight-decay -1", "--weight-decay -1: allowed are finite");
  ExpectRefused(train + "--flip 2", "--flip 2: allowed are 0 to 1");
  ExpectRefused(train + "--rotate nan", "--rotate nan: allowed are finite values from 0");
  ExpectRefused(train + "--voxel-size 0",
                "--voxel-size 0: allowed are finite values greater than 0");
  ExpectRefused(train + "--loss dice", "loss 'dice' is unknown; allowed are cross_entropy, lovasz");
  ExpectRefused(train + "--loss lovasz --smoothing 0.1", "--smoothing: has no meaning with --loss");
  ExpectRefused(train + "--loss lovasz --class-weights 1,2", "--class-weights: has no meaning");
  ExpectRefused(train + "--class-weights 1,-2", "--class-weights: '-2'; allowed are balanced and");
  ExpectRefused(train + "--class-weights 0,0", "--class-weights: all are 0");
  ExpectRefused(train + "--class-weights 1,2,3",
                "--class-weights: 3 values; the data set has 2 classes");
  ExpectRefused(train + "--smoothing 1", "--smoothing 1: allowed are values from 0, less than 1");
  ExpectRefused(train + "--warm-up 50 --epochs 5", "--warm-up 50: allowed are 0 to 49");
  ExpectRefused(train + "--drop-points 1.5", "--drop-points 1.5: allowed are 0 to 1");
  ExpectRefused(train + "--checkpoint-steps -1", "--checkpoint-steps -1: allowed are 0 to 1000000");
  ExpectRefused(train + "--workers 99", "--workers 99: allowed are 0 to 64");
  ExpectRefused(train + "--activation-memory -1", "--activation-memory -1: allowed are 0 to");
  ExpectRefused(train + "--samples 0", "--samples 0: allowed are 1 to");
  ExpectRefused(train + "--dropout 1", "--dropout 1: allowed are values from 0, less");
  ExpectRefused(train + "--dtype f16", "f16");
  ExpectRefused("train --out " + Path("run") + " --data " + Path("nothing.npz"), "nothing.npz");
  ExpectRefused(
      "train --out " + Path("run") + " --data " + Path("models.npz") + " --network resnet50",
      "network 'resnet50' is unknown; allowed are minkunet42, hcnn_classifier");
  ExpectRefused("train --out " + Path("run") + " --data " + Path("models.npz"),
                "it has no result for each cloud");
  ExpectRefused(Common("train") + " --out /proc/nowhere", "/proc/nowhere");
  // What is not used is refused.
  const std::string other = "train --data " + Path("models.npz") + " --out " + Path("run");
  ExpectRefused(other + " --levels 2", "--levels: has no meaning with --network minkunet42");
  ExpectRefused(train + "--optimizer adamw --momentum 0.5", "--momentum: has no meaning");
  ExpectRefused(train + "--rotate-any --rotate 5", "--rotate: has no meaning");
  ExpectRefused(train + "--samples 100", "--samples: has no meaning for data without meshes");
  ExpectRefused(Common("train") + " --out " + Path("models.npz"), "models.npz: is no directory");
  ExpectRefused(Common("eval") + " --weights w --samples 100", "--samples: has no meaning");
  ExpectRefused(Common("eval") + " --weights w --dropout 0.1", "unrecognised option '--dropout'");
  ExpectRefused(Common("eval") + " --weights w --test-data " + Path("models.npz"),
                "unrecognised option '--test-data'");
  // Nobody reads what would be written into this pipe.
  fs::create_directories(Path("piped"));
  ASSERT_EQ(mkfifo(Path("piped/steps.jsonl").c_str(), 0600), 0);
  ExpectRefused(Common("train") + " --out " + Path("piped"), "steps.jsonl: is not a regular file");
  const std::vector<float> one = {1};
  ASSERT_TRUE(
      WriteNpz(Path("none.npz"), {{"x", MakeNpyArray({1}, absl::MakeConstSpan(one))}}).ok());
  ExpectRefused("train --out " + Path("run") + " --data " + Path("none.npz"),
                "none.npz: no data set; allowed are the arrays class_names");
  fs::create_symlink("loop", Path("loop"));
  ExpectRefused("train --out " + Path("run") + " --data " + folder_.string(), "no data set");
  const std::string weights = "weights " + Path("models.npz") + " --network ";
  ExpectRefused(weights + "minkunet42 --levels 2", "--levels: has no meaning");
  ExpectRefused(weights + "centerpoint --classes 2", "--classes: has no meaning");
  ExpectRefused(Common("eval") + " --weights " + Path("models.npz"), "models.npz");
  ExpectRefused(Common("eval"), "--weights: it is missing");
}

}  // namespace
}  // namespace voxconv
