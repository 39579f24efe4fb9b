// SPDX-License-Identifier: Apache-2.0
// The L2 cache of a GPU, emptied and limited: seen by how fast it can be read again.
#include "voxconv/backends/cuda/cuda_device_control.h"

#include <algorithm>
#include <string>
#include <vector>

#include "absl/strings/str_format.h"
#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "unit_cuda.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

using ::testing::HasSubstr;
using ::testing::MatchesRegex;

constexpr int64_t kMib = int64_t{1} << 20;

// Keeps the device busy with work that the cache hardly notices, so that what follows is queued
// before it starts.
absl::Status KeepBusy(const Buffer& little, const ExecutionContext& context) {
  constexpr int kFills = 100;
  for (int i = 0; i < kFills; ++i) {
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(little.data(), 0, little.bytes(), *context.stream));
  }
  return absl::OkStatus();
}

// Milliseconds of a copy within the device, the median of several; `before` comes before each.
template <typename Before>
absl::StatusOr<double> TimeCopy(int64_t bytes, const Before& before,
                                const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const Buffer from, context.backend->Allocate(bytes, *context.stream));
  VOXCONV_ASSIGN_OR_RETURN(const Buffer to, context.backend->Allocate(bytes, *context.stream));
  VOXCONV_ASSIGN_OR_RETURN(const Buffer little, context.backend->Allocate(64, *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(from.data(), 1, bytes, *context.stream));
  std::vector<double> times;
  for (int i = 0; i < 25; ++i) {
    Profile profile;
    ExecutionContext timed = context;
    timed.profile = &profile;
    VOXCONV_RETURN_IF_ERROR(before());
    VOXCONV_RETURN_IF_ERROR(KeepBusy(little, context));
    {
      const StageScope scope(timed, Stage::kGather);
      VOXCONV_RETURN_IF_ERROR(context.backend->Copy(to.data(), to.space(), from.data(),
                                                    from.space(), bytes, *context.stream));
    }
    VOXCONV_RETURN_IF_ERROR(context.backend->FlushStages());
    times.push_back(profile.Total());
  }
  std::nth_element(times.begin(), times.begin() + 12, times.end());
  return times[12];
}

TEST(CudaDeviceControlTest, KnowsItsDevice) {
  VOXCONV_NEED_CUDA(unit);
  const CudaDeviceControl control(*unit->backend);
  const auto bus_id = control.BusId();
  ASSERT_TRUE(bus_id.ok()) << bus_id.status();
  EXPECT_THAT(*bus_id, MatchesRegex("[0-9A-Fa-f]+:[0-9A-Fa-f]+:[0-9A-Fa-f]+\\.[0-9]"));
  EXPECT_GT(control.CacheBytes(), kMib);
}

TEST(CudaDeviceControlTest, EmptiesTheCache) {
  VOXCONV_NEED_CUDA(unit);
  CudaDeviceControl control(*unit->backend);
  const absl::Status status = control.EmptyCache(unit->context);
  EXPECT_TRUE(status.ok()) << status;
}

TEST(CudaDeviceControlTest, ALimitedCacheHoldsLess) {
  VOXCONV_NEED_CUDA(unit);
  CudaDeviceControl control(*unit->backend);
  const auto refused = control.LimitCache(1, unit->context);
  ASSERT_FALSE(refused.ok());
  const std::string message(refused.status().message());
  EXPECT_THAT(message, HasSubstr("allowed are"));
  const auto none = [] { return absl::OkStatus(); };
  const int64_t most = control.CacheBytes() / (2 * kMib);
  std::vector<double> before;
  for (int64_t mib = 2; mib <= most; mib += 2) {
    before.push_back(TimeCopy(mib * kMib, none, unit->context).value_or(0));
  }
  const int64_t least = std::stoll(message.substr(message.find("allowed are") + 12));
  const auto left = control.LimitCache(least, unit->context);
  ASSERT_TRUE(left.ok()) << left.status();
  std::string table = absl::StrFormat("%d of %d bytes are left\n", *left, control.CacheBytes());
  double slower = 0;
  for (int64_t mib = 2; mib <= most; mib += 2) {
    const double ms = TimeCopy(mib * kMib, none, unit->context).value_or(0);
    slower = std::max(slower, ms / before[mib / 2 - 1]);
    absl::StrAppendFormat(&table, "copy of %d MiB: %.4f ms, before %.4f\n", mib, ms,
                          before[mib / 2 - 1]);
  }
  EXPECT_GT(slower, 1.2) << table;
}

}  // namespace
}  // namespace voxconv
