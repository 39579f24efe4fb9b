// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cpu/cpu_voxel_ops.h"

#include <algorithm>
#include <utility>

#include "voxconv/backends/cpu/cpu_voxelize.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/backends/cpu/radix_sort.h"
#include "voxconv/core/coordinate_key.h"
#include "voxconv/core/status_macros.h"

namespace voxconv {
namespace {

constexpr int64_t kPointsPerTask = 1024;

// The rows of a set by key, for lookups.
struct SortedRows {
  Array<uint64_t> keys;
  Array<int32_t> rows;

  static absl::StatusOr<SortedRows> Create(const CoordinateSet& set,
                                           const ExecutionContext& context) {
    SortedRows sorted;
    VOXCONV_ASSIGN_OR_RETURN(sorted.keys, AllocateArray<uint64_t>(set.size(), context));
    VOXCONV_ASSIGN_OR_RETURN(sorted.rows, AllocateArray<int32_t>(set.size(), context));
    for (int64_t row = 0; row < set.size(); ++row) {
      sorted.keys.data()[row] = PackKey(set.rows().data()[row]);
      sorted.rows.data()[row] = static_cast<int32_t>(row);
    }
    VOXCONV_RETURN_IF_ERROR(RadixSort(sorted.keys, sorted.rows, context));
    return sorted;
  }

  // -1 if no row has the key.
  int32_t Find(uint64_t key) const {
    const uint64_t* const end = keys.data() + keys.size();
    const uint64_t* const at = std::lower_bound(keys.data(), end, key);
    return at == end || *at != key ? -1 : rows.data()[at - keys.data()];
  }
};

// Lists each row's entries. `map.rows` is complete.
absl::Status Transpose(PointMap& map, int64_t voxels, const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(map.begins, AllocateArray<int32_t>(voxels + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(map.entries, AllocateArray<int32_t>(map.rows.size(), context));
  const absl::Span<int32_t> begins = map.begins.host(), rows = map.rows.host();
  std::fill(begins.begin(), begins.end(), 0);
  for (const int32_t row : rows) {
    if (row >= 0) ++begins[row];
  }
  int32_t end = 0;
  for (int32_t& begin : begins) begin = end += begin;  // where each row's entries end
  for (auto entry = static_cast<int64_t>(rows.size()) - 1; entry >= 0; --entry) {
    if (rows[entry] >= 0) map.entries.data()[--begins[rows[entry]]] = static_cast<int32_t>(entry);
  }
  return absl::OkStatus();
}

class CpuVoxelOps final : public VoxelOps {
 public:
  absl::StatusOr<CoordinateSetPtr> AdmitCoordinates(const Coordinate* rows, int64_t size,
                                                    const Int3& tensor_stride,
                                                    const ExecutionContext& context) override {
    return CoordinateSet::Create({rows, static_cast<size_t>(size)}, tensor_stride, context);
  }

  absl::StatusOr<SortedVoxels> Sort(const CoordinateSet& set,
                                    const ExecutionContext& context) override {
    const int64_t size = set.size();
    VOXCONV_ASSIGN_OR_RETURN(SortedRows rows, SortedRows::Create(set, context));
    VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> coordinates,
                             AllocateArray<Coordinate>(size, context));
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> position, AllocateArray<int32_t>(size, context));
    for (int64_t i = 0; i < size; ++i) {
      const int32_t row = rows.rows.data()[i];
      coordinates.data()[i] = set.rows().data()[row];
      position.data()[row] = static_cast<int32_t>(i);
    }
    return SortedVoxels{CoordinateSet::Adopt(std::move(coordinates), set.tensor_stride(),
                                             set.bounds(), set.num_batches(), /*sorted=*/true),
                        std::move(rows.rows), std::move(position)};
  }

  absl::StatusOr<PointVoxels> Voxelize(const ConstTensorView& points, const int32_t* batches,
                                       const VoxelOptions& options,
                                       const ExecutionContext& context) override {
    return CpuVoxelize(points, batches, options, context);
  }

  absl::StatusOr<PointMap> Interpolate(const ConstTensorView& points, const int32_t* batches,
                                       const VoxelOptions& options, const CoordinateSet& set,
                                       const ExecutionContext& context) override {
    constexpr int kNeighbours = Trilinear::kNeighbours;
    VOXCONV_RETURN_IF_ERROR(CheckInterpolate(points, options, *context.backend));
    VOXCONV_ASSIGN_OR_RETURN(const SortedRows sorted, SortedRows::Create(set, context));
    const int64_t entries = points.rows * kNeighbours;
    PointMap map;
    VOXCONV_ASSIGN_OR_RETURN(map.rows, AllocateArray<int32_t>(entries, context));
    VOXCONV_ASSIGN_OR_RETURN(map.weights, AllocateArray<float>(entries, context));
    const PointGrid grid = GridOf(options);
    const Int3 stride = set.tensor_stride();
    ParallelRanges(context, points.rows, kPointsPerTask, [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        int32_t* const rows = map.rows.data() + p * kNeighbours;
        const int32_t batch = batches == nullptr ? 0 : batches[p];
        std::fill_n(rows, kNeighbours, -1);
        Trilinear point{};
        Int3 at;
        const bool found = batch >= 0 && batch <= kMaxBatch &&
                           point.Find(grid, stride, points.f32() + p * points.channels);
        for (int k = 0; found && k < kNeighbours; ++k) {
          if (!point.Neighbour(k, stride, at)) continue;
          rows[k] = sorted.Find(PackKey({batch, at.x, at.y, at.z}));
        }
        point.Normalize(rows);
        std::copy_n(point.weights, kNeighbours, map.weights.data() + p * kNeighbours);
      }
    });
    VOXCONV_RETURN_IF_ERROR(Transpose(map, set.size(), context));
    map.view = {points.rows,        set.size(),        kNeighbours,       map.rows.data(),
                map.weights.data(), map.begins.data(), map.entries.data()};
    return map;
  }

