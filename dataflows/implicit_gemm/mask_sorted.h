// SPDX-License-Identifier: Apache-2.0
// The layout that output-stationary implicit GEMM reads. For each part of the offset range, it says
// which kernel offsets each output row has, and in which order the rows are processed.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_SORTED_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_SORTED_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/dataflow.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv {

// Order of the output rows.
// - kNone: as given.
// - kMask: by the value of the mask.
// - kGray: by the mask read as a Gray code, masks of few offsets first (mask_order.h).
//   Neighbours in this order differ in few bits.
// - kRarest: by the two rarest offsets (mask_order.h).
enum class MaskOrder { kNone, kMask, kGray, kRarest };
inline constexpr MaskOrder kMaskOrders[] = {MaskOrder::kNone, MaskOrder::kMask, MaskOrder::kGray,
                                            MaskOrder::kRarest};

absl::string_view ToString(MaskOrder order);

struct MaskSortedRule {
  MaskOrder order = MaskOrder::kNone;
  int splits = 1;  // parts of the offset range, 1..K

  // The layout's key in MapNeed::layout, such as "mask_sorted:order=rarest,splits=2".
  std::string Key() const;
};

// Cuts the offsets into `splits` parts, whose sizes differ by at most one. Part s is [result[s],
// result[s + 1]). kInvalidArgument if `splits` is not in [1, max(num_offsets, 1)].
absl::StatusOr<std::vector<int32_t>> SplitOffsets(int num_offsets, int splits);

// Split s has the offsets [split_ptr[s], split_ptr[s + 1]). All arrays but split_ptr lie in the
// memory of the backend that made them.
struct MaskSortedArrays {
  // [splits, N_out, words]. Bit j of a row's words stands for offset split_ptr[s] + j.
  SharedArray<uint32_t> masks;
  // [splits, N_out]: the output row at each position. It may be empty if the order is kNone. Rows
  // are then processed as given.
  Array<int32_t> row_order;
  // The table and the masks by position, for kernels that process rows in that order. Both are
  // empty if the backend does not make them. ordered_table[k * N_out + i] is the input of row
  // row_order[s, i] under offset k, where s is the split that has k. ordered_masks[s, i] is the
  // mask of row row_order[s, i].
  Array<int32_t> ordered_table;
  Array<uint32_t> ordered_masks;
  int words = 1;
  std::vector<int32_t> split_ptr;  // [splits + 1], host

  // Sets split_ptr and words for a map of `num_offsets` offsets, and makes no array. The errors are
  // those of SplitOffsets.
  static absl::StatusOr<MaskSortedArrays> Cut(int num_offsets, int splits);

  int splits() const { return static_cast<int>(split_ptr.size()) - 1; }
};

// The prepared map. It owns its arrays. map() is the neighbour table that it was made from. The
// pairs of that table may be uncounted.
class MaskSorted final : public PreparedMap {
 public:
  // `table` must have the form kNeighbourTable.
  MaskSorted(const KernelMap& table, MaskOrder order, MaskSortedArrays arrays);

  MaskOrder order() const { return order_; }
  const MaskSortedArrays& arrays() const { return arrays_; }
  int64_t bytes() const override;
  absl::Status Validate(const ExecutionContext& context) const override;
  // Goes over each split's rows by position, as the kernels do. It works on a host copy.
  absl::StatusOr<KernelMap> ToPairs(const ExecutionContext& context) const override;

 private:
  MaskOrder order_;
  MaskSortedArrays arrays_;
};

// The function of one backend that makes the arrays from a neighbour table. The table's pairs may
// be uncounted. It queues its work on the context's stream and does not synchronise it. O(N_out *
// (K + splits * log N_out)).
using MaskSorter = absl::StatusOr<MaskSortedArrays> (*)(const KernelMap& table,
                                                        const MaskSortedRule& rule,
                                                        const ExecutionContext& context);
absl::StatusOr<MaskSortedArrays> SortMasksCpu(const KernelMap& table, const MaskSortedRule& rule,
                                              const ExecutionContext& context);
// Only builds with CUDA have it. It uses the masks that the table carries and makes no others.
absl::StatusOr<MaskSortedArrays> SortMasksCuda(const KernelMap& table, const MaskSortedRule& rule,
                                               const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_SORTED_H_
