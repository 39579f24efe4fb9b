// SPDX-License-Identifier: Apache-2.0
// Matrix products of bf16 rows that lie anywhere, in the tiles of AMX: bf16_gemm.h for processors
// that multiply matrices of 16 x 32 and 32 x 16 with one instruction.
//
// Neither Highway 1.0 nor the compilers' list of processors has a target for them. The processor
// and the kernel are asked at run time.
#ifndef VOXCONV_BACKENDS_CPU_AMX_GEMM_H_
#define VOXCONV_BACKENDS_CPU_AMX_GEMM_H_

#include <cstdint>

#include "voxconv/backends/cpu/bf16_gemm.h"

namespace voxconv {

// Whether this program, this processor and this kernel have such products. The first call asks the
// kernel for the right to use tiles, which holds for all threads of the process from then on.
bool HasAmxProducts();

// Whether AddAmxProducts takes inputs of `c_in` channels: c_in must be a multiple of 32, the
// channels of a tile.
bool TakesAmxProducts(int64_t c_in);

// Elements of `scratch` of AddAmxProducts, of bf16 each. A thread gathers its rows there.
int64_t AmxScratchSize(int64_t c_in);

// sums[out[i] - first_out] += input[in[i]] * W for each i, or = with kOverwrite, in all columns.
// The product of a row starts from zero. For each 32 channels, in ascending order, the products of
// their even channels are one chain of multiply-adds, and those of the odd ones another; the
// chains' sum is added to the product. The result of a row depends on no other row. Denormal
// numbers count as zero. The columns behind c_out are undefined.
//
// Needs HasAmxProducts() and TakesAmxProducts(c_in). The weights are packed by PackBf16Weights.
// `scratch` has AmxScratchSize(c_in) elements, aligned to 64 bytes, and `operands.sums` is aligned
// to 64 bytes. Runs on the calling thread. O(count * c_in * c_out).
void AddAmxProducts(const Bf16SumOperands& operands, const Bf16Pairs& pairs, ProductMode mode,
                    uint16_t* scratch);

// Makes `count` products of tiles on the calling thread, with all operands in registers. Needs
// HasAmxProducts(). Returns the number of floating-point operations. Over the time that this
// takes, it is the most that a core can do.
double RunAmxProducts(int64_t count);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_AMX_GEMM_H_
