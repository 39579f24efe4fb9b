// What must hold before anything is timed.
#ifndef VOXCONV_MEASURE_AB_GATE_H_
#define VOXCONV_MEASURE_AB_GATE_H_

#include <cstdint>
#include <memory>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "measure/ab/work.h"
#include "verify/problem.h"

namespace voxconv::ab {

// The brute-force reference takes a second or less on as many voxels.
inline constexpr int64_t kCropVoxels = 2000;

// The geometry of a LayerShape with its inputs' tensor stride.
GeometryParams PlacedGeometry(GeometryParams geometry);

// At most `limit` of the rows, those nearest to the middle one, in their given order.
std::vector<Coordinate> Crop(absl::Span<const Coordinate> rows, int64_t limit);

struct CropCheck {
  int64_t voxels = 0;
  double error = 0;  // norm-wise, against the fp64 reference
  double bound = 0;
};

// What the reference makes of a layer on a crop of at most `crop_voxels` of `rows`.
struct CropReference {
  std::unique_ptr<verify::Problem> problem;
  std::vector<float> features, weights;
  std::vector<double> output;
  double bound = 0;  // on the norm-wise error, that of verify
};
absl::StatusOr<CropReference> MakeCropReference(const LayerShape& shape,
                                                absl::Span<const Coordinate> rows,
                                                int64_t crop_voxels);

// Runs the layer on the crop and compares output coordinates and kernel map exactly and features
// within the bound. kInternal says what differed.
absl::StatusOr<CropCheck> CheckAgainst(const CropReference& reference,
                                       const measure::Configuration& configuration,
                                       const LayerShape& shape, const Registry& registry,
                                       const ExecutionContext& context);

// Both.
absl::StatusOr<CropCheck> CheckAgainstReference(const measure::Configuration& configuration,
                                                const LayerShape& shape,
                                                absl::Span<const Coordinate> rows,
                                                const Registry& registry,
                                                const ExecutionContext& context);

// Norm-wise difference of what both sides give, one run each. kInternal if it is past the bound.
absl::StatusOr<double> CompareOutputs(const Work& work);

}  // namespace voxconv::ab

#endif  // VOXCONV_MEASURE_AB_GATE_H_
