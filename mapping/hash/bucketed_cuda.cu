// SPDX-License-Identifier: Apache-2.0
// Buckets as chains of slabs, in the way of Open3D's slab back end (Ashkiani et al., A dynamic hash
// table for the GPU, 2018). A slab is eight keys, 64 bytes, which eight lanes read and compare at
// once; a full slab leads to another from a common pool.
#include <cooperative_groups.h>

#include <algorithm>
#include <utility>

#include "absl/numeric/bits.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/key_mix.h"
#include "voxconv/mapping/hash/hash_table_cuda.h"
#include "voxconv/mapping/hash/lookup_table.cuh"

namespace voxconv {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 256;
constexpr int kSlab = 8;  // keys
// Of a slab's `next`: no slab follows (slab 0 is a first slab and follows none); a thread is about
// to append one.
constexpr uint32_t kNone = 0;
constexpr uint32_t kBusy = UINT32_MAX;

struct Slabs {
  uint64_t num_first;        // slabs that chains start with, a power of two; the pool follows
  unsigned long long* keys;  // [slabs, kSlab], filled from the front
  uint32_t* next;            // [slabs]
  uint32_t* num_taken;       // of the pool
  int32_t* rows;             // [slabs, kSlab]

  __device__ uint64_t FirstOf(uint64_t key) const { return MixKey(key) & (num_first - 1); }
};

struct Lookup {
  static constexpr bool kWholeWarp = true;
  Slabs slabs;

  // Eight lanes look up their eight keys one after the other, all on the same one.
  __device__ int32_t operator()(const Coordinate&, uint64_t key) const {
    const auto lanes = cg::tiled_partition<kSlab>(cg::this_thread_block());
    const int lane = static_cast<int>(lanes.thread_rank());
    int32_t result = -1;
    for (int turn = 0; turn < kSlab; ++turn) {
      const uint64_t sought = lanes.shfl(key, turn);
      if (sought == kEmptyKey) continue;
      const int64_t found = FindTogether(lanes, lane, sought);
      if (lane == turn && found >= 0) result = __ldg(slabs.rows + found);
    }
    return result;
  }

  template <typename Lanes>
  __device__ int64_t FindTogether(const Lanes& lanes, int lane, uint64_t sought) const {
    uint64_t slab = slabs.FirstOf(sought);
    while (true) {
      const uint64_t key = __ldg(slabs.keys + slab * kSlab + lane);
      if (const unsigned match = lanes.ballot(key == sought); match != 0) {
        return static_cast<int64_t>(slab) * kSlab + __ffs(static_cast<int>(match)) - 1;
      }
      if (lanes.any(key == kEmptyKey)) return -1;
      slab = __ldg(slabs.next + slab);
      if (slab == kNone) return -1;
    }
  }
};

// The slab after a full one, appended if need be.
__device__ uint64_t Following(const Slabs& slabs, uint64_t slab) {
  while (true) {
    const uint32_t next = atomicCAS(slabs.next + slab, kNone, kBusy);
    if (next == kNone) {
      const auto taken = static_cast<uint32_t>(slabs.num_first) + atomicAdd(slabs.num_taken, 1u);
      atomicExch(slabs.next + slab, taken);
      return taken;
    }
    if (next != kBusy) return next;
  }
}

__global__ void __launch_bounds__(kThreads)
    InsertKernel(const Coordinate* inputs, int64_t size, Slabs slabs) {
  const int64_t row = int64_t{blockIdx.x} * kThreads + threadIdx.x;
  if (row >= size) return;
  const uint64_t key = PackKey(inputs[row]);
  uint64_t slab = slabs.FirstOf(key);
  while (true) {
    for (uint64_t i = slab * kSlab; i < (slab + 1) * kSlab; ++i) {
      // Keys are never removed: what is seen taken stays taken.
      if (*const_cast<const volatile unsigned long long*>(slabs.keys + i) != kEmptyKey) continue;
      if (atomicCAS(slabs.keys + i, kEmptyKey, key) != kEmptyKey) continue;
      slabs.rows[i] = static_cast<int32_t>(row);
      return;
    }
    slab = Following(slabs, slab);
  }
}

}  // namespace

absl::StatusOr<HashTableCudaPtr> BuildBucketedCuda(const CoordinateSet& inputs, double load_factor,
                                                   const ExecutionContext& context) {
  const auto wanted = static_cast<uint64_t>(static_cast<double>(inputs.size()) / load_factor);
  const auto num_first = static_cast<int64_t>(absl::bit_ceil(wanted / kSlab + 1));
  // A slab is taken from the pool where another one is full.
  const int64_t num_slabs = num_first + inputs.size() / kSlab;
  // Keys, next and num_taken: one fill clears them all.
  VOXCONV_ASSIGN_OR_RETURN(
      Array<uint64_t> zeroed,
      AllocateArray<uint64_t>(num_slabs * kSlab + CeilDiv(num_slabs + 1, 2), context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> rows, AllocateArray<int32_t>(num_slabs * kSlab, context));
  static_assert(kEmptyKey == 0 && kNone == 0);
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(zeroed.data(), 0, zeroed.bytes(), *context.stream));
  Slabs slabs{};
  slabs.num_first = static_cast<uint64_t>(num_first);
  slabs.keys = reinterpret_cast<unsigned long long*>(zeroed.data());
  slabs.next = reinterpret_cast<uint32_t*>(zeroed.data() + num_slabs * kSlab);
  slabs.num_taken = slabs.next + num_slabs;
  slabs.rows = rows.data();
  VOXCONV_LAUNCH(InsertKernel, GridFor(inputs.size(), kThreads), kThreads, 0, context,
                 inputs.rows().data(), inputs.size(), slabs);
  return MakeLookupTable(Lookup{.slabs = slabs}, std::move(zeroed), std::move(rows));
}

}  // namespace voxconv
