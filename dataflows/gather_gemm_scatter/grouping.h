// SPDX-License-Identifier: Apache-2.0
// Groups of kernel offsets that are multiplied together (TorchSparse Section 4.2, Minuet Section
// 5.2.2).
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GROUPING_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GROUPING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace voxconv {

enum class Grouping {
  kSeparate,        // one matmul for each offset
  kSymmetric,       // TorchSparse 4.2.1: offsets k and K-1-k, whose maps are equally large
  kFixed,           // TorchSparse 4.2.2: three groups
  kAdaptive,        // TorchSparse 4.2.3, Algorithm 4
  kSortedAdaptive,  // Minuet 5.2.2: offsets by ascending map size, in groups of little padding
  kRagged,          // PCEngine as released: all offsets, each padded to kRaggedRows rows
};

// A ragged product's rows of an offset are rounded up to a multiple of this, the rows of a block.
inline constexpr int64_t kRaggedRows = 128;

struct GroupingRule {
  Grouping grouping = Grouping::kAdaptive;
  // kAdaptive: a group may spend at most this share of its rows on padding its smallest map.
  // kSortedAdaptive: a group may have at most this many rows of padding for each of its pairs
  // (Minuet's padding overhead, Figure 5, and its release).
  double epsilon = 0;
  // These two only (the paper's S). A group whose largest map has fewer pairs than this is one
  // batched matmul. Every other group has one matmul for each offset.
  int64_t threshold = 0;
};

struct OffsetGroup {
  std::vector<int> offsets;  // in the order of the scan; a mirrored offset follows its partner
  int64_t max_pairs = 0;     // pairs of the group's largest map; a batch is padded to this size
  bool batched = false;      // one padded batched matmul instead of one matmul for each offset
  bool ragged = false;       // one launch of products of kRaggedRows rows, each offset padded to it

  friend bool operator==(const OffsetGroup&, const OffsetGroup&) = default;
};

// Partitions the offsets into groups. `map_sizes[k]` is the number of pairs of offset k. In a
// `symmetric` map the scan covers the offsets below the centre, and each brings its mirror. The
// identity offset (-1 = none) is in no group, because it needs no data movement. Offsets without
// pairs are in no group either, because they need no matmul. O(K log K).
std::vector<OffsetGroup> GroupOffsets(absl::Span<const int64_t> map_sizes, bool symmetric,
                                      int identity_offset, const GroupingRule& rule);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GROUPING_H_
