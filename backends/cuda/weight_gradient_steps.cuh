// SPDX-License-Identifier: Apache-2.0
// How the blocks of a weight gradient walk through their ranges of pairs (StepRanges).
#ifndef VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_STEPS_CUH_
#define VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_STEPS_CUH_

#include <cstdint>

#include "voxconv/backends/cuda/last_not_above.cuh"
#include "voxconv/backends/cuda/weight_gradient_mma.h"

namespace voxconv {
namespace range_sums {

// The steps of an offset that a range has. Time counts the steps of a range. The range is at the
// offset in the times [begin, end).
struct OffsetSteps {
  int range;        // among those of the offset
  int ranges;       // of the offset
  int begin, end;   // of this range
  int first, last;  // the begin of the offset's first range, and the end of its last one

  // The offset's step that the range takes at time t. The ranges of an offset take turns: at each
  // time, each of them takes one step. The first range starts at time `first`, and the last one
  // ends at time `last`.
  __device__ int StepAt(int t) const {
    if (ranges == 1) return t - first;
    const int before = (ranges - 2) * t + max(0, t - first) + min(t, last);
    return before + range - (t < first ? 1 : 0);
  }
};

// The offset that has step `step`. O(log offsets).
__device__ __forceinline__ int OffsetOf(const StepRanges& ranges, int step) {
  return LastNotAbove(ranges.step_ptr, ranges.num_offsets, step);
}

// The steps of offset k in range `range`, which meet.
__device__ __forceinline__ OffsetSteps StepsOf(const StepRanges& ranges, int k, int range) {
  const int size = ranges.range_steps;
  const int begin = ranges.step_ptr[k], end = ranges.step_ptr[k + 1];
  const int first_range = begin / size, last_range = (end - 1) / size;
  OffsetSteps steps;
  steps.range = range - first_range;
  steps.ranges = last_range - first_range + 1;
  steps.first = begin - first_range * size;
  steps.last = end - last_range * size;
  steps.begin = range == first_range ? steps.first : 0;
  steps.end = range == last_range ? steps.last : size;
  return steps;
}

// Walks through the steps of one range. All its offsets have pairs.
class RangeSteps {
 public:
  __device__ RangeSteps(const StepRanges& ranges, int range, int step_pairs)
      : ranges_(ranges), range_(range), step_pairs_(step_pairs) {
    const int first = range * ranges.range_steps;
    left_ = min(first + ranges.range_steps, ranges.step_ptr[ranges.num_offsets]) - first;
    Enter(OffsetOf(ranges, first));
  }

  __device__ bool done() const { return left_ == 0; }
  // Only before the end:
  __device__ int offset() const { return offset_; }
  __device__ int64_t first_pair() const {
    return ranges_.pair_ptr[offset_] + int64_t{offset_steps_.StepAt(time_)} * step_pairs_;
  }
  // At most step_pairs; fewer in the last step of an offset.
  __device__ int pairs() const {
    return static_cast<int>(
        min(ranges_.pair_ptr[offset_ + 1] - first_pair(), int64_t{step_pairs_}));
  }
  // Passes this many steps. Stays at the end.
  __device__ void Advance(int steps) {
    left_ = max(left_ - steps, 0);
    time_ += steps;
    while (left_ > 0 && time_ >= offset_steps_.end) {
      const int more = time_ - offset_steps_.end;
      Enter(offset_ + 1);
      time_ += more;
    }
  }

 private:
  // Goes to the first step at offset k, or at the next one that has pairs.
  __device__ void Enter(int k) {
    while (ranges_.step_ptr[k] == ranges_.step_ptr[k + 1]) ++k;
    offset_ = k;
    offset_steps_ = StepsOf(ranges_, k, range_);
    time_ = offset_steps_.begin;
  }

  const StepRanges& ranges_;
  int range_, step_pairs_;
  int left_;  // steps of the range that are not passed
  int offset_ = 0;
  OffsetSteps offset_steps_ = {};
  int time_ = 0;
};

}  // namespace range_sums
}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_WEIGHT_GRADIENT_STEPS_CUH_
