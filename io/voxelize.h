#ifndef VOXCONV_IO_VOXELIZE_H_
#define VOXCONV_IO_VOXELIZE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "core/coordinate_set.h"
#include "io/point_cloud.h"

namespace voxconv {

// The packed key's ranges: 18 bits signed an axis, 9 bits for the batch index.
inline constexpr int32_t kMinVoxelCoordinate = -131072;
inline constexpr int32_t kMaxVoxelCoordinate = 131071;
inline constexpr int32_t kMaxBatchIndex = 511;

struct VoxelizeOptions {
  std::array<double, 3> size = {0.05, 0.05, 0.05};  // voxel edge along x, y, z in the cloud's unit
  std::array<double, 3> origin = {0, 0, 0};         // corner of voxel (0, 0, 0), the same unit
  int32_t batch = 0;                                // batch index given to every voxel
  bool xyz_features = true;  // lead the features by the mean x, y, z of the voxel's points
};

// Unique voxels in host memory, sorted by (b, x, y, z).
struct VoxelizedCloud {
  std::vector<std::array<int32_t, 4>> coords;  // [N] rows (b, x, y, z)
  std::vector<float> features;                 // [N, C] row-major
  int channels = 0;                            // C
  std::vector<std::string> names;              // [C] of the features
  int64_t points = 0;                          // points that went in
  int64_t dropped = 0;                         // rows the reader dropped before

  int64_t size() const { return static_cast<int64_t>(coords.size()); }
};

// Voxel of a point: floor((xyz - origin) / size) in float64; a voxel's features are the mean over
// its points, added up in float64 in the points' order. O(N log N) time, 16 N bytes of scratch.
// Errors: kInvalidArgument (a size that is not positive and finite, an origin that is not finite,
// a batch index outside 0…511, arrays that disagree), kOutOfRange (a voxel coordinate outside
// -131072…131071 or NaN, by axis and value).
absl::StatusOr<VoxelizedCloud> Voxelize(const PointCloud& cloud, const VoxelizeOptions& options);

// The cloud's coordinates at tensor stride 1, in the backend's memory.
absl::StatusOr<CoordinateSetPtr> MakeCoordinates(const VoxelizedCloud& cloud,
                                                 const ExecutionContext& context);
// [N, channels], the cloud's features: surplus columns are left out, missing ones are 1.
std::vector<float> FeaturesWithChannels(const VoxelizedCloud& cloud, int64_t channels);

}  // namespace voxconv

#endif  // VOXCONV_IO_VOXELIZE_H_
