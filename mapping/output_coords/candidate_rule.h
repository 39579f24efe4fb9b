// Which output rows an input row asks for.
#ifndef VOXCONV_MAPPING_OUTPUT_COORDS_CANDIDATE_RULE_H_
#define VOXCONV_MAPPING_OUTPUT_COORDS_CANDIDATE_RULE_H_

#include <cstdint>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/types/span.h"
#include "backends/cpu/compact_key.h"
#include "core/mapping.h"

namespace voxconv {

// Candidates of input p, one for each of `offsets()`: quantize has the single offset 0 and
// q = floor(p / step) step; all other kinds have q = p - d. A candidate is an output if it is a
// multiple of the step (the output tensor stride) and within the limits on every axis: TorchSparse
// Algorithm 3, lines 4 to 6. Axes are independent of each other.
class CandidateRule {
 public:
  // kOutOfRange, naming axis and value, if an output lies outside the coordinate range: O(1) where
  // the inputs' bounds rule that out, O(K N) otherwise.
  static absl::StatusOr<CandidateRule> Create(const CoordinateSet& inputs,
                                              const ConvGeometry& geometry);
  // For any inputs within `bounds`. Nothing is refused: outputs outside the coordinate range are
  // not within the limits.
  static CandidateRule ForBounds(const ConvGeometry& geometry, const Int3& input_stride,
                                 const Box& bounds, int32_t num_batches);
  // kOutOfRange if an output of one of `rows`, all of them inputs, lies outside the range.
  absl::Status CheckRange(absl::Span<const Coordinate> rows) const;
  // Whether any output can, going by the inputs' bounds.
  bool MayLeaveRange() const;

  const std::vector<Int3>& offsets() const { return offsets_; }
  // Most candidates of one input that are multiples of the step.
  int64_t max_outputs_per_input() const;

  int32_t Candidate(int axis, int32_t p, int32_t d) const {
    return quantize_ ? p - FloorModulo(axis, p) : p - d;
  }
  bool OnLattice(int axis, int32_t q) const { return FloorModulo(axis, q) == 0; }
  bool WithinLimits(int axis, int32_t q) const { return q >= lo_[axis] && q <= hi_[axis]; }

  // The distinct offsets along one axis: offsets() is their product.
  std::vector<int32_t> AxisOffsets(int axis) const;

  // Encloses everything that OnLattice and WithinLimits admit; both corners are on the lattice.
  Box OutputBox() const;
  // Keys for all of that.
  CompactKeyFormat key_format() const { return CompactKeyFormat(OutputBox(), step_, num_batches_); }
  // The limits of output_bounds alone, which may be past the coordinate range.
  int64_t FirstWanted(int axis) const { return wanted_lo_[axis]; }
  int64_t LastWanted(int axis) const { return wanted_hi_[axis]; }
  const Int3& output_tensor_stride() const { return step_; }

 private:
  CandidateRule() = default;
  int32_t FloorModulo(int axis, int32_t value) const {
    // Strides are mostly powers of two, and a division costs more than all the rest.
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
  int64_t lo_[3], hi_[3];                // as far as the range goes
  int32_t num_batches_ = 0;
};

}  // namespace voxconv

#endif  // VOXCONV_MAPPING_OUTPUT_COORDS_CANDIDATE_RULE_H_
