// SPDX-License-Identifier: Apache-2.0
// The CUDA algorithms of the output coordinate plugins.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_

#include <cstdint>
#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// How inputs become outputs, sorted and without repetitions.
enum class ExpansionCuda {
  // TorchSparse Algorithm 3, with a kernel for each step: candidates, modular check, boundary check
  // and compaction. A sort and unique follow, as in kSortUnique.
  kStaged,
  // One kernel does all steps and marks outputs in a bitmap over their box. Reading the bitmap in
  // order gives the outputs sorted and without repetitions. If the bitmap would be too large, the
  // kernel appends outputs to a list, which is then sorted.
  kFused,
  // TorchSparse's fused kernel as it is: one kernel does all steps and appends outputs to a list,
  // which is sorted. Unique follows.
  kAppended,
  // One kernel writes the outputs of each input; a radix sort over the bits in use, then unique.
  kSortUnique,
  // Luo and Lai's: one kernel takes a cell's place in a table, and the next place of the list from
  // an atomic counter. A radix sort follows.
  kLocationTable,
};

struct ExpansionRuleCuda {
  ExpansionCuda expansion = ExpansionCuda::kSortUnique;
  int64_t max_table_bytes = 0;  // kLocationTable: the largest array; beyond it a hash table
};

// OutputCoords::Begin. It computes levels with upper bounds of their sizes. The host thus waits
// once for all sizes and bounds, in Finish. Some upper bounds are too large to allocate, or to go
// over. Finish computes their levels, in groups, and waits once more for each group.
absl::StatusOr<std::unique_ptr<PendingCoordinates>> BeginChainCuda(
    const ExpansionRuleCuda& rule, const CoordinateSet& inputs,
    absl::Span<const ConvGeometry> geometries, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_
