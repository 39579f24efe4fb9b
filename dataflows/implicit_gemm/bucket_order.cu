// SPDX-License-Identifier: Apache-2.0
// Orders of output rows with few distinct keys: one stable counting sort.
#include <algorithm>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/dataflows/implicit_gemm/bucket_order.h"

namespace voxconv {
namespace {

constexpr int kThreads = 512;
constexpr int kWarps = kThreads / 32;
static_assert(1 << kMaxShortMaskBits <= kThreads);
constexpr unsigned kAllLanes = ~0u;
// Blocks of the counting sort: each sums up what all others have counted, so not many more than
// keep the device busy.
constexpr int64_t kMaxBlocks = 132;

struct Masks {
  const uint32_t* words;  // [rows, num_words]
  int64_t rows;
  int num_words;
  int num_bits;
};

// Entries of shared memory for a number to each offset, in whole words of the masks.
__host__ __device__ constexpr int OffsetRoom(int num_bits) { return (num_bits + 31) / 32 * 32; }

// Bit l of lane k's result: bit k of lane l's.
__device__ uint32_t Transpose(uint32_t bits) {
  constexpr uint32_t kLower[] = {0x55555555, 0x33333333, 0x0F0F0F0F, 0x00FF00FF, 0x0000FFFF};
  const int lane = threadIdx.x % 32;
#pragma unroll
  for (int i = 4; i >= 0; --i) {
    const int step = 1 << i;
    const uint32_t other = __shfl_xor_sync(kAllLanes, bits, step);
    bits = (lane & step) != 0 ? (bits & ~kLower[i]) | (other >> step & kLower[i])
                              : (bits & kLower[i]) | (other << step & ~kLower[i]);
  }
  return bits;
}

// How many lanes come before this one: those with a larger count and, of equals, lower ones.
__device__ int RankOfLane(int count) {
  const int lane = threadIdx.x % 32;
  int before = 0;
#pragma unroll
  for (int other = 0; other < 32; ++other) {
    const int its = __shfl_sync(kAllLanes, count, other);
    before += static_cast<int>(its > count || (its == count && other < lane));
  }
  return before;
}

// Sampled rows of a block's thread.
constexpr int kRounds = kMaxRankedRows / kThreads;
static_assert(kRounds * kThreads == kMaxRankedRows);

// Adds up in counts[k] how many sampled rows have offset k of mask word `word`. columns[r], lane k:
// which of 32 sampled rows do. Called by all threads of a block.
__device__ void CountOffsets(const Masks& masks, int word, int32_t* counts,
                             uint32_t (&columns)[kRounds]) {
  const int64_t sampled = min(masks.rows, kMaxRankedRows);
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    const int64_t i = r * kThreads + threadIdx.x;
    columns[r] = i < sampled ? masks.words[RankedRow(i, masks.rows) * masks.num_words + word] : 0;
  }
  int32_t count = 0;
#pragma unroll
  for (int r = 0; r < kRounds; ++r) {
    columns[r] = Transpose(columns[r]);
    count += __popc(columns[r]);
  }
  atomicAdd(counts + word * 32 + threadIdx.x % 32, count);
}

// What a row's key is, by three rules. Each has what a block knows of the rows: a Shared in shared
// memory, and Ints(num_bits) entries behind `ints`, there too if they fit. Every block finds it for
// itself, which takes less than a kernel before that the others wait for. All threads of a block
// construct the rule, and meet while they do.

// The key of mask_order.h for masks of one word.
class PairedKeys {
 public:
  struct Shared {
    int32_t counts[32];    // by offset: sampled rows
    int32_t place[32];     // by offset
    int32_t by_place[32];  // offset
    // By places: of the rarest offset, then of the other.
    int32_t beside[32][32];  // sampled rows
    uint8_t rank[32][32];    // of the second rarest offset
  };
  static constexpr int Ints(int) { return 0; }

  __device__ PairedKeys(const Masks& masks, int32_t*, Shared& shared)
      : masks_(masks), shared_(shared) {
    if (threadIdx.x < 32) shared_.counts[threadIdx.x] = 0;
    for (int i = threadIdx.x; i < 32 * 32; i += kThreads) shared_.beside[i / 32][i % 32] = 0;
    __syncthreads();
    uint32_t columns[kRounds];
    CountOffsets(masks, 0, shared_.counts, columns);
    __syncthreads();
    RankPlaces();
    RankSecond(columns);
  }

