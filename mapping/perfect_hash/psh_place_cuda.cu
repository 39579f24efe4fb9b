// SPDX-License-Identifier: Apache-2.0
// Lefebvre and Hoppe's construction in rounds, for many buckets at once, by one kernel whose blocks
// all run together.
//
// In a round every bucket that waits finds an offset under which its voxels meet free slots, and
// claims these. If two buckets claim a slot, the larger one gets it. If their sizes are equal, or
// both are above 62, the one with the lower number gets it. A bucket that gets all its slots is
// placed. The others take their
// claims back and go on in the next round from the offset that they had found. Slots are only
// taken between two searches, so the outcome does not depend on which thread comes first.
//
// The largest buckets start. Smaller ones follow as soon as no bucket waits that is much larger,
// and what waits claims only a part of the free slots: more of them would mostly be in each other's
// way. Buckets of one voxel are no part of this: they fit in any slot, and get those that are left.
#include <cooperative_groups.h>
#include <cooperative_groups/reduce.h>

#include <algorithm>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/mapping/perfect_hash/psh_place_cuda.h"

namespace voxconv {
namespace {

namespace cg = cooperative_groups;

constexpr int kThreads = 512;
constexpr int kBlocksPerMultiprocessor = 2;  // more make a round's barriers slower
constexpr int kLanes = 8;                    // that place a bucket together
// Steps of kLanes * 32 offsets that a bucket searches in a round, so that one that finds nothing
// does not hold up the others.
constexpr int kStepsPerRound = 64;
// Buckets are let in while the voxels of all that wait are at most this percentage of the free
// slots.
constexpr uint64_t kPercentClaimed = 40;
// Buckets of a size are let in only while no waiting bucket has over kMaxLarger voxels more. If
// small buckets filled the table earlier, the large ones would find no offset.
constexpr int kMaxLarger = 2;
// Buckets of up to this size are searched for equal voxels before the first round.
constexpr uint32_t kComparedSize = 64;
// Of `cursor`: no offset was found, or another bucket of the sample has failed.
constexpr uint32_t kExhausted = UINT32_MAX - 1, kDropped = UINT32_MAX;
// A claim is this bit and a rank below it. Rows in `h` lack it, and a free slot has all bits.
constexpr uint32_t kClaim = uint32_t{1} << 31;

using Lanes = cg::thread_block_tile<kLanes, cg::thread_block>;

// A bucket and the lanes that place it.
struct Placer {
  const PshBuckets& all;
  const Lanes& lanes;
  uint32_t bucket;
  uint32_t size;
  const PshMember* members;
  int sample_index;
  const PshSample& sample;

  __device__ Placer(const PshBuckets& all, const Lanes& lanes, uint32_t bucket)
      : all(all),
        lanes(lanes),
        bucket(bucket),
        size(all.size[bucket]),
        members(all.members + all.begin[bucket]),
        sample_index(all.SampleOf(members->row)),
        sample(all.samples[sample_index]) {}

  __device__ uint32_t lane() const { return lanes.thread_rank(); }

  __device__ int64_t SlotOf(uint32_t h0, uint32_t phi) const {
    return sample.SlotOf(h0 >> (2 * kPhiBits), (h0 >> kPhiBits) % kMaxMBar, h0 % kMaxMBar, phi);
  }

  // The low rank wins: that of the larger bucket, then that of the lower number. Where there are
  // too many buckets, fewer sizes are told apart.
  __device__ uint32_t ClaimValue() const {
    const int number_bits = 32 - __clz(static_cast<int>(all.num_buckets));
    const int size_bits = max(0, min(6, 30 - number_bits));
    const uint32_t largest = (1u << size_bits) - 1;
    const uint32_t smaller = largest - min(size, largest);
    return kClaim | smaller << number_bits | bucket;
  }

  __device__ static uint64_t Mix(uint64_t v) {
    v = (v ^ v >> 31) * 0x9e3779b97f4a7c15;
    v = (v ^ v >> 29) * 0xd6e8feb86659fd93;
    return v ^ v >> 32;
  }

