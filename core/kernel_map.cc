#include "core/kernel_map.h"

#include <algorithm>

#include "absl/strings/str_cat.h"

namespace voxconv {
namespace {

absl::Status Invalid(const std::string& what) {
  return absl::InvalidArgumentError(absl::StrCat("kernel map: ", what));
}

absl::Status CheckSize(absl::string_view name, int64_t size, int64_t expected) {
  if (size == expected) return absl::OkStatus();
  return Invalid(absl::StrCat(name, " has ", size, " entries instead of ", expected));
}

// The alternatives of KernelMap::Storage stand in the order of MapLayout.
absl::Status CheckStorage(const KernelMap& map) {
  const MapLayout layout = map.layout().layout;
  const auto held = static_cast<MapLayout>(map.storage().index());
  if (layout == held) return absl::OkStatus();
  return Invalid(
      absl::StrCat("its layout is ", ToString(layout), ", but it holds ", ToString(held)));
}

absl::Status CheckCounts(const KernelMap& map) {
  if (!map.counts_known()) {
    const MapLayout layout = map.layout().layout;
    if (layout == MapLayout::kNeighbourTable || layout == MapLayout::kMaskSorted) {
      return map.num_offsets() >= 0 ? absl::OkStatus()
                                    : Invalid("offset_ptr must have an entry an offset and one");
    }
    return Invalid(absl::StrCat("the pairs are not counted; ", ToString(layout), " needs that"));
  }
  const std::vector<int64_t>& ptr = map.offset_ptr();
  if (ptr.front() != 0) {
    return Invalid(absl::StrCat("offset_ptr starts with ", ptr.front(), "; it must with 0"));
  }
  for (size_t k = 0; k + 1 < ptr.size(); ++k) {
    if (ptr[k] > ptr[k + 1]) return Invalid(absl::StrCat("offset_ptr descends at offset ", k));
  }
  return absl::OkStatus();
}

absl::Status CheckPairs(const KernelMap& map, absl::Span<const int32_t> in,
                        absl::Span<const int32_t> out) {
  for (int k = 0; k < map.num_offsets(); ++k) {
    for (int64_t i = map.offset_ptr()[k]; i < map.offset_ptr()[k + 1]; ++i) {
      if (in[i] < 0 || in[i] >= map.num_inputs() || out[i] < 0 || out[i] >= map.num_outputs()) {
        return Invalid(absl::StrCat("pair ", i, " (", in[i], ", ", out[i], ") of offset ", k,
                                    " is outside ", map.num_inputs(), " inputs and ",
                                    map.num_outputs(), " outputs"));
      }
      if (i > map.offset_ptr()[k] && out[i] <= out[i - 1]) {
        return Invalid(
            absl::StrCat("pair ", i, " of offset ", k, " does not ascend by output row"));
      }
    }
  }
  return absl::OkStatus();
}

// Every entry is -1 or in [0, limit), and column k has num_pairs(k) entries that are not -1.
absl::Status CheckTable(const KernelMap& map, absl::string_view name,
                        absl::Span<const int32_t> table, bool positions) {
  const int num_offsets = map.num_offsets();
  std::vector<int64_t> count(num_offsets, 0);
  for (size_t i = 0; i < table.size(); ++i) {
    const int k = static_cast<int>(i % num_offsets);
    const int64_t lo = positions ? map.offset_ptr()[k] : 0;
    const int64_t hi = positions ? map.offset_ptr()[k + 1] : map.num_inputs();
    if (table[i] == -1) continue;
    if (table[i] < lo || table[i] >= hi) {
      return Invalid(
          absl::StrCat(name, " entry ", i, " is ", table[i], ", outside ", lo, "..", hi));
    }
    ++count[k];
  }
  for (int k = 0; k < num_offsets; ++k) {
    if (count[k] != map.num_pairs(k)) {
      return Invalid(absl::StrCat(name, " has ", count[k], " pairs of offset ", k, " instead of ",
                                  map.num_pairs(k)));
    }
  }
  return absl::OkStatus();
}

absl::Status CheckCodes(const KernelMap& map, absl::string_view name, absl::Span<const int64_t> ptr,
                        absl::Span<const uint32_t> codes) {
  if (ptr.front() != 0 || ptr.back() != map.num_pairs()) {
    return Invalid(absl::StrCat(name, " row pointers do not span the ", map.num_pairs(), " pairs"));
  }
  // All of them before any code is read: a later descent may hide behind a pointer past the end.
  for (size_t row = 0; row + 1 < ptr.size(); ++row) {
    if (ptr[row] > ptr[row + 1]) {
      return Invalid(absl::StrCat(name, " row pointers descend at row ", row));
    }
  }
  const uint32_t num_offsets = map.num_offsets();
  for (size_t row = 0; row + 1 < ptr.size(); ++row) {
    for (int64_t i = ptr[row]; i < ptr[row + 1]; ++i) {
      const uint32_t k = codes[i] % num_offsets;
      const int64_t position = codes[i] / num_offsets;
      if (position < map.offset_ptr()[k] || position >= map.offset_ptr()[k + 1] ||
          (i > ptr[row] && k <= codes[i - 1] % num_offsets)) {
        return Invalid(absl::StrCat(name, " code ", codes[i], " of row ", row, " is wrong"));
      }
    }
  }
  return absl::OkStatus();
}

// What the flags promise: dataflows multiply the identity offset's rows without looking at its
// pairs, and mirror the grouping of a symmetric map.
absl::Status CheckFlags(const KernelMap& map) {
  const int identity = map.identity_offset();
  if (identity < -1 || identity >= map.num_offsets()) {
    return Invalid(
        absl::StrCat("identity offset ", identity, "; allowed are -1..", map.num_offsets() - 1));
  }
  if (identity >= 0 &&
      (map.num_inputs() != map.num_outputs() || map.num_pairs(identity) != map.num_outputs())) {
    return Invalid(absl::StrCat("identity offset ", identity, " has ", map.num_pairs(identity),
                                " pairs of ", map.num_inputs(), " inputs and ", map.num_outputs(),
                                " outputs; all three must be equal"));
  }
  const int last = map.num_offsets() - 1;
  for (int k = 0; map.symmetric() && k <= last; ++k) {
    if (map.num_pairs(k) != map.num_pairs(last - k)) {
      return Invalid(absl::StrCat("symmetric, but offsets ", k, " and ", last - k, " have ",
                                  map.num_pairs(k), " and ", map.num_pairs(last - k), " pairs"));
    }
  }
  return absl::OkStatus();
}

// The splits cut the offsets, in order and all of them, into parts whose bits fit the words.
absl::Status CheckSplits(const MaskSorted& layout, int num_offsets) {
  const std::vector<int32_t>& ptr = layout.split_ptr;
  if (ptr.size() < 2 || ptr.front() != 0 || ptr.back() != num_offsets) {
    return Invalid(absl::StrCat("split_ptr does not span the ", num_offsets, " offsets"));
  }
  for (size_t s = 0; s + 1 < ptr.size(); ++s) {
    if (ptr[s] > ptr[s + 1] || ptr[s + 1] - ptr[s] > int64_t{32} * layout.words) {
      return Invalid(absl::StrCat("split ", s, " is ", ptr[s], "..", ptr[s + 1],
                                  "; it must ascend and fit ", layout.words, " words"));
    }
  }
  return absl::OkStatus();
}

class Validator {
 public:
  Validator(const KernelMap& map, const ExecutionContext& context) : map_(map), context_(context) {}

