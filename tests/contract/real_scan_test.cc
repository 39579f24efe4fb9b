// SPDX-License-Identifier: Apache-2.0
// On a real LiDAR frame every mapping variant finds the same pairs.
#include <gtest/gtest.h>

#include <filesystem>
#include <numeric>

#include "tests/support/session.h"
#include "voxconv/io/load_input.h"

namespace voxconv::testing {
namespace {

constexpr char kFrame[] = "semkitti_spvnas_000000.bin";

// An array over all cells of a LiDAR frame's bounds takes more than the default limit allows; the
// pages without voxels are never touched.
std::string WithRoom(const std::string& spec) {
  const std::string name = ParsePluginSpec(spec)->name;
  const auto& plugin = BuiltinRegistry().mappings().entries().find(name)->second;
  if (plugin.description.options.Find("memory_limit_mib") == nullptr) return spec;
  return spec + (spec == name ? ":" : ",") + "memory_limit_mib=65536";
}

TEST(RealScanTest, MappingVariantsGiveTheSameMaps) {
  const std::string path = DataPath(kFrame);
  if (!std::filesystem::exists(path)) GTEST_SKIP() << path << " is missing (VOXCONV_DATA_DIR)";
  const auto cloud = LoadInput(path, {});
  ASSERT_TRUE(cloud.ok()) << cloud.status();
  const ExecutionContext context = CpuContext();
  const auto set = CoordinateSet::Create(cloud->coords, {1, 1, 1}, context);
  ASSERT_TRUE(set.ok()) << set.status();
  const auto geometry = ConvGeometry::Create({});
  std::vector<int64_t> offset_ptr;
  std::vector<int32_t> in;
  int variants = 0;
  for (const std::string& spec : BuiltinRegistry().mappings().Variants(BackendKind::kCpu)) {
    SCOPED_TRACE(spec);
    const auto mapping = BuiltinRegistry().mappings().Create(WithRoom(spec), BackendKind::kCpu);
    ASSERT_TRUE(mapping.ok()) << mapping.status();
    if (!(*mapping)->Supports(*geometry).ok) continue;  // CUDA's alone
    const auto map = QueryPairs(**mapping, {**set, **set, *geometry}, context);
    ASSERT_TRUE(map.ok()) << map.status();
    const auto pairs_in = CopyToHost(map->pairs().in.array(), context);
    ASSERT_TRUE(pairs_in.ok());
    if (variants++ == 0) {
      offset_ptr = map->offset_ptr();
      in = *pairs_in;
      EXPECT_EQ(map->num_pairs(13), set.value()->size());
    }
    EXPECT_EQ(map->offset_ptr(), offset_ptr);
    EXPECT_TRUE(*pairs_in == in);
  }
  EXPECT_GE(variants, 13);
}

}  // namespace
}  // namespace voxconv::testing
