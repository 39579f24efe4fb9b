// Orders of output rows with few distinct keys: one stable counting sort.
#include <algorithm>

#include "backends/cuda/bucket_order.h"
#include "backends/cuda/cuda_launch.h"
#include "backends/cuda/device_primitives.h"

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

// Rows with each offset, as every block of CountOffsets has counted: [blocks, offsets]. Adding them
// up where they are needed takes less than setting a sum to zero before.
struct OffsetCounts {
  int32_t* of_block;  // null: nothing is counted
  int blocks;
};

__global__ void __launch_bounds__(kThreads) CountOffsets(Masks masks, OffsetCounts counts) {
  __shared__ int32_t block_counts[32];
  const int lane = threadIdx.x % 32;
  for (int word = 0; word < masks.num_words; ++word) {
    if (threadIdx.x < 32) block_counts[threadIdx.x] = 0;
    __syncthreads();
    int32_t mine = 0;  // rows with bit `lane`
    const int64_t stride = int64_t{gridDim.x} * kThreads;
    const int64_t rounds = (masks.rows + stride - 1) / stride;
    for (int64_t round = 0; round < rounds; ++round) {
      const int64_t row = round * stride + int64_t{blockIdx.x} * kThreads + threadIdx.x;
      const uint32_t mask = row < masks.rows ? masks.words[row * masks.num_words + word] : 0;
#pragma unroll
      for (int bit = 0; bit < 32; ++bit) {
        const int32_t count = __popc(__ballot_sync(kAllLanes, mask >> bit & 1));
        if (lane == bit) mine += count;
      }
    }
    atomicAdd(block_counts + lane, mine);
    __syncthreads();
    const int k = word * 32 + static_cast<int>(threadIdx.x);
    if (threadIdx.x < 32 && k < masks.num_bits) {
      counts.of_block[int64_t{blockIdx.x} * masks.num_bits + k] = block_counts[threadIdx.x];
    }
    __syncthreads();
  }
}

// sums[k]: rows with offset k.
__device__ void SumCounts(const OffsetCounts& counts, int num_bits, int32_t* sums) {
  const int lane = threadIdx.x % 32;
  for (int k = threadIdx.x / 32; k < num_bits; k += kWarps) {
    int32_t sum = 0;
    for (int block = lane; block < counts.blocks; block += 32) {
      sum += counts.of_block[int64_t{block} * num_bits + k];
    }
    for (int step = 16; step > 0; step /= 2) sum += __shfl_xor_sync(kAllLanes, sum, step);
    if (lane == 0) sums[k] = sum;
  }
  __syncthreads();
}

// place[k]: how many offsets are more frequent than k, of equals those before it.
__device__ void RankOffsets(const int32_t* counts, int num_bits, int32_t* place) {
  for (int k = threadIdx.x; k < num_bits; k += blockDim.x) {
    const int32_t mine = counts[k];
    int32_t before = 0;
    for (int j = 0; j < num_bits; ++j) {
      before += static_cast<int32_t>(counts[j] > mine || (counts[j] == mine && j < k));
    }
    place[k] = before;
  }
}

// RarestKey of core/mask_order.h, by the places of all offsets.
__device__ uint32_t KeyOfRow(const Masks& masks, int64_t row, const int32_t* place) {
  int32_t rarest = -1, second = -1;
  for (int word = 0; word < masks.num_words; ++word) {
    for (uint32_t rest = masks.words[row * masks.num_words + word]; rest != 0; rest &= rest - 1) {
      const int32_t p = place[word * 32 + __ffs(static_cast<int>(rest)) - 1];
      if (p > rarest) {
        second = rarest;
        rarest = p;
      } else if (p > second) {
        second = p;
      }
    }
  }
  return RarestKey(rarest, second);
}

// Entries of shared memory for a number to each offset, in whole lines.
__host__ __device__ constexpr int OffsetRoom(int num_bits) { return (num_bits + 31) / 32 * 32; }