  // Where the search of this bucket starts.
  __device__ uint32_t FirstLine() const {
    return static_cast<uint32_t>(__umul64hi(Mix(bucket + 1), sample.m_bar * sample.m_bar));
  }

  // The number of steps of a whole search: offset 0, with which a full block of voxels fits as it
  // lies, then windows of 32 offsets along z.
  __device__ uint32_t NumWindows() const {
    return sample.m_bar * sample.m_bar * ((sample.m_bar + 31) / 32) + 1;
  }

  // Bit i: window `number` has an offset at z + i under which all members meet free slots. `phi` is
  // the window's first offset.
  __device__ uint32_t FreeOffsets(uint32_t number, uint32_t first_line, uint32_t& phi) const {
    const uint32_t m = sample.m_bar;
    uint32_t x = 0, y = 0, z = 0, free = 1;
    if (number > 0) {
      const uint32_t per_line = (m + 31) / 32;
      const uint32_t line = (first_line + (number - 1) / per_line) % (m * m);
      x = line / m;
      y = line % m;
      z = (number - 1) % per_line * 32;
      free = m - z >= 32 ? ~0u : (1u << (m - z)) - 1;
    }
    phi = PackPhi(x, y, z);
    const PshFreeBits& bits = all.bits[sample_index];
    for (uint32_t j = 0; j < size && free != 0; ++j) {
      const uint32_t h0 = members[j].h0;
      const uint32_t line_x = sample.Wrap((h0 >> (2 * kPhiBits)) + x);
      const uint32_t line_y = sample.Wrap((h0 >> kPhiBits) % kMaxMBar + y);
      const uint32_t bit = h0 % kMaxMBar + z;
      const uint32_t* const word = all.free_bits + bits.first_word +
                                   (int64_t{line_x} * m + line_y) * bits.words_per_line + bit / 32;
      free &= __funnelshift_r(word[0], word[1], bit);
    }
    return free;
  }

  // Sets the bucket's offset and cursor. The cursor stays at an offset that was found, because the
  // slots may be free again if the claim to them fails.
  __device__ void Search() const {
    if (all.failed[sample_index] != 0) {
      if (lane() == 0) all.cursor[bucket] = kDropped;
      return;
    }
    const uint32_t first_line = FirstLine(), num_windows = NumWindows();
    uint32_t cursor = all.cursor[bucket], phi = kNoPhi;
    for (int step = 0; step < kStepsPerRound; ++step) {
      uint32_t first_phi = 0, free = 0;
      if (cursor + lane() < num_windows) free = FreeOffsets(cursor + lane(), first_line, first_phi);
      if (const uint32_t found = lanes.ballot(free != 0); found != 0) {
        const int winner = __ffs(static_cast<int>(found)) - 1;
        phi = lanes.shfl(first_phi + __ffs(static_cast<int>(free)) - 1, winner);
        cursor += winner;
        break;
      }
      cursor += kLanes;
      if (cursor >= num_windows) {
        cursor = kExhausted;
        break;
      }
    }
    if (lane() == 0) {
      all.cursor[bucket] = cursor;
      all.phi[bucket] = phi;
    }
    if (phi == kNoPhi) return;
    const uint32_t claim = ClaimValue();
    for (uint32_t j = lane(); j < size; j += kLanes) {
      atomicMin(reinterpret_cast<uint32_t*>(all.h) + SlotOf(members[j].h0, phi), claim);
    }
  }

  __device__ void Fail() const {
    if (lane() == 0 && atomicExch(all.failed + sample_index, 1) == 0) {
      atomicAdd(&all.counts->failed_samples, 1u);
    }
  }

  // Fails if two members agree in h0 and h1: no offset parts them.
  __device__ void Compare() const {
    if (size > kComparedSize) return;
    bool same = false;
    for (uint32_t j = lane(); j < size; j += kLanes) {
      for (uint32_t i = 0; i < j; ++i) same |= members[i].h0 == members[j].h0;
    }
    if (lanes.any(same)) Fail();
  }

