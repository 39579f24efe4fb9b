// SPDX-License-Identifier: Apache-2.0
// Matrix products of f32 rows that lie anywhere, in the tiles of AMX (amx_gemm.h).
//
// A number of f32 is the sum of three of bf16: the number rounded to bf16, what is left of it
// rounded to bf16, and the rest. Of the nine products of two such sums the three least are left
// out. They are about 2^-23 of the whole product at most. Henry, Tang and Heinecke, "Leveraging the
// bfloat16 Artificial Intelligence Datatype for Higher-Precision Computations" (2019), describe
// such sums.
#ifndef VOXCONV_BACKENDS_CPU_AMX_F32_GEMM_H_
#define VOXCONV_BACKENDS_CPU_AMX_F32_GEMM_H_

#include <cstdint>

#include "absl/types/span.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// Whether AddAmxF32Products takes inputs of `c_in` channels on this machine: c_in must be a
// multiple of 32, the channels of a tile, and HasAmxProducts().
bool TakesAmxF32Products(int64_t c_in);

// Row-major elements in host memory, not owned.
struct AmxF32Operands {
  const float* input = nullptr;              // [*, c_in]
  const uint16_t* packed_weights = nullptr;  // [K] matrices of PackAmxF32Weights
  float* output = nullptr;                   // [*, c_out]
  int64_t c_in = 0;                          // >= 1
  int64_t c_out = 0;                         // >= 1
};

// Pairs that are multiplied by one matrix. No row of `out` comes twice.
struct AmxF32Pairs {
  int64_t matrix = 0;
  int64_t count = 0;
  const int32_t* in = nullptr;   // [count]: rows of the input, >= 0
  const int32_t* out = nullptr;  // [count]: rows of the output
  bool overwrite = false;        // store the products in place of adding them
};

// Bytes of `scratch` of AddAmxF32Products.
int64_t AmxF32ScratchBytes(int64_t c_in);

// output[out[i]] += input[in[i]] * W[matrix], or =, for each pair i of each of `products`, one
// after the other. The product of a row starts from zero. Each 32 input channels add six products
// of parts to it, that of the high parts last. The result of a row depends on no other row. A row
// with a number that is not 0 and not in [2^-48, 2^48) is multiplied by one chain of multiply-adds
// in place of that. Then no product or sum overflows, and what underflows is at most 2^-30 of its
// product.
//
// Needs TakesAmxF32Products(c_in). `scratch` has AmxF32ScratchBytes(c_in), aligned to 64 bytes.
// Runs on the calling thread. O(pairs * c_in * c_out).
void AddAmxF32Products(const AmxF32Operands& operands, absl::Span<const AmxF32Pairs> products,
                       void* scratch);

// Elements of bf16 of one packed matrix [c_in, c_out]: three parts, whole tiles of columns.
int64_t PackedAmxF32WeightSize(int64_t c_in, int64_t c_out);

// Splits and rearranges the matrices of `weights`, [matrices, c_in, c_out], one after the other.
// c_in is a multiple of 32. `packed` has matrices * PackedAmxF32WeightSize elements, aligned to 64
// bytes. Returns false, and leaves `packed` undefined, if a weight is not 0 and not in
// [2^-48, 2^48). Runs on the context's threads. O(size of `packed`).
bool PackAmxF32Weights(const float* weights, int64_t matrices, int64_t c_in, int64_t c_out,
                       uint16_t* packed, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_AMX_F32_GEMM_H_
