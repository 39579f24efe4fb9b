// SPDX-License-Identifier: Apache-2.0
#include "voxconv/core/voxel_ops.h"

#include <algorithm>
#include <cmath>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "voxconv/core/tensor_checks.h"

namespace voxconv {
namespace {

constexpr int64_t kMostPoints = int64_t{1} << 30;
constexpr int64_t kMostEntries = int64_t{1} << 30;

absl::string_view NameOfAxis(int axis) { return {&kAxisNames[axis], 1}; }

absl::Status CheckPoints(absl::string_view op, const ConstTensorView& points, int64_t most,
                         const Backend& backend) {
  if (points.channels < 3) {
    return absl::InvalidArgumentError(absl::StrCat(
        op, ": points: ", points.channels, " columns; there must be 3 or more, x, y and z first"));
  }
  if (points.rows > most) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": ", points.rows, " points; allowed are at most ", most));
  }
  return CheckTensor(absl::StrCat(op, ": points"), points, points.rows, points.channels,
                     DType::kF32, backend.device());
}

absl::Status CheckLimit(absl::string_view name, int64_t value) {
  if (value >= 0) return absl::OkStatus();
  return absl::InvalidArgumentError(
      absl::StrCat("voxelize: ", name, " = ", value, ": allowed are 0 (all) and more"));
}

absl::Status CheckKept(const VoxelOptions& options) {
  for (int axis = 0; axis < 3; ++axis) {
    if (!(options.low[axis] < options.high[axis])) {
      return absl::InvalidArgumentError(
          absl::StrCat("voxelize: range along ", NameOfAxis(axis), " = ", options.low[axis], " to ",
                       options.high[axis], ": its low must be below its high"));
    }
    if (options.cells[axis] < 0) {
      return absl::InvalidArgumentError(absl::StrCat("voxelize: cells along ", NameOfAxis(axis),
                                                     " = ", options.cells[axis],
                                                     ": allowed are 0 (all) and more"));
    }
  }
  VOXCONV_RETURN_IF_ERROR(CheckLimit("max_points", options.max_points));
  VOXCONV_RETURN_IF_ERROR(CheckLimit("max_voxels", options.max_voxels));
  if (options.features != VoxelFeatures::kPoints) return absl::OkStatus();
  constexpr int64_t kMost = int64_t{1} << 20;
  if (options.max_points >= 1 && options.max_points <= kMost) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrCat("voxelize: max_points = ", options.max_points,
                                                 ": features of all points of a voxel need 1 to ",
                                                 kMost));
}

absl::Status CheckMap(absl::string_view op, const PointMapView& map, bool reads_transpose,
                      const ConstTensorView& of_voxels, const ConstTensorView& of_points,
                      const Backend& backend) {
  if (map.points < 0 || map.voxels < 0 || map.neighbours < 1 ||
      map.points > kMostEntries / map.neighbours) {
    return absl::InvalidArgumentError(
        absl::StrCat(op, ": a map of ", map.points, " points, ", map.neighbours, " neighbours and ",
                     map.voxels, " voxels; allowed are at most ", kMostEntries, " entries"));
  }
  const bool has_rows = map.points == 0 || map.rows != nullptr;
  const bool has_begins = !reads_transpose || map.voxels == 0 || map.begins != nullptr;
  const bool has_entries =
      !reads_transpose || map.points == 0 || map.voxels == 0 || map.entries != nullptr;
  if (!has_rows || !has_begins || !has_entries) {
    return absl::InvalidArgumentError(absl::StrCat(op, ": map: null arrays"));
  }
  const TensorChecker tensors(of_voxels.dtype, backend);
  VOXCONV_RETURN_IF_ERROR(tensors.Check(absl::StrCat(op, ": features of voxels"), of_voxels,
                                        map.voxels, of_voxels.channels));
  return tensors.Check(absl::StrCat(op, ": features of points"), of_points, map.points,
                       of_voxels.channels);
}

