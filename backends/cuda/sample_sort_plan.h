// SPDX-License-Identifier: Apache-2.0
// How sample_sort.h cuts its keys into buckets. Plain arithmetic, for the host and the device.
#ifndef VOXCONV_BACKENDS_CUDA_SAMPLE_SORT_PLAN_H_
#define VOXCONV_BACKENDS_CUDA_SAMPLE_SORT_PLAN_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "voxconv/core/integer.h"

namespace voxconv {

struct SampleSortPlan {
  static constexpr int64_t kMaxSize = 1 << 18;
  static constexpr int kMaxBuckets = 1024;
  // What a block sorts in shared memory. A bucket that grows larger is sorted in global memory.
  static constexpr int kCapacity = 2048;
  static constexpr int kMeanBucket = 320;
  static constexpr int kSamples = 4;  // of a bucket

  // A plan for 1 <= size <= kMaxSize keys, of which the low `bits` count.
  static constexpr SampleSortPlan For(int64_t size, int bits, int mean = kMeanBucket,
                                      int oversampling = kSamples) {
    SampleSortPlan plan;
    plan.size = static_cast<int32_t>(size);
    plan.bits = bits;
    plan.index_bits = std::max(1, static_cast<int>(std::bit_width(uint64_t(size - 1))));
    plan.oversampling = oversampling;
    if (size <= kCapacity) return plan;
    plan.buckets = static_cast<int>(std::min<int64_t>(kMaxBuckets, CeilDiv(size, mean)));
    plan.stride = (static_cast<uint64_t>(size) << 32) / plan.samples();
    return plan;
  }

  constexpr int samples() const { return buckets * oversampling; }
  // Whether a key's bits and its index fit in 64 bits.
  constexpr bool narrow() const { return bits + index_bits <= 64; }

  // The index of sample `i` < samples(): one of every range of `stride` keys, scattered, so that no
  // period of the input meets them. They ascend.
  constexpr int32_t Sample(int i) const {
    const auto begin = static_cast<uint32_t>(i * stride >> 32);
    const auto end = static_cast<uint32_t>((i + 1) * stride >> 32);
    uint32_t hash = static_cast<uint32_t>(i) * 0x9E3779B1u;
    hash = (hash ^ hash >> 15) * 0x85EBCA77u;
    hash = (hash ^ hash >> 13) * 0xC2B2AE3Du;
    return static_cast<int32_t>(begin + ((hash >> 16) * (end - begin) >> 16));
  }

  int32_t size = 0;
  int bits = 0, index_bits = 1;
  int buckets = 1;
  int oversampling = kSamples;  // samples of a bucket
  uint64_t stride = 0;          // keys of a sample, in 2^-32
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_SAMPLE_SORT_PLAN_H_
