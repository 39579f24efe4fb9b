// SPDX-License-Identifier: Apache-2.0
// The part of the construction on the device that finds offsets for buckets of two voxels and more.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_PSH_PLACE_CUDA_H_
#define VOXCONV_MAPPING_PERFECT_HASH_PSH_PLACE_CUDA_H_

#include <cstdint>

#include "absl/status/status.h"
#include "voxconv/core/backend.h"
#include "voxconv/mapping/perfect_hash/psh_view.h"

namespace voxconv {

// Buckets are told apart by size up to here. Larger ones are one class.
inline constexpr int kPshClasses = 64;
// Of PshBuckets::phi, while a bucket looks for an offset.
inline constexpr uint32_t kNoPhi = UINT32_MAX;

struct PshMember {
  uint32_t h0;  // packed as an offset
  int32_t row;
};

// Numbers that kernels count in. They start at 0.
struct PshCounts {
  uint32_t members = 0;  // entries of `members` that buckets have taken
  uint32_t failed_samples = 0;
  uint32_t in_class[kPshClasses] = {};  // buckets of each size
  uint32_t voxels[kPshClasses] = {};    // their voxels
  uint32_t listed[kPshClasses] = {};    // how many of them are in `order`
  // What round i hands to round i + 1, at (i + 1) % 3: the buckets that wait in the high word and
  // their voxels in the low one, and the size of the largest.
  unsigned long long waiting[3] = {};
  uint32_t largest[3] = {};
};

// The bits of free slots: slot (x, y, z) of a sample is free if bits z and z + m_bar of its line
// (x, y) are set. 32 offsets that follow each other along z are thus tested with two words.
struct PshFreeBits {
  int64_t first_word = 0;
  int32_t words_per_line = 0;

  static constexpr int32_t WordsPerLine(int32_t m_bar) { return (2 * m_bar + 31) / 32 + 1; }
};

// All in device memory. A bucket is an h1 of a sample. Its number is its entry of Phi.
struct PshBuckets {
  const PshSample* samples;
  const PshFreeBits* bits;  // [samples]
  int num_samples;
  int num_filled_samples;  // with voxels
  int64_t num_slots;
  int64_t num_voxels;
  uint32_t num_buckets;         // below 2^31
  const uint32_t* size;         // [buckets]
  const uint32_t* begin;        // [buckets]
  const PshMember* members;     // [voxels], by bucket
  const int32_t* batch_of_row;  // the batches of rows, kBatchStride apart
  const uint32_t* order;        // buckets of two voxels and more, the largest first
  uint32_t* lists[2];           // room for as many buckets each
  uint32_t* cursor;             // [buckets], 0 at first
  PshCounts* counts;
  uint32_t* free_bits;  // all set at first
  // The results. `h` and `failed` are -1 and 0 at first.
  int32_t* h;
  uint32_t* phi;
  int32_t* failed;  // [samples]

  static constexpr int kBatchStride = sizeof(Coordinate) / sizeof(int32_t);

  constexpr int SampleOf(int32_t row) const {
    return num_samples == 1 ? 0 : batch_of_row[int64_t{row} * kBatchStride];
  }
};

// Finds offsets for the buckets of two voxels and more, and enters their rows in `h`. Sets `failed`
// of each sample with a bucket that has no offset. The result is deterministic. Queues one
// kernel, which must fit on the device as a whole. Does not synchronise the stream.
absl::Status PlaceBuckets(const PshBuckets& buckets, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_PSH_PLACE_CUDA_H_
