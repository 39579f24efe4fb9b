// The contract between mappings and dataflows.
#ifndef VOXCONV_CORE_KERNEL_MAP_H_
#define VOXCONV_CORE_KERNEL_MAP_H_

#include <cstdint>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/backend.h"

namespace voxconv {

enum class MapLayout { kPairs, kNeighbourTable, kDenseTables, kCodedCsr, kMaskSorted };
// Order of the output rows in kMaskSorted: as given, by mask value, by the mask read as a Gray code
// (neighbours in that order differ in few bits), or by its two rarest offsets (core/mask_order.h).
enum class MaskOrder { kNone, kMask, kGray, kRarest };

absl::string_view ToString(MapLayout layout);
absl::string_view ToString(MaskOrder order);

struct LayoutRequest {
  MapLayout layout = MapLayout::kPairs;
  MaskOrder mask_order = MaskOrder::kNone;  // kMaskSorted only
  int splits = 1;                           // kMaskSorted only: parts of the offset range, 1..K

  friend bool operator==(const LayoutRequest&, const LayoutRequest&) = default;
  template <typename H>
  friend H AbslHashValue(H h, const LayoutRequest& r) {
    return H::combine(std::move(h), static_cast<int>(r.layout), static_cast<int>(r.mask_order),
                      r.splits);
  }
};

// Row indices are int32 (a set has fewer than 2^31 rows); pair positions are int64 wherever they
// are stored per offset, int32 in the position tables, which are refused past 2^31 pairs.

// Canonical form. Pairs of offset k at [offset_ptr[k], offset_ptr[k+1]), ascending by output row:
// an output row occurs at most once an offset, so the order is total and the form unique.
struct PairList {
  Array<int32_t> in, out;
};

// table[q * K + k] = input row, -1 = none. Luo & Lai's offset table (OFT).
struct NeighbourTable {
  SharedArray<int32_t> table;  // [N_out, K]
  // Bit k % 32 of masks[q * words + k / 32], words = ceil(K / 32): whether row q has offset k.
  // Empty where the mapping did not make them as a by-product.
  SharedArray<uint32_t> masks;
};

// Positions in the canonical pair list, -1 = none: in_table[p * K + k], out_table[q * K + k].
// TorchSparse's and Minuet's tables for gather and scatter.
struct DenseTables {
  Array<int32_t> in_table;   // [N_in, K]
  Array<int32_t> out_table;  // [N_out, K]
};

// PCEngine's coded CSR (Section 4): code = k + K * position; the codes of input row p at
// [in_ptr[p], in_ptr[p+1]), ascending by k; likewise for outputs. Refused when K * pairs >= 2^32.
struct CodedCsr {
  Array<int64_t> in_ptr, out_ptr;  // [N_in + 1], [N_out + 1]
  Array<uint32_t> in_code, out_code;
};

// For output-stationary implicit GEMM: per split s, which offsets each output row has and in which
// order the rows are processed. Split s covers offsets [split_ptr[s], split_ptr[s+1]).
struct MaskSorted {
  SharedArray<int32_t> table;  // [N_out, K], as in NeighbourTable
  // [splits, N_out, words]; bit j of the row's words: offset split_ptr[s] + j.
  SharedArray<uint32_t> masks;
  // [splits, N_out]: position -> output row. May be empty where the mask order is kNone: the rows
  // as given.
  Array<int32_t> row_order;
  // The same by position, for those who process rows in that order; empty where a backend does not
  // make them. ordered_table[k * N_out + i]: the input of row row_order[s, i] under offset k, s the
  // split that has k. ordered_masks[s, i]: the masks of row row_order[s, i].
  Array<int32_t> ordered_table;
  Array<uint32_t> ordered_masks;
  int words = 1;
  std::vector<int32_t> split_ptr;  // [splits + 1], host
};

// MaskSorted::split_ptr: `splits` parts of the offsets that differ by one offset at most. Refuses
// anything but 1..num_offsets (1 without offsets).
absl::StatusOr<std::vector<int32_t>> SplitOffsets(int num_offsets, int splits);

// Which input row meets which output row under which kernel offset. Immutable once built (but for
// counts that come late); in the memory of one backend.
class KernelMap {
 public:
  using Storage = std::variant<PairList, NeighbourTable, DenseTables, CodedCsr, MaskSorted>;

