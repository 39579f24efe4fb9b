#ifndef VOXCONV_IO_VOXELIZE_H_
#define VOXCONV_IO_VOXELIZE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/coordinate_set.h"
#include "core/sparse_tensor.h"
#include "core/types.h"
#include "io/point_cloud.h"

namespace voxconv {

struct VoxelizeOptions {
  std::array<double, 3> size = {0.05, 0.05, 0.05};  // voxel edge along x, y, z in the cloud's unit
  std::array<double, 3> origin = {0, 0, 0};         // corner of voxel (0, 0, 0), the same unit
  int32_t batch = 0;                                // batch index given to every voxel
  bool xyz_features = true;  // lead the features by the mean x, y, z of the voxel's points
};

// Unique voxels in host memory, sorted by (b, x, y, z).
struct VoxelizedCloud {
  std::vector<Coordinate> coords;  // [N]
  std::vector<float> features;     // [N, C] row-major
  int channels = 0;                // C
  std::vector<std::string> names;  // [C] of the features
  int64_t points = 0;              // points that went in
  int64_t dropped = 0;             // rows the reader dropped before

  int64_t size() const { return static_cast<int64_t>(coords.size()); }
};

// Voxel of a point: floor((xyz - origin) / size) in float64; a voxel's features are the mean over
// its points, added up in float64 in the points' order. O(N log N) time, 16 N bytes of scratch.
// Errors: kInvalidArgument (a size that is not positive and finite, an origin that is not finite,
// a batch index outside 0 … kMaxBatch, arrays that disagree), kOutOfRange (NaN, or a voxel outside
// kMinCoordinate … kMaxCoordinate of core/coordinate_key.h, by axis and value).
absl::StatusOr<VoxelizedCloud> Voxelize(const PointCloud& cloud, const VoxelizeOptions& options);

// The cloud's coordinates at tensor stride 1, in the backend's memory.
absl::StatusOr<CoordinateSetPtr> MakeCoordinates(const VoxelizedCloud& cloud,
                                                 const ExecutionContext& context);
// The cloud at tensor stride 1 in the backend's memory, with `channels` features a voxel
// (FeaturesWithChannels) as `dtype`.
absl::StatusOr<SparseTensor> MakeSparseTensor(const VoxelizedCloud& cloud, int64_t channels,
                                              const ExecutionContext& context,
                                              DType dtype = DType::kF32);
// [N, channels], the cloud's features: surplus columns are left out, missing ones are 1.
std::vector<float> FeaturesWithChannels(const VoxelizedCloud& cloud, int64_t channels);

}  // namespace voxconv

#endif  // VOXCONV_IO_VOXELIZE_H_
