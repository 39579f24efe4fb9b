// SPDX-License-Identifier: Apache-2.0
#include "voxconv/backends/cuda/cuda_check.h"

#include "absl/strings/str_cat.h"

namespace voxconv {

absl::Status CudaError(cudaError_t error, const char* call, const char* file, int line) {
  (void)cudaGetLastError();
  const std::string message =
      absl::StrCat("CUDA: ", cudaGetErrorName(error), " (", cudaGetErrorString(error), ") at ",
                   file, ":", line, " in ", call);
  if (error == cudaErrorMemoryAllocation) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

absl::Status CublasError(cublasStatus_t status, const char* call, const char* file, int line) {
  const std::string message = absl::StrCat("cuBLAS: ", cublasLtGetStatusName(status), " at ", file,
                                           ":", line, " in ", call);
  if (status == CUBLAS_STATUS_ALLOC_FAILED) return absl::ResourceExhaustedError(message);
  return absl::InternalError(message);
}

}  // namespace voxconv
