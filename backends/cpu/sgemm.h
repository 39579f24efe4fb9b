// SPDX-License-Identifier: Apache-2.0
// Dense single-precision matrix products, by a micro-kernel whose instruction set is chosen at run
// time.
#ifndef VOXCONV_BACKENDS_CPU_SGEMM_H_
#define VOXCONV_BACKENDS_CPU_SGEMM_H_

#include <cstdint>

#include "voxconv/core/backend.h"

namespace voxconv {

// Whether a product replaces what is in the result, or is added to it.
enum class ProductMode { kOverwrite, kAccumulate };

// C = A * B or C += A * B with A [m, k], B [k, n] and C [m, n], f32 in host memory, row-major and
// contiguous. Runs on the context's threads. An element is summed in ascending k, in blocks of a
// fixed size. Hence a row of the result depends neither on the number of threads nor on the rows
// that are computed with it. Takes 32 KiB of the stack. O(m * n * k).
void Sgemm(const ExecutionContext& context, int64_t m, int64_t n, int64_t k, const float* a,
           const float* b, ProductMode mode, float* c);

// The same with A [k, m], which is transposed.
void SgemmTransposed(const ExecutionContext& context, int64_t m, int64_t n, int64_t k,
                     const float* a, const float* b, ProductMode mode, float* c);

// Sgemm on the calling thread, for use inside ParallelRanges.
void SgemmSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b, ProductMode mode,
                 float* c);

// SgemmTransposed on the calling thread.
void SgemmTransposedSerial(int64_t m, int64_t n, int64_t k, const float* a, const float* b,
                           ProductMode mode, float* c);

// Whether no element of `values` is NaN or infinite. Runs on the context's threads. Dataflows that
// multiply padding ask this of their weights, because 0 * infinity is NaN. O(size).
bool AllFinite(const ExecutionContext& context, const float* values, int64_t size);
// The same of bits of bf16.
bool AllFiniteBf16(const ExecutionContext& context, const uint16_t* bits, int64_t size);

// The instruction set that products use on this machine, as Highway names it: "AVX3", "AVX2".
const char* SgemmTarget();

// Makes `count` multiply-adds of whole vectors with this instruction set, on the calling thread,
// with all operands in registers. Returns the number of floating-point operations. Over the time
// that this takes, it is the most that a core can do.
double RunMultiplyAdds(int64_t count);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_SGEMM_H_
