// The steps that conversions of kernel maps are made of; internal to the CUDA backend.
#ifndef VOXCONV_BACKENDS_CUDA_CONVERT_KERNEL_MAP_H_
#define VOXCONV_BACKENDS_CUDA_CONVERT_KERNEL_MAP_H_

#include <cstdint>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/backend.h"
#include "core/kernel_map.h"

namespace voxconv {

// The map's own [N_out, K] table of input rows, null where its layout has none.
const SharedArray<int32_t>* NeighboursOf(const KernelMap& map);

// Which offsets each row of a map with a table has, as in NeighbourTable::masks: those that the map
// carries, or made from its table.
absl::StatusOr<SharedArray<uint32_t>> RowMasks(const KernelMap& map,
                                               const ExecutionContext& context);

// masks[(s * rows + q) * words + w]: as in MaskSorted, of the offsets that `split_ptr` cuts.
absl::StatusOr<Array<uint32_t>> SplitMasks(const int32_t* table, int64_t rows, int num_offsets,
                                           const std::vector<int32_t>& split_ptr, int words,
                                           const ExecutionContext& context);

// Exclusive prefix sum of the pairs of each offset (K + 1, host), of masks with ceil(K / 32) words
// a row. Synchronises.
absl::StatusOr<std::vector<int64_t>> CountMaskBits(const SharedArray<uint32_t>& masks, int64_t rows,
                                                   int num_offsets,
                                                   const ExecutionContext& context);

// From a map with a table to MaskSorted; counts may be unknown. O(rows x (K + sorting)).
absl::StatusOr<MaskSorted> ToMaskSorted(const KernelMap& map, const LayoutRequest& request,
                                        const ExecutionContext& context);
// From a map with a table; needs its counts.
absl::StatusOr<PairList> TableToPairs(const KernelMap& map, const ExecutionContext& context);
// From kDenseTables and kCodedCsr, which name every pair's position: one pass a side.
absl::StatusOr<PairList> DenseTablesToPairs(const KernelMap& map, const ExecutionContext& context);
absl::StatusOr<PairList> CodedCsrToPairs(const KernelMap& map, const ExecutionContext& context);

// From kPairs.
absl::StatusOr<NeighbourTable> PairsToTable(const KernelMap& map, const ExecutionContext& context);
// The transposed table: table[p * K + k] = output row, [N_in, K].
absl::StatusOr<Array<int32_t>> PairsToInputTable(const KernelMap& map,
                                                 const ExecutionContext& context);
absl::StatusOr<DenseTables> PairsToDenseTables(const KernelMap& map,
                                               const ExecutionContext& context);
absl::StatusOr<CodedCsr> PairsToCodedCsr(const KernelMap& map, const ExecutionContext& context);
// The neighbour table, masks included, of a map with a table; counts may be unknown. O(rows x K).
absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& map,
                                              const ExecutionContext& context);
absl::StatusOr<PairList> TransposePairs(const KernelMap& map, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CONVERT_KERNEL_MAP_H_
