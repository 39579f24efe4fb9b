// SPDX-License-Identifier: Apache-2.0
// Holds a kernel map against the definition that core/geometry.h gives, on all rows.
#ifndef VOXCONV_CORE_MAP_CHECK_H_
#define VOXCONV_CORE_MAP_CHECK_H_

#include "absl/status/status.h"
#include "voxconv/core/coordinate_set.h"
#include "voxconv/core/geometry.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// Checks that `map` is the answer to `problem`: all rows lie in their sets, and the pairs are those
// of the definition, in canonical order, no more and no fewer. Serves maps of plugins and of files
// before anything reads rows by them. kInternal names the offset and the first row that is wrong.
//
// Works on the host on sorted copies of the coordinates. It shares no code with any mapping, and it
// takes a fraction of the time of the oracle in reference_cpu. O(N log N + K N). Synchronises the
// stream.
absl::Status CheckMapOnAllRows(const KernelMap& map, const MapProblem& problem,
                               const ExecutionContext& context);

// Checks that `outputs` are the output coordinates of `inputs`, all of them, ascending by packed
// key. `geometry` is strided or transposed. kInternal names the first row that is wrong. O(K N log
// N). Synchronises the stream.
absl::Status CheckOutputsOnAllRows(const ConvGeometry& geometry, const CoordinateSet& inputs,
                                   const CoordinateSet& outputs, const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_CORE_MAP_CHECK_H_
