// SPDX-License-Identifier: Apache-2.0
// A sample sort of three kernels. Each key becomes a word: its bits in use above its index. No two
// words are equal, so that equal keys do not fill a bucket, and the order of the words is the
// stable order of the keys, however the words got into their buckets.
// 1. PickSplitters ranks samples of the words by comparing all with all. Every n-th is a splitter.
// 2. FillBuckets finds each word's bucket among the splitters and puts the word there. Words of a
//    bucket come in any order.
// 3. SortBuckets sorts each bucket in shared memory. If a bucket is too large for that, one block
//    sorts it in global memory. Only an input made for this purpose has such a bucket.
#include <cub/block/block_radix_sort.cuh>
#include <cub/block/block_reduce.cuh>
#include <cub/block/block_scan.cuh>

#include "voxconv/backends/cuda/bitonic_sort.cuh"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/sample_sort.h"

namespace voxconv {
namespace {

using Wide = unsigned __int128;
using Plan = SampleSortPlan;

constexpr unsigned kAllLanes = 0xFFFFFFFFu;
constexpr int kWarp = 32;
constexpr int kPickThreads = 256;
constexpr int kPickItems = 8;  // samples that a thread holds
constexpr int kPicked = 16;    // samples that a block ranks
constexpr int kFillThreads = 1024;
constexpr int kFillItems = 1;  // keys of a thread
constexpr int kSortThreads = 256;
// Blocks of SortBuckets that a multiprocessor is to hold. Wide words take more registers.
template <typename Word>
constexpr int kSortBlocks = sizeof(Word) > 8 ? 2 : 3;
// Counts are apart in memory, because atomic operations on one sector wait for each other.
constexpr int kCountStride = 8;

template <typename Key, typename Word>
struct Words {
  const Key* keys;
  int index_bits;
  Key mask;

  __device__ Word At(int32_t i) const {
    return static_cast<Word>(keys[i] & mask) << index_bits | static_cast<uint32_t>(i);
  }
  __device__ int32_t IndexOf(Word word) const {
    return static_cast<int32_t>(static_cast<uint32_t>(word) & ((1u << index_bits) - 1));
  }
};

template <typename Word>
struct Buckets {
  Word* splitters;  // [buckets - 1], ascending: the first words of the buckets behind the first
  int32_t* counts;  // [buckets, kCountStride], of which the first of each row is used
  Word* words;      // [buckets, kCapacity], of which the first counts[b] are set
};

template <typename Key, typename Word>
__global__ void __launch_bounds__(kPickThreads)
    PickSplitters(Words<Key, Word> input, Plan plan, Buckets<Word> to) {
  __shared__ Word picked[kPicked];
  __shared__ int32_t ranks[kPicked];
  AwaitEarlierKernels();
  LetNextKernelIn();  // not before, so that FillBuckets can read keys at once
  for (auto b = static_cast<int>(GlobalThread()); b < plan.buckets; b += gridDim.x * kPickThreads) {
    to.counts[b * kCountStride] = 0;
  }
  const auto thread = static_cast<int>(threadIdx.x);
  const int samples = plan.samples(), sample = blockIdx.x * kPicked + thread;
  const bool picks = thread < kPicked && sample < samples;
  if (thread < kPicked) {
    picked[thread] = picks ? input.At(plan.Sample(sample)) : Word{0};
    ranks[thread] = 0;
  }
  int below[kPicked] = {};
  for (int first = 0; first < samples; first += kPickThreads * kPickItems) {
    Word words[kPickItems];
#pragma unroll
    for (int j = 0; j < kPickItems; ++j) {
      const int i = first + j * kPickThreads + thread;
      words[j] = i < samples ? input.At(plan.Sample(i)) : ~Word{0};
    }
    if (first == 0) __syncthreads();
#pragma unroll
    for (int j = 0; j < kPickItems; ++j) {
      if (first + j * kPickThreads >= samples) break;
#pragma unroll
      for (int k = 0; k < kPicked; ++k) below[k] += words[j] < picked[k] ? 1 : 0;
    }
  }
#pragma unroll
  for (int k = 0; k < kPicked; ++k) {
    const int sum = __reduce_add_sync(kAllLanes, below[k]);
    if (thread % kWarp == 0) atomicAdd(ranks + k, sum);
  }
  __syncthreads();
  if (!picks) return;
  const int rank = ranks[thread];
  if (rank > 0 && rank % plan.oversampling == 0) {
    to.splitters[rank / plan.oversampling - 1] = picked[thread];
  }
}

// Adds one to counts[bucket] for every lane with a bucket >= 0, and returns what was there before
// the lane's. `counts` is in shared memory. Lanes of sorted keys have one bucket.
__device__ int CountUp(int bucket, int32_t* counts) {
  const int first = __shfl_sync(kAllLanes, bucket, 0);
  if (!__all_sync(kAllLanes, bucket == first)) {
    return bucket < 0 ? 0 : atomicAdd(counts + bucket, 1);
  }
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  int before = 0;
  if (lane == 0 && bucket >= 0) before = atomicAdd(counts + bucket, kWarp);
  return __shfl_sync(kAllLanes, before, 0) + lane;
}

// `levels`: 2^levels >= buckets. Reads keys before it waits: whatever wrote them has ended, because
// PickSplitters waits for that before it lets this kernel in.
template <typename Key, typename Word>
__global__ void __launch_bounds__(kFillThreads)
    FillBuckets(Words<Key, Word> input, Plan plan, int levels, Buckets<Word> to) {
  __shared__ Word splitters[Plan::kMaxBuckets];
  __shared__ int32_t counts[Plan::kMaxBuckets];  // then: where the block's words begin
  LetNextKernelIn();
  const auto thread = static_cast<int>(threadIdx.x);
  Word words[kFillItems];
  int buckets[kFillItems], places[kFillItems];
  const int first = blockIdx.x * (kFillThreads * kFillItems) + thread;
#pragma unroll
  for (int k = 0; k < kFillItems; ++k) {
    const int i = first + k * kFillThreads;
    words[k] = i < plan.size ? input.At(i) : Word{0};
    buckets[k] = i < plan.size ? 0 : -1;
  }
  for (int b = thread; b < 1 << levels; b += kFillThreads) counts[b] = 0;
  AwaitEarlierKernels();
  for (int b = thread; b < 1 << levels; b += kFillThreads) {
    splitters[b] = b < plan.buckets - 1 ? to.splitters[b] : ~Word{0};
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kFillItems; ++k) {
    int bucket = 0;
    for (int step = 1 << levels >> 1; step > 0; step /= 2) {
      if (splitters[bucket + step - 1] <= words[k]) bucket += step;
    }
    if (buckets[k] == 0) buckets[k] = min(bucket, plan.buckets - 1);
    places[k] = CountUp(buckets[k], counts);
  }
  __syncthreads();
  for (int b = thread; b < plan.buckets; b += kFillThreads) {
    if (counts[b] > 0) counts[b] = atomicAdd(to.counts + b * kCountStride, counts[b]);
  }
  __syncthreads();
#pragma unroll
  for (int k = 0; k < kFillItems; ++k) {
    if (buckets[k] < 0) continue;
    const int place = counts[buckets[k]] + places[k];
    if (place < Plan::kCapacity) to.words[int64_t{buckets[k]} * Plan::kCapacity + place] = words[k];
  }
}

// Where the sorted pairs go. Any array may be null: it is not wanted, or given_values[i] is i.
template <typename Key>
struct Output {
  const Key* given_keys;
  const int32_t* given_values;
  Key* keys;
  int32_t* values;

