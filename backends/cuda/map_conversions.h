// SPDX-License-Identifier: Apache-2.0
// The steps that CudaMapOps is made of; internal to this folder. Maps and results are in device
// memory. Work is queued on the context's stream. kResourceExhausted without memory.
#ifndef VOXCONV_BACKENDS_CUDA_MAP_CONVERSIONS_H_
#define VOXCONV_BACKENDS_CUDA_MAP_CONVERSIONS_H_

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/kernel_map.h"

namespace voxconv {

// The pairs of a neighbour table with known counts, in canonical order. O(N_out * K).
absl::StatusOr<PairList> TableToPairs(const KernelMap& map, const ExecutionContext& context);
// The transposed table, [N_in, K], and its masks. The counts may be unknown. O((N_in + N_out) * K).
absl::StatusOr<NeighbourTable> TransposeTable(const KernelMap& map,
                                              const ExecutionContext& context);
// The pairs with inputs and outputs exchanged, in canonical order, from pairs. One radix sort.
absl::StatusOr<PairList> TransposePairs(const KernelMap& map, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CUDA_MAP_CONVERSIONS_H_
