// SPDX-License-Identifier: Apache-2.0
// The hash map of Open3D on CUDA, its slab back end (0.16,
// cpp/open3d/core/hashmap/CUDA/SlabHashBackendImpl.h and SlabHashBackend.h; Ashkiani et al., A
// dynamic hash table for the GPU, 2018). A bucket is a chain of slabs of 32 words. 31 words are
// rows of a buffer of keys, and the last leads to the next slab. There are twice as many buckets as
// keys, and the hash is FNV-1a over the key's integers. A warp works on one key after the other:
// all lanes read a slab together, and each compares the key that its word leads to.
//
// Open3D takes further slabs from a pool with bitmaps, and copies keys to a buffer of its own. Here
// slabs are taken one after the other, and the coordinates of the set are the buffer.
#include <utility>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/lookup_table.cuh"

namespace voxconv {
namespace {

constexpr int kThreads = 128;  // Open3D's
constexpr int kSlab = 32;      // words
constexpr int kNextLane = kSlab - 1;
constexpr unsigned kAllLanes = 0xffffffffu;
constexpr uint32_t kEmpty = 0xffffffffu;  // no row, no slab
constexpr uint32_t kBusy = 0xfffffffeu;   // a warp is about to append a slab

struct Buckets {
  uint64_t count;       // slabs [0, count) are the first ones; the pool follows
  uint32_t* words;      // [slabs, kSlab]
  uint32_t* num_taken;  // of the pool

  __device__ uint64_t BucketOf(const Coordinate& c) const {
    uint64_t hash = 14695981039346656037u;
    for (const int32_t value : {c.b, c.x, c.y, c.z}) {
      hash ^= static_cast<uint64_t>(static_cast<int64_t>(value));
      hash *= 1099511628211u;
    }
    return hash % count;
  }
};

__device__ Coordinate Broadcast(const Coordinate& c, int lane) {
  return {__shfl_sync(kAllLanes, c.b, lane), __shfl_sync(kAllLanes, c.x, lane),
          __shfl_sync(kAllLanes, c.y, lane), __shfl_sync(kAllLanes, c.z, lane)};
}

// The lane whose word leads to `key`, or -1. All lanes call it with their words of one slab.
__device__ int LaneOfKey(const InterleavedRows& keys, const Coordinate& key, uint32_t word) {
  const int lane = static_cast<int>(threadIdx.x) % kSlab;
  bool equal = false;
  if (lane != kNextLane && word != kEmpty) {
    const Coordinate c = LoadRow(keys, word);
    equal = c.b == key.b && c.x == key.x && c.y == key.y && c.z == key.z;
  }
  return __ffs(static_cast<int>(__ballot_sync(kAllLanes, equal))) - 1;
}

struct Lookup {
  static constexpr bool kWholeWarp = true;
  Buckets buckets;
  InterleavedRows keys;

  __device__ int32_t operator()(const Coordinate& position, uint64_t key) const {
    const int lane = static_cast<int>(threadIdx.x) % kSlab;
    const uint64_t own_bucket = key == kEmptyKey ? 0 : buckets.BucketOf(position);
    int32_t result = -1;
    for (unsigned queue = __ballot_sync(kAllLanes, key != kEmptyKey); queue != 0;
         queue &= queue - 1) {
      const int source = __ffs(static_cast<int>(queue)) - 1;
      const Coordinate sought = Broadcast(position, source);
      uint64_t slab = __shfl_sync(kAllLanes, own_bucket, source);
      int32_t found = -1;
      while (true) {
        const uint32_t word = __ldg(buckets.words + slab * kSlab + lane);
        const int at = LaneOfKey(keys, sought, word);
        if (at >= 0) {
          found = static_cast<int32_t>(__shfl_sync(kAllLanes, word, at));
          break;
        }
        const uint32_t next = __shfl_sync(kAllLanes, word, kNextLane);
        if (next == kEmpty) break;
        slab = next;
      }
      if (lane == source) result = found;
    }
    return result;
  }
};

// The slab after a full one, appended if need be. One lane calls it.
__device__ uint32_t Following(const Buckets& buckets, uint64_t slab) {
  uint32_t* const word = buckets.words + slab * kSlab + kNextLane;
  while (true) {
    const uint32_t next = atomicCAS(word, kEmpty, kBusy);
    if (next == kEmpty) {
      const auto taken = static_cast<uint32_t>(buckets.count) + atomicAdd(buckets.num_taken, 1u);
      atomicExch(word, taken);
      return taken;
    }
    if (next != kBusy) return next;
  }
}

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const InterleavedRows keys, int64_t size, Buckets buckets) {
  const int64_t row = GlobalThread();
  const int lane = static_cast<int>(threadIdx.x) % kSlab;
  const bool active = row < size;
  const Coordinate own = active ? LoadRow(keys, row) : Coordinate{};
  const uint64_t own_bucket = active ? buckets.BucketOf(own) : 0;
  for (unsigned queue = __ballot_sync(kAllLanes, active); queue != 0; queue &= queue - 1) {
    const int source = __ffs(static_cast<int>(queue)) - 1;
    const Coordinate key = Broadcast(own, source);
    uint64_t slab = __shfl_sync(kAllLanes, own_bucket, source);
    for (bool inserted = false; !inserted;) {
      uint32_t* const words = buckets.words + slab * kSlab;
      const uint32_t word = *const_cast<volatile uint32_t*>(words + lane);
      // Keys are different here. Open3D compares them as well, and keeps the first of equals.
      if (LaneOfKey(keys, key, word) >= 0) break;
      const unsigned empty = __ballot_sync(kAllLanes, lane != kNextLane && word == kEmpty);
      if (empty != 0) {
        bool won = false;
        if (lane == source) {
          won = atomicCAS(words + __ffs(static_cast<int>(empty)) - 1, kEmpty,
                          static_cast<uint32_t>(row)) == kEmpty;
        }
        inserted = __ballot_sync(kAllLanes, won) != 0;
        continue;
      }
      uint32_t next = 0;
      if (lane == source) next = Following(buckets, slab);
      slab = __shfl_sync(kAllLanes, next, source);
    }
  }
}

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildOpen3dCuda(const CoordinateSet& inputs,
                                                 const ExecutionContext& context) {
  const int64_t count = 2 * inputs.size() + 1;
  // A slab is taken from the pool where another one is full.
  const int64_t slabs = count + inputs.size() / kNextLane + 1;
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> words,
                           AllocateArray<uint32_t>(slabs * kSlab + 1, context));
  uint32_t* const num_taken = words.data() + slabs * kSlab;
  VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(
      words.data(), 0xff, slabs * kSlab * static_cast<int64_t>(sizeof(uint32_t)), *context.stream));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(num_taken, 0, sizeof(uint32_t), *context.stream));
  const Buckets buckets{static_cast<uint64_t>(count), words.data(), num_taken};
  const Coordinate* const coordinates = inputs.rows().data();
  VOXCONV_LAUNCH(InsertKernel, GridFor(inputs.size(), kThreads), kThreads, 0, context,
                 InterleavedRows{coordinates}, inputs.size(), buckets);
  // The set of the coordinates outlives the index.
  const Lookup lookup{.buckets = buckets, .keys = InterleavedRows{coordinates}};
  return MakeLookupTable(lookup, std::move(words));
}

}  // namespace voxconv