  __device__ void Put(int to, int32_t from) const {
    if (keys != nullptr) keys[to] = given_keys[from];
    if (values != nullptr) values[to] = given_values == nullptr ? from : given_values[from];
  }
};

// Sorts the words from `begin` up to `end`, if `has_end`, in one block, by digits of 8 bits. Works
// on their indices in global memory.
template <typename Key, typename Word>
class LargeBucket {
  static constexpr int kItems = 8;
  static constexpr int kTile = kSortThreads * kItems;
  static constexpr int kDigitBits = 8, kDigits = 1 << kDigitBits;
  using Scan = cub::BlockScan<int, kSortThreads>;
  using Sort = cub::BlockRadixSort<uint32_t, kSortThreads, kItems, int32_t>;

 public:
  struct Shared {
    union {
      typename Scan::TempStorage scan;
      typename Sort::TempStorage sort;
      uint8_t digits[kTile];
    };
    int next[kDigits];   // where the next key of a digit goes
    int first[kDigits];  // of a digit in the tile
  };

  __device__ LargeBucket(const Words<Key, Word>& input, const Plan& plan, Shared& shared)
      : input_(input), plan_(plan), shared_(shared), thread_(static_cast<int>(threadIdx.x)) {}

  // Sorts all indices of the bucket, whose number is `count`, and returns them in rows or in spare.
  __device__ const int32_t* Run(Word begin, Word end, bool has_end, int count, int32_t* rows,
                                int32_t* spare) {
    Collect(begin, end, has_end, rows);
    for (int shift = 0; shift < plan_.bits; shift += kDigitBits) {
      FindStarts(rows, count, shift);
      for (int tile = 0; tile < count; tile += kTile) MoveTile(rows, count, tile, shift, spare);
      int32_t* const sorted = spare;
      spare = rows;
      rows = sorted;
    }
    return rows;
  }

