// SPDX-License-Identifier: Apache-2.0
// Every CUDA and cuBLAS call is checked; a failure becomes a status with file, line and call.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_CHECK_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_CHECK_H_

#include <cublasLt.h>
#include <cuda_runtime_api.h>

#include "absl/status/status.h"

namespace voxconv {

// The status of a failed call: kResourceExhausted for lack of memory, kInternal otherwise. The
// message gives the call and its place. Clears the runtime's last error, so that the program can go
// on unless the error is sticky.
absl::Status CudaError(cudaError_t error, const char* call, const char* file, int line);
absl::Status CublasError(cublasStatus_t status, const char* call, const char* file, int line);

}  // namespace voxconv

#define VOXCONV_RETURN_IF_CUDA_ERROR(call)                                        \
  do {                                                                            \
    if (const cudaError_t voxconv_error = (call); voxconv_error != cudaSuccess) { \
      return ::voxconv::CudaError(voxconv_error, #call, __FILE__, __LINE__);      \
    }                                                                             \
  } while (false)

#define VOXCONV_RETURN_IF_CUBLAS_ERROR(call)                                                     \
  do {                                                                                           \
    if (const cublasStatus_t voxconv_status = (call); voxconv_status != CUBLAS_STATUS_SUCCESS) { \
      return ::voxconv::CublasError(voxconv_status, #call, __FILE__, __LINE__);                  \
    }                                                                                            \
  } while (false)

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_CHECK_H_
