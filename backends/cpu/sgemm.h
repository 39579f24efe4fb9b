// Dense single-precision matrix products.
#ifndef VOXCONV_BACKENDS_CPU_SGEMM_H_
#define VOXCONV_BACKENDS_CPU_SGEMM_H_

#include <cstdint>

#include "core/backend.h"

namespace voxconv {

// C [m, n] = A [m, k] * B [k, n] + beta * C, row-major and contiguous. Splits the rows of C over
// the context's threads in blocks of a fixed size: the result does not depend on their number.
void Sgemm(const ExecutionContext& context, int64_t m, int64_t n, int64_t k, const float* a,
           const float* b, float beta, float* c);

// The same on the calling thread alone; for use inside ParallelRanges.
void SgemmSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float beta,
                 float* c);

// C [m, n] = transposed(A [k, m]) * B [k, n] + beta * C, on the calling thread alone.
void SgemmTransposedSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                           float beta, float* c);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_SGEMM_H_
