// SPDX-License-Identifier: Apache-2.0
// Matrix products on rows that lie anywhere: the CPU's micro-kernel for sparse convolution.
//
// Input rows are read where they are, through indices, as a GPU kernel that fetches on demand
// does; nothing is gathered. A register tile of the result is kept over all steps of a product,
// so one call with the offsets of an output tile is an implicit GEMM.
#ifndef VOXCONV_BACKENDS_CPU_INDIRECT_GEMM_H_
#define VOXCONV_BACKENDS_CPU_INDIRECT_GEMM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "hwy/cache_control.h"
#include "voxconv/backends/cpu/sgemm.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// The operands that several products share. Row-major elements in host memory, not owned. The
// program chooses the best instruction set of the machine at run time.
template <typename T>
struct IndirectOperands {
  const T* input = nullptr;     // [*, c_in]
  const T* zero_row = nullptr;  // c_in zeros: the row of index -1
  // [K] packed matrices, as the product asks for them; aligned to 64 bytes.
  const T* packed_weights = nullptr;
  T* output = nullptr;  // [*, c_out]
  int64_t c_in = 0;     // >= 1
  int64_t c_out = 0;    // >= 1
};

// Packed by PackWeights, PackedWeightSize(c_in, c_out) elements each.
using IndirectGemmOperands = IndirectOperands<float>;

// The rows of one product.
struct IndirectGemmRows {
  int64_t count = 0;
  const int32_t* in = nullptr;  // in[s * in_stride + i]: input row of step s and row i; -1: zeros
  int64_t in_stride = 0;
  const int32_t* out = nullptr;  // [count]: output rows; may repeat only if all their inputs are -1
  // How many rows lie behind the `count` in `in` and `out`, which the caller's next products read
  // and write. This product prefetches them towards its end. 0 if there are several steps.
  int64_t following = 0;
};

// Computes, for each i, the sum over steps s of input[in[s, i]] * W[steps[s]], where W[k] is the
// k-th packed matrix. kOverwrite stores the sum in output[out[i]]; kAccumulate adds it. Each
// element is one chain of multiply-adds over (step, input channel) in ascending order, from zero or
// from what the output holds. Hence the result of a row does not depend on the rows that are
// computed with it. Runs on the calling thread. O(count * steps * c_in * c_out).
void IndirectGemm(const IndirectGemmOperands& operands, absl::Span<const int32_t> steps,
                  const IndirectGemmRows& rows, ProductMode mode);

// Prefetches a row of the input, which is read soon.
inline void PrefetchInputRow(const IndirectGemmOperands& operands, int64_t row) {
  constexpr int64_t kCacheLineFloats = 16;
  const float* at = operands.input + row * operands.c_in;
  for (int64_t c = 0; c < operands.c_in; c += kCacheLineFloats) hwy::Prefetch(at + c);
}

// Elements of one packed matrix [c_in, c_out]. c_out is padded to whole vectors.
int64_t PackedWeightSize(int64_t c_in, int64_t c_out);

// Rearranges the matrices of `weights`, [matrices, c_in, c_out], into panels of the micro-kernel's
// width, padded with zeros, one matrix after the other. `packed` has matrices * PackedWeightSize
// elements, aligned to 64 bytes. The format depends on the machine, so it must not be stored. Runs
// on the context's threads. O(size of `packed`).
void PackWeights(const float* weights, int64_t matrices, int64_t c_in, int64_t c_out, float* packed,
                 const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_INDIRECT_GEMM_H_