  __device__ void TakeSlot(const PshMember& member, uint32_t phi) const {
    const uint32_t m = sample.m_bar;
    const PshFreeBits& bits = all.bits[sample_index];
    const uint32_t x = sample.Wrap((member.h0 >> (2 * kPhiBits)) + (phi >> (2 * kPhiBits)));
    const uint32_t y =
        sample.Wrap((member.h0 >> kPhiBits) % kMaxMBar + (phi >> kPhiBits) % kMaxMBar);
    const uint32_t z = sample.Wrap(member.h0 % kMaxMBar + phi % kMaxMBar);
    uint32_t* const line =
        all.free_bits + bits.first_word + (int64_t{x} * m + y) * bits.words_per_line;
    for (const uint32_t bit : {z, z + m}) atomicAnd(line + bit / 32, ~(1u << bit % 32));
  }

  // Whether the bucket has to wait for the next round. Places it if it got all its slots.
  __device__ bool Settle() const {
    const uint32_t cursor = all.cursor[bucket];
    if (cursor == kDropped) return false;
    if (cursor == kExhausted) {
      Fail();
      return false;
    }
    const uint32_t phi = all.phi[bucket];
    if (phi == kNoPhi) return true;
    uint32_t* const slots = reinterpret_cast<uint32_t*>(all.h);
    const uint32_t claim = ClaimValue();
    // Only this bucket changes a slot that has its claim, and it does so after this.
    bool mine = true;
    for (uint32_t j = lane(); j < size; j += kLanes) {
      mine &= __ldcg(slots + SlotOf(members[j].h0, phi)) == claim;
    }
    if (!lanes.all(mine)) {
      for (uint32_t j = lane(); j < size; j += kLanes) {
        atomicCAS(slots + SlotOf(members[j].h0, phi), claim, UINT32_MAX);
      }
      return true;
    }
    bool twice = false;
    for (uint32_t j = lane(); j < size; j += kLanes) {
      const auto row = static_cast<uint32_t>(members[j].row);
      // A row is there already: two members have the same slot.
      twice |= atomicExch(slots + SlotOf(members[j].h0, phi), row) != claim;
      TakeSlot(members[j], phi);
    }
    if (lanes.any(twice)) Fail();
    return false;
  }
};

// The buckets of a round: those that wait and those that are let in, which follow in `order`.
struct Round {
  const uint32_t* list;
  uint32_t waiting;
  const uint32_t* let_in;
  uint32_t size;

  __device__ uint32_t operator[](uint32_t i) const {
    return i < waiting ? list[i] : let_in[i - waiting];
  }
};

// Appends to the list of the next round. Called by the first lanes of buckets.
__device__ void Wait(const PshBuckets& all, uint32_t round, const Placer& placer) {
  unsigned long long* const waiting = all.counts->waiting + (round + 1) % 3;
  uint32_t* const list = all.lists[(round + 1) % 2];
  const auto together = cg::coalesced_threads();
  const unsigned long long sum =
      cg::reduce(together, 1ULL << 32 | placer.size, cg::plus<unsigned long long>());
  const uint32_t largest = cg::reduce(together, placer.size, cg::greater<uint32_t>());
  unsigned long long before = 0;
  if (together.thread_rank() == 0) {
    before = atomicAdd(waiting, sum);
    atomicMax(all.counts->largest + (round + 1) % 3, largest);
  }
  before = together.shfl(before, 0);
  list[(before >> 32) + together.thread_rank()] = placer.bucket;
}

// How far buckets are let in. All threads keep the same numbers.
class Gate {
 public:
  __device__ explicit Gate(const PshBuckets& all) : all_(all) {}

  __device__ bool open() const { return size_class_ >= 2; }

