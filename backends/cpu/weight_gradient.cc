// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/weight_gradient.h"

#include <algorithm>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/sgemm.h"

namespace voxconv {
namespace {

// Pairs whose rows are gathered for one product: both sides stay in the second-level cache.
constexpr int64_t kPairsPerBlock = 256;

// The product of a kernel offset is split into strips of input channels, so that a kernel of one
// offset keeps all threads busy too. A strip is computed by one thread in the order of the pairs.
constexpr int64_t kChannelsPerStrip = 64;

constexpr int64_t kScratchBytes = int64_t{64} << 20;

void GatherRows(const ConstTensorView& from, const int32_t* rows, int64_t count, int64_t first,
                int64_t width, float* to) {
  for (int64_t i = 0; i < count; ++i) {
    std::copy_n(from.f32() + int64_t{rows[i]} * from.channels + first, width, to + i * width);
  }
}

}  // namespace

absl::Status CpuWeightGradient(const KernelMap& map, const ConstTensorView& x,
                               const ConstTensorView& dy, const TensorView& gradient,
                               const ExecutionContext& context) {
  const int64_t c_in = x.channels, c_out = dy.channels;
  const int64_t strips = (c_in + kChannelsPerStrip - 1) / kChannelsPerStrip;
  const int64_t tasks = map.num_offsets() * strips;
  const int64_t width = std::min(c_in, kChannelsPerStrip);
  const int64_t floats = kPairsPerBlock * (width + c_out);
  // Each task of a wave has scratch memory of its own.
  const int64_t wave =
      std::clamp<int64_t>(kScratchBytes / (floats * static_cast<int64_t>(sizeof(float))), 1,
                          std::max<int64_t>(tasks, 1));
  VOXCONV_ASSIGN_OR_RETURN(Array<float> scratch, AllocateArray<float>(wave * floats, context));
  const auto run = [&](int64_t task, float* inputs) {
    const int64_t k = task / strips, first = task % strips * kChannelsPerStrip;
    const int64_t strip = std::min(kChannelsPerStrip, c_in - first);
    float* gradients = inputs + kPairsPerBlock * width;
    float* result = gradient.f32() + (k * c_in + first) * c_out;
    std::fill_n(result, strip * c_out, 0.0f);
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; i += kPairsPerBlock) {
      const int64_t count = std::min(kPairsPerBlock, map.offset_ptr()[k + 1] - i);
      GatherRows(x, map.pairs().in.data() + i, count, first, strip, inputs);
      GatherRows(dy, map.pairs().out.data() + i, count, 0, c_out, gradients);
      SgemmTransposedSerial(strip, c_out, count, inputs, gradients, ProductMode::kAccumulate,
                            result);
    }
  };
  for (int64_t begin = 0; begin < tasks; begin += wave) {
    ParallelRanges(context, std::min(wave, tasks - begin), 1,
                   [&](int64_t i, int64_t) { run(begin + i, scratch.data() + i * floats); });
  }
  return absl::OkStatus();
}

}  // namespace voxconv
