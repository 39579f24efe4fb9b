// SPDX-License-Identifier: Apache-2.0
#include "voxconv/dataflows/implicit_gemm/mask_sorted.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "voxconv/core/integer.h"

namespace voxconv {
namespace {

// A neighbour table whose masks are left out where the splits have masks of their own.
KernelMap TableOf(const KernelMap& map, int splits) {
  if (splits == 1 || map.table().masks.empty()) return map;
  return map.WithStorage(NeighbourTable{.table = map.table().table, .masks = {}});
}

// The layout on the host.
struct HostMaskSorted {
  std::vector<int32_t> table, row_order, ordered_table;
  std::vector<uint32_t> masks, ordered_masks;
};

absl::StatusOr<HostMaskSorted> CopyLayout(const MaskSorted& layout,
                                          const ExecutionContext& context) {
  const MaskSortedArrays& arrays = layout.arrays();
  HostMaskSorted host;
  VOXCONV_ASSIGN_OR_RETURN(host.table, CopyToHost(layout.map().table().table.array(), context));
  VOXCONV_ASSIGN_OR_RETURN(host.row_order, CopyToHost(arrays.row_order, context));
  VOXCONV_ASSIGN_OR_RETURN(host.ordered_table, CopyToHost(arrays.ordered_table, context));
  VOXCONV_ASSIGN_OR_RETURN(host.masks, CopyToHost(arrays.masks.array(), context));
  VOXCONV_ASSIGN_OR_RETURN(host.ordered_masks, CopyToHost(arrays.ordered_masks, context));
  return host;
}

// The splits cut the offsets, in order and all of them, into parts whose bits fit the words.
absl::Status CheckSplits(const MaskSortedArrays& arrays, int num_offsets) {
  const std::vector<int32_t>& ptr = arrays.split_ptr;
  if (ptr.size() < 2 || ptr.front() != 0 || ptr.back() != num_offsets) {
    return InvalidMap(absl::StrCat("split_ptr does not span the ", num_offsets, " offsets"));
  }
  for (size_t s = 0; s + 1 < ptr.size(); ++s) {
    if (ptr[s] > ptr[s + 1] || ptr[s + 1] - ptr[s] > int64_t{32} * arrays.words) {
      return InvalidMap(absl::StrCat("split ", s, " is ", ptr[s], "..", ptr[s + 1],
                                     "; it must ascend and fit ", arrays.words, " words"));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckSizes(const MaskSorted& layout) {
  const MaskSortedArrays& arrays = layout.arrays();
  const int64_t rows = layout.map().num_outputs();
  VOXCONV_RETURN_IF_ERROR(CheckSplits(arrays, layout.map().num_offsets()));
  const bool as_given = arrays.row_order.size() == 0 && layout.order() == MaskOrder::kNone;
  VOXCONV_RETURN_IF_ERROR(
      CheckArraySize("row_order", arrays.row_order.size(), as_given ? 0 : arrays.splits() * rows));
  VOXCONV_RETURN_IF_ERROR(
      CheckArraySize("masks", arrays.masks.size(), arrays.splits() * rows * arrays.words));
  if (arrays.ordered_table.size() == 0 && arrays.ordered_masks.size() == 0) return absl::OkStatus();
  VOXCONV_RETURN_IF_ERROR(CheckArraySize("ordered_table", arrays.ordered_table.size(),
                                         rows * layout.map().num_offsets()));
  return CheckArraySize("ordered_masks", arrays.ordered_masks.size(), arrays.masks.size());
}

// One split of a layout on the host, whose sizes are right.
class HostSplit {
 public:
  HostSplit(const MaskSorted& layout, const HostMaskSorted& host, int split)
      : arrays_(layout.arrays()),
        host_(host),
        split_(split),
        rows_(layout.map().num_outputs()),
        num_offsets_(layout.map().num_offsets()) {}

  int32_t first() const { return arrays_.split_ptr[split_]; }
  int32_t last() const { return arrays_.split_ptr[split_ + 1]; }
  int32_t Row(int64_t position) const {
    return host_.row_order.empty() ? static_cast<int32_t>(position)
                                   : host_.row_order[split_ * rows_ + position];
  }
  int32_t Entry(int64_t row, int32_t k) const { return host_.table[row * num_offsets_ + k]; }
  uint32_t Word(int64_t row, int w) const { return host_.masks[MaskAt(row) + w]; }

  // What kernels read at a position whose row is `row`: by position where the layout has that.
  int32_t EntryAt(int64_t position, int64_t row, int32_t k) const {
    return host_.ordered_table.empty() ? Entry(row, k) : host_.ordered_table[k * rows_ + position];
  }
  uint32_t WordAt(int64_t position, int64_t row, int w) const {
    return host_.ordered_masks.empty() ? Word(row, w) : host_.ordered_masks[MaskAt(position) + w];
  }
  bool HasAt(int64_t position, int64_t row, int32_t k) const {
    const int bit = k - first();
    return (WordAt(position, row, bit / 32) >> bit % 32 & 1) != 0;
  }

  absl::Status Check() const {
    std::vector<bool> seen(rows_, false);
    for (int64_t i = 0; i < rows_; ++i) {
      const int32_t row = Row(i);
      if (row < 0 || row >= rows_ || seen[row]) {
        return InvalidMap(absl::StrCat("row_order of split ", split_, " is no permutation"));
      }
      seen[row] = true;
      VOXCONV_RETURN_IF_ERROR(CheckRow(i, row));
    }
    return absl::OkStatus();
  }

 private:
  int64_t MaskAt(int64_t row) const { return (split_ * rows_ + row) * arrays_.words; }

  absl::Status CheckRow(int64_t position, int32_t row) const {
    for (int32_t k = first(); k < last(); ++k) {
      const int bit = k - first();
      VOXCONV_RETURN_IF_ERROR(CheckMaskBit(row, k, Word(row, bit / 32), bit % 32, Entry(row, k)));
      if (EntryAt(position, row, k) != Entry(row, k)) {
        return InvalidMap(
            absl::StrCat("ordered_table is wrong at offset ", k, ", position ", position));
      }
    }
    for (int w = 0; w < arrays_.words; ++w) {
      if (WordAt(position, row, w) != Word(row, w)) {
        return InvalidMap(absl::StrCat("ordered_masks is wrong at position ", position));
      }
    }
    return absl::OkStatus();
  }

  const MaskSortedArrays& arrays_;
  const HostMaskSorted& host_;
  int64_t split_, rows_, num_offsets_;
};

}  // namespace

absl::string_view ToString(MaskOrder order) {
  switch (order) {
    case MaskOrder::kNone:
      return "none";
    case MaskOrder::kMask:
      return "mask";
    case MaskOrder::kGray:
      return "gray";
    case MaskOrder::kRarest:
      return "rarest";
  }
  return "?";
}

std::string MaskSortedRule::Key() const {
  return absl::StrCat("mask_sorted:order=", ToString(order), ",splits=", splits);
}

absl::StatusOr<std::vector<int32_t>> SplitOffsets(int num_offsets, int splits) {
  if (splits < 1 || splits > std::max(1, num_offsets)) {
    return absl::InvalidArgumentError(
        absl::StrCat("splits ", splits, ": allowed are 1..", num_offsets));
  }
  std::vector<int32_t> split_ptr(splits + 1);
  for (int s = 0; s <= splits; ++s) {
    split_ptr[s] = static_cast<int32_t>(int64_t{num_offsets} * s / splits);
  }
  return split_ptr;
}

absl::StatusOr<MaskSortedArrays> MaskSortedArrays::Cut(int num_offsets, int splits) {
  MaskSortedArrays arrays;
  VOXCONV_ASSIGN_OR_RETURN(arrays.split_ptr, SplitOffsets(num_offsets, splits));
  int longest = 1;
  for (int s = 0; s < splits; ++s) {
    longest = std::max(longest, arrays.split_ptr[s + 1] - arrays.split_ptr[s]);
  }
  arrays.words = static_cast<int>(CeilDiv(longest, 32));
  return arrays;
}

MaskSorted::MaskSorted(const KernelMap& table, MaskOrder order, MaskSortedArrays arrays)
    : PreparedMap(TableOf(table, arrays.splits())), order_(order), arrays_(std::move(arrays)) {}

int64_t MaskSorted::bytes() const {
  const bool shares_masks = arrays_.masks.data() == map().table().masks.data();
  return map().bytes() + (shares_masks ? 0 : arrays_.masks.bytes()) + arrays_.row_order.bytes() +
         arrays_.ordered_table.bytes() + arrays_.ordered_masks.bytes();
}

absl::Status MaskSorted::Validate(const ExecutionContext& context) const {
  VOXCONV_RETURN_IF_ERROR(map().Validate(context));
  VOXCONV_RETURN_IF_ERROR(CheckSizes(*this));
  VOXCONV_ASSIGN_OR_RETURN(const HostMaskSorted host, CopyLayout(*this, context));
  for (int s = 0; s < arrays_.splits(); ++s) {
    VOXCONV_RETURN_IF_ERROR(HostSplit(*this, host, s).Check());
  }
  return absl::OkStatus();
}

absl::StatusOr<KernelMap> MaskSorted::ToPairs(const ExecutionContext& context) const {
  VOXCONV_RETURN_IF_ERROR(CheckSizes(*this));
  VOXCONV_ASSIGN_OR_RETURN(const HostMaskSorted host, CopyLayout(*this, context));
  const int64_t rows = map().num_outputs();
  std::vector<int64_t> offset_ptr = {0};
  std::vector<int32_t> in, out;
  for (int s = 0; s < arrays_.splits(); ++s) {
    const HostSplit split(*this, host, s);
    for (int32_t k = split.first(); k < split.last(); ++k) {
      std::vector<std::pair<int32_t, int32_t>> pairs;  // (output row, input row)
      for (int64_t i = 0; i < rows; ++i) {
        const int32_t row = split.Row(i);
        if (row < 0 || row >= rows) return InvalidMap(absl::StrCat("row_order has row ", row));
        if (split.HasAt(i, row, k)) pairs.emplace_back(row, split.EntryAt(i, row, k));
      }
      std::sort(pairs.begin(), pairs.end());
      for (const auto& [q, p] : pairs) {
        in.push_back(p);
        out.push_back(q);
      }
      offset_ptr.push_back(static_cast<int64_t>(in.size()));
    }
  }
  PairBuffers pairs;
  VOXCONV_ASSIGN_OR_RETURN(pairs.in, CopyToBackend<int32_t>(in, context));
  VOXCONV_ASSIGN_OR_RETURN(pairs.out, CopyToBackend<int32_t>(out, context));
  KernelMap result(map().num_inputs(), rows, std::move(offset_ptr), PairList(std::move(pairs)));
  result.set_identity_offset(map().identity_offset());
  result.set_symmetric(map().symmetric());
  return result;
}

}  // namespace voxconv
