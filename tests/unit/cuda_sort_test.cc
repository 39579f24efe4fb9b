// SPDX-License-Identifier: Apache-2.0
// SortByKey and SortKeys against std::stable_sort; which keys a sample sort takes as its samples.
#include <algorithm>
#include <cstdint>
#include <functional>
#include <numeric>
#include <random>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/backends/cuda/box_cells.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/sample_sort_plan.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv {
namespace {

constexpr int64_t kMaxSize = SampleSortPlan::kMaxSize;

TEST(SampleSortPlanTest, SamplesAscendAndAreKeys) {
  constexpr int64_t kCapacity = SampleSortPlan::kCapacity;
  for (const int64_t size : {kCapacity + 1, kCapacity + 2, int64_t{5000}, int64_t{100000},
                             int64_t{163841}, kMaxSize - 1, kMaxSize}) {
    const SampleSortPlan plan = SampleSortPlan::For(size, 30);
    ASSERT_LE(plan.samples(), size);
    int32_t before = -1;
    for (int i = 0; i < plan.samples(); ++i) {
      ASSERT_GT(plan.Sample(i), before) << size << " " << i;
      before = plan.Sample(i);
    }
    EXPECT_LT(before, size);
    EXPECT_GE(before, size - 2 * size / plan.samples() - 1);  // the last keys have a sample
  }
}

TEST(SampleSortPlanTest, BucketsAndBits) {
  EXPECT_EQ(SampleSortPlan::For(1, 1).buckets, 1);
  EXPECT_EQ(SampleSortPlan::For(SampleSortPlan::kCapacity, 64).buckets, 1);
  EXPECT_GT(SampleSortPlan::For(SampleSortPlan::kCapacity + 1, 64).buckets, 1);
  EXPECT_LE(SampleSortPlan::For(kMaxSize, 64).buckets, SampleSortPlan::kMaxBuckets);
  EXPECT_EQ(SampleSortPlan::For(1 << 17, 30).index_bits, 17);
  EXPECT_EQ(SampleSortPlan::For((1 << 17) + 1, 30).index_bits, 18);
  EXPECT_TRUE(SampleSortPlan::For(1 << 17, 47).narrow());
  EXPECT_FALSE(SampleSortPlan::For(1 << 17, 48).narrow());
}

TEST(BoxCellsTest, BitsAndNumbers) {
  EXPECT_EQ(BoxCells({{3, 3, 3}, {3, 3, 3}}, 1).bits, 1);
  EXPECT_EQ(BoxCells({{0, 0, 0}, {7, 3, 1}}, 0).bits, 6);
  EXPECT_EQ(BoxCells({{0, 0, 0}, {7, 3, 1}}, 2).bits, 7);
  EXPECT_EQ(BoxCells({{-1, 0, 0}, {7, 3, 1}}, 1).bits, 7);
  EXPECT_EQ(BoxCells({{-1, 2, 5}, {7, 4, 8}}, 3)({2, 1, 3, 6}), uint64_t{2 * 108 + 2 * 12 + 5});
  constexpr int32_t kLo = kMinCoordinate, kHi = kMaxCoordinate;
  const BoxCells largest({{kLo, kLo, kLo}, {kHi, kHi, kHi}}, kMaxBatch + 1);
  EXPECT_EQ(largest.bits, 63);
  EXPECT_EQ(largest({kMaxBatch, kHi, kHi, kHi}), ~uint64_t{0} >> 1);
}

uint64_t Mask(int bits) { return ~uint64_t{0} >> (64 - bits); }

// The key of each index of an input of one kind. Keys have bits above those in use.
struct Kind {
  std::string name;
  std::function<std::vector<uint64_t>(int64_t size, int bits)> keys;
};

std::vector<uint64_t> Each(int64_t size, const std::function<uint64_t(int64_t)>& key) {
  std::vector<uint64_t> keys(size);
  for (int64_t i = 0; i < size; ++i) keys[i] = key(i);
  return keys;
}

std::vector<uint64_t> RandomKeys(int64_t size, int /*bits*/) {
  std::mt19937_64 random(size);
  return Each(size, [&](int64_t) { return random(); });
}

// All samples are below all other keys, so that one bucket takes nearly all keys.
std::vector<uint64_t> AgainstSamples(int64_t size, int bits) {
  const uint64_t high = uint64_t{1} << (bits - 1);
  std::vector<uint64_t> keys = RandomKeys(size, bits);
  for (uint64_t& key : keys) key |= high;
  const SampleSortPlan plan = SampleSortPlan::For(size, bits);
  if (plan.buckets == 1) return keys;
  for (int i = 0; i < plan.samples(); ++i) keys[plan.Sample(i)] &= ~high;
  return keys;
}

std::vector<Kind> Kinds() {
  return {
      {"random", RandomKeys},
      {"ascending",
       [](int64_t size, int bits) {
         return Each(size, [&](int64_t i) { return i * (Mask(bits) / size + 1); });
       }},
      {"descending",
       [](int64_t size, int bits) {
         return Each(size, [&](int64_t i) { return (size - i) * (Mask(bits) / size + 1); });
       }},
      {"equal", [](int64_t size, int) { return std::vector<uint64_t>(size, 5); }},
      {"all ones", [](int64_t size, int) { return std::vector<uint64_t>(size, ~uint64_t{0}); }},
      {"few",
       [](int64_t size, int bits) {
         return Each(size, [&](int64_t i) { return i * 7919 % 3 * (Mask(bits) / 3); });
       }},
      {"skewed",  // most keys are small
       [](int64_t size, int bits) {
         std::mt19937_64 random(bits);
         return Each(size, [&](int64_t) {
           const int shift = static_cast<int>(random() % bits);
           return (random() & Mask(bits)) >> shift;
         });
       }},
      {"against the samples", AgainstSamples},
  };
}

std::vector<int32_t> StableOrder(const std::vector<uint64_t>& keys, int bits) {
  std::vector<int32_t> order(keys.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return (keys[a] & Mask(bits)) < (keys[b] & Mask(bits));
  });
  return order;
}

