// Dense matrix products by cuBLASLt.
#ifndef VOXCONV_BACKENDS_CUDA_CUDA_GEMM_H_
#define VOXCONV_BACKENDS_CUDA_CUDA_GEMM_H_

#include <cstdint>
#include <memory>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "core/backend.h"

namespace voxconv {

// C[m, n] = A[m, k] B[k, n] + beta C, row-major, in the backend's memory; `batch` products with
// the strides (in elements) between their matrices. f32 is exact IEEE f32 arithmetic; tf32, f16
// and bf16 use tensor cores and accumulate in f32.
struct GemmArgs {
  int64_t m = 0, n = 0, k = 0;
  const void* a = nullptr;
  const void* b = nullptr;
  void* c = nullptr;
  int64_t lda = 0, ldb = 0, ldc = 0;  // elements from row to row; 0: k, n and n
  DType dtype = DType::kF32;          // of a and b
  DType c_dtype = DType::kF32;        // dtype's own storage, or f32
  float beta = 0;
  int64_t batch = 1;
  int64_t stride_a = 0, stride_b = 0, stride_c = 0;
};

// Deterministic: no split over k with atomics. Empty products fill C with beta C.
class CudaGemm {
 public:
  virtual ~CudaGemm() = default;
  virtual absl::Status Run(const GemmArgs& args, const ExecutionContext& context) = 0;
};

// One cuBLASLt handle for the backend; algorithms are chosen by heuristics once a shape (of about
// as many rows) and kept. Workspace, 32 MiB at most, is taken from the backend for a call.
absl::StatusOr<std::unique_ptr<CudaGemm>> MakeCudaGemm();

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_CUDA_GEMM_H_