 private:
  __device__ int Digit(int32_t row, int shift) const {
    return static_cast<int>((input_.keys[row] & input_.mask) >> shift) & (kDigits - 1);
  }

  __device__ void Collect(Word begin, Word end, bool has_end, int32_t* rows) {
    int before = 0;
    for (int tile = 0; tile < plan_.size; tile += kTile) {
      const int first = tile + thread_ * kItems;
      int found[kItems], places[kItems], total = 0;
      for (int k = 0; k < kItems; ++k) {
        found[k] = 0;
        if (first + k >= plan_.size) continue;
        const Word word = input_.At(first + k);
        found[k] = word >= begin && (!has_end || word < end) ? 1 : 0;
      }
      Scan(shared_.scan).ExclusiveSum(found, places, total);
      for (int k = 0; k < kItems; ++k) {
        if (found[k] != 0) rows[before + places[k]] = first + k;
      }
      before += total;
      __syncthreads();
    }
  }

  __device__ void FindStarts(const int32_t* rows, int count, int shift) {
    constexpr int kOwn = kDigits / kSortThreads;
    for (int d = thread_; d < kDigits; d += kSortThreads) shared_.next[d] = 0;
    __syncthreads();
    for (int i = thread_; i < count; i += kSortThreads) {
      atomicAdd(shared_.next + Digit(rows[i], shift), 1);
    }
    __syncthreads();
    int own[kOwn];
    for (int k = 0; k < kOwn; ++k) own[k] = shared_.next[thread_ * kOwn + k];
    Scan(shared_.scan).ExclusiveSum(own, own);
    for (int k = 0; k < kOwn; ++k) shared_.next[thread_ * kOwn + k] = own[k];
    __syncthreads();
  }

  __device__ void MoveTile(const int32_t* rows, int count, int tile, int shift, int32_t* to) {
    const int size = min(kTile, count - tile);
    const int first = thread_ * kItems;
    uint32_t digits[kItems];
    int32_t own[kItems];
    for (int k = 0; k < kItems; ++k) {
      own[k] = first + k < size ? rows[tile + first + k] : 0;
      digits[k] = first + k < size ? Digit(own[k], shift) : kDigits - 1;
    }
    Sort(shared_.sort).Sort(digits, own, 0, kDigitBits);  // what is beyond the end stays there
    __syncthreads();
    for (int k = 0; k < kItems; ++k) shared_.digits[first + k] = static_cast<uint8_t>(digits[k]);
    __syncthreads();
    for (int k = 0; k < kItems; ++k) {
      const int i = first + k;
      if (i == 0 || shared_.digits[i - 1] != digits[k]) shared_.first[digits[k]] = i;
    }
    __syncthreads();
    for (int k = 0; k < kItems; ++k) {
      const int i = first + k;
      if (i < size) to[shared_.next[digits[k]] + i - shared_.first[digits[k]]] = own[k];
    }
    __syncthreads();
    for (int k = 0; k < kItems; ++k) {
      const int i = first + k;
      const bool ends = i == size - 1 || (i < size - 1 && shared_.digits[i + 1] != digits[k]);
      if (ends) shared_.next[digits[k]] += i + 1 - shared_.first[digits[k]];
    }
    __syncthreads();
  }

  const Words<Key, Word>& input_;
  const Plan& plan_;
  Shared& shared_;
  const int thread_;
};

// Sorts the `count` words of a bucket in shared memory and puts their keys where they belong.
template <int kItems, typename Key, typename Word>
__device__ void SortInBlock(const Words<Key, Word>& input, const Word* words, int count, int first,
                            Word* shared, const Output<Key>& output) {
  constexpr int kBuffers = 2 * kSortThreads * kItems <= Plan::kCapacity ? 2 : 1;
  using Network = BitonicSort<Word, kSortThreads, kItems, kBuffers>;
  const auto thread = static_cast<int>(threadIdx.x);
  int threads = kWarp;  // of the network
  while (threads * kItems < count) threads *= 2;
  Word own[kItems];
  if (thread < threads) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) {
      const int i = k * threads + thread;  // any order will do
      own[k] = i >= count ? ~Word{0} : words == nullptr ? input.At(i) : words[i];
    }
  }
  Network::Sort(own, threads, shared);
  __syncthreads();
  if (thread < threads) {
#pragma unroll
    for (int k = 0; k < kItems; ++k) shared[thread * kItems + k] = own[k];
  }
  __syncthreads();
#pragma unroll 4
  for (int i = thread; i < count; i += kSortThreads) {
    output.Put(first + i, input.IndexOf(shared[i]));
  }
}

