// SPDX-License-Identifier: Apache-2.0
// Matrix products of bf16 rows that lie anywhere, with sums in f32: indirect_gemm.h in bf16.
//
// Uses the dot products of AVX512-BF16, which multiply two input channels at a time, where the
// processor has them. That is asked at run time; Highway 1.0 has no target for them. Elsewhere
// numbers are widened to f32.
#ifndef VOXCONV_BACKENDS_CPU_BF16_GEMM_H_
#define VOXCONV_BACKENDS_CPU_BF16_GEMM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "voxconv/backends/cpu/indirect_gemm.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// Whether this program and this processor have such products.
bool HasBf16Products();
// "AVX512-BF16", or "widened bf16" without such products.
const char* Bf16Target();

// Bits of bf16. Packed by PackBf16Weights, PackedBf16WeightSize(c_in, c_out) elements each.
using Bf16GemmOperands = IndirectOperands<uint16_t>;

// Stores, for each i, the sum over steps s of input[in[s, i]] * W[steps[s]] in output[out[i]],
// rounded once to nearest, ties to even. Each element is one chain of additions over (step, pair of
// input channels) in ascending order, of the odd channel of a pair before the even one. Hence the
// result of a row does not depend on the rows that are computed with it. Denormal numbers may count
// as zero. Runs on the calling thread. O(count * steps * c_in * c_out).
void IndirectBf16Gemm(const Bf16GemmOperands& operands, absl::Span<const int32_t> steps,
                      const IndirectGemmRows& rows);
// The same by widened numbers on any processor, for tests.
void IndirectWidenedBf16Gemm(const Bf16GemmOperands& operands, absl::Span<const int32_t> steps,
                             const IndirectGemmRows& rows);

// Elements of one packed matrix [c_in, c_out]: whole vectors of columns, whole pairs of channels.
int64_t PackedBf16WeightSize(int64_t c_in, int64_t c_out);

// Rearranges the matrices of `weights`, [matrices, c_in, c_out], one after the other. `packed` has
// matrices * PackedBf16WeightSize elements, aligned to 64 bytes. Runs on the context's threads.
// O(size of `packed`).
void PackBf16Weights(const uint16_t* weights, int64_t matrices, int64_t c_in, int64_t c_out,
                     uint16_t* packed, const ExecutionContext& context);

// Makes `count` dot products of whole vectors on the calling thread, with all operands in
// registers. Needs HasBf16Products(). Returns the number of floating-point operations. Over the
// time that this takes, it is the most that a core can do.
double RunBf16DotProducts(int64_t count);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_BF16_GEMM_H_
