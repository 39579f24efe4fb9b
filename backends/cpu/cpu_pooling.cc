// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_pooling.h"

#include <algorithm>
#include <vector>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/core/tensor_checks.h"

namespace voxconv {
namespace {

// Calls visit(k, p, q) for all pairs whose output row is in [begin, end), by ascending offset. An
// offset's pairs ascend by output row, so its part of the range is found by binary search.
template <typename Visit>
void VisitPairs(const KernelMap& map, int64_t begin, int64_t end, const Visit& visit) {
  const PairList& pairs = map.pairs();
  const int32_t* in = pairs.in.data();
  const int32_t* out = pairs.out.data();
  for (int k = 0; k < map.num_offsets(); ++k) {
    const int32_t* last = out + map.offset_ptr()[k + 1];
    const int32_t* first = std::lower_bound(out + map.offset_ptr()[k], last, begin);
    for (; first != last && *first < end; ++first) visit(k, in[first - out], *first);
  }
}

void MaxPool(const KernelMap& map, const ConstTensorView& x, const TensorView& y, int32_t* switches,
             const ExecutionContext& context) {
  const int64_t channels = x.channels;
  ParallelRanges(context, y.rows, RowsPerTask(channels), [&](int64_t begin, int64_t end) {
    std::fill(y.f32() + begin * channels, y.f32() + end * channels, 0.0f);
    if (switches != nullptr) {
      std::fill(switches + begin * channels, switches + end * channels, -1);
    }
    std::vector<bool> seen(end - begin, false);
    VisitPairs(map, begin, end, [&](int, int32_t p, int32_t q) {
      const float* from = x.f32() + p * channels;
      float* to = y.f32() + q * channels;
      const bool first = !seen[q - begin];
      seen[q - begin] = true;
      for (int64_t c = 0; c < channels; ++c) {
        // Strictly greater: the lowest offset wins a tie. A NaN is taken and stays.
        if (!first && !(from[c] > to[c]) && from[c] == from[c]) continue;
        to[c] = from[c];
        if (switches != nullptr) switches[q * channels + c] = p;
      }
    });
  });
}

void SumPool(const KernelMap& map, PoolMode mode, const ConstTensorView& x, const TensorView& y,
             const ExecutionContext& context) {
  const int64_t channels = x.channels;
  ParallelRanges(context, y.rows, RowsPerTask(channels), [&](int64_t begin, int64_t end) {
    std::fill(y.f32() + begin * channels, y.f32() + end * channels, 0.0f);
    std::vector<int32_t> present(end - begin, 0);
    VisitPairs(map, begin, end, [&](int, int32_t p, int32_t q) {
      const float* from = x.f32() + p * channels;
      float* to = y.f32() + q * channels;
      ++present[q - begin];
      for (int64_t c = 0; c < channels; ++c) to[c] += from[c];
    });
    if (mode == PoolMode::kSum) return;
    for (int64_t q = begin; q < end; ++q) {
      const int32_t count = present[q - begin];
      if (count == 0) continue;
      const float divisor =
          static_cast<float>(mode == PoolMode::kAverage ? map.num_offsets() : count);
      for (int64_t c = 0; c < channels; ++c) y.f32()[q * channels + c] /= divisor;
    }
  });
}

// visit(p, q) for all pairs, offset by offset and in parallel within one: two voxels differ by one
// offset at most, so that neither an input nor an output row occurs twice in an offset and no two
// threads meet in a row.
template <typename Visit>
void VisitOffsets(const KernelMap& map, int64_t channels, const ExecutionContext& context,
                  const Visit& visit) {
  const PairList& pairs = map.pairs();
  for (int k = 0; k < map.num_offsets(); ++k) {
    const int64_t base = map.offset_ptr()[k];
    ParallelRanges(context, map.num_pairs(k), RowsPerTask(channels),
                   [&](int64_t begin, int64_t end) {
                     for (int64_t i = base + begin; i < base + end; ++i) {
                       visit(pairs.in.data()[i], pairs.out.data()[i]);
                     }
                   });
  }
}

void MaxUnpool(const KernelMap& map, const ConstTensorView& x, const int32_t* switches,
               const TensorView& y, const ExecutionContext& context) {
  const int64_t channels = x.channels;
  VisitOffsets(map, channels, context, [&](int32_t p, int32_t q) {
    const float* from = x.f32() + q * channels;
    const int32_t* taken = switches + q * channels;
    float* to = y.f32() + p * channels;
    for (int64_t c = 0; c < channels; ++c) to[c] += taken[c] == p ? from[c] : 0.0f;
  });
}

absl::Status SumUnpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                       const TensorView& y, const ExecutionContext& context) {
  const int64_t channels = x.channels;
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> present, AllocateArray<int32_t>(x.rows, context));
  int32_t* count = present.data();
  std::fill(count, count + x.rows,
            mode == PoolMode::kSum       ? 1
            : mode == PoolMode::kAverage ? map.num_offsets()
                                         : 0);
  if (mode == PoolMode::kAveragePresent) {
    VisitOffsets(map, 1, context, [&](int32_t, int32_t q) { ++count[q]; });
  }
  VisitOffsets(map, channels, context, [&](int32_t p, int32_t q) {
    const float* from = x.f32() + q * channels;
    float* to = y.f32() + p * channels;
    const float divisor = static_cast<float>(count[q]);
    for (int64_t c = 0; c < channels; ++c) to[c] += from[c] / divisor;
  });
  return absl::OkStatus();
}

}  // namespace

