// SPDX-License-Identifier: Apache-2.0
// The hash table of TorchSparse 1.4 and 2.0 (torchsparse/backend/hashmap/hashmap_cuda.cu and
// others/query_cuda.cu of v2.0.0): cuckoo hashing in two levels. A hash of 60 bits stands for a
// coordinate. Its remainder names a bucket of 512 entries. Each bucket is a cuckoo table of its own
// with three functions, each of which has 512 slots.
//
// Where we depart from the engine:
// - Two coordinates may have one hash. The engine takes them for the same voxel. We compare the
//   coordinates of every hit.
// - A full bucket loses entries in the engine. We double the number of buckets.
// - The engine's functions are random. Ours follow from the number of the attempt.
#ifndef VOXCONV_MAPPING_HASH_TORCHSPARSE1_TABLE_H_
#define VOXCONV_MAPPING_HASH_TORCHSPARSE1_TABLE_H_

#include <algorithm>
#include <bit>
#include <cstdint>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/key_mix.h"

namespace voxconv::torchsparse1 {

inline constexpr int kBucket = 512;  // entries of a bucket, and slots of a function in it
inline constexpr int kFunctions = 3;
inline constexpr int kMostAttempts = 100;  // to place all entries, with functions of their own
inline constexpr int kMostDoublings = 4;

struct Function {
  uint32_t flip = 0;
  int shift = 0;

  constexpr uint32_t SlotOf(uint64_t hash) const {
    return static_cast<uint32_t>((hash ^ flip) >> shift) % kBucket;
  }
};

struct Functions {
  Function function[kFunctions];
};

// The sizes of a table of `rows` rows whose number of buckets was doubled `doublings` times.
struct Sizes {
  int64_t buckets;
  // Entries that may have to leave their slots until one finds a place.
  int most_evictions;

  static constexpr Sizes Of(int64_t rows, int doublings) {
    const auto power = static_cast<int64_t>(std::bit_ceil(static_cast<uint64_t>(rows)));
    const int64_t slots = std::max<int64_t>((rows < 2048 ? 4 : 2) * power, kBucket) << doublings;
    const int log2 = std::max(1, std::countr_zero(static_cast<uint64_t>(power)));
    return {slots / kBucket, kFunctions * 8 * log2};
  }
  constexpr int64_t entries() const { return buckets * kBucket; }
  constexpr int64_t slots() const { return kFunctions * entries(); }
};

// The functions of attempt number `attempt`. Their shifts leave out the bits that name the bucket,
// which are the same for all of its entries.
constexpr Functions FunctionsOf(int attempt, int64_t buckets) {
  const int bucket_bits = std::countr_zero(static_cast<uint64_t>(buckets));
  constexpr int kHashBits = 62, kSlotBits = 9;
  const int choices = std::max(1, kHashBits - bucket_bits - kSlotBits + 1);
  Functions functions;
  for (int f = 0; f < kFunctions; ++f) {
    const uint64_t random = MixKey(static_cast<uint64_t>(attempt) * kFunctions + f + 1);
    functions.function[f] = {static_cast<uint32_t>(random >> 33),
                             bucket_bits + static_cast<int>((random & 0xffff) % choices)};
  }
  return functions;
}

inline absl::Status NoPlace(int64_t rows) {
  return absl::ResourceExhaustedError(
      absl::StrCat("hash: variant=torchsparse1 found no place for ", rows,
                   " rows; TorchSparse's hash puts too many of them into one bucket of ", kBucket));
}

}  // namespace voxconv::torchsparse1

#endif  // VOXCONV_MAPPING_HASH_TORCHSPARSE1_TABLE_H_
