// SPDX-License-Identifier: Apache-2.0
// The checks that both sides must pass before anything is timed.
#ifndef VOXCONV_MEASURE_AB_GATE_H_
#define VOXCONV_MEASURE_AB_GATE_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/measure/ab/work.h"
#include "voxconv/verify/gate.h"

namespace voxconv::ab {

// The reference's result of a layer on a crop of at most `crop_voxels` of `rows`. Errors of
// verify::CropReference::Create.
absl::StatusOr<verify::CropReference> MakeCropReference(const LayerShape& shape,
                                                        absl::Span<const Coordinate> rows,
                                                        int64_t crop_voxels);

// verify::CheckOnCrop with the configuration's plugins.
absl::StatusOr<verify::CropCheck> CheckAgainst(const verify::CropReference& reference,
                                               const measure::Configuration& configuration,
                                               const Registry& registry,
                                               const ExecutionContext& context);

// Runs each side once and returns the norm-wise difference of their outputs. kInternal if it is
// above the bound.
absl::StatusOr<double> CompareOutputs(const Work& work);

}  // namespace voxconv::ab

#endif  // VOXCONV_MEASURE_AB_GATE_H_
