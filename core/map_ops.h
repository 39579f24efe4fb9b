// SPDX-License-Identifier: Apache-2.0
// Changes of a kernel map's form and direction. Each backend implements them once.
#ifndef VOXCONV_CORE_MAP_OPS_H_
#define VOXCONV_CORE_MAP_OPS_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv {

// The pairs of a table that are being counted. Counting goes on without its map and its arrays. The
// backend and the stream must outlive the object.
class PendingCounts {
 public:
  virtual ~PendingCounts() = default;
  // Returns KernelMap's `offset_ptr`: K + 1 entries on the host. Waits for the device unless it has
  // counted already. Called once.
  virtual absl::StatusOr<std::vector<int64_t>> Take() = 0;
};

// Maps are in the memory of the context's backend, and so are results. The work is queued on the
// context's stream.
class MapOps {
 public:
  virtual ~MapOps() = default;

  // Returns the map in `form`, which is not kNone (checked). A map that has that form already is
  // returned as it is. To turn a table or a lookup into pairs, this counts the pairs; that
  // waits for the device if they are not counted yet. Nothing else synchronises. Of a lookup,
  // all neighbours are found once (NeighbourLookup::Find). A lookup of another form copies the rows
  // of its table, which it keeps. Records Stage::kConvert if it converts. O(N_out * K). Errors of
  // KernelMap::CheckSizes. kResourceExhausted if the memory does not suffice.
  absl::StatusOr<KernelMap> To(MapForm form, const KernelMap& map, const ExecutionContext& context);
  // Returns the map with inputs and outputs exchanged: offset k has a pair (q, p) for each pair
  // (p, q) of `map`. A table or a lookup whose pairs are not counted gives a table. Every other map
  // gives pairs in canonical order. Does not synchronise. Records Stage::kConvert. O((N_in + N_out)
  // * K). Errors as of To.
  absl::StatusOr<KernelMap> Transpose(const KernelMap& map, const ExecutionContext& context);
  // Counts the pairs of a neighbour table, for KernelMap::StartCounting. Does not synchronise.
  // O(N_out * K).
  virtual absl::StatusOr<std::shared_ptr<PendingCounts>> StartCounting(
      const KernelMap& table, const ExecutionContext& context) = 0;

 protected:
  // A backend implements these. The sizes of the map were checked, and it has the form that the
  // name says. Pairs are counted, except in TransposeTable. None may synchronise the stream.
  virtual absl::StatusOr<PairList> TableToPairs(const KernelMap& table,
                                                const ExecutionContext& context) = 0;
  virtual absl::StatusOr<NeighbourTable> PairsToTable(const KernelMap& pairs,
                                                      const ExecutionContext& context) = 0;
  virtual absl::StatusOr<PairList> TransposePairs(const KernelMap& pairs,
                                                  const ExecutionContext& context) = 0;
  // The result is [N_in, K]. It has masks if the backend makes them with it.
  virtual absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& table,
                                                        const ExecutionContext& context) = 0;
};

// Allocates a table [rows, num_offsets] in the memory of the context's backend. The entries are not
// initialised. kInvalidArgument if the bytes of the table do not fit into 64 bits.
// kResourceExhausted if the memory does not suffice.
absl::StatusOr<Array<int32_t>> AllocateTable(int64_t rows, int num_offsets,
                                             const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_CORE_MAP_OPS_H_
