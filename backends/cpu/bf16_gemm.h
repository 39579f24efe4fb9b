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
// "AVX512-BF16", or "widened bf16" without such products. It does not tell of AMX (amx_gemm.h).
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

// Sums in f32 to which products of several offsets are added. Row-major elements in host memory,
// not owned.
struct Bf16SumOperands {
  const uint16_t* input = nullptr;           // [*, c_in]
  const uint16_t* packed_weights = nullptr;  // one matrix, as in Bf16GemmOperands
  float* sums = nullptr;                     // [*, Bf16SumWidth(c_out)]
  int64_t c_in = 0;                          // >= 1
  int64_t c_out = 0;                         // >= 1
};

// Pairs of one offset. No row of `out` comes twice.
struct Bf16Pairs {
  int64_t count = 0;
  const int32_t* in = nullptr;   // rows of the input, >= 0
  const int32_t* out = nullptr;  // rows of the sums, from `first_out` on
  int64_t first_out = 0;
  // Rows of the input that the caller's next product reads first. This product may prefetch them.
  absl::Span<const int32_t> next_in;
};

// Elements of a row of sums: whole vectors.
int64_t Bf16SumWidth(int64_t c_out);

// How many panels of columns a matrix has. The weights of one stay in the first-level cache while
// the rows of an offset pass by.
int64_t Bf16Panels(int64_t c_out);

// sums[out[i] - first_out] += input[in[i]] * W for each i, or = with kOverwrite, in one panel of
// columns. An element is the chain of additions of IndirectBf16Gemm: calls that are made in the
// order of its steps give the same bits. The columns behind c_out are undefined. Runs on the
// calling thread. O(count * c_in * columns of a panel).
void AddBf16Products(const Bf16SumOperands& operands, const Bf16Pairs& pairs, int64_t panel,
                     ProductMode mode);
// The same by widened numbers on any processor, for tests.
void AddWidenedBf16Products(const Bf16SumOperands& operands, const Bf16Pairs& pairs, int64_t panel,
                            ProductMode mode);

// Writes the sums [rows, Bf16SumWidth(c_out)] to output [rows, c_out], rounded to nearest, ties to
// even. Denormal numbers may become zero. Runs on the calling thread. O(rows * c_out).
void RoundBf16Sums(const float* sums, int64_t rows, int64_t c_out, uint16_t* output);

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