  // The round after one that leaves `waiting`, of which the largest has `largest` voxels.
  __device__ Round Next(unsigned long long waiting, uint32_t largest, const uint32_t* list) {
    const auto voxels_waiting = static_cast<uint32_t>(waiting);
    const auto num_waiting = static_cast<uint32_t>(waiting >> 32);
    const uint64_t placed = voxels_ - voxels_waiting;
    const uint64_t limit = (static_cast<uint64_t>(all_.num_slots) - placed) * kPercentClaimed / 100;
    const uint32_t first = buckets_;
    uint64_t claimed = voxels_waiting;
    int size_of_largest = static_cast<int>(min(largest, uint32_t{kPshClasses - 1}));
    for (; size_class_ >= 2; --size_class_) {
      const uint32_t voxels = all_.counts->voxels[size_class_];
      if (claimed > 0 && claimed + voxels > limit) break;
      if (size_of_largest > size_class_ + kMaxLarger) break;
      if (voxels > 0) size_of_largest = max(size_of_largest, size_class_);
      claimed += voxels;
      voxels_ += voxels;
      buckets_ += all_.counts->in_class[size_class_];
    }
    return {list, num_waiting, all_.order + first, num_waiting + buckets_ - first};
  }

 private:
  const PshBuckets& all_;
  int size_class_ = kPshClasses - 1;
  uint32_t buckets_ = 0;  // let in so far
  uint64_t voxels_ = 0;   // of these
};

__global__ void __launch_bounds__(kThreads, kBlocksPerMultiprocessor)
    PlaceKernel(const __grid_constant__ PshBuckets all) {
  const cg::grid_group grid = cg::this_grid();
  const Lanes lanes = cg::tiled_partition<kLanes>(cg::this_thread_block());
  const auto first = static_cast<uint32_t>(GlobalThread() / kLanes);
  const uint32_t stride = gridDim.x * (kThreads / kLanes);
  uint32_t num_buckets = 0;
  for (int c = 2; c < kPshClasses; ++c) num_buckets += all.counts->in_class[c];
  for (uint32_t i = first; i < num_buckets; i += stride) Placer(all, lanes, all.order[i]).Compare();
  grid.sync();

  Gate gate(all);
  for (uint32_t number = 0;; ++number) {
    // Written before the last barrier. The counter after the next is that of a round that is over.
    const unsigned long long waiting = all.counts->waiting[number % 3];
    const bool all_failed =
        all.counts->failed_samples == static_cast<uint32_t>(all.num_filled_samples);
    if (all_failed || ((waiting >> 32) == 0 && !gate.open())) break;
    const Round round = gate.Next(waiting, all.counts->largest[number % 3], all.lists[number % 2]);
    if (GlobalThread() == 0) {
      all.counts->waiting[(number + 2) % 3] = 0;
      all.counts->largest[(number + 2) % 3] = 0;
    }
    for (uint32_t i = first; i < round.size; i += stride) Placer(all, lanes, round[i]).Search();
    grid.sync();
    for (uint32_t i = first; i < round.size; i += stride) {
      const Placer placer(all, lanes, round[i]);
      const bool waits = placer.Settle();
      if (waits && placer.lane() == 0) Wait(all, number, placer);
      lanes.sync();
    }
    grid.sync();
  }
}

}  // namespace

absl::Status PlaceBuckets(const PshBuckets& buckets, const ExecutionContext& context) {
  CudaBackend& cuda = AsCuda(context);
  const void* const kernel = reinterpret_cast<const void*>(PlaceKernel);
  VOXCONV_ASSIGN_OR_RETURN(const int resident, ResidentBlocks(kernel, kThreads, 0, context));
  const int64_t room =
      int64_t{cuda.num_multiprocessors()} * std::min(resident, kBlocksPerMultiprocessor);
  // There are at most half as many buckets of two voxels and more as there are voxels.
  const int64_t wanted = CeilDiv(buckets.num_voxels / 2 * kLanes, kThreads);
  const auto blocks =
      static_cast<unsigned>(std::clamp<int64_t>(wanted, 1, std::max<int64_t>(room, 1)));
  cuda.NoteLaunch(*context.stream, kernel);
  if (Counters* counters = context.counters()) ++counters->launches;
  PshBuckets argument = buckets;
  void* arguments[] = {&argument};
  VOXCONV_RETURN_IF_CUDA_ERROR(cudaLaunchCooperativeKernel(kernel, dim3(blocks), dim3(kThreads),
                                                           arguments, 0, CudaStreamOf(context)));
  return absl::OkStatus();
}

}  // namespace voxconv