  absl::Status operator()(const PairList& pairs) {
    VOXCONV_ASSIGN_OR_RETURN(auto in, CopyToHost(pairs.in, context_));
    VOXCONV_ASSIGN_OR_RETURN(auto out, CopyToHost(pairs.out, context_));
    return CheckPairs(map_, in, out);
  }
  absl::Status operator()(const NeighbourTable& layout) {
    VOXCONV_RETURN_IF_ERROR(
        Table("table", layout.table.array(), map_.num_outputs(), /*positions=*/false));
    return layout.masks.empty() ? absl::OkStatus() : TableMasks(layout);
  }
  absl::Status operator()(const DenseTables& layout) {
    VOXCONV_RETURN_IF_ERROR(Table("in_table", layout.in_table, map_.num_inputs(), true));
    return Table("out_table", layout.out_table, map_.num_outputs(), true);
  }
  absl::Status operator()(const CodedCsr& layout) {
    VOXCONV_RETURN_IF_ERROR(Codes("in", layout.in_ptr, layout.in_code, map_.num_inputs()));
    return Codes("out", layout.out_ptr, layout.out_code, map_.num_outputs());
  }
  absl::Status operator()(const MaskSorted& layout) {
    VOXCONV_RETURN_IF_ERROR(Table("table", layout.table.array(), map_.num_outputs(), false));
    return Masks(layout);
  }

 private:
  absl::Status Table(absl::string_view name, const Array<int32_t>& table, int64_t rows,
                     bool positions) {
    VOXCONV_RETURN_IF_ERROR(CheckSize(name, table.size(), rows * map_.num_offsets()));
    VOXCONV_ASSIGN_OR_RETURN(auto host, CopyToHost(table, context_));
    return CheckTable(map_, name, host, positions);
  }