absl::Status CpuPool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                     const TensorView& y, int32_t* switches, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckPool(map, mode, x, y, switches, *context.backend));
  if (mode == PoolMode::kMax) {
    MaxPool(map, x, y, switches, context);
  } else {
    SumPool(map, mode, x, y, context);
  }
  return absl::OkStatus();
}

absl::Status CpuUnpool(const KernelMap& map, PoolMode mode, const ConstTensorView& x,
                       const int32_t* switches, const TensorView& y,
                       const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckUnpool(map, mode, x, switches, y, *context.backend));
  VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(y.data, 0, y.bytes(), *context.stream));
  if (mode != PoolMode::kMax) return SumUnpool(map, mode, x, y, context);
  MaxUnpool(map, x, switches, y, context);
  return absl::OkStatus();
}

absl::Status CpuGlobalPool(const CoordinateSet& voxels, PoolMode mode, const ConstTensorView& x,
                           const TensorView& y, const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckGlobalPool(voxels, mode, x, y, *context.backend));
  const absl::Span<const Coordinate> rows = voxels.rows().host();
  std::vector<int64_t> count(y.rows, 0);
  for (const Coordinate& row : rows) ++count[row.b];
  // A task takes a cache line of channels of every row and adds in fp64: no partial sums to merge,
  // hence the same result for any thread count.
  constexpr int64_t kChannelsPerTask = 16;
  ParallelRanges(context, x.channels, kChannelsPerTask, [&](int64_t begin, int64_t end) {
    const int64_t width = end - begin;
    std::vector<double> pooled(y.rows * width, 0.0);
    std::vector<bool> seen(y.rows, false);
    for (int64_t i = 0; i < x.rows; ++i) {
      const int32_t sample = rows[i].b;
      const float* from = x.f32() + i * x.channels + begin;
      double* to = pooled.data() + sample * width;
      const bool first = !seen[sample];
      seen[sample] = true;
      for (int64_t c = 0; c < width; ++c) {
        if (mode != PoolMode::kMax) {
          to[c] += from[c];
        } else if (first || from[c] > to[c] || from[c] != from[c]) {
          to[c] = from[c];
        }
      }
    }
    for (int64_t b = 0; b < y.rows; ++b) {
      const double divisor =
          mode == PoolMode::kAveragePresent ? std::max<double>(1.0, count[b]) : 1.0;
      for (int64_t c = 0; c < width; ++c) {
        y.f32()[b * y.channels + begin + c] = static_cast<float>(pooled[b * width + c] / divisor);
      }
    }
  });
  return absl::OkStatus();
}

}  // namespace voxconv
