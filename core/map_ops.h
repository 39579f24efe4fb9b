// Kernel maps between their forms, implemented once a backend.
#ifndef VOXCONV_CORE_MAP_OPS_H_
#define VOXCONV_CORE_MAP_OPS_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/kernel_map.h"

namespace voxconv {

// Maps are in the memory of the context's backend. Results are queued on the context's stream.
class MapOps {
 public:
  virtual ~MapOps() = default;

  // The map in `form` (kPairs or kNeighbourTable): the map itself where it has that form. Counts
  // the pairs of a table that is turned into pairs, which synchronises the stream if they are not
  // counted yet. Records Stage::kConvert where it converts. O(N_out * K). Errors of
  // KernelMap::CheckSizes, and kResourceExhausted.
  absl::StatusOr<KernelMap> To(MapForm form, const KernelMap& map, const ExecutionContext& context);
  // The map with inputs and outputs exchanged: offset k has the pairs (q, p) of this map's pairs
  // (p, q). A table whose pairs are not counted becomes a table, and no work waits. Every other map
  // becomes pairs in canonical order. Records Stage::kConvert. O(N_in * K + pairs).
  absl::StatusOr<KernelMap> Transpose(const KernelMap& map, const ExecutionContext& context);
  // KernelMap::EnsureCounts asks this: the exclusive prefix sum (host, K + 1 entries) over the
  // offsets of the pairs of a neighbour table. Synchronises the stream.
  virtual absl::StatusOr<std::vector<int64_t>> CountPairs(const KernelMap& table,
                                                          const ExecutionContext& context) = 0;

 protected:
  virtual absl::StatusOr<PairList> TableToPairs(const KernelMap& table,
                                                const ExecutionContext& context) = 0;
  virtual absl::StatusOr<NeighbourTable> PairsToTable(const KernelMap& pairs,
                                                      const ExecutionContext& context) = 0;
  virtual absl::StatusOr<PairList> TransposePairs(const KernelMap& pairs,
                                                  const ExecutionContext& context) = 0;
  // [N_in, K], masks included where the backend makes them.
  virtual absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& table,
                                                        const ExecutionContext& context) = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_CORE_MAP_OPS_H_