  absl::Status Codes(absl::string_view name, const Array<int64_t>& ptr,
                     const Array<uint32_t>& codes, int64_t rows) {
    VOXCONV_RETURN_IF_ERROR(CheckSize(name, ptr.size(), rows + 1));
    VOXCONV_RETURN_IF_ERROR(CheckSize(name, codes.size(), map_.num_pairs()));
    VOXCONV_ASSIGN_OR_RETURN(auto host_ptr, CopyToHost(ptr, context_));
    VOXCONV_ASSIGN_OR_RETURN(auto host_codes, CopyToHost(codes, context_));
    return CheckCodes(map_, name, host_ptr, host_codes);
  }

  absl::Status TableMasks(const NeighbourTable& layout) {
    const int words = (map_.num_offsets() + 31) / 32;
    VOXCONV_ASSIGN_OR_RETURN(auto masks, CopyToHost(layout.masks.array(), context_));
    VOXCONV_ASSIGN_OR_RETURN(auto table, CopyToHost(layout.table.array(), context_));
    for (int64_t row = 0; row < map_.num_outputs(); ++row) {
      for (int k = 0; k < map_.num_offsets(); ++k) {
        VOXCONV_RETURN_IF_ERROR(CheckBit(row, k, masks[row * words + k / 32], k % 32,
                                         table[row * map_.num_offsets() + k]));
      }
      for (int k = map_.num_offsets(); k < 32 * words; ++k) {
        VOXCONV_RETURN_IF_ERROR(CheckBit(row, k, masks[row * words + k / 32], k % 32, -1));
      }
    }
    return absl::OkStatus();
  }

  static absl::Status CheckBit(int64_t row, int k, uint32_t word, int bit, int32_t entry) {
    if (((word >> bit) & 1) == static_cast<uint32_t>(entry >= 0)) return absl::OkStatus();
    return Invalid(absl::StrCat("mask of row ", row, " is wrong at offset ", k));
  }

  absl::Status Masks(const MaskSorted& layout) {
    const int64_t rows = map_.num_outputs();
    VOXCONV_RETURN_IF_ERROR(CheckSplits(layout, map_.num_offsets()));
    const int64_t splits = static_cast<int64_t>(layout.split_ptr.size()) - 1;
    VOXCONV_RETURN_IF_ERROR(CheckSize("split_ptr", splits, map_.layout().splits));
    const bool as_given =
        layout.row_order.size() == 0 && map_.layout().mask_order == MaskOrder::kNone;
    VOXCONV_RETURN_IF_ERROR(
        CheckSize("row_order", layout.row_order.size(), as_given ? 0 : splits * rows));
    VOXCONV_RETURN_IF_ERROR(CheckSize("masks", layout.masks.size(), splits * rows * layout.words));
    VOXCONV_ASSIGN_OR_RETURN(auto order, CopyToHost(layout.row_order, context_));
    VOXCONV_ASSIGN_OR_RETURN(auto masks, CopyToHost(layout.masks.array(), context_));
    VOXCONV_ASSIGN_OR_RETURN(auto table, CopyToHost(layout.table.array(), context_));
    VOXCONV_RETURN_IF_ERROR(Ordered(layout, order, masks, table));
    for (int64_t s = 0; s < splits; ++s) {
      std::vector<bool> seen(rows, false);
      for (int64_t i = 0; i < rows; ++i) {
        const int32_t row = as_given ? static_cast<int32_t>(i) : order[s * rows + i];
        if (row < 0 || row >= rows || seen[row]) {
          return Invalid(absl::StrCat("row_order of split ", s, " is no permutation"));
        }
        seen[row] = true;
        for (int32_t k = layout.split_ptr[s]; k < layout.split_ptr[s + 1]; ++k) {
          const int bit = k - layout.split_ptr[s];
          const uint32_t word = masks[(s * rows + row) * layout.words + bit / 32];
          VOXCONV_RETURN_IF_ERROR(
              CheckBit(row, k, word, bit % 32, table[int64_t{row} * map_.num_offsets() + k]));
        }
      }
    }
    return absl::OkStatus();
  }

