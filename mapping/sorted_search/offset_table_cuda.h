// SPDX-License-Identifier: Apache-2.0
// Minuet's form of a query's results: a table of offsets by output rows.
#ifndef VOXCONV_MAPPING_SORTED_SEARCH_OFFSET_TABLE_CUDA_H_
#define VOXCONV_MAPPING_SORTED_SEARCH_OFFSET_TABLE_CUDA_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// The map of `table`, [K, N_out] in device memory, whose entry k * N_out + q is the input row that
// output row q meets under offset k, or -1. The map has canonical pairs. Waits for the stream once,
// to learn their number. Records Stage::kConvert. O(K N_out). kResourceExhausted if the memory does
// not suffice.
absl::StatusOr<KernelMap> PairsOfOffsetTable(const MapProblem& problem, const Array<int32_t>& table,
                                             const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_SORTED_SEARCH_OFFSET_TABLE_CUDA_H_
