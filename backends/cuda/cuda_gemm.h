// SPDX-License-Identifier: Apache-2.0
// Dense matrix products by cuBLASLt.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_GEMM_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// C[m, n] = A[m, k] B[k, n] + beta C. All matrices are row-major, in the backend's memory. There
// are `batch` products. stride_a, stride_b and stride_c are the elements from one matrix to the
// next. Precision kF32 is exact IEEE f32 arithmetic. The others use tensor cores and accumulate in
// f32.
struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  bool transpose_a = false;               // a is [k, m] in memory
  int64_t lda = 0, ldb = 0, ldc = 0;      // elements from row to row in memory; 0: no gaps
  Precision precision = Precision::kF32;  // a and b are stored as StorageOf(precision)
  DType c_dtype = DType::kF32;            // that of a and b, or f32
  float beta = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};

// Deterministic: partial sums of a split k are added in a fixed order.
class CudaGemm {
 public:
  virtual ~CudaGemm() = default;
  // Queues the products on the context's stream; does not synchronise it. With k = 0, C becomes
  // beta C. Takes at most 32 MiB of workspace from the backend for the call. O(m n k batch).
  // kInvalidArgument for negative sizes, row lengths that are too short, and a c_dtype that is not
  // allowed; kUnimplemented if cuBLASLt has no kernel; kResourceExhausted without memory.
  virtual absl::Status Run(const GemmArgs& args, const ExecutionContext& context) = 0;
};

// Has one cuBLASLt handle, of the current device. Asks cuBLASLt for an algorithm once for each
// shape, and keeps the answer. Shapes that differ little in m share one, as do shapes with
// transpose_a that differ little in k.
absl::StatusOr<std::unique_ptr<CudaGemm>> MakeCudaGemm();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_GEMM_H_
