// The layout that output-stationary implicit GEMM reads: which kernel offsets each output row has,
// and in which order the rows are processed, for each part of the offset range.
#ifndef VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_SORTED_H_
#define VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_SORTED_H_

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/dataflow.h"
#include "core/kernel_map.h"

namespace voxconv {

// Order of the output rows: as given, by mask value, by the mask read as a Gray code (neighbours in
// that order differ in few bits), or by its two rarest offsets (mask_order.h).
enum class MaskOrder { kNone, kMask, kGray, kRarest };
inline constexpr MaskOrder kMaskOrders[] = {MaskOrder::kNone, MaskOrder::kMask, MaskOrder::kGray,
                                            MaskOrder::kRarest};

absl::string_view ToString(MaskOrder order);

struct MaskSortedRule {
  MaskOrder order = MaskOrder::kNone;
  int splits = 1;  // parts of the offset range, 1..K

  // MapNeed::layout, such as "mask_sorted:order=rarest,splits=2".
  std::string Key() const;
};

// `splits` parts of the offsets, whose sizes differ by one at most: part s is [result[s],
// result[s + 1]). kInvalidArgument for anything but 1..num_offsets (1 without offsets).
absl::StatusOr<std::vector<int32_t>> SplitOffsets(int num_offsets, int splits);

// Split s covers offsets [split_ptr[s], split_ptr[s + 1]).
struct MaskSortedArrays {
  // [splits, N_out, words]; bit j of a row's words: offset split_ptr[s] + j.
  SharedArray<uint32_t> masks;
  // [splits, N_out]: position -> output row. May be empty where the order is kNone: the rows as
  // given.
  Array<int32_t> row_order;
  // The same by position, for kernels that process rows in that order. Empty where a backend does
  // not make them. ordered_table[k * N_out + i] is the input of row row_order[s, i] under offset k,
  // with s the split that has k. ordered_masks[s, i] are the masks of row row_order[s, i].
  Array<int32_t> ordered_table;
  Array<uint32_t> ordered_masks;
  int words = 1;
  std::vector<int32_t> split_ptr;  // [splits + 1], host

  // For a map of `num_offsets` offsets: split_ptr and words, and no array yet. Errors of
  // SplitOffsets.
  static absl::StatusOr<MaskSortedArrays> Cut(int num_offsets, int splits);

  int splits() const { return static_cast<int>(split_ptr.size()) - 1; }
};

// map() is the neighbour table that it was made of, whose pairs may be uncounted.
class MaskSorted final : public PreparedMap {
 public:
  // `table`: of the form kNeighbourTable.
  MaskSorted(const KernelMap& table, MaskOrder order, MaskSortedArrays arrays);

  MaskOrder order() const { return order_; }
  const MaskSortedArrays& arrays() const { return arrays_; }
  int64_t bytes() const override;
  absl::Status Validate(const ExecutionContext& context) const override;
  // Goes over each split's rows by position, as the kernels do, on a host copy.
  absl::StatusOr<KernelMap> ToPairs(const ExecutionContext& context) const override;

 private:
  MaskOrder order_;
  MaskSortedArrays arrays_;
};

// What makes the arrays of a neighbour table on one backend. The pairs may be uncounted. Queues on
// the context's stream and does not synchronise it. O(N_out * (K + splits * log N_out)).
using MaskSorter = absl::StatusOr<MaskSortedArrays> (*)(const KernelMap& table,
                                                        const MaskSortedRule& rule,
                                                        const ExecutionContext& context);
absl::StatusOr<MaskSortedArrays> SortMasksCpu(const KernelMap& table, const MaskSortedRule& rule,
                                              const ExecutionContext& context);
// Only in builds with CUDA. Takes the masks that the table carries, and makes none beside them.
absl::StatusOr<MaskSortedArrays> SortMasksCuda(const KernelMap& table, const MaskSortedRule& rule,
                                               const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_DATAFLOWS_IMPLICIT_GEMM_MASK_SORTED_H_
