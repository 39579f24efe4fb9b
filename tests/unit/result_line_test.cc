// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/result_line.h"

#include <cstdio>
#include <fstream>
#include <string>
#include <thread>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/file_hash.h"
#include "voxconv/io/load_input.h"

namespace voxconv::measure {
namespace {

using ::testing::HasSubstr;

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) lines.push_back(line);
  return lines;
}

TEST(ResultLineTest, HashIsFnv1aOverLittleEndianWords) {
  EXPECT_EQ(HashInput({}, {}), "cbf29ce484222325") << "the offset basis";
  // The 16 bytes 'a', fifteen times 0; computed with an independent implementation.
  const Coordinate row = {'a', 0, 0, 0};
  uint64_t expected = 0xcbf29ce484222325;
  for (int i = 0; i < 16; ++i) expected = (expected ^ (i == 0 ? 'a' : 0)) * 1099511628211u;
  char text[17];
  std::snprintf(text, sizeof(text), "%016llx", static_cast<unsigned long long>(expected));
  EXPECT_EQ(HashInput({row}, {}), text);
  EXPECT_NE(HashInput({row}, {1.0f}), HashInput({row}, {-1.0f}));
}

// Result files are keyed by it: another value makes every finished cell a new one.
TEST(ResultLineTest, HashOfAnInputStaysWhatItWas) {
  LoadOptions options;
  options.voxelize.order = RowOrder::kSorted;
  const auto cloud = LoadInput("scene:blocks?n=20&edge=4", options);
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  EXPECT_EQ(HashInput(cloud->coords, cloud->features), "cb36643df96e391a");
}

TEST(ResultLineTest, ProvenanceSaysWhatRanWhere) {
  const auto backend = CpuBackend::Create({.threads = 1});
  ASSERT_TRUE(backend.ok());
  const Json provenance = DescribeProvenance(**backend);
  for (const char* key : {"commit", "dirty", "compiler", "build_type", "machine", "backend",
                          "device", "driver", "gpu", "cpu_governor", "cpu_clock_mhz", "time_utc",
                          "program", "plugins", "product", "load"}) {
    EXPECT_TRUE(provenance.contains(key)) << key;
  }
  EXPECT_EQ(provenance["backend"], "cpu");
  EXPECT_TRUE(provenance["driver"].is_null());
  EXPECT_TRUE(provenance["gpu"].is_null());
  EXPECT_EQ(provenance["product"]["library"], "voxconv");
  EXPECT_EQ(provenance["product"]["kernel"], SgemmTarget());
  // Two builds of one commit are two programs.
  EXPECT_THAT(provenance["program"].get<std::string>(), ::testing::MatchesRegex("[0-9a-f]{16}"));
  EXPECT_EQ(provenance["program"], HashFile("/proc/self/exe").value());
  EXPECT_THAT(provenance["commit"].get<std::string>(),
              ::testing::AnyOf("unknown", ::testing::MatchesRegex("[0-9a-f]{40}")));
}

TEST(ResultLineTest, ComparisonHoldsSamplesStagesAndCounters) {
  PairedSamples samples;
  for (int i = 0; i < 20; ++i) {
    Measurement m;
    m.wall_ms = 2;
    m.profile.AddTime(Stage::kGemm, 1.5);
    m.profile.counters.true_pairs = 12;
    samples.a.push_back(m);
    m.wall_ms = 3;
    samples.b.push_back(m);
  }
  const Json line = ToJson(*Compare(samples), samples);
  EXPECT_EQ(line["verdict"], "faster");
  EXPECT_DOUBLE_EQ(line["speedup"]["ratio"], 1.5);
  EXPECT_DOUBLE_EQ(line["a"]["stages_ms"]["gemm"]["median"], 1.5);
  EXPECT_FALSE(line["a"]["stages_ms"].contains("gather"));
  EXPECT_EQ(line["b"]["wall_ms_samples"].size(), 20u);
  EXPECT_EQ(line["a"]["counters"]["true_pairs"], 12);
}

TEST(ResultLineTest, WritersShareAFileLineByLine) {
  const std::string path = ::testing::TempDir() + "/voxconv_result_line_test.jsonl";
  std::remove(path.c_str());
  std::vector<std::thread> writers;
  for (int writer = 0; writer < 4; ++writer) {
    writers.emplace_back([&path, writer] {
      for (int i = 0; i < 50; ++i) {
        const Json line = {{"writer", writer}, {"text", std::string(5000, 'x')}};
        EXPECT_TRUE(AppendLine(path, line).ok());
      }
    });
  }
  for (std::thread& writer : writers) writer.join();
  const std::vector<std::string> lines = ReadLines(path);
  EXPECT_EQ(lines.size(), 200u);
  for (const std::string& line : lines) EXPECT_TRUE(Json::accept(line));
  std::remove(path.c_str());
}

TEST(ResultLineTest, BadNamesAndBadPathsAreNoException) {
  EXPECT_THAT(AppendLine("/no/such/folder/x.jsonl", Json::object()).message(),
              HasSubstr("/no/such/folder/x.jsonl"));
  const std::string path = ::testing::TempDir() + "/voxconv_result_line_utf8.jsonl";
  std::remove(path.c_str());
  EXPECT_TRUE(AppendLine(path, {{"input", "\xff.bin"}}).ok());
  EXPECT_EQ(ReadLines(path).size(), 1u);
  std::remove(path.c_str());
}

}  // namespace
}  // namespace voxconv::measure
