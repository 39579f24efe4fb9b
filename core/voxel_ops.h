// SPDX-License-Identifier: Apache-2.0
// Points to voxels, and features of voxels back to points. A backend may implement them once.
//
// Points are a row-major and contiguous f32 matrix [P, C] in the backend's memory. Columns 0 to 2
// are x, y and z; C is 3 or more. Batches are null (all points are of sample 0), or [P] in the
// backend's memory. Results are bitwise the same in every run, with every number of threads and on
// every backend. Work is queued on the context's stream. No operator synchronises the stream;
// CollectVoxels and AdmitCoordinates wait once. kInvalidArgument for arguments that do not fit.
// kResourceExhausted if the memory does not suffice.
#ifndef VOXCONV_CORE_VOXEL_OPS_H_
#define VOXCONV_CORE_VOXEL_OPS_H_

#include <array>
#include <cstdint>
#include <limits>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/sparse_tensor.h"
#include "voxconv/core/tensor.h"
#include "voxconv/core/types.h"
#include "voxconv/core/voxel_arithmetic.h"

namespace voxconv {

// What a voxel's features are made of. The points of a voxel are in the order of the cloud.
enum class VoxelFeatures {
  kMean,    // the mean of its points, summed in float64 in their order; [N, columns]
  kFirst,   // those of its first point; [N, columns]
  kPoints,  // its first `max_points` points, and zeros where it has fewer; [N, max_points *
            // columns]
};

struct VoxelOptions {
  static constexpr double kInfinity = std::numeric_limits<double>::infinity();

  std::array<double, 3> size = {0.05, 0.05, 0.05};  // voxel edge along x, y, z
  std::array<double, 3> origin = {0, 0, 0};         // corner of voxel (0, 0, 0)
  VoxelQuotient quotient = VoxelQuotient::kF64;
  // A point is kept where low <= position < high, and in the voxels 0 .. cells - 1 along each axis
  // whose `cells` is not 0. Others are dropped.
  std::array<double, 3> low = {-kInfinity, -kInfinity, -kInfinity};
  std::array<double, 3> high = {kInfinity, kInfinity, kInfinity};
  Int3 cells;
  // The features of a voxel come from at most so many of its points, the first ones. 0: from all.
  // Further points still belong to the voxel.
  int64_t max_points = 0;
  // Points of further voxels are dropped. The first voxels of the cloud stay. 0: all stay.
  int64_t max_voxels = 0;
  VoxelFeatures features = VoxelFeatures::kMean;
  bool xyz_features = true;  // whether columns 0 to 2 are features, too
};

// What SpConv's PointToVoxel computes, exactly: the quotient in float32, the voxels of the range
// [low, high), whose number along an axis is round((high - low) / size) in float32, first come
// first served. PointToVoxel gives voxels and coordinates as z, y, x; here they are x, y, z.
// Features are kPoints. Set kMean for the mean that usually follows.
VoxelOptions PointToVoxelOptions(const std::array<double, 3>& size,
                                 const std::array<double, 3>& low,
                                 const std::array<double, 3>& high, int64_t max_points,
                                 int64_t max_voxels);
// The origin of Open3D's voxel_down_sample, for a cloud whose least coordinates are `least`: half a
// voxel below them. Its features are kMean.
std::array<double, 3> DownSampleOrigin(const std::array<double, 3>& least,
                                       const std::array<double, 3>& size);

// What a voxelisation found, in the backend's memory. CollectVoxels reads it.
struct VoxelReport {
  // N. It has 64 bits, so that the record has no padding. Memory checkers report copies of bytes
  // that nobody wrote.
  int64_t voxels;
  int32_t dropped;  // points
  // below: kMaxCoordinate - least coordinate. above: greatest coordinate - kMinCoordinate. batches:
  // greatest batch + 1. All are maxima that begin as 0.
  uint32_t below[3], above[3], batches;
  // ~(4 * point + axis) of the first point that is refused. Axis 3 is the batch. 0: none.
  uint64_t bad_point;
  double bad_value;  // its position or batch
};

// Voxels of points, in the backend's memory. A voxel's row is the place of its first point among
// the first points of all voxels. N is known to the backend alone until CollectVoxels; arrays have
// room for the most that N can be, R: P, or max_voxels if that is less.
struct PointVoxels {
  VoxelOptions options;
  Array<Coordinate> coords;        // [R], of which N are written
  Tensor features;                 // [R, channels], of which N rows are written
  Array<int32_t> voxel_of_point;   // [P] rows; -1: the point was dropped
  Array<int32_t> points_of_voxel;  // [R]: points that its features are made of
  // The points of row v ascend in points[begins[v]] .. points[begins[v + 1] - 1].
  Array<int32_t> begins;      // [R + 1], of which N + 1 are written
  Array<int32_t> points;      // [P]
  Array<VoxelReport> report;  // [1]
};

// The same on the host.
struct VoxelSummary {
  int64_t voxels = 0;
  int64_t dropped = 0;  // points outside the range, or of voxels beyond max_voxels
  Box bounds;           // of all voxels; {0..0} if there is none
  int32_t batches = 0;  // greater than every batch
};
// Waits for the voxels: synchronises the stream once. kOutOfRange, as from Voxelize in
// io/voxelize.h, for NaN and for a voxel outside kMinCoordinate .. kMaxCoordinate: the message
// gives the first such point, the axis and the value. kInvalidArgument for a batch outside 0 ..
// kMaxBatch of a point that is kept. Errors of the work itself.
absl::StatusOr<VoxelSummary> CollectVoxels(const PointVoxels& voxels,
                                           const ExecutionContext& context);
// CollectVoxels, and the voxels as a network takes them, at tensor stride 1. Takes over
// `voxels.coords`. The features stay where they are; `voxels` must outlive the view.
absl::StatusOr<SparseTensorView> TakeVoxels(PointVoxels& voxels, const ExecutionContext& context);

// Which rows of voxels each point reads, and by which weights. Owns nothing. The transpose lists
// the entries p * neighbours + k of row v, ascending, in entries[begins[v]] .. entries[begins[v +
// 1] - 1]. DevoxelizeGrad alone reads it.
struct PointMapView {
  int64_t points = 0, voxels = 0;
  int neighbours = 1;
  const int32_t* rows = nullptr;     // [points, neighbours]; -1: none
  const float* weights = nullptr;    // [points, neighbours]; null: all are 1
  const int32_t* begins = nullptr;   // [voxels + 1]
  const int32_t* entries = nullptr;  // of all rows that are not -1
};
// Each point reads its own voxel; a dropped point reads none. `voxels`: N.
PointMapView NearestMap(const PointVoxels& from, int64_t voxels);

// The same with its memory.
struct PointMap {
  Array<int32_t> rows;
  Array<float> weights;
  Array<int32_t> begins, entries;
  PointMapView view;
};

// The voxels of a set in ascending order of their keys (core/coordinate_key.h).
struct SortedVoxels {
  CoordinateSetPtr set;     // the same voxels and bounds
  Array<int32_t> given;     // [N]: by sorted row, the row that was given
  Array<int32_t> position;  // [N]: the inverse; by given row, the sorted row
  // The rows of features on the given rows, put in sorted order, and back (Devoxelize).
  PointMapView to_sorted() const;
  PointMapView to_given() const;
};

class VoxelOps {
 public:
  virtual ~VoxelOps() = default;

