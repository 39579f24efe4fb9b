// SPDX-License-Identifier: Apache-2.0
// Voxelisation by a hash table. Five kernels, each with a thread for a point, besides the last:
// 1. InsertPoints finds each point's slot of the table, the first point of each slot and its number
//    of points. All of these are maxima or sums of integers, so that no order of threads matters.
//    A point's arrival, its place among the points of its slot, depends on that order.
// 2. PlaceRows numbers the first points in their order: these are the rows. The same scan gives
//    where the points of each row begin. Blocks pass their sums on as they go (Merrill and Garland,
//    "Single-pass parallel prefix scan with decoupled look-back", 2016).
// 3. GatherPoints puts the points of each row together, by arrival.
// 4. OrderPoints puts them in the order of the cloud: a point counts those of its row before it.
//    Rows of very many points are read off the cloud instead.
// 5. WriteFeatures sums in that order, with a thread for each feature.
#include <algorithm>
#include <cub/block/block_scan.cuh>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/cuda_voxelize.h"
#include "voxconv/backends/cuda/grid_dependency.cuh"
#include "voxconv/backends/cuda/voxel_table.cuh"

namespace voxconv {
namespace {

constexpr int kBlock = 256;
constexpr int kItems = 4;  // points of a thread in PlaceRows
constexpr int kTile = kBlock * kItems;
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
// A row of more points than this is read off the cloud.
constexpr int32_t kMostCounted = 1024;

// Rows and points in one number, so that one scan adds both. There are at most 2^30 of each.
using Sums = unsigned long long;
constexpr int kRowShift = 31;
constexpr Sums kPointMask = (Sums{1} << kRowShift) - 1;
// What a block has passed on is in the highest bits: its own sums, or those of all blocks up to it.
constexpr Sums kOwn = Sums{1} << 62, kAll = Sums{1} << 63, kSumsMask = kOwn - 1;

constexpr uint32_t kDroppedRow = 0xFFFFFFFFu;

// What the kernels share besides the result. All that is not "uninitialised" begins as zeros.
struct Scratch {
  VoxelTable table;
  // By slot. firsts: points - i for the first point i, which is a maximum. counts: of its points;
  // PlaceRows replaces it by the row.
  uint32_t *firsts, *counts;
  Sums* passed;               // by tile of PlaceRows
  unsigned long long* bad;    // as in VoxelReport
  uint32_t* bounds;           // below, above and batches of VoxelReport
  uint32_t *tiles, *rows;     // tiles that were begun; rows that were found
  int32_t *slots, *arrivals;  // by point, uninitialised; slot -1: dropped
  int32_t* gathered;          // points by row, uninitialised
};
constexpr int kBounds = 7;

struct Cloud {
  const float* values;
  int64_t columns;
  const int32_t* batches;
  int32_t size;