absl::Status BadPoint(const VoxelReport& report, const VoxelOptions& options) {
  const uint64_t bad = ~report.bad_point;
  const auto point = static_cast<int64_t>(bad / 4);
  const int axis = static_cast<int>(bad % 4);
  if (axis == 3) {
    return absl::InvalidArgumentError(absl::StrCat("point ", point, ": batch = ", report.bad_value,
                                                   ": allowed are 0 to ", kMaxBatch));
  }
  const double place =
      QuotientOf(options.quotient, report.bad_value, options.origin[axis], options.size[axis]);
  return NoCoordinate(point, axis, report.bad_value, place, options.size[axis]);
}

}  // namespace

VoxelOptions PointToVoxelOptions(const std::array<double, 3>& size,
                                 const std::array<double, 3>& low,
                                 const std::array<double, 3>& high, int64_t max_points,
                                 int64_t max_voxels) {
  VoxelOptions options;
  options.size = size;
  options.origin = low;
  options.quotient = VoxelQuotient::kF32;
  for (int axis = 0; axis < 3; ++axis) {
    // In float32, as SpConv computes it: 0.35 / 0.1 rounds to 4 there.
    const float extent = static_cast<float>(high[axis]) - static_cast<float>(low[axis]);
    const float cells = std::round(extent / static_cast<float>(size[axis]));
    const bool fits = cells >= 1 && cells < 0x1p31f;
    options.cells[axis] = fits ? static_cast<int32_t>(cells) : -1;  // which CheckVoxelize refuses
  }
  options.max_points = max_points;
  options.max_voxels = max_voxels;
  options.features = VoxelFeatures::kPoints;
  return options;
}

std::array<double, 3> DownSampleOrigin(const std::array<double, 3>& least,
                                       const std::array<double, 3>& size) {
  return {least[0] - size[0] * 0.5, least[1] - size[1] * 0.5, least[2] - size[2] * 0.5};
}

absl::StatusOr<VoxelSummary> CollectVoxels(const PointVoxels& voxels,
                                           const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const std::vector<VoxelReport> reports,
                           CopyToHost(voxels.report, context));
  const VoxelReport& report = reports.front();
  if (report.bad_point != 0) return BadPoint(report, voxels.options);
  VoxelSummary summary{.voxels = report.voxels, .dropped = report.dropped};
  if (report.voxels == 0) return summary;
  for (int axis = 0; axis < 3; ++axis) {
    summary.bounds.lo[axis] = kMaxCoordinate - static_cast<int32_t>(report.below[axis]);
    summary.bounds.hi[axis] = kMinCoordinate + static_cast<int32_t>(report.above[axis]);
  }
  summary.batches = static_cast<int32_t>(report.batches);
  return summary;
}

absl::StatusOr<SparseTensorView> TakeVoxels(PointVoxels& voxels, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const VoxelSummary summary, CollectVoxels(voxels, context));
  Array<Coordinate> coords = std::move(voxels.coords);
  coords.Shrink(summary.voxels);
  ConstTensorView features = voxels.features.view();
  features.rows = summary.voxels;
  return SparseTensorView{CoordinateSet::Adopt(std::move(coords), {1, 1, 1}, summary.bounds,
                                               summary.batches, /*sorted=*/false),
                          features};
}

PointMapView NearestMap(const PointVoxels& from, int64_t voxels) {
  return {.points = from.voxel_of_point.size(),
          .voxels = voxels,
          .rows = from.voxel_of_point.data(),
          .begins = from.begins.data(),
          .entries = from.points.data()};
}

absl::Status CheckVoxelSize(const std::array<double, 3>& size, const std::array<double, 3>& origin,
                            VoxelQuotient quotient) {
  for (int axis = 0; axis < 3; ++axis) {
    if (!(size[axis] > 0) || !std::isfinite(size[axis])) {
      return absl::InvalidArgumentError(absl::StrCat("voxel size along ", NameOfAxis(axis), " = ",
                                                     size[axis], ": must be positive and finite"));
    }
    if (!std::isfinite(origin[axis])) {
      return absl::InvalidArgumentError(
          absl::StrCat("origin along ", NameOfAxis(axis), " = ", origin[axis], ": must be finite"));
    }
    if (quotient == VoxelQuotient::kF64) continue;
    const auto rounded = static_cast<float>(size[axis]);
    if (!(rounded > 0) || !std::isfinite(rounded)) {
      return absl::InvalidArgumentError(
          absl::StrCat("voxel size along ", NameOfAxis(axis), " = ", size[axis],
                       ": voxel rule spconv needs one within float32"));
    }
    if (!std::isfinite(static_cast<float>(origin[axis]))) {
      return absl::InvalidArgumentError(
          absl::StrCat("origin along ", NameOfAxis(axis), " = ", origin[axis],
                       ": voxel rule spconv needs one within float32"));
    }
  }
  return absl::OkStatus();
}

