// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_IO_VOXELIZE_H_
#define VOXCONV_IO_VOXELIZE_H_

#include <array>
#include <cstdint>
#include <string>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/types.h"
#include "voxconv/io/point_cloud.h"
#include "voxconv/io/row_order.h"

namespace voxconv {

// How a point becomes a voxel, and points a voxel's features.
enum class VoxelRule {
  // floor((xyz - origin) / size) in float64; features are the means over the voxel's points.
  kF64,
  // As SpConv 2's PointToVoxel does: the same quotient in float32, of position, origin and size
  // rounded to float32; features are those of the voxel's first point in the order of the cloud,
  // which PointToVoxel gives with max_num_points_per_voxel = 1. With RowOrder::kScan rows have the
  // order that PointToVoxel gives on the CPU, too. PointToVoxel also drops what lies outside its
  // range and what exceeds its max_num_voxels. Here all points are kept; io/range.h cuts them.
  kSpconv,
};
// "f64" or "spconv". kInvalidArgument for another text.
absl::StatusOr<VoxelRule> ParseVoxelRule(absl::string_view text);

struct VoxelizeOptions {
  std::array<double, 3> size = {0.05, 0.05, 0.05};  // voxel edge along x, y, z in the cloud's unit
  std::array<double, 3> origin = {0, 0, 0};         // corner of voxel (0, 0, 0), the same unit
  int32_t batch = 0;                                // batch index given to every voxel
  bool xyz_features = true;  // lead the features by x, y, z, in the way of the other features
  VoxelRule rule = VoxelRule::kF64;
  RowOrder order = RowOrder::kScan;
  uint64_t order_seed = 0;  // of RowOrder::kShuffled
};

// Unique voxels in host memory.
struct VoxelizedCloud {
  std::vector<Coordinate> coords;    // [N]
  std::vector<float> features;       // [N, C] row-major
  int channels = 0;                  // C
  std::vector<std::string> names;    // [C] of the features
  int64_t points = 0;                // points that went in
  int64_t dropped = 0;               // rows the reader dropped before
  int64_t cropped = 0;               // points, or else voxels, outside the range (io/range.h)
  bool from_voxels = false;          // the input held voxels; they are counted as points
  bool from_mesh = false;            // the points were drawn on a mesh
  RowOrder order = RowOrder::kScan;  // of the rows

  int64_t size() const { return static_cast<int64_t>(coords.size()); }
};

// Makes voxels of points by the rule. Means are summed in float64 in the order of the points, so
// that a voxel has the same features in every order of rows. O(N), and O(V log V) more for an order
// of the V voxels that is not kScan. Takes about 8 * (N + V * C) bytes of temporary memory, and 40
// for each of the V voxels and of the first 2^20 points. kInvalidArgument for a size that is not
// positive and finite, an origin that is not finite, a batch index outside 0 .. kMaxBatch, and
// arrays whose sizes do not agree. kOutOfRange for NaN, and for a voxel outside kMinCoordinate ..
// kMaxCoordinate (core/coordinate_key.h); the message gives axis and value.
absl::StatusOr<VoxelizedCloud> Voxelize(const PointCloud& cloud, const VoxelizeOptions& options);
// The same. `voxel_of_point` gets the row of each point's voxel, [N points]. It may be null.
absl::StatusOr<VoxelizedCloud> Voxelize(const PointCloud& cloud, const VoxelizeOptions& options,
                                        std::vector<int64_t>* voxel_of_point);

// Puts the rows of a cloud in scan order into another one. Features follow their voxels. `seed` is
// that of RowOrder::kShuffled. `voxel_of_point`, if there is one, names the new rows. O(V log V).
void PutInOrder(RowOrder order, uint64_t seed, VoxelizedCloud& cloud,
                std::vector<int64_t>* voxel_of_point = nullptr);

// The cloud's coordinates at tensor stride 1, in the backend's memory. Queued on the context's
// stream. Errors of CoordinateSet::Create.
absl::StatusOr<CoordinateSetPtr> MakeCoordinates(const VoxelizedCloud& cloud,
                                                 const ExecutionContext& context);
// The cloud at tensor stride 1 in the backend's memory. Each voxel has `channels` features
// (FeaturesWithChannels), stored as `dtype`. Queued on the context's stream. Errors of
// SparseTensor::Create.
absl::StatusOr<SparseTensor> MakeSparseTensor(const VoxelizedCloud& cloud, int64_t channels,
                                              const ExecutionContext& context,
                                              DType dtype = DType::kF32);
// What FeaturesWithChannels changes, in one clause for people: which columns it leaves out, or how
// many it fills with ones. "" if nothing.
std::string DescribeChannels(const VoxelizedCloud& cloud, int64_t channels);
// The cloud's features as [N, channels]. Surplus columns are left out. Missing columns are 1.
std::vector<float> FeaturesWithChannels(const VoxelizedCloud& cloud, int64_t channels);

}  // namespace voxconv

#endif  // VOXCONV_IO_VOXELIZE_H_