  KernelMap() = default;
  // `offset_ptr` (host, K + 1 entries) counts the pairs of every offset, whatever the layout.
  KernelMap(int64_t num_inputs, int64_t num_outputs, std::vector<int64_t> offset_ptr,
            LayoutRequest layout, Storage storage)
      : num_inputs_(num_inputs),
        num_outputs_(num_outputs),
        offset_ptr_(std::move(offset_ptr)),
        layout_(layout),
        storage_(std::move(storage)),
        num_offsets_(static_cast<int>(offset_ptr_.size()) - 1) {}
  // A map whose pairs have not been counted: what a device found and the host has not waited for.
  // Tables only (kNeighbourTable, kMaskSorted), whose size does not depend on the count.
  KernelMap(int64_t num_inputs, int64_t num_outputs, int num_offsets, LayoutRequest layout,
            Storage storage)
      : num_inputs_(num_inputs),
        num_outputs_(num_outputs),
        offset_ptr_(),
        layout_(layout),
        storage_(std::move(storage)),
        num_offsets_(num_offsets) {}

  int64_t num_inputs() const { return num_inputs_; }
  int64_t num_outputs() const { return num_outputs_; }
  int num_offsets() const { return num_offsets_; }

  // Whether the counts below are on the host. Always, but for tables that a device made.
  bool counts_known() const { return !offset_ptr_.empty(); }
  // Counts the pairs where that has not been done yet; synchronises the stream then. Not
  // thread-safe.
  absl::Status EnsureCounts(const ExecutionContext& context) const;
  // All need known counts (checked).
  const std::vector<int64_t>& offset_ptr() const {
    VOXCONV_CHECK(counts_known());
    return offset_ptr_;
  }
  int64_t num_pairs() const { return offset_ptr().back(); }
  int64_t num_pairs(int k) const { return offset_ptr()[k + 1] - offset_ptr_[k]; }
  const LayoutRequest& layout() const { return layout_; }

  // The offset under which every row meets itself (ConvGeometry::center), or -1. Set by whoever
  // built the map from a submanifold geometry, and kept by conversions.
  int identity_offset() const { return identity_offset_; }
  void set_identity_offset(int k) { identity_offset_ = k; }
  // Offset k's map is the transpose of offset K-1-k's (ConvGeometry::symmetric).
  bool symmetric() const { return symmetric_; }
  void set_symmetric(bool symmetric) { symmetric_ = symmetric; }

  template <typename Layout>
  const Layout& As() const {
    VOXCONV_CHECK(std::holds_alternative<Layout>(storage_));
    return std::get<Layout>(storage_);
  }
  const Storage& storage() const { return storage_; }
  // Bytes held in the backend's memory.
  int64_t bytes() const;

  // What can be told without looking into the arrays: the storage is that of the layout, the counts
  // ascend and are there where the layout needs them, and the arrays of kPairs and kNeighbourTable
  // have their sizes. O(num_offsets); queues no work.
  absl::Status CheckSizes() const;
  // Checks every invariant of the layout on a host copy; for tests, maps of plugins and files read
  // from outside. Synchronises the stream. O(size of the map).
  absl::Status Validate(const ExecutionContext& context) const;

 private:
  int64_t num_inputs_ = 0;
  int64_t num_outputs_ = 0;
  mutable std::vector<int64_t> offset_ptr_{0};  // empty: not counted yet
  LayoutRequest layout_;
  Storage storage_;
  int num_offsets_ = 0;
  int identity_offset_ = -1;
  bool symmetric_ = false;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_KERNEL_MAP_H_
