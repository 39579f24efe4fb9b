// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/gather_gemm_scatter/sum_rows_cpu.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "voxconv/dataflows/gather_gemm_scatter/sum_rows_cpu.cc"
// Compiles this file once for every instruction set.
#include "hwy/foreach_target.h"  // IWYU pragma: keep
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace voxconv {
namespace HWY_NAMESPACE {
namespace hn = hwy::HWY_NAMESPACE;

void SumRowsOfTarget(const float* const* rows, size_t num_rows, bool accumulate, size_t channels,
                     float* HWY_RESTRICT out) {
  const hn::ScalableTag<float> d;
  const size_t lanes = hn::Lanes(d);
  size_t c = 0;
  // Four independent sums hide the latency of an addition.
  for (; c + 4 * lanes <= channels; c += 4 * lanes) {
    auto sum0 = accumulate ? hn::LoadU(d, out + c) : hn::Zero(d);
    auto sum1 = accumulate ? hn::LoadU(d, out + c + lanes) : hn::Zero(d);
    auto sum2 = accumulate ? hn::LoadU(d, out + c + 2 * lanes) : hn::Zero(d);
    auto sum3 = accumulate ? hn::LoadU(d, out + c + 3 * lanes) : hn::Zero(d);
    for (size_t i = 0; i < num_rows; ++i) {
      const float* row = rows[i] + c;
      sum0 = hn::Add(sum0, hn::LoadU(d, row));
      sum1 = hn::Add(sum1, hn::LoadU(d, row + lanes));
      sum2 = hn::Add(sum2, hn::LoadU(d, row + 2 * lanes));
      sum3 = hn::Add(sum3, hn::LoadU(d, row + 3 * lanes));
    }
    hn::StoreU(sum0, d, out + c);
    hn::StoreU(sum1, d, out + c + lanes);
    hn::StoreU(sum2, d, out + c + 2 * lanes);
    hn::StoreU(sum3, d, out + c + 3 * lanes);
  }
  for (; c + lanes <= channels; c += lanes) {
    auto sum = accumulate ? hn::LoadU(d, out + c) : hn::Zero(d);
    for (size_t i = 0; i < num_rows; ++i) sum = hn::Add(sum, hn::LoadU(d, rows[i] + c));
    hn::StoreU(sum, d, out + c);
  }
  for (; c < channels; ++c) {
    float sum = accumulate ? out[c] : 0.0f;
    for (size_t i = 0; i < num_rows; ++i) sum += rows[i][c];
    out[c] = sum;
  }
}

}  // namespace HWY_NAMESPACE
}  // namespace voxconv
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace voxconv {

HWY_EXPORT(SumRowsOfTarget);

void SumRows(absl::Span<const float* const> rows, bool accumulate, int64_t channels, float* out) {
  if (rows.empty() && accumulate) return;
  HWY_DYNAMIC_DISPATCH(SumRowsOfTarget)
  (rows.data(), rows.size(), accumulate, static_cast<size_t>(channels), out);
}

}  // namespace voxconv
#endif  // HWY_ONCE