absl::Status NoCoordinate(int64_t point, int axis, double position, double place, double size) {
  return absl::OutOfRangeError(
      absl::StrCat("point ", point, ": ", NameOfAxis(axis), " = ", position, " falls into voxel ",
                   std::floor(place), " at size ", size, "; allowed are ", kMinCoordinate, " to ",
                   kMaxCoordinate, ": use a larger voxel size or another origin"));
}

absl::Status CheckVoxelize(const ConstTensorView& points, const VoxelOptions& options,
                           const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(CheckPoints("voxelize", points, kMostPoints, backend));
  VOXCONV_RETURN_IF_ERROR(CheckVoxelSize(options.size, options.origin, options.quotient));
  return CheckKept(options);
}

absl::Status CheckInterpolate(const ConstTensorView& points, const VoxelOptions& options,
                              const Backend& backend) {
  VOXCONV_RETURN_IF_ERROR(
      CheckPoints("interpolate", points, kMostEntries / Trilinear::kNeighbours, backend));
  return CheckVoxelSize(options.size, options.origin, options.quotient);
}

absl::Status CheckDevoxelize(const PointMapView& map, const ConstTensorView& x, const TensorView& y,
                             const Backend& backend) {
  return CheckMap("devoxelize", map, /*reads_transpose=*/false, x, y, backend);
}

absl::Status CheckDevoxelizeGrad(const PointMapView& map, const ConstTensorView& dy,
                                 const TensorView& dx, const Backend& backend) {
  return CheckMap("devoxelize_grad", map, /*reads_transpose=*/true, dx, dy, backend);
}

PointGrid GridOf(const VoxelOptions& options) {
  PointGrid grid{};
  for (int axis = 0; axis < 3; ++axis) {
    grid.size[axis] = options.size[axis];
    grid.origin[axis] = options.origin[axis];
    grid.low[axis] = options.low[axis];
    grid.high[axis] = options.high[axis];
    grid.cells[axis] = options.cells[axis];
  }
  grid.quotient = options.quotient;
  return grid;
}

int64_t PointLimit(const VoxelOptions& options) {
  if (options.features == VoxelFeatures::kFirst) return 1;
  return options.max_points == 0 ? kMostPoints : options.max_points;
}

absl::StatusOr<PointVoxels> AllocateVoxels(const ConstTensorView& points,
                                           const VoxelOptions& options,
                                           const ExecutionContext& context) {
  const int64_t rows =
      options.max_voxels == 0 ? points.rows : std::min(points.rows, options.max_voxels);
  const int64_t columns = points.channels - (options.xyz_features ? 0 : 3);
  const int64_t channels =
      columns * (options.features == VoxelFeatures::kPoints ? options.max_points : 1);
  PointVoxels voxels;
  voxels.options = options;
  VOXCONV_ASSIGN_OR_RETURN(voxels.coords, AllocateArray<Coordinate>(rows, context));
  VOXCONV_ASSIGN_OR_RETURN(voxels.features, Tensor::Create(rows, channels, DType::kF32, context));
  VOXCONV_ASSIGN_OR_RETURN(voxels.voxel_of_point, AllocateArray<int32_t>(points.rows, context));
  VOXCONV_ASSIGN_OR_RETURN(voxels.points_of_voxel, AllocateArray<int32_t>(rows, context));
  VOXCONV_ASSIGN_OR_RETURN(voxels.begins, AllocateArray<int32_t>(rows + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(voxels.points, AllocateArray<int32_t>(points.rows, context));
  VOXCONV_ASSIGN_OR_RETURN(voxels.report, AllocateArray<VoxelReport>(1, context));
  return voxels;
}

PointMapView SortedVoxels::to_sorted() const {
  return {.points = set->size(), .voxels = set->size(), .rows = given.data()};
}

PointMapView SortedVoxels::to_given() const {
  return {.points = set->size(), .voxels = set->size(), .rows = position.data()};
}

}  // namespace voxconv