  __device__ uint32_t KeyOfRow(int64_t row) const {
    uint32_t mask = masks_.words[row], places = 0;
    for (; mask != 0; mask &= mask - 1) {
      places |= 1u << shared_.place[__ffs(static_cast<int>(mask)) - 1];
    }
    if (places == 0) return RarestKey(-1, -1);
    const int rarest = 31 - __clz(static_cast<int>(places));
    int second = -1;
    for (places ^= 1u << rarest; places != 0; places &= places - 1) {
      second = max(second, int{shared_.rank[rarest][__ffs(static_cast<int>(places)) - 1]});
    }
    return RarestKey(rarest, second);
  }

 private:
  __device__ void RankPlaces() {
    if (threadIdx.x < 32) {
      const int lane = threadIdx.x;
      const int place = RankOfLane(lane < masks_.num_bits ? shared_.counts[lane] : -1);
      shared_.place[lane] = place;
      shared_.by_place[place] = lane;
    }
    __syncthreads();
  }

  __device__ void RankSecond(const uint32_t (&columns)[kRounds]) {
    const int lane = threadIdx.x % 32, offset = shared_.by_place[lane];
    int32_t beside[32] = {};  // rows with place `lane` whose rarest offset has place p
#pragma unroll
    for (int r = 0; r < kRounds; ++r) {
      const uint32_t mine = __shfl_sync(kAllLanes, columns[r], offset);
      uint32_t rest = kAllLanes;  // rows whose rarest offset has not been found
#pragma unroll
      for (int p = 31; p > 0; --p) {
        const uint32_t rows = __shfl_sync(kAllLanes, mine, p);
        beside[p] += __popc(mine & rows & rest);
        rest &= ~rows;
      }
    }
#pragma unroll
    for (int p = 1; p < 32; ++p) {
      if (lane < p) atomicAdd(&shared_.beside[p][lane], beside[p]);
    }
    __syncthreads();
    for (int p = threadIdx.x / 32; p < 32; p += kWarps) {
      const int rank = RankOfLane(lane < p ? shared_.beside[p][lane] : -1);
      shared_.rank[p][lane] = static_cast<uint8_t>(rank);
    }
    __syncthreads();
  }

  const Masks& masks_;
  Shared& shared_;
};

// The same for masks of several words.
class PlaceKeys {
 public:
  struct Shared {};
  static constexpr int Ints(int num_bits) { return 2 * OffsetRoom(num_bits); }

  __device__ PlaceKeys(const Masks& masks, int32_t* ints, Shared&)
      : masks_(masks), place_(ints + OffsetRoom(masks.num_bits)) {
    int32_t* const counts = ints;
    for (int k = threadIdx.x; k < OffsetRoom(masks.num_bits); k += kThreads) counts[k] = 0;
    __syncthreads();
    uint32_t columns[kRounds];
    for (int word = 0; word < masks.num_words; ++word) CountOffsets(masks, word, counts, columns);
    __syncthreads();
    for (int k = threadIdx.x; k < masks.num_bits; k += kThreads) {
      int32_t before = 0;
      for (int j = 0; j < masks.num_bits; ++j) {
        before += static_cast<int32_t>(counts[j] > counts[k] || (counts[j] == counts[k] && j < k));
      }
      place_[k] = before;
    }
    __syncthreads();
  }

  __device__ uint32_t KeyOfRow(int64_t row) const {
    int32_t rarest = -1, second = -1;
    for (int word = 0; word < masks_.num_words; ++word) {
      uint32_t rest = masks_.words[row * masks_.num_words + word];
      for (; rest != 0; rest &= rest - 1) {
        const int32_t place = place_[word * 32 + __ffs(static_cast<int>(rest)) - 1];
        if (place > rarest) {
          second = rarest;
          rarest = place;
        } else if (place > second) {
          second = place;
        }
      }
    }
    return RarestKey(rarest, second);
  }

 private:
  const Masks& masks_;
  int32_t* place_;  // [OffsetRoom]
};

// The mask itself, of one word.
class MaskKeys {
 public:
  struct Shared {};
  static constexpr int Ints(int) { return 0; }

  __device__ MaskKeys(const Masks& masks, int32_t*, Shared&) : masks_(masks) { __syncthreads(); }
  __device__ uint32_t KeyOfRow(int64_t row) const { return masks_.words[row]; }

