// SPDX-License-Identifier: Apache-2.0
// A kernel is a box, so the outputs of an input are the product of those along each axis. For a
// 3 x 3 x 3 kernel at stride 2 that is 1 to 8 outputs, found without looking at 27 candidates.
#include <utility>
#include <vector>

#include "absl/types/span.h"
#include "voxconv/backends/cpu/parallel.h"
#include "voxconv/mapping/output_coords/output_coords_cpu.h"

namespace voxconv {
namespace {

// For each position of an input along one axis, the key terms of its outputs along that axis.
class AxisTerms {
 public:
  static absl::StatusOr<AxisTerms> Create(const CandidateRule& rule, const CompactKeyFormat& format,
                                          int axis, int32_t lo, int32_t hi,
                                          const ExecutionContext& context) {
    AxisTerms terms;
    terms.lo_ = lo;
    const std::vector<int32_t> offsets = rule.AxisOffsets(axis);
    const int64_t extent = int64_t{hi} - lo + 1;
    VOXCONV_ASSIGN_OR_RETURN(terms.start_, AllocateArray<int32_t>(extent + 1, context));
    // Extent and kernel are below 2^18 and 2^15, and their product below 2^33.
    const auto each_output = [&](int64_t i, const auto& visit) {
      for (int32_t d : offsets) {
        const int32_t q = rule.Candidate(axis, static_cast<int32_t>(lo + i), d);
        if (rule.OnLattice(axis, q) && rule.WithinLimits(axis, q)) visit(q);
      }
    };
    int64_t total = 0;
    for (int64_t i = 0; i < extent; ++i) each_output(i, [&](int32_t) { ++total; });
    if (total > INT32_MAX) {
      return absl::ResourceExhaustedError(
          "output coordinates: kernel times extent along an axis is past 2^31");
    }
    VOXCONV_ASSIGN_OR_RETURN(terms.terms_, AllocateArray<uint64_t>(total, context));
    int32_t next = 0;
    for (int64_t i = 0; i < extent; ++i) {
      terms.start_.data()[i] = next;
      each_output(i, [&](int32_t q) { terms.terms_.data()[next++] = format.AxisTerm(axis, q); });
    }
    terms.start_.data()[extent] = next;
    return terms;
  }

  absl::Span<const uint64_t> Of(int32_t position) const {
    const int32_t* start = start_.data() + (int64_t{position} - lo_);
    return {terms_.data() + start[0], static_cast<size_t>(start[1] - start[0])};
  }

 private:
  int32_t lo_ = 0;
  Array<int32_t> start_;
  Array<uint64_t> terms_;
};

uint64_t* WriteKeys(uint64_t batch_term, absl::Span<const uint64_t> x, absl::Span<const uint64_t> y,
                    absl::Span<const uint64_t> z, uint64_t* to) {
  for (uint64_t x_term : x) {
    for (uint64_t y_term : y) {
      for (uint64_t z_term : z) *to++ = batch_term | x_term | y_term | z_term;
    }
  }
  return to;
}

}  // namespace

absl::StatusOr<Array<uint64_t>> SortUniqueKeysCpu(const CandidateRule& rule,
                                                  const CoordinateSet& inputs,
                                                  const ExecutionContext& context) {
  const CompactKeyFormat format = rule.key_format();
  AxisTerms terms[3];
  for (int axis = 0; axis < 3; ++axis) {
    VOXCONV_ASSIGN_OR_RETURN(terms[axis],
                             AxisTerms::Create(rule, format, axis, inputs.bounds().lo[axis],
                                               inputs.bounds().hi[axis], context));
  }
  const AxisTerms &x = terms[0], &y = terms[1], &z = terms[2];
  const Coordinate* rows = inputs.rows().data();
  std::vector<int64_t> first((inputs.size() + kRowsPerTask - 1) / kRowsPerTask);
  ParallelRanges(context, inputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    size_t count = 0;
    for (int64_t i = begin; i < end; ++i) {
      count += x.Of(rows[i].x).size() * y.Of(rows[i].y).size() * z.Of(rows[i].z).size();
    }
    first[begin / kRowsPerTask] = static_cast<int64_t>(count);
  });
  int64_t total = 0;
  for (int64_t& count : first) total += std::exchange(count, total);
  VOXCONV_ASSIGN_OR_RETURN(Array<uint64_t> keys, AllocateArray<uint64_t>(total, context));
  ParallelRanges(context, inputs.size(), kRowsPerTask, [&](int64_t begin, int64_t end) {
    uint64_t* to = keys.data() + first[begin / kRowsPerTask];
    for (int64_t i = begin; i < end; ++i) {
      to = WriteKeys(format.BatchTerm(rows[i].b), x.Of(rows[i].x), y.Of(rows[i].y), z.Of(rows[i].z),
                     to);
    }
  });
  return keys;
}

}  // namespace voxconv
