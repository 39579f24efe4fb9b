// The CUDA algorithms of the output coordinate plugins.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_

#include <memory>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "core/mapping.h"

namespace voxconv {

// How inputs become outputs, once each and in order.
enum class ExpansionCuda {
  // TorchSparse Algorithm 3, a kernel for each step: candidates, modular check, boundary check,
  // compaction. Then as kSortUnique.
  kStaged,
  // All in one kernel, which marks outputs in a bitmap over their box; reading that in order gives
  // them sorted and once each. Where the bitmap would be too large, outputs are appended to a list
  // instead, and sorted.
  kFused,
  // One kernel writes the outputs of each input; a radix sort over the bits in use, then unique.
  kSortUnique,
};

// OutputCoords::Begin. Computes levels with upper bounds of their sizes, so that the host waits
// once for all sizes and bounds, in Finish. Levels whose bounds would grow past what it is sensible
// to allocate, or to go over where that takes work, are left for Finish, which then waits once more
// for each group of them.
absl::StatusOr<std::unique_ptr<PendingCoordinates>> BeginChainCuda(
    ExpansionCuda expansion, const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
    const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_
