// SPDX-License-Identifier: Apache-2.0
#include <vector>

#include "voxconv/backends/cuda/check_coordinates.h"
#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/voxel_table.cuh"

namespace voxconv {
namespace {

constexpr int kBlock = 256;
constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xFFFFFFFFu;
// More rows than the table has slots for are checked on the host.
constexpr int64_t kMostRows = int64_t{1} << 30;

// What the rows have in common. All are maxima that begin as 0. values: kMaxCoordinate - least
// coordinate by axis, greatest coordinate - kMinCoordinate by axis, greatest batch + 1, whether a
// row is refused, whether the rows do not ascend.
struct Findings {
  enum { kBelow = 0, kAbove = 3, kBatches = 6, kRefused = 7, kUnsorted = 8, kCount = 9 };
  uint32_t values[kCount];
};

__device__ bool IsAllowed(const Coordinate& row, const Int3& stride) {
  if (row.b < 0 || row.b > kMaxBatch) return false;
  const int32_t at[3] = {row.x, row.y, row.z};
  const int32_t step[3] = {stride.x, stride.y, stride.z};
  for (int axis = 0; axis < 3; ++axis) {
    if (!InRange(at[axis]) || at[axis] % step[axis] != 0) return false;
  }
  return true;
}

__device__ uint32_t MaxOfWarp(uint32_t value) {
  for (int step = kWarp / 2; step > 0; step /= 2) {
    value = max(value, __shfl_xor_sync(kAllLanes, value, step));
  }
  return value;
}

// Whether the key was not there before.
__device__ bool IsNew(const VoxelTable& table, uint64_t key) {
  for (auto slot = static_cast<uint32_t>(MixKey(key)) & table.last;;
       slot = (slot + 1) & table.last) {
    const unsigned long long seen = atomicCAS(table.keys + slot, kEmptyKey, key);
    if (seen == kEmptyKey) return true;
    if (seen == key) return false;
  }
}

__global__ void __launch_bounds__(kBlock)
    CheckRows(const Coordinate* rows, int64_t size, Int3 stride, VoxelTable table, Coordinate* copy,
              Findings* findings) {
  __shared__ uint32_t shared[Findings::kCount];
  if (threadIdx.x < Findings::kCount) shared[threadIdx.x] = 0;
  __syncthreads();
  const int64_t i = GlobalThread();
  uint32_t own[Findings::kCount] = {};
  if (i < size) {
    const Coordinate row = rows[i];
    copy[i] = row;
    if (!IsAllowed(row, stride)) {
      own[Findings::kRefused] = 1;
    } else {
      const uint64_t key = PackKey(row);
      if (!IsNew(table, key)) own[Findings::kRefused] = 1;
      // A row before this one that is not allowed refuses all rows, whatever this says.
      if (i > 0 && PackKey(rows[i - 1]) >= key) own[Findings::kUnsorted] = 1;
      const int32_t at[3] = {row.x, row.y, row.z};
      for (int axis = 0; axis < 3; ++axis) {
        own[Findings::kBelow + axis] = static_cast<uint32_t>(kMaxCoordinate - at[axis]);
        own[Findings::kAbove + axis] = static_cast<uint32_t>(at[axis] - kMinCoordinate);
      }
      own[Findings::kBatches] = static_cast<uint32_t>(row.b + 1);
    }
  }
  for (int k = 0; k < Findings::kCount; ++k) {
    const uint32_t most = MaxOfWarp(own[k]);
    if (threadIdx.x % kWarp == 0 && most != 0) atomicMax(shared + k, most);
  }
  __syncthreads();
  if (threadIdx.x < Findings::kCount && shared[threadIdx.x] != 0) {
    atomicMax(findings->values + threadIdx.x, shared[threadIdx.x]);
  }
}

// With the messages of CoordinateSet::Create.
absl::StatusOr<CoordinateSetPtr> CreateOnHost(const Coordinate* rows, int64_t size,
                                              const Int3& tensor_stride,
                                              const ExecutionContext& context) {
  std::vector<Coordinate> host(size);
  VOXCONV_RETURN_IF_ERROR(
      context.backend->Copy(host.data(), MemorySpace::kHost, rows, context.backend->device().space,
                            size * static_cast<int64_t>(sizeof(Coordinate)), *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  return CoordinateSet::Create(host, tensor_stride, context);
}

}  // namespace

absl::StatusOr<CoordinateSetPtr> CudaAdmitCoordinates(const Coordinate* rows, int64_t size,
                                                      const Int3& tensor_stride,
                                                      const ExecutionContext& context) {
  const bool is_stride = tensor_stride.x > 0 && tensor_stride.y > 0 && tensor_stride.z > 0;
  if (!is_stride || size == 0) return CoordinateSet::Create({}, tensor_stride, context);
  if (size > kMostRows) return CreateOnHost(rows, size, tensor_stride, context);
  const int64_t slots = SlotsFor(size);
  VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> copy, AllocateArray<Coordinate>(size, context));
  // The table, and the findings behind it.
  const int64_t bytes =
      slots * static_cast<int64_t>(sizeof(uint64_t)) + static_cast<int64_t>(sizeof(Findings));
  VOXCONV_ASSIGN_OR_RETURN(Array<char> cleared, AllocateArray<char>(bytes, context));
  VOXCONV_RETURN_IF_ERROR(
      context.backend->FillBytes(cleared.data(), 0, cleared.bytes(), *context.stream));
  auto* const keys = reinterpret_cast<unsigned long long*>(cleared.data());
  auto* const found = reinterpret_cast<Findings*>(keys + slots);
  VOXCONV_LAUNCH(CheckRows, GridFor(size, kBlock), kBlock, 0, context, rows, size, tensor_stride,
                 VoxelTable{keys, static_cast<uint32_t>(slots - 1)}, copy.data(), found);
  Findings findings;
  VOXCONV_RETURN_IF_ERROR(context.backend->Copy(&findings, MemorySpace::kHost, found, copy.space(),
                                                sizeof findings, *context.stream));
  VOXCONV_RETURN_IF_ERROR(context.stream->Synchronize());
  const uint32_t* values = findings.values;
  if (values[Findings::kRefused] != 0) return CreateOnHost(rows, size, tensor_stride, context);
  Box bounds;
  for (int axis = 0; axis < 3; ++axis) {
    bounds.lo[axis] = kMaxCoordinate - static_cast<int32_t>(values[Findings::kBelow + axis]);
    bounds.hi[axis] = kMinCoordinate + static_cast<int32_t>(values[Findings::kAbove + axis]);
  }
  return CoordinateSet::Adopt(std::move(copy), tensor_stride, bounds,
                              static_cast<int32_t>(values[Findings::kBatches]),
                              values[Findings::kUnsorted] == 0);
}

}  // namespace voxconv
