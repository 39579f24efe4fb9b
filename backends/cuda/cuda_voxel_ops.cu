// SPDX-License-Identifier: Apache-2.0
#include <utility>

#include "voxconv/backends/cuda/check_coordinates.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_voxel_ops.h"
#include "voxconv/backends/cuda/cuda_voxelize.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/device_tensor.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/row_order.h"
#include "voxconv/backends/cuda/voxel_table.cuh"

namespace voxconv {
namespace {

constexpr int kBlock = 256;
constexpr int kNeighbours = Trilinear::kNeighbours;

__global__ void __launch_bounds__(kBlock)
    InsertRows(const Coordinate* coords, int64_t size, VoxelTable table, int32_t* rows) {
  const int64_t row = GlobalThread();
  if (row < size) rows[table.Insert(PackKey(coords[row]))] = static_cast<int32_t>(row);
}

struct Cloud {
  const float* values;
  int64_t columns, size;
  const int32_t* batches;
};

__global__ void __launch_bounds__(kBlock)
    FindNeighbours(Cloud cloud, PointGrid grid, Int3 stride, VoxelTable table,
                   const int32_t* row_of_slot, int32_t* rows, float* weights) {
  const int64_t p = GlobalThread();
  if (p >= cloud.size) return;
  const int32_t batch = cloud.batches == nullptr ? 0 : cloud.batches[p];
  Trilinear point{};
  const bool found = batch >= 0 && batch <= kMaxBatch &&
                     point.Find(grid, stride, cloud.values + p * cloud.columns);
  int32_t own[kNeighbours];
  for (int k = 0; k < kNeighbours; ++k) {
    own[k] = -1;
    Int3 at;
    if (!found || !point.Neighbour(k, stride, at)) continue;
    const int64_t slot = table.Find(PackKey({batch, at.x, at.y, at.z}));
    if (slot >= 0) own[k] = row_of_slot[slot];
  }
  point.Normalize(own);
  for (int k = 0; k < kNeighbours; ++k) {
    rows[p * kNeighbours + k] = own[k];
    weights[p * kNeighbours + k] = point.weights[k];
  }
}

// Keys to sort entries by row. Those without a row come last.
__global__ void __launch_bounds__(kBlock)
    KeysOfEntries(const int32_t* rows, int64_t entries, int64_t voxels, uint32_t* keys) {
  const int64_t e = GlobalThread();
  if (e < entries) keys[e] = static_cast<uint32_t>(rows[e] < 0 ? voxels : rows[e]);
}

// begins[v]: the first of the sorted keys that is v or more, for v <= voxels.
__global__ void __launch_bounds__(kBlock)
    FindBegins(const uint32_t* keys, int64_t entries, int64_t voxels, int32_t* begins) {
  const int64_t v = GlobalThread();
  if (v > voxels) return;
  int64_t low = 0, high = entries;
  while (low < high) {
    const int64_t middle = (low + high) / 2;
    if (keys[middle] < v) {
      low = middle + 1;
    } else {
      high = middle;
    }
  }
  begins[v] = static_cast<int32_t>(low);
}

// Products of two float32 are exact in float64, so that a fused sum is the same.
__device__ double Weight(const float* weights, int64_t e) {
  return weights == nullptr ? 1.0 : static_cast<double>(weights[e]);
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    ReadVoxels(PointMapView map, const T* x, int64_t channels, T* y) {
  OverlapLaunches();
  const int64_t element = GlobalThread();
  if (element >= map.points * channels) return;
  const int64_t p = element / channels, c = element % channels;
  double sum = 0;
  for (int64_t e = p * map.neighbours; e < (p + 1) * map.neighbours; ++e) {
    const int64_t row = map.rows[e];
    if (row >= 0) sum += Weight(map.weights, e) * Widen(x[row * channels + c]);
  }
  y[element] = Narrow<T>(static_cast<float>(sum));
}

template <typename T>
__global__ void __launch_bounds__(kBlock)
    SumPoints(PointMapView map, const T* dy, int64_t channels, T* dx) {
  OverlapLaunches();
  const int64_t element = GlobalThread();
  if (element >= map.voxels * channels) return;
  const int64_t v = element / channels, c = element % channels;
  double sum = 0;
#pragma unroll 4
  for (int32_t i = map.begins[v]; i < map.begins[v + 1]; ++i) {
    const int64_t e = map.entries[i];
    sum += Weight(map.weights, e) * Widen(dy[e / map.neighbours * channels + c]);
  }
  dx[element] = Narrow<T>(static_cast<float>(sum));
}

// Lists each row's entries. `map.rows` is complete.
absl::Status Transpose(PointMap& map, int64_t voxels, const ExecutionContext& context) {
  const int64_t entries = map.rows.size();
  VOXCONV_ASSIGN_OR_RETURN(map.begins, AllocateArray<int32_t>(voxels + 1, context));
  VOXCONV_ASSIGN_OR_RETURN(map.entries, AllocateArray<int32_t>(entries, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> keys, AllocateArray<uint32_t>(entries, context));
  VOXCONV_ASSIGN_OR_RETURN(Array<uint32_t> sorted, AllocateArray<uint32_t>(entries, context));
  VOXCONV_LAUNCH(KeysOfEntries, GridFor(entries, kBlock), kBlock, 0, context, map.rows.data(),
                 entries, voxels, keys.data());
  VOXCONV_RETURN_IF_ERROR(SortByKey(keys.data(), sorted.data(), /*values=*/nullptr,
                                    map.entries.data(), entries, BitsFor(voxels + 1), context));
  VOXCONV_LAUNCH(FindBegins, GridFor(voxels + 1, kBlock), kBlock, 0, context, sorted.data(),
                 entries, voxels, map.begins.data());
  return absl::OkStatus();
}

__global__ void __launch_bounds__(kBlock)
    TakeRows(const Coordinate* rows, int64_t size, const int32_t* given, Coordinate* sorted,
             int32_t* position) {
  OverlapLaunches();
  const int64_t i = GlobalThread();
  if (i >= size) return;
  const int32_t row = given[i];
  sorted[i] = rows[row];
  position[row] = static_cast<int32_t>(i);
}

class CudaVoxelOps final : public VoxelOps {
 public:
  absl::StatusOr<CoordinateSetPtr> AdmitCoordinates(const Coordinate* rows, int64_t size,
                                                    const Int3& tensor_stride,
                                                    const ExecutionContext& context) override {
    return CudaAdmitCoordinates(rows, size, tensor_stride, context);
  }

  absl::StatusOr<SortedVoxels> Sort(const CoordinateSet& set,
                                    const ExecutionContext& context) override {
    const int64_t size = set.size();
    SortedVoxels sorted;
    VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> rows, AllocateArray<Coordinate>(size, context));
    VOXCONV_ASSIGN_OR_RETURN(sorted.given, AllocateArray<int32_t>(size, context));
    VOXCONV_ASSIGN_OR_RETURN(sorted.position, AllocateArray<int32_t>(size, context));
    if (size > 0) {
      VOXCONV_RETURN_IF_ERROR(OrderRows(set, sorted.given.data(), context));
      VOXCONV_LAUNCH_EARLY(TakeRows, GridFor(size, kBlock), kBlock, 0, context, set.rows().data(),
                           size, sorted.given.data(), rows.data(), sorted.position.data());
    }
    sorted.set = CoordinateSet::Adopt(std::move(rows), set.tensor_stride(), set.bounds(),
                                      set.num_batches(), /*sorted=*/true);
    return sorted;
  }

  absl::StatusOr<PointVoxels> Voxelize(const ConstTensorView& points, const int32_t* batches,
                                       const VoxelOptions& options,
                                       const ExecutionContext& context) override {
    return CudaVoxelize(points, batches, options, context);
  }

  absl::StatusOr<PointMap> Interpolate(const ConstTensorView& points, const int32_t* batches,
                                       const VoxelOptions& options, const CoordinateSet& set,
                                       const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckInterpolate(points, options, *context.backend));
    const int64_t slots = SlotsFor(set.size()), entries = points.rows * kNeighbours;
    VOXCONV_ASSIGN_OR_RETURN(Array<unsigned long long> keys,
                             AllocateArray<unsigned long long>(slots, context));
    VOXCONV_ASSIGN_OR_RETURN(Array<int32_t> row_of_slot, AllocateArray<int32_t>(slots, context));
    PointMap map;
    VOXCONV_ASSIGN_OR_RETURN(map.rows, AllocateArray<int32_t>(entries, context));
    VOXCONV_ASSIGN_OR_RETURN(map.weights, AllocateArray<float>(entries, context));
    VOXCONV_RETURN_IF_ERROR(
        context.backend->FillBytes(keys.data(), 0, keys.bytes(), *context.stream));
    const VoxelTable table{keys.data(), static_cast<uint32_t>(slots - 1)};
    VOXCONV_LAUNCH(InsertRows, GridFor(set.size(), kBlock), kBlock, 0, context, set.rows().data(),
                   set.size(), table, row_of_slot.data());
    const Cloud cloud{points.f32(), points.channels, points.rows, batches};
    VOXCONV_LAUNCH(FindNeighbours, GridFor(points.rows, kBlock), kBlock, 0, context, cloud,
                   GridOf(options), set.tensor_stride(), table, row_of_slot.data(), map.rows.data(),
                   map.weights.data());
    VOXCONV_RETURN_IF_ERROR(Transpose(map, set.size(), context));
    map.view = {points.rows,        set.size(),        kNeighbours,       map.rows.data(),
                map.weights.data(), map.begins.data(), map.entries.data()};
    return map;
  }

  absl::Status Devoxelize(const PointMapView& map, const ConstTensorView& x, const TensorView& y,
                          const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckDevoxelize(map, x, y, *context.backend));
    return WithStoredType(x.dtype, [&]<typename T>() {
      VOXCONV_LAUNCH_EARLY(ReadVoxels<T>, GridFor(map.points * x.channels, kBlock), kBlock, 0,
                           context, map, static_cast<const T*>(x.data), x.channels,
                           static_cast<T*>(y.data));
      return absl::OkStatus();
    });
  }

  absl::Status DevoxelizeGrad(const PointMapView& map, const ConstTensorView& dy,
                              const TensorView& dx, const ExecutionContext& context) override {
    VOXCONV_RETURN_IF_ERROR(CheckDevoxelizeGrad(map, dy, dx, *context.backend));
    return WithStoredType(dx.dtype, [&]<typename T>() {
      VOXCONV_LAUNCH_EARLY(SumPoints<T>, GridFor(map.voxels * dx.channels, kBlock), kBlock, 0,
                           context, map, static_cast<const T*>(dy.data), dx.channels,
                           static_cast<T*>(dx.data));
      return absl::OkStatus();
    });
  }
};

}  // namespace

std::unique_ptr<VoxelOps> MakeCudaVoxelOps() { return std::make_unique<CudaVoxelOps>(); }

}  // namespace voxconv