  // CoordinateSet::Create of rows that are in the backend's memory, with its checks and messages.
  // They are copied. Waits once for the device, which is what CoordinateSet's bounds cost. Rows
  // that are refused cost a copy to the host. O(size) expected.
  virtual absl::StatusOr<CoordinateSetPtr> AdmitCoordinates(const Coordinate* rows, int64_t size,
                                                            const Int3& tensor_stride,
                                                            const ExecutionContext& context) = 0;

  // Sorts the voxels of `set`. O(N) on CUDA for coordinates of few bits, O(N log N) in general.
  virtual absl::StatusOr<SortedVoxels> Sort(const CoordinateSet& set,
                                            const ExecutionContext& context) = 0;

  // Makes voxels of points. There are at most 2^30 points. The points must stay until the work is
  // done. O(P * C) expected. On CUDA a voxel of more than 1024 points costs up to P more.
  virtual absl::StatusOr<PointVoxels> Voxelize(const ConstTensorView& points,
                                               const int32_t* batches, const VoxelOptions& options,
                                               const ExecutionContext& context) = 0;

  // Trilinear interpolation among the centres of the eight voxels of `set` that enclose a point, at
  // the set's tensor stride. Voxels that are not in the set are left out, and the weights of the
  // others are scaled to sum to 1, as TorchSparse and SPVNAS do. (They interpolate among the lower
  // corners of voxels. The origin minus size * tensor stride / 2 gives the same here.) A point
  // without any reads none. A point with NaN, or with a batch outside 0 .. kMaxBatch, reads none.
  // Of `options`, size, origin and quotient count. There are at most 2^27 points. The points must
  // stay until the work is done. O(P) expected on CUDA, O(P log V) on the CPU.
  virtual absl::StatusOr<PointMap> Interpolate(const ConstTensorView& points,
                                               const int32_t* batches, const VoxelOptions& options,
                                               const CoordinateSet& set,
                                               const ExecutionContext& context) = 0;

  // y[p] is the sum of weights[p, k] * x[rows[p, k]] over k, in float64, rounded once. x: [voxels,
  // C], y: [points, C], both f32 on the CPU and of one dtype on CUDA. O(points * neighbours * C).
  virtual absl::Status Devoxelize(const PointMapView& map, const ConstTensorView& x,
                                  const TensorView& y, const ExecutionContext& context) = 0;
  // The gradient of Devoxelize by x: dx[v] is the sum of weights * dy over the entries of v, in
  // their order. dy: [points, C], dx: [voxels, C].
  virtual absl::Status DevoxelizeGrad(const PointMapView& map, const ConstTensorView& dy,
                                      const TensorView& dx, const ExecutionContext& context) = 0;
};

// What implementations share.

// Refuses a size that is not positive and finite, and an origin that is not finite. With kF32, both
// must be so in float32.
absl::Status CheckVoxelSize(const std::array<double, 3>& size, const std::array<double, 3>& origin,
                            VoxelQuotient quotient);
// kOutOfRange for a point whose place is no coordinate.
absl::Status NoCoordinate(int64_t point, int axis, double position, double place, double size);
// Each takes the arguments of the operator of its name, and the backend whose memory the tensors
// must be in.
absl::Status CheckVoxelize(const ConstTensorView& points, const VoxelOptions& options,
                           const Backend& backend);
absl::Status CheckInterpolate(const ConstTensorView& points, const VoxelOptions& options,
                              const Backend& backend);
absl::Status CheckDevoxelize(const PointMapView& map, const ConstTensorView& x, const TensorView& y,
                             const Backend& backend);
absl::Status CheckDevoxelizeGrad(const PointMapView& map, const ConstTensorView& dy,
                                 const TensorView& dx, const Backend& backend);
PointGrid GridOf(const VoxelOptions& options);
// The most points that a voxel's features are made of.
int64_t PointLimit(const VoxelOptions& options);
// Allocates the arrays of a voxelisation, uninitialised. `points` was checked.
absl::StatusOr<PointVoxels> AllocateVoxels(const ConstTensorView& points,
                                           const VoxelOptions& options,
                                           const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_CORE_VOXEL_OPS_H_
