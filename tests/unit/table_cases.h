// SPDX-License-Identifier: Apache-2.0
// Neighbour tables as mappings make them on a device: their pairs are not counted.
#ifndef VOXCONV_TESTS_UNIT_TABLE_CASES_H_
#define VOXCONV_TESTS_UNIT_TABLE_CASES_H_

#include <algorithm>
#include <cstdint>
#include <ostream>
#include <random>
#include <utility>
#include <vector>

#include "gtest/gtest.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv {

struct TableCase {
  int64_t inputs, outputs;
  int offsets;
  bool masks;  // the by-product of a mapping

  friend void PrintTo(const TableCase& c, std::ostream* os) {
    *os << c.inputs << " to " << c.outputs << " rows, " << c.offsets << " offsets";
  }
};

inline constexpr TableCase kTableCases[] = {
    {1, 1, 1, false},        {1000, 1000, 27, true},  {700, 1000, 27, false},
    {1000, 333, 33, true},   {64, 65, 125, false},    {500, 500, 65, false},
    {500, 500, 70, true},    {70000, 70000, 3, true}, {0, 5, 8, false},
    {5, 0, 8, true},         {9000, 9001, 27, false}, {3000, 2999, 32, true},
    {2500, 2500, 40, false},
};

// Offset k pairs output q with input q + 7 k around a circle, for about a third of the outputs.
inline std::vector<int32_t> MakeTable(const TableCase& c) {
  std::mt19937 random(c.offsets);
  std::vector<int32_t> table(c.outputs * c.offsets, -1);
  for (int64_t q = 0; q < c.outputs; ++q) {
    for (int k = 0; k < c.offsets; ++k) {
      if (random() % 3 == 0 && q < c.inputs) {
        table[q * c.offsets + k] = static_cast<int32_t>((q + 7 * k) % c.inputs);
      }
    }
  }
  return table;
}

// The table in the memory of the context's backend, with its masks if `masks`.
inline KernelMap UploadTable(const TableCase& c, bool masks, const ExecutionContext& context) {
  const std::vector<int32_t> host = MakeTable(c);
  NeighbourTable table{.table = *CopyToBackend<int32_t>(host, context), .masks = {}};
  if (masks) {
    const int words = (c.offsets + 31) / 32;
    std::vector<uint32_t> bits(c.outputs * words, 0);
    for (int64_t q = 0; q < c.outputs; ++q) {
      for (int k = 0; k < c.offsets; ++k) {
        if (host[q * c.offsets + k] >= 0) bits[q * words + k / 32] |= 1u << k % 32;
      }
    }
    table.masks = *CopyToBackend<uint32_t>(bits, context);
  }
  return {c.inputs, c.outputs, c.offsets, std::move(table)};
}

// An array of a device, copied by `context`, against one of the host.
template <typename T>
void ExpectSameArray(const Array<T>& actual, const Array<T>& expected,
                     const ExecutionContext& context) {
  const std::vector<T> host = *CopyToHost(actual, context);
  EXPECT_TRUE(std::ranges::equal(host, expected.host()));
}

// The same for two maps of pairs.
inline void ExpectSamePairs(const KernelMap& actual, const KernelMap& expected,
                            const ExecutionContext& context) {
  EXPECT_EQ(actual.offset_ptr(), expected.offset_ptr());
  ExpectSameArray(actual.pairs().in.array(), expected.pairs().in.array(), context);
  ExpectSameArray(actual.pairs().out.array(), expected.pairs().out.array(), context);
}

}  // namespace voxconv

#endif  // VOXCONV_TESTS_UNIT_TABLE_CASES_H_
