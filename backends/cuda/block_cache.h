// SPDX-License-Identifier: Apache-2.0
// Freed memory of one stream, kept for what is allocated there next.
#ifndef VOXCONV_BACKENDS_CUDA_BLOCK_CACHE_H_
#define VOXCONV_BACKENDS_CUDA_BLOCK_CACHE_H_

#include <algorithm>
#include <bit>
#include <cstdint>
#include <vector>

#include "absl/container/flat_hash_map.h"

namespace voxconv {

// Keeps the freed blocks of one stream, because later work of that stream may use them at once. A
// call of the memory pool costs the host a microsecond or more, and a frame makes hundreds. Blocks
// have few different sizes, so that a frame finds the blocks of an earlier frame with about as many
// voxels. Not thread-safe. Does not own the blocks: its owner must call Clear.
class BlockCache {
 public:
  // The size of a block for `bytes` > 0 bytes: at least 512, and up to an eighth more than `bytes`.
  static int64_t BlockSize(int64_t bytes) {
    constexpr int64_t kLeast = 512;
    if (bytes <= kLeast) return kLeast;
    constexpr int kClassBits = 3;  // classes between two powers of two, as a power of two
    const int shift = std::max(
        0, static_cast<int>(std::bit_width(static_cast<uint64_t>(bytes - 1))) - 1 - kClassBits);
    const int64_t step = int64_t{1} << shift;
    if (bytes > INT64_MAX - step) return bytes;
    return (bytes + step - 1) / step * step;
  }

  // Takes out a block of exactly this size. Null if there is none.
  void* Take(int64_t size) {
    const auto found = blocks_.find(size);
    if (found == blocks_.end() || found->second.empty()) return nullptr;
    void* block = found->second.back();
    found->second.pop_back();
    return block;
  }
  void Put(void* block, int64_t size) { blocks_[size].push_back(block); }

  int64_t bytes() const {
    int64_t bytes = 0;
    for (const auto& [size, blocks] : blocks_) bytes += size * static_cast<int64_t>(blocks.size());
    return bytes;
  }

  // Calls release(block, size) for every block and forgets the blocks.
  template <typename Release>
  void Clear(const Release& release) {
    for (const auto& [size, blocks] : blocks_) {
      for (void* block : blocks) release(block, size);
    }
    blocks_.clear();
  }

 private:
  absl::flat_hash_map<int64_t, std::vector<void*>> blocks_;
};

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_BLOCK_CACHE_H_
