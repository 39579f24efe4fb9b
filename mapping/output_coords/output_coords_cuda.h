// The CUDA algorithms of the output coordinate plugins.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_

#include <functional>
#include <vector>

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

// OutputCoords::ComputeChain. Levels are computed with upper bounds of their sizes, and the host
// waits once for all sizes and bounds; more often only where the bounds would grow past what it is
// sensible to allocate, or to go over where it takes work.
absl::StatusOr<std::vector<CoordinateSetPtr>> ComputeChainCuda(
    ExpansionCuda expansion, const CoordinateSet& inputs, absl::Span<const ConvGeometry> geometries,
    const ExecutionContext& context, const std::function<void()>& meanwhile);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_OUTPUT_COORDS_CUDA_H_
