// SPDX-License-Identifier: Apache-2.0
// Dense single-precision matrix products.
#ifndef VOXCONV_BACKENDS_CPU_SGEMM_H_
#define VOXCONV_BACKENDS_CPU_SGEMM_H_

#include <cstdint>

#include "voxconv/core/backend.h"

namespace voxconv {

// C = A * B + beta * C with A [m, k], B [k, n] and C [m, n], f32 in host memory, row-major and
// contiguous. Splits the rows of C over the context's threads in blocks of a fixed size, so that
// the result does not depend on the number of threads. O(m * n * k).
void Sgemm(const ExecutionContext& context, int64_t m, int64_t n, int64_t k, const float* a,
           const float* b, float beta, float* c);

// The same on the calling thread, for use inside ParallelRanges.
void SgemmSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b, float beta,
                 float* c);

// The same with A [k, m], which is transposed, on the calling thread.
void SgemmTransposedSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                           float beta, float* c);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_SGEMM_H_
