// SPDX-License-Identifier: Apache-2.0
#include "voxconv/measure/product_rate.h"

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <vector>

#include "absl/strings/str_format.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/measure/timer.h"

namespace voxconv::measure {
namespace {

// Set once it has been measured.
std::atomic<const ProductRate*>& Measured() {
  static std::atomic<const ProductRate*> measured = nullptr;
  return measured;
}

ProductRate Measure() {
  // A typical layer's block, which fits the second-level cache: about 0.1 ms a round.
  constexpr int64_t kRows = 512, kChannels = 64, kMultiplyAdds = 200'000;
  constexpr int kRounds = 50;
  constexpr double kMostSeconds = 0.06;
  const std::vector<float> a(kRows * kChannels, 1e-3f), b(kChannels * kChannels, 1e-3f);
  std::vector<float> c(kRows * kChannels);
  const double product_flops = 2.0 * kRows * kChannels * kChannels;
  ProductRate rate;
  const Timer all;
  for (int round = 0; round < kRounds && all.Seconds() < kMostSeconds; ++round) {
    const Timer product;
    SgemmSerial(kRows, kChannels, kChannels, a.data(), b.data(), ProductMode::kOverwrite, c.data());
    rate.product = std::max(rate.product, 1e-9 * product_flops / product.Seconds());
    const Timer peak;
    const double peak_flops = RunMultiplyAdds(kMultiplyAdds);
    rate.peak = std::max(rate.peak, 1e-9 * peak_flops / peak.Seconds());
  }
  return rate;
}

}  // namespace

const ProductRate& MeasureProductRate() {
  static const auto* rate = new ProductRate(Measure());
  Measured() = rate;
  return *rate;
}

std::string WhySlow(const ProductRate& rate) {
  if (rate.product >= kLeastShareOfPeak * rate.peak) return "";
  return absl::StrFormat(
      "dense products reach %.3g of %.3g GFLOP/s (%.0f %% of what %s can do on one thread), so "
      "dataflows that use them look slow; build with CMAKE_BUILD_TYPE=Release and without "
      "sanitizers, and measure on an idle machine",
      rate.product, rate.peak, 100 * rate.product / rate.peak, SgemmTarget());
}

Json ProductJson(BackendKind backend) {
  Json json = {
      {"library", "cuBLASLt"}, {"kernel", nullptr}, {"gflops", nullptr}, {"peak_gflops", nullptr}};
  if (backend != BackendKind::kCpu) return json;
  json["library"] = "voxconv";
  json["kernel"] = SgemmTarget();
  if (const ProductRate* rate = Measured(); rate != nullptr) {
    json["gflops"] = rate->product;
    json["peak_gflops"] = rate->peak;
  }
  return json;
}

}  // namespace voxconv::measure