 private:
  const Masks& masks_;
};

// keys[row], and where `histograms` is given, [blocks, buckets]: rows of each block with each key.
// Block b has rows [b * block_rows, (b + 1) * ...). `large`: [blocks, Ints(num_bits)] for the rule
// where kLarge, or else nothing.
template <typename Key, typename Rule, bool kLarge>
__global__ void __launch_bounds__(kThreads)
    MakeKeys(Masks masks, int64_t block_rows, int buckets, Key* keys, int32_t* histograms,
             int32_t* large) {
  extern __shared__ int32_t histogram[];
  __shared__ typename Rule::Shared shared;
  for (int b = threadIdx.x; b < buckets; b += kThreads) histogram[b] = 0;
  int32_t* const ints =
      kLarge ? large + int64_t{blockIdx.x} * Rule::Ints(masks.num_bits) : histogram + buckets;
  const Rule rule(masks, ints, shared);
  const int64_t first = blockIdx.x * block_rows;
  const int64_t last = min(first + block_rows, masks.rows);
  for (int64_t row = first + threadIdx.x; row < last; row += kThreads) {
    const uint32_t key = rule.KeyOfRow(row);
    keys[row] = static_cast<Key>(key);
    if (histograms != nullptr) atomicAdd(histogram + key, 1);
  }
  if (histograms == nullptr) return;
  __syncthreads();
  for (int b = threadIdx.x; b < buckets; b += kThreads) {
    histograms[int64_t{blockIdx.x} * buckets + b] = histogram[b];
  }
}

// starts[b]: where this block's rows with key b begin in the order.
__device__ void FindStarts(const int32_t* histograms, int buckets, int32_t* starts) {
  __shared__ int32_t warp_sums[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  int32_t before = 0, total = 0;  // rows with this thread's key: in earlier blocks, in all
  if (threadIdx.x < buckets) {
#pragma unroll 8
    for (int block = 0; block < gridDim.x; ++block) {
      const int32_t count = histograms[int64_t{block} * buckets + threadIdx.x];
      total += count;
      before += block < blockIdx.x ? count : 0;
    }
  }
  int32_t sum = total;  // of this key and those before it in the warp
  for (int step = 1; step < 32; step *= 2) {
    const int32_t other = __shfl_up_sync(kAllLanes, sum, step);
    if (lane >= step) sum += other;
  }
  if (lane == 31) warp_sums[warp] = sum;
  __syncthreads();
  for (int w = 0; w < warp; ++w) before += warp_sums[w];
  if (threadIdx.x < buckets) starts[threadIdx.x] = before + sum - total;
  __syncthreads();
}

// Writes the rows in order of their keys, stable. Shared memory: starts [buckets], then [kWarps,
// buckets] counts of each warp.
__global__ void __launch_bounds__(kThreads)
    ScatterRows(const uint16_t* keys, int64_t rows, int64_t block_rows, const int32_t* histograms,
                int buckets, int32_t* order) {
  extern __shared__ int32_t shared[];
  int32_t* starts = shared;
  uint16_t* warp_counts = reinterpret_cast<uint16_t*>(shared + buckets);
  FindStarts(histograms, buckets, starts);
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  const int64_t first = blockIdx.x * block_rows;
  const int64_t last = min(first + block_rows, rows);
  for (int64_t tile = first; tile < last; tile += kThreads) {
    for (int i = threadIdx.x; i < kWarps * buckets; i += kThreads) warp_counts[i] = 0;
    __syncthreads();
    const int64_t row = tile + threadIdx.x;
    const bool valid = row < last;
    const unsigned key = valid ? keys[row] : 0xFFFFu;
    const unsigned peers = __match_any_sync(kAllLanes, key);
    const int rank = __popc(peers & ((1u << lane) - 1));
    if (valid && rank == 0) warp_counts[warp * buckets + key] = __popc(peers);
    int32_t tile_count = 0;  // of this thread's key
    __syncthreads();
    if (threadIdx.x < buckets) {  // counts become the warps' offsets from the block's start
      int32_t sum = 0;
      for (int w = 0; w < kWarps; ++w) {
        const int32_t count = warp_counts[w * buckets + threadIdx.x];
        warp_counts[w * buckets + threadIdx.x] = static_cast<uint16_t>(sum);
        sum += count;
      }
      tile_count = sum;
    }
    __syncthreads();
    if (valid) {
      order[starts[key] + warp_counts[warp * buckets + key] + rank] = static_cast<int32_t>(row);
    }
    __syncthreads();
    if (threadIdx.x < buckets) starts[threadIdx.x] += tile_count;
  }
}

// Rows of a block, where there are at most kMaxBlocks.
int64_t BlockRows(int64_t rows) { return CeilDiv(CeilDiv(rows, kMaxBlocks), kThreads) * kThreads; }

// The counting sort: keys, then rows.
template <typename Rule>
absl::Status SortBuckets(const Masks& masks, int buckets, int32_t* order,
                         const ExecutionContext& context) {
  const int64_t block_rows = BlockRows(masks.rows);
  const int64_t blocks = CeilDiv(masks.rows, block_rows);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint16_t> keys, AllocateArray<uint16_t>(masks.rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> histograms,
                           AllocateArray<int32_t>(blocks * buckets, context));
  const dim3 grid(static_cast<unsigned>(blocks));
  const auto make_keys = MakeKeys<uint16_t, Rule, false>;
  VOXCONV_LAUNCH(
      make_keys, grid, kThreads, (buckets + Rule::Ints(masks.num_bits)) * sizeof(int32_t), context,
      masks, block_rows, buckets, keys.data(), histograms.data(), static_cast<int32_t*>(nullptr));
  VOXCONV_LAUNCH(ScatterRows, grid, kThreads,
                 buckets * sizeof(int32_t) + kWarps * buckets * sizeof(uint16_t), context,
                 keys.data(), masks.rows, block_rows, histograms.data(), buckets, order);
  return absl::OkStatus();
}

// By a radix sort: more buckets than a block has threads.
template <typename Rule>
absl::Status SortKeys(const Masks& masks, int64_t buckets, int32_t* order,
                      const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> keys, AllocateArray<uint32_t>(masks.rows, context));
  const int64_t block_rows = BlockRows(masks.rows);
  const dim3 grid(static_cast<unsigned>(CeilDiv(masks.rows, block_rows)));
  const int64_t ints = Rule::Ints(masks.num_bits), bytes = ints * int64_t{sizeof(int32_t)};
  // The largest kernels have too many offsets for shared memory, of which Shared is a part.
  const bool large =
      bytes + int64_t{sizeof(typename Rule::Shared)} > AsCuda(context).max_shared_memory();
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> memory,
                           AllocateArray<int32_t>(large ? grid.x * ints : 0, context));
  const auto make_keys = large ? MakeKeys<uint32_t, Rule, true> : MakeKeys<uint32_t, Rule, false>;
  VOXCONV_LAUNCH(make_keys, grid, kThreads, large ? 0 : bytes, context, masks, block_rows, 0,
                 keys.data(), static_cast<int32_t*>(nullptr), memory.data());
  return SortByKey(keys.data(), /*sorted_keys=*/nullptr, /*values=*/nullptr, order, masks.rows,
                   BitsFor(buckets), context);
}

}  // namespace

absl::Status OrderByRarest(const uint32_t* words, int64_t rows, int num_words, int num_bits,
                           int32_t* order, const ExecutionContext& context) {
  if (rows == 0) return absl::OkStatus();
  // A split may leave the last word empty that a longer one needs; ranks take all words to be used.
  if (num_words > 1) num_bits = std::max(num_bits, (num_words - 1) * 32 + 1);
  const Masks masks{words, rows, num_words, num_bits};
  const int64_t buckets = NumRarestKeys(num_bits);
  if (num_words > 1) return SortKeys<PlaceKeys>(masks, buckets, order, context);
  if (buckets > kThreads) return SortKeys<PairedKeys>(masks, buckets, order, context);
  return SortBuckets<PairedKeys>(masks, static_cast<int>(buckets), order, context);
}

absl::Status OrderByShortMask(const uint32_t* words, int64_t rows, int num_bits, int32_t* order,
                              const ExecutionContext& context) {
  VOXCONV_CHECK(num_bits <= kMaxShortMaskBits);
  if (rows == 0) return absl::OkStatus();
  return SortBuckets<MaskKeys>({words, rows, 1, num_bits}, 1 << num_bits, order, context);
}

}  // namespace voxconv
