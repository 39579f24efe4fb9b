// SPDX-License-Identifier: Apache-2.0
// A sort of a block's words. Only .cu files include this header.
#ifndef VOXCONV_BACKENDS_CUDA_BITONIC_SORT_CUH_
#define VOXCONV_BACKENDS_CUDA_BITONIC_SORT_CUH_

#include <cstdint>

namespace voxconv {

// Batcher's bitonic network on the words of a block. Thread t has kItems neighbours, a power of
// two: words t * kItems and on. Exchanges are in registers, within a warp, or over shared memory,
// by their distance. With two buffers in shared memory, an exchange takes one barrier in place of
// two.
template <typename Word, int kThreads, int kItems, int kBuffers>
struct BitonicSort {
  static constexpr int kWords = kThreads * kItems;
  static constexpr unsigned kAllLanes = 0xFFFFFFFFu;

  // Sorts the words of the first `threads` threads, a power of two from 32 to kThreads. All threads
  // of the block call it with the same number, and with room for kBuffers * kWords in `shared`.
  static __device__ void Sort(Word (&words)[kItems], int threads, Word* shared) {
    const int thread = static_cast<int>(threadIdx.x);
    const bool takes_part = thread < threads;  // the same for a warp
    if (takes_part) SortOwn(words, thread);
    Word* buffer = shared;
    for (int size = 2; size <= threads; size *= 2) {  // threads whose words become one sequence
      const bool ascending = (thread & size) == 0;
      int distance = size / 2;
      for (; distance >= 32; distance /= 2) {
        if (kBuffers == 1) __syncthreads();
        if (takes_part) {
#pragma unroll
          for (int k = 0; k < kItems; ++k) buffer[k * kThreads + thread] = words[k];
        }
        __syncthreads();
        const Word* const others = buffer;
        if (kBuffers > 1) buffer = buffer == shared ? shared + kWords : shared;
        if (!takes_part) continue;
        const bool least = ((thread & distance) == 0) == ascending;
#pragma unroll
        for (int k = 0; k < kItems; ++k) {
          Keep(words[k], others[k * kThreads + (thread ^ distance)], least);
        }
      }
      if (!takes_part) continue;
      for (; distance > 0; distance /= 2) {
        const bool least = ((thread & distance) == 0) == ascending;
#pragma unroll
        for (int k = 0; k < kItems; ++k) Keep(words[k], Exchange(words[k], distance), least);
      }
      MergeRange(words, 0, kItems, ascending);
    }
  }

 private:
  // Makes each thread's words one sequence, which ascends in threads of even number.
  static __device__ void SortOwn(Word (&words)[kItems], int thread) {
#pragma unroll
    for (int size = 2; size < kItems; size *= 2) {
#pragma unroll
      for (int first = 0; first < kItems; first += size) {
        MergeRange(words, first, size, (first & size) == 0);
      }
    }
    MergeRange(words, 0, kItems, (thread & 1) == 0);
  }
  // Sorts words[first .. first + size), a bitonic sequence.
  static __device__ void MergeRange(Word (&words)[kItems], int first, int size, bool ascending) {
#pragma unroll
    for (int distance = kItems / 2; distance > 0; distance /= 2) {
#pragma unroll
      for (int k = 0; k < kItems; ++k) {
        const bool pairs = distance < size && k >= first && k < first + size && (k & distance) == 0;
        if (pairs) Order(words[k], words[k + distance], ascending);
      }
    }
  }
  static __device__ void Order(Word& a, Word& b, bool ascending) {
    const Word x = a, y = b;
    const bool exchange = (y < x) == ascending;
    a = exchange ? y : x;
    b = exchange ? x : y;
  }
  static __device__ void Keep(Word& own, Word other, bool least) {
    if ((other < own) == least) own = other;
  }
  static __device__ uint64_t Exchange(uint64_t word, int distance) {
    return __shfl_xor_sync(kAllLanes, word, distance);
  }
  static __device__ unsigned __int128 Exchange(unsigned __int128 word, int distance) {
    const uint64_t high = Exchange(static_cast<uint64_t>(word >> 64), distance);
    const uint64_t low = Exchange(static_cast<uint64_t>(word), distance);
    return static_cast<unsigned __int128>(high) << 64 | low;
  }
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_BITONIC_SORT_CUH_
