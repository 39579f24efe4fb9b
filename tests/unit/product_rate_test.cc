// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/product_rate.h"

#include "gmock/gmock.h"
#include "gtest/gtest.h"
#include "voxconv/backends/cpu/sgemm.h"

namespace voxconv::measure {
namespace {

using ::testing::HasSubstr;
using ::testing::IsEmpty;

TEST(ProductRateTest, SlowProductsAreNamedWithTheRemedy) {
  EXPECT_THAT(WhySlow({.product = 90, .peak = 118}), IsEmpty());
  EXPECT_THAT(WhySlow({.product = 17, .peak = 118}),
              AllOf(HasSubstr("17 of 118 GFLOP/s (14 %"), HasSubstr("CMAKE_BUILD_TYPE=Release"),
                    HasSubstr(SgemmTarget())));
}

TEST(ProductRateTest, ProvenanceHasTheRatesOnceTheyAreMeasured) {
  EXPECT_EQ(ProductJson(BackendKind::kCuda)["library"], "cuBLASLt");
  EXPECT_TRUE(ProductJson(BackendKind::kCpu)["gflops"].is_null());
  const ProductRate& rate = MeasureProductRate();
  EXPECT_GT(rate.product, 0);
  EXPECT_GT(rate.peak, rate.product / 2);
  EXPECT_EQ(&MeasureProductRate(), &rate) << "once in a process";
  const Json json = ProductJson(BackendKind::kCpu);
  EXPECT_EQ(json["library"], "voxconv");
  EXPECT_EQ(json["kernel"], SgemmTarget());
  EXPECT_EQ(json["gflops"], rate.product);
  EXPECT_EQ(json["peak_gflops"], rate.peak);
}

}  // namespace
}  // namespace voxconv::measure
