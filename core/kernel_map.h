// SPDX-License-Identifier: Apache-2.0
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
#include "voxconv/core/backend.h"

namespace voxconv {

class PendingCounts;

// How a map is stored. A mapping makes one of the first three forms. MapOps (core/map_ops.h) turns
// each into the others. A dataflow that reads another layout makes it of one of these forms
// (core/dataflow.h). kLookup: there are no arrays, and neighbours are found when they are asked
// for. kNone: the arrays were left out (KernelMap::WithoutArrays).
enum class MapForm { kPairs, kNeighbourTable, kLookup, kNone };

absl::string_view ToString(MapForm form);

// Row indices are int32: a coordinate set has fewer than 2^31 rows. Positions of pairs are int64.

// The canonical form. Pair i says that input row in[i] meets output row out[i]. The pairs of offset
// k are at [offset_ptr[k], offset_ptr[k + 1]), and ascend by output row. An output row occurs at
// most once under an offset, as does an input row. Maps of the same pairs have the same arrays.
struct PairList {
  SharedArray<int32_t> in, out;  // [number of pairs]
};

// Pairs that are still being written. A complete one is moved into a PairList.
struct PairBuffers {
  Array<int32_t> in, out;
  // Two uninitialised arrays of `size` entries in the backend's memory. Errors of AllocateArray.
  static absl::StatusOr<PairBuffers> Allocate(int64_t size, const ExecutionContext& context);
  operator PairList() && {  // NOLINT(google-explicit-constructor): a change of ownership only
    return {std::move(in), std::move(out)};
  }
};

// table[q * K + k] is the input row that output row q meets under offset k, or -1. A column has an
// input row at most once. Luo & Lai's offset table (OFT).
struct NeighbourTable {
  SharedArray<int32_t> table;  // [N_out, K]
  // Bit k % 32 of masks[q * words + k / 32] is set if row q has offset k, with words = ceil(K /
  // 32). Bits past K are 0. Empty unless the mapping made the masks as a by-product.
  SharedArray<uint32_t> masks;
};

// Finds neighbours when a dataflow asks for them (H-CNN, Algorithm 1). A mapping's lookup keeps
// what it needs of the index, and of the coordinates: it may outlive both. Immutable. Serves any
// number of threads and streams. Must not outlive the backend.
class NeighbourLookup {
 public:
  virtual ~NeighbourLookup() = default;
  // Writes the rows [first, first + count) of the map's neighbour table: table[i * K + k] is the
  // input row that output row first + i meets under offset k, or -1. `table` is in the backend's
  // memory. Queued on the context's stream. Does not synchronise it, and copies nothing from or to
  // the host if the backend is asynchronous. Records Stage::kMapQuery, and adds the number of
  // lookups to Counters::queries. O(count * K). kResourceExhausted without memory.
  virtual absl::Status Find(int64_t first, int64_t count, int32_t* table,
                            const ExecutionContext& context) const = 0;
  // Bytes in the backend's memory that the lookup keeps, those of an index included.
  virtual int64_t bytes() const = 0;
};
using NeighbourLookupPtr = std::shared_ptr<const NeighbourLookup>;

// A kernel map. Immutable, except that pairs may be counted late. Copies share the arrays and the
// counts, so that a copy costs O(1). The arrays are in the memory of one backend, and must not
// outlive it. Constructors do not check sizes; CheckSizes does.
class KernelMap {
 public:
  using Storage = std::variant<PairList, NeighbourTable, NeighbourLookupPtr, std::monostate>;

  // No inputs, outputs or offsets.
  KernelMap();
  // `offset_ptr` (host, K + 1 entries): entry k is the number of pairs of the offsets before k.
  KernelMap(int64_t num_inputs, int64_t num_outputs, std::vector<int64_t> offset_ptr,
            Storage storage);
  // A neighbour table whose pairs have not been counted, because a device made it and the host did
  // not wait.
  KernelMap(int64_t num_inputs, int64_t num_outputs, int num_offsets, NeighbourTable table);
  // A map whose neighbours are found on demand. Its pairs are not counted.
  KernelMap(int64_t num_inputs, int64_t num_outputs, int num_offsets, NeighbourLookupPtr lookup);