// A block sorts a bucket. If there is one bucket alone, `from` is empty. `indices` has room for
// 2 * plan.size.
template <typename Key, typename Word>
__global__ void __launch_bounds__(kSortThreads, kSortBlocks<Word>)
    SortBuckets(Words<Key, Word> input, Plan plan, Buckets<Word> from, int32_t* indices,
                Output<Key> output) {
  using Large = LargeBucket<Key, Word>;
  using Reduce = cub::BlockReduce<int, kSortThreads>;
  __shared__ union {
    Word words[Plan::kCapacity];
    typename Large::Shared large;
  } shared;
  __shared__ typename Reduce::TempStorage temp;
  __shared__ int shared_first;
  OverlapLaunches();
  const auto thread = static_cast<int>(threadIdx.x);
  const int bucket = blockIdx.x;
  int before = 0;
#pragma unroll 4
  for (int b = thread; b < bucket; b += kSortThreads) before += from.counts[b * kCountStride];
  const int count = plan.buckets == 1 ? plan.size : from.counts[bucket * kCountStride];
  before = Reduce(temp).Sum(before);
  if (thread == 0) shared_first = before;
  __syncthreads();
  const int first = shared_first;
  if (count > Plan::kCapacity) {
    const bool has_end = bucket + 1 < plan.buckets;
    const Word begin = bucket == 0 ? Word{0} : from.splitters[bucket - 1];
    const Word end = has_end ? from.splitters[bucket] : Word{0};
    const int32_t* const sorted =
        Large(input, plan, shared.large)
            .Run(begin, end, has_end, count, indices + first, indices + plan.size + first);
    for (int i = thread; i < count; i += kSortThreads) output.Put(first + i, sorted[i]);
    return;
  }
  const Word* const words =
      plan.buckets == 1 ? nullptr : from.words + int64_t{bucket} * Plan::kCapacity;
  constexpr int kMostItems = Plan::kCapacity / kSortThreads;
  if (count <= Plan::kCapacity / 4) {
    SortInBlock<kMostItems / 4>(input, words, count, first, shared.words, output);
  } else if (count <= Plan::kCapacity / 2) {
    SortInBlock<kMostItems / 2>(input, words, count, first, shared.words, output);
  } else {
    SortInBlock<kMostItems>(input, words, count, first, shared.words, output);
  }
}

template <typename Word, typename Key>
absl::Status Run(const Key* keys, const Output<Key>& output, const Plan& plan,
                 const ExecutionContext& context) {
  const Key mask = static_cast<Key>(~Key{0} >> (8 * sizeof(Key) - plan.bits));
  const Words<Key, Word> input{keys, plan.index_bits, mask};
  Buckets<Word> buckets{};
  Array<Word> words;
  Array<int32_t> numbers;
  if (plan.buckets > 1) {
    const int64_t slots = int64_t{plan.buckets} * Plan::kCapacity;
    VOXCONV_ASSIGN_OR_RETURN(words, AllocateArray<Word>(slots + plan.buckets, context));
    VOXCONV_ASSIGN_OR_RETURN(
        numbers, AllocateArray<int32_t>(2 * plan.size + plan.buckets * kCountStride, context));
    buckets = {words.data() + slots, numbers.data() + 2 * plan.size, words.data()};
    const auto pick = PickSplitters<Key, Word>;
    VOXCONV_LAUNCH_EARLY(pick, GridFor(plan.samples(), kPicked), kPickThreads, 0, context, input,
                         plan, buckets);
    const auto fill = FillBuckets<Key, Word>;
    VOXCONV_LAUNCH_EARLY(fill, GridFor(plan.size, kFillThreads * kFillItems), kFillThreads, 0,
                         context, input, plan, BitsFor(plan.buckets), buckets);
  }
  const auto sort = SortBuckets<Key, Word>;
  VOXCONV_LAUNCH_EARLY(sort, dim3(plan.buckets), kSortThreads, 0, context, input, plan, buckets,
                       numbers.data(), output);
  return absl::OkStatus();
}

template <typename Key>
absl::Status Sort(const Key* keys, const Output<Key>& output, const Plan& plan,
                  const ExecutionContext& context) {
  return plan.narrow() ? Run<uint64_t>(keys, output, plan, context)
                       : Run<Wide>(keys, output, plan, context);
}

}  // namespace

absl::Status SampleSort(const uint32_t* keys, uint32_t* sorted_keys, const int32_t* values,
                        int32_t* sorted_values, const SampleSortPlan& plan,
                        const ExecutionContext& context) {
  return Run<uint64_t, uint32_t>(keys, {keys, values, sorted_keys, sorted_values}, plan, context);
}

absl::Status SampleSort(const uint64_t* keys, uint64_t* sorted_keys, const int32_t* values,
                        int32_t* sorted_values, const SampleSortPlan& plan,
                        const ExecutionContext& context) {
  return Sort<uint64_t>(keys, {keys, values, sorted_keys, sorted_values}, plan, context);
}

}  // namespace voxconv
