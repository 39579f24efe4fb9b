// SPDX-License-Identifier: Apache-2.0
// What lookups on demand ask, on every backend.
#ifndef VOXCONV_MAPPING_PERFECT_HASH_NEIGHBOUR_QUESTION_H_
#define VOXCONV_MAPPING_PERFECT_HASH_NEIGHBOUR_QUESTION_H_

#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "voxconv/core/backend.h"
#include "voxconv/core/kernel_map.h"
#include "voxconv/core/mapping.h"
#include "voxconv/core/status_macros.h"
#include "voxconv/core/types.h"

namespace voxconv {

// A MapProblem without its inputs that owns what it holds, because a kernel map may outlive the
// problem.
struct NeighbourQuestion {
  Array<Coordinate> outputs;     // in the backend's memory
  std::vector<Int3> offsets;     // ConvGeometry::InputOffset
  bool may_leave_range = false;  // whether an output plus an offset may leave the coordinate range

  // Copies the outputs, on the context's stream. O(N_out + K).
  static absl::StatusOr<NeighbourQuestion> Copy(const MapProblem& problem,
                                                const ExecutionContext& context) {
    const Array<Coordinate>& rows = problem.outputs.rows();
    const auto offsets = problem.geometry.input_offsets();
    NeighbourQuestion question;
    VOXCONV_ASSIGN_OR_RETURN(question.outputs, AllocateArray<Coordinate>(rows.size(), context));
    VOXCONV_RETURN_IF_ERROR(context.backend->Copy(question.outputs.data(), rows.space(),
                                                  rows.data(), rows.space(), rows.bytes(),
                                                  *context.stream));
    question.offsets.assign(offsets.begin(), offsets.end());
    question.may_leave_range = !problem.outputs.StaysInRange(offsets);
    return question;
  }
};

// The map of `problem` whose neighbours `lookup` finds.
inline KernelMap MapOnDemand(const MapProblem& problem, NeighbourLookupPtr lookup) {
  KernelMap map(problem.inputs.size(), problem.outputs.size(), problem.geometry.num_offsets(),
                std::move(lookup));
  map.set_identity_offset(problem.geometry.center());
  map.set_symmetric(problem.geometry.symmetric());
  return map;
}

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_PERFECT_HASH_NEIGHBOUR_QUESTION_H_
