// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/tensor_map.h"

#include <cuda_runtime_api.h>

#include "absl/status/status.h"
#include "absl/strings/str_cat.h"
#include "voxconv/core/check.h"

namespace voxconv {
namespace {

using Encode = decltype(&cuTensorMapEncodeTiled);

// Asked of the runtime, so that the program does not link with the driver's library and starts on
// machines without one. Null where the driver has no such function.
Encode FindEncode() {
  void* function = nullptr;
  cudaDriverEntryPointQueryResult result{};
#if CUDART_VERSION >= 12050
  constexpr unsigned kSince = 12000;
  const cudaError_t error = cudaGetDriverEntryPointByVersion("cuTensorMapEncodeTiled", &function,
                                                             kSince, cudaEnableDefault, &result);
#else
  const cudaError_t error =
      cudaGetDriverEntryPoint("cuTensorMapEncodeTiled", &function, cudaEnableDefault, &result);
#endif
  if (error != cudaSuccess || result != cudaDriverEntryPointSuccess) return nullptr;
  return reinterpret_cast<Encode>(function);
}

}  // namespace

absl::StatusOr<CUtensorMap> DescribeBoxes(const void* data, int64_t groups, int64_t rows,
                                          int64_t columns, int element_bytes, int box_rows) {
  static const Encode kEncode = FindEncode();
  if (kEncode == nullptr) {
    return absl::UnimplementedError("the CUDA driver has no cuTensorMapEncodeTiled");
  }
  constexpr cuuint32_t kBoxRowBytes = 128;
  VOXCONV_CHECK(element_bytes == 2 || element_bytes == 4);
  const auto size = static_cast<cuuint32_t>(element_bytes);
  const cuuint64_t sizes[3] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows),
                               static_cast<cuuint64_t>(groups)};
  const cuuint64_t pitches[2] = {sizes[0] * size, sizes[0] * sizes[1] * size};
  const cuuint32_t box[3] = {kBoxRowBytes / size, static_cast<cuuint32_t>(box_rows), 1};
  const cuuint32_t steps[3] = {1, 1, 1};
  CUtensorMap map;
  const CUresult result =
      kEncode(&map, size == 2 ? CU_TENSOR_MAP_DATA_TYPE_UINT16 : CU_TENSOR_MAP_DATA_TYPE_UINT32, 3,
              const_cast<void*>(data), sizes, pitches, box, steps, CU_TENSOR_MAP_INTERLEAVE_NONE,
              CU_TENSOR_MAP_SWIZZLE_128B, CU_TENSOR_MAP_L2_PROMOTION_L2_256B,
              CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE);
  if (result != CUDA_SUCCESS) {
    return absl::InternalError(absl::StrCat("cuTensorMapEncodeTiled: error ",
                                            static_cast<int>(result), " for [", groups, ", ", rows,
                                            ", ", columns, "]"));
  }
  return map;
}

}  // namespace voxconv
