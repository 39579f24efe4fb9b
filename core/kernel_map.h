// The contract between mappings and dataflows: which input row meets which output row under which
// kernel offset.
#ifndef VOXCONV_CORE_KERNEL_MAP_H_
#define VOXCONV_CORE_KERNEL_MAP_H_

#include <cstdint>
#include <memory>
#include <utility>
#include <variant>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "core/backend.h"

namespace voxconv {

// How a map is written down. Mappings make one of the two forms; MapOps (core/map_ops.h) turns one
// into the other. Whatever else a dataflow wants to read, it makes of these (core/dataflow.h).
// kNone: the arrays were left out (KernelMap::WithoutArrays).
enum class MapForm { kPairs, kNeighbourTable, kNone };

absl::string_view ToString(MapForm form);

// Row indices are int32: a coordinate set has fewer than 2^31 rows. Positions of pairs are int64.

// The canonical form. The pairs of offset k are those at [offset_ptr[k], offset_ptr[k + 1]), and
// ascend by output row. An output row occurs at most once under an offset, so the form is unique.
struct PairList {
  SharedArray<int32_t> in, out;  // [number of pairs]
};

// Pairs while they are written. Ownership goes to a PairList when they are complete.
struct PairBuffers {
  Array<int32_t> in, out;
  static absl::StatusOr<PairBuffers> Allocate(int64_t size, const ExecutionContext& context);
  operator PairList() && {  // NOLINT(google-explicit-constructor): a change of ownership only
    return {std::move(in), std::move(out)};
  }
};

// table[q * K + k] is the input row that output row q meets under offset k, or -1. Luo & Lai's
// offset table (OFT).
struct NeighbourTable {
  SharedArray<int32_t> table;  // [N_out, K]
  // Bit k % 32 of masks[q * words + k / 32] tells whether row q has offset k; words = ceil(K / 32).
  // Empty unless the mapping made the masks as a by-product.
  SharedArray<uint32_t> masks;
};

// Immutable, except that pairs may be counted late. Copies share the arrays and the counts, so that
// a copy costs nothing. The arrays are in the memory of one backend.
class KernelMap {
 public:
  using Storage = std::variant<PairList, NeighbourTable, std::monostate>;

  // No inputs, outputs or offsets.
  KernelMap();
  // `offset_ptr` (host, K + 1 entries) is the exclusive prefix sum of the pairs of each offset.
  KernelMap(int64_t num_inputs, int64_t num_outputs, std::vector<int64_t> offset_ptr,
            Storage storage);
  // A neighbour table whose pairs have not been counted: a device made it, and the host did not
  // wait for it.
  KernelMap(int64_t num_inputs, int64_t num_outputs, int num_offsets, NeighbourTable table);

  // The same map in another form. Shares the counts, and keeps the flags.
  KernelMap WithStorage(Storage storage) const;
  // The same map without its arrays: sizes, counts and flags. O(1).
  KernelMap WithoutArrays() const { return WithStorage(std::monostate()); }
  // The sizes and flags of the map with inputs and outputs exchanged, with `storage`. Offset k of
  // the result has the pairs of offset k of this map, so the counts are shared too.
  KernelMap Transposed(Storage storage) const;

  int64_t num_inputs() const { return num_inputs_; }
  int64_t num_outputs() const { return num_outputs_; }
  int num_offsets() const { return num_offsets_; }
  MapForm form() const { return static_cast<MapForm>(storage_.index()); }

  // Whether the pairs have been counted, and the counts are on the host. They always are, except
  // for tables that a device made.
  bool counts_known() const { return !counts_->empty(); }
  // Counts the pairs unless they are known. Synchronises the stream if it counts. Not thread-safe.
  // kFailedPrecondition for a map without arrays.
  absl::Status EnsureCounts(const ExecutionContext& context) const;
  // These three need known counts (checked).
  const std::vector<int64_t>& offset_ptr() const {
    VOXCONV_CHECK(counts_known());
    return *counts_;
  }
  int64_t num_pairs() const { return offset_ptr().back(); }
  int64_t num_pairs(int k) const { return offset_ptr()[k + 1] - offset_ptr()[k]; }

  // The offset under which every row meets itself (ConvGeometry::center), or -1. Whoever builds a
  // map of a submanifold geometry sets it.
  int identity_offset() const { return identity_offset_; }
  void set_identity_offset(int k) { identity_offset_ = k; }
  // Offset k's pairs are those of offset K-1-k with inputs and outputs exchanged
  // (ConvGeometry::symmetric).
  bool symmetric() const { return symmetric_; }
  void set_symmetric(bool symmetric) { symmetric_ = symmetric; }

  // The arrays. The map must have that form (checked).
  const PairList& pairs() const {
    VOXCONV_CHECK(form() == MapForm::kPairs);
    return std::get<PairList>(storage_);
  }
  const NeighbourTable& table() const {
    VOXCONV_CHECK(form() == MapForm::kNeighbourTable);
    return std::get<NeighbourTable>(storage_);
  }
  // Bytes of the arrays, which copies share.
  int64_t bytes() const;

  // Checks what can be told without looking into the arrays: the counts ascend, and the arrays have
  // their sizes. O(K). Queues no work. kInvalidArgument names what is wrong.
  absl::Status CheckSizes() const;
  // Checks every invariant on a host copy: for tests, for maps of plugins, for files. O(size of the
  // map). Synchronises the stream. kInvalidArgument names what is wrong.
  absl::Status Validate(const ExecutionContext& context) const;

 private:
  int64_t num_inputs_ = 0;
  int64_t num_outputs_ = 0;
  int num_offsets_ = 0;
  std::shared_ptr<std::vector<int64_t>> counts_;  // offset_ptr; empty: not counted yet
  Storage storage_;
  int identity_offset_ = -1;
  bool symmetric_ = false;
};

// For validators of layouts that are made of a map. Each entry of column k of `table` ([rows, K],
// row-major) must be -1 or in [low(k), high(k)), and column k must have num_pairs(k) entries that
// are not -1. kInvalidArgument names `name` and the first entry that is wrong.
absl::Status CheckTableEntries(const KernelMap& map, absl::string_view name,
                               absl::Span<const int32_t> table, bool positions);
// kInvalidArgument unless `size` is `expected`.
absl::Status CheckArraySize(absl::string_view name, int64_t size, int64_t expected);
// kInvalidArgument unless bit `bit` of `word` tells whether `entry` is a row.
absl::Status CheckMaskBit(int64_t row, int k, uint32_t word, int bit, int32_t entry);
// kInvalidArgument with "kernel map: " before `what`.
absl::Status InvalidMap(absl::string_view what);

}  // namespace voxconv

#endif  // VOXCONV_CORE_KERNEL_MAP_H_
