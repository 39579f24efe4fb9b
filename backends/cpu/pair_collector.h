// From a mapping's lookups to a kernel map in canonical form.
#ifndef VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_
#define VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_

#include <cstdint>

#include "absl/functional/function_ref.h"
#include "absl/status/statusor.h"
#include "core/kernel_map.h"
#include "core/mapping.h"

namespace voxconv {

// Finds the pairs of offset k among output rows [begin, end): writes them to in[0..] and out[0..],
// ascending by output row, and returns their number. There is room for end - begin pairs. Called
// concurrently.
using PairProbe =
    absl::FunctionRef<int64_t(int k, int64_t begin, int64_t end, int32_t* in, int32_t* out)>;

// Runs `probe` for all offsets and output rows in parallel and packs the pairs into the canonical
// list. With `symmetric` (the geometry must be, checked) only offsets below the centre are probed:
// the centre is the identity and offset K-1-k the transpose of k (TorchSparse 4.2.1). Records
// counters.queries, one for each (offset, row) probed, and counters.true_pairs is left to the
// dataflow. O(K N_out) work beside the probes', 8 bytes x K x N_out of scratch.
absl::StatusOr<KernelMap> CollectPairs(const MapProblem& problem, bool symmetric, PairProbe probe,
                                       const ExecutionContext& context);

// The canonical list of `columns` [K, N_out] (offset-major): input row or -1. For mappings that
// find pairs in another order than by output row.
absl::StatusOr<KernelMap> CompactColumns(const MapProblem& problem, const Array<int32_t>& columns,
                                         const ExecutionContext& context);

}  // namespace voxconv

#endif  // VOXCONV_BACKENDS_CPU_PAIR_COLLECTOR_H_
