// SPDX-License-Identifier: Apache-2.0
#include "voxconv/mapping/output_coords/candidate_rule.h"

#include <algorithm>
#include <string>

#include "absl/strings/str_cat.h"
#include "voxconv/core/coordinate_key.h"

namespace voxconv {

absl::StatusOr<CandidateRule> CandidateRule::Create(const CoordinateSet& inputs,
                                                    const ConvGeometry& geometry) {
  CandidateRule rule =
      ForBounds(geometry, inputs.tensor_stride(), inputs.bounds(), inputs.num_batches());
  if (inputs.size() > 0 && rule.MayLeaveRange()) {
    if (absl::Status status = rule.CheckRange(inputs.rows().host()); !status.ok()) return status;
  }
  return rule;
}

CandidateRule CandidateRule::ForBounds(const ConvGeometry& geometry, const Int3& input_stride,
                                       const Box& bounds, int32_t num_batches) {
  const GeometryParams& params = geometry.params();
  CandidateRule rule;
  rule.quantize_ = geometry.kind() == ConvKind::kStrided && params.rule == OutputRule::kQuantize;
  rule.input_stride_ = input_stride;
  rule.step_ = geometry.output_tensor_stride();
  rule.input_bounds_ = bounds;
  rule.num_batches_ = num_batches;
  if (rule.quantize_) {
    rule.offsets_ = {Int3{}};
  } else {
    rule.offsets_.assign(geometry.input_offsets().begin(), geometry.input_offsets().end());
  }
  for (int axis = 0; axis < 3; ++axis) {
    rule.wanted_lo_[axis] = INT64_MIN;
    rule.wanted_hi_[axis] = INT64_MAX;
    if (params.output_bounds.has_value()) {
      rule.wanted_lo_[axis] = int64_t{params.output_bounds->lo[axis]} * rule.step_[axis];
      rule.wanted_hi_[axis] = int64_t{params.output_bounds->hi[axis]} * rule.step_[axis];
    }
    rule.lo_[axis] = std::max<int64_t>(rule.wanted_lo_[axis], kMinCoordinate);
    rule.hi_[axis] = std::min<int64_t>(rule.wanted_hi_[axis], kMaxCoordinate);
  }
  return rule;
}

bool CandidateRule::MayLeaveRange() const {
  for (int axis = 0; axis < 3; ++axis) {
    for (int32_t d : AxisOffsets(axis)) {
      if (!InRange(Candidate(axis, input_bounds_.lo[axis], d)) ||
          !InRange(Candidate(axis, input_bounds_.hi[axis], d))) {
        return true;
      }
    }
  }
  return false;
}

absl::Status CandidateRule::CheckRange(absl::Span<const Coordinate> rows) const {
  for (const Coordinate& row : rows) {
    for (const Int3& d : offsets_) {
      bool is_output = true;
      int outside = -1;
      Int3 q;
      for (int axis = 0; axis < 3; ++axis) {
        q[axis] = Candidate(axis, row.position()[axis], d[axis]);
        is_output = is_output && OnLattice(axis, q[axis]) && q[axis] >= wanted_lo_[axis] &&
                    q[axis] <= wanted_hi_[axis];
        if (outside < 0 && !InRange(q[axis])) outside = axis;
      }
      if (!is_output || outside < 0) continue;
      return absl::OutOfRangeError(
          absl::StrCat("output coordinates: ", std::string(1, kAxisNames[outside]), " = ",
                       q[outside], " of an output of input (", row.b, ", ", row.x, ", ", row.y,
                       ", ", row.z, "); allowed are ", kMinCoordinate, "..", kMaxCoordinate));
    }
  }
  return absl::OkStatus();
}

std::vector<int32_t> CandidateRule::AxisOffsets(int axis) const {
  std::vector<int32_t> distinct;
  for (const Int3& d : offsets_) distinct.push_back(d[axis]);
  std::sort(distinct.begin(), distinct.end());
  distinct.erase(std::unique(distinct.begin(), distinct.end()), distinct.end());
  return distinct;
}

int64_t CandidateRule::max_outputs_per_input() const {
  int64_t product = 1;
  for (int axis = 0; axis < 3; ++axis) {
    // Inputs are multiples of their stride; whether q is one of the step depends on p modulo it.
    const std::vector<int32_t> offsets = AxisOffsets(axis);
    int64_t most = 0;
    for (int32_t p = 0; p < std::max(step_[axis], 1); p += input_stride_[axis]) {
      most = std::max<int64_t>(most, std::count_if(offsets.begin(), offsets.end(), [&](int32_t d) {
                                 return OnLattice(axis, Candidate(axis, p, d));
                               }));
    }
    product *= most;
  }
  return product;
}

Box CandidateRule::OutputBox() const {
  Box box;
  for (int axis = 0; axis < 3; ++axis) {
    const std::vector<int32_t> offsets = AxisOffsets(axis);
    const int64_t lo = Candidate(axis, input_bounds_.lo[axis], offsets.back());
    const int64_t hi = Candidate(axis, input_bounds_.hi[axis], offsets.front());
    // The lower corner must be on the lattice, as keys drop the bits that the step leaves 0.
    const auto first =
        static_cast<int32_t>(std::clamp(lo, lo_[axis], std::max(lo_[axis], hi_[axis])));
    box.lo[axis] = first - FloorModulo(axis, first);
    const auto last =
        static_cast<int32_t>(std::max<int64_t>(box.lo[axis], std::min(hi, hi_[axis])));
    box.hi[axis] = last - FloorModulo(axis, last);
  }
  return box;
}

}  // namespace voxconv
