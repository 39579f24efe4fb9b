// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/radix_sort.h"

#include <algorithm>
#include <memory>
#include <numeric>
#include <random>
#include <vector>

#include "gtest/gtest.h"
#include "voxconv/backends/cpu/compact_key.h"
#include "voxconv/backends/cpu/cpu_backend.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv {
namespace {

struct Cpu {
  explicit Cpu(int threads, int64_t limit = 0)
      : backend(*CpuBackend::Create({.threads = threads, .memory_limit = limit})),
        context{backend.get(), &backend->main_stream(), nullptr} {}
  std::unique_ptr<CpuBackend> backend;
  ExecutionContext context;
};

std::vector<uint64_t> RandomKeys(int64_t size, uint64_t mask, uint64_t base) {
  std::mt19937_64 random(7);
  std::vector<uint64_t> keys(size);
  for (uint64_t& key : keys) key = (random() & mask) | base;
  return keys;
}

void ExpectSorts(const std::vector<uint64_t>& keys) {
  std::vector<int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(),
                   [&](int32_t a, int32_t b) { return keys[a] < keys[b]; });
  std::vector<uint64_t> sorted = keys;
  std::sort(sorted.begin(), sorted.end());
  for (int threads : {1, 2}) {
    Cpu cpu(threads);
    Array<uint64_t> only = *CopyToBackend<uint64_t>(keys, cpu.context);
    ASSERT_TRUE(RadixSort(only, cpu.context).ok());
    EXPECT_EQ(*CopyToHost(only, cpu.context), sorted);

    Array<uint64_t> with = *CopyToBackend<uint64_t>(keys, cpu.context);
    std::vector<int32_t> rows(keys.size());
    std::iota(rows.begin(), rows.end(), 0);
    Array<int32_t> values = *CopyToBackend<int32_t>(rows, cpu.context);
    ASSERT_TRUE(RadixSort(with, values, cpu.context).ok());
    EXPECT_EQ(*CopyToHost(with, cpu.context), sorted);
    EXPECT_EQ(*CopyToHost(values, cpu.context), order);
  }
}

TEST(RadixSortTest, SortsStablyWhateverTheBits) {
  for (int64_t size : {0, 1, 2, 1000, 200000}) {
    ExpectSorts(RandomKeys(size, ~uint64_t{0}, 0));
    ExpectSorts(RandomKeys(size, 0x3f, uint64_t{1} << 63));  // many equal keys
    ExpectSorts(RandomKeys(size, 0xf0f0000ff0000fff, 0));
  }
}

TEST(RadixSortTest, EqualAscendingAndDescendingKeys) {
  ExpectSorts(std::vector<uint64_t>(70000, 5));
  std::vector<uint64_t> keys(70000);
  std::iota(keys.begin(), keys.end(), uint64_t{1} << 40);
  ExpectSorts(keys);
  std::reverse(keys.begin(), keys.end());
  ExpectSorts(keys);
}

TEST(RadixSortTest, LackOfMemoryLeavesTheKeys) {
  const std::vector<uint64_t> keys = {3, 1, 2};
  Cpu cpu(1, 32);
  Array<uint64_t> array = *CopyToBackend<uint64_t>(keys, cpu.context);
  EXPECT_EQ(RadixSort(array, cpu.context).code(), absl::StatusCode::kResourceExhausted);
  EXPECT_EQ(*CopyToHost(array, cpu.context), keys);
}

TEST(CompactKeyTest, RoundTripsAndKeepsTheOrder) {
  const Box wide{{kMinCoordinate, kMinCoordinate, kMinCoordinate},
                 {kMaxCoordinate, kMaxCoordinate, kMaxCoordinate}};
  for (const Int3& stride : {Int3{1, 1, 1}, Int3{4, 6, 1}, Int3{3, 2, 16}}) {
    for (const Box& box : {wide, Box{{-7, 0, 5}, {9, 0, 700}}, Box{}}) {
      const CompactKeyFormat format(box, stride, 512);
      std::mt19937 random(3);
      std::vector<Coordinate> rows;
      for (int i = 0; i < 2000; ++i) {
        Coordinate c{static_cast<int32_t>(random() % 512)};
        int32_t* axes[3] = {&c.x, &c.y, &c.z};
        for (int axis = 0; axis < 3; ++axis) {
          const int64_t steps = (int64_t{box.hi[axis]} - box.lo[axis]) / stride[axis];
          *axes[axis] = static_cast<int32_t>(
              box.lo[axis] + static_cast<int64_t>(random() % (steps + 1)) * stride[axis]);
        }
        rows.push_back(c);
      }
      EXPECT_LE(format.total_bits(), 63);
      for (size_t i = 1; i < rows.size(); ++i) {
        EXPECT_EQ(format.Unpack(format.Pack(rows[i])), rows[i]);
        EXPECT_EQ(format.Pack(rows[i - 1]) < format.Pack(rows[i]), rows[i - 1] < rows[i]);
      }
    }
  }
}

}  // namespace
}  // namespace voxconv
