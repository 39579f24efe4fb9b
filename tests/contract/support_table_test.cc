// SPDX-License-Identifier: Apache-2.0
// What is refused is part of the contract: docs/support_cpu.txt and docs/support_cuda.txt list it,
// with the reasons.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>

#include "absl/strings/match.h"
#include "tests/support/session.h"
#include "voxconv/verify/matrix.h"

namespace voxconv::testing {
namespace {

std::vector<std::string> ReadLines(const std::string& path) {
  std::ifstream file(path);
  std::vector<std::string> lines;
  for (std::string line; std::getline(file, line);) {
    if (!line.empty() && line[0] != '#') lines.push_back(line);
  }
  return lines;
}

void ExpectTable(BackendKind backend, const std::string& file) {
  const std::vector<std::string> actual = verify::SupportTable(BuiltinRegistry(), backend);
  std::vector<std::string> committed = ReadLines(std::string(VOXCONV_SOURCE_DIR) + "/docs/" + file);
  if (!BuiltinRegistry().mappings().Create("hash:variant=open3d", backend).ok()) {
    std::erase_if(committed, [](const std::string& line) {
      return absl::StrContains(line, "variant=open3d");
    });
  }
  EXPECT_EQ(actual, committed) << "to renew it: voxconv verify --support --backend "
                               << ToString(backend) << " > docs/" << file;
}

TEST(SupportTableTest, CpuMatchesTheCommittedTable) {
  ExpectTable(BackendKind::kCpu, "support_cpu.txt");
}

TEST(SupportTableTest, CudaMatchesTheCommittedTable) {
  if (BuiltinRegistry().dataflows().Variants(BackendKind::kCuda).empty()) {
    GTEST_SKIP() << "built without CUDA";
  }
  ExpectTable(BackendKind::kCuda, "support_cuda.txt");
}

TEST(SupportTableTest, EveryRefusalHasAReason) {
  for (const std::string& line : verify::SupportTable(BuiltinRegistry(), BackendKind::kCpu)) {
    EXPECT_FALSE(absl::EndsWith(line, "| ")) << line;
  }
}

}  // namespace
}  // namespace voxconv::testing