template <typename Key, typename Value>
struct Sorted {
  std::vector<Key> keys;
  std::vector<Value> values;
  bool operator==(const Sorted&) const = default;
};

// With given values, if `values` is not empty.
template <typename Key, typename Value>
Sorted<Key, Value> SortOnDevice(const std::vector<Key>& keys, const std::vector<Value>& values,
                                int bits, const ExecutionContext& context) {
  const auto size = static_cast<int64_t>(keys.size());
  const Array<Key> given = *CopyToBackend<Key>(keys, context);
  const Array<Value> given_values = *CopyToBackend<Value>(values, context);
  Array<Key> sorted = *AllocateArray<Key>(size, context);
  Array<Value> sorted_values = *AllocateArray<Value>(size, context);
  const absl::Status status =
      SortByKey(given.data(), sorted.data(), values.empty() ? nullptr : given_values.data(),
                sorted_values.data(), size, bits, context);
  EXPECT_TRUE(status.ok()) << status;
  return {*CopyToHost(sorted, context), *CopyToHost(sorted_values, context)};
}

// Sorts the low bits of `all` in each of the forms.
template <typename Key>
void ExpectSorted(const std::vector<uint64_t>& all, int bits, const ExecutionContext& context) {
  const std::vector<Key> keys(all.begin(), all.end());
  const std::vector<int32_t> order = StableOrder(all, bits);
  std::vector<int32_t> values(keys.size());
  Sorted<Key, int32_t> expected, with_values;
  for (size_t i = 0; i < keys.size(); ++i) values[i] = static_cast<int32_t>(3 * i + 1);
  for (const int32_t row : order) {
    expected.keys.push_back(keys[row]);
    expected.values.push_back(row);
    with_values.values.push_back(values[row]);
  }
  with_values.keys = expected.keys;
  ASSERT_TRUE((SortOnDevice<Key, int32_t>(keys, values, bits, context) == with_values));
  ASSERT_TRUE((SortOnDevice<Key, int32_t>(keys, {}, bits, context) == expected));

  const auto size = static_cast<int64_t>(keys.size());
  Array<Key> given = *CopyToBackend<Key>(keys, context);
  Array<Key> spare = *AllocateArray<Key>(size, context);
  Array<int32_t> rows = *AllocateArray<int32_t>(size, context);
  ASSERT_TRUE(SortByKey(given.data(), nullptr, nullptr, rows.data(), size, bits, context).ok());
  ASSERT_EQ(*CopyToHost(rows, context), order);
  const absl::StatusOr<Key*> sorted = SortKeys(given.data(), spare.data(), size, bits, context);
  ASSERT_TRUE(sorted.ok()) << sorted.status();
  ASSERT_TRUE(*sorted == given.data() || *sorted == spare.data());
  ASSERT_EQ(*CopyToHost(*sorted == spare.data() ? spare : given, context), expected.keys);
}