  // The same map with `storage`, another form of it. Shares the counts and keeps the flags. O(1).
  KernelMap WithStorage(Storage storage) const;
  // The same map without its arrays: sizes, counts and flags. O(1).
  KernelMap WithoutArrays() const { return WithStorage(std::monostate()); }
  // The map with inputs and outputs exchanged. `storage` holds its arrays. Keeps the flags. Offset
  // k of the result has as many pairs as offset k of this map, so that the counts are shared. O(1).
  KernelMap Transposed(Storage storage) const;

  int64_t num_inputs() const { return num_inputs_; }
  int64_t num_outputs() const { return num_outputs_; }
  int num_offsets() const { return num_offsets_; }
  MapForm form() const { return static_cast<MapForm>(storage_.index()); }

  // Whether the counts of the pairs are on the host. A table that a device made may lack them, and
  // so may a lookup.
  bool counts_known() const { return !counts_->offset_ptr.empty(); }
  // Queues the counting of the pairs, so that EnsureCounts need not wait for work that is queued
  // later. Does nothing if the pairs are counted, or are being counted. Does not synchronise. Not
  // thread-safe. O(N_out * K). To count, a lookup finds all neighbours, in a table that is dropped
  // afterwards. kFailedPrecondition as EnsureCounts.
  absl::Status StartCounting(const ExecutionContext& context) const;
  // Counts the pairs unless the counts are known. All copies of the map know them afterwards. Waits
  // for the device unless it has counted already. Not thread-safe. As StartCounting if it counts,
  // else O(1). kFailedPrecondition for a map without arrays whose pairs were not counted.
  absl::Status EnsureCounts(const ExecutionContext& context) const;
  // These three need known counts (checked). num_pairs(k): the pairs of offset k.
  const std::vector<int64_t>& offset_ptr() const {
    VOXCONV_CHECK(counts_known());
    return counts_->offset_ptr;
  }
  int64_t num_pairs() const { return offset_ptr().back(); }
  int64_t num_pairs(int k) const { return offset_ptr()[k + 1] - offset_ptr()[k]; }

  // The offset under which every row meets itself (ConvGeometry::center), or -1. Code that builds a
  // map of a submanifold geometry must set it.
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
  const NeighbourLookup& lookup() const {
    VOXCONV_CHECK(form() == MapForm::kLookup);
    return *std::get<NeighbourLookupPtr>(storage_);
  }
  // Bytes of the arrays, or of what the lookup keeps. Copies share them.
  int64_t bytes() const;

  // Checks that the map has arrays, that the counts ascend from 0, and that the arrays have the
  // sizes that the counts say. Does not look into the arrays. O(K). Queues no work.
  // kInvalidArgument names what is wrong.
  absl::Status CheckSizes() const;
  // Checks every invariant on a host copy: for tests, for maps of plugins, for files. Counts the
  // pairs. O(size of the map). Synchronises the stream. kInvalidArgument names what is wrong.
  absl::Status Validate(const ExecutionContext& context) const;

 private:
  int64_t num_inputs_ = 0;
  int64_t num_outputs_ = 0;
  int num_offsets_ = 0;
  struct Counts {
    std::vector<int64_t> offset_ptr;         // empty: not counted yet
    std::shared_ptr<PendingCounts> pending;  // null: not being counted
  };
  std::shared_ptr<Counts> counts_;
  Storage storage_;
  int identity_offset_ = -1;
  bool symmetric_ = false;
};

// The four functions below serve PreparedMap::Validate. All return kInvalidArgument.
//
// Checks a table [rows, K], row-major, on the host. An entry of column k must be -1 or lie in a
// range: with `positions` the positions of offset k's pairs, [offset_ptr[k], offset_ptr[k + 1]);
// otherwise the input rows, [0, num_inputs). Column k must have num_pairs(k) entries other than -1,
// all different. The counts must be known (checked). The message begins with `name` and names the
// first wrong entry. O(size of the table + bits for all values that the columns may have).
absl::Status CheckTableEntries(const KernelMap& map, absl::string_view name,
                               absl::Span<const int32_t> table, bool positions);
// Refuses an array `name` whose `size` is not `expected`.
absl::Status CheckArraySize(absl::string_view name, int64_t size, int64_t expected);
// Refuses a mask of row `row` unless bit `bit` of `word` is set exactly if `entry`, the row's table
// entry of offset `k`, is not negative.
absl::Status CheckMaskBit(int64_t row, int k, uint32_t word, int bit, int32_t entry);
// The error itself, with the message "kernel map: " and `what`.
absl::Status InvalidMap(absl::string_view what);

}  // namespace voxconv

#endif  // VOXCONV_CORE_KERNEL_MAP_H_