  __device__ const float* Point(int64_t i) const { return values + i * columns; }
};

// The arrays of PointVoxels.
struct Result {
  Coordinate* coords;
  float* features;
  int32_t *voxel_of_point, *points_of_voxel, *begins, *points;
  VoxelReport* report;
  int32_t most_rows, limit;  // rows that there is room for; points that make features
};

__global__ void __launch_bounds__(kBlock)
    InsertPoints(Cloud cloud, PointGrid grid, Scratch scratch) {
  OverlapLaunches();
  const int64_t i = GlobalThread();
  if (i >= cloud.size) return;
  Coordinate voxel{};
  voxel.b = cloud.batches == nullptr ? 0 : cloud.batches[i];
  int found = grid.Locate(cloud.Point(i), voxel);
  if (found == PointGrid::kInside && (voxel.b < 0 || voxel.b > kMaxBatch)) found = 3;
  if (found >= 0) atomicMax(scratch.bad, ~static_cast<unsigned long long>(4 * i + found));
  if (found != PointGrid::kInside) {
    scratch.slots[i] = -1;
    return;
  }
  const uint32_t slot = scratch.table.Insert(PackKey(voxel));
  scratch.slots[i] = static_cast<int32_t>(slot);
  atomicMax(scratch.firsts + slot, static_cast<uint32_t>(cloud.size - i));
  scratch.arrivals[i] = static_cast<int32_t>(atomicAdd(scratch.counts + slot, 1u));
}

__device__ bool IsFirst(const Scratch& scratch, int32_t size, int64_t i, int32_t slot) {
  return slot >= 0 && scratch.firsts[slot] == static_cast<uint32_t>(size - i);
}

// The sums of all tiles before `tile`. Passes on those of `tile` itself, `own`. All lanes of one
// warp must call it.
__device__ Sums PassOn(volatile Sums* passed, uint32_t tile, Sums own) {
  const auto lane = static_cast<int>(threadIdx.x % kWarp);
  if (lane == 0) passed[tile] = own | (tile == 0 ? kAll : kOwn);
  Sums before = 0;
  for (auto end = static_cast<int64_t>(tile); end > 0; end -= kWarp) {
    const int64_t other = end - 1 - lane;
    Sums word;
    do {
      word = kAll;
      if (other >= 0) word = passed[other];
    } while (__any_sync(kAllLanes, (word & (kOwn | kAll)) == 0));
    const unsigned all = __ballot_sync(kAllLanes, (word & kAll) != 0);
    const int last = all == 0 ? kWarp - 1 : __ffs(static_cast<int>(all)) - 1;
    Sums part = lane <= last ? word & kSumsMask : 0;
    for (int step = kWarp / 2; step > 0; step /= 2) {
      part += __shfl_xor_sync(kAllLanes, part, step);
    }
    before += part;
    if (all != 0) break;
  }
  if (lane == 0 && tile > 0) passed[tile] = (before + own) | kAll;
  return before;
}

__device__ void AddToBounds(const Coordinate& voxel, uint32_t* bounds) {
  const int32_t at[3] = {voxel.x, voxel.y, voxel.z};
  for (int axis = 0; axis < 3; ++axis) {
    atomicMax(bounds + axis, static_cast<uint32_t>(kMaxCoordinate - at[axis]));
    atomicMax(bounds + 3 + axis, static_cast<uint32_t>(at[axis] - kMinCoordinate));
  }
  atomicMax(bounds + 6, static_cast<uint32_t>(voxel.b + 1));
}

__global__ void __launch_bounds__(kBlock)
    PlaceRows(int32_t size, uint32_t num_tiles, Scratch scratch, Result result) {
  OverlapLaunches();
  using Scan = cub::BlockScan<Sums, kBlock>;
  __shared__ typename Scan::TempStorage temp;
  __shared__ uint32_t shared_tile, bounds[kBounds];
  __shared__ Sums shared_before;
  // Tiles begin in the order of their numbers, so that no block waits for one that has no room.
  if (threadIdx.x == 0) shared_tile = atomicAdd(scratch.tiles, 1u);
  if (threadIdx.x < kBounds) bounds[threadIdx.x] = 0;
  __syncthreads();
  const uint32_t tile = shared_tile;
  const int64_t first = int64_t{tile} * kTile + int64_t{threadIdx.x} * kItems;
  int32_t slots[kItems];
  Sums sums[kItems];
  Sums own = 0;
  for (int k = 0; k < kItems; ++k) {
    slots[k] = first + k < size ? scratch.slots[first + k] : -1;
    const bool begins_row = IsFirst(scratch, size, first + k, slots[k]);
    sums[k] = begins_row ? (Sums{1} << kRowShift) + scratch.counts[slots[k]] : 0;
    own += sums[k];
  }
  Sums before = 0, of_tile = 0;
  Scan(temp).ExclusiveSum(own, before, of_tile);
  if (threadIdx.x < kWarp) {
    const Sums passed = PassOn(scratch.passed, tile, of_tile);
    if (threadIdx.x == 0) shared_before = passed;
  }
  __syncthreads();
  before += shared_before;
  for (int k = 0; k < kItems; ++k) {
    if (sums[k] == 0) continue;
    const auto row = static_cast<int32_t>(before >> kRowShift);
    // Where the points of the rows that are kept end is where the first dropped row begins.
    if (row <= result.most_rows) result.begins[row] = static_cast<int32_t>(before & kPointMask);
    const bool kept = row < result.most_rows;
    if (kept) {
      const Coordinate voxel = UnpackKey(scratch.table.keys[slots[k]]);
      result.coords[row] = voxel;
      const auto count = static_cast<int32_t>(sums[k] & kPointMask);
      result.points_of_voxel[row] = min(count, result.limit);
      AddToBounds(voxel, bounds);
    }
    scratch.counts[slots[k]] = kept ? static_cast<uint32_t>(row) : kDroppedRow;
    before += sums[k];
  }
  if (tile == num_tiles - 1 && threadIdx.x == kBlock - 1) {
    const auto rows = static_cast<int32_t>(before >> kRowShift);
    *scratch.rows = static_cast<uint32_t>(min(rows, result.most_rows));
    if (rows <= result.most_rows) result.begins[rows] = static_cast<int32_t>(before & kPointMask);
  }
  __syncthreads();
  if (threadIdx.x < kBounds && bounds[threadIdx.x] != 0) {
    atomicMax(scratch.bounds + threadIdx.x, bounds[threadIdx.x]);
  }
}

__global__ void __launch_bounds__(kBlock)
    GatherPoints(int32_t size, Scratch scratch, Result result) {
  OverlapLaunches();
  const int64_t i = GlobalThread();
  if (i >= size) return;
  const int32_t slot = scratch.slots[i];
  const uint32_t row = slot < 0 ? kDroppedRow : scratch.counts[slot];
  result.voxel_of_point[i] = row == kDroppedRow ? -1 : static_cast<int32_t>(row);
  if (row == kDroppedRow) return;
  scratch.gathered[result.begins[row] + scratch.arrivals[i]] = static_cast<int32_t>(i);
}

// Writes the points of `row`, of which `first` is the first, in their order to points[begin] ..
// points[end - 1]. All lanes of a warp must call it with the same arguments.
__device__ void ReadOffCloud(int32_t row, int64_t first, int64_t size, int32_t begin, int32_t end,
                             const Result& result) {
  constexpr int kReads = 4;
  const int lane = static_cast<int>(threadIdx.x % kWarp);
  const unsigned below = (1u << lane) - 1;
  int32_t to = begin;
  for (int64_t from = first; from < size && to < end; from += kReads * kWarp) {
    int32_t rows[kReads];
    for (int k = 0; k < kReads; ++k) {
      const int64_t i = from + k * kWarp + lane;
      rows[k] = i < size ? result.voxel_of_point[i] : -1;
    }
    for (int k = 0; k < kReads; ++k) {
      const unsigned found = __ballot_sync(kAllLanes, rows[k] == row);
      if (rows[k] == row) {
        result.points[to + __popc(found & below)] = static_cast<int32_t>(from + k * kWarp + lane);
      }
      to += __popc(found);
    }
  }
}

__device__ void WriteReport(const Cloud& cloud, const Scratch& scratch, const Result& result) {
  VoxelReport report{};
  report.voxels = *scratch.rows;
  report.dropped = cloud.size - result.begins[report.voxels];
  for (int axis = 0; axis < 3; ++axis) {
    report.below[axis] = scratch.bounds[axis];
    report.above[axis] = scratch.bounds[3 + axis];
  }
  report.batches = scratch.bounds[6];
  report.bad_point = *scratch.bad;
  if (report.bad_point != 0) {
    const auto bad = static_cast<int64_t>(~report.bad_point);
    report.bad_value = bad % 4 == 3 ? static_cast<double>(cloud.batches[bad / 4])
                                    : static_cast<double>(cloud.Point(bad / 4)[bad % 4]);
  }
  *result.report = report;
}

__global__ void __launch_bounds__(kBlock) OrderPoints(Cloud cloud, Scratch scratch, Result result) {
  OverlapLaunches();
  const int64_t i = GlobalThread();
  if (i == 0) WriteReport(cloud, scratch, result);
  const int32_t row = i < cloud.size ? result.voxel_of_point[i] : -1;
  const int32_t begin = row < 0 ? 0 : result.begins[row];
  const int32_t end = row < 0 ? 0 : result.begins[row + 1];
  const bool is_long = end - begin > kMostCounted;
  if (row >= 0 && !is_long) {
    int32_t before = 0;
    for (int32_t k = begin; k < end; ++k) before += scratch.gathered[k] < i ? 1 : 0;
    result.points[begin + before] = static_cast<int32_t>(i);
  }
  const bool leads = is_long && IsFirst(scratch, cloud.size, i, scratch.slots[i]);
  for (unsigned left = __ballot_sync(kAllLanes, leads); left != 0; left &= left - 1) {
    const int lane = __ffs(static_cast<int>(left)) - 1;
    const int64_t first = i - static_cast<int64_t>(threadIdx.x % kWarp) + lane;
    ReadOffCloud(__shfl_sync(kAllLanes, row, lane), first, cloud.size,
                 __shfl_sync(kAllLanes, begin, lane), __shfl_sync(kAllLanes, end, lane), result);
  }
}

// `columns` of each point are features, from column `skipped` on.
__global__ void __launch_bounds__(kBlock)
    WriteMeans(Cloud cloud, int skipped, int64_t columns, const uint32_t* rows, Result result) {
  OverlapLaunches();
  const int64_t element = GlobalThread();
  const int64_t row = element / columns, column = element % columns;
  if (row >= *rows) return;
  const int32_t begin = result.begins[row], count = result.points_of_voxel[row];
  const float* const values = cloud.values + skipped + column;
  double sum = 0;
#pragma unroll 4
  for (int32_t k = 0; k < count; ++k) sum += values[result.points[begin + k] * cloud.columns];
  result.features[element] = static_cast<float>(sum / count);
}

// The first `limit` points of each row, side by side.
__global__ void __launch_bounds__(kBlock)
    WritePoints(Cloud cloud, int skipped, int64_t columns, const uint32_t* rows, Result result) {
  OverlapLaunches();
  const int64_t channels = columns * result.limit;
  for (int64_t element = GlobalThread(); element < *rows * channels;
       element += int64_t{gridDim.x} * kBlock) {
    const int64_t row = element / channels, k = element % channels / columns;
    float value = 0;
    if (k < result.points_of_voxel[row]) {
      const int64_t point = result.points[result.begins[row] + k];
      value = cloud.Point(point)[skipped + element % columns];
    }
    result.features[element] = value;
  }
}

// The scratch memory in two blocks: one that is cleared, and one that is not.
struct ScratchMemory {
  Buffer cleared, rest;
  Scratch view{};

