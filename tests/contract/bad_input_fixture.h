// SPDX-License-Identifier: Apache-2.0
// What the tests of bad input share: running the program, and what a refusal looks like.
#ifndef VOXCONV_TESTS_CONTRACT_BAD_INPUT_FIXTURE_H_
#define VOXCONV_TESTS_CONTRACT_BAD_INPUT_FIXTURE_H_

#include <gmock/gmock.h>
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include <array>
#include <cmath>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <limits>
#include <set>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_split.h"
#include "tests/support/session.h"
#include "voxconv/cli/session.h"
#include "voxconv/io/npy.h"

namespace voxconv::testing {

using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::SizeIs;

inline constexpr char kSmallInput[] = " --input 'scene:uniform?n=400&box=16'";
inline constexpr char kSmallNetwork[] = " --network sparseresnet21 --width 0.25";

struct Outcome {
  int exit_code = -1;
  bool exited = false;
  std::string errors;
};

class BadInputTest : public ::testing::Test {
 protected:
  void SetUp() override {
    directory_ = std::filesystem::temp_directory_path() /
                 absl::StrCat("voxconv_bad_input_", getpid(), "_",
                              ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::create_directories(directory_);
  }
  void TearDown() override { std::filesystem::remove_all(directory_); }

  std::string Path(const std::string& file) const { return (directory_ / file).string(); }
  std::string Write(const std::string& file, const std::string& bytes) const {
    std::ofstream(Path(file), std::ios::binary) << bytes;
    return Path(file);
  }

  Outcome Voxconv(const std::string& arguments, const std::string& output = "") const {
    const std::string command = absl::StrCat(
        "'", VOXCONV_PROGRAM, "' ", arguments, " 2>&1 >",
        output.empty() ? absl::StrCat("'", Path("stdout"), "'") : output, " </dev/null");
    Outcome run;
    FILE* pipe = popen(command.c_str(), "r");
    VOXCONV_CHECK(pipe != nullptr);
    std::array<char, 4096> buffer;
    while (size_t n = fread(buffer.data(), 1, buffer.size(), pipe))
      run.errors.append(buffer.data(), n);
    const int status = pclose(pipe);
    run.exited = WIFEXITED(status);
    run.exit_code = run.exited ? WEXITSTATUS(status) : -1;
    return run;
  }

  // One line that contains all of `words`. Standard output goes to `output`, a redirection's right
  // side.
  void ExpectRefused(const std::string& arguments, const std::vector<std::string>& words,
                     const std::string& output = "") const {
    SCOPED_TRACE(arguments);
    const Outcome run = Voxconv(arguments, output);
    EXPECT_TRUE(run.exited) << run.errors;
    EXPECT_THAT(run.exit_code, ::testing::AnyOf(1, 2));
    EXPECT_THAT(std::vector<std::string>(absl::StrSplit(run.errors, '\n', absl::SkipEmpty())),
                SizeIs(1))
        << run.errors;
    for (const std::string& word : words) EXPECT_THAT(run.errors, HasSubstr(word));
  }

  struct Arrays {
    std::vector<int32_t> coords = {0, 1, 2, 3, 0, 1, 2, 4};
    std::vector<int64_t> coords_shape = {2, 4};
    std::vector<float> features = {1, 2, 3, 4};
    std::vector<int64_t> features_shape = {2, 2};
    std::vector<float> weights = std::vector<float>(27 * 2 * 3, 0.5f);
    std::vector<int64_t> weights_shape = {27, 2, 3};
  };
  std::string WriteArrays(const Arrays& a) const {
    const std::string path = Path("in.npz");
    const absl::Status status = WriteNpz(
        path, {{"coords", MakeNpyArray(a.coords_shape, absl::MakeConstSpan(a.coords))},
               {"features", MakeNpyArray(a.features_shape, absl::MakeConstSpan(a.features))},
               {"weights", MakeNpyArray(a.weights_shape, absl::MakeConstSpan(a.weights))}});
    VOXCONV_CHECK(status.ok());
    return path;
  }
  void ExpectConvRefused(const Arrays& arrays, const std::string& options,
                         const std::vector<std::string>& words) const {
    ExpectRefused(
        absl::StrCat("conv '", WriteArrays(arrays), "' '", Path("out.npz"), "' ", options), words);
    EXPECT_FALSE(std::filesystem::exists(Path("out.npz")));
  }

  std::filesystem::path directory_;
};

}  // namespace voxconv::testing

#endif  // VOXCONV_TESTS_CONTRACT_BAD_INPUT_FIXTURE_H_
