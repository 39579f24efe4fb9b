// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/parallel.h"

#include <atomic>
#include <cstdint>
#include <vector>

#include "gtest/gtest.h"
#include "unit_cpu.h"

namespace voxconv {
namespace {

TEST(ParallelRangesTest, VisitsEveryPositionOnce) {
  for (int threads : {1, 2}) {
    UnitCpu cpu(threads);
    for (int64_t n : {1, 7, 100}) {
      for (int64_t grain : {1, 7, 1000}) {
        std::vector<std::atomic<int>> visits(n);
        ParallelRanges(cpu.context, n, grain, [&](int64_t begin, int64_t end) {
          EXPECT_EQ(begin % grain, 0);
          for (int64_t i = begin; i < end; ++i) ++visits[i];
        });
        for (const std::atomic<int>& count : visits) EXPECT_EQ(count, 1);
      }
    }
  }
}

// A grain that is a share of n is 0 where there is nothing to do.
TEST(ParallelRangesTest, NothingToDoNeedsNoGrain) {
  UnitCpu cpu(/*threads=*/2);
  for (int64_t grain : {0, 1}) {
    ParallelRanges(cpu.context, 0, grain, [](int64_t, int64_t) { ADD_FAILURE(); });
  }
}

TEST(ParallelRangesDeathTest, NamesAGrainOfZero) {
  UnitCpu cpu(/*threads=*/1);
  EXPECT_DEATH(ParallelRanges(cpu.context, 1, 0, [](int64_t, int64_t) {}), "grain >= 1");
}

}  // namespace
}  // namespace voxconv
