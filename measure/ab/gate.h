// What must hold before anything is timed.
#ifndef VOXCONV_MEASURE_AB_GATE_H_
#define VOXCONV_MEASURE_AB_GATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "measure/ab/work.h"
#include "verify/gate.h"

namespace voxconv::ab {

// What the reference makes of a layer on a crop of at most `crop_voxels` of `rows`.
absl::StatusOr<verify::CropReference> MakeCropReference(const LayerShape& shape,
                                                        absl::Span<const Coordinate> rows,
                                                        int64_t crop_voxels);

// verify::CheckOnCrop of the configuration's plugins.
absl::StatusOr<verify::CropCheck> CheckAgainst(const verify::CropReference& reference,
                                               const measure::Configuration& configuration,
                                               const Registry& registry,
                                               const ExecutionContext& context);

// Norm-wise difference of what both sides give, one run each. kInternal if it is past the bound.
absl::StatusOr<double> CompareOutputs(const Work& work);

}  // namespace voxconv::ab

#endif  // VOXCONV_MEASURE_AB_GATE_H_
