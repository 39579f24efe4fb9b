// SPDX-License-Identifier: Apache-2.0
// Coordinates as four arrays.
#ifndef VOXCONV_BACKENDS_CPU_SPLIT_COORDINATES_H_
#define VOXCONV_BACKENDS_CPU_SPLIT_COORDINATES_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"

namespace voxconv {

// The rows of a coordinate set as four arrays b | x | y | z of int32 voxel coordinates, one after
// the other: [4, N] in host memory (Luo & Lai, Section III-A). Queued on the context's stream; does
// not synchronise it. O(N). kResourceExhausted without memory.
absl::StatusOr<Array<int32_t>> SplitCoordinatesCpu(const Array<Coordinate>& rows,
                                                   const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_SPLIT_COORDINATES_H_
