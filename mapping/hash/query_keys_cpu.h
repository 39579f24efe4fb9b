// SPDX-License-Identifier: Apache-2.0
#ifndef VOXCONV_MAPPING_HASH_QUERY_KEYS_CPU_H_
#define VOXCONV_MAPPING_HASH_QUERY_KEYS_CPU_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "voxconv/core/coordinate_rows.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// The keys of the inputs q + InputOffset(k) that a problem looks up. The problem's coordinate sets
// must outlive this object.
class QueryKeysCpu {
 public:
  // Packs `outputs`, which are the problem's, once for all offsets. O(N_out); 8 bytes for each row.
  static absl::StatusOr<QueryKeysCpu> Create(const MapProblem& problem,
                                             const CoordinateRows& outputs,
                                             const ExecutionContext& context);

  // Sets keys[i] for the output rows begin + i < end. A position out of range gets kEmptyKey,
  // because the sum of its keys is the key of another voxel.
  void Fill(int k, int64_t begin, int64_t end, uint64_t* keys) const;

 private:
  QueryKeysCpu(const MapProblem& problem, const CoordinateRows& outputs,
               Array<uint64_t> output_keys)
      : problem_(problem),
        outputs_(outputs),
        output_keys_(std::move(output_keys)),
        stays_in_range_(problem.outputs.StaysInRange(problem.geometry.input_offsets())) {}

  MapProblem problem_;
  CoordinateRows outputs_;
  Array<uint64_t> output_keys_;
  bool stays_in_range_;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_HASH_QUERY_KEYS_CPU_H_
