// SPDX-License-Identifier: Apache-2.0
// The tables of a perfect hash that are constructed on the device, held against the host's.
#include <algorithm>
#include <cstdint>
#include <random>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "gmock/gmock.h"
#include "mapping_cases.h"
#include "unit_cuda.h"
#include "voxconv/io/load_input.h"
#include "voxconv/mapping/perfect_hash/psh_cpu.h"
#include "voxconv/mapping/perfect_hash/psh_cuda.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;

// The tables in host memory.
struct HostTables {
  Int3 stride;
  std::vector<PshSample> samples;
  std::vector<int32_t> h;
  std::vector<uint32_t> phi;
  std::variant<std::vector<uint16_t>, std::vector<uint32_t>> tags;

  int32_t Find(const Coordinate& c) const {
    return std::visit(
        [&](const auto& t) {
          using Tag = typename std::remove_cvref_t<decltype(t)>::value_type;
          return PshView<Tag>{samples.data(), static_cast<int32_t>(samples.size()),
                              stride,         phi.data(),
                              t.data(),       h.data()}
              .Find(c);
        },
        tags);
  }
};

HostTables ToHost(const PshCuda& psh, const ExecutionContext& context) {
  HostTables tables{psh.stride,
                    *CopyToHost(psh.samples, context),
                    *CopyToHost(psh.h, context),
                    *CopyToHost(psh.phi, context),
                    {}};
  std::visit([&](const auto& tags) { tables.tags = *CopyToHost(tags, context); }, psh.tags);
  return tables;
}

HostTables BuildOnDevice(const std::vector<Coordinate>& rows, const Int3& stride,
                         const PshOptions& options, UnitCuda& cuda) {
  const auto set = *CoordinateSet::Create(rows, stride, cuda.context);
  const auto psh = BuildPshOnDevice(*set, options, cuda.context);
  EXPECT_TRUE(psh.ok()) << psh.status();
  return psh.ok() ? ToHost(*psh, cuda.context) : HostTables{};
}

// Every row at its voxel, and what the host's tables find beside each of them. Entries of H that
// no lookup reaches are empty.
void ExpectExact(const std::vector<Coordinate>& rows, const Int3& stride, const PshOptions& options,
                 UnitCuda& cuda) {
  const HostTables device = BuildOnDevice(rows, stride, options, cuda);
  int64_t wrong = 0;
  for (size_t i = 0; i < rows.size(); ++i) wrong += device.Find(rows[i]) != static_cast<int32_t>(i);
  EXPECT_EQ(wrong, 0) << "of " << rows.size() << " rows";
  EXPECT_EQ(std::count_if(device.h.begin(), device.h.end(), [](int32_t row) { return row >= 0; }),
            static_cast<int64_t>(rows.size()));
  UnitCpu cpu(2);
  const auto set = *CoordinateSet::Create(rows, stride, cpu.context);
  const auto host = SuperPsh::Build(*set, options, cpu.context);
  ASSERT_TRUE(host.ok()) << host.status();
  for (const Coordinate& c : rows) {
    for (const Coordinate& q : {Coordinate{c.b, c.x + stride.x, c.y, c.z},
                                {c.b, c.x, c.y - stride.y, c.z - stride.z},
                                {c.b, c.x, c.y, c.z + 1},
                                {c.b + 1, c.x, c.y, c.z}}) {
      wrong += device.Find(q) != host->Find(q.b, q.position());
    }
  }
  EXPECT_EQ(wrong, 0) << "neighbours of " << rows.size() << " rows";
}

TEST(PerfectHashCudaTest, FindsWhatTheHostsTablesFind) {
  VOXCONV_NEED_CUDA(cuda);
  for (const int count : {1, 2, 3, 7, 8, 9, 500, 20000}) {
    SCOPED_TRACE(count);
    ExpectExact(RandomVoxels(count, {0}, -1000, 1000, {1, 1, 1}, count), {1, 1, 1}, {}, *cuda);
    ExpectExact(RandomVoxels(count, {0}, -30, 30, {1, 1, 1}, count), {1, 1, 1}, {.load = 0.5},
                *cuda);
  }
  // Sample 1 has no voxels, and strides are odd.
  ExpectExact(RandomVoxels(5000, {0, 2, 7}, -90, 99, {3, 1, 2}, 3), {3, 1, 2}, {}, *cuda);
}

TEST(PerfectHashCudaTest, FullFlatAndThinBlocks) {
  VOXCONV_NEED_CUDA(cuda);
  for (const auto& [x, y, z] : {std::tuple{16, 16, 16}, {70, 70, 1}, {40, 12, 3}, {1, 1, 900}}) {
    std::vector<Coordinate> rows;
    rows.reserve(x * y * z);
    for (int i = 0; i < x * y * z; ++i) rows.push_back({0, i / (y * z), i / z % y, -(i % z)});
    SCOPED_TRACE(rows.size());
    ExpectExact(rows, {1, 1, 1}, {}, *cuda);
  }
}

TEST(PerfectHashCudaTest, WideSamplesTakeWideTags) {
  VOXCONV_NEED_CUDA(cuda);
  for (const int32_t x : {65535, 65536, 131071}) {
    const std::vector<Coordinate> rows = {{0, 0, 0, 0}, {0, x, 0, 0}};
    ExpectExact(rows, {1, 1, 1}, {}, *cuda);
    EXPECT_EQ(BuildOnDevice(rows, {1, 1, 1}, {}, *cuda).tags.index(), x == 65535 ? 0u : 1u);
  }
}