// keys[row]; and where `histograms` is given, [blocks, buckets]: rows of each block with each key.
// Without `counts` the key is the mask itself. Block b has rows [b * block_rows, (b + 1) * ...).
template <typename Key>
__global__ void __launch_bounds__(kThreads)
    MakeKeys(Masks masks, OffsetCounts counts, int64_t block_rows, int buckets, Key* keys,
             int32_t* histograms) {
  extern __shared__ int32_t shared[];
  const bool by_rarest = counts.of_block != nullptr;
  int32_t* const sums = shared;
  int32_t* const place = sums + OffsetRoom(masks.num_bits);
  int32_t* const histogram = place + OffsetRoom(masks.num_bits);
  if (by_rarest) {
    SumCounts(counts, masks.num_bits, sums);
    RankOffsets(sums, masks.num_bits, place);
  }
  if (histograms != nullptr) {
    for (int b = threadIdx.x; b < buckets; b += kThreads) histogram[b] = 0;
  }
  __syncthreads();
  const int64_t first = blockIdx.x * block_rows;
  const int64_t last = min(first + block_rows, masks.rows);
  for (int64_t row = first + threadIdx.x; row < last; row += kThreads) {
    const uint32_t key = by_rarest ? KeyOfRow(masks, row, place) : masks.words[row];
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

__global__ void FillRows(int64_t rows, int32_t* order) {
  const int64_t row = int64_t{blockIdx.x} * blockDim.x + threadIdx.x;
  if (row < rows) order[row] = static_cast<int32_t>(row);
}

absl::Status SortBuckets(const Masks& masks, const OffsetCounts& counts, int buckets,
                         int32_t* order, const ExecutionContext& context) {
  const int64_t block_rows = CeilDiv(CeilDiv(masks.rows, kMaxBlocks), kThreads) * kThreads;
  const int64_t blocks = CeilDiv(masks.rows, block_rows);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint16_t> keys, AllocateArray<uint16_t>(masks.rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> histograms,
                           AllocateArray<int32_t>(blocks * buckets, context));
  const dim3 grid(static_cast<unsigned>(blocks));
  VOXCONV_LAUNCH(MakeKeys<uint16_t>, grid, kThreads,
                 (buckets + 2 * OffsetRoom(masks.num_bits)) * sizeof(int32_t), context, masks,
                 counts, block_rows, buckets, keys.data(), histograms.data());
  VOXCONV_LAUNCH(ScatterRows, grid, kThreads,
                 buckets * sizeof(int32_t) + kWarps * buckets * sizeof(uint16_t), context,
                 keys.data(), masks.rows, block_rows, histograms.data(), buckets, order);
  return absl::OkStatus();
}

// More buckets than a block has threads.
absl::Status SortKeys(const Masks& masks, const OffsetCounts& counts, int64_t buckets,
                      int32_t* order, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> keys, AllocateArray<uint32_t>(masks.rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> sorted, AllocateArray<uint32_t>(masks.rows, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> as_given, AllocateArray<int32_t>(masks.rows, context));
  VOXCONV_LAUNCH(FillRows, GridFor(masks.rows, kThreads), kThreads, 0, context, masks.rows,
                 as_given.data());
  VOXCONV_LAUNCH(MakeKeys<uint32_t>, GridFor(masks.rows, kThreads), kThreads,
                 2 * OffsetRoom(masks.num_bits) * sizeof(int32_t), context, masks, counts,
                 int64_t{kThreads}, 0, keys.data(), static_cast<int32_t*>(nullptr));
  return SortByKey(keys.data(), sorted.data(), as_given.data(), order, masks.rows, BitsFor(buckets),
                   context);
}

}  // namespace

absl::Status OrderByRarest(const uint32_t* words, int64_t rows, int num_words, int num_bits,
                           int32_t* order, const ExecutionContext& context) {
  if (rows == 0) return absl::OkStatus();
  const Masks masks{words, rows, num_words, num_bits};
  const int64_t blocks = std::min<int64_t>(CeilDiv(rows, kThreads), kMaxBlocks);
  VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> of_block,
                           AllocateArray<int32_t>(blocks * num_bits, context));
  const OffsetCounts counts{of_block.data(), static_cast<int>(blocks)};
  VOXCONV_LAUNCH(CountOffsets, dim3(static_cast<unsigned>(blocks)), kThreads, 0, context, masks,
                 counts);
  const int64_t buckets = NumRarestKeys(num_bits);
  return buckets <= kThreads ? SortBuckets(masks, counts, static_cast<int>(buckets), order, context)
                             : SortKeys(masks, counts, buckets, order, context);
}

absl::Status OrderByShortMask(const uint32_t* words, int64_t rows, int num_bits, int32_t* order,
                              const ExecutionContext& context) {
  VOXCONV_CHECK(num_bits <= kMaxShortMaskBits);
  if (rows == 0) return absl::OkStatus();
  return SortBuckets({words, rows, 1, num_bits}, {nullptr, 0}, 1 << num_bits, order, context);
}

}  // namespace voxconv