  absl::Status Devoxelize(const PointMapView& map, const ConstTensorView& x, const TensorView& y,
                          const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckDevoxelize(map, x, y, *context.backend));
    const int64_t channels = x.channels;
    ParallelRanges(context, map.points, RowsPerTask(channels), [&](int64_t begin, int64_t end) {
      for (int64_t p = begin; p < end; ++p) {
        for (int64_t c = 0; c < channels; ++c) {
          double sum = 0;
          for (int64_t e = p * map.neighbours; e < (p + 1) * map.neighbours; ++e) {
            if (map.rows[e] < 0) continue;
            const double weight = map.weights == nullptr ? 1.0 : map.weights[e];
            sum += weight * x.f32()[map.rows[e] * channels + c];
          }
          y.f32()[p * channels + c] = static_cast<float>(sum);
        }
      }
    });
    return absl::OkStatus();
  }

  absl::Status DevoxelizeGrad(const PointMapView& map, const ConstTensorView& dy,
                              const TensorView& dx, const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckDevoxelizeGrad(map, dy, dx, *context.backend));
    const int64_t channels = dx.channels;
    ParallelRanges(context, map.voxels, RowsPerTask(channels), [&](int64_t begin, int64_t end) {
      for (int64_t v = begin; v < end; ++v) {
        for (int64_t c = 0; c < channels; ++c) {
          double sum = 0;
          for (int64_t i = map.begins[v]; i < map.begins[v + 1]; ++i) {
            const int64_t e = map.entries[i];
            const double weight = map.weights == nullptr ? 1.0 : map.weights[e];
            sum += weight * dy.f32()[e / map.neighbours * channels + c];
          }
          dx.f32()[v * channels + c] = static_cast<float>(sum);
        }
      }
    });
    return absl::OkStatus();
  }
};

}  // namespace

std::unique_ptr<VoxelOps> MakeCpuVoxelOps() { return std::make_unique<CpuVoxelOps>(); }

}  // namespace voxconv