  // What is kept by position a second time.
  absl::Status Ordered(const MaskSorted& layout, const std::vector<int32_t>& order,
                       const std::vector<uint32_t>& masks, const std::vector<int32_t>& table) {
    if (layout.ordered_table.size() == 0 && layout.ordered_masks.size() == 0) {
      return absl::OkStatus();
    }
    const int64_t rows = map_.num_outputs(), offsets = map_.num_offsets();
    VOXCONV_RETURN_IF_ERROR(
        CheckSize("ordered_table", layout.ordered_table.size(), rows * offsets));
    VOXCONV_RETURN_IF_ERROR(
        CheckSize("ordered_masks", layout.ordered_masks.size(), layout.masks.size()));
    VOXCONV_ASSIGN_OR_RETURN(auto ordered_table, CopyToHost(layout.ordered_table, context_));
    VOXCONV_ASSIGN_OR_RETURN(auto ordered_masks, CopyToHost(layout.ordered_masks, context_));
    for (size_t s = 0; s + 1 < layout.split_ptr.size(); ++s) {
      for (int64_t i = 0; i < rows; ++i) {
        const int64_t at = static_cast<int64_t>(s) * rows, row = order[at + i];
        for (int32_t k = layout.split_ptr[s]; k < layout.split_ptr[s + 1]; ++k) {
          if (ordered_table[k * rows + i] != table[row * offsets + k]) {
            return Invalid(absl::StrCat("ordered_table is wrong at offset ", k, ", position ", i));
          }
        }
        for (int w = 0; w < layout.words; ++w) {
          if (ordered_masks[(at + i) * layout.words + w] != masks[(at + row) * layout.words + w]) {
            return Invalid(absl::StrCat("ordered_masks is wrong at position ", i));
          }
        }
      }
    }
    return absl::OkStatus();
  }

  const KernelMap& map_;
  const ExecutionContext& context_;
};

struct ByteCounter {
  int64_t operator()(const PairList& l) const { return l.in.bytes() + l.out.bytes(); }
  int64_t operator()(const NeighbourTable& l) const { return l.table.bytes() + l.masks.bytes(); }
  int64_t operator()(const DenseTables& l) const {
    return l.in_table.bytes() + l.out_table.bytes();
  }
  int64_t operator()(const CodedCsr& l) const {
    return l.in_ptr.bytes() + l.out_ptr.bytes() + l.in_code.bytes() + l.out_code.bytes();
  }
  int64_t operator()(const MaskSorted& l) const {
    return l.table.bytes() + l.masks.bytes() + l.row_order.bytes() + l.ordered_table.bytes() +
           l.ordered_masks.bytes();
  }
};

}  // namespace

absl::string_view ToString(MapLayout layout) {
  switch (layout) {
    case MapLayout::kPairs:
      return "pairs";
    case MapLayout::kNeighbourTable:
      return "neighbour_table";
    case MapLayout::kDenseTables:
      return "dense_tables";
    case MapLayout::kCodedCsr:
      return "coded_csr";
    case MapLayout::kMaskSorted:
      return "mask_sorted";
  }
  return "?";
}

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

int64_t KernelMap::bytes() const { return std::visit(ByteCounter{}, storage_); }

absl::Status KernelMap::EnsureCounts(const ExecutionContext& context) const {
  if (counts_known()) return absl::OkStatus();
  VOXCONV_ASSIGN_OR_RETURN(offset_ptr_, context.backend->CountPairs(*this, context));
  VOXCONV_CHECK(static_cast<int>(offset_ptr_.size()) == num_offsets_ + 1);
  return absl::OkStatus();
}

absl::Status KernelMap::CheckSizes() const {
  VOXCONV_RETURN_IF_ERROR(CheckStorage(*this));
  VOXCONV_RETURN_IF_ERROR(CheckCounts(*this));
  if (const auto* pairs = std::get_if<PairList>(&storage_)) {
    VOXCONV_RETURN_IF_ERROR(CheckSize("in", pairs->in.size(), num_pairs()));
    return CheckSize("out", pairs->out.size(), num_pairs());
  }
  const auto* layout = std::get_if<NeighbourTable>(&storage_);
  if (layout == nullptr) return absl::OkStatus();
  VOXCONV_RETURN_IF_ERROR(CheckSize("table", layout->table.size(), num_outputs_ * num_offsets_));
  if (layout->masks.empty()) return absl::OkStatus();
  const int64_t words = (num_offsets_ + 31) / 32;
  return CheckSize("masks", layout->masks.size(), num_outputs_ * words);
}

absl::Status KernelMap::Validate(const ExecutionContext& context) const {
  // Before the counting, which reads the table.
  VOXCONV_RETURN_IF_ERROR(CheckSizes());
  VOXCONV_RETURN_IF_ERROR(EnsureCounts(context));
  VOXCONV_RETURN_IF_ERROR(CheckFlags(*this));
  return std::visit(Validator(*this, context), storage_);
}

}  // namespace voxconv
