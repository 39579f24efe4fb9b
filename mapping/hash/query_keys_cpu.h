#ifndef VOXCONV_MAPPING_HASH_QUERY_KEYS_CPU_H_
#define VOXCONV_MAPPING_HASH_QUERY_KEYS_CPU_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "core/coordinate_rows.h"
#include "core/mapping.h"

namespace voxconv {

// Keys of the sought inputs q + InputOffset(k). Refers to the problem it was made for.
class QueryKeysCpu {
 public:
  // Packs `outputs`, the problem's, once for all offsets: O(N_out), 8 bytes a row.
  static absl::StatusOr<QueryKeysCpu> Create(const MapProblem& problem,
                                             const CoordinateRows& outputs,
                                             const ExecutionContext& context);

  // keys[i] for output rows begin + i < end; kEmptyKey where the position is out of range, as
  // adding the key delta would there name another voxel.
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