void ExpectSorted(const Kind& kind, int64_t size, int bits, const ExecutionContext& context) {
  SCOPED_TRACE(absl::StrCat(kind.name, ", ", size, " keys of ", bits, " bits"));
  const std::vector<uint64_t> keys = kind.keys(size, bits);
  ExpectSorted<uint64_t>(keys, bits, context);
  if (bits <= 32) ExpectSorted<uint32_t>(keys, bits, context);
}

TEST(CudaSortTest, NoKeys) {
  VOXCONV_NEED_CUDA(cuda);
  uint64_t* const none = nullptr;
  int32_t* const no_values = nullptr;
  EXPECT_TRUE(SortByKey(none, none, no_values, no_values, 0, 30, cuda->context).ok());
  EXPECT_TRUE(SortKeys(none, none, 0, 30, cuda->context).ok());
}

// Small enough for racecheck.
TEST(CudaSortTest, FewKeys) {
  VOXCONV_NEED_CUDA(cuda);
  for (const Kind& kind : Kinds()) {
    for (const int64_t size : {1, 2, 2049, 5000}) {
      for (const int bits : {13, 60}) ExpectSorted(kind, size, bits, cuda->context);
    }
  }
}

TEST(CudaSortTest, AllNumbersOfBits) {
  VOXCONV_NEED_CUDA(cuda);
  for (int bits = 1; bits <= 64; ++bits) {
    ExpectSorted({"random", RandomKeys}, 20000, bits, cuda->context);
  }
}

TEST(CudaSortTest, Sizes) {
  VOXCONV_NEED_CUDA(cuda);
  for (const int64_t size : {31, 32, 33, 127, 128, 129, 511, 512, 513, 1024, 1025, 2047, 2048}) {
    for (const int bits : {3, 30, 64}) {
      ExpectSorted({"random", RandomKeys}, size, bits, cuda->context);
    }
  }
  // Around the keys of a block and around a change of the number of buckets.
  for (const int64_t size : {3071, 3072, 3073, 10240, 10241, 131072, 131073, 163840, 163841}) {
    ExpectSorted({"random", RandomKeys}, size, 30, cuda->context);
  }
}

TEST(CudaSortTest, KindsOfKeys) {
  VOXCONV_NEED_CUDA(cuda);
  for (const Kind& kind : Kinds()) {
    for (const int bits : {1, 30, 50, 64}) ExpectSorted(kind, 100000, bits, cuda->context);
  }
}

TEST(CudaSortTest, TheLargestAndOneMore) {
  VOXCONV_NEED_CUDA(cuda);
  for (const Kind& kind : Kinds()) {
    for (const int64_t size : {kMaxSize, kMaxSize + 1}) ExpectSorted(kind, size, 31, cuda->context);
  }
}

TEST(CudaSortTest, WideValues) {
  VOXCONV_NEED_CUDA(cuda);
  const std::vector<uint64_t> keys = RandomKeys(5000, 40);
  std::vector<int64_t> values(keys.size()), expected;
  for (size_t i = 0; i < keys.size(); ++i) values[i] = static_cast<int64_t>(i) << 33;
  for (const int32_t row : StableOrder(keys, 40)) expected.push_back(values[row]);
  EXPECT_EQ((SortOnDevice<uint64_t, int64_t>(keys, values, 40, cuda->context).values), expected);
}

TEST(CudaSortTest, RepeatsAreTheSame) {
  VOXCONV_NEED_CUDA(cuda);
  const std::vector<uint64_t> keys = Each(100000, [](int64_t i) { return i * 7919 % 5003; });
  const auto first = SortOnDevice<uint64_t, int32_t>(keys, {}, 13, cuda->context);
  for (int i = 1; i < 20; ++i) {
    ASSERT_TRUE((SortOnDevice<uint64_t, int32_t>(keys, {}, 13, cuda->context) == first)) << i;
  }
}

TEST(CudaSortTest, LackOfMemory) {
  const std::unique_ptr<UnitCuda> cuda = UnitCuda::Create(/*memory_limit=*/1 << 21);
  if (cuda == nullptr) GTEST_SKIP() << "no CUDA device on this machine";
  const int64_t size = 100000;
  Array<uint32_t> keys = *AllocateArray<uint32_t>(size, cuda->context);
  Array<int32_t> order = *AllocateArray<int32_t>(size, cuda->context);
  const absl::Status status =
      SortByKey(keys.data(), nullptr, nullptr, order.data(), size, 30, cuda->context);
  EXPECT_EQ(status.code(), absl::StatusCode::kResourceExhausted) << status;
}

}  // namespace
}  // namespace voxconv
