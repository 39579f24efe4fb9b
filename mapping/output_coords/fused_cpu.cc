// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>
#include <vector>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/mapping/output_coords/output_coords_cpu.h"

namespace voxconv {

absl::StatusOr<Array<uint64_t>> FusedKeysCpu(const CandidateRule& rule, const CoordinateSet& inputs,
                                             const ExecutionContext& context) {
  const CompactKeyFormat format = rule.key_format();
  const Coordinate* rows = inputs.rows().data();
  const int64_t room = rule.max_outputs_per_input();
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> found,
                           AllocateArray<uint64_t>(inputs.size() * room, context));
  std::vector<int64_t> count((inputs.size() + kRowsPerTask - 1) / kRowsPerTask);
  ParallelRanges(context, inputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    uint64_t* const first = found.data() + begin * room;
    uint64_t* to = first;
    for (int64_t i = begin; i < end; ++i) {
      rule.EachOutput(rows[i], [&](const Coordinate& q) { *to++ = format.Pack(q); });
    }
    count[begin / kRowsPerTask] = to - first;
  });

  // Each task left a gap behind its keys; they are closed by a copy, as the sort reads an array.
  std::vector<int64_t> target = count;
  int64_t total = 0;
  for (int64_t& position : target) total += std::exchange(position, total);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(total, context));
  ParallelRanges(context, static_cast<int64_t>(count.size()), 1, [&](int64_t task, int64_t) {
    std::copy_n(found.data() + task * kRowsPerTask * room, count[task], keys.data() + target[task]);
  });
  return keys;
}

}  // namespace voxconv
