// SPDX-License-Identifier: Apache-2.0
// The CUDA algorithms of the output coordinate plugins.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_

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
};

// OutputCoords::Begin. It computes levels with upper bounds of their sizes. The host thus waits
// once for all sizes and bounds, in Finish. Some upper bounds are too large to allocate, or to go
// over. Finish computes their levels, in groups, and waits once more for each group.
absl::StatusOr<std::unique_ptr<PendingCoordinates>> BeginChainCuda(
    ExpansionCuda expansion, const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
    const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_
