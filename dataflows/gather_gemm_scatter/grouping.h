// Which kernel offsets are multiplied together (TorchSparse Section 4.2, Minuet Section 5.2.2).
#ifndef VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GROUPING_H_
#define VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GROUPING_H_

#include <cstdint>
#include <vector>

#include "absl/types/span.h"

namespace voxconv {

enum class Grouping {
  kSeparate,        // one matmul an offset
  kSymmetric,       // TorchSparse 4.2.1: offsets k and K-1-k, whose maps are equally large
  kFixed,           // TorchSparse 4.2.2: three groups
  kAdaptive,        // TorchSparse 4.2.3, Algorithm 4
  kSortedAdaptive,  // Minuet 5.2.2: Algorithm 4 over the offsets by ascending map size
};

struct GroupingRule {
  Grouping grouping = Grouping::kAdaptive;
  // Adaptive only: a group may spend at most this share of its rows on padding its smallest map.
  double epsilon = 0;
  // Adaptive only (the paper's S): a group whose largest map has fewer pairs is one batched
  // matmul, another one matmul an offset.
  int64_t threshold = 0;
};

struct OffsetGroup {
  std::vector<int> offsets;  // in the order of the scan; a mirrored offset follows its partner
  int64_t max_pairs = 0;     // of the group's largest map; what a batch is padded to
  bool batched = false;      // one padded batched matmul instead of one matmul an offset

  friend bool operator==(const OffsetGroup&, const OffsetGroup&) = default;
};

// Partitions the offsets into groups. `map_sizes[k]` is the number of pairs of offset k. In a
// `symmetric` map the offsets below the centre are scanned and each brings its mirror, so that
// the scan stops before the centre. In no group: the identity offset (-1 = none), which needs no
// data movement, and offsets without pairs, which need no matmul. O(K log K).
std::vector<OffsetGroup> GroupOffsets(absl::Span<const int64_t> map_sizes, bool symmetric,
                                      int identity_offset, const GroupingRule& rule);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_GATHER_GEMM_SCATTER_GROUPING_H_
