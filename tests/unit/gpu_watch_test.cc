// SPDX-License-Identifier: Apache-2.0
// Clocks, power and temperature from a management library that the test makes up.
#include "voxconv/measure/gpu_watch.h"

#include <string>
#include <vector>

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cpu/cpu_backend.h"

namespace voxconv::measure {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

struct Moment {
  unsigned sm_mhz;
  uint64_t reasons;
};
std::vector<Moment> moments;  // one a sample
size_t sample = 0;

NvmlCalls Fake() {
  sample = 0;
  NvmlCalls calls;
  calls.driver_version = [](char* text, unsigned length) {
    std::string("580.65.06").copy(text, length);
    return 0;
  };
  calls.device_by_bus_id = [](const char* bus_id, void** device) {
    if (std::string(bus_id) != "0000:17:00.0") return 6;  // NVML_ERROR_NOT_FOUND
    *device = &moments;
    return 0;
  };
  calls.clock = [](void*, int domain, unsigned* mhz) {
    *mhz = domain == kNvmlSmClock ? moments[sample].sm_mhz : 3201;
    return 0;
  };
  calls.most_clock = [](void*, int, unsigned* mhz) {
    *mhz = 1980;
    return 0;
  };
  calls.power = [](void*, unsigned* milliwatts) {
    *milliwatts = 412'500;
    return 0;
  };
  calls.throttle_reasons = [](void*, uint64_t* reasons) {
    *reasons = moments[sample++].reasons;
    return 0;
  };
  return calls;
}

GpuWatch Watched(std::vector<Moment> of) {
  moments = std::move(of);
  GpuWatch watch(Fake(), "0000:17:00.0");
  for (size_t i = 0; i < moments.size(); ++i) watch.Sample(std::chrono::milliseconds(0));
  return watch;
}

TEST(GpuWatchTest, LinesHaveClocksPowerAndWhatTheDriverDoesNotTell) {
  const GpuWatch watch = Watched({{345, 1}, {1980, 0}, {1965, 0}});
  const Json json = watch.ToJson();
  EXPECT_EQ(json["samples"], 3);
  EXPECT_EQ(json["sm_mhz"], Json({{"first", 345}, {"least", 345}, {"most", 1980}, {"last", 1965}}));
  EXPECT_EQ(json["memory_mhz"]["last"], 3201);
  EXPECT_EQ(json["power_w"]["most"], 412.5);
  EXPECT_EQ(json["most_sm_mhz"], 1980);
  EXPECT_TRUE(json["temperature_c"].is_null()) << "this library has no such function";
  EXPECT_THAT(json["throttled"], IsEmpty());
  EXPECT_EQ(*DriverVersion(Fake()), "580.65.06");
}

TEST(GpuWatchTest, AClockThatRisesFromIdleHasNotFallen) {
  EXPECT_EQ(Watched({{345, 1}, {1980, 0}, {1965, 0}}).WhySlow(), "");
}

TEST(GpuWatchTest, AFallIsToldWithItsReason) {
  EXPECT_EQ(Watched({{345, 1}, {1980, 0}, {1410, 0x4}, {1755, 0x4}}).WhySlow(),
            "the SM clock fell from 1980 to 1410 MHz (power cap)");
  EXPECT_EQ(Watched({{1980, 0}, {1800, 0}}).WhySlow(), "the SM clock fell from 1980 to 1800 MHz");
}

TEST(GpuWatchTest, ClocksThatAreHeldDownThroughoutAreTold) {
  EXPECT_EQ(Watched({{1410, 0x20}, {1410, 0x4}}).WhySlow(), "clocks held down: power cap, heat");
  EXPECT_THAT(ThrottleReasons(0x1 | 0x2 | 0x100), IsEmpty());
  EXPECT_THAT(ThrottleReasons(0x48),
              ElementsAre("slowdown by the hardware", "heat, by the hardware"));
}

TEST(GpuWatchTest, WhatIsAbsentIsSaid) {
  const auto missing = LoadNvml("libvoxconv-has-no-such-library.so");
  ASSERT_FALSE(missing.ok());
  GpuWatch watch(missing, "0000:17:00.0");
  watch.Sample();
  EXPECT_THAT(watch.samples(), IsEmpty());
  EXPECT_THAT(watch.ToJson()["absent"].get<std::string>(),
              HasSubstr("libvoxconv-has-no-such-library.so"));
  EXPECT_EQ(watch.WhySlow(), "");
  EXPECT_THAT(GpuWatch(Fake(), "0000:99:00.0").ToJson()["absent"].get<std::string>(),
              HasSubstr("no device 0000:99:00.0"));
  EXPECT_THAT(LoadNvml("libc.so.6").status().message(), HasSubstr("nvmlInit_v2"));
}

TEST(GpuWatchTest, TheCpuHasNone) {
  const auto backend = CpuBackend::Create({});
  ASSERT_TRUE(backend.ok());
  GpuWatch watch(**backend);
  watch.Sample();
  EXPECT_TRUE(watch.ToJson().is_null());
}

TEST(GpuWatchTest, SamplesAreNotTakenMoreOftenThanAsked) {
  moments = {{1980, 0}, {1980, 0}};
  GpuWatch watch(Fake(), "0000:17:00.0");
  watch.Sample(std::chrono::hours(1));
  watch.Sample(std::chrono::hours(1));
  EXPECT_EQ(watch.samples().size(), 1u);
}

}  // namespace
}  // namespace voxconv::measure