TEST(PerfectHashCudaTest, NoVoxels) {
  VOXCONV_NEED_CUDA(cuda);
  const HostTables tables = BuildOnDevice({}, {1, 1, 1}, {}, *cuda);
  EXPECT_EQ(tables.Find({0, 0, 0, 0}), -1);
}

// The offsets are the same in every run and for every order of the rows. H follows the order.
void ExpectReproducible(std::vector<Coordinate> rows, UnitCuda& cuda) {
  const HostTables first = BuildOnDevice(rows, {1, 1, 1}, {}, cuda);
  const HostTables again = BuildOnDevice(rows, {1, 1, 1}, {}, cuda);
  EXPECT_TRUE(again.phi == first.phi);
  EXPECT_TRUE(again.h == first.h);
  EXPECT_TRUE(again.tags == first.tags);
  std::shuffle(rows.begin(), rows.end(), std::mt19937(7));
  const HostTables shuffled = BuildOnDevice(rows, {1, 1, 1}, {}, cuda);
  EXPECT_TRUE(shuffled.phi == first.phi);
  EXPECT_TRUE(shuffled.tags == first.tags);
}

TEST(PerfectHashCudaTest, IsReproducible) {
  VOXCONV_NEED_CUDA(cuda);
  ExpectReproducible(RandomVoxels(20000, {0}, 0, 300, {1, 1, 1}, 1), *cuda);
  ExpectReproducible(RandomVoxels(3000, {0, 1, 4}, -40, 40, {1, 1, 1}, 2), *cuda);
}

// A frame's tables: as large as the host's but for Phi.
TEST(PerfectHashCudaTest, LidarFrames) {
  VOXCONV_NEED_CUDA(cuda);
  for (const double size : {0.05, 0.2}) {
    LoadOptions options;
    options.voxelize.size = {size, size, size};
    const auto cloud = LoadInput("scene:lidar64", options);
    ASSERT_TRUE(cloud.ok()) << cloud.status();
    const std::vector<Coordinate> rows = cloud->coords;
    ExpectExact(rows, {1, 1, 1}, {}, *cuda);
    ExpectReproducible(rows, *cuda);
    const HostTables tables = BuildOnDevice(rows, {1, 1, 1}, {}, *cuda);
    const auto n = static_cast<double>(rows.size());
    EXPECT_LT(static_cast<double>(tables.h.size()), 1.1 * n);
    EXPECT_LT(static_cast<double>(tables.phi.size()), 8 * n);
  }
}

// One million voxels, in two orders of their rows.
TEST(PerfectHashCudaTest, AMillionVoxels) {
  VOXCONV_NEED_CUDA(cuda);
  const std::vector<Coordinate> rows = RandomVoxels(1000000, {0}, -200, 199, {1, 1, 1}, 4);
  ExpectReproducible(rows, *cuda);
  const HostTables tables = BuildOnDevice(rows, {1, 1, 1}, {}, *cuda);
  int64_t wrong = 0;
  for (size_t i = 0; i < rows.size(); ++i) wrong += tables.Find(rows[i]) != static_cast<int32_t>(i);
  EXPECT_EQ(wrong, 0);
  // Nothing else is found: the rows lie in a box of 400^3, one of 64 cells of it is a voxel.
  const std::set<Coordinate> voxels(rows.begin(), rows.end());
  for (int i = 0; i < 400 * 400 * 400; i += 97) {
    const Coordinate c{0, i / 160000 - 200, i / 400 % 400 - 200, i % 400 - 200};
    wrong += (tables.Find(c) >= 0) != voxels.contains(c);
  }
  EXPECT_EQ(wrong, 0);
}

TEST(PerfectHashCudaTest, WaitsOnceForATry) {
  VOXCONV_NEED_CUDA(cuda);
  std::vector<Coordinate> rows;
  rows.reserve(4096);
  for (int i = 0; i < 4096; ++i) rows.push_back({0, i / 256, i / 16 % 16, i % 16});
  const auto set = *CoordinateSet::Create(rows, {1, 1, 1}, cuda->context);
  const int64_t before = cuda->backend->synchronisations();
  ASSERT_TRUE(BuildPshOnDevice(*set, {.max_retries = 0}, cuda->context).ok());
  EXPECT_EQ(cuda->backend->synchronisations() - before, 1);
}

// The sample that fails is named, and larger tables help it.
TEST(PerfectHashCudaTest, FailureNamesTheSample) {
  VOXCONV_NEED_CUDA(cuda);
  // Those of sample 1 agree modulo m_bar = 2 and r_bar = 1, so that the first try must fail.
  const std::vector<Coordinate> rows = {{0, 5, 5, 5}, {1, 0, 0, 0}, {1, 2, 0, 0}};
  const auto set = *CoordinateSet::Create(rows, {1, 1, 1}, cuda->context);
  const auto status = BuildPshOnDevice(*set, {.max_retries = 0}, cuda->context).status();
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted);
  EXPECT_THAT(std::string(status.message()),
              HasSubstr("sample 1: perfect hash of n = 2 voxels: none found in 1 tries, the last "
                        "with m_bar 2 and r_bar 1"));
  EXPECT_TRUE(BuildPshOnDevice(*set, {.max_retries = 1}, cuda->context).ok());
}

}  // namespace
}  // namespace voxconv
