// SPDX-License-Identifier: Apache-2.0
#include <cub/device/device_radix_sort.cuh>
#include <cub/device/device_scan.cuh>
#include <cuda/std/functional>

#include "voxconv/backends/cuda/cuda_launch.h"
#include "voxconv/backends/cuda/device_primitives.h"
#include "voxconv/backends/cuda/sample_sort.h"

namespace voxconv {
namespace {

template <typename Key, typename Value>
absl::Status RadixSort(const Key* keys, Key* sorted_keys, const Value* values, Value* sorted_values,
                       int64_t size, int bits, const ExecutionContext& context) {
  return RunCub(context, [&](void* temp, size_t& bytes) {
    return cub::DeviceRadixSort::SortPairs(temp, bytes, keys, sorted_keys, values, sorted_values,
                                           size, 0, bits, CudaStreamOf(context));
  });
}

template <typename Key>
absl::Status Sort(const Key* keys, Key* sorted_keys, const int32_t* values, int32_t* sorted_values,
                  int64_t size, int bits, const ExecutionContext& context) {
  if (size == 0) return absl::OkStatus();
  if (size <= SampleSortPlan::kMaxSize) {
    return SampleSort(keys, sorted_keys, values, sorted_values, SampleSortPlan::For(size, bits),
                      context);
  }
  Array<Key> unwanted;
  Array<int32_t> indices;
  if (sorted_keys == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(unwanted, AllocateArray<Key>(size, context));
    sorted_keys = unwanted.data();
  }
  if (values == nullptr) {
    VOXCONV_ASSIGN_OR_RETURN(indices, AllocateArray<int32_t>(size, context));
    VOXCONV_RETURN_IF_ERROR(FillWithIndex(indices.data(), size, context));
    values = indices.data();
  }
  return RadixSort(keys, sorted_keys, values, sorted_values, size, bits, context);
}

template <typename Key>
absl::StatusOr<Key*> Sort(Key* keys, Key* spare, int64_t size, int bits,
                          const ExecutionContext& context) {
  if (size == 0) return keys;
  if (size <= SampleSortPlan::kMaxSize) {
    VOXCONV_RETURN_IF_ERROR(
        SampleSort(keys, spare, nullptr, nullptr, SampleSortPlan::For(size, bits), context));
    return spare;
  }
  cub::DoubleBuffer<Key> buffer(keys, spare);
  VOXCONV_RETURN_IF_ERROR(RunCub(context, [&](void* temp, size_t& bytes) {
    return cub::DeviceRadixSort::SortKeys(temp, bytes, buffer, size, 0, bits,
                                          CudaStreamOf(context));
  }));
  return buffer.Current();
}

__global__ void IndexKernel(int32_t* to, int64_t size) {
  if (const int64_t i = GlobalThread(); i < size) to[i] = static_cast<int32_t>(i);
}

}  // namespace

absl::Status FillWithIndex(int32_t* to, int64_t size, const ExecutionContext& context) {
  constexpr int kThreads = 256;
  VOXCONV_LAUNCH(IndexKernel, GridFor(size, kThreads), kThreads, 0, context, to, size);
  return absl::OkStatus();
}

absl::Status SortByKey(const uint32_t* keys, uint32_t* sorted_keys, const int32_t* values,
                       int32_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context) {
  return Sort(keys, sorted_keys, values, sorted_values, size, bits, context);
}

absl::Status SortByKey(const uint64_t* keys, uint64_t* sorted_keys, const int32_t* values,
                       int32_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context) {
  return Sort(keys, sorted_keys, values, sorted_values, size, bits, context);
}

absl::Status SortByKey(const uint64_t* keys, uint64_t* sorted_keys, const int64_t* values,
                       int64_t* sorted_values, int64_t size, int bits,
                       const ExecutionContext& context) {
  if (size == 0) return absl::OkStatus();
  return RadixSort(keys, sorted_keys, values, sorted_values, size, bits, context);
}

absl::StatusOr<uint32_t*> SortKeys(uint32_t* keys, uint32_t* spare, int64_t size, int bits,
                                   const ExecutionContext& context) {
  return Sort(keys, spare, size, bits, context);
}

absl::StatusOr<uint64_t*> SortKeys(uint64_t* keys, uint64_t* spare, int64_t size, int bits,
                                   const ExecutionContext& context) {
  return Sort(keys, spare, size, bits, context);
}

absl::Status ExclusiveSum(const int32_t* counts, int64_t* sums, int64_t size,
                          const ExecutionContext& context) {
  if (size == 0) return absl::OkStatus();
  // The initial value's type is the accumulator's.
  return RunCub(context, [&](void* temp, size_t& bytes) {
    return cub::DeviceScan::ExclusiveScan(temp, bytes, counts, sums, ::cuda::std::plus<int64_t>{},
                                          int64_t{0}, size, CudaStreamOf(context));
  });
}

}  // namespace voxconv
