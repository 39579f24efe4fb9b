// SPDX-License-Identifier: Apache-2.0
// The output rows that an input row has.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_CANDIDATE_RULE_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_CANDIDATE_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "voxconv/backends/cpu/compact_key.h"
#include "voxconv/core/mapping.h"

namespace voxconv {

// An input p has one candidate q for each offset d of offsets(). Quantize has the single offset 0
// and q = floor(p / step) step. All other kinds have q = p - d. A candidate is an output if it is a
// multiple of the step (the output tensor stride) and within the limits on every axis (TorchSparse
// Algorithm 3, lines 4 to 6). Axes are independent of each other.
class CandidateRule {
 public:
  // kOutOfRange if an output lies outside the coordinate range. The message names the axis and the
  // value. O(1) if the inputs' bounds rule this out, else O(K N).
  static absl::StatusOr<CandidateRule> Create(const CoordinateSet& inputs,
                                              const ConvGeometry& geometry);
  // The rule for any inputs within `bounds`. It has no errors. Outputs outside the coordinate range
  // are not within its limits.
  static CandidateRule ForBounds(const ConvGeometry& geometry, const Int3& input_stride,
                                 const Box& bounds, int32_t num_batches);
  // kOutOfRange if an output of one of `rows` lies outside the coordinate range. All `rows` are
  // inputs.
  absl::Status CheckRange(absl::Span<const Coordinate> rows) const;
  // Whether the inputs' bounds allow an output outside the coordinate range.
  bool MayLeaveRange() const;

  const std::vector<Int3>& offsets() const { return offsets_; }
  // The most candidates of one input that can be multiples of the step.
  int64_t max_outputs_per_input() const;

  int32_t Candidate(int axis, int32_t p, int32_t d) const {
    return quantize_ ? p - FloorModulo(axis, p) : p - d;
  }
  bool OnLattice(int axis, int32_t q) const { return FloorModulo(axis, q) == 0; }
  bool WithinLimits(int axis, int32_t q) const { return q >= lo_[axis] && q <= hi_[axis]; }

  // Calls visit(q) for each output q of input p.
  template <typename Visit>
  void EachOutput(const Coordinate& p, const Visit& visit) const {
    for (const Int3& d : offsets_) {
      const Coordinate q{p.b, Candidate(0, p.x, d.x), Candidate(1, p.y, d.y),
                         Candidate(2, p.z, d.z)};
      if (OnLattice(0, q.x) && OnLattice(1, q.y) && OnLattice(2, q.z) && WithinLimits(0, q.x) &&
          WithinLimits(1, q.y) && WithinLimits(2, q.z)) {
        visit(q);
      }
    }
  }

  // The distinct offsets along one axis. offsets() is the product of the three axes.
  std::vector<int32_t> AxisOffsets(int axis) const;

  // The box of all positions that OnLattice and WithinLimits admit. Both corners are on the
  // lattice.
  Box OutputBox() const;
  // The keys of the positions in OutputBox().
  CompactKeyFormat key_format() const { return CompactKeyFormat(OutputBox(), step_, num_batches_); }
  // The limits of output_bounds. They may be outside the coordinate range.
  int64_t FirstWanted(int axis) const { return wanted_lo_[axis]; }
  int64_t LastWanted(int axis) const { return wanted_hi_[axis]; }
  const Int3& output_tensor_stride() const { return step_; }

 private:
  CandidateRule() = default;
  int32_t FloorModulo(int axis, int32_t value) const {
    // Most strides are powers of two, and a division costs more than the rest of this function.
    const int32_t step = step_[axis];
    if ((step & (step - 1)) == 0) return value & (step - 1);
    const int32_t remainder = value % step;
    return remainder < 0 ? remainder + step : remainder;
  }

  bool quantize_ = false;
  Int3 input_stride_, step_;
  std::vector<Int3> offsets_;
  Box input_bounds_;
  int64_t wanted_lo_[3], wanted_hi_[3];  // limits in finest voxels, inclusive
  int64_t lo_[3], hi_[3];                // the same limits, cut to the coordinate range
  int32_t num_batches_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_CANDIDATE_RULE_H_
