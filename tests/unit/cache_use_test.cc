// SPDX-License-Identifier: Apache-2.0
// Emptying and limiting a cache, with a device that the test makes up.
#include "voxconv/measure/cache_use.h"

#include <memory>
#include <string>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"

namespace voxconv::measure {
namespace {

using ::testing::HasSubstr;

class FakeControl final : public DeviceControl {
 public:
  explicit FakeControl(int* emptied) : emptied_(emptied) {}
  absl::StatusOr<std::string> BusId() const override { return std::string("0000:17:00.0"); }
  int64_t CacheBytes() const override { return 60 << 20; }
  absl::Status EmptyCache(const ExecutionContext&) override {
    ++*emptied_;
    return absl::OkStatus();
  }
  absl::StatusOr<int64_t> LimitCache(int64_t bytes, const ExecutionContext&) override {
    if (bytes < (28 << 20)) return absl::InvalidArgumentError("allowed are 28 .. 60");
    return bytes + (1 << 20);  // not to the byte
  }

 private:
  int* emptied_;
};

class CacheUseTest : public ::testing::Test {
 protected:
  absl::StatusOr<CacheUse> Make(const CacheOptions& options) {
    return CacheUse::Create(options, std::make_unique<FakeControl>(&emptied_), context_);
  }

  std::unique_ptr<Backend> backend_ = *CpuBackend::Create({.threads = 1});
  ExecutionContext context_{backend_.get(), &backend_->main_stream(), nullptr};
  int emptied_ = 0;
};

TEST_F(CacheUseTest, AColdCacheIsEmptiedBeforeEachRun) {
  const auto cold = Make({.cold = true});
  ASSERT_TRUE(cold.ok()) << cold.status();
  EXPECT_TRUE(cold->Prepare(context_).ok());
  EXPECT_TRUE(cold->Prepare(context_).ok());
  EXPECT_EQ(emptied_, 2);
  EXPECT_EQ(cold->Temperature(), "cold");
  EXPECT_TRUE(cold->LimitMib().is_null());
}

TEST_F(CacheUseTest, ALimitedCacheStaysWarmAndSaysWhatIsLeft) {
  const auto limited = Make({.limit_mib = 30});
  ASSERT_TRUE(limited.ok()) << limited.status();
  EXPECT_TRUE(limited->Prepare(context_).ok());
  EXPECT_EQ(emptied_, 0);
  EXPECT_EQ(limited->Temperature(), "warm");
  EXPECT_EQ(limited->LimitMib(), 31.0);
  EXPECT_EQ(Make({.limit_mib = 6}).status().message(), "--l2-mib 6: allowed are 28 .. 60");
}

TEST_F(CacheUseTest, TheCpuRefusesInOneLine) {
  EXPECT_TRUE(CacheUse::Create({}, context_).ok());
  EXPECT_EQ(CacheUse::Create({.cold = true}, context_).status().message(),
            "--cache cold: only --backend cuda can empty a cache between runs");
  EXPECT_EQ(CacheUse::Create({.limit_mib = 6}, context_).status().message(),
            "--l2-mib 6: only --backend cuda can limit a cache");
}

TEST_F(CacheUseTest, OtherTextsAreRefused) {
  EXPECT_EQ(ParseCacheOptions("hot", 0).status().message(),
            "--cache 'hot': allowed are warm and cold");
  EXPECT_THAT(ParseCacheOptions("warm", -1).status().message(), HasSubstr("--l2-mib -1"));
  EXPECT_TRUE(ParseCacheOptions("cold", 6)->cold);
}

}  // namespace
}  // namespace voxconv::measure
