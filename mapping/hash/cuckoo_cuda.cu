// SPDX-License-Identifier: Apache-2.0
// Two-choice buckets of four slots, as on the CPU: a lookup reads two 32-byte sectors, found or
// not, whatever the fill. All rows move in at once, each by a thread of its own that carries on
// with whatever it evicts (Alcantara et al., Real-time parallel hashing on the GPU, 2009).
//
// While rows move, a slot is its row alone, so that one 32-bit exchange moves it; keys are written
// once all have their places.
#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/key_mix.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/lookup_table.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 256;
constexpr int kSlots = 4;
// As on the CPU, where chains are mostly below 100 steps at the highest load_factor.
constexpr int kMaxEvictions = 2000;
constexpr int kMaxSeeds = 16;
// A bucket is chosen by 32 bits of hash. Still two for each of the most rows there can be.
constexpr int64_t kMaxBuckets = (int64_t{1} << 32) - 1;

// A key's two buckets, both from one hash, of whose 64 bits each takes half.
struct Choices {
  uint64_t seed;
  uint64_t num_buckets;

  struct Pair {
    uint64_t first, second;
  };
  __device__ Pair operator()(uint64_t key) const {
    const uint64_t hash = MixKey(key ^ seed);
    return {(hash >> 32) * num_buckets >> 32, (hash & 0xffffffffu) * num_buckets >> 32};
  }
};

struct Lookup {
  Choices choices;
  const ulonglong2* keys;  // two of them a bucket
  const int32_t* rows;

  __device__ int32_t operator()(const Coordinate&, uint64_t key) const {
    const Choices::Pair choice = choices(key);
    // All four loads at once: most keys are in neither bucket.
    const ulonglong2 a = __ldg(keys + 2 * choice.first), b = __ldg(keys + 2 * choice.first + 1);
    const ulonglong2 c = __ldg(keys + 2 * choice.second), d = __ldg(keys + 2 * choice.second + 1);
    if (const int slot = SlotOf(key, a, b); slot >= 0) {
      return __ldg(rows + choice.first * kSlots + slot);
    }
    if (const int slot = SlotOf(key, c, d); slot >= 0) {
      return __ldg(rows + choice.second * kSlots + slot);
    }
    return -1;
  }

  __device__ static int SlotOf(uint64_t key, const ulonglong2& a, const ulonglong2& b) {
    return a.x == key ? 0 : a.y == key ? 1 : b.x == key ? 2 : b.y == key ? 3 : -1;
  }
};

__device__ bool PutIfFree(int32_t* bucket, int32_t row) {
  for (int i = 0; i < kSlots; ++i) {
    // Slots are never freed: what is seen taken stays taken.
    if (*const_cast<const volatile int32_t*>(bucket + i) >= 0) continue;
    if (atomicCAS(bucket + i, -1, row) < 0) return true;
  }
  return false;
}

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Coordinate* inputs, int64_t size, Choices choices, int32_t* slots,
                 int32_t* failed) {
  const int64_t first = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (first >= size) return;
  auto row = static_cast<int32_t>(first);
  uint64_t key = PackKey(inputs[row]);
  Choices::Pair choice = choices(key);
  if (PutIfFree(slots + choice.first * kSlots, row)) return;
  if (PutIfFree(slots + choice.second * kSlots, row)) return;
  uint64_t bucket = choice.first;
  for (int step = 0; step < kMaxEvictions; ++step) {
    // The victim follows from the key that moves in: a chain that returns does not turn in a
    // circle.
    const int victim = static_cast<int>(MixKey(key + step) >> 62);
    row = atomicExch(slots + bucket * kSlots + victim, row);
    key = PackKey(inputs[row]);
    choice = choices(key);
    bucket = choice.first == bucket ? choice.second : choice.first;
    if (PutIfFree(slots + bucket * kSlots, row)) return;
  }
  *failed = 1;
}

__global__ void __launch_bounds__(kThreads)
    FillKeysKernel(const Coordinate* inputs, const int32_t* rows, int64_t num_slots,
                   uint64_t* keys) {
  const int64_t slot = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (slot >= num_slots) return;
  keys[slot] = rows[slot] < 0 ? kEmptyKey : PackKey(inputs[rows[slot]]);
}

// Whether all rows found a place. Synchronises the stream.
absl::StatusOr<bool> TryInsert(const CoordinateSet& inputs, const Choices& choices,
                               Array<int32_t>& rows, Array<int32_t>& failed,
                               const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(rows.data(), 0xff, rows.bytes(), *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(failed.data(), 0, failed.bytes(), *context.stream));
  VOXCONV_LAUNCH(InsertKernel, GridFor(inputs.size(), kThreads), kThreads, 0, context,
                 inputs.rows().data(), inputs.size(), choices, rows.data(), failed.data());
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<int32_t> result, CopyToHost(failed, context));
  return result[0] == 0;
}

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildCuckooCuda(const CoordinateSet& inputs, double load_factor,
                                                 const ExecutionContext& context) {
  const int64_t num_buckets =
      std::min(static_cast<int64_t>(static_cast<double>(inputs.size()) / load_factor / kSlots) + 1,
               kMaxBuckets);
  const int64_t num_slots = num_buckets * kSlots;
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(num_slots, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(num_slots, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> failed, AllocateArray<int32_t>(1, context));
  for (uint64_t attempt = 0; attempt < kMaxSeeds; ++attempt) {
    const Choices choices{MixKey(attempt), static_cast<uint64_t>(num_buckets)};
    VOXCONV_ASSIGN_OR_RETURN(const bool inserted,
                             TryInsert(inputs, choices, rows, failed, context));
    if (!inserted) continue;
    VOXCONV_LAUNCH(FillKeysKernel, GridFor(num_slots, kThreads), kThreads, 0, context,
                   inputs.rows().data(), rows.data(), num_slots, keys.data());
    const Lookup lookup{choices, reinterpret_cast<const ulonglong2*>(keys.data()), rows.data()};
    return MakeLookupTable(lookup, std::move(keys), std::move(rows));
  }
  return absl::ResourceExhaustedError(
      absl::StrCat("hash: variant=cuckoo found no place for ", inputs.size(), " rows in ",
                   num_slots, " slots with any of ", kMaxSeeds, " seeds; a lower load_factor than ",
                   load_factor, " would help"));
}

}  // namespace voxconv
