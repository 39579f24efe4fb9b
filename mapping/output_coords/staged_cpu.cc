// SPDX-License-Identifier: Apache-2.0
#include <utility>
#include <vector>

#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/mapping/output_coords/output_coords_cpu.h"

namespace voxconv {
namespace {

constexpr int64_t kCandidatesPerTask = 65536;

// Candidates of all inputs, [N, offsets].
absl::StatusOr<Array<Coordinate>> Candidates(const CandidateRule& rule, const CoordinateSet& inputs,
                                             const ExecutionContext& context) {
  const auto per_row = static_cast<int64_t>(rule.offsets().size());
  VOXCONV_ASSIGN_OR_RETURN(Array<Coordinate> candidates,
                           AllocateArray<Coordinate>(inputs.size() * per_row, context));
  const Coordinate* rows = inputs.rows().data();
  ParallelRanges(context, inputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    Coordinate* to = candidates.data() + begin * per_row;
    for (int64_t i = begin; i < end; ++i) {
      for (const Int3& d : rule.offsets()) {
        *to++ = {rows[i].b, rule.Candidate(0, rows[i].x, d.x), rule.Candidate(1, rows[i].y, d.y),
                 rule.Candidate(2, rows[i].z, d.z)};
      }
    }
  });
  return candidates;
}

// keep[i] = check(candidates[i]) and, if there is one, previous[i].
template <typename Check>
absl::StatusOr<Array<uint8_t>> Filter(const Array<Coordinate>& candidates,
                                      const Array<uint8_t>* previous, const Check& check,
                                      const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(Array<uint8_t> keep, AllocateArray<uint8_t>(candidates.size(), context));
  ParallelRanges(context, candidates.size(), kCandidatesPerTask, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) {
      const bool passed = check(candidates.data()[i]);
      keep.data()[i] = passed && (previous == nullptr || previous->data()[i] != 0);
    }
  });
  return keep;
}

absl::StatusOr<Array<uint64_t>> Compact(const Array<Coordinate>& candidates,
                                        const Array<uint8_t>& keep, const CompactKeyFormat& format,
                                        const ExecutionContext& context) {
  std::vector<int64_t> first((keep.size() + kCandidatesPerTask - 1) / kCandidatesPerTask);
  ParallelRanges(context, keep.size(), kCandidatesPerTask, [&](int64_t begin, int64_t end) {
    int64_t count = 0;
    for (int64_t i = begin; i < end; ++i) count += keep.data()[i];
    first[begin / kCandidatesPerTask] = count;
  });
  int64_t total = 0;
  for (int64_t& count : first) total += std::exchange(count, total);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(total, context));
  ParallelRanges(context, keep.size(), kCandidatesPerTask, [&](int64_t begin, int64_t end) {
    uint64_t* to = keys.data() + first[begin / kCandidatesPerTask];
    for (int64_t i = begin; i < end; ++i) {
      if (keep.data()[i] != 0) *to++ = format.Pack(candidates.data()[i]);
    }
  });
  return keys;
}

}  // namespace

absl::StatusOr<Array<uint64_t>> StagedKeysCpu(const CandidateRule& rule,
                                              const CoordinateSet& inputs,
                                              const ExecutionContext& context) {
  VOXCONV_ASSIGN_OR_RETURN(const Array<Coordinate> candidates, Candidates(rule, inputs, context));
  const auto on_lattice = [&](const Coordinate& q) {
    return rule.OnLattice(0, q.x) && rule.OnLattice(1, q.y) && rule.OnLattice(2, q.z);
  };
  const auto within_limits = [&](const Coordinate& q) {
    return rule.WithinLimits(0, q.x) && rule.WithinLimits(1, q.y) && rule.WithinLimits(2, q.z);
  };
  VOXCONV_ASSIGN_OR_RETURN(const Array<uint8_t> modular,
                           Filter(candidates, nullptr, on_lattice, context));
  VOXCONV_ASSIGN_OR_RETURN(const Array<uint8_t> keep,
                           Filter(candidates, &modular, within_limits, context));
  return Compact(candidates, keep, rule.key_format(), context);
}

}  // namespace voxconv