  static absl::StatusOr<ScratchMemory> Create(int64_t points, int64_t num_tiles,
                                              const ExecutionContext& context) {
    const int64_t slots = SlotsFor(points);
    // 8-byte words first.
    const int64_t words = slots + num_tiles + 1, halves = 2 * slots + kBounds + 2;
    ScratchMemory memory;
    VOXCONV_ASSIGN_OR_RETURN(memory.cleared,
                             context.backend->Allocate(8 * words + 4 * halves, *context.stream));
    VOXCONV_ASSIGN_OR_RETURN(memory.rest, context.backend->Allocate(12 * points, *context.stream));
    VOXCONV_RETURN_IF_ERROR(context.backend->FillBytes(memory.cleared.data(), 0,
                                                       memory.cleared.bytes(), *context.stream));
    Scratch& view = memory.view;
    auto* const long_words = static_cast<unsigned long long*>(memory.cleared.data());
    view.table = {long_words, static_cast<uint32_t>(slots - 1)};
    view.passed = long_words + slots;
    view.bad = view.passed + num_tiles;
    view.firsts = reinterpret_cast<uint32_t*>(long_words + words);
    view.counts = view.firsts + slots;
    view.bounds = view.counts + slots;
    view.tiles = view.bounds + kBounds;
    view.rows = view.tiles + 1;
    view.slots = static_cast<int32_t*>(memory.rest.data());
    view.arrivals = view.slots + points;
    view.gathered = view.arrivals + points;
    return memory;
  }
};

absl::Status WriteFeatures(const Cloud& cloud, const VoxelOptions& options, const Scratch& scratch,
                           const Result& result, const ExecutionContext& context) {
  const int skipped = options.xyz_features ? 0 : 3;
  const int64_t columns = cloud.columns - skipped;
  if (columns == 0) return absl::OkStatus();
  if (options.features == VoxelFeatures::kPoints) {
    constexpr int64_t kMostBlocks = 8192;
    const int64_t elements = result.most_rows * columns * result.limit;
    const int64_t blocks = std::min(kMostBlocks, CeilDiv(elements, kBlock));
    VOXCONV_LAUNCH_EARLY(WritePoints, dim3(static_cast<unsigned>(blocks)), kBlock, 0, context,
                         cloud, skipped, columns, scratch.rows, result);
    return absl::OkStatus();
  }
  VOXCONV_LAUNCH_EARLY(WriteMeans, GridFor(result.most_rows * columns, kBlock), kBlock, 0, context,
                       cloud, skipped, columns, scratch.rows, result);
  return absl::OkStatus();
}

// Without points there are no rows, and nothing to report.
absl::Status ReportNothing(PointVoxels& voxels, const ExecutionContext& context) {
  Backend& backend = *context.backend;
  VOXCONV_RETURN_IF_ERROR(
      backend.FillBytes(voxels.begins.data(), 0, voxels.begins.bytes(), *context.stream));
  return backend.FillBytes(voxels.report.data(), 0, voxels.report.bytes(), *context.stream);
}

}  // namespace

absl::StatusOr<PointVoxels> CudaVoxelize(const ConstTensorView& points, const int32_t* batches,
                                         const VoxelOptions& options,
                                         const ExecutionContext& context) {
  VOXCONV_RETURN_IF_ERROR(CheckVoxelize(points, options, *context.backend));
  VOXCONV_ASSIGN_OR_RETURN(PointVoxels voxels, AllocateVoxels(points, options, context));
  if (points.rows == 0) {
    VOXCONV_RETURN_IF_ERROR(ReportNothing(voxels, context));
    return voxels;
  }
  const int64_t num_tiles = CeilDiv(points.rows, kTile);
  VOXCONV_ASSIGN_OR_RETURN(const ScratchMemory memory,
                           ScratchMemory::Create(points.rows, num_tiles, context));
  const Scratch& scratch = memory.view;
  const auto size = static_cast<int32_t>(points.rows);
  const Cloud cloud{points.f32(), points.channels, batches, size};
  const Result result{voxels.coords.data(),
                      voxels.features.view().f32(),
                      voxels.voxel_of_point.data(),
                      voxels.points_of_voxel.data(),
                      voxels.begins.data(),
                      voxels.points.data(),
                      voxels.report.data(),
                      static_cast<int32_t>(voxels.coords.size()),
                      static_cast<int32_t>(std::min<int64_t>(PointLimit(options), INT32_MAX))};
  const dim3 grid = GridFor(size, kBlock);
  VOXCONV_LAUNCH(InsertPoints, grid, kBlock, 0, context, cloud, GridOf(options), scratch);
  VOXCONV_LAUNCH_EARLY(PlaceRows, dim3(static_cast<unsigned>(num_tiles)), kBlock, 0, context, size,
                       static_cast<uint32_t>(num_tiles), scratch, result);
  VOXCONV_LAUNCH_EARLY(GatherPoints, grid, kBlock, 0, context, size, scratch, result);
  VOXCONV_LAUNCH_EARLY(OrderPoints, grid, kBlock, 0, context, cloud, scratch, result);
  VOXCONV_RETURN_IF_ERROR(WriteFeatures(cloud, options, scratch, result, context));
  return voxels;
}

}  // namespace voxconv
